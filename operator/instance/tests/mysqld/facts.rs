//! What MySQL does by itself and the failover rules have to live with: each test fails when a version does otherwise, and
//! then the code that is named beside it can be looked at again. Times are in docs/instance.md.

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::support::disk::Disk;
use crate::support::raw::{Pair, Raw};
use crate::support::{CLONE, Cluster, MANAGER, show_logs, until};

const SHORT: Duration = Duration::from_secs(2);

/// A pair whose replica does not receive, with a commit that waits for it.
async fn with_a_waiting_commit() -> (Pair, tokio::task::JoinHandle<Result<(), mysql_async::Error>>) {
    let pair = Pair::start().await;
    pair.replica.run(&["STOP REPLICA IO_THREAD"]).await;
    let commit = pair.source.begin("INSERT INTO app.t VALUES (1)");
    pair.source.wait_for_a_waiting_commit().await;
    (pair, commit)
}

/// Why a writable mysqld is never sent SIGTERM (the shutdown rule).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_clean_stop_acknowledges_what_no_replica_has() {
    show_logs();
    let (pair, first) = with_a_waiting_commit().await;
    let more: Vec<_> = (2..=12)
        .map(|row| pair.source.begin(&format!("INSERT INTO app.t VALUES ({row})")))
        .collect();
    until("all of them are on their way", async || {
        let inserts =
            "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_INFO LIKE 'INSERT%'";
        pair.source.text(inserts).await == "12"
    })
    .await;
    pair.source.signal(Signal::TERM);
    let mut acknowledged = 0;
    for commit in more.into_iter().chain([first]) {
        acknowledged += u32::from(commit.await.unwrap().is_ok());
    }
    println!("{acknowledged} of 12 waiting commits were acknowledged by a clean stop");
    assert!(
        acknowledged > 0,
        "a clean stop is harmless in this version: the shutdown rule could be simpler"
    );
    assert!(pair.replica.received().await.is_empty());
}

/// Why a full volume is told, before nothing is free at all and for a while after there is room again (`standstill.rs`): at that
/// point no statement makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f33_a_commit_whose_binlog_does_not_fit_waits_and_says_so_in_the_log_alone() {
    const COMMITTING: &str = "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads \
                              WHERE PROCESSLIST_STATE='waiting for handler commit'";
    show_logs();
    let mut cluster = Cluster::prepare(1);
    let mut node = cluster.nodes.pop().unwrap();
    let disk = Disk::below(&mut node.config.programs, cluster.dir.path());
    let server = Raw::start(node, &[]).await;
    server
        .run(&[
            "CREATE DATABASE app",
            "CREATE TABLE app.t (n INT PRIMARY KEY)",
            "FLUSH BINARY LOGS",
        ])
        .await;
    let files = std::fs::read_dir(server.node.config.paths.data()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let present = names.filter(|name| name.starts_with("binlog.0")).max().unwrap();
    disk.fill();
    let commit = server.begin("INSERT INTO app.t VALUES (1)");
    until("it is on its way", async || server.text(COMMITTING).await != "0").await;
    until("the log says why", async || {
        let log = std::fs::read_to_string(server.node.config.paths.run.join("log")).unwrap();
        log.contains("Disk is full writing './binlog.") && log.contains("Retry in 60 secs")
    })
    .await;
    let purge = format!("PURGE BINARY LOGS TO '{present}'");
    for (statement, otherwise) in [
        (purge.as_str(), "it is a remedy even then"),
        ("SET GLOBAL super_read_only=ON", "a fence need not kill it"),
    ] {
        assert!(timeout(SHORT, server.begin(statement)).await.is_err(), "{otherwise}");
    }
    assert!(!commit.is_finished());
}

/// Why a fence switches none of these, and kills instead (rule 6). (A timeout that is lowered is nothing to a commit that
/// waits already, in this version; to the next one it is.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_6_switching_semi_sync_off_in_any_way_acknowledges_waiting_commits() {
    show_logs();
    let (pair, mut commit) = with_a_waiting_commit().await;
    for (row, (off, on)) in [
        ("rpl_semi_sync_source_enabled=OFF", "rpl_semi_sync_source_enabled=ON"),
        (
            "rpl_semi_sync_source_wait_no_replica=OFF",
            "rpl_semi_sync_source_wait_no_replica=ON",
        ),
    ]
    .iter()
    .enumerate()
    {
        assert!(
            timeout(Duration::from_millis(500), &mut commit).await.is_err(),
            "{off}: it did not wait"
        );
        pair.source.run(&[&format!("SET GLOBAL {off}")]).await;
        let released = timeout(Duration::from_secs(5), commit).await;
        println!("{off} acknowledged a waiting commit: {}", released.is_ok());
        assert!(
            released.is_ok_and(|ended| ended.unwrap().is_ok()),
            "{off} is harmless in this version"
        );
        pair.source
            .run(&[
                "SET GLOBAL rpl_semi_sync_source_enabled=OFF",
                &format!("SET GLOBAL {on}"),
            ])
            .await;
        pair.source.run(&["SET GLOBAL rpl_semi_sync_source_enabled=ON"]).await;
        commit = pair.source.begin(&format!("INSERT INTO app.t VALUES (20{row})"));
        pair.source.wait_for_a_waiting_commit().await;
    }
    pair.source.run(&["SET GLOBAL rpl_semi_sync_source_timeout=1"]).await;
    let lowered = timeout(SHORT, &mut commit).await;
    println!("a lower timeout acknowledged a waiting commit: {}", lowered.is_ok());
    assert!(pair.replica.received().await.is_empty(), "nobody had any of them");
}

