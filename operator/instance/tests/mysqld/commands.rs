//! What the commands do together, and who may give them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use mainstay_core::action::Verb;
use mainstay_core::observed::Mysqld;
use mainstay_instance::client::connect;
use mysql_async::prelude::Queryable as _;

use crate::support::{self, Cluster, LIMIT, clone_of, id, insert, make_table, open, rows, show_logs, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
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
    cluster.cut().await;
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
    cluster.cut().await;
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
    let status = sibling.watch().await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(status.report.incarnation, own.incarnation, "an instance may ask");
    let other = mainstay_core::action::Endpoint {
        id: own.clone(),
        host: "localhost".to_owned(),
        port: 1,
    };
    let no_members = BTreeSet::new;
    for (seq, verb) in [
        Verb::Fence,
        Verb::Restart,
        Verb::Mark,
        Verb::Attach { source: other.clone() },
        clone_of(other),
        Verb::Allow {
            members: no_members(),
            acks_required: 0,
        },
        open(no_members(), 0, mainstay_core::GtidSet::new()),
    ]
    .into_iter()
    .zip(1..)
    .map(|(verb, seq)| (seq, verb))
    {
        let command = mainstay_core::action::InstanceCommand {
            to: own.clone(),
            epoch: 9,
            deadline: LIMIT,
            verb,
            why: String::new(),
        };
        let error = sibling.command(&command, seq).await.unwrap_err().to_string();
        assert!(error.contains("only the operator"), "{command:?}: {error}");
    }
    assert_eq!(
        cluster.nodes[0].report().await.persisted.epoch,
        5,
        "nothing of it was taken note of"
    );
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
    cluster.stop_receivers(&[1]).await;
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
    cluster.cut().await;
}

trait ConcatSets<T> {
    fn concat_sets(self) -> BTreeSet<T>;
}

impl<T: Ord> ConcatSets<T> for [BTreeSet<T>; 2] {
    fn concat_sets(self) -> BTreeSet<T> {
        self.into_iter().flatten().collect()
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
    let mut cluster = Cluster::wired(3, Duration::from_mins(1), |_config| {}).await;
    make_table(&mut cluster, 0).await;
    for node in [1, 2] {
        cluster.replication(node, 0).throttle(500_000);
    }
    let mut client = cluster.nodes[0].root().await;
    client
        .query_drop("SET SESSION binlog_transaction_compression=OFF, cte_max_recursion_depth=1000000")
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
    cluster.cut().await;
}
