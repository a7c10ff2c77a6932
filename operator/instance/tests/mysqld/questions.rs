//! What the failover rules had to leave to a real server to answer. Each test is named after its question; the answers
//! stand in docs/instance.md.

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable as _;
use tokio::time::timeout;

use crate::support::raw::Pair;
use crate::support::wire::Wire;
use crate::support::{self, show_logs, until};

/// No, and one later commit is needed: the source sends nothing that the replica has, and only what is sent is
/// acknowledged. Therefore the manager of a primary makes a commit when others do not end (rule 2 c).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn l5_does_a_replica_that_already_has_it_acknowledge_a_commit_when_it_reconnects() {
    show_logs();
    let pair = Pair::strangers(&[], &[]).await;
    let wire = Wire::to(pair.source.admin()).await;
    pair.attach(wire.address).await;
    pair.source.run(&["INSERT INTO app.t VALUES (1)"]).await;
    // It receives the next one, and its acknowledgement is lost with the connection.
    wire.cut_to_server();
    let mut commit = pair.source.begin("INSERT INTO app.t VALUES (2)");
    pair.wait_until_received(2).await;
    pair.replica.run(&["STOP REPLICA IO_THREAD"]).await;
    wire.replace().await;
    until("the source knows that it is alone", async || {
        pair.source.status("Rpl_semi_sync_source_clients").await == "0"
    })
    .await;
    pair.replica.run(&[&pair.replica.start_receiver()]).await;
    until("the replica is connected again", async || {
        pair.source.status("Rpl_semi_sync_source_clients").await == "1"
    })
    .await;
    assert!(
        timeout(Duration::from_secs(4), &mut commit).await.is_err(),
        "it acknowledges by itself: the probe of the primary's manager is not needed for that"
    );
    assert_eq!(pair.source.executed().await.count(), 1);
    // One more commit, and both are acknowledged.
    pair.source.run(&["INSERT INTO app.t VALUES (3)"]).await;
    timeout(Duration::from_secs(4), commit).await.unwrap().unwrap().unwrap();
    assert_eq!(pair.source.executed().await.count(), 3);
}

/// Yes: complete transactions only, with what was received but not applied, and without the torn one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn is_the_received_set_right_after_a_power_cut_that_tears_the_last_transaction() {
    show_logs();
    let mut pair = Pair::start().await;
    pair.replica.run(&["STOP REPLICA SQL_THREAD"]).await;
    for row in 1..=4 {
        pair.source.run(&[&format!("INSERT INTO app.t VALUES ({row})")]).await;
    }
    pair.wait_until_received(4).await;
    let whole = pair.replica.received().await;
    pair.replica.kill();
    support::tear_relay_log(&pair.replica.node, 20);
    pair.replica.start_again().await;
    let torn = pair.replica.received().await;
    println!("20 bytes fewer: {torn} of {whole}");
    assert_eq!(torn.count(), 3, "{torn}");
    assert!(whole.contains(&torn) && pair.replica.executed().await.is_empty());
    // The same without a tear, and after one more power cut.
    pair.replica.kill();
    pair.replica.start_again().await;
    assert_eq!(pair.replica.received().await, torn);
    // What is whole can be applied.
    pair.replica.run(&["START REPLICA SQL_THREAD"]).await;
    until("the whole ones are applied", async || {
        pair.replica.executed().await.count() == 3
    })
    .await;
}

/// No: while the replica's disk does not write, nothing is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn is_an_acknowledgement_ever_sent_before_the_relay_log_is_synced() {
    show_logs();
    let (pair, disk) = Pair::with_disk(&[], &[]).await;
    pair.attach(pair.source.admin()).await;
    for row in 0..5 {
        pair.source.run(&[&format!("INSERT INTO app.t VALUES ({row})")]).await;
        disk.stall();
        let mut commit = pair.source.begin(&format!("INSERT INTO app.t VALUES (10{row})"));
        assert!(
            timeout(Duration::from_millis(700), &mut commit).await.is_err(),
            "it was acknowledged and is on no disk"
        );
        disk.mend();
        timeout(support::PATIENCE, commit).await.unwrap().unwrap().unwrap();
    }
}

