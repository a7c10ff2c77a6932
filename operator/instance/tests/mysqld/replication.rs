//! Replicas that lag, err or are broken, and what becomes of what they received (cases F07, F13, F18, F25).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mysql_async::prelude::Queryable as _;

use crate::support::{self, APP, Cluster, insert, make_table, open, rows, show_logs, stop_receiver, until};

const STOP_APPLIER: &str = "STOP REPLICA SQL_THREAD";

async fn run(cluster: &Cluster, node: usize, statements: &[&str]) {
    let mut inside = cluster.nodes[node].inside().await;
    for statement in statements {
        let run = tokio::time::timeout(support::PATIENCE, inside.query_drop(*statement)).await;
        run.unwrap_or_else(|_| panic!("{statement} does not end")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f07_a_failover_while_a_commit_waits_ends_and_the_commit_is_not_acknowledged() {
    show_logs();
    let mut cluster = Cluster::wired(3, Duration::from_mins(1), |_config| {}).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    // Cut from its replicas only.
    for node in [1, 2] {
        cluster.replication(node, 0).cut();
    }
    let mut client = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move { client.query_drop("INSERT INTO my_app.t VALUES (2)").await });
    cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    // The members are fenced, and one of them is opened, before the old primary is reached.
    let began = Instant::now();
    let held = cluster.nodes[0].manager.take();
    cluster.make_primary(1).await;
    println!("failover while a commit waits: {:?}", began.elapsed());
    insert(&cluster.nodes[1], 3).await.unwrap();
    assert!(!commit.is_finished());
    // It heals, and the old receivers would be there again.
    cluster.join();
    cluster.nodes[0].manager = held;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.give(0, Verb::Fence).await.must_be_done();
    let fenced = cluster.nodes[0]
        .wait("it answers again", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(!fenced.writable);
    commit
        .await
        .unwrap()
        .expect_err("nobody has it, so nobody may have been told that it is safe");
    // It never serves a write again, not even one of a client with every privilege.
    let refused = insert(&cluster.nodes[0], 4).await.unwrap_err().to_string();
    assert!(
        refused.contains("read-only") || refused.contains("read_only"),
        "{refused}"
    );
    let new = cluster.mark(1).await;
    // Its manager may have written, too: to see whether commits end, and what it notes of events.
    let surplus = fenced.set().subtract(&new);
    assert!(
        !surplus.is_empty() && surplus == surplus.of_source(&fenced.server_uuid),
        "what was not acknowledged is what it has too much: {surplus}"
    );
    for node in [1, 2] {
        cluster.nodes[node].wait_for(&new).await;
        assert_eq!(rows(&cluster.nodes[node]).await, [1, 3].into());
    }
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f13_what_was_received_is_applied_before_it_may_be_dropped() {
    const ROWS: u32 = 10_000;
    const EACH: u32 = 250;
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for node in [1, 2] {
        run(&cluster, node, &[STOP_APPLIER]).await;
    }
    let mut client = cluster.nodes[0].root().await;
    for first in (0..ROWS).step_by(usize::try_from(EACH).unwrap()) {
        let values: Vec<String> = (first..first + EACH).map(|row| format!("({row})")).collect();
        let statement = format!("INSERT INTO my_app.t VALUES {}", values.join(","));
        client.query_drop(statement).await.unwrap();
    }
    drop(client);
    let acknowledged = cluster.mark(0).await;
    cluster.nodes[0].cut().await;
    std::fs::remove_dir_all(&cluster.nodes[0].config.paths.volume).unwrap();

    // A replica with all of it in its relay log only cannot be pointed elsewhere by a command that has no time.
    cluster.epoch += 1;
    let before = cluster.nodes[2].report().await;
    assert!(before.set().contains(&acknowledged) && !before.executed.contains(&acknowledged));
    assert!(rows(&cluster.nodes[2]).await.is_empty());
    let source = cluster.nodes[1].endpoint().await;
    let id = cluster.nodes[2].id().await;
    let hasty = Verb::Attach { source: source.clone() };
    let epoch = cluster.epoch;
    let mut lock = cluster.nodes[2].inside().await;
    lock.query_drop("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let answer = cluster.nodes[2]
        .give_as(id, epoch, 1000, Duration::from_millis(700), hasty)
        .await;
    answer.must_be_refused("not applied");
    drop(lock);
    assert!(
        cluster.nodes[2].report().await.set().contains(&acknowledged),
        "nothing was dropped"
    );

    // An election: both apply what they have, and the winner before it opens.
    let began = Instant::now();
    cluster.make_primary_when_applied(1).await;
    println!("{ROWS} rows applied, attached, opened: {:?}", began.elapsed());
    for node in [1, 2] {
        cluster.nodes[node].wait_for(&acknowledged).await;
        assert_eq!(rows(&cluster.nodes[node]).await.len(), usize::try_from(ROWS).unwrap());
    }
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f18_one_row_written_on_a_replica_is_reported_exactly() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    let all = cluster.mark(0).await;
    cluster.nodes[2].wait_for(&all).await;
    run(
        &cluster,
        2,
        &[
            "SET GLOBAL super_read_only=OFF",
            "INSERT INTO my_app.t VALUES (1000)",
            "SET GLOBAL super_read_only=ON",
        ],
    )
    .await;
    let uuid = cluster.nodes[2].report().await.server_uuid;
    let one: GtidSet = format!("{uuid}:1").parse().unwrap();
    let report = cluster.nodes[2]
        .wait("it is reported", |report| !report.executed.subtract(&all).is_empty())
        .await;
    assert_eq!(report.executed.subtract(&all), one);
    // No false alarm on the other one, while commits come.
    for row in 2..10 {
        insert(&cluster.nodes[0], row).await.unwrap();
        let replica = cluster.nodes[1].report().await.set();
        let primary = cluster.nodes[0].report().await;
        let errant = replica.subtract(&primary.executed);
        assert_eq!(
            errant,
            errant.of_source(&primary.server_uuid),
            "GTIDs of the primary may only be on their way"
        );
    }
    // A stranger that stays writable is fenced, and says what it has.
    run(
        &cluster,
        2,
        &["SET GLOBAL super_read_only=OFF", "INSERT INTO my_app.t VALUES (1001)"],
    )
    .await;
    let report = cluster.nodes[2]
        .wait("it is said to be writable", |report| report.writable)
        .await;
    assert!(report.writable);
    let answer = cluster.give(2, Verb::Fence).await;
    let report = answer.must_be_done();
    assert!(!report.writable && report.replication.source_host.is_none());
    let own = report.set().of_source(&uuid);
    assert_eq!(own, format!("{uuid}:1-2").parse().unwrap());
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f25_a_broken_applier_is_refused_with_its_reason_and_a_wrong_source_is_repaired() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    // A row that replication will write again.
    run(
        &cluster,
        2,
        &[
            "SET SESSION sql_log_bin=0",
            "SET GLOBAL super_read_only=OFF",
            "INSERT INTO my_app.t VALUES (7)",
            "SET GLOBAL super_read_only=ON",
        ],
    )
    .await;
    insert(&cluster.nodes[0], 7).await.unwrap();
    let report = cluster.nodes[2]
        .wait("its applier has stopped", |report| !report.replication.applier_running)
        .await;
    assert!(
        report.replication.applier_error.contains("1062"),
        "{}",
        report.replication.applier_error
    );
    let source = cluster.nodes[0].endpoint().await;
    let answer = cluster.give(2, Verb::Attach { source: source.clone() }).await;
    answer.must_be_refused("received transactions cannot be applied");
    answer.must_be_refused("Duplicate entry");
    assert!(
        cluster.nodes[2].report().await.set().contains(&report.set()),
        "nothing was dropped"
    );
    // With the cause gone the same command repairs it.
    run(
        &cluster,
        2,
        &[
            "SET SESSION sql_log_bin=0",
            "SET GLOBAL super_read_only=OFF",
            "DELETE FROM my_app.t WHERE n=7",
            "SET GLOBAL super_read_only=ON",
        ],
    )
    .await;
    cluster
        .give(2, Verb::Attach { source: source.clone() })
        .await
        .must_be_done();
    let all = cluster.mark(0).await;
    cluster.nodes[2].wait_for(&all).await;

    // Somebody points it at the other replica by hand.
    let wrong = cluster.nodes[1].config.ports.admin;
    run(
        &cluster,
        2,
        &[
            "STOP REPLICA",
            &format!("CHANGE REPLICATION SOURCE TO SOURCE_PORT={wrong}"),
            "START REPLICA SQL_THREAD",
        ],
    )
    .await;
    cluster.give(2, Verb::Attach { source }).await.must_be_done();
    insert(&cluster.nodes[0], 8).await.unwrap();
    let all = cluster.mark(0).await;
    cluster.nodes[2].wait_for(&all).await;
    let port = cluster.nodes[2]
        .text("SELECT CAST(PORT AS CHAR) FROM performance_schema.replication_connection_configuration")
        .await;
    assert_eq!(port, Some(cluster.nodes[0].config.ports.admin.to_string()));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_6_sessions_of_a_demoted_primary_end_with_the_fence() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    // One that does nothing, one that reads, one in the middle of a transaction, and one with every privilege.
    let node = &cluster.nodes[0];
    let mut idle = node.log_in_from_afar("app", APP).await.unwrap();
    let mut reading = node.log_in_from_afar("app", APP).await.unwrap();
    let mut writing = node.log_in_from_afar("app", APP).await.unwrap();
    let mut dba = node.root().await;
    writing.query_drop("BEGIN").await.unwrap();
    writing.query_drop("INSERT INTO my_app.t VALUES (1)").await.unwrap();
    let reading = tokio::spawn(async move { reading.query_drop("SELECT SLEEP(60)").await });
    until("the long statement runs", async || {
        let running =
            "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_STATE='User sleep'";
        cluster.nodes[0].text(running).await.as_deref() == Some("1")
    })
    .await;
    let began = Instant::now();
    let answer = cluster.give(0, Verb::Fence).await;
    println!("fence of a primary with clients: {:?}", answer.took);
    let report = answer.must_be_done();
    assert_eq!(report.restarts, 0, "nothing had to be killed but sessions");
    tokio::time::timeout(Duration::from_secs(2), reading)
        .await
        .expect("a client hangs on the old primary")
        .unwrap()
        .unwrap_err();
    for client in [&mut idle, &mut writing, &mut dba] {
        client
            .query_drop("SELECT 1")
            .await
            .expect_err("a client is still on the old primary");
    }
    println!("all sessions had ended after {:?}", began.elapsed());
    assert!(
        rows(&cluster.nodes[0]).await.is_empty(),
        "what was not committed is gone"
    );
    cluster.cut().await;
}

/// What was open when it restarted, and when it is cut, is not lost: everything received before is applied and kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a7_a_replica_whose_relay_log_ends_in_the_middle_of_a_transaction_follows_again() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for row in 0..5 {
        insert(&cluster.nodes[0], row).await.unwrap();
    }
    let all = cluster.mark(0).await;
    cluster.nodes[1].wait_for(&all).await;
    run(&cluster, 2, &[STOP_APPLIER]).await;
    insert(&cluster.nodes[0], 5).await.unwrap();
    insert(&cluster.nodes[0], 6).await.unwrap();
    let received = cluster.mark(0).await;
    cluster.nodes[2]
        .wait("it received all", |report| report.set().contains(&received))
        .await;
    cluster.nodes[2].cut().await;
    let torn = support::tear_relay_log(&cluster.nodes[2], 30);
    println!("{} was cut short by 30 bytes", torn.display());
    cluster.nodes[2].start().await;
    let report = cluster.nodes[2]
        .wait("it answers", |report| report.mysqld == Mysqld::Running)
        .await;
    println!("received after the cut: {}", received.subtract(&report.set()));
    assert!(
        !report.set().contains(&received),
        "what is torn does not count as received"
    );
    // What is whole is applied without being told.
    let whole = report.set();
    cluster.nodes[2].wait_for(&whole).await;
    let source = cluster.nodes[0].endpoint().await;
    cluster.epoch += 1;
    until("it follows again", async || {
        let answer = cluster.give(2, Verb::Attach { source: source.clone() }).await;
        println!("attach: {:?}", answer.reply.outcome);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let report = cluster.nodes[2].report().await;
        report.replication.receiver_running && report.replication.applier_running && report.executed.contains(&received)
    })
    .await;
    assert_eq!(rows(&cluster.nodes[2]).await, (0..7).collect::<BTreeSet<u32>>());
    // And it acknowledges: the other one is gone.
    run(&cluster, 1, &[stop_receiver()]).await;
    insert(&cluster.nodes[0], 8).await.unwrap();
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_5_an_opening_is_refused_while_received_transactions_are_not_applied() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    run(&cluster, 1, &[STOP_APPLIER]).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    let received = cluster.mark(0).await;
    cluster.nodes[1]
        .wait("it received all", |report| report.set().contains(&received))
        .await;
    run(&cluster, 1, &[stop_receiver()]).await;
    cluster.epoch += 1;
    let members = BTreeSet::from([cluster.nodes[2].id().await]);
    cluster
        .give(1, open(members, 1, GtidSet::new()))
        .await
        .must_be_refused("received transactions are not applied yet");
    cluster.cut().await;
}

/// All that it has received is applied, and much is not received: that is no replica which has caught up (rule 8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_8_a_replica_whose_receiver_is_behind_says_so() {
    const BEHIND: Duration = Duration::from_millis(500);
    show_logs();
    let mut cluster = Cluster::wired(3, Duration::from_mins(1), |_config| {}).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 0).await.unwrap();
    cluster.nodes[1]
        .wait("it keeps up", |report| {
            report.replication.lag.is_some_and(|lag| lag < BEHIND)
        })
        .await;
    // Node 2 acknowledges in time.
    cluster.replication(1, 0).throttle(4_000);
    for number in 1..40 {
        insert(&cluster.nodes[0], number).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let all = cluster.mark(0).await;
    let report = cluster.nodes[1]
        .wait("it is behind", |report| {
            let behind = report.replication.lag.is_some_and(|lag| lag > BEHIND);
            behind && report.fully_applied() && !report.set().contains(&all)
        })
        .await;
    println!("behind by {:?}", report.replication.lag);
    cluster.replication(1, 0).throttle(0);
    cluster.nodes[1]
        .wait("the source has nothing more to send", |report| {
            report.set().contains(&all) && report.replication.lag == Some(Duration::ZERO)
        })
        .await;
    cluster.cut().await;
}

/// A transaction that takes longer than the time of silence (rules 2b, 2d), and than the stall time (rule 2c).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_2b_a_replica_is_heard_from_while_it_receives_one_large_transaction() {
    const SILENCE: Duration = Duration::from_secs(2);
    const NOTED: &str = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, GREATEST(LAST_HEARTBEAT_TIMESTAMP, \
                         LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP), NOW(6)) AS CHAR) \
                         FROM performance_schema.replication_connection_status";
    show_logs();
    let mut cluster = Cluster::wired(3, Duration::from_mins(1), |_config| {}).await;
    make_table(&mut cluster, 0).await;
    let mut client = cluster.nodes[0].root().await;
    client
        .query_drop("CREATE TABLE my_app.large (b LONGBLOB)")
        .await
        .unwrap();
    let made = cluster.mark(0).await;
    for node in [1, 2] {
        cluster.nodes[node].wait_for(&made).await;
        cluster.replication(node, 0).throttle(4_000_000);
    }
    let began = Instant::now();
    let commit = tokio::spawn(async move {
        let insert = "SET SESSION binlog_transaction_compression=OFF; \
                      INSERT INTO my_app.large VALUES (REPEAT('x', 30000000))";
        client.query_drop(insert).await
    });
    let (mut deafest, mut noted) = (Duration::ZERO, Duration::ZERO);
    while !commit.is_finished() {
        let report = cluster.nodes[1].report().await;
        assert!(report.replication.receiver_running);
        deafest = deafest.max(report.replication.last_heard.unwrap());
        let age = cluster.nodes[1].text(NOTED).await.unwrap().parse().unwrap();
        noted = noted.max(Duration::from_micros(age));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    commit.await.unwrap().unwrap();
    println!(
        "received in {:?}; last heard {deafest:?} ago at most, and {noted:?} as MySQL notes it",
        began.elapsed()
    );
    assert!(noted > SILENCE, "it notes more in this version: {noted:?}");
    assert!(deafest < SILENCE, "{deafest:?}");
    assert_eq!(cluster.nodes[0].report().await.restarts, 0, "the primary only waited");

    // One that stands still in the middle is deaf all the same.
    let mut client = cluster.nodes[0].root().await;
    let commit = tokio::spawn(async move {
        let insert = "SET SESSION binlog_transaction_compression=OFF; \
                      INSERT INTO my_app.large VALUES (REPEAT('x', 30000000))";
        client.query_drop(insert).await
    });
    cluster.nodes[0]
        .wait("the commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    tokio::time::sleep(SILENCE).await;
    cluster.replication(1, 0).cut();
    let cut = Instant::now();
    cluster.nodes[1]
        .wait("it is deaf", |report| {
            report.replication.last_heard.is_some_and(|age| age > SILENCE)
        })
        .await;
    println!("deaf {:?} after the cut", cut.elapsed());
    assert!(cut.elapsed() > SILENCE / 2);
    // The other one has all of it.
    commit.await.unwrap().unwrap();
    assert_eq!(cluster.nodes[0].report().await.restarts, 0);
    cluster.cut().await;
}
