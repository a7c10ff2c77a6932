//! The deadline of a fence, whatever clients do: read-only by then, by SQL or by SIGKILL (rule 6).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay_core::action::Verb;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};

use crate::support::{self, Answer, Cluster, insert, kept, make_table, rows, show_logs, until};

/// What a switchover grants.
const DEADLINE: Duration = Duration::from_millis(500);
/// What the operator grants beyond it, before it gives the call up.
const MARGIN: Duration = Duration::from_secs(2);

async fn fence(cluster: &mut Cluster, node: usize) -> Answer {
    cluster.epoch += 1;
    let epoch = cluster.epoch;
    cluster.nodes[node].give_within(DEADLINE, epoch, Verb::Fence).await
}

/// Fences the primary while a client does something, and opens it again.
async fn fence_beside(cluster: &mut Cluster, what: &str, statements: &[&str]) -> Conn {
    let mut client = cluster.nodes[0].root().await;
    for statement in statements {
        client.query_drop(*statement).await.unwrap();
    }
    let restarts = cluster.nodes[0].report().await.restarts;
    let answer = fence(cluster, 0).await;
    println!("fence beside {what}: {:?}", answer.took);
    let report = answer.must_be_done();
    assert!(!report.writable, "{what}");
    assert_eq!(
        report.restarts, restarts,
        "{what}: nothing had to be killed but sessions"
    );
    assert!(answer.took < DEADLINE + MARGIN, "{what}: {:?}", answer.took);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_6_no_lock_of_a_client_holds_a_fence_up() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    for (what, statements) in [
        (
            "an open transaction with row locks",
            &["BEGIN", "UPDATE my_app.t SET n=n+100"][..],
        ),
        ("a table that is locked", &["LOCK TABLES my_app.t WRITE"][..]),
        ("a lock of everything", &["FLUSH TABLES WITH READ LOCK"][..]),
        ("a lock for a backup", &["LOCK INSTANCE FOR BACKUP"][..]),
    ] {
        let mut client = fence_beside(&mut cluster, what, statements).await;
        client.query_drop("SELECT 1").await.expect_err("its session goes on");
        cluster.make_primary(0).await;
    }
    // A statement that runs and writes, row by row.
    let mut client = cluster.nodes[0].root().await;
    let slow = tokio::spawn(async move {
        let statement = "INSERT INTO my_app.t SELECT 1000+n FROM my_app.t WHERE SLEEP(60)=0";
        client.query_drop(statement).await
    });
    until("the statement runs", async || {
        let running =
            "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_STATE='User sleep'";
        cluster.nodes[0].text(running).await.as_deref() == Some("1")
    })
    .await;
    fence_beside(&mut cluster, "a statement that writes", &[]).await;
    slow.await.unwrap().unwrap_err();
    assert_eq!(
        rows(&cluster.nodes[0]).await,
        BTreeSet::from([1]),
        "nothing of it was committed"
    );

    // What waits for an acknowledgement ends by nothing but SIGKILL.
    cluster.make_primary(0).await;
    cluster.stop_receivers(&[1, 2]).await;
    let mut client = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (2)").await });
    cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    let answer = fence(&mut cluster, 0).await;
    println!("fence beside a commit that waits: {:?}", answer.took);
    assert_eq!(cluster.nodes[0].report().await.restarts, 1);
    assert!(answer.took < DEADLINE + MARGIN, "{:?}", answer.took);
    commit.await.unwrap().expect_err("nobody has it");
    cluster.cut().await;
}

/// Writes until its session ends; the rows of which it was told that they are committed.
async fn write(opts: OptsBuilder, next: Arc<AtomicU32>) -> Vec<u32> {
    let mut acknowledged = Vec::new();
    let Ok(mut client) = Conn::new(opts).await else {
        return acknowledged;
    };
    loop {
        let row = next.fetch_add(1, Ordering::SeqCst);
        let written = client.query_drop(format!("INSERT INTO my_app.t VALUES ({row})")).await;
        if written.is_err() {
            return acknowledged;
        }
        acknowledged.push(row);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_6_two_hundred_clients_that_write_hold_no_fence_up() {
    const CLIENTS: u64 = 200;
    show_logs();
    let mut cluster = Cluster::prepare(3);
    let file = &cluster.nodes[0].config.paths.config_file;
    let more = std::fs::read_to_string(file).unwrap() + "\nmax_connections=250\n";
    std::fs::write(file, more).unwrap();
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    let socket = cluster.nodes[0].config.paths.socket();
    let opts = OptsBuilder::default()
        .socket(socket.to_str().map(str::to_owned))
        .user(Some("root"))
        .pass(Some(support::ROOT));
    let next = Arc::new(AtomicU32::new(0));
    let writers: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(write(opts.clone(), Arc::clone(&next))))
        .collect();
    until("all of them write", async || {
        let clients = "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_USER='root'";
        cluster.nodes[0].text(clients).await == Some(CLIENTS.to_string()) && next.load(Ordering::SeqCst) > 2000
    })
    .await;
    let restarts = cluster.nodes[0].report().await.restarts;
    let answer = fence(&mut cluster, 0).await;
    let killed = cluster.nodes[0].report().await.restarts > restarts;
    println!(
        "fence beside {CLIENTS} clients that write: {:?}, killed: {killed}",
        answer.took
    );
    assert!(!answer.must_be_done().writable);
    assert!(answer.took < DEADLINE + MARGIN, "{:?}", answer.took);
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        let written = tokio::time::timeout(Duration::from_secs(5), writer).await;
        acknowledged.extend(written.expect("a session goes on").unwrap());
    }
    println!("{} commits were acknowledged", acknowledged.len());
    kept(&mut cluster, [1, 2], &acknowledged).await;
    cluster.cut().await;
}
