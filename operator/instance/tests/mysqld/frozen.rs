//! Servers that are frozen, or whose commits are (rule 2 c), and disks that fail.

use std::time::{Duration, Instant};

use mainstay_core::observed::{InstanceReport, Mysqld, Standstill};
use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;

use crate::support::disk::Disk;
use crate::support::{Cluster, insert, make_table, rows, show_logs, until};

/// A cluster whose first instance has a disk that can be made to stall or fail.
async fn with_disk() -> (Cluster, Disk) {
    with_disk_of(0).await
}

async fn with_disk_of(node: usize) -> (Cluster, Disk) {
    let mut cluster = Cluster::prepare(3);
    let directory = cluster.dir.path().to_owned();
    let disk = Disk::below(&mut cluster.nodes[node].config.programs, &directory);
    // Others write to the same disk.
    cluster.nodes[node].config.timing.busy_disk = Duration::ZERO;
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    (cluster, disk)
}

fn is_down(report: &InstanceReport) -> bool {
    report.mysqld != Mysqld::Running
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_2c_a_frozen_mysqld_is_killed_and_starts_again_read_only() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut client = cluster.nodes[0].root().await;
    cluster.nodes[0].signal(Signal::STOP);
    let began = Instant::now();
    let report = cluster.nodes[0].wait("it is said to be down", is_down).await;
    println!(
        "from the freeze to the report: {:?} ({:?}: {})",
        began.elapsed(),
        report.mysqld,
        report.message
    );
    assert!(began.elapsed() < Duration::from_secs(4));
    let report = cluster.nodes[0]
        .wait("it was killed", |report| {
            report.message.contains("gave no answer for 2 s")
        })
        .await;
    println!("from the freeze to the kill: {:?}", began.elapsed());
    assert!(is_down(&report));
    client
        .query_drop("SELECT 1")
        .await
        .expect_err("its sessions ended with it");
    let report = cluster.nodes[0]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    println!(
        "from the freeze to the answer of the next process: {:?}",
        began.elapsed()
    );
    assert!(
        !report.writable && report.restarts == 1 && report.message.is_empty(),
        "{report:#?}"
    );
    cluster.cut().await;
}

