//! Managers with a real mysqld: what only a server can show.
//!
//! `MAINSTAY_TEST_MYSQL=ROOTFS cargo test -p mainstay-instance --test mysqld -- --ignored`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as it must be"
)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mainstay_instance::client::connect;
use mysql_async::prelude::Queryable as _;
use rustix::process::Signal;

use support::{Cluster, Node, id, open, show_logs, until};

const LIMIT: Duration = Duration::from_secs(20);

async fn insert(node: &Node, number: u32) -> Result<(), mysql_async::Error> {
    node.root()
        .await
        .query_drop(format!("INSERT INTO my_app.t VALUES ({number})"))
        .await
}

async fn rows(node: &Node) -> BTreeSet<u32> {
    node.inside()
        .await
        .query::<u32, _>("SELECT n FROM my_app.t")
        .await
        .unwrap()
        .into_iter()
        .collect()
}

/// A table in the application's database, when that is there.
async fn make_table(cluster: &mut Cluster, primary: usize) {
    // A login each time: it has the privileges that it began with.
    until("the application's database is there", async || {
        let mut root = cluster.nodes[primary].root().await;
        root.query_drop("CREATE TABLE IF NOT EXISTS my_app.t (n INT PRIMARY KEY)")
            .await
            .is_ok()
    })
    .await;
    let executed = cluster.mark(primary).await;
    for node in 0..cluster.nodes.len() {
        cluster.nodes[node].wait_for(&executed).await;
    }
}

