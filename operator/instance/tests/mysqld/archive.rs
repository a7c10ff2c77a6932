//! The continuous archive of the binlog, with real servers and a store in memory (cases F09, F06; decisions A8, D).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::backup::ClusterIdentity;
use mainstay_core::backup::archive::SEGMENT_BYTES;
use mainstay_core::backup::manifest::ArchivedThrough;
use mainstay_core::backup::restore::Refusal;
use mainstay_core::observed::{ArchiveReport, InstanceReport, Mysqld};
use mainstay_store::{ACCESS_FILE, Access, Identity, Memory, Settings, Store as _};
use mysql_async::prelude::Queryable as _;
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;

use crate::by_hand::install;
use crate::support::archived::Archived;
use crate::support::raw::Raw;
use crate::support::{
    self, Cluster, MANAGER, Node, fast_directory, insert, make_table, open_in, rows, show_logs, until,
};

fn identity() -> ClusterIdentity {
    ClusterIdentity::new("prod", "shop", "6f1c2a9e").unwrap()
}

fn access() -> Access {
    Access {
        store: Settings {
            endpoint: None,
            region: String::new(),
            bucket: "backups".to_owned(),
            prefix: String::new(),
            path_style: false,
            ca: None,
            identity: Identity::Pod,
        },
        cluster: identity(),
        archive: true,
        recipient: None,
        private_keys: Vec::new(),
    }
}

fn mount(node: &Node) {
    let directory = &node.config.paths.store;
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(ACCESS_FILE), access().to_json().expose_secret()).unwrap();
}

fn unmount(node: &Node) {
    std::fs::remove_file(node.config.paths.store.join(ACCESS_FILE)).unwrap();
}

/// A cluster that archives into this store, with a primary and a table.
async fn archiving(instances: u32) -> (Cluster, Memory) {
    show_logs();
    let store = Memory::new();
    let mut cluster = Cluster::prepare(instances);
    for node in &mut cluster.nodes {
        node.config.stores = mainstay_instance::config::Stores::Fixed(Arc::new(store.clone()));
        mount(node);
    }
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    (cluster, store)
}

async fn archived(store: &Memory) -> Archived {
    Archived::read(store, &identity()).await
}

fn archive(report: &InstanceReport) -> &ArchiveReport {
    report.archive.as_ref().expect("it archives")
}

/// Waits until the primary says that everything is stored that it has executed up to now; what that is.
pub(crate) async fn until_stored(cluster: &mut Cluster, primary: usize) -> GtidSet {
    let wanted = cluster.mark(primary).await;
    let done = cluster.nodes[primary]
        .wait("everything is stored", |report| {
            let behind = report.archive.as_ref().map(|archive| archive.behind.intersect(&wanted));
            report.executed.contains(&wanted) && behind.is_some_and(|behind| behind.is_empty())
        })
        .await;
    assert_eq!(archive(&done).error, "");
    assert!(archive(&done).missing.is_empty());
    wanted
}

/// A client that inserts rows with these numbers until it is told to stop or gets an error; those that were acknowledged.
fn write(node: &Node, first: u32) -> JoinHandle<BTreeSet<u32>> {
    let login = node.log_in_options("root", support::ROOT);
    tokio::spawn(async move {
        let mut acknowledged = BTreeSet::new();
        let Ok(mut client) = mysql_async::Conn::new(login).await else {
            return acknowledged;
        };
        for row in first..first + 100_000 {
            if client
                .query_drop(format!("INSERT INTO my_app.t VALUES ({row})"))
                .await
                .is_err()
            {
                break;
            }
            acknowledged.insert(row);
        }
        acknowledged
    })
}

/// Everything that is archived, as a person gives it to an empty server: with MySQL's own programs.
async fn replay(archived: &Archived, store: &Memory) -> (Cluster, Raw) {
    let files = archived.files(store, None).await;
    let mut cluster = Cluster::prepare(1);
    let folder = tempfile::tempdir_in(fast_directory()).unwrap();
    install(folder.path(), &cluster);
    let server = Raw::start(cluster.nodes.pop().unwrap(), &[]).await;
    let mut names = Vec::new();
    for (number, file) in files.iter().enumerate() {
        names.push(format!("{number:06}"));
        std::fs::write(folder.path().join(format!("{number:06}")), file).unwrap();
    }
    let script = format!(
        "mysqlbinlog {} | mysql --binary-mode --max-allowed-packet=1G --user=mainstay --socket='{}'",
        names.join(" "),
        server.node.config.paths.socket().display()
    );
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let replayed = tokio::process::Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("MYSQL_PWD", MANAGER)
        .output()
        .await
        .unwrap();
    assert!(
        replayed.status.success(),
        "{}",
        String::from_utf8_lossy(&replayed.stderr)
    );
    (cluster, server)
}