/// Slow disks on every node made an election once in which all three servers were killed. While the receiver stands in a write
/// the server may not even say what it hears; what it says is never that its source is silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_2d_a_replica_that_waits_for_its_disk_is_not_deaf() {
    show_logs();
    let (mut cluster, disk) = with_disk_of(1).await;
    disk.stall();
    insert(&cluster.nodes[0], 1).await.unwrap();
    let began = Instant::now();
    let (mut answers, mut deaf) = (0, 0);
    while began.elapsed() < Duration::from_secs(4) {
        let report = cluster.nodes[1].report().await;
        if report.mysqld == Mysqld::Running {
            answers += 1;
            let replication = &report.replication;
            deaf += u32::from(replication.receiver_running && !replication.heard_within(Duration::from_secs(2)));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{answers} answers in {:?}", began.elapsed());
    disk.mend();
    assert!(answers > 0 && deaf == 0, "deaf in {deaf} of {answers} answers");
    let report = cluster.nodes[1]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    println!("restarts: {}", report.restarts);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_frozen_replica_is_killed_later_and_delays_nobody() {
    show_logs();
    let mut cluster = Cluster::prepare(3);
    cluster.nodes[2].config.timing.stall_unneeded = Duration::from_secs(5);
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    cluster.nodes[2].signal(Signal::STOP);
    let began = Instant::now();
    insert(&cluster.nodes[0], 1).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "the other replica acknowledges"
    );
    let report = cluster.nodes[2]
        .wait("it was killed", |report| {
            report.message.contains("gave no answer for 5 s")
        })
        .await;
    assert!(began.elapsed() > Duration::from_secs(4), "{report:#?}");
    cluster.nodes[2]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_2c_a_disk_that_stalls_is_noticed_by_commits_that_do_not_end() {
    show_logs();
    let (mut cluster, disk) = with_disk().await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    disk.stall();
    let mut client = cluster.nodes[0].root().await;
    let began = Instant::now();
    let commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (2)").await });
    let report = cluster.nodes[0].wait("it is said to be down", is_down).await;
    println!(
        "from the stall to the report: {:?} ({})",
        began.elapsed(),
        report.message
    );
    assert!(report.message.contains("commits did not end for 2 s"), "{report:#?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    commit
        .await
        .unwrap()
        .expect_err("it did not end, so nobody was told that it did");
    disk.mend();
    let report = cluster.nodes[0]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(!report.writable);
    assert!(rows(&cluster.nodes[0]).await.contains(&1));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_disk_that_fails_ends_mysqld_and_the_manager_says_so_until_it_is_mended() {
    show_logs();
    let (mut cluster, disk) = with_disk().await;
    disk.fail();
    let mut client = cluster.nodes[0].root().await;
    let began = Instant::now();
    drop(client.query_drop("INSERT INTO my_app.t VALUES (1)").await);
    let report = cluster.nodes[0].wait("it is said to be down", is_down).await;
    println!(
        "from the first error to the report: {:?} ({})",
        began.elapsed(),
        report.message
    );
    assert!(began.elapsed() < Duration::from_secs(3));
    let report = cluster.nodes[0]
        .wait("it does not start", |report| report.mysqld == Mysqld::Failed)
        .await;
    println!("then: {}", report.message);
    assert!(!report.message.is_empty());
    assert_eq!(
        cluster.nodes[0].http("/live").await.0,
        200,
        "a probe that kills it would not help"
    );
    disk.mend();
    let report = cluster.nodes[0]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(!report.writable && report.message.is_empty());
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_person_who_locks_everything_is_no_stall_and_is_named() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut dba = cluster.nodes[0].root().await;
    dba.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let mut client = cluster.nodes[0].root().await;
    let began = Instant::now();
    let commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (1)").await });
    let report = cluster.nodes[0]
        .wait("the lock is told", |report| report.standstill.is_some())
        .await;
    println!("from the statement that waits to the report: {:?}", began.elapsed());
    let holder = format!("session {} of root@localhost", dba.id());
    assert_eq!(report.standstill, Some(Standstill::GlobalLock { holder }));
    tokio::time::sleep(Duration::from_secs(4)).await;
    dba.query_drop("UNLOCK TABLES").await.unwrap();
    commit.await.unwrap().unwrap();
    let report = cluster.nodes[0]
        .wait("it is over", |report| report.standstill.is_none())
        .await;
    assert_eq!(report.restarts, 0);
    cluster.cut().await;
}

/// A transaction that was begun before the lock waits in its commit, and not for the lock of a statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_commit_behind_a_lock_on_everything_is_told_too() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut client = cluster.nodes[0].root().await;
    for statement in ["BEGIN", "INSERT INTO my_app.t VALUES (1)"] {
        client.query_drop(statement).await.unwrap();
    }
    let mut dba = cluster.nodes[0].root().await;
    dba.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let commit = tokio::spawn(async move { client.query_drop("COMMIT").await });
    cluster.nodes[0]
        .wait("the lock is told", |report| {
            matches!(report.standstill, Some(Standstill::GlobalLock { .. }))
        })
        .await;
    drop(dba);
    commit.await.unwrap().unwrap();
    cluster.nodes[0]
        .wait("it is over", |report| report.standstill.is_none())
        .await;
    cluster.cut().await;
}

/// A replica that reconnects does not acknowledge what it has already (see the question of that name): the commit would
/// wait until there is another one. The probe commit is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn l5_a_commit_whose_acknowledgement_was_lost_is_released_by_the_probe() {
    show_logs();
    let mut cluster = Cluster::wired(3, Duration::from_mins(1), |_config| {}).await;
    make_table(&mut cluster, 0).await;
    for node in [1, 2] {
        cluster.replication(node, 0).cut_to_server();
    }
    let mut client = cluster.nodes[0].root().await;
    let mut commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (1)").await });
    until("both replicas have it", async || {
        rows(&cluster.nodes[1]).await.contains(&1) && rows(&cluster.nodes[2]).await.contains(&1)
    })
    .await;
    assert!(!commit.is_finished(), "it is not acknowledged");
    for node in [1, 2] {
        cluster.replication(node, 0).replace().await;
    }
    let began = Instant::now();
    tokio::time::timeout(Duration::from_secs(10), &mut commit)
        .await
        .expect("it waits although both replicas have it")
        .unwrap()
        .unwrap();
    println!("released {:?} after the connections were lost", began.elapsed());
    let report = cluster.nodes[0].report().await;
    assert!(report.writable && report.restarts == 0);
    cluster.cut().await;
}
