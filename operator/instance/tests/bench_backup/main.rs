//! `make bench-backup`: how fast a backup and a restore are, next to what the disk and the store give alone in the same run, and
//! what a backup costs a client of the primary. Real servers and versitygw, without Kubernetes, all on one disk.
//!
//! `SIZE_GB` is the size of the rows (5). Two fifths of each row are random, the rest is text that repeats. What is measured
//! runs as a process of its own, with nothing else in it, so that its peak memory is known. The page cache is emptied of the
//! files before each pass over them. The last line is JSON; what it says is in docs/testing.md.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench ends where something is not as it must be, and says what it measured"
)]

mod commits;
mod passes;
mod program;
#[expect(dead_code, reason = "the bench needs a part of what the tests need")]
#[path = "../mysqld/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use mainstay_core::backup::restore::Target;
use mainstay_core::observed::Mysqld;
use mainstay_instance::backup::read_page;
use mysql_async::prelude::Queryable as _;
use serde_json::{Value, json};

use commits::Commits;
use support::pod::Pod;
use support::store::{Gateway, Stored};
use support::{Cluster, clone_of, fast_directory};

/// Rounds of the passes that are compared; the median counts.
const ROUNDS: usize = 3;
/// How long commits are timed without a backup.
const WITHOUT: Duration = Duration::from_secs(20);
/// How long a copy of the data may take.
const LIMIT: Duration = Duration::from_mins(20);
/// Between two looks at something.
const LOOK: Duration = Duration::from_millis(100);
/// Rows that are added at a time, and bytes of a row.
const CHUNK: (u64, u64) = (60_000, 1000);

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let args: Vec<String> = args.collect();
    runtime.block_on(async {
        match what.as_deref() {
            Some("run") => run().await,
            Some("backup") => program::backup(&args).await,
            Some("pass") => program::pass(&args).await,
            Some("restore") => program::restore(&args).await,
            // `cargo test` starts it, too.
            _ => println!("make bench-backup measures"),
        }
    });
}

async fn run() {
    let size = std::env::var("SIZE_GB").map_or(5.0, |text| text.parse::<f64>().expect("SIZE_GB is a number"));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "gigabytes")]
    let size = (size * 1e9) as u64;
    std::fs::create_dir_all(fast_directory()).unwrap();
    let free = rustix::fs::statvfs(fast_directory()).unwrap();
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    // Three instances and a copy, what is stored, and logs.
    let needed = size / 10 * 47 + 3_000_000_000;
    assert!(
        free >= needed,
        "{} GB are free in {}, and {} GB are needed; set SIZE_GB to less",
        free / 1_000_000_000,
        fast_directory().display(),
        needed / 1_000_000_000
    );
    let mut cluster = Cluster::start(3).await;
    cluster.make_primary(0).await;
    fill(&cluster, size).await;
    let sum = sum(&mut cluster.nodes[0].inside().await).await;
    for replica in [1, 2] {
        copy(&mut cluster, replica).await;
    }
    cluster.make_primary(0).await;
    let gateway = Gateway::start().await;
    let stored = Stored::at(gateway).await;

    let commits = Commits::of(&cluster.nodes[0]).await;
    tokio::time::sleep(WITHOUT).await;
    let without = commits.figures().await;
    let pod = Pod::new(&cluster, 1, &stored.access());
    let commits = Commits::of(&cluster.nodes[0]).await;
    let whole = whole(&pod, &cluster).await;
    let with = commits.figures().await;
    cluster.cut().await;
    drop(cluster);

    let data = pod.settings.server.paths.data();
    let mut passes = passes::Passes::default();
    for _ in 0..ROUNDS {
        passes.add(&data, &stored, &pod).await;
    }
    drop(pod);
    let restored = restore(&stored, &sum, whole["bytes"].as_f64().unwrap()).await;
    let mut line = json!({"bench": "backup", "commit_ms": {"without": without, "with": with}});
    let all = line.as_object_mut().unwrap();
    for part in [whole, passes.figures(), restored] {
        all.extend(part.as_object().unwrap().clone());
    }
    println!("{line}");
}

