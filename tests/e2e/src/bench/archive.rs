//! How long a commit takes to be in the archive, and whether the archive is whole when the primary was killed meanwhile.
//!
//! `SECONDS=n` sets how long clients write (60; 20 with `QUICK=1`). In the middle mysqld of the primary is killed. `lag_ms` is of
//! what was committed while a primary was open and had been for some seconds; `killed` is of the rest: what was committed
//! right before the kill is stored by the next primary.

mod watcher;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use mainstay_core::GtidSet;
use mainstay_core::backup::ClusterIdentity;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{median, percentile, worst};
use crate::cluster::Cluster;
use crate::env::Env;
use crate::pods;
use crate::runner::{Context, say};
use crate::testbed::S3Server;
use crate::writer::Writer;
use watcher::{Seen, Watched, Watcher};

/// How long a step of the cluster may take.
const LIMIT: Duration = Duration::from_mins(3);
/// The kubelet brings a Secret that is new into pods that run.
const ARCHIVES: Duration = Duration::from_mins(5);
/// Writers, and the time between two commits of one.
const WRITERS: (usize, Duration) = (8, Duration::from_millis(40));
/// How long the end of the archive may take, once nobody writes.
const WHOLE: Duration = Duration::from_secs(30);
/// What was committed so long before the kill may be left to the next primary.
const BEFORE: Duration = Duration::from_secs(2);
/// So long after the opening of the next primary everything is as before.
const AFTER: Duration = Duration::from_secs(5);
/// Folder in the bucket.
const PREFIX: &str = "bench-archive";

/// Writes, kills the primary, and reads what was stored.
pub(super) async fn run(env: &Env) -> Result<()> {
    let access = env.testbed()?.s3().await?;
    let namespace = env.namespace("bench-archive").await?;
    let result = all(env, &namespace, &access).await;
    env.delete_namespace(&namespace).await?;
    say(&result?.to_string());
    Ok(())
}

fn seconds() -> Result<u64> {
    if let Ok(text) = std::env::var("SECONDS") {
        return text.parse().with_context(|| format!("SECONDS is not a number: {text}"));
    }
    let quick = std::env::var("QUICK").is_ok_and(|v| v == "1");
    Ok(if quick { 20 } else { 60 })
}

async fn all(env: &Env, namespace: &str, access: &S3Server) -> Result<Value> {
    let half = Duration::from_secs(seconds()?) / 2;
    let cluster = create(env, namespace, access).await?;
    let watcher = Watcher::start(Arc::new(access.open(PREFIX).await?), identity(&cluster).await?);
    let login = cluster.app().await?;
    let mut writers = Vec::new();
    for number in 0..WRITERS.0 {
        writers.push(Writer::start_every(WRITERS.1, login.clone(), &format!("w{number}")).await?);
    }
    let began = Instant::now();
    sleep(half).await;
    let killed = Timestamp::now();
    let primary = cluster.primary().await?;
    pods::kill_mysqld(&cluster.pods(), &primary).await?;
    for writer in &mut writers {
        writer.progress(10, LIMIT).await.context("after the kill")?;
    }
    let open_again = Timestamp::now();
    sleep(half).await;
    let mut commits = 0;
    let elapsed = began.elapsed();
    cluster.healthy(LIMIT).await?;
    for writer in writers {
        let table = writer.table.clone();
        let history = writer.finish().await?;
        commits += history.acknowledged.len();
        cluster.check(&history, &table).await?;
    }
    let executed = cluster.archived(WHOLE).await?;
    let watched = watcher.finish().await?;
    let gaps = gaps(&watched, &executed);
    let (steady, moved) = divided(&watched.transactions, killed, open_again);
    #[expect(clippy::cast_precision_loss, reason = "a count of commits")]
    let rate = commits as f64 / elapsed.as_secs_f64();
    say(&format!(
        "{commits} commits, {rate:.0} a second, in {} segments of {} primaries; {primary} was killed; lag p50 {:.0} ms, p99 \
         {:.0} ms, max {:.0} ms; {gaps} transactions missing",
        watched.segments(),
        watched.reigns(),
        median(&steady),
        percentile(&steady, 99),
        worst(&steady),
    ));
    ensure!(!steady.is_empty(), "nothing was stored while the primary was open");
    Ok(json!({
        "bench": "archive",
        "seconds": elapsed.as_secs(),
        "commits_per_second": rate.round(),
        "segments": watched.segments(),
        "lag_ms": figures(&steady),
        "killed": {"n": moved.len(), "lag_ms": figures(&moved)},
        "gaps": gaps,
    }))
}

fn figures(lags: &[f64]) -> Value {
    if lags.is_empty() {
        return Value::Null;
    }
    json!({"p50": median(lags).round(), "p99": percentile(lags, 99).round(), "max": worst(lags).round()})
}

/// Lags of what was committed while all was well, and of the rest.
fn divided(transactions: &[Seen], killed: Timestamp, open_again: Timestamp) -> (Vec<f64>, Vec<f64>) {
    let micros = |time: Timestamp, more: i64| time.as_microsecond() + more;
    let span = |time: Duration| i64::try_from(time.as_micros()).unwrap_or_default();
    let disturbed = micros(killed, -span(BEFORE))..micros(open_again, span(AFTER));
    let (moved, steady): (Vec<&Seen>, Vec<&Seen>) = transactions
        .iter()
        .partition(|transaction| disturbed.contains(&transaction.committed));
    let lags = |seen: Vec<&Seen>| seen.into_iter().map(|seen| seen.lag).collect();
    (lags(steady), lags(moved))
}

/// Transactions of the primary that a recovery would not bring back.
fn gaps(watched: &Watched, executed: &GtidSet) -> u64 {
    match watched.recovery() {
        Ok(recovery) => executed.subtract(&recovery.reaches).count(),
        Err(refusal) => {
            say(&format!("a recovery of everything is refused: {refusal}"));
            executed.count()
        }
    }
}

async fn create(env: &Env, namespace: &str, access: &S3Server) -> Result<Cluster> {
    let context = Context::new(env.clone(), "bench-archive", Arc::default());
    let backup = json!({"store": access.declared(PREFIX)});
    let manifest = context.manifest("shop", 3).with_app().with("backup", backup);
    access
        .create_secret(&Api::namespaced(env.client.clone(), namespace))
        .await?;
    let cluster = Cluster::create(env, namespace, &manifest).await?;
    cluster.condition("BinlogArchived", "True", ARCHIVES).await?;
    Ok(cluster)
}

async fn identity(cluster: &Cluster) -> Result<ClusterIdentity> {
    let uid = cluster.get().await?.uid().context("the cluster has no uid")?;
    Ok(ClusterIdentity::new(&cluster.namespace, &cluster.name, &uid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_around_the_kill_is_told_apart() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let seen: Vec<Seen> = (0..100_u32)
            .map(|second| Seen {
                committed: i64::from(second) * 1_000_000,
                lag: f64::from(second),
            })
            .collect();
        let (steady, moved) = divided(&seen, at(50), at(60));
        assert_eq!((steady.len(), moved.len()), (83, 17));
        assert_eq!((moved[0], moved[16]), (48.0, 64.0));
    }
}