/// Why a fence does not wait (rule 6), and why a statement that was given up is killed before a command has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn super_read_only_waits_for_commits_and_takes_effect_late() {
    show_logs();
    let (pair, commit) = with_a_waiting_commit().await;
    let mut closing = pair.source.begin("SET GLOBAL super_read_only=ON");
    assert!(
        timeout(SHORT, &mut closing).await.is_err(),
        "it does not wait for the commit"
    );
    // It says that it is done, and it is not: `read_only` is what follows at the end, and a second statement waits, too.
    let flags = "SELECT CONCAT(@@GLOBAL.super_read_only, @@GLOBAL.read_only)";
    assert_eq!(pair.source.text(flags).await, "10");
    let mut second = pair.source.begin("SET GLOBAL super_read_only=ON");
    assert!(
        timeout(SHORT, &mut second).await.is_err(),
        "it does not wait for the commit"
    );
    // A KILL takes the client its connection, and tells it nothing of the commit; the session waits on, and all behind it.
    let waiting = "SELECT CAST(PROCESSLIST_ID AS CHAR) FROM performance_schema.threads \
                   WHERE PROCESSLIST_STATE='Waiting for semi-sync ACK from replica'";
    let id = pair.source.text(waiting).await;
    pair.source.run(&[&format!("KILL {id}")]).await;
    timeout(SHORT, commit)
        .await
        .expect("a KILL leaves the connection")
        .unwrap()
        .expect_err("a KILL acknowledges it");
    assert!(
        timeout(SHORT, &mut closing).await.is_err(),
        "a KILL ends the wait for the acknowledgement"
    );
    assert_eq!(pair.source.text(waiting).await, id);
    assert!(pair.source.executed().await.is_empty() && !second.is_finished());
    assert_eq!(pair.source.text(flags).await, "10");
    pair.replica.run(&[&pair.replica.start_receiver()]).await;
    closing.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(pair.source.text(flags).await, "11");
    assert_eq!(pair.source.executed().await.count(), 1);
}

/// Why a former primary steps down before it follows (Attach), and why semi-sync is off at every start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_replica_that_waits_for_replicas_of_its_own_hangs_its_applier() {
    show_logs();
    let pair = Pair::start().await;
    pair.source.run(&["SET GLOBAL rpl_semi_sync_source_enabled=OFF"]).await;
    pair.replica.semi_sync(1).await;
    pair.source.run(&["INSERT INTO app.t VALUES (1)"]).await;
    pair.wait_until_received(1).await;
    tokio::time::sleep(SHORT).await;
    assert!(
        pair.replica.executed().await.is_empty(),
        "its applier does not wait in this version"
    );
    assert_eq!(
        pair.replica.status("Rpl_semi_sync_source_status").await,
        "ON",
        "on at once, with nobody connected"
    );
    pair.replica.run(&["SET GLOBAL rpl_semi_sync_source_enabled=OFF"]).await;
    until("it is applied", async || pair.replica.executed().await.count() == 1).await;
}

/// Why Attach ends the sessions of replicas before it switches semi-sync off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn switching_semi_sync_off_is_slow_while_replicas_are_connected_and_logins_wait_for_it() {
    show_logs();
    let pair = Pair::start().await;
    let (mut slowest, mut login) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..3 {
        let began = Instant::now();
        let off = pair.source.begin("SET GLOBAL rpl_semi_sync_source_enabled=OFF");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let at = Instant::now();
        drop(pair.source.session().await);
        login = login.max(at.elapsed());
        off.await.unwrap().unwrap();
        slowest = slowest.max(began.elapsed());
        pair.source.run(&["SET GLOBAL rpl_semi_sync_source_enabled=ON"]).await;
    }
    pair.replica.run(&["STOP REPLICA IO_THREAD"]).await;
    until("nobody is connected", async || {
        pair.source.status("Rpl_semi_sync_source_clients").await == "0"
    })
    .await;
    // The first time after they have gone may still take as long.
    let mut session = pair.source.session().await;
    let mut alone = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        session
            .query_drop("SET GLOBAL rpl_semi_sync_source_enabled=OFF")
            .await
            .unwrap();
        alone = alone.min(began.elapsed());
        session
            .query_drop("SET GLOBAL rpl_semi_sync_source_enabled=ON")
            .await
            .unwrap();
    }
    println!("semi-sync off: {slowest:?} with a replica, a login meanwhile {login:?}; {alone:?} without");
    assert!(alone < Duration::from_millis(200), "{alone:?}");
    assert!(slowest > alone, "it is as quick with replicas in this version");
}