async fn applied(server: &Raw, wanted: &GtidSet) {
    let executed = server.executed().await;
    assert!(executed.contains(wanted), "{executed} without {wanted}");
}

async fn replayed_rows(server: &Raw) -> BTreeSet<u32> {
    let mut session = server.session().await;
    session
        .query::<u32, _>("SELECT n FROM my_app.t")
        .await
        .unwrap()
        .into_iter()
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn what_is_committed_is_stored_within_a_second() {
    let (mut cluster, store) = archiving(2).await;
    until_stored(&mut cluster, 0).await;
    let mut lags = Vec::new();
    for row in 0..20 {
        insert(&cluster.nodes[0], row).await.unwrap();
        let committed = Instant::now();
        let executed = cluster.nodes[0].report().await.executed;
        until("it is stored", async || {
            archived(&store).await.stored().contains(&executed)
        })
        .await;
        lags.push(committed.elapsed());
    }
    lags.sort_unstable();
    println!(
        "from a commit to its segment: p50 {:?}, longest {:?}",
        lags[10], lags[19]
    );
    assert!(lags[10] < Duration::from_secs(1), "{lags:?}");
    let executed = until_stored(&mut cluster, 0).await;
    let archived = archived(&store).await;
    assert!(archived.reaches().contains(&executed));
    // An empty server becomes what the primary is.
    let (_files, server) = replay(&archived, &store).await;
    applied(&server, &executed).await;
    assert_eq!(replayed_rows(&server).await, (0..20).collect());
    // An idle archive reaches to now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = cluster.nodes[0].report().await;
    let age = jiff::Timestamp::now().duration_since(archive(&idle).through.unwrap());
    assert!(age.as_secs_f64() < 1.5, "{age:?}");
    // And says so in the store, of what lies as far back as a primary lives that is cut off.
    let key = identity().reign_through(archived.reigns[0].manifest.epoch);
    until("the store says so", async || {
        let Ok(json) = store.get(&key, 1 << 20).await else {
            return false;
        };
        let age = jiff::Timestamp::now().duration_since(ArchivedThrough::from_json(&json).unwrap().time);
        assert!(age.as_secs_f64() >= 15.0, "{age:?}");
        age.as_secs_f64() < 18.0
    })
    .await;
    cluster.cut().await;
}

/// AFTER_SYNC: the binlog holds a transaction before a replica has acknowledged it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a8_a_commit_that_waits_is_not_stored() {
    let (mut cluster, store) = archiving(2).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    until_stored(&mut cluster, 0).await;
    cluster.stop_receivers(&[1]).await;
    let mut client = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (2)").await });
    let waiting = cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!commit.is_finished());
    let stored = archived(&store).await.stored();
    assert!(
        waiting.executed.contains(&stored),
        "{stored} beyond {}",
        waiting.executed
    );
    let source = cluster.endpoint(1, 0).await;
    cluster.give(1, Verb::Attach { source }).await.must_be_done();
    cluster.mark(0).await;
    commit.await.unwrap().unwrap();
    until_stored(&mut cluster, 0).await;
    cluster.cut().await;
}

