//! The shutdown rule (decision A1): what ends, and what was acknowledged then.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mainstay_core::action::Verb;
use mysql_async::prelude::Queryable as _;

use crate::support::{self, Cluster, kept, make_table, show_logs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_fence_under_a_hanging_commit_acknowledges_nothing() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    cluster.stop_receivers(&[1, 2]).await;
    let commits: Vec<_> = (0..8)
        .map(|number| {
            let socket = cluster.nodes[0].config.paths.socket();
            tokio::spawn(async move {
                let opts = mysql_async::OptsBuilder::default()
                    .socket(socket.to_str().map(str::to_owned))
                    .user(Some("root"))
                    .pass(Some(support::ROOT));
                let mut conn = mysql_async::Conn::new(opts).await?;
                conn.query_drop(format!("INSERT INTO my_app.t VALUES ({number})")).await
            })
        })
        .collect();
    cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    let before = cluster.nodes[0].report().await.restarts;
    let answer = cluster.give(0, Verb::Fence).await;
    println!(
        "fence under a hanging commit, with the restart of mysqld: {:?}",
        answer.took
    );
    let report = answer.must_be_done();
    assert!(!report.writable && report.restarts == before + 1, "{report:#?}");
    for commit in commits {
        commit
            .await
            .unwrap()
            .expect_err("nobody has it, so nobody may have been told that it is safe");
    }
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_stop_under_a_hanging_commit_acknowledges_nothing() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    cluster.stop_receivers(&[1, 2]).await;
    let mut root = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move { root.query_drop("INSERT INTO my_app.t VALUES (1)").await });
    cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    println!("stop under a hanging commit: {:?}", began.elapsed());
    commit
        .await
        .unwrap()
        .expect_err("nobody has it, so nobody may have been told that it is safe");
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_primary_at_work_is_stopped_without_losing_an_acknowledged_write() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut root = cluster.nodes[0].root().await;
    let writer = tokio::spawn(async move {
        let mut acknowledged = BTreeSet::new();
        for number in 0.. {
            match root.query_drop(format!("INSERT INTO my_app.t VALUES ({number})")).await {
                Ok(()) => acknowledged.insert(number),
                Err(_ended) => return acknowledged,
            };
        }
        acknowledged
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    println!("stop of a primary at work: {:?}", began.elapsed());
    let acknowledged = writer.await.unwrap();
    assert!(acknowledged.len() > 5, "{acknowledged:?}");
    kept(&mut cluster, [1, 2], &acknowledged).await;
    cluster.cut().await;
}