/// Yes, in milliseconds; not behind a `SET GLOBAL super_read_only` that waits itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn does_an_account_lock_without_binlog_pass_while_commits_wait() {
    const LOCK: [&str; 3] = [
        "SET SESSION sql_log_bin=0",
        "ALTER USER 'mainstay_repl_3'@'%' ACCOUNT LOCK",
        "ALTER USER 'mainstay_repl_3'@'%' ACCOUNT UNLOCK",
    ];
    show_logs();
    let pair = Pair::start().await;
    pair.replica.run(&["STOP REPLICA IO_THREAD"]).await;
    let waiting = pair.source.begin("INSERT INTO app.t VALUES (1)");
    pair.source.wait_for_a_waiting_commit().await;
    let began = Instant::now();
    timeout(Duration::from_secs(5), pair.source.run(&LOCK))
        .await
        .expect("it waits for the commit");
    println!("lock and unlock while a commit waits: {:?}", began.elapsed());
    let mut session = pair.source.session().await;
    session.query_drop(LOCK[0]).await.unwrap();
    let mut closing = pair.source.begin("SET GLOBAL super_read_only=ON");
    assert!(timeout(Duration::from_secs(1), &mut closing).await.is_err());
    assert!(
        timeout(Duration::from_secs(2), session.query_drop(LOCK[1]))
            .await
            .is_err(),
        "it passes a waiting super_read_only, too"
    );
    assert!(!waiting.is_finished());
}

/// Heartbeats and ends of transactions: no. The bytes that its thread has received: yes, even within one packet, of which
/// the relay log and the positions get to know only when it is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn does_a_replica_note_anything_while_it_receives_one_transaction() {
    const NOTED: &str = "SELECT CONCAT(LAST_HEARTBEAT_TIMESTAMP, LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP) \
                         FROM performance_schema.replication_connection_status";
    const RELAYED: &str = "SELECT CAST(SUM_NUMBER_OF_BYTES_WRITE AS CHAR) \
                           FROM performance_schema.file_summary_by_event_name WHERE EVENT_NAME='wait/io/file/sql/relaylog'";
    const RECEIVED: &str = "SELECT b.VARIABLE_VALUE FROM performance_schema.replication_connection_status s \
                            JOIN performance_schema.status_by_thread b USING (THREAD_ID) WHERE VARIABLE_NAME='Bytes_received'";
    const QUEUEING: &str = "SELECT QUEUEING_TRANSACTION FROM performance_schema.replication_connection_status";
    show_logs();
    let pair = Pair::strangers(&[], &[]).await;
    for server in [&pair.source, &pair.replica] {
        server
            .run(&["SET SESSION sql_log_bin=0", "CREATE TABLE app.large (b LONGBLOB)"])
            .await;
    }
    let wire = Wire::to(pair.source.admin()).await;
    pair.attach(wire.address).await;
    wire.throttle(4_000_000);
    let commit = pair
        .source
        .begin("SET SESSION binlog_transaction_compression=OFF; INSERT INTO app.large VALUES (REPEAT('x', 12000000))");
    until("it is being received", async || {
        !pair.replica.text(QUEUEING).await.is_empty()
    })
    .await;
    let noted = pair.replica.text(NOTED).await;
    let relayed = pair.replica.text(RELAYED).await;
    let mut received: u64 = pair.replica.text(RECEIVED).await.parse().unwrap();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now: u64 = pair.replica.text(RECEIVED).await.parse().unwrap();
        assert!(now > received + 100_000, "{received} and {now}");
        received = now;
    }
    assert!(!commit.is_finished());
    assert_eq!(
        pair.replica.text(NOTED).await,
        noted,
        "there are heartbeats in this version"
    );
    assert_eq!(pair.replica.text(RELAYED).await, relayed);
    commit.await.unwrap().unwrap();
}
