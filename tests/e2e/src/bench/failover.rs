//! How long writes are away in a fault, and that nothing acknowledged is lost.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::{Gaps, name_of};
use crate::cluster::Cluster;
use crate::env::Env;
use crate::history::History;
use crate::lists::Lists;
use crate::placement::{leaders_node, place};
use crate::pods;
use crate::runner::{Context, say};
use crate::testbed::Testbed;
use crate::writer::Writer;

/// How long writes may be away before a run has failed.
const AWAY: Duration = Duration::from_mins(2);
/// How long the cluster may take to be whole again once the fault is taken away.
const WHOLE: Duration = Duration::from_mins(4);
/// How many writes must succeed before the fault, and after it.
const SOME: u64 = 50;
/// How long a cut from the API server lasts: the node is given up, and its pods are deleted, 15 s after it.
const API_CUT: Duration = Duration::from_secs(25);
/// How long the repair of a disk is tried, and the pause between two tries.
const REPAIR: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_millis(300);

/// What is done to the primary, or to its node; by its name in `FAULT` and in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    MysqldKilled,
    MysqldFrozen,
    PodDeleted,
    NodeOff,
    NodeCut,
    ApiCut,
    NodeFrozen,
    DiskError,
    OperatorAndPrimaryOff,
}

impl Fault {
    /// Repetitions when none are asked for.
    const fn usual(self) -> usize {
        match self {
            Self::MysqldKilled | Self::PodDeleted => 20,
            Self::MysqldFrozen
            | Self::NodeOff
            | Self::NodeCut
            | Self::ApiCut
            | Self::NodeFrozen
            | Self::DiskError
            | Self::OperatorAndPrimaryOff => 10,
        }
    }

    /// Whether the primary has to be on the leading operator's node, where that matters.
    const fn beside_the_operator(self) -> Option<bool> {
        match self {
            Self::MysqldKilled | Self::MysqldFrozen | Self::PodDeleted | Self::DiskError => None,
            Self::NodeOff | Self::NodeCut | Self::ApiCut | Self::NodeFrozen => Some(false),
            Self::OperatorAndPrimaryOff => Some(true),
        }
    }

    /// Does it to the primary `pod` on `node`.
    async fn inject(self, cluster: &Cluster, testbed: &Testbed, pod: &str, node: &str) -> Result<()> {
        match self {
            Self::MysqldKilled => pods::kill_mysqld(&cluster.pods(), pod).await,
            Self::MysqldFrozen => pods::signal_mysqld(&cluster.pods(), pod, "STOP").await,
            Self::PodDeleted => pods::delete(&cluster.pods(), pod, false).await,
            Self::NodeOff | Self::OperatorAndPrimaryOff => testbed.power_off(node).await,
            Self::NodeCut => testbed.on_node("cut", node).await,
            Self::ApiCut => testbed.on_node("cut-api", node).await,
            Self::NodeFrozen => testbed.on_node("freeze", node).await,
            Self::DiskError => testbed.on_volume("disk-error", node, &claim(cluster, pod)).await,
        }
    }

    /// Takes it away; what ends by itself needs nothing.
    async fn undo(self, cluster: &Cluster, testbed: &Testbed, pod: &str, node: &str) -> Result<()> {
        match self {
            // The manager replaces a process that does not answer; one that it left alone goes on.
            Self::MysqldKilled | Self::MysqldFrozen | Self::PodDeleted => Ok(()),
            Self::NodeOff | Self::OperatorAndPrimaryOff => testbed.power_on(node).await,
            Self::NodeCut | Self::ApiCut => testbed.on_node("heal", node).await,
            Self::NodeFrozen => testbed.on_node("thaw", node).await,
            Self::DiskError => repair(cluster, testbed, pod, node).await,
        }
    }
}