/// Why Attach is refused while the relay log is not applied (C3), and why `relay_log_recovery` is off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a5_another_source_and_relay_log_recovery_drop_what_was_received() {
    show_logs();
    let mut pair = Pair::start().await;
    pair.replica.run(&["STOP REPLICA SQL_THREAD"]).await;
    for row in 0..3 {
        pair.source.run(&[&format!("INSERT INTO app.t VALUES ({row})")]).await;
    }
    pair.wait_until_received(3).await;
    pair.replica.kill();
    pair.replica.start_again().await;
    assert_eq!(
        pair.replica.received().await.count(),
        3,
        "with relay_log_recovery=OFF it is kept"
    );
    pair.replica
        .run(&["STOP REPLICA", "CHANGE REPLICATION SOURCE TO SOURCE_PORT=1"])
        .await;
    assert!(
        pair.replica.received().await.is_empty(),
        "another source keeps the relay log in this version"
    );

    let pair = Pair::strangers(&[], &["--relay-log-recovery=ON"]).await;
    pair.attach(pair.source.admin()).await;
    pair.replica.run(&["STOP REPLICA SQL_THREAD"]).await;
    pair.source.run(&["INSERT INTO app.t VALUES (1)"]).await;
    pair.wait_until_received(1).await;
    let mut pair = pair;
    pair.source.kill();
    pair.replica.kill();
    pair.replica.start_again().await;
    assert!(
        pair.replica.received().await.is_empty(),
        "relay_log_recovery=ON keeps the relay log in this version"
    );
    assert!(
        pair.replica.executed().await.is_empty(),
        "so an acknowledged transaction is gone"
    );
}

/// Why everything that a primary writes about accounts goes around the binlog, or comes after its opening, with replicas
/// connected: while it waits nobody can log in, not even the replica that would acknowledge it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_grant_on_a_primary_without_replicas_waits_and_so_does_every_login() {
    show_logs();
    let (pair, commit) = with_a_waiting_commit().await;
    let mut inside = pair.source.session().await;
    let mut grant = pair
        .source
        .begin("GRANT SELECT ON app.* TO 'mainstay_monitor'@'localhost'");
    assert!(timeout(SHORT, &mut grant).await.is_err(), "it does not wait");
    assert!(
        timeout(SHORT, pair.source.session()).await.is_err(),
        "a login passes it in this version"
    );
    pair.replica.run(&[&pair.replica.start_receiver()]).await;
    tokio::time::sleep(SHORT).await;
    // Whoever is logged in already can do everything else.
    let clients = "SELECT VARIABLE_VALUE FROM performance_schema.global_status \
                   WHERE VARIABLE_NAME='Rpl_semi_sync_source_clients'";
    let clients: Option<String> = inside.query_first(clients).await.unwrap();
    assert_eq!(
        clients.as_deref(),
        Some("0"),
        "the replica's login passes it in this version"
    );
    assert!(!commit.is_finished() && !grant.is_finished());
}

/// Why a fence sets `super_read_only`, and what remains possible for whoever may change it (decision B7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn read_only_stops_no_privileged_client_and_super_read_only_does() {
    show_logs();
    let pair = Pair::strangers(&[], &[]).await;
    pair.source
        .run(&["SET GLOBAL read_only=ON", "INSERT INTO app.t VALUES (1)"])
        .await;
    pair.source.run(&["SET GLOBAL super_read_only=ON"]).await;
    let mut session = pair.source.session().await;
    session.query_drop("INSERT INTO app.t VALUES (2)").await.unwrap_err();
    session
        .query_drop("SET GLOBAL super_read_only=OFF")
        .await
        .expect("SYSTEM_VARIABLES_ADMIN allows it");
}

