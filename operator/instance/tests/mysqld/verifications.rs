//! Verifications: what the program of a Job says of a good backup, and of one that is damaged in every way.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use mainstay_core::GtidSet;
use mainstay_core::backup::plan::BackupStep;
use mainstay_core::backup::verify::{Outcome, Task, Verified};
use mainstay_core::backup::{BackupId, BackupManifest};
use mainstay_instance::backup::temporary;
use mainstay_instance::verify::{Settings, verify};
use mainstay_store::ACCESS_FILE;
use mainstay_store::archive::PrivateKey;
use secrecy::ExposeSecret as _;

use crate::restores::{LIFE, Small, Source, flip, small};
use crate::support::pod::{paths, watch_steps};
use crate::support::store::Stored;
use crate::support::{Node, free_port, show_logs, write};

/// The pod of a Job: the access to the store, the keys, and the cluster's my.cnf.
pub(crate) struct Pod {
    files: tempfile::TempDir,
    settings: Settings,
}

impl Pod {
    pub(crate) fn new(node: &Node, stored: &Stored, newest: &BackupId, keys: &[PrivateKey]) -> Self {
        let files = tempfile::tempdir_in(crate::support::fast_directory()).unwrap();
        let root = files.path();
        let config = &node.config;
        let access = stored.access_with(&[]).to_json();
        write(&root.join("store").join(ACCESS_FILE), access.expose_secret());
        for (number, key) in keys.iter().enumerate() {
            write(&root.join(format!("keys/k{number}")), key.to_text().expose_secret());
        }
        let ca = std::fs::read_to_string(config.paths.server_tls.join("ca.crt")).unwrap();
        write(&root.join("tls/ca.crt"), &ca);
        let paths = paths(root, &config.paths.config_file);
        std::fs::create_dir(&paths.volume).unwrap();
        let settings = Settings {
            task: Task {
                id: newest.clone(),
                name: "old-nightly".to_owned(),
            },
            store: root.join("store"),
            keys: root.join("keys"),
            last_words: root.join("last-words"),
            page: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free_port()),
            stall: Duration::from_mins(2),
            server: temporary(paths, config.programs.clone()),
        };
        Self { files, settings }
    }

    pub(crate) async fn outcome(&self) -> Outcome {
        let outcome = verify(self.settings.clone(), std::future::pending()).await;
        self.leaves_nothing();
        outcome
    }

    pub(crate) async fn fails(&self) -> (String, String) {
        match self.outcome().await {
            Outcome::Failed { reason, message } => {
                println!("{reason}: {message}");
                (reason, message)
            }
            Outcome::Verified(verified) => panic!("{verified:?}"),
        }
    }

    /// No data, and no process.
    #[track_caller]
    fn leaves_nothing(&self) {
        let paths = &self.settings.server.paths;
        for path in [paths.data(), paths.data_init(), paths.scratch()] {
            assert!(!path.exists(), "{} is left", path.display());
        }
        let own = self.files.path().to_str().unwrap().to_owned();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        assert!(
            !lines.any(|line| String::from_utf8_lossy(&line).contains(&own)),
            "a server is left"
        );
    }
}

