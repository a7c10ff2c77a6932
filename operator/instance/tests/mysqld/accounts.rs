//! Passwords, connections and events.

use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;

use crate::support::{self, APP, Cluster, Node, ROOT, make_table, show_logs, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
#[expect(clippy::too_many_lines, reason = "one life of one cluster, from top to bottom")]
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
