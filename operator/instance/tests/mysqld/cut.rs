//! Networks that are cut: who fences itself, and who must not (cases F19 to F21).

use std::time::{Duration, Instant};

use mainstay_core::action::Verb;
use mysql_async::prelude::Queryable as _;
use tokio::time::timeout;

use crate::support::{self, APP, Cluster, Node, ROOT, apiserver, clone_of, insert, make_table, rows, show_logs, until};

/// A third of the real one, so that three of them pass in a test.
const FENCING: Duration = Duration::from_secs(3);
/// What may come on top of the fencing time: a look each 200 ms, on a busy machine.
const MARGIN: Duration = Duration::from_millis(1500);

const OFFLINE: &str = "currently in offline mode";

fn is_writable(status: &serde_json::Value) -> bool {
    status["writable"] == true
}

/// Reads until that is not possible any more; how long it was.
async fn read_until_the_end(node: &Node) -> Duration {
    let began = Instant::now();
    let mut client = node.log_in_from_afar("app", APP).await.unwrap();
    while client.query_drop("SELECT COUNT(*) FROM my_app.t").await.is_ok() {
        assert!(began.elapsed() < support::PATIENCE, "reads do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

async fn refusal(node: &Node, user: &str, password: &str) -> String {
    match node.log_in_from_afar(user, password).await {
        Ok(_) => "it may log in".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
#[expect(clippy::too_many_lines, reason = "one cut from its beginning to its end")]
async fn f21_an_isolated_primary_fences_itself_and_nobody_reads_there_any_more() {
    show_logs();
    let api_server = apiserver::start().await;
    let at = api_server.at.clone();
    let mut cluster = Cluster::wired(3, FENCING, |config| config.api_server = Some(at.clone())).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    // While the API server answers, it does not know that it is cut off.
    cluster.isolate(0);
    cluster.nodes[0].hang_up();
    tokio::time::sleep(FENCING * 2).await;
    assert!(is_writable(&cluster.nodes[0].status().await));
    drop(api_server);
    let isolated = Instant::now();
    let commit = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move {
        let mut commit = commit;
        commit.query_drop("INSERT INTO my_app.t VALUES (2)").await
    });
    let reads = read_until_the_end(&cluster.nodes[0]).await;
    println!("reads end {reads:?} after the last witness fell silent (fencing time {FENCING:?})");
    assert!(reads < FENCING + MARGIN, "{reads:?}");
    commit
        .await
        .unwrap()
        .expect_err("nobody has it, so nobody may have been told that it is safe");
    let status = cluster.nodes[0].status().await;
    assert!(!is_writable(&status));
    println!("its manager says: {} ({})", status["mysqld"], status["message"]);
    until("mysqld answers again", async || {
        cluster.nodes[0].status().await["mysqld"] == "running"
    })
    .await;
    println!("mysqld answers again after {:?}", isolated.elapsed());
    let status = cluster.nodes[0].status().await;
    assert!(
        !is_writable(&status) && status["replication"]["sourceHost"] == "",
        "{status}"
    );
    // It has what nobody acknowledged, so nobody may see it.
    assert!(rows(&cluster.nodes[0]).await.contains(&2));
    assert!(refusal(&cluster.nodes[0], "app", APP).await.contains(OFFLINE));
    assert_eq!(cluster.nodes[0].http("/ready").await.0, 503);
    // A client with every privilege cannot be kept out, so it is ended.
    let mut dba = cluster.nodes[0].log_in_from_afar("root", ROOT).await.unwrap();
    until("the session of a client with every privilege is ended", async || {
        dba.query_drop("SELECT 1").await.is_err()
    })
    .await;
    let mut inside = cluster.nodes[0].root().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    inside
        .query_drop("SELECT 1")
        .await
        .expect("a person in the container may look");

    // The other side elects: shop-1, with shop-2.
    let held = cluster.nodes[0].manager.take();
    cluster.make_primary(1).await;
    insert(&cluster.nodes[1], 3).await.unwrap();
    let new = cluster.mark(1).await;
    cluster.nodes[0].manager = held;
    cluster.join();
    // F20: it came back read-only, and what it has too much is known, with what its manager wrote.
    let report = cluster.give(0, Verb::Fence).await;
    let report = report.must_be_done();
    let errant = report.set().subtract(&new);
    assert!(!errant.is_empty());
    assert_eq!(errant, errant.of_source(&report.server_uuid));
    let donor = cluster.endpoint(0, 2).await;
    cluster.give(0, clone_of(donor)).await.must_be_done();
    cluster.nodes[0].wait_for(&new).await;
    assert_eq!(rows(&cluster.nodes[0]).await, [1, 3].into());
    assert!(
        refusal(&cluster.nodes[0], "app", APP).await.contains(OFFLINE),
        "a clone is attached before it serves"
    );
    let source = cluster.endpoint(0, 1).await;
    cluster.give(0, Verb::Attach { source }).await.must_be_done();
    cluster.nodes[0].log_in_from_afar("app", APP).await.unwrap();
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f19_with_operator_and_api_server_away_nothing_changes() {
    show_logs();
    let mut cluster = Cluster::wired(3, FENCING, |_config| {}).await;
    make_table(&mut cluster, 0).await;
    cluster.cut_operator();
    let mut readers = Vec::new();
    for node in &mut cluster.nodes {
        node.hang_up();
        readers.push(node.log_in_from_afar("app", APP).await.unwrap());
    }
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < FENCING * 3 {
        timeout(FENCING, insert(&cluster.nodes[0], number))
            .await
            .unwrap()
            .unwrap();
        number += 1;
        for (node, reader) in cluster.nodes.iter().zip(&mut readers) {
            reader.query_drop("SELECT COUNT(*) FROM my_app.t").await.unwrap();
            assert_eq!(node.http("/ready").await.0, 200);
            assert_eq!(node.status().await["restarts"], 0);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(number > 5);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f21_reads_end_on_an_isolated_replica_and_go_on_when_it_receives_again() {
    show_logs();
    let mut cluster = Cluster::wired(3, FENCING, |_config| {}).await;
    make_table(&mut cluster, 0).await;
    cluster.isolate(2);
    cluster.nodes[2].hang_up();
    let took = read_until_the_end(&cluster.nodes[2]).await;
    println!("reads on an isolated replica end after {took:?} (fencing time {FENCING:?})");
    assert!(took > FENCING / 2 && took < FENCING + MARGIN, "{took:?}");
    until("clients are kept out", async || {
        refusal(&cluster.nodes[2], "app", APP).await.contains(OFFLINE)
    })
    .await;
    let (ready, why) = cluster.nodes[2].http("/ready").await;
    assert_eq!(ready, 503, "{why}");
    assert_eq!(
        cluster.nodes[2].status().await["restarts"],
        0,
        "a replica is not killed"
    );
    // The others go on without it.
    insert(&cluster.nodes[0], 1).await.unwrap();
    cluster.join();
    let began = Instant::now();
    until("clients may come again", async || {
        cluster.nodes[2].log_in_from_afar("app", APP).await.is_ok()
    })
    .await;
    println!("reads go on {:?} after the network does", began.elapsed());
    until("the replica has caught up", async || {
        rows(&cluster.nodes[2]).await.contains(&1)
    })
    .await;
    cluster.cut().await;
}

/// The operator reaches everybody but the old primary, and the members do, too: nothing tells it of its end but the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f20_a_primary_that_hears_of_its_successor_fences_itself() {
    show_logs();
    let mut cluster = Cluster::wired(3, FENCING, |_config| {}).await;
    make_table(&mut cluster, 0).await;
    cluster.cut_operator_from(0);
    cluster.nodes[0].hang_up();
    let held = cluster.nodes[0].manager.take();
    cluster.make_primary(1).await;
    let opened = Instant::now();
    cluster.nodes[0].manager = held;
    until("the old primary is not writable any more", async || {
        !is_writable(&cluster.nodes[0].status().await)
    })
    .await;
    let took = opened.elapsed();
    println!("the old primary knows {took:?} after the new one was opened");
    assert!(took < FENCING, "{took:?}");
    let status = cluster.nodes[0].status().await;
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("shop-1 was made primary in epoch"), "{status}");
    cluster.cut().await;
}