pub(crate) fn verified(outcome: Outcome) -> Verified {
    match outcome {
        Outcome::Verified(verified) => *verified,
        Outcome::Failed { reason, message } => panic!("{reason}: {message}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn a_good_backup_and_its_archive_are_verified() {
    show_logs();
    let Small {
        source, stored, backup, ..
    } = small(Some(PrivateKey::generate())).await;
    let pod = Pod::new(source.node(), &stored, &backup, &stored.keys());
    let (steps, watching) = watch_steps(pod.settings.page);
    let began = Instant::now();
    let proof = verified(pod.outcome().await);
    println!("{proof:?} in {:?}", began.elapsed());
    watching.abort();
    assert_eq!(proof.id, backup);
    let last = source.points.last().unwrap();
    assert!(
        proof.reached.as_ref().is_some_and(|set| set.contains_gtid(&last.gtid)),
        "{proof:?}"
    );
    assert_eq!(proof.reached_time, Some(last.at));
    // `a`, `mysql`, `sys`.
    assert_eq!(proof.schemas, 3);
    assert!(proof.tables > 30, "{}", proof.tables);
    assert_eq!(proof.prepared, 0);
    let steps = steps.lock().unwrap().clone();
    assert_eq!(steps.first(), Some(&BackupStep::Fetch));
    assert!(
        steps.contains(&BackupStep::Boot) && steps.contains(&BackupStep::Check),
        "{steps:?}"
    );

    // The pod is asked to stop in the middle: nothing is left of it either.
    for pause in [50, 700, 1500] {
        let stop = tokio::time::sleep(Duration::from_millis(pause));
        match verify(pod.settings.clone(), stop).await {
            Outcome::Failed { reason, .. } => assert_eq!(reason, "Interrupted", "after {pause} ms"),
            // On a fast machine.
            Outcome::Verified(_) => println!("it was faster than {pause} ms"),
        }
        pod.leaves_nothing();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn what_could_not_be_recovered_is_not_verified_and_says_why() {
    show_logs();
    let Small {
        source,
        stored,
        backup,
        segments,
    } = small(Some(PrivateKey::generate())).await;
    let node = source.node();
    let pod = |newest: &BackupId, keys: &[PrivateKey]| Pod::new(node, &stored, newest, keys);
    // A cluster that holds nothing but the public key.
    for keys in [Vec::new(), vec![PrivateKey::generate()]] {
        let (reason, message) = pod(&backup, &keys).fails().await;
        assert_eq!(reason, "KeyMissing", "{message}");
        let public = stored.keys()[0].recipient().key_id();
        assert!(message.contains(&public), "{message}");
    }
    let good = pod(&backup, &stored.keys());

    let data = stored.gateway.file(&stored.cluster.backup_data(&backup, true));
    let whole = std::fs::read(&data).unwrap();
    flip(&data, whole.len() / 2);
    let (reason, message) = good.fails().await;
    assert_eq!(reason, "Damaged", "{message}");
    std::fs::write(&data, &whole).unwrap();

    let last = &segments[segments.len() - 1];
    let segment = stored.gateway.file(&stored.cluster.segment(1, last.sequence, true));
    let archived = std::fs::read(&segment).unwrap();
    flip(&segment, archived.len() / 2);
    let (reason, message) = good.fails().await;
    assert_eq!(reason, "Damaged", "{message}");
    assert!(message.contains(&last.file.name), "{message}");
    std::fs::remove_file(&segment).unwrap();
    let (reason, message) = good.fails().await;
    assert_eq!(reason, "SegmentMissing", "{message}");
    assert!(message.contains(&last.file.name), "{message}");
    std::fs::write(&segment, &archived).unwrap();

    let manifest = stored.manifest(&backup).await;
    let large = BackupManifest {
        uncompressed_bytes: 1 << 50,
        ..manifest.clone()
    };
    stored.put_manifest(&large).await;
    let (reason, message) = good.fails().await;
    assert_eq!(reason, "NoRoom", "{message}");
    assert!(message.contains("spec.backup.volume.size"), "{message}");
    let liar = BackupManifest {
        gtid_executed: format!("{}:1-2", source.uuid).parse().unwrap(),
        ..manifest.clone()
    };
    stored.put_manifest(&liar).await;
    assert_eq!(good.fails().await.0, "Mismatch");
    stored.put_manifest(&manifest).await;

    // An older one would do, and is not what was to be verified.
    let newer = BackupId::parse("20261130t080000z-lost").unwrap();
    let (reason, message) = pod(&newer, &stored.keys()).fails().await;
    assert_eq!(reason, "NotNewest", "{message}");
    assert!(
        message.contains(newer.as_str()) && message.contains(backup.as_str()),
        "{message}"
    );
    // With everything in its place again.
    verified(good.outcome().await);
}

/// What was broken before it was stored has the right checksum in the store, boots, and is found by reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn a_table_that_cannot_be_read_is_found() {
    const PAGE: usize = 16 * 1024;
    show_logs();
    let mut source = Source::start().await;
    let mut stored = Stored::new(None).await;
    for statement in &LIFE[..4] {
        source.does(statement).await;
    }
    let broken = |file: &Path, whole: &[u8]| {
        let mut bytes = whole.to_vec();
        // The root of the first index, in the middle of what its checksum covers.
        bytes[4 * PAGE + PAGE / 2] ^= 1;
        std::fs::write(file, bytes).unwrap();
    };
    let backup = source
        .stopped(async |node: &Node, executed: &GtidSet, uuid: &str| {
            let file = node.config.paths.data().join("a/t.ibd");
            let whole = std::fs::read(&file).unwrap();
            broken(&file, &whole);
            let backup = stored.back_up(node, executed, uuid).await;
            std::fs::write(&file, &whole).unwrap();
            backup
        })
        .await;
    let pod = Pod::new(source.node(), &stored, &backup, &[]);
    let (reason, message) = pod.fails().await;
    assert_eq!(reason, "CheckFailed", "{message}");
    assert!(message.contains("a.t") && message.contains("mysqld ended"), "{message}");
    source.end().await;
}
