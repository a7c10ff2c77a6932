//! An instance to which nobody can give a clone: its data come from the newest backup and the archive, the rest from the primary.

use std::collections::BTreeSet;

use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::backup::wire::Outcome;
use mainstay_core::observed::{InstanceReport, Mysqld};
use mainstay_instance::backup::make;
use mysql_async::prelude::Queryable as _;

use crate::archive::until_stored;
use crate::support::pod::Pod;
use crate::support::store::Stored;
use crate::support::{Cluster, insert, make_table, rows, show_logs, until};

const BROKEN: usize = 2;

fn is_running(report: &InstanceReport) -> bool {
    report.mysqld == Mysqld::Running
}

fn refill(at_least: GtidSet) -> Verb {
    Verb::Refill {
        at_least,
        keep_former: false,
    }
}

/// A cluster with one row, which is in a backup; it archives into the same store.
async fn backed_up() -> (Cluster, Stored) {
    show_logs();
    let stored = Stored::new(None).await;
    let mut cluster = Cluster::prepare(3);
    for node in &cluster.nodes {
        stored.archive_of(node);
    }
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    until("the replica has it", async || {
        rows(&cluster.nodes[1]).await == BTreeSet::from([1])
    })
    .await;
    let pod = Pod::new(&cluster, 1, &stored.access());
    let backup = make(pod.settings.clone(), std::future::pending()).await;
    assert!(matches!(backup, Outcome::Stored(_)), "{backup:?}");
    (cluster, stored)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn an_instance_is_refilled_from_the_newest_backup_and_the_archive_behind_it() {
    let (mut cluster, _stored) = backed_up().await;
    insert(&cluster.nodes[0], 2).await.unwrap();
    let archived = until_stored(&mut cluster, 0).await;
    // The primary has not got any more what came before, and the archive has.
    let mut client = cluster.nodes[0].inside().await;
    client.query_drop("FLUSH BINARY LOGS").await.unwrap();
    let files: Vec<String> = client
        .query_map("SHOW BINARY LOGS", |row: mysql_async::Row| {
            row.get::<String, _>(0).unwrap()
        })
        .await
        .unwrap();
    let last = files.last().unwrap();
    client
        .query_drop(format!("PURGE BINARY LOGS TO '{last}'"))
        .await
        .unwrap();
    insert(&cluster.nodes[0], 3).await.unwrap();
    let primary = cluster.nodes[0]
        .wait("the purge is told", |report| report.purged.contains(&archived))
        .await;

    let before = cluster.nodes[BROKEN].report().await;
    cluster.epoch += 1;
    cluster.give(BROKEN, Verb::Fence).await.must_be_done();
    let report = cluster
        .give(BROKEN, refill(primary.purged.clone()))
        .await
        .must_be_done()
        .clone();
    assert_eq!(report.mysqld, Mysqld::Cloning);
    let after = cluster.nodes[BROKEN].wait("it answers", is_running).await;
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(after.incarnation, report.incarnation, "one life, from the order on");
    assert_ne!(after.server_uuid, before.server_uuid);
    assert!(!after.writable && after.replication.source_host.is_none());
    assert!(after.executed.contains(&primary.purged), "{}", after.executed);
    let now = cluster.nodes[0].report().await.executed;
    assert!(
        now.contains(&after.executed),
        "it has nothing of its own: {}",
        after.executed
    );
    // It is as good as any other: what it lacks comes from the primary.
    let source = cluster.endpoint(BROKEN, 0).await;
    cluster.give(BROKEN, Verb::Attach { source }).await.must_be_done();
    until("it has everything", async || {
        rows(&cluster.nodes[BROKEN]).await == BTreeSet::from([1, 2, 3])
    })
    .await;

    // What the store does not reach is refused before anything is fetched, and said; the next order goes on.
    let unknown: GtidSet = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5".parse().unwrap();
    cluster.epoch += 1;
    cluster.give(BROKEN, Verb::Fence).await.must_be_done();
    cluster
        .give(BROKEN, refill(primary.purged.union(&unknown)))
        .await
        .must_be_done();
    let failed = cluster.nodes[BROKEN]
        .wait("it failed", |report| report.mysqld == Mysqld::Failed)
        .await;
    assert!(
        failed.message.contains(&unknown.to_string()) && failed.message.contains("make another backup"),
        "{}",
        failed.message
    );
    cluster.give(BROKEN, refill(primary.purged)).await.must_be_done();
    cluster.nodes[BROKEN].wait("it answers again", is_running).await;
    assert!(rows(&cluster.nodes[BROKEN]).await.is_superset(&BTreeSet::from([1, 2])));
    cluster.cut().await;
}

/// The process dies in the middle: the next one begins with nothing, and is filled by the next order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_refill_that_is_cut_short_leaves_an_empty_instance() {
    let (mut cluster, _stored) = backed_up().await;
    until_stored(&mut cluster, 0).await;
    cluster.epoch += 1;
    cluster.give(BROKEN, Verb::Fence).await.must_be_done();
    cluster.give(BROKEN, refill(GtidSet::new())).await.must_be_done();
    cluster.nodes[BROKEN]
        .wait("it has begun", |report| report.mysqld == Mysqld::Cloning)
        .await;
    cluster.nodes[BROKEN].cut().await;
    cluster.nodes[BROKEN].start().await;
    let empty = cluster.nodes[BROKEN].wait("it answers", is_running).await;
    assert!(empty.executed.is_empty(), "{}", empty.executed);
    cluster.epoch += 1;
    cluster.give(BROKEN, Verb::Fence).await.must_be_done();
    cluster.give(BROKEN, refill(GtidSet::new())).await.must_be_done();
    cluster.nodes[BROKEN]
        .wait("it is filled", |report| {
            is_running(report) && !report.executed.is_empty()
        })
        .await;
    assert_eq!(rows(&cluster.nodes[BROKEN]).await, BTreeSet::from([1]));
    cluster.cut().await;
}
