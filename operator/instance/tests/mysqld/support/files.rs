//! What an instance finds on its disk: certificates, passwords, my.cnf, programs.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, Ipv4Addr, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, OsString, Path, PathBuf, Programs, SanType, TcpListener,
};

pub(super) fn ca(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(super) fn leaf(issuer: &Issuer, uri: &str) -> (String, String) {
    leaf_for(issuer, &["localhost"], uri)
}

pub(super) fn leaf_for(issuer: &Issuer, names: &[&str], uri: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let years = 2030 + i32::try_from(names.len()).unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = rcgen::date_time_ymd(years, 1, 1);
    params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Where servers keep their data: in memory, where there is enough of it. They sync all the time, and nothing here depends
/// on a disk; those that stall or fail are made so on purpose. `MAINSTAY_TEST_DIRECTORY` names another place.
pub(crate) fn fast_directory() -> PathBuf {
    const ENOUGH: u64 = 8 << 30;
    if let Some(given) = std::env::var_os("MAINSTAY_TEST_DIRECTORY") {
        return given.into();
    }
    let memory = PathBuf::from("/dev/shm");
    let free = rustix::fs::statvfs(&memory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if free >= ENOUGH { memory } else { std::env::temp_dir() }
}

/// A port that nobody has, and nobody gets until it is used: below those that the kernel gives to connections, and given
/// out once in a process.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(997);
    for _ in 0..PORTS {
        let at = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::SeqCst));
        let port = u16::try_from(FIRST + at % PORTS).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

pub(super) fn programs() -> Programs {
    let root = std::env::var("MAINSTAY_TEST_MYSQL").expect("MAINSTAY_TEST_MYSQL names the files of a MySQL image");
    let at = |path: &str| OsString::from(format!("{root}/{path}"));
    let program = |path: &str| {
        vec![
            // A test that fails leaves no mysqld behind: it ends with the thread that started it.
            "setpriv".into(),
            "--pdeathsig".into(),
            "KILL".into(),
            "--".into(),
            at("usr/lib64/ld-linux-x86-64.so.2"),
            "--library-path".into(),
            at("usr/lib/x86_64-linux-gnu"),
            at(path),
        ]
    };
    let mut mysqld_args: Vec<OsString> = vec![
        format!("--basedir={root}/usr").into(),
        format!("--lc-messages-dir={root}/usr/share/mysql").into(),
        format!("--character-sets-dir={root}/usr/share/mysql/charsets").into(),
        format!("--plugin-dir={root}/usr/lib/mysql/plugin").into(),
    ];
    if rustix::process::geteuid().is_root() {
        mysqld_args.push("--user=root".into());
    }
    Programs {
        mysqld: program("usr/sbin/mysqld"),
        mysqld_args,
        tzinfo: program("usr/bin/mysql_tzinfo_to_sql"),
        zoneinfo: PathBuf::from(at("usr/share/zoneinfo")),
    }
}

/// What the operator would write for a small cluster.
pub(super) fn my_cnf() -> String {
    let cluster = serde_json::json!({
        "apiVersion": "mysql.mainstay.dev/v1",
        "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "prod"},
        "spec": {
            "replicas": 3,
            "image": "mysql:9.7.4",
            "storage": {"size": "1Gi"},
            "resources": {"limits": {"memory": "512Mi"}},
            "config": {"max_connections": 50},
        },
    });
    let cluster = mainstay_core::validate::ValidatedCluster::new(&serde_json::from_value(cluster).unwrap()).unwrap();
    mainstay_core::mycnf::render(&cluster)
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
