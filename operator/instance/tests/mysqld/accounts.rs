//! Accounts, passwords, connections and events.

use std::time::{Duration, Instant};

use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;

use crate::support::{self, APP, Cluster, Node, ROOT, insert, make_table, rows, show_logs, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f11_no_edit_of_a_secret_locks_anybody_out() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let change = |cluster: &Cluster, path: fn(&Node) -> std::path::PathBuf, text: Option<&str>| {
        for node in &cluster.nodes {
            match text {
                Some(text) => std::fs::write(path(node), text).unwrap(),
                None => std::fs::remove_file(path(node)).unwrap(),
            }
        }
    };
    let root = |node: &Node| node.config.paths.root_secret.join("password");
    let app = |node: &Node| node.config.paths.app_secret.join("password");
    let replication = |node: &Node| node.config.paths.system_secret.join("replication");
    let manager = |node: &Node| node.config.paths.system_secret.join("manager");

    change(&cluster, root, Some("new r00t'\n"));
    change(&cluster, app, Some("new \\app"));
    change(&cluster, replication, Some("new repl'"));
    change(&cluster, manager, Some("new manager;"));
    for node in [0, 1] {
        let node = &cluster.nodes[node];
        until("the new root password works", async || {
            node.log_in("root", "new r00t'").await.is_ok()
        })
        .await;
        until("the new app password works", async || {
            node.log_in("app", "new \\app").await.is_ok()
        })
        .await;
    }
    until("the new manager password works", async || {
        cluster.nodes[0].log_in("mainstay", "new manager;").await.is_ok()
    })
    .await;
    // Emptied and deleted: reported, and what worked goes on working.
    change(&cluster, root, Some(""));
    change(&cluster, manager, None);
    change(&cluster, replication, Some("\n"));
    let report = cluster.nodes[0]
        .wait("it is reported", |report| report.message.contains("system/replication"))
        .await;
    assert!(
        report.message.contains("root/password") && report.message.contains("system/manager"),
        "{}",
        report.message
    );
    assert!(cluster.nodes[0].log_in("root", "new r00t'").await.is_ok());
    // Back, and the receivers reconnect with what is mounted now.
    change(&cluster, root, Some("new r00t'"));
    change(&cluster, manager, Some(support::MANAGER));
    change(&cluster, replication, Some("third repl\""));
    until("the receivers are logged in", async || {
        cluster.nodes[0].report().await.semi_sync.acknowledgers.len() == 2
    })
    .await;
    for node in 0..3 {
        cluster.nodes[node].signal(Signal::KILL);
    }
    for node in 0..3 {
        cluster.nodes[node]
            .wait("it answers", |report| {
                report.mysqld == Mysqld::Running && report.restarts > 0
            })
            .await;
        cluster.nodes[node].inside().await.query_drop("SELECT 1").await.unwrap();
    }
    cluster.make_primary(1).await;
    let answer = cluster.give(1, Verb::Mark).await;
    answer.must_be_done();
    cluster.cut().await;
}

