//! Logical backups of real servers: what comes back from statements, and what goes on from there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::plan::BackupStep;
use mainstay_core::backup::restore::Target;
use mainstay_core::backup::{BackupId, BackupManifest};
use mainstay_core::observed::Mysqld;
use mainstay_instance::backup::{make, read_page};
use mainstay_mysql::dump::{DumpError, DumpServer, File, Loader, Sink};
use mainstay_store::archive::PrivateKey;
use mainstay_store::{Entry, Listing};
use mysql_async::prelude::Queryable as _;

use crate::backups::{failed, stored};
use crate::restores::{Source, another_cluster, flip, recover, refused, wipe};
use crate::support::content::{Content, content};
use crate::support::everything::{self, assert_same, details};
use crate::support::pod::{ID, Pod};
use crate::support::store::Stored;
use crate::support::{Cluster, MANAGER, show_logs};
use crate::verifications::{self, verified};

/// What happens behind the backup: it meets what CREATE USER and GRANT could not have said, and what a late CREATE EVENT would
/// not have made.
const LIFE: [&str; 8] = [
    "INSERT INTO a.types (id, i, v) VALUES (100, 1, 'behind the backup')",
    "REVOKE UPDATE ON a.gone FROM 'shopper'@'%'",
    "ALTER USER 'shopper'@'%' DISCARD OLD PASSWORD",
    "DELETE FROM a.heap WHERE v='same' LIMIT 1",
    "UPDATE a.hidden_key SET v=v+1",
    "DROP VIEW a.v_a",
    "INSERT INTO a.large SELECT id+10, b FROM a.large WHERE id=4",
    // The last one: it is noted soon afterwards that there is one event less.
    "DROP EVENT a.long_ago",
];

/// A primary with one of everything, its logical backup, and an archive behind it.
pub(crate) struct Dumped {
    pub(crate) source: Source,
    pub(crate) stored: Stored,
    pub(crate) backup: BackupId,
    /// Of the moment of the backup.
    pub(crate) details: Content,
}

impl Dumped {
    pub(crate) async fn new(key: Option<PrivateKey>) -> Self {
        let mut source = Source::start().await;
        let stored = Stored::new(key).await;
        let mut inside = source.node().inside().await;
        everything::make(&mut inside).await;
        drop(inside);
        // What was disabled on purpose has been noted.
        crate::support::until("it is noted which events are off", async || {
            let notes = "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER='mainstay_monitor'";
            source
                .node()
                .text(notes)
                .await
                .is_some_and(|notes| notes.contains("long_ago"))
        })
        .await;
        let backup = dump(&source, &stored).await;
        let details = details(&mut source.node().inside().await).await;
        for statement in LIFE {
            source.does(statement).await;
        }
        let binlogs = source.end().await;
        stored
            .archive(1, &source.uuid, &mainstay_core::GtidSet::new(), &binlogs, 2)
            .await;
        Self {
            source,
            stored,
            backup,
            details,
        }
    }
}

fn pod(source: &Source, stored: &Stored) -> Pod {
    let mut pod = Pod::new(&source.cluster, 0, &stored.access());
    pod.settings.task.method = Method::Logical;
    pod
}

