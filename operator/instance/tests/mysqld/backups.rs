//! Backups: what the program of a Job makes of a real server and a real store, and that common programs bring it back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use mainstay_core::backup::manifest::StoredFile;
use mainstay_core::backup::plan::{BackupStep, StoredBackup};
use mainstay_core::backup::wire::Outcome;
use mainstay_core::backup::{BackupId, BackupManifest, ClusterIdentity};
use mainstay_instance::backup::{make, read_page};
use mainstay_instance::config::Programs;
use mainstay_store::archive::PrivateKey;
use mainstay_store::{Access, Entry, Identity, Keys, Listing, S3, Settings as StoreSettings, Store as _};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use secrecy::ExposeSecret as _;
use tokio::process::{Child, Command};

use crate::support::pod::{ID, Pod, watch_steps};
use crate::support::wire::Wire;
use crate::support::{Cluster, LIMIT, ROOT, free_port, insert, make_table, rows, show_logs, until, write};

const ACCESS_KEY: &str = "owner";
const SECRET_KEY: &str = "the-owners-secret";
const BUCKET: &str = "backups";

/// versitygw on a directory: its objects are files.
struct Gateway {
    port: u16,
    files: tempfile::TempDir,
    _process: Child,
}

impl Gateway {
    async fn start() -> Self {
        let files = tempfile::tempdir_in(crate::support::fast_directory()).unwrap();
        for folder in ["data", "iam", &format!("data/{BUCKET}")] {
            std::fs::create_dir(files.path().join(folder)).unwrap();
        }
        let port = free_port();
        let process = Command::new(program())
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "--iam-dir"])
            .arg(files.path().join("iam"))
            .arg("posix")
            .arg(files.path().join("data"))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let gateway = Self {
            port,
            files,
            _process: process,
        };
        until("the store answers", async || {
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                .await
                .is_ok()
        })
        .await;
        gateway
    }

    fn file(&self, key: &str) -> PathBuf {
        self.files.path().join("data").join(BUCKET).join(key)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }
}

/// The one that the testbed built, or that `MAINSTAY_TEST_S3` names.
fn program() -> PathBuf {
    if let Some(given) = std::env::var_os("MAINSTAY_TEST_S3") {
        return given.into();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/mainstay");
    let cache = std::env::var_os("MAINSTAY_CACHE").map_or_else(home, PathBuf::from);
    let built = std::fs::read_dir(cache.join("bin")).into_iter().flatten().flatten();
    let is_gateway = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("versitygw-");
    let newest = built.filter(is_gateway).map(|entry| entry.path()).max();
    newest.expect("versitygw: start the testbed once, or set MAINSTAY_TEST_S3")
}

fn identity() -> ClusterIdentity {
    ClusterIdentity::new("prod", "shop", "uid-1").unwrap()
}

fn id() -> BackupId {
    BackupId::parse(ID).unwrap()
}

fn access(store: SocketAddr, key: Option<&PrivateKey>) -> Access {
    Access {
        store: StoreSettings {
            endpoint: Some(format!("http://{store}")),
            region: "us-east-1".to_owned(),
            bucket: BUCKET.to_owned(),
            prefix: "mysql".to_owned(),
            path_style: true,
            ca: None,
            identity: Identity::Keys(Keys {
                access_key: ACCESS_KEY.to_owned(),
                secret_key: SECRET_KEY.into(),
                session_token: None,
            }),
        },
        cluster: identity(),
        archive: false,
        recipient: key.map(PrivateKey::recipient),
        private_keys: Vec::new(),
    }
}

pub(crate) fn stored(outcome: Outcome) -> StoredBackup {
    match outcome {
        Outcome::Stored(stored) => *stored,
        Outcome::Failed { reason, message } => panic!("{reason}: {message}"),
    }
}

pub(crate) fn failed(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Failed { reason, message } => (reason, message),
        Outcome::Stored(stored) => panic!("{stored:?}"),
    }
}

