//! A manager alone: initialisation, restarts, files that change, probes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mainstay_instance::client::connect;
use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;

use crate::support::{Cluster, LIMIT, insert, make_table, open, show_logs, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn an_instance_initialises_and_is_pristine() {
    show_logs();
    let began = Instant::now();
    let mut cluster = Cluster::prepare(1);
    cluster.nodes[0].start().await;
    let node = &mut cluster.nodes[0];
    let (startup, _) = node.http("/startup").await;
    assert_eq!(startup, 200, "an initialisation may take as long as it takes");
    assert_eq!(node.http("/ready").await.0, 503);
    let report = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    println!("initialise and start: {:?}", began.elapsed());
    assert!(
        report.pristine && !report.writable && report.executed.is_empty(),
        "{report:#?}"
    );
    assert!(report.replication.source_host.is_none());
    assert!(report.version.starts_with("9."), "{}", report.version);
    assert_eq!(report.server_uuid.len(), 36);
    let accounts = node
        .text("SELECT GROUP_CONCAT(User, '@', Host ORDER BY User) FROM mysql.user WHERE User NOT LIKE 'mysql.%'")
        .await;
    let wanted = "mainstay@localhost,mainstay_clone@%,mainstay_monitor@localhost,mainstay_repl_0@%,mainstay_repl_1@%,\
                  mainstay_repl_2@%,mainstay_repl_3@%,mainstay_repl_4@%,mainstay_repl_5@%,mainstay_repl_6@%";
    assert_eq!(accounts.as_deref(), Some(wanted));
    let zone = node
        .text("SELECT CAST(CONVERT_TZ('2026-07-01 12:00:00','UTC','Europe/Berlin') AS CHAR)")
        .await;
    assert_eq!(
        zone.as_deref(),
        Some("2026-07-01 14:00:00"),
        "time-zone tables are loaded"
    );
    assert_eq!(
        node.text("SELECT CAST(@@GLOBAL.server_id AS CHAR)").await.as_deref(),
        Some("1200")
    );
    let names: BTreeSet<String> = std::fs::read_dir(&node.config.paths.volume)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, ["data", "reserve", "state", "tmp"].map(str::to_owned).into());
    assert!(
        !node.config.paths.init_file().exists(),
        "the passwords in the init file are gone"
    );
    node.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn an_initialisation_that_is_cut_short_begins_again() {
    show_logs();
    let mut cluster = Cluster::prepare(1);
    let node = &mut cluster.nodes[0];
    for pause in [100, 900] {
        node.start().await;
        let data_init = node.config.paths.data_init();
        until("it makes a data directory", async || data_init.exists()).await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        node.cut().await;
        assert!(!node.config.paths.data().exists());
        assert!(node.config.paths.data_init().exists(), "the test cut it short too late");
    }
    node.start().await;
    let report = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    assert!(report.pristine);
    assert!(!node.config.paths.data_init().exists());
    node.cut().await;
    // And what was made whole is kept.
    node.start().await;
    let again = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    assert_eq!(
        (again.incarnation, again.server_uuid),
        (report.incarnation, report.server_uuid)
    );
    node.cut().await;
}

/// A container that is killed leaves the lock of mysqld's socket in the pod's folder. In the next container its number may be
/// that of a thread of the manager.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_lock_that_a_killed_container_left_does_not_keep_mysqld_from_starting() {
    show_logs();
    let mut cluster = Cluster::prepare(1);
    let node = &mut cluster.nodes[0];
    let socket = node.config.paths.socket();
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let somebody = std::os::unix::process::parent_id();
    std::fs::write(socket.with_extension("sock.lock"), format!("{somebody}\n")).unwrap();
    std::fs::write(&socket, "").unwrap();
    node.start().await;
    let report = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    assert_eq!(report.failures, 0, "{}", report.message);
    node.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn mysqld_is_started_again_in_place_read_only_and_detached() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for node in [0, 1] {
        let before = cluster.nodes[node].report().await;
        let began = Instant::now();
        cluster.nodes[node].signal(Signal::KILL);
        cluster.nodes[node]
            .wait("it is down", |report| report.mysqld != Mysqld::Running)
            .await;
        println!("noticed: {:?}", began.elapsed());
        let report = cluster.nodes[node]
            .wait("it answers", |report| {
                report.mysqld == Mysqld::Running && report.restarts > before.restarts
            })
            .await;
        println!("restart in place: {:?}", began.elapsed());
        assert_eq!(report.incarnation, before.incarnation);
        assert!(!report.writable && !report.replication.receiver_running && report.replication.source_host.is_none());
        assert_eq!(report.message, "");
    }
    // What was received before is applied without being told.
    let both: BTreeSet<_> = [cluster.nodes[1].id().await, cluster.nodes[2].id().await].into();
    let source = cluster.nodes[0].endpoint().await;
    cluster.epoch += 1;
    for node in [1, 2] {
        cluster
            .give(node, Verb::Attach { source: source.clone() })
            .await
            .must_be_done();
    }
    let baseline = cluster.nodes[0].report().await.executed;
    cluster.give(0, open(both, 1, baseline)).await.must_be_done();
    cluster.nodes[1]
        .inside()
        .await
        .query_drop("STOP REPLICA SQL_THREAD")
        .await
        .unwrap();
    insert(&cluster.nodes[0], 1).await.unwrap();
    let executed = cluster.mark(0).await;
    cluster.nodes[1]
        .wait("it received", |report| {
            report.received.contains(&executed) || report.set().contains(&executed)
        })
        .await;
    cluster.nodes[1].signal(Signal::KILL);
    cluster.nodes[1].wait_for(&executed).await;
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f12_a_server_that_does_not_start_says_why() {
    show_logs();
    let mut cluster = Cluster::start(1).await;
    let node = &mut cluster.nodes[0];
    node.manager.take().unwrap().stop().await;
    let file = node.config.paths.config_file.clone();
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{good}query_cache_size=1\n")).unwrap();
    node.start().await;
    let report = node.wait("it failed", |report| report.mysqld == Mysqld::Failed).await;
    assert!(
        report.message.contains("exit 1: unknown variable 'query_cache_size=1'"),
        "{}",
        report.message
    );
    assert!(report.failures >= 2, "{report:#?}");
    // The next try does not take back what is known.
    let again = node
        .wait("it is tried again", |report| report.mysqld == Mysqld::Starting)
        .await;
    assert_eq!((again.failures >= 2, again.message), (true, report.message));
    let (live, _) = node.http("/live").await;
    assert_eq!(live, 200, "a probe that kills it would not help");
    std::fs::write(&file, good).unwrap();
    let report = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    assert_eq!((report.message.as_str(), report.failures), ("", 0));
    node.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn certificates_are_read_again_when_they_change() {
    show_logs();
    let mut cluster = Cluster::start(1).await;
    let expiry =
        "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME='Ssl_server_not_after'";
    let before = cluster.nodes[0].text(expiry).await;
    cluster.renew_certificate(0);
    until("mysqld has the new certificate", async || {
        cluster.nodes[0].text(expiry).await != before
    })
    .await;
    let address = std::net::SocketAddr::new(cluster.nodes[0].config.bind, cluster.nodes[0].config.ports.grpc);
    // A new connection is made with it, and one that is up goes on.
    let mut new = connect(address, "renewed", &cluster.operator()).await.unwrap();
    new.ping("operator").await.unwrap();
    cluster.nodes[0].report().await;
    cluster.nodes[0].cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f04_an_instance_with_nothing_but_ipv6() {
    show_logs();
    let mut cluster = Cluster::prepare(1);
    let loopback = std::net::IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
    let node = &mut cluster.nodes[0];
    (node.config.pod_ip, node.config.bind, node.config.mysql_bind) = (loopback, loopback, loopback.to_string());
    node.start().await;
    node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    for port in [node.config.ports.admin, node.config.ports.mysql] {
        tokio::net::TcpStream::connect((loopback, port)).await.unwrap();
    }
    assert_eq!(node.http("/startup").await.0, 200);
    node.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn pre_stop_asks_to_be_relieved_and_returns_when_it_is() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    let socket = |cluster: &Cluster, node: usize| cluster.nodes[node].config.paths.manager_socket();
    // A replica is not waited for.
    let began = Instant::now();
    mainstay_instance::local::pre_stop(&socket(&cluster, 2), LIMIT)
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    // A primary is, and its status says so.
    let path = socket(&cluster, 0);
    let hook = tokio::spawn(async move { mainstay_instance::local::pre_stop(&path, LIMIT).await });
    cluster.nodes[0]
        .wait("it asks to be relieved", |report| report.leaving)
        .await;
    assert!(!hook.is_finished());
    cluster.make_primary(1).await;
    hook.await.unwrap().unwrap();
    let status = mainstay_instance::local::status(&socket(&cluster, 1)).await.unwrap();
    assert_eq!(status["writable"], true);
    assert_eq!(status["persisted"]["acksRequired"], 1);
    cluster.cut().await;
}

/// `RESET BINARY LOGS AND GTIDS` on any instance: it gives its identity up by itself, although nothing else of it changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_reset_history_is_another_life() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 1).await.unwrap();
    let set = cluster.nodes[0].report().await.executed;
    cluster.nodes[2].wait_for(&set).await;
    for node in [2, 0] {
        let node = &mut cluster.nodes[node];
        let before = node.report().await;
        let mut conn = node.inside().await;
        if !before.writable {
            conn.query_drop("STOP REPLICA").await.unwrap();
        }
        conn.query_drop("RESET BINARY LOGS AND GTIDS").await.unwrap();
        drop(conn);
        let report = node
            .wait("it begins another life", |report| {
                report.mysqld == Mysqld::Running && report.history_reset
            })
            .await;
        assert_ne!(report.incarnation, before.incarnation);
        assert_ne!(report.server_uuid, before.server_uuid, "its GTIDs were issued before");
        assert!(!report.writable && report.replication.source_host.is_none() && !report.pristine && !report.is_blank());
        assert_eq!(report.persisted.told_epoch, 0);
        assert_eq!(
            report.persisted.epoch, before.persisted.epoch,
            "older commands stay refused"
        );
        let rows = node.text("SELECT CAST(COUNT(*) AS CHAR) FROM my_app.t").await;
        assert_eq!(rows.as_deref(), Some("1"), "its data is as it was");
        // It is remembered on the volume.
        node.cut().await;
        node.start().await;
        let again = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
        assert!(
            again.history_reset && again.incarnation == report.incarnation,
            "{again:#?}"
        );
    }
}

/// The manager was away: what the state file remembers is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_history_that_was_reset_behind_the_managers_back() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let (before, source) = (cluster.nodes[1].report().await, cluster.nodes[0].endpoint().await);
    // A command remembers what was executed.
    cluster.give(1, Verb::Fence).await.must_be_done();
    cluster.give(1, Verb::Attach { source }).await.must_be_done();
    let node = &mut cluster.nodes[1];
    let mut conn = node.inside().await;
    conn.query_drop("STOP REPLICA").await.unwrap();
    conn.query_drop("RESET BINARY LOGS AND GTIDS").await.unwrap();
    // Faster than the manager looks.
    node.cut().await;
    node.start().await;
    let report = node
        .wait("it begins another life", |report| {
            report.mysqld == Mysqld::Running && report.history_reset
        })
        .await;
    assert_ne!(report.incarnation, before.incarnation);
}

/// Nobody else holds data: a reset costs a single instance nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_primary_that_stands_alone_goes_on_after_a_reset() {
    show_logs();
    let mut cluster = Cluster::bootstrap(1).await;
    make_table(&mut cluster, 0).await;
    let node = &mut cluster.nodes[0];
    let before = node.report().await;
    node.inside()
        .await
        .query_drop("RESET BINARY LOGS AND GTIDS")
        .await
        .unwrap();
    node.wait("its set is another one", |report| {
        !report.executed.contains(&before.executed)
    })
    .await;
    insert(node, 1).await.unwrap();
    let report = node.report().await;
    assert!(report.writable && !report.history_reset && report.incarnation == before.incarnation);
    assert_eq!(report.restarts, before.restarts);
}