/// The primary is lost with its volume while clients write: what they were told is in the archive, and nothing is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f09_a_primary_that_is_lost_in_the_middle_leaves_no_hole() {
    let (mut cluster, store) = archiving(3).await;
    let writers: Vec<_> = (1..5).map(|n| write(&cluster.nodes[0], n * 200_000)).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.nodes[0].cut().await;
    let mut acknowledged = BTreeSet::from([1]);
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    let before = archived(&store).await.stored();
    cluster.make_primary_when_applied(1).await;
    insert(&cluster.nodes[1], 1).await.unwrap();
    let executed = until_stored(&mut cluster, 1).await;
    let archived = archived(&store).await;
    assert_eq!(archived.reigns.len(), 2);
    let first = archived.reigns[1].segments.values().next().unwrap();
    println!(
        "{} of {} transactions were left to the new primary, beginning behind {}",
        archived.reigns[1].manifest.baseline.subtract(&before).count(),
        acknowledged.len(),
        first.previous
    );
    assert!(archived.reaches().contains(&executed), "{}", archived.reaches());
    let (_files, server) = replay(&archived, &store).await;
    applied(&server, &executed).await;
    let all = rows(&cluster.nodes[1]).await;
    assert_eq!(replayed_rows(&server).await, all);
    assert!(acknowledged.is_subset(&all));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f09_a_primary_that_is_moved_under_load_leaves_no_hole_and_stops_at_once() {
    let (mut cluster, store) = archiving(3).await;
    let mut primary = 0;
    for round in 1..=4_u32 {
        let writers: Vec<_> = (0..2)
            .map(|n| write(&cluster.nodes[primary], round * 1_000_000 + n * 200_000))
            .collect();
        tokio::time::sleep(Duration::from_millis(800)).await;
        let next = (primary + 1) % 3;
        cluster.make_primary_when_applied(next).await;
        let old = cluster.nodes[primary].report().await;
        assert_eq!(old.archive, None, "it does not archive any more");
        for writer in writers {
            writer.await.unwrap();
        }
        primary = next;
    }
    insert(&cluster.nodes[primary], 1).await.unwrap();
    let executed = until_stored(&mut cluster, primary).await;
    let archived = archived(&store).await;
    assert!(archived.reaches().contains(&executed));
    archived.files(&store, None).await;
    cluster.cut().await;
}

