//! Configuration: derived sizes and the rolling restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::cluster::{Cluster, HEAL};
use crate::pods;
use crate::runner::Context;
use crate::wait;
use crate::writer::Writer;

/// A rolling restart of three instances, in a test.
const ROLL: Duration = Duration::from_mins(3);

/// mysqld runs with the sizes that the table of case F15 derives for 512Mi of memory and a claim of 1Gi.
pub(super) async fn sizes(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let root = cluster.root().await?;
    for ordinal in 0..3 {
        let pod = cluster.instance(ordinal);
        let mut client = root.at(cluster.pod_address(&pod).await?).connect().await?;
        for (variable, expected) in SIZES {
            let value = client.variable(variable).await?;
            ensure!(value == expected, "{variable} of {pod} is {value}, not {expected}");
        }
    }
    Ok(())
}

/// Variables and values for the manifest's limits; more of the table is in `mainstay_core::sizing`.
const SIZES: [(&str, &str); 6] = [
    ("innodb_buffer_pool_size", "134217728"),
    ("max_connections", "64"),
    ("innodb_redo_log_capacity", "67108864"),
    ("innodb_log_buffer_size", "8388608"),
    ("max_binlog_size", "16777216"),
    ("binlog_expire_logs_seconds", "86400"),
];

/// A changed variable restarts the replicas one by one, each synced before the next, then moves the primary, then restarts
/// the old one; no acknowledged write is lost.
pub(super) async fn roll(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let old = cluster.primary().await?;
    let mut writer = Writer::start(cluster.app().await?, "roll").await?;
    let before = uids(&cluster).await?;
    let value = if variable(&cluster, &old).await? == "250" {
        251
    } else {
        250
    };
    let began = Instant::now();
    cluster.patch(json!({"config": {"back_log": value}})).await?;
    let order = watch_roll(&cluster, &before).await?;
    ensure!(
        order.last() == Some(&old),
        "{old} was primary, and the order was {order:?}"
    );
    cluster.serves(HEAL).await?;
    context.note(format!("rolled {order:?} in {:.1} s", began.elapsed().as_secs_f64()));
    writer.progress(10, HEAL).await?;
    let history = writer.finish().await?;
    context.note(format!(
        "longest gap {} ms, {} errors",
        history.gap_ms(),
        history.error_count
    ));
    cluster.check(&history, "roll").await?;
    for ordinal in 0..3 {
        let pod = cluster.instance(ordinal);
        let now = variable(&cluster, &pod).await?;
        ensure!(now == value.to_string(), "back_log of {pod} is {now}, not {value}");
    }
    Ok(())
}

async fn variable(cluster: &Cluster, pod: &str) -> Result<String> {
    let mut client = cluster
        .root()
        .await?
        .at(cluster.pod_address(pod).await?)
        .connect()
        .await?;
    client.variable("back_log").await
}

async fn uids(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let parameters = kube::api::ListParams::default().labels(&cluster.selector());
    let pods = cluster.pods().list(&parameters).await.context("failed to list pods")?;
    Ok(pods
        .items
        .into_iter()
        .filter_map(|p| Some((p.metadata.name?, p.metadata.uid?)))
        .collect())
}

/// Watches until every pod is another one and ready; the order in which they came. When one is taken, all others must be there
/// and ready. (What becomes of their readiness while it is away is not the roll's doing.)
async fn watch_roll(cluster: &Cluster, before: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut taken: Vec<String> = Vec::new();
    let mut order: Vec<String> = Vec::new();
    let mut too_early = None;
    let replaced = |pod: &Pod, name: &str| pod.metadata.uid.as_ref() != before.get(name);
    wait::objects(
        &cluster.pods(),
        &cluster.selector(),
        "waiting for the rolling restart",
        ROLL,
        |now| {
            let there = |name: &String| now.get(name).filter(|pod| pod.metadata.deletion_timestamp.is_none());
            for name in before
                .keys()
                .filter(|name| !taken.contains(name))
                .cloned()
                .collect::<Vec<_>>()
            {
                if there(&name).is_some_and(|pod| !replaced(pod, &name)) {
                    continue;
                }
                let mut others = before.keys().filter(|other| **other != name);
                if let Some(other) = others.find(|other| !there(other).is_some_and(pods::ready)) {
                    too_early = Some(format!("{name} is taken while {other} is not ready; before: {taken:?}"));
                    return Some(());
                }
                taken.push(name);
            }
            for (name, pod) in now {
                if replaced(pod, name) && pods::ready(pod) && !order.contains(name) {
                    order.push(name.clone());
                }
            }
            (order.len() == before.len()).then_some(())
        },
    )
    .await?;
    too_early.map_or(Ok(order), |reason| Err(anyhow::anyhow!(reason)))
}