/// Rows of this size on the primary. Nothing of them is in a binlog: they are copied afterwards.
async fn fill(cluster: &Cluster, size: u64) {
    let began = Instant::now();
    let mut client = cluster.nodes[0].inside().await;
    for statement in [
        "SET sql_log_bin=0",
        "CREATE DATABASE bench",
        "CREATE TABLE bench.`rows` (id BIGINT AUTO_INCREMENT PRIMARY KEY, random VARBINARY(400), text VARCHAR(700))",
        "CREATE TABLE bench.commits (id BIGINT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(100))",
    ] {
        client.query_drop(statement).await.unwrap();
    }
    let new = "RANDOM_BYTES(400), REPEAT(CONCAT('item ', FLOOR(RAND() * 100000), ' of this order was sent; '), 15)";
    client
        .query_drop(format!("INSERT INTO bench.`rows` (random, text) SELECT {new}"))
        .await
        .unwrap();
    let (chunk, row) = CHUNK;
    let mut rows = 1;
    while rows * row < size {
        client
            .query_drop(format!(
                "INSERT INTO bench.`rows` (random, text) SELECT {new} FROM bench.`rows` LIMIT {chunk}"
            ))
            .await
            .unwrap();
        rows += rows.min(chunk);
    }
    println!("{rows} rows in {:?}", began.elapsed());
}

/// What the rows are.
async fn sum(client: &mut mysql_async::Conn) -> String {
    let sum = "SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(random)), ' ', SUM(CRC32(text))) FROM bench.`rows`";
    let sum: Option<String> = client.query_first(sum).await.unwrap();
    sum.unwrap()
}

/// A replica gets the primary's data.
async fn copy(cluster: &mut Cluster, replica: usize) {
    let began = Instant::now();
    let before = cluster.nodes[replica].report().await.incarnation;
    let donor = cluster.endpoint(replica, 0).await;
    cluster.give(replica, clone_of(donor)).await.must_be_done();
    loop {
        let report = cluster.nodes[replica].report().await;
        assert_ne!(report.mysqld, Mysqld::Failed, "{}", report.message);
        if report.mysqld == Mysqld::Running && report.incarnation != before {
            break;
        }
        assert!(began.elapsed() < LIMIT, "{}", report.message);
        tokio::time::sleep(LOOK).await;
    }
    println!("a clone in {:?}", began.elapsed());
}

/// A backup by the program of a Job, from beginning to end, and how long its steps take.
async fn whole(pod: &Pod, cluster: &Cluster) -> Value {
    let began = Instant::now();
    let mut steps = Vec::new();
    let mut child = program::Child::backup(pod, cluster);
    let result = loop {
        if let Ok(progress) = read_page(pod.settings.page).await
            && steps.last().is_none_or(|(step, _)| *step != progress.step)
        {
            steps.push((progress.step, Instant::now()));
        }
        if let Some(result) = child.result() {
            break result;
        }
        tokio::time::sleep(LOOK).await;
    };
    let end_to_end = began.elapsed().as_secs_f64();
    let ends = steps.iter().skip(1).map(|(_, at)| *at).chain([Instant::now()]);
    let seconds: Vec<f64> = steps
        .iter()
        .zip(ends)
        .map(|((_, from), to)| to.duration_since(*from).as_secs_f64())
        .collect();
    let [copy, boot, upload] = seconds[..] else {
        panic!("it did not show all of its steps: {steps:?}")
    };
    let bytes = result["bytes"].as_f64().unwrap();
    println!("a backup in {end_to_end:.1} s: copy {copy:.1} s, boot {boot:.1} s, upload {upload:.1} s");
    json!({
        "bytes": bytes,
        "stored_per_byte": passes::rounded(result["stored"].as_f64().unwrap() / bytes),
        "copy_mb_s": passes::rate(bytes, copy),
        "boot_s": passes::rounded(boot),
        "upload_s": passes::rounded(upload),
        "end_to_end_s": passes::rounded(end_to_end),
        "rss_mb": result["rss_mb"],
    })
}

/// A restore into a new instance, from beginning to end; the rows are the same.
async fn restore(stored: &Stored, sum: &str, bytes: f64) -> Value {
    let began = Instant::now();
    let orders = tempfile::tempdir_in(fast_directory()).unwrap();
    let mut node = Cluster::prepare(1).nodes.pop().unwrap();
    node.config.paths.recovery = orders.path().to_owned();
    stored.give_to(&mut node, &Target::Latest, &[]);
    let mut child = program::Child::restore(orders.path(), sum);
    let result = loop {
        if let Some(result) = child.result() {
            break result;
        }
        assert!(began.elapsed() < LIMIT);
        tokio::time::sleep(LOOK).await;
    };
    println!("a restore: {result}");
    json!({
        "restore_mb_s": passes::rate(bytes, result["unpacked_s"].as_f64().unwrap()),
        "restore_s": passes::rounded(result["seconds"].as_f64().unwrap()),
        "restore_rss_mb": result["rss_mb"],
    })
}