/// What is in the store, and what was begun there.
async fn contents(access: &Access) -> (Vec<String>, usize) {
    let store = S3::new(access.store.clone()).await.unwrap();
    let folder = identity().folder();
    let entries = store.list_all(Listing::all(folder.clone())).await.unwrap();
    let keys = entries.into_iter().filter_map(|entry| match entry {
        Entry::Object(object) => Some(object.key.as_str().trim_start_matches(folder.as_str()).to_owned()),
        Entry::Folder(_) => None,
    });
    (keys.collect(), store.incomplete(&folder).await.unwrap().len())
}

/// A primary and its replica, with data of all sizes.
async fn cluster() -> Cluster {
    let mut cluster = Cluster::bootstrap(2).await;
    make_table(&mut cluster, 0).await;
    for number in 1..=5 {
        insert(&cluster.nodes[0], number).await.unwrap();
    }
    let mut root = cluster.nodes[0].root().await;
    root.query_drop("CREATE TABLE my_app.`größe-x` (n INT PRIMARY KEY, b LONGBLOB)")
        .await
        .unwrap();
    for number in 0..24 {
        root.query_drop(format!(
            "INSERT INTO my_app.`größe-x` VALUES ({number}, RANDOM_BYTES(1000))"
        ))
        .await
        .unwrap();
        root.query_drop(format!(
            "UPDATE my_app.`größe-x` SET b = REPEAT(b, 800) WHERE n = {number}"
        ))
        .await
        .unwrap();
    }
    drop(root);
    let executed = cluster.mark(0).await;
    cluster.nodes[1].wait_for(&executed).await;
    cluster
}

const CHECKSUMS: &str = "CHECKSUM TABLE my_app.t, my_app.`größe-x`, mysql.db, mysql.time_zone_name";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL, and versitygw"]
#[expect(clippy::too_many_lines, reason = "a test tells one story")]
async fn a_backup_of_a_replica_boots_by_hand_with_the_same_data() {
    show_logs();
    let mut cluster = cluster().await;
    let gateway = Gateway::start().await;
    let key = PrivateKey::generate();
    let access = access(gateway.address(), Some(&key));
    let pod = Pod::new(&cluster, 1, &access);
    let executed = cluster.nodes[1].report().await.executed;
    let (steps, watching) = watch_steps(pod.settings.page);
    let began = Instant::now();
    let backup = stored(make(pod.settings.clone(), std::future::pending()).await);
    println!("a backup of {} bytes: {:?}", backup.size, began.elapsed());
    watching.abort();
    assert_eq!(
        *steps.lock().unwrap(),
        [BackupStep::Copy, BackupStep::Boot, BackupStep::Upload]
    );
    assert!(pod.is_still(), "a server is left");
    assert_eq!(backup.executed.as_ref(), Some(&executed));
    let folder = format!("mysql/{}", identity().backup(&id()));
    assert_eq!(backup.location, format!("s3://{BUCKET}/{folder}manifest.json"));
    assert_eq!(backup.key_id, Some(key.recipient().key_id()));
    let (keys, unfinished) = contents(&access).await;
    assert_eq!(
        keys,
        [
            format!("backups/{ID}/data.tar.zst.age"),
            format!("backups/{ID}/manifest.json")
        ]
    );
    assert_eq!(unfinished, 0);

    // The donor goes on as before.
    insert(&cluster.nodes[0], 6).await.unwrap();
    let after = cluster.mark(0).await;
    cluster.nodes[1].wait_for(&after).await;

    let json = std::fs::read(gateway.file(&format!("{folder}manifest.json"))).unwrap();
    let manifest = BackupManifest::from_json(&json).unwrap();
    assert_eq!(manifest.gtid_executed, executed);
    assert_eq!(
        (manifest.name.as_deref(), manifest.schedule.as_deref()),
        (Some("shop-nightly-57bcae98-29933460"), Some("nightly"))
    );
    let [file] = manifest.files.as_slice() else {
        panic!("{manifest:?}")
    };
    let data = unpack(&gateway.file(&folder), file, &key, pod.files.path()).await;
    for absent in [
        "auto.cnf",
        "mysqld-auto.cnf",
        "relay.index",
        "server-key.pem",
        "private_key.pem",
        "binlog.index",
    ] {
        assert!(!data.join(absent).exists(), "{absent}");
    }

    let by_hand = ByHand::boot(&cluster.nodes[1].config.programs, pod.files.path(), &data).await;
    let mut root = by_hand.root().await;
    let restored: String = root
        .query_first("SELECT @@GLOBAL.gtid_executed")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(restored.parse::<mainstay_core::GtidSet>().unwrap(), executed);
    let numbers: Vec<u32> = root.query("SELECT n FROM my_app.t ORDER BY n").await.unwrap();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let host: Option<String> = root
        .query_first("SELECT HOST FROM performance_schema.replication_connection_configuration")
        .await
        .unwrap();
    assert_eq!(host, None, "it knows nobody whom it could follow");
    let restored: Vec<(String, Option<u64>)> = root.query(CHECKSUMS).await.unwrap();
    // The sixth row came after the backup.
    let mut primary = cluster.nodes[0].root().await;
    primary.query_drop("DELETE FROM my_app.t WHERE n = 6").await.unwrap();
    let live: Vec<(String, Option<u64>)> = primary.query(CHECKSUMS).await.unwrap();
    assert_eq!(restored, live);
    assert!(restored.iter().all(|(_, sum)| sum.is_some()), "{restored:?}");
    drop((root, primary, by_hand));

    // The same Job once more, as after a node that came back: it finds that all is done.
    let again = stored(make(pod.settings.clone(), std::future::pending()).await);
    assert_eq!(again, backup);
    cluster.cut().await;
}

