//! What healing rests on: which starts are laid to the data, a clone over data that no server reads, volumes that are full or
//! broken, and binlogs that are deleted to make room.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::observed::{Disk, InstanceReport, Mysqld};
use mainstay_instance::convert::Outcome;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::volume::Volume;
use crate::support::{Cluster, Node, clone_of, insert, make_table, rows, show_logs, until, write};

const MIB: u64 = 1 << 20;

fn is_running(report: &InstanceReport) -> bool {
    report.mysqld == Mysqld::Running
}

/// What is done to a data directory.
type Harm = fn(&Path);

/// What becomes of data that a disk, or a person, lost.
fn cut_in_half(file: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn fill_with_garbage(file: &Path) {
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    std::fs::write(file, vec![0x5a; length]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn data_that_no_server_reads_is_told_and_replaced_by_a_clone() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    insert(&cluster.nodes[0], 7).await.unwrap();
    let damages: [(&str, Harm); 5] = [
        ("half of ibdata1", |data| cut_in_half(&data.join("ibdata1"))),
        ("no ibdata1", |data| std::fs::remove_file(data.join("ibdata1")).unwrap()),
        ("no redo log", |data| {
            std::fs::remove_dir_all(data.join("#innodb_redo")).unwrap();
        }),
        ("garbage in mysql.ibd", |data| {
            fill_with_garbage(&data.join("mysql.ibd"));
        }),
        ("a binlog that is named and gone", |data| {
            let index = std::fs::read_to_string(data.join("binlog.index")).unwrap();
            std::fs::remove_file(data.join(index.lines().last().unwrap())).unwrap();
        }),
    ];
    for (damage, harm) in damages {
        cluster.nodes[2].cut().await;
        harm(&cluster.nodes[2].config.paths.data());
        cluster.nodes[2].start().await;
        let began = Instant::now();
        let report = cluster.nodes[2]
            .wait(damage, |report| report.refusals >= 3 || is_running(report))
            .await;
        println!(
            "{damage}: {} refusals after {:?}: {}",
            report.refusals,
            began.elapsed(),
            report.message
        );
        assert!(!report.unreadable && report.disk.full_for.is_none());
        if is_running(&report) {
            println!("{damage}: it starts all the same");
            assert_eq!(report.refusals, 0);
            continue;
        }
        assert!(!report.message.is_empty() && report.failures >= 3);
        cluster.epoch += 1;
        cluster.give(2, Verb::Fence).await.must_be_done();
        let donor = cluster.nodes[1].endpoint().await;
        let report = cluster.give(2, clone_of(donor)).await.must_be_done().clone();
        assert_eq!((report.mysqld, report.refusals), (Mysqld::Cloning, 0));
        let report = cluster.nodes[2].wait("it answers", is_running).await;
        assert_eq!((report.refusals, report.failures), (0, 0), "{damage}");
        assert_eq!(rows(&cluster.nodes[2]).await, BTreeSet::from([7]));
    }
    cluster.cut().await;
}

/// Starts an instance with this in its my.cnf, and tells how it does not start.
async fn start_with(cluster: &mut Cluster, node: usize, line: &str) -> InstanceReport {
    let node = &mut cluster.nodes[node];
    node.cut().await;
    let file = node.config.paths.config_file.clone();
    let before = std::fs::read_to_string(&file).unwrap();
    write(&file, &format!("{before}\n[mysqld]\n{line}\n"));
    node.start().await;
    let report = node
        .wait(line, |report| report.failures >= 3 || is_running(report))
        .await;
    println!(
        "{line}: {:?}, {} refusals: {}",
        report.mysqld, report.refusals, report.message
    );
    write(&file, &before);
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn what_no_other_data_would_mend_is_not_laid_to_the_data() {
    show_logs();
    let mut cluster = Cluster::start(1).await;
    for line in [
        "query_cache_size=1",
        "binlog_row_image=NONSENSE",
        "max_connections=many",
        "innodb_page_size=8192",
        "lower_case_table_names=1",
        "authentication_policy=nothing",
        "early_plugin_load=nothing.so",
        "plugin_load_add=nothing.so\nnothing=FORCE",
    ] {
        let report = start_with(&mut cluster, 0, line).await;
        assert_eq!(report.refusals, 0, "{line}");
    }
    // A port that somebody else has.
    cluster.nodes[0].cut().await;
    let taken = std::net::TcpListener::bind(("127.0.0.1", cluster.nodes[0].config.ports.mysql)).unwrap();
    cluster.nodes[0].start().await;
    let report = cluster.nodes[0].wait("it fails", |report| report.failures >= 2).await;
    println!("a taken port: {}", report.message);
    assert_eq!(report.refusals, 0);
    drop(taken);
    cluster.nodes[0].wait("it answers", is_running).await;
    cluster.cut().await;
}

/// What somebody does to a server from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_server_that_is_killed_while_it_starts_does_not_refuse_its_data() {
    show_logs();
    let mut cluster = Cluster::start(1).await;
    let first = cluster.nodes[0].pid();
    cluster.nodes[0].signal(Signal::KILL);
    until("the next one was killed, too", async || {
        let file = cluster.nodes[0].config.paths.run.join("mysqld.pid");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let next = text.trim().parse::<i32>().ok().filter(|next| *next != first);
        next.and_then(Pid::from_raw)
            .is_some_and(|next| kill_process(next, Signal::KILL).is_ok())
    })
    .await;
    let report = cluster.nodes[0]
        .wait("it answers", |report| report.restarts >= 2 && is_running(report))
        .await;
    assert_eq!(report.refusals, 0);
    cluster.cut().await;
}

/// Names of the binlogs that there are.
fn binlogs(node: &Node) -> Vec<String> {
    let files = std::fs::read_dir(node.config.paths.data()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("binlog.0")).collect();
    names.sort();
    names
}

fn purge(stored: &GtidSet) -> Verb {
    Verb::Purge { stored: stored.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_purge_deletes_what_is_stored_and_no_more() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let nodes = [0, 1];
    let mut sets = Vec::new();
    for number in 0..3 {
        insert(&cluster.nodes[0], number).await.unwrap();
        let set = cluster.mark(0).await;
        cluster.nodes[1].wait_for(&set).await;
        for node in nodes {
            let mut inside = cluster.nodes[node].inside().await;
            inside.query_drop("FLUSH BINARY LOGS").await.unwrap();
        }
        sets.push(set);
    }
    for node in nodes {
        let before = binlogs(&cluster.nodes[node]);
        let writable = cluster.nodes[node].report().await.writable;
        // The last transaction of the second file is not stored, so it stays.
        let answer = cluster.give(node, purge(&sets[0])).await;
        println!("purge of instance {node}: {:?}", answer.took);
        assert_eq!(answer.reply.outcome, Outcome::Applied);
        let report = answer.must_be_done();
        assert_eq!(report.writable, writable);
        assert!(sets[0].contains(&report.purged) && report.executed.contains(&sets[2]));
        let after = binlogs(&cluster.nodes[node]);
        assert_eq!(after, before[before.len() - 3..], "{before:?}");
        assert_eq!(
            cluster.give(node, purge(&sets[0])).await.reply.outcome,
            Outcome::Already
        );
        // Everything is stored: the one that is written to stays.
        cluster.give(node, purge(&sets[2])).await.must_be_done();
        assert_eq!(binlogs(&cluster.nodes[node]), before[before.len() - 1..]);
        assert_eq!(
            cluster.give(node, purge(&sets[2])).await.reply.outcome,
            Outcome::Already
        );
    }
    insert(&cluster.nodes[0], 9).await.unwrap();
    let report = cluster.nodes[0].report().await;
    assert!(report.writable && report.restarts == 0);
    let report = cluster.nodes[1]
        .wait("it follows", |report| report.replication.receiver_running)
        .await;
    assert_eq!(report.restarts, 0);
    cluster.cut().await;
}

/// An open primary that stands alone on a volume of its own, with 120 MB of binlogs; what is in them.
async fn primary_on_a_small_volume() -> (Cluster, Volume, GtidSet) {
    let mut cluster = Cluster::prepare(1);
    let volume = Volume::small(&cluster.nodes[0].config.paths.volume, 900);
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    let mut root = cluster.nodes[0].root().await;
    for statement in [
        "CREATE TABLE my_app.b (b LONGBLOB)",
        "SET SESSION binlog_transaction_compression=OFF",
    ] {
        root.query_drop(statement).await.unwrap();
    }
    // What is deleted from the table stays in the binlogs.
    for _ in 0..4 {
        for statement in [
            "INSERT INTO my_app.b VALUES (REPEAT('x', 30000000))",
            "TRUNCATE my_app.b",
            "FLUSH BINARY LOGS",
        ] {
            root.query_drop(statement).await.unwrap();
        }
    }
    let stored = cluster.mark(0).await;
    (cluster, volume, stored)
}

/// A transaction whose binlog does not fit into what a file has left of its last page, and whose row does: clients of a full
/// volume wait for it.
async fn commit_that_needs_room(mut root: Conn, number: u32) -> Result<(), mysql_async::Error> {
    for variable in ["binlog_rows_query_log_events=ON", "binlog_transaction_compression=OFF"] {
        root.query_drop(format!("SET SESSION {variable}")).await?;
    }
    // What is larger than the cache of a transaction is written to a file first, which is an error.
    let comment = "x".repeat(20_000);
    root.query_drop(format!("INSERT INTO my_app.t VALUES ({number}) /* {comment} */"))
        .await
}

/// At that point no statement makes room: `PURGE` writes before it deletes. The reserve is for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image, and to mount a volume: MAINSTAY_TEST_MYSQL"]
async fn f33_a_purge_makes_room_on_a_volume_on_which_nothing_is_free() {
    show_logs();
    let (mut cluster, volume, stored) = primary_on_a_small_volume().await;
    let reserve = cluster.nodes[0].config.paths.reserve();
    assert!(reserve.exists() && cluster.nodes[0].report().await.disk.full_for.is_none());
    volume.leave(0);
    cluster.nodes[0]
        .wait("it is full", |report| report.disk.full_for.is_some())
        .await;
    let before = binlogs(&cluster.nodes[0]);
    let answer = cluster.give(0, purge(&stored)).await;
    println!("purge on a volume on which nothing is free: {:?}", answer.took);
    let report = answer.must_be_done();
    assert!(report.writable && report.disk.size - report.disk.used >= Disk::ROOM);
    assert!(binlogs(&cluster.nodes[0]).len() < before.len());
    let (free, there) = (volume.free() / MIB, reserve.exists());
    println!("{free} MiB are free then, the reserve is there: {there}");
    cluster.nodes[0]
        .wait("it is not full", |report| report.disk.full_for.is_none())
        .await;
    assert_eq!(cluster.nodes[0].report().await.restarts, 0);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image, and to mount a volume: MAINSTAY_TEST_MYSQL"]
async fn f33_a_purge_that_would_wait_for_room_is_refused_and_a_stop_waits_for_none() {
    show_logs();
    let (mut cluster, volume, stored) = primary_on_a_small_volume().await;
    std::fs::remove_file(cluster.nodes[0].config.paths.reserve()).unwrap();
    let root = cluster.nodes[0].root().await;
    volume.leave(0);
    cluster.give(0, purge(&stored)).await.must_be_refused("nothing is free");
    let commit = tokio::spawn(commit_that_needs_room(root, 1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // With it comes the end of a pod.
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    println!("stop on a full volume while a commit waits: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10));
    commit.await.unwrap().expect_err("nobody was told that it was made");
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image, and to mount a volume: MAINSTAY_TEST_MYSQL"]
async fn f33_a_replica_says_for_how_long_its_volume_has_been_full_and_so_does_one_that_is_down() {
    show_logs();
    let mut cluster = Cluster::prepare(2);
    let volume = Volume::small(&cluster.nodes[1].config.paths.volume, 700);
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    let full_for = |report: &InstanceReport| report.disk.full_for;
    let began = Instant::now();
    volume.leave(15 * MIB);
    let report = cluster.nodes[1]
        .wait("it is full", |report| full_for(report).is_some())
        .await;
    println!("from the last byte to the report: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(2) && is_running(&report));
    assert!(report.standstill.is_some(), "{report:#?}");
    cluster.nodes[1]
        .wait("it lasts", |report| full_for(report) >= Some(Duration::from_secs(2)))
        .await;
    // A little room is none.
    volume.leave(24 * MIB);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(full_for(&cluster.nodes[1].report().await) >= Some(Duration::from_secs(2)));
    // Also of one that is down: it does not start with this my.cnf, and its reserve is given up already.
    drop(std::fs::remove_file(cluster.nodes[1].config.paths.reserve()));
    volume.leave(MIB);
    cluster.nodes[1].cut().await;
    let file = cluster.nodes[1].config.paths.config_file.clone();
    let before = std::fs::read_to_string(&file).unwrap();
    write(&file, &format!("{before}\n[mysqld]\nquery_cache_size=1\n"));
    cluster.nodes[1].start().await;
    let report = cluster.nodes[1]
        .wait("it is down and full", |report| {
            report.failures >= 2 && full_for(report) >= Some(Duration::from_secs(1))
        })
        .await;
    assert_eq!((report.refusals, report.unreadable), (0, false));
    write(&file, &before);
    // The reserve that it begins with is no room.
    volume.leave(200 * MIB);
    let report = cluster.nodes[1].wait("it answers", is_running).await;
    assert_eq!(full_for(&report), None);
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image, and to mount a volume: MAINSTAY_TEST_MYSQL"]
async fn a_volume_that_breaks_down_is_told_and_neither_the_manager_nor_its_end_waits_for_it() {
    show_logs();
    let mut cluster = Cluster::prepare(3);
    let directory = cluster.dir.path().to_owned();
    let volume = Volume::ext4(&cluster.nodes[0].config.paths.volume, &directory, 900);
    cluster.start_all().await;
    cluster.make_primary(0).await;
    make_table(&mut cluster, 0).await;
    assert!(!cluster.nodes[0].report().await.unreadable);
    let incarnation = cluster.nodes[0].report().await.incarnation;
    let began = Instant::now();
    volume.break_down();
    let report = cluster.nodes[0]
        .wait("it is unreadable", |report| report.unreadable)
        .await;
    println!(
        "from the error to the report: {:?} ({:?}: {})",
        began.elapsed(),
        report.mysqld,
        report.message
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    cluster.epoch += 1;
    let answer = cluster.give(0, Verb::Fence).await;
    println!("a fence of it: {:?} after {:?}", answer.reply.outcome, answer.took);
    let report = cluster.nodes[0]
        .wait("it does not write", |report| !report.writable)
        .await;
    assert_eq!((report.refusals, report.unreadable), (0, true));
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    println!("stop on a broken volume: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10));
    // Another manager on it cannot even know who it is.
    cluster.nodes[0].start().await;
    let report = cluster.nodes[0]
        .wait("it is unreadable", |report| report.unreadable)
        .await;
    println!("the next manager: {:?}: {}", report.mysqld, report.message);
    assert!(report.incarnation != incarnation && report.history_reset && !report.is_blank());
    assert_eq!(report.refusals, 0);
    cluster.epoch += 1;
    cluster.give(0, Verb::Fence).await.must_be_refused("state file");
    assert_eq!(cluster.nodes[0].http("/live").await.0, 200);
    let began = Instant::now();
    cluster.nodes[0].manager.take().unwrap().stop().await;
    assert!(began.elapsed() < Duration::from_secs(10));
    cluster.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image: MAINSTAY_TEST_MYSQL"]
async fn a_manager_that_cannot_open_its_state_file_starts_nothing_until_it_can() {
    show_logs();
    let mut cluster = Cluster::bootstrap(3).await;
    make_table(&mut cluster, 0).await;
    let before = cluster.nodes[2].report().await;
    cluster.nodes[2].cut().await;
    let state = cluster.nodes[2].config.paths.state();
    let aside = state.with_extension("aside");
    std::fs::rename(&state, &aside).unwrap();
    std::fs::create_dir(&state).unwrap();
    cluster.nodes[2].start().await;
    let report = cluster.nodes[2]
        .wait("it says why", |report| report.mysqld == Mysqld::Failed)
        .await;
    assert!(report.message.contains("state file"), "{}", report.message);
    assert!(!report.unreadable && !report.is_blank() && report.refusals == 0);
    std::fs::remove_dir(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    let report = cluster.nodes[2].wait("it answers", is_running).await;
    assert_eq!(report.incarnation, before.incarnation);
    assert!(report.persisted.epoch == before.persisted.epoch && !report.history_reset);
    cluster.cut().await;
}