/// Logs in until that is refused.
async fn use_up(node: &Node, user: &str, password: &str) -> Vec<mysql_async::Conn> {
    let mut sleeping = Vec::new();
    let refused = loop {
        match node.log_in_from_afar(user, password).await {
            Ok(conn) => sleeping.push(conn),
            Err(error) => break error.to_string(),
        }
        assert!(sleeping.len() < 100);
    };
    assert!(refused.contains("Too many connections"), "{refused}");
    sleeping
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f08_everything_works_when_connections_are_used_up() {
    show_logs();
    let mut cluster = Cluster::prepare(3);
    for node in &cluster.nodes {
        let file = &node.config.paths.config_file;
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("max_connections = 50"));
        std::fs::write(file, text.replace("max_connections = 50", "max_connections = 20")).unwrap();
    }
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    for (user, password) in [("app", APP), ("root", ROOT)] {
        // On the primary and on the one that will be it; then by whoever may take the one that is left.
        let mut sleeping = Vec::new();
        for node in [0, 1] {
            sleeping.extend(use_up(&cluster.nodes[node], user, password).await);
        }
        println!("{} sessions of {user} on two instances", sleeping.len());
        for node in 0..3 {
            let report = cluster.nodes[node].report().await;
            assert_eq!((report.mysqld, report.restarts), (Mysqld::Running, 0));
            assert_eq!(cluster.nodes[node].http("/live").await.0, 200);
            assert_eq!(cluster.nodes[node].http("/ready").await.0, 200);
        }
        // The manager loses a session, and a client takes its place at once.
        let own = "SELECT MIN(PROCESSLIST_ID) FROM performance_schema.threads WHERE PROCESSLIST_USER='mainstay'";
        let mut dba = match user {
            "root" => sleeping.pop().unwrap(),
            _ => cluster.nodes[1].log_in_from_afar("root", ROOT).await.unwrap(),
        };
        let id: u64 = dba.query_first(own).await.unwrap().unwrap();
        dba.query_drop(format!("KILL {id}")).await.unwrap();
        sleeping.extend(use_up(&cluster.nodes[1], user, password).await);
        cluster.nodes[1]
            .wait("it still answers", |report| report.mysqld == Mysqld::Running)
            .await;
        cluster.give(0, Verb::Mark).await.must_be_done();
        // A replica is cut off and comes back: over the admin port.
        cluster.epoch += 1;
        cluster.give(2, Verb::Fence).await.must_be_done();
        let source = cluster.nodes[0].endpoint().await;
        cluster.give(2, Verb::Attach { source }).await.must_be_done();
        cluster.nodes[2]
            .wait("it receives", |report| report.replication.receiver_running)
            .await;
        // And the primary moves, there and back.
        cluster.make_primary(1).await;
        cluster.give(1, Verb::Mark).await.must_be_done();
        drop((sleeping, dba));
        cluster.make_primary(0).await;
    }
    for node in &mut cluster.nodes {
        assert_eq!(node.report().await.restarts, 0);
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn events_survive_a_change_of_primary() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut root = cluster.nodes[0].root().await;
    root.query_drop("CREATE EVENT my_app.on_purpose ON SCHEDULE EVERY 1 HOUR DISABLE DO SELECT 1")
        .await
        .unwrap();
    root.query_drop("CREATE EVENT my_app.hourly ON SCHEDULE EVERY 1 HOUR DO SELECT 1")
        .await
        .unwrap();
    let noted = "SELECT CAST(ATTRIBUTE AS CHAR) FROM information_schema.USER_ATTRIBUTES WHERE USER='mainstay_monitor'";
    until("what is disabled on purpose is noted on the replica", async || {
        cluster.nodes[1]
            .text(noted)
            .await
            .is_some_and(|notes| notes.contains("on_purpose"))
    })
    .await;
    cluster.make_primary(1).await;
    let status = |name: &str| format!("SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME='{name}'");
    until("the event is enabled on the new primary", async || {
        cluster.nodes[1].text(&status("hourly")).await.as_deref() == Some("ENABLED")
    })
    .await;
    assert_ne!(
        cluster.nodes[1].text(&status("on_purpose")).await.as_deref(),
        Some("ENABLED")
    );
    let scheduler = "SELECT @@GLOBAL.event_scheduler";
    until("events run on the new primary", async || {
        cluster.nodes[1].text(scheduler).await.as_deref() == Some("ON")
    })
    .await;
    assert_eq!(cluster.nodes[0].text(scheduler).await.as_deref(), Some("OFF"));
    cluster.cut().await;
}

/// In one session of the DBA.
async fn as_root(node: &Node, statements: &[&str]) {
    let mut root = node.root().await;
    for statement in statements {
        root.query_drop(*statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// How long it may take until all is as it was.
const HEALED: Duration = Duration::from_secs(20);

/// The replica's session at the primary ends, so that it has to log in again.
async fn cut_off(primary: &Node) {
    let dump = "SELECT CAST(PROCESSLIST_ID AS CHAR) FROM performance_schema.threads WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'";
    if let Some(id) = primary.text(dump).await {
        as_root(primary, &[&format!("KILL {id}")]).await;
    }
}

/// What the init file made of Mainstay's accounts, but for hashes, which are salted, and locks, which are the list's.
async fn accounts(node: &Node) -> Vec<String> {
    const QUERY: &str = "SELECT CONCAT_WS(' ', User, Host, plugin, ssl_type, password_expired, IF(User LIKE '%repl%', '', \
         account_locked), Repl_slave_priv, Process_priv, Super_priv, Create_user_priv, Shutdown_priv, (SELECT \
         GROUP_CONCAT(PRIV ORDER BY PRIV) FROM mysql.global_grants g WHERE g.USER=u.User AND g.HOST=u.Host)) \
         FROM mysql.user u WHERE User LIKE 'mainstay%' ORDER BY User";
    node.root().await.query(QUERY).await.unwrap()
}

/// Accounts, replication and commits are as they were, within this time.
async fn heals(what: &str, cluster: &mut Cluster, row: u32, sound: &[String], limit: Duration) {
    let began = Instant::now();
    let commit = tokio::time::timeout(limit, insert(&cluster.nodes[0], row)).await;
    commit
        .unwrap_or_else(|_| panic!("{what}: no commit within {limit:?}"))
        .unwrap();
    let committed = began.elapsed();
    for node in [0, 1] {
        while accounts(&cluster.nodes[node]).await != sound {
            assert!(
                began.elapsed() < limit,
                "{what}: {:?}",
                accounts(&cluster.nodes[node]).await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    println!(
        "{what}: a commit after {committed:?}, all accounts after {:?}",
        began.elapsed()
    );
    let all = cluster.mark(0).await;
    cluster.nodes[1].wait_for(&all).await;
    assert!(rows(&cluster.nodes[1]).await.contains(&row));
    no_errant_transaction(cluster).await;
}

/// The replica has written nothing of its own, and nothing that the primary does not have.
async fn no_errant_transaction(cluster: &mut Cluster) {
    let replica = cluster.nodes[1].report().await;
    let primary = cluster.nodes[0].report().await;
    assert!(
        replica.set().of_source(&replica.server_uuid).is_empty(),
        "{}",
        replica.set()
    );
    assert!(primary.set().contains(&replica.set()), "{}", replica.set());
    assert!(
        !replica.writable && replica.replication.applier_error.is_empty(),
        "{replica:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn whatever_is_done_to_an_account_on_the_primary_heals() {
    show_logs();
    let mut cluster = Cluster::bootstrap(2).await;
    make_table(&mut cluster, 0).await;
    let sound = accounts(&cluster.nodes[0]).await;
    assert_eq!(sound.len(), 10);
    let (one, all) = (
        "'mainstay_repl_1'@'%'",
        "'mainstay_repl_0'@'%', 'mainstay_repl_1'@'%', 'mainstay_clone'@'%'",
    );
    let drop_all = format!("DROP USER {all}, 'mainstay_monitor'@'localhost'");
    let cases: &[(&str, &[&str])] = &[
        ("dropped", &[&format!("DROP USER {one}")]),
        (
            "dropped here alone",
            &["SET sql_log_bin=0", &format!("DROP USER {one}")],
        ),
        ("all dropped", &[&drop_all]),
        (
            "revoked",
            &[&format!("REVOKE REPLICATION SLAVE, CONNECTION_ADMIN ON *.* FROM {one}")],
        ),
        ("locked", &[&format!("ALTER USER {all} ACCOUNT LOCK")]),
        ("expired", &[&format!("ALTER USER {all} PASSWORD EXPIRE")]),
        (
            "another password",
            &[&format!("ALTER USER {one} IDENTIFIED BY 'another'")],
        ),
        ("a client certificate", &[&format!("ALTER USER {one} REQUIRE X509")]),
        (
            "the manager's revoked",
            &["REVOKE ALL, GRANT OPTION FROM 'mainstay'@'localhost'"],
        ),
    ];
    let query = "SELECT CAST(ATTRIBUTE AS CHAR) FROM information_schema.USER_ATTRIBUTES WHERE USER='mainstay_monitor'";
    let noted = cluster.nodes[0].text(query).await;
    assert!(
        noted.as_ref().is_some_and(|notes| notes.contains("firstAccounts")),
        "{noted:?}"
    );
    for (row, (what, statements)) in (1..).zip(cases) {
        as_root(&cluster.nodes[0], statements).await;
        if !what.contains("manager") {
            cut_off(&cluster.nodes[0]).await;
        }
        heals(what, &mut cluster, row, &sound, HEALED).await;
    }
    for node in [0, 1] {
        let still = cluster.nodes[node].text(query).await;
        assert_eq!(still, noted, "beside the monitor's account");
        assert_eq!(cluster.nodes[node].report().await.restarts, 0);
    }
    // Nobody but the members may follow: restored accounts are no way around the list.
    let lock =
        "SELECT GROUP_CONCAT(User ORDER BY User) FROM mysql.user WHERE User LIKE '%repl%' AND account_locked='N'";
    assert_eq!(cluster.nodes[0].text(lock).await.as_deref(), Some("mainstay_repl_1"));
    // And the primary can move, there and back.
    cluster.make_primary(1).await;
    insert(&cluster.nodes[1], 100).await.unwrap();
    cluster.make_primary(0).await;
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn an_account_that_is_gone_from_the_replica_alone_comes_back_without_a_transaction() {
    show_logs();
    let mut cluster = Cluster::bootstrap(2).await;
    make_table(&mut cluster, 0).await;
    let sound = accounts(&cluster.nodes[0]).await;
    let drop_here = |user: &str| {
        [
            "SET sql_log_bin=0".to_owned(),
            "SET GLOBAL super_read_only=OFF".to_owned(),
            format!("DROP USER {user}"),
            "SET GLOBAL super_read_only=ON".to_owned(),
        ]
    };
    for user in ["'mainstay_clone'@'%'", "'mainstay_repl_0'@'%'"] {
        let statements = drop_here(user);
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        as_root(&cluster.nodes[1], &statements).await;
    }
    heals(
        "dropped on the replica",
        &mut cluster,
        1,
        &sound,
        Duration::from_secs(40),
    )
    .await;
    // Dropped on the primary, too, before it is back here: the applier stops at what it cannot drop.
    let statements = drop_here("'mainstay_repl_0'@'%'");
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    as_root(&cluster.nodes[1], &statements).await;
    as_root(&cluster.nodes[0], &["DROP USER 'mainstay_repl_0'@'%'"]).await;
    cluster.nodes[1]
        .wait("its applier stops", |report| {
            report.replication.applier_error.contains("1396")
        })
        .await;
    heals("dropped twice", &mut cluster, 2, &sound, Duration::from_secs(40)).await;
    for node in [0, 1] {
        assert_eq!(cluster.nodes[node].report().await.restarts, 0);
    }
    cluster.cut().await;
}

/// What `root` can change by hand, and an acknowledgement or a client depends on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn variables_that_somebody_changed_are_set_right() {
    const LOOKED_AT: &str = "SELECT CONCAT_WS(',', @@GLOBAL.sync_binlog, @@GLOBAL.innodb_flush_log_at_trx_commit, \
                             @@GLOBAL.sync_relay_log, @@GLOBAL.rpl_semi_sync_replica_enabled, \
                             @@GLOBAL.rpl_semi_sync_source_wait_point, @@GLOBAL.rpl_semi_sync_source_wait_no_replica, \
                             @@GLOBAL.rpl_semi_sync_source_timeout, @@GLOBAL.rpl_semi_sync_source_enabled, \
                             @@GLOBAL.rpl_semi_sync_source_wait_for_replica_count, @@GLOBAL.read_only, \
                             @@GLOBAL.offline_mode)";
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for (node, changes) in [
        (
            0,
            [
                "rpl_semi_sync_source_enabled=OFF",
                "rpl_semi_sync_source_wait_for_replica_count=2",
                "rpl_semi_sync_source_timeout=1000",
                "rpl_semi_sync_source_wait_point=AFTER_COMMIT",
                "sync_binlog=0",
                "innodb_flush_log_at_trx_commit=2",
                "read_only=ON",
                "offline_mode=ON",
            ]
            .as_slice(),
        ),
        (
            1,
            [
                "rpl_semi_sync_replica_enabled=OFF",
                "sync_relay_log=10000",
                "offline_mode=ON",
            ]
            .as_slice(),
        ),
    ] {
        let before = cluster.nodes[node].text(LOOKED_AT).await;
        for change in changes {
            let mut inside = cluster.nodes[node].inside().await;
            inside.query_drop(format!("SET GLOBAL {change}")).await.unwrap();
            let began = Instant::now();
            until(change, async || cluster.nodes[node].text(LOOKED_AT).await == before).await;
            println!("{change}: set right within {:?}", began.elapsed());
        }
    }
    insert(&cluster.nodes[0], 1).await.unwrap();
    assert_eq!(cluster.nodes[0].report().await.restarts, 0);
    cluster.cut().await;
}