fn stop_receiver() -> &'static str {
    "STOP REPLICA IO_THREAD"
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
#[expect(clippy::too_many_lines, reason = "one life of one cluster, from top to bottom")]
async fn three_instances_attach_open_and_acknowledge() {
    show_logs();
    let mut cluster = Cluster::start(3).await;
    let source = cluster.nodes[0].endpoint().await;
    let mut members = BTreeSet::new();
    for node in 0..3 {
        let answer = cluster.give(node, Verb::Fence).await;
        println!("fence of a pristine instance: {:?}", answer.took);
        answer.must_be_done();
    }
    for node in [1, 2] {
        let answer = cluster.give(node, Verb::Attach { source: source.clone() }).await;
        println!("attach: {:?}", answer.took);
        answer.must_be_done();
        members.insert(cluster.nodes[node].id().await);
    }
    let answer = cluster.give(0, open(members, 1, mainstay_core::GtidSet::new())).await;
    println!("open: {:?}", answer.took);
    let report = answer.must_be_done();
    assert!(
        report.writable && report.semi_sync.on && report.semi_sync.wait_for == 1,
        "{report:#?}"
    );

    make_table(&mut cluster, 0).await;
    for number in 0..20 {
        insert(&cluster.nodes[0], number).await.unwrap();
    }
    let report = cluster.nodes[0]
        .wait("both are members", |report| report.semi_sync.acknowledgers.len() == 2)
        .await;
    let written = cluster.mark(0).await;
    for node in [1, 2] {
        cluster.nodes[node].wait_for(&written).await;
        assert_eq!(rows(&cluster.nodes[node]).await.len(), 20);
        assert_eq!(cluster.nodes[node].http("/ready").await.0, 200);
    }
    let (_, metrics) = cluster.nodes[0].http("/metrics").await;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("mainstay_mysql_semi_sync_clients{") && line.ends_with(" 2")),
        "{metrics}"
    );
    // The application's user works, and the accounts came once, through the binlog.
    let mut app = cluster.nodes[0].log_in("app", support::APP).await.unwrap();
    app.query_drop("INSERT INTO my_app.t VALUES (1000)").await.unwrap();
    assert!(cluster.nodes[1].log_in("app", support::APP).await.is_ok());
    let shutdown = cluster.nodes[0].root().await.query_drop("SHUTDOWN").await;
    assert!(
        shutdown.is_err(),
        "a clean stop acknowledges what no replica has: nobody may ask for one"
    );

    // A marker is acknowledged and says where the binlog ends.
    let answer = cluster.give(0, Verb::Mark).await;
    println!("mark: {:?}", answer.took);
    let marker = answer.must_be_done().marker.clone().unwrap();
    let mark = marker.subtract(&written);
    assert!(mark.to_string().contains(":mainstay:"), "{mark}");
    assert_eq!(
        mark.of_source(&report.server_uuid),
        mark,
        "a marker is the primary's own"
    );
    cluster.nodes[1].wait_for(&marker).await;
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_lost_primary_is_replaced_and_returns_as_a_replica() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for number in 0..10 {
        insert(&cluster.nodes[0], number).await.unwrap();
    }
    cluster.nodes[0].cut().await;
    // The candidate is one that contains the other.
    cluster.epoch += 1;
    let one = cluster.give(1, Verb::Fence).await.must_be_done().set();
    let two = cluster.give(2, Verb::Fence).await.must_be_done().set();
    let winner = if one.contains(&two) { 1 } else { 2 };
    let began = Instant::now();
    cluster.make_primary(winner).await;
    println!("fence, attach, open: {:?}", began.elapsed());
    insert(&cluster.nodes[winner], 100).await.unwrap();
    let new = cluster.mark(winner).await;

    cluster.nodes[0].start().await;
    let report = cluster.nodes[0]
        .wait("it answers", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(!report.writable && !report.pristine && !report.semi_sync.on);
    assert!(report.replication.source_host.is_none() && !report.replication.receiver_running);
    let source = cluster.nodes[winner].endpoint().await;
    cluster.give(0, Verb::Attach { source }).await.must_be_done();
    let locked = |error: &str| error.contains("Account is locked");
    cluster.nodes[0]
        .wait("it is locked out", |report| locked(&report.replication.receiver_error))
        .await;
    let members = BTreeSet::from([cluster.nodes[0].id().await, cluster.nodes[3 - winner].id().await]);
    cluster
        .give(
            winner,
            Verb::Allow {
                members,
                acks_required: 1,
            },
        )
        .await
        .must_be_done();
    cluster.nodes[0].wait_for(&new).await;
    assert_eq!(rows(&cluster.nodes[0]).await, (0..10).chain([100]).collect());
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

/// A primary that ends while it sends a transaction leaves its replicas with a part of it, for the rest of which their
/// appliers wait. Neither the one that wins nor the one that follows may wait for what never comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_primary_that_is_lost_in_the_middle_of_a_transaction_holds_nobody_up() {
    const WAITS: &str = "SELECT COUNT(*) FROM performance_schema.replication_applier_status_by_coordinator \
                         WHERE PROCESSING_TRANSACTION<>''";
    const LARGE: &str = "INSERT INTO my_app.t WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n<400000) \
                         SELECT n FROM c";
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut client = cluster.nodes[0].root().await;
    client
        .query_drop("SET SESSION binlog_transaction_compression=OFF, cte_max_recursion_depth=1000000, binlog_row_event_max_size=256")
        .await
        .unwrap();
    let writing = tokio::spawn(async move { client.query_drop(LARGE).await.is_ok() });
    until("a part of the transaction was received", async || {
        cluster.nodes[1].text(WAITS).await.as_deref() == Some("1")
    })
    .await;
    cluster.nodes[0].cut().await;
    assert!(!writing.await.unwrap(), "it was acknowledged");
    cluster.epoch += 1;
    let one = cluster.give(1, Verb::Fence).await.must_be_done().set();
    let two = cluster.give(2, Verb::Fence).await.must_be_done().set();
    assert_eq!(one, two, "nobody has the whole transaction");
    assert_eq!(cluster.nodes[1].text(WAITS).await.as_deref(), Some("1"));
    let began = Instant::now();
    cluster.make_primary(1).await;
    println!("attach, open: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(3));
    insert(&cluster.nodes[1], 500_000).await.unwrap();
    let new = cluster.mark(1).await;
    cluster.nodes[2].wait_for(&new).await;
    assert_eq!(rows(&cluster.nodes[2]).await, BTreeSet::from([500_000]));
    let sources = "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration";
    until("the new primary forgot its source", async || {
        cluster.nodes[1].text(sources).await.as_deref() == Some("0")
    })
    .await;
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_fence_under_a_hanging_commit_acknowledges_nothing() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for node in [1, 2] {
        cluster.nodes[node]
            .inside()
            .await
            .query_drop(stop_receiver())
            .await
            .unwrap();
    }
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
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a1_a_stop_under_a_hanging_commit_acknowledges_nothing() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    for node in [1, 2] {
        cluster.nodes[node]
            .inside()
            .await
            .query_drop(stop_receiver())
            .await
            .unwrap();
    }
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
    for node in &mut cluster.nodes {
        node.cut().await;
    }
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
    let mut kept = BTreeSet::new();
    for node in [1, 2] {
        let report = cluster.nodes[node].report().await;
        let set = report.set();
        cluster.nodes[node].wait_for(&set).await;
        kept.extend(rows(&cluster.nodes[node]).await);
    }
    assert!(
        acknowledged.is_subset(&kept),
        "lost: {:?}",
        acknowledged.difference(&kept)
    );
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_0_old_commands_and_strangers_are_refused() {
    show_logs();
    let mut cluster = Cluster::start(1).await;
    let own = cluster.nodes[0].id().await;
    let node = &mut cluster.nodes[0];
    node.give_as(own.clone(), 5, 2, LIMIT, Verb::Fence).await.must_be_done();
    node.give_as(own.clone(), 5, 2, LIMIT, Verb::Fence)
        .await
        .must_be_refused("not newer");
    node.give_as(own.clone(), 4, 9, LIMIT, Verb::Fence)
        .await
        .must_be_refused("not newer");
    let other = id("shop-0", "another life");
    node.give_as(other, 6, 1, LIMIT, Verb::Fence)
        .await
        .must_be_refused("meant for the incarnation");
    node.cut().await;
    node.start().await;
    node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    node.give_as(own.clone(), 5, 2, LIMIT, Verb::Fence)
        .await
        .must_be_refused("not newer");

    let address = std::net::SocketAddr::new(cluster.nodes[0].config.bind, cluster.nodes[0].config.ports.grpc);
    let mut sibling = connect(address, "localhost", &cluster.sibling()).await.unwrap();
    assert_eq!(sibling.ping("shop-1").await.unwrap(), 5);
    let command = mainstay_core::action::InstanceCommand {
        to: own,
        epoch: 9,
        deadline: LIMIT,
        verb: Verb::Fence,
        why: String::new(),
    };
    let error = sibling.command(&command, 1).await.unwrap_err().to_string();
    assert!(error.contains("only the operator"), "{error}");
    if let Ok(mut stranger) = connect(address, "localhost", &cluster.stranger()).await {
        stranger.ping("nobody").await.unwrap_err();
    }
    connect(address, "shop-0.shop-instances.prod.svc", &cluster.operator())
        .await
        .expect_err("another name is shown");
    cluster.nodes[0].cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn rule_1_who_is_not_listed_cannot_acknowledge() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let one = BTreeSet::from([cluster.nodes[1].id().await]);
    let answer = cluster
        .give(
            0,
            Verb::Allow {
                members: one.clone(),
                acks_required: 1,
            },
        )
        .await;
    println!("allow: {:?}", answer.took);
    let report = answer.must_be_done();
    assert_eq!(
        report.semi_sync.acknowledgers,
        [cluster.nodes[1].config.instance.clone()]
    );
    cluster.nodes[2]
        .wait("its receiver is locked out", |report| {
            !report.replication.receiver_running
        })
        .await;
    // The one that may is cut off: the commit waits, although the other one would acknowledge.
    cluster.nodes[1]
        .inside()
        .await
        .query_drop(stop_receiver())
        .await
        .unwrap();
    let mut root = cluster.nodes[0].root().await;
    let mut commit = tokio::spawn(async move { root.query_drop("INSERT INTO my_app.t VALUES (1)").await });
    cluster.nodes[0]
        .wait("a commit waits", |report| report.semi_sync.waiters > 0)
        .await;
    assert!(
        tokio::time::timeout(Duration::from_secs(3), &mut commit).await.is_err(),
        "it was acknowledged"
    );
    // While it waits the list can be changed, and the other one acknowledges.
    let both = [one, BTreeSet::from([cluster.nodes[2].id().await])].concat_sets();
    let answer = cluster
        .give(
            0,
            Verb::Allow {
                members: both,
                acks_required: 1,
            },
        )
        .await;
    println!("allow while a commit waits: {:?}", answer.took);
    answer.must_be_done();
    commit.await.unwrap().unwrap();
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

trait ConcatSets<T> {
    fn concat_sets(self) -> BTreeSet<T>;
}

impl<T: Ord> ConcatSets<T> for [BTreeSet<T>; 2] {
    fn concat_sets(self) -> BTreeSet<T> {
        self.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_clone_is_a_new_incarnation_with_the_donors_data() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 7).await.unwrap();
    // An errant row, as a broken instance has it.
    cluster.epoch += 1;
    let mut inside = cluster.nodes[2].inside().await;
    inside.query_drop("SET GLOBAL read_only=OFF").await.unwrap();
    inside.query_drop("CREATE DATABASE errant").await.unwrap();
    inside.query_drop("SET GLOBAL super_read_only=ON").await.unwrap();
    drop(inside);
    let before = cluster.nodes[2].report().await;
    let donor = cluster.nodes[1].endpoint().await;
    let began = Instant::now();
    let answer = cluster.give(2, Verb::Clone { donor: donor.clone() }).await;
    let report = answer.must_be_done();
    assert_eq!(report.mysqld, Mysqld::Cloning);
    assert_ne!(
        report.incarnation, before.incarnation,
        "from the beginning on it is another one"
    );
    let new = report.incarnation.clone();
    let report = cluster.nodes[2]
        .wait("it answers", |report| report.mysqld == Mysqld::Running)
        .await;
    println!("clone: {:?}", began.elapsed());
    assert_eq!(report.incarnation, new);
    assert_ne!(report.server_uuid, before.server_uuid);
    assert_ne!(report.server_uuid, cluster.nodes[1].report().await.server_uuid);
    assert!(!report.writable && !report.pristine && report.replication.source_host.is_none());
    assert_eq!(
        cluster.nodes[2]
            .text("SELECT HOST FROM performance_schema.replication_connection_configuration")
            .await,
        None
    );
    assert_eq!(rows(&cluster.nodes[2]).await, BTreeSet::from([7]));
    assert_eq!(
        cluster.nodes[2]
            .text("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME='errant'")
            .await,
        None
    );
    let source = cluster.nodes[0].endpoint().await;
    cluster.give(2, Verb::Attach { source }).await.must_be_done();
    cluster.nodes[2]
        .wait("it follows", |report| report.replication.receiver_running)
        .await;
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_clone_that_is_cut_short_is_never_served() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let donor = cluster.nodes[1].endpoint().await;
    for pause in [0, 1500, 3500] {
        cluster.epoch += 1;
        cluster
            .give(2, Verb::Clone { donor: donor.clone() })
            .await
            .must_be_done();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        cluster.nodes[2].cut().await;
        cluster.nodes[2].start().await;
        let report = cluster.nodes[2]
            .wait("it answers", |report| report.mysqld == Mysqld::Running)
            .await;
        let whole = report.executed.contains(&cluster.nodes[1].report().await.executed);
        println!(
            "cut after {pause} ms: {}",
            if whole { "a whole clone" } else { "an empty instance" }
        );
        assert!(whole || report.executed.is_empty(), "{report:#?}");
        assert!(!report.pristine, "it was told something");
    }
    // A donor that is not there: said, and tried again by the next command.
    cluster.epoch += 1;
    let mut nowhere = donor.clone();
    nowhere.port = 1;
    cluster.give(2, Verb::Clone { donor: nowhere }).await.must_be_done();
    let report = cluster.nodes[2]
        .wait("it failed", |report| report.mysqld == Mysqld::Failed)
        .await;
    assert!(report.message.contains("clone"), "{}", report.message);
    cluster.epoch += 1;
    cluster.give(2, Verb::Clone { donor }).await.must_be_done();
    cluster.nodes[2]
        .wait("it answers", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(rows(&cluster.nodes[2]).await.is_empty());
    for node in &mut cluster.nodes {
        node.cut().await;
    }
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
    for node in &mut cluster.nodes {
        node.cut().await;
    }
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
    let (live, _) = node.http("/live").await;
    assert_eq!(live, 200, "a probe that kills it would not help");
    std::fs::write(&file, good).unwrap();
    let report = node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    assert_eq!(report.message, "");
    node.cut().await;
}

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
    for node in &mut cluster.nodes {
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
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn f08_the_manager_works_when_connections_are_used_up() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let mut sleeping = Vec::new();
    while let Ok(conn) = cluster.nodes[0].log_in("root", support::ROOT).await {
        sleeping.push(conn);
    }
    let report = cluster.nodes[0]
        .wait("it still reports", |report| report.mysqld == Mysqld::Running)
        .await;
    assert!(report.writable);
    cluster.give(0, Verb::Mark).await.must_be_done();
    cluster.make_primary(1).await;
    for node in &mut cluster.nodes {
        node.cut().await;
    }
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
    for node in &mut cluster.nodes {
        node.cut().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_frozen_mysqld_is_said_to_be_one_and_is_fenced_by_killing_it() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    cluster.nodes[0].signal(Signal::STOP);
    let began = Instant::now();
    let report = cluster.nodes[0]
        .wait("it does not answer", |report| report.mysqld == Mysqld::Starting)
        .await;
    println!("a frozen mysqld is said to be one after {:?}", began.elapsed());
    assert!(report.message.contains("does not answer"), "{}", report.message);
    cluster.epoch += 1;
    let answer = cluster.give(0, Verb::Fence).await;
    println!("fence of a frozen mysqld: {:?}", answer.took);
    assert!(!answer.must_be_done().writable);
    for node in &mut cluster.nodes {
        node.cut().await;
    }
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