async fn dump(source: &Source, stored: &Stored) -> BackupId {
    let pod = pod(source, stored);
    let page = pod.settings.page;
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let sees = Arc::clone(&seen);
    let watching = tokio::spawn(async move {
        loop {
            if let Ok(progress) = read_page(page).await {
                sees.lock().unwrap().insert(format!("{:?}", progress.step), progress);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let began = Instant::now();
    let backup = crate::backups::stored(make(pod.settings.clone(), std::future::pending()).await);
    watching.abort();
    println!(
        "a dump of {} bytes, {} stored: {:?}",
        backup.size,
        backup.stored,
        began.elapsed()
    );
    let seen = seen.lock().unwrap();
    let steps: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(steps, ["Boot", "Copy", "Dump"]);
    // Some thousands in all.
    assert!(seen["Dump"].rows > Some(1000), "{:?}", seen["Dump"]);
    assert!(pod.is_still(), "a server is left");
    assert!(backup.executed.is_some());
    BackupId::parse(ID).unwrap()
}

/// Files of a dump, in their order.
#[derive(Default)]
struct Kept(Vec<File>);

impl Sink for Kept {
    type Error = DumpError;

    async fn take(&mut self, file: File) -> Result<(), DumpError> {
        self.0.push(file);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn statements_make_the_same_server() {
    show_logs();
    let mut source = Cluster::bootstrap(1).await;
    drop(source.nodes[0].root().await);
    let mut inside = source.nodes[0].inside().await;
    everything::make(&mut inside).await;
    let socket = |cluster: &Cluster| cluster.nodes[0].config.paths.socket();
    let began = Instant::now();
    let mut server = DumpServer::connect(socket(&source), MANAGER.into()).await.unwrap();
    let mut kept = Kept::default();
    server.dump(&mut kept).await.unwrap();
    println!("{} files in {:?}", kept.0.len(), began.elapsed());
    let mut kinds: Vec<&str> = kept.0.iter().map(|file| file.kind).collect();
    kinds.dedup();
    assert_eq!(kinds, ["schema", "rows", "accounts", "objects"]);
    let largest = |file: &File| file.parts.iter().map(Vec::len).sum::<usize>();
    assert!(kept.0.iter().map(largest).max() < Some(7 << 20), "it is not bounded");

    let mut target = Cluster::start(1).await;
    let mut other = target.nodes[0].inside().await;
    other
        .query_drop("SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF")
        .await
        .unwrap();
    let mut loader = Loader::connect(socket(&target), MANAGER.into()).await.unwrap();
    for file in &kept.0 {
        if let Err(error) = loader.load(&file.parts.concat()).await {
            panic!("{}: {error}", file.kind);
        }
    }
    loader.close().await;
    let found = details(&mut other).await;
    assert_same(&found, &details(&mut inside).await);
    source.cut().await;
    target.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn everything_comes_back_from_statements_and_the_archive_goes_on() {
    show_logs();
    let Dumped {
        source,
        stored,
        backup,
        details: expected,
    } = Dumped::new(Some(PrivateKey::generate())).await;
    let manifest = stored.manifest(&backup).await;
    assert_eq!(manifest.method, Method::Logical);
    assert!(manifest.data_bytes > Some(1 << 20), "{manifest:?}");

    let mut cluster = another_cluster();
    let node = &mut cluster.nodes[0];
    // The moment of the backup: the last transaction before what came behind.
    let began = Instant::now();
    let first = &source.points[0];
    let at_the_backup = Target::Time(first.at - jiff::SignedDuration::from_micros(1));
    let (report, _) = recover(node, &stored, &at_the_backup).await;
    println!("loaded in {:?}", began.elapsed());
    assert_eq!(report.executed, manifest.gtid_executed);
    assert_eq!(report.recovered.as_ref().unwrap().backup, ID);
    assert!(!report.pristine && !report.writable);
    assert_ne!(report.server_uuid, source.uuid);
    let found = details(&mut node.inside().await).await;
    assert_same(&found, &expected);
    // What was noted in the data is there: nothing is made a second time.
    let notes = "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER='mainstay_monitor'";
    let notes = node.text(notes).await.unwrap();
    assert!(notes.contains("firstAccounts") && notes.contains("long_ago"), "{notes}");

    let (middle, last) = (&source.points[3], source.points.last().unwrap());
    for (target, point) in [(Target::Gtid(middle.gtid.clone()), middle), (Target::Latest, last)] {
        let (report, found) = recover(node, &stored, &target).await;
        assert_same(&found, &point.content);
        assert!(report.executed.contains_gtid(&point.gtid));
        assert!(report.recovered.as_ref().unwrap().time >= Some(point.at));
    }
    // It becomes a primary, and the counters go on.
    cluster.make_primary(0).await;
    let mut inside = cluster.nodes[0].inside().await;
    inside.query_drop("INSERT INTO a.counted () VALUES ()").await.unwrap();
    let id: Option<u64> = inside.query_first("SELECT id FROM a.counted").await.unwrap();
    assert_eq!(id, Some(4711));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
#[expect(clippy::too_many_lines, reason = "a test tells one story")]
async fn a_dump_is_verified_cut_short_and_damaged_like_any_backup() {
    show_logs();
    let Dumped {
        source, stored, backup, ..
    } = Dumped::new(None).await;
    let last = source.points.last().unwrap();
    let pod = verifications::Pod::new(source.node(), &stored, &backup, &[]);
    let proof = verified(pod.outcome().await);
    assert_eq!(proof.id, backup);
    assert!(proof.reached.as_ref().is_some_and(|set| set.contains_gtid(&last.gtid)));

    let mut cluster = another_cluster();
    let node = &mut cluster.nodes[0];
    for pause in [150, 1200, 3000, 5000] {
        wipe(node).await;
        stored.give_to(node, &Target::Latest, &[]);
        for _ in 0..2 {
            node.start().await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            node.cut().await;
        }
        node.start().await;
        let report = node
            .wait("it is recovered", |report| report.mysqld == Mysqld::Running)
            .await;
        assert!(report.executed.contains_gtid(&last.gtid), "cut after {pause} ms");
        let found = content(&mut node.inside().await).await;
        assert_same(&found, &last.content);
        assert!(!node.config.paths.scratch().exists() && !node.config.paths.data_init().exists());
    }

    let data = stored.gateway.file(&stored.cluster.backup_data(&backup, false));
    let whole = std::fs::read(&data).unwrap();
    for at in [100, whole.len() / 2, whole.len() - 1] {
        flip(&data, at);
        let message = refused(node, &stored, &Target::Latest, &[]).await;
        assert!(message.contains("damaged"), "{message}");
        std::fs::write(&data, &whole).unwrap();
    }
    flip(&data, whole.len() / 2);
    assert_eq!(pod.fails().await.0, "Damaged");
    std::fs::write(&data, &whole[..whole.len() - 7]).unwrap();
    let message = refused(node, &stored, &Target::Latest, &[]).await;
    assert!(message.contains("no complete backup"), "{message}");
    std::fs::remove_file(&data).unwrap();
    let message = refused(node, &stored, &Target::Latest, &[]).await;
    assert!(message.contains("no complete backup"), "{message}");
    std::fs::write(&data, &whole).unwrap();

    let manifest = stored.manifest(&backup).await;
    let lies = [
        (
            BackupManifest {
                data_bytes: Some(1 << 50),
                ..manifest.clone()
            },
            "MiB are needed",
        ),
        (
            BackupManifest {
                mysql_version: "9.8.0".to_owned(),
                ..manifest.clone()
            },
            "set spec.image to the same series, or a newer one",
        ),
        (
            BackupManifest {
                uncompressed_bytes: 7,
                ..manifest.clone()
            },
            "instead of 7",
        ),
    ];
    for (lie, words) in lies {
        stored.put_manifest(&lie).await;
        let message = refused(node, &stored, &Target::Latest, &[]).await;
        assert!(message.contains(words), "{message}");
    }
    // An older series made it: that is what it is for.
    let older = BackupManifest {
        mysql_version: "8.0.40".to_owned(),
        ..manifest.clone()
    };
    stored.put_manifest(&older).await;
    let (report, _) = recover(node, &stored, &Target::Latest).await;
    assert!(report.executed.contains_gtid(&last.gtid));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn what_statements_cannot_say_fails_the_backup_and_leaves_nothing() {
    show_logs();
    let source = Source::start().await;
    let store = Stored::new(None).await;
    let mut inside = source.node().inside().await;
    for statement in [
        "CREATE DATABASE a",
        "CREATE TABLE a.t (id INT PRIMARY KEY)",
        "CREATE VIEW a.v AS SELECT id FROM a.t",
        "ALTER TABLE a.t RENAME COLUMN id TO n",
    ] {
        inside.query_drop(statement).await.unwrap();
    }
    let pod = pod(&source, &store);
    let (reason, message) = failed(make(pod.settings.clone(), std::future::pending()).await);
    assert_eq!(reason, "InvalidView", "{message}");
    assert!(message.contains("`a`.`v`") && message.contains("id"), "{message}");
    println!("{message}");
    inside.query_drop("DROP VIEW a.v").await.unwrap();
    for statement in [
        "XA START 'x'",
        "INSERT INTO a.t VALUES (1)",
        "XA END 'x'",
        "XA PREPARE 'x'",
    ] {
        inside.query_drop(statement).await.unwrap();
    }
    let (reason, message) = failed(make(pod.settings.clone(), std::future::pending()).await);
    assert_eq!(reason, "PreparedTransactions", "{message}");
    println!("{message}");
    let folder = store.cluster.backups();
    let left = store.store.list_all(Listing::all(folder.clone())).await.unwrap();
    let objects = left.iter().filter(|entry| matches!(entry, Entry::Object(_))).count();
    assert_eq!((objects, store.store.incomplete(&folder).await.unwrap().len()), (0, 0));
    assert!(pod.is_still());

    let mut other = source.node().inside().await;
    other.query_drop("XA ROLLBACK 'x'").await.unwrap();
    let stop = async {
        loop {
            let progress = read_page(pod.settings.page).await;
            if progress.is_ok_and(|progress| progress.step == BackupStep::Dump) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let (reason, _) = failed(make(pod.settings.clone(), stop).await);
    assert_eq!(reason, "Interrupted");
    crate::support::until("no process is left", async || pod.is_still()).await;
    // With nothing in the way.
    stored(make(pod.settings.clone(), std::future::pending()).await);
    let mut source = source;
    source.cluster.cut().await;
}