/// A file system that is shut down can be mounted again when nobody uses it any more: between the end of one pod and the
/// start of the next, which does not wait for that.
async fn repair(cluster: &Cluster, testbed: &Testbed, pod: &str, node: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + REPAIR;
    loop {
        pods::delete(&cluster.pods(), pod, true).await?;
        match testbed.on_volume("disk-repair", node, &claim(cluster, pod)).await {
            Err(_used) if tokio::time::Instant::now() < deadline => tokio::time::sleep(AGAIN).await,
            other => return other,
        }
    }
}

fn claim(cluster: &Cluster, pod: &str) -> String {
    format!("{}/data-{pod}", cluster.namespace)
}

/// Runs the faults that `FAULT` names (separated by commas), or all of them.
pub(super) async fn run(env: &Env) -> Result<()> {
    let faults: Vec<Fault> = super::chosen()?;
    let testbed = env.testbed()?.clone();
    let namespace = env.namespace("bench-failover").await?;
    let result = all(env, &testbed, &namespace, &faults).await;
    env.delete_namespace(&namespace).await?;
    let results = result?;
    say(&json!({"bench": "failover", "faults": results}).to_string());
    Ok(())
}

async fn all(env: &Env, testbed: &Testbed, namespace: &str, faults: &[Fault]) -> Result<Map<String, Value>> {
    let context = Context::new(env.clone(), "bench-failover", std::sync::Arc::default());
    let cluster = Cluster::create(
        env,
        namespace,
        &context
            .manifest("shop", 3)
            .with_app()
            .with("storage", json!({"size": "4Gi"})),
    )
    .await?;
    let mut results = Map::new();
    for fault in faults {
        let mut gaps = Gaps::default();
        for number in 1..=super::runs(fault.usual())? {
            let run = once(env, &cluster, testbed, *fault, number);
            gaps.add(&run.await.with_context(|| format!("{} {number}", name_of(fault)))?);
        }
        say(&format!("{:<25} {}", name_of(fault), gaps.line()));
        results.insert(name_of(fault), gaps.json());
    }
    Ok(results)
}

/// One fault under one writer, on a cluster that is whole before and after it.
async fn once(env: &Env, cluster: &Cluster, testbed: &Testbed, fault: Fault, number: usize) -> Result<History> {
    cluster.serves(WHOLE).await?;
    if let Some(beside) = fault.beside_the_operator() {
        place(cluster, &leaders_node(env).await?, beside, (AWAY, WHOLE)).await?;
    }
    let pod = cluster.primary().await?;
    let node = cluster.node_of(&pod).await?;
    // Every second client holds every privilege but SHUTDOWN (decision A1).
    let login = if number.is_multiple_of(2) {
        cluster.privileged().await?
    } else {
        cluster.app().await?
    };
    let table = format!("w{}", jiff::Timestamp::now().as_millisecond());
    let lists = Lists::start(&login, &format!("l{table}"), 2).await?;
    let mut writer = Writer::start(login, &table).await?;
    writer.progress(SOME, AWAY).await.context("before the fault")?;
    fault.inject(cluster, testbed, &pod, &node).await?;
    if fault == Fault::ApiCut {
        tokio::time::sleep(API_CUT).await;
    }
    let went_on = writer.progress(SOME, AWAY).await;
    let undone = fault.undo(cluster, testbed, &pod, &node).await;
    went_on.context("during the fault")?;
    undone?;
    cluster.serves(WHOLE).await.context("after the fault")?;
    let history = writer.finish().await?;
    cluster.check(&history, &table).await?;
    let operations = lists.finish(cluster).await?;
    say(&format!(
        "{} {number:>2}: gap {} ms, {} errors, 0 of {} writes and {operations} list operations lost, {pod} -> {}",
        name_of(&fault),
        history.gap_ms(),
        history.error_count,
        history.acknowledged.len(),
        cluster.primary().await?
    ));
    if let Some(phases) = super::phases(cluster).await? {
        say(&format!("      {phases}"));
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_name_of_its_own() {
        let all = Fault::value_variants();
        let names: std::collections::BTreeSet<_> = all.iter().map(name_of).collect();
        assert_eq!(names.len(), all.len());
    }
}