/// Why clones go into a new data directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a2_a_clone_over_data_fails_under_super_read_only_and_a3_it_needs_a_parent() {
    show_logs();
    let pair = Pair::strangers(&[], &[]).await;
    let donor = format!("127.0.0.1:{}", pair.source.admin().port());
    let password = CLONE.replace('\\', "\\\\").replace('\'', "''");
    let clone = format!("CLONE INSTANCE FROM 'mainstay_clone'@{donor} IDENTIFIED BY '{password}' REQUIRE SSL");
    let clone = clone.replace("@127.0.0.1", "@'127.0.0.1'");
    pair.replica
        .run(&[
            &format!("SET GLOBAL clone_valid_donor_list='{donor}'"),
            "SET GLOBAL super_read_only=ON",
        ])
        .await;
    let mut session = pair.replica.session().await;
    let error = session.query_drop(&clone).await.unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("1290") || error.contains("--super-read-only"), "{error}");
    // Without MYSQLD_PARENT_PID mysqld does not know that somebody will start it again.
    pair.replica.run(&["SET GLOBAL super_read_only=OFF"]).await;
    let mut session = pair.replica.session().await;
    let error = session.query_drop(&clone).await.unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("not managed by supervisor process"), "{error}");
}

/// Why Mainstay's accounts for the network have CONNECTION_ADMIN: an instance that has not been compared yet keeps clients
/// out, and may be followed and cloned all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_7_offline_mode_keeps_clients_out_and_lets_replicas_and_clones_in() {
    show_logs();
    let pair = Pair::strangers(&["--offline-mode=ON"], &[]).await;
    pair.source
        .run(&[
            "SET SESSION sql_log_bin=0",
            "CREATE USER app@'%' IDENTIFIED BY 'p'",
            "GRANT SELECT ON app.* TO app@'%'",
        ])
        .await;
    let refused = pair
        .source
        .node
        .log_in_from_afar("app", "p")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("offline"), "{refused}");
    pair.attach(pair.source.admin()).await;
    pair.source.run(&["INSERT INTO app.t VALUES (1)"]).await;
    // Switched on, it ends what clients do, and not what replicas do.
    pair.source.run(&["SET GLOBAL offline_mode=OFF"]).await;
    let mut client = pair.source.node.log_in_from_afar("app", "p").await.unwrap();
    let reading = tokio::spawn(async move { client.query_drop("SELECT SLEEP(30)").await });
    until("the client reads", async || {
        pair.source
            .text("SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_STATE='User sleep'")
            .await
            == "1"
    })
    .await;
    let began = Instant::now();
    pair.source.run(&["SET GLOBAL offline_mode=ON"]).await;
    timeout(SHORT, reading).await.unwrap().unwrap().unwrap_err();
    println!(
        "the client's statement ended {:?} after offline_mode=ON",
        began.elapsed()
    );
    pair.source.run(&["INSERT INTO app.t VALUES (2)"]).await;
    pair.wait_until_received(2).await;
    assert_eq!(pair.source.status("Rpl_semi_sync_source_clients").await, "1");
    // A clone gets in: it fails for want of a parent only when it has copied everything.
    let donor = format!("127.0.0.1:{}", pair.source.admin().port());
    let password = CLONE.replace('\\', "\\\\").replace('\'', "''");
    pair.replica
        .run(&["STOP REPLICA", &format!("SET GLOBAL clone_valid_donor_list='{donor}'")])
        .await;
    let mut session = pair.replica.session().await;
    let clone = format!(
        "CLONE INSTANCE FROM 'mainstay_clone'@'127.0.0.1':{} IDENTIFIED BY '{password}' REQUIRE SSL",
        pair.source.admin().port()
    );
    let error = session.query_drop(clone).await.unwrap_err().to_string();
    assert!(error.contains("not managed by supervisor process"), "{error}");
}

/// Why the manager makes its connections early and keeps one to spare, and why replication takes the admin port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a20_the_admin_port_takes_replicas_when_all_connections_are_used() {
    show_logs();
    let pair = Pair::strangers(&["--max-connections=5"], &[]).await;
    pair.source.semi_sync(1).await;
    let mut sessions = Vec::new();
    while let Ok(session) = pair.source.node.log_in("mainstay", MANAGER).await {
        sessions.push(session);
    }
    assert_eq!(sessions.len(), 6, "one more for those with CONNECTION_ADMIN");
    pair.replica
        .run(&[
            &format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_AUTO_POSITION=1, SOURCE_SSL=1",
                pair.source.admin().port()
            ),
            &pair.replica.start_receiver(),
        ])
        .await;
    until("the replica is connected", async || {
        pair.replica
            .text("SELECT SERVICE_STATE FROM performance_schema.replication_connection_status")
            .await
            == "ON"
    })
    .await;
}

/// Why the first commit after an opening does not wait for replicas: they are connected before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn the_first_commit_after_an_opening_does_not_wait() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    let mut times = Vec::new();
    let mut client = cluster.nodes[0].root().await;
    for row in 0..3 {
        let began = Instant::now();
        client.query_drop(format!("CREATE DATABASE d{row}")).await.unwrap();
        times.push(began.elapsed());
    }
    println!("first commits: {times:?}");
    assert!(times[0] < Duration::from_secs(1), "{times:?}");
    cluster.cut().await;
}