/// Nothing is remembered but what the store holds, so it does not matter when the process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_manager_that_is_killed_again_and_again_goes_on_without_a_hole_or_a_duplicate() {
    let (mut cluster, store) = archiving(1).await;
    let reign = cluster.epoch;
    let baseline = cluster.nodes[0].report().await.persisted.baseline;
    for round in 1..=6_u32 {
        let writer = write(&cluster.nodes[0], round * 100_000);
        tokio::time::sleep(Duration::from_millis(u64::from(150 * round))).await;
        cluster.nodes[0].cut().await;
        let acknowledged = writer.await.unwrap();
        cluster.nodes[0].start().await;
        cluster.nodes[0]
            .wait("it answers", |report| report.mysqld == Mysqld::Running)
            .await;
        cluster.epoch += 1;
        // The operator opens the recorded primary again, under its own epoch.
        let opening = open_in(reign, BTreeSet::new(), 0, baseline.clone());
        cluster.give(0, opening).await.must_be_done();
        assert!(acknowledged.is_subset(&rows(&cluster.nodes[0]).await));
    }
    let executed = until_stored(&mut cluster, 0).await;
    let archived = archived(&store).await;
    assert_eq!(archived.reigns.len(), 1);
    assert!(archived.reaches().contains(&executed));
    let mut seen = GtidSet::new();
    for segment in archived.reigns[0].segments.values() {
        assert!(
            seen.intersect(&segment.gtids).is_empty(),
            "{} is stored twice",
            segment.gtids
        );
        assert_eq!(seen, segment.previous, "each follows the one before");
        seen = seen.union(&segment.gtids);
    }
    let (_files, server) = replay(&archived, &store).await;
    applied(&server, &executed).await;
    assert_eq!(replayed_rows(&server).await, rows(&cluster.nodes[0]).await);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f09_binlogs_that_were_purged_before_they_were_stored_are_a_hole_that_is_told() {
    let (mut cluster, store) = archiving(2).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    let before = until_stored(&mut cluster, 0).await;
    unmount(&cluster.nodes[0]);
    cluster.nodes[0]
        .wait("it has no store", |report| report.archive.is_none())
        .await;
    let mut root = cluster.nodes[0].root().await;
    for row in 2..10 {
        root.query_drop(format!("INSERT INTO my_app.t VALUES ({row})"))
            .await
            .unwrap();
    }
    root.query_drop("FLUSH BINARY LOGS").await.unwrap();
    let purged: String = root
        .query_first("SELECT @@global.gtid_executed")
        .await
        .unwrap()
        .unwrap();
    let purged: GtidSet = purged.parse().unwrap();
    let last: Vec<mysql_async::Row> = root.query("SHOW BINARY LOGS").await.unwrap();
    let last: String = last.last().unwrap().get(0).unwrap();
    root.query_drop(format!("PURGE BINARY LOGS TO '{last}'")).await.unwrap();
    insert(&cluster.nodes[0], 10).await.unwrap();
    mount(&cluster.nodes[0]);
    let report = cluster.nodes[0]
        .wait("the hole is told", |report| {
            report
                .archive
                .as_ref()
                .is_some_and(|archive| !archive.missing.is_empty())
        })
        .await;
    let missing = archive(&report).missing.clone();
    assert!(
        purged.contains(&missing) && missing.intersect(&before).is_empty(),
        "{missing}"
    );
    assert_eq!(missing.union(&before).intersect(&purged), purged);
    // It goes on behind it.
    let executed = cluster.mark(0).await;
    let stored = async || archived(&store).await.stored().union(&missing).contains(&executed);
    until("it goes on", stored).await;
    let refusal = archived(&store).await.recovery(&GtidSet::new()).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Hole { missing: told, .. } if *told == missing),
        "{refusal}"
    );
    // From a backup behind the hole everything can be had.
    let recovery = archived(&store).await.recovery(&purged).unwrap();
    assert!(recovery.reaches.contains(&executed));
    let metrics = cluster.nodes[0].http("/metrics").await.1;
    assert!(metrics.contains("binlog_archive_missing_transactions"), "{metrics}");
    assert!(
        !metrics.contains("binlog_archive_lag_seconds"),
        "beyond a hole nothing is known"
    );
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_transaction_that_is_larger_than_a_segment_is_stored_as_it_is_read() {
    let (mut cluster, store) = archiving(2).await;
    let mut root = cluster.nodes[0].root().await;
    for statement in [
        "SET SESSION binlog_transaction_compression=OFF",
        "CREATE TABLE my_app.large (n INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)",
        "INSERT INTO my_app.large (v) VALUES (RANDOM_BYTES(1024))",
    ] {
        root.query_drop(statement).await.unwrap();
    }
    root.query_drop("BEGIN").await.unwrap();
    for _ in 0..14 {
        // 16 MiB in the end.
        root.query_drop("INSERT INTO my_app.large (v) SELECT v FROM my_app.large")
            .await
            .unwrap();
    }
    root.query_drop("COMMIT").await.unwrap();
    let executed = until_stored(&mut cluster, 0).await;
    let archived = archived(&store).await;
    let segments = archived.reigns.iter().flat_map(|reign| reign.segments.values());
    let largest = segments.max_by_key(|segment| segment.uncompressed_bytes).unwrap();
    assert!(
        largest.uncompressed_bytes > SEGMENT_BYTES,
        "{}",
        largest.uncompressed_bytes
    );
    assert_eq!(largest.gtids.count(), 1);
    let (_files, server) = replay(&archived, &store).await;
    applied(&server, &executed).await;
    let checksum = "SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(v))) FROM my_app.large";
    assert_eq!(Some(server.text(checksum).await), cluster.nodes[0].text(checksum).await);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rotations_and_a_clean_stop_are_followed() {
    let (mut cluster, store) = archiving(1).await;
    for row in 0..5 {
        insert(&cluster.nodes[0], row).await.unwrap();
        let mut root = cluster.nodes[0].root().await;
        root.query_drop("FLUSH BINARY LOGS").await.unwrap();
    }
    until_stored(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 5).await.unwrap();
    let executed = cluster.nodes[0].report().await.executed;
    // A clean stop stores the end.
    cluster.nodes[0].manager.take().unwrap().stop().await;
    let archived = archived(&store).await;
    assert!(archived.reaches().contains(&executed), "{}", archived.reaches());
    archived.files(&store, None).await;
    cluster.cut().await;
}

/// No command waits for the archive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_fence_waits_for_no_store() {
    show_logs();
    let mut cluster = Cluster::prepare(2);
    for node in &mut cluster.nodes {
        node.config.stores = mainstay_instance::config::Stores::Fixed(Arc::new(support::stuck::Stuck));
        mount(node);
    }
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.epoch += 1;
    let answer = cluster.give(0, Verb::Fence).await;
    answer.must_be_done();
    assert!(answer.took < Duration::from_secs(1), "{:?}", answer.took);
    cluster.make_primary(0).await;
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    println!("a stop while the store does not answer: {:?}", began.elapsed());
    cluster.cut().await;
}