/// What docs/backup-format.md says, with the programs that it names.
async fn unpack(folder: &Path, file: &StoredFile, key: &PrivateKey, into: &Path) -> PathBuf {
    let data = into.join("data-by-hand");
    write(&into.join("key.txt"), key.to_text().expose_secret());
    let script = format!(
        "cd {0} && echo '{1}  {2}' | sha256sum --check --quiet && mkdir -m 750 {3} && \
         age -d -i {4}/key.txt {2} | zstd -dc | tar -xf - -C {3}",
        folder.display(),
        file.sha256,
        file.name,
        data.display(),
        into.display(),
    );
    let done = Command::new("bash")
        .args(["-o", "pipefail", "-ec", &script])
        .status()
        .await
        .unwrap();
    assert!(done.success(), "{done}");
    data
}

/// A server that a person started on unpacked data.
struct ByHand {
    socket: PathBuf,
    _process: Child,
}

impl ByHand {
    async fn boot(programs: &Programs, files: &Path, data: &Path) -> Self {
        let socket = files.join("s");
        let script = files.join("init.sql");
        write(
            &script,
            &format!(
                "SET sql_log_bin = 0;\nALTER USER 'root'@'%' IDENTIFIED BY '{}' ACCOUNT UNLOCK;\nRESET REPLICA ALL;\n",
                ROOT.replace('\\', "\\\\").replace('\'', "''")
            ),
        );
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let process = Command::new(&programs.mysqld[0])
            .args(&programs.mysqld[1..])
            .arg("--no-defaults")
            .args(&programs.mysqld_args)
            .args([
                path("datadir", data),
                path("socket", &socket),
                path("init-file", &script),
            ])
            .args(["--skip-networking", "--skip-replica-start", "--gtid-mode=ON"])
            .args([
                "--enforce-gtid-consistency=ON",
                "--persisted-globals-load=OFF",
                "--secure-file-priv=NULL",
            ])
            .arg(path("pid-file", &files.join("pid")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(files.join("by-hand.log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let by_hand = Self {
            socket,
            _process: process,
        };
        until("the server answers", async || by_hand.log_in().await.is_ok()).await;
        by_hand
    }

    async fn log_in(&self) -> Result<Conn, mysql_async::Error> {
        let opts = OptsBuilder::default()
            .socket(self.socket.to_str().map(str::to_owned))
            .user(Some("root"))
            .pass(Some(ROOT));
        Conn::new(opts).await
    }

    async fn root(&self) -> Conn {
        self.log_in().await.unwrap()
    }
}

/// Returns a moment after a step began; in an upload when something is being stored.
async fn in_the_middle_of(step: BackupStep, page: SocketAddr) {
    let least = if step == BackupStep::Upload { 8 << 20 } else { 0 };
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < LIMIT, "it never came to {step:?}");
        if let Ok(progress) = read_page(page).await
            && progress.step == step
            && progress.bytes >= least
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// The pod is stopped in each of its steps: nothing is left in the store, no server runs on, and the donor does not care.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL, and versitygw"]
async fn f23_a_backup_that_is_stopped_leaves_nothing_behind() {
    show_logs();
    let mut cluster = cluster().await;
    let gateway = Gateway::start().await;
    // A slow network, so that it is in the middle of the upload for a while.
    let wire = Wire::to(gateway.address()).await;
    wire.throttle(2_000_000);
    let (slow, direct) = (access(wire.address, None), access(gateway.address(), None));
    for step in [BackupStep::Copy, BackupStep::Boot, BackupStep::Upload] {
        let pod = Pod::new(&cluster, 1, &slow);
        let stop = in_the_middle_of(step, pod.settings.page);
        let (reason, message) = failed(make(pod.settings.clone(), stop).await);
        assert_eq!(reason, "Interrupted", "{message}");
        until("no process is left", async || pod.is_still()).await;
        until("nothing is left in the store", async || {
            contents(&direct).await == (Vec::new(), 0)
        })
        .await;
        println!("stopped while {step:?}");
    }
    insert(&cluster.nodes[0], 6).await.unwrap();
    let executed = cluster.mark(0).await;
    cluster.nodes[1].wait_for(&executed).await;
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL, and versitygw"]
async fn what_stands_in_the_way_of_a_backup_is_said() {
    show_logs();
    let mut cluster = cluster().await;
    let gateway = Gateway::start().await;
    // The store is asked before anything is copied.
    let mut wrong = access(gateway.address(), None);
    wrong.store.bucket = "no-such-bucket".to_owned();
    let pod = Pod::new(&cluster, 1, &wrong);
    let (reason, message) = failed(make(pod.settings.clone(), std::future::pending()).await);
    assert_eq!(reason, "StoreFailed");
    assert!(message.contains("no-such-bucket"), "{message}");
    assert!(!pod.settings.server.paths.data().exists());

    let good = access(gateway.address(), None);
    // The password of the clone account is another one.
    let pod = Pod::new(&cluster, 1, &good);
    write(
        &pod.settings.server.paths.system_secret.join("clone"),
        "not-the-password",
    );
    let (reason, message) = failed(make(pod.settings.clone(), std::future::pending()).await);
    assert_eq!(reason, "CopyFailed");
    assert!(message.contains("shop-1 could not be copied"), "{message}");
    assert!(!message.contains("not-the-password"), "{message}");
    println!("{message}");

    // Its donor dies in the middle.
    let wire = Wire::to(SocketAddr::new(
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        cluster.nodes[1].config.ports.admin,
    ))
    .await;
    wire.throttle(2_000_000);
    let mut pod = Pod::new(&cluster, 1, &good);
    pod.settings.task.donor.port = wire.address.port();
    pod.settings.stall = Duration::from_secs(15);
    let page = pod.settings.page;
    let making = tokio::spawn(make(pod.settings.clone(), std::future::pending()));
    until("it is in the middle", async || {
        read_page(page).await.is_ok_and(|progress| progress.bytes > 2 << 20)
    })
    .await;
    cluster.nodes[1].cut().await;
    let (reason, message) = failed(making.await.unwrap());
    // The server looks for its donor for five minutes, which is longer than this test lets anything stand still.
    assert!(
        matches!(reason.as_str(), "CopyFailed" | "Stalled"),
        "{reason}: {message}"
    );
    println!("{message}");
    assert_eq!(contents(&good).await, (Vec::new(), 0));
    assert!(pod.is_still());
    assert_eq!(rows(&cluster.nodes[0]).await.len(), 5);
    cluster.cut().await;
}
