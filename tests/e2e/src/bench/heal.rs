//! How long an instance takes to be whole again after its disk filled up, or its volume was lost.
//!
//! Measured is the time from the fault (the disk is full; volume and pod are gone) until the status says Running, Healthy and
//! three of three, under a writer, and nothing acknowledged is lost. A status of before the fault does not count: the cluster
//! must have been told as not healthy in between. An instance that was healed a short time ago is left alone for a while
//! (docs/healing.md, "Limits"): a run begins when that time is over for its victim.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use mainstay_core::timing::Timing;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Gaps, median, name_of, worst};
use crate::cluster::Cluster;
use crate::env::Env;
use crate::history::History;
use crate::runner::{Context, say};
use crate::volumes;
use crate::writer::Writer;

/// How long a run may take before it has failed.
const LIMIT: Duration = Duration::from_mins(5);
/// How many writes must succeed before the fault, and when all is whole again.
const SOME: u64 = 50;

/// What is done; by its name in `FAULT` and in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// The volume of a replica is filled by a file, to the last byte.
    ReplicaDiskFull,
    /// The same of the primary.
    PrimaryDiskFull,
    /// The volume of a replica does not exist any more, and its pod ended.
    ReplicaVolumeLost,
    /// The same of the primary.
    PrimaryVolumeLost,
}

impl Fault {
    /// Name of the instance to which it is done.
    async fn victim(self, cluster: &Cluster, number: usize) -> Result<String> {
        match self {
            Self::PrimaryDiskFull | Self::PrimaryVolumeLost => cluster.primary().await,
            Self::ReplicaDiskFull | Self::ReplicaVolumeLost => {
                let replicas = cluster.replicas().await?;
                let replica = replicas.get(number % replicas.len().max(1)).cloned();
                replica.context("there is no replica")
            }
        }
    }

    async fn inject(self, cluster: &Cluster, victim: &str) -> Result<()> {
        match self {
            Self::ReplicaDiskFull | Self::PrimaryDiskFull => volumes::fill(cluster, victim).await,
            Self::ReplicaVolumeLost | Self::PrimaryVolumeLost => volumes::lose(cluster, victim).await,
        }
    }
}

/// Runs the faults that `FAULT` names (separated by commas), or all of them.
pub(super) async fn run(env: &Env) -> Result<()> {
    let faults: Vec<Fault> = super::chosen()?;
    env.testbed()?;
    let namespace = env.namespace("bench-heal").await?;
    let result = all(env, &namespace, &faults).await;
    env.delete_namespace(&namespace).await?;
    // A run that lost a write has ended the bench.
    say(&json!({"bench": "heal", "cases": result?, "lost": 0}).to_string());
    Ok(())
}

async fn all(env: &Env, namespace: &str, faults: &[Fault]) -> Result<Map<String, Value>> {
    let context = Context::new(env.clone(), "bench-heal", std::sync::Arc::default());
    let cluster = Cluster::create(env, namespace, &context.manifest("shop", 3).with_app()).await?;
    let mut cases = Map::new();
    for fault in faults {
        let (mut times, mut gaps) = (Vec::new(), Gaps::default());
        for number in 1..=super::runs(10)? {
            let run = once(&cluster, *fault, number).await;
            let (seconds, history) = run.with_context(|| format!("{} {number}", name_of(fault)))?;
            times.push(seconds);
            gaps.add(&history);
        }
        let (name, middle, longest) = (name_of(fault), median(&times), worst(&times));
        say(&format!(
            "{name:<20} healthy after p50 {middle:.1} s, max {longest:.1} s; {}",
            gaps.line()
        ));
        let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
        let figures = json!({
            "n": times.len(), "seconds": {"p50": tenths(middle), "max": tenths(longest)}, "writes": gaps.json(),
        });
        cases.insert(name, figures);
    }
    Ok(cases)
}

/// One fault under one writer, on a cluster that is whole before and after it; the seconds from the fault to the end.
async fn once(cluster: &Cluster, fault: Fault, number: usize) -> Result<(f64, History)> {
    cluster.serves(LIMIT).await?;
    let victim = fault.victim(cluster, number).await?;
    rested(cluster, &victim).await?;
    let table = format!("h{}", jiff::Timestamp::now().as_millisecond());
    let mut writer = Writer::start(cluster.app().await?, &table).await?;
    writer.progress(SOME, LIMIT).await.context("before the fault")?;
    // Watched from before: what is healed at once is seen, too.
    let watching = tokio::spawn(volumes::healed(cluster.clone(), LIMIT));
    fault.inject(cluster, &victim).await?;
    let began = Instant::now();
    watching.await.context("the watch panicked")??;
    let seconds = began.elapsed().as_secs_f64();
    writer.progress(SOME, LIMIT).await.context("after the fault")?;
    cluster.serves(LIMIT).await.context("after the fault")?;
    let history = writer.finish().await?;
    cluster.check(&history, &table).await?;
    let left = if volumes::take_filler_away(cluster, &victim).await? {
        "; the file that filled the disk was still there"
    } else {
        ""
    };
    say(&format!(
        "{} {number:>2}: {victim}: healthy after {seconds:.1} s; gap {} ms, 0 of {} writes lost{left}",
        name_of(&fault),
        history.gap_ms(),
        history.acknowledged.len(),
    ));
    Ok((seconds, history))
}

/// Waits until the victim may be healed at once again.
async fn rested(cluster: &Cluster, victim: &str) -> Result<()> {
    let object = cluster.get().await?;
    let status = object.status.unwrap_or_default();
    let Some(last) = status.rebuilds.iter().find(|rebuild| rebuild.instance == victim) else {
        return Ok(());
    };
    let times = last
        .healing
        .as_ref()
        .and_then(|healing| u32::try_from(healing.times).ok());
    let pause = Timing::default().pause_after(times.unwrap_or_default());
    let age = Duration::try_from(jiff::Timestamp::now().duration_since(last.at.0)).unwrap_or_default();
    let left = pause.saturating_sub(age);
    if !left.is_zero() {
        say(&format!("{victim} was healed a short time ago: {} s", left.as_secs()));
        tokio::time::sleep(left.saturating_add(Duration::from_secs(1))).await;
    }
    Ok(())
}
