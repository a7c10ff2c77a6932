//! Any pod, any mysqld and the operator may end at any moment: the cluster heals and keeps what it acknowledged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::EvictParams;
use mainstay_api::MySQLCluster;

use crate::cluster::{Cluster, HEAL};
use crate::lists::Lists;
use crate::runner::Context;
use crate::writer::Writer;
use crate::{operator, pods, wait};

/// How long writes may be away in a test; the figures to beat are the benches'.
const WRITES: Duration = Duration::from_mins(1);

/// Deletes and kills, one after the other, under a writer.
pub(super) async fn pods(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let replica = cluster
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("there is no replica")?;
    step(&context, &cluster, "replica's pod deleted", async || {
        delete(&cluster, &replica, false).await
    })
    .await?;
    let primary = cluster.primary().await?;
    step(&context, &cluster, "primary's pod deleted", async || {
        delete(&cluster, &primary, false).await
    })
    .await?;
    let replica = cluster
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("there is no replica")?;
    step(&context, &cluster, "replica's mysqld killed", async || {
        kill(&cluster, &replica).await
    })
    .await?;
    let primary = cluster.primary().await?;
    step(&context, &cluster, "primary's mysqld killed", async || {
        kill(&cluster, &primary).await
    })
    .await?;
    let primary = cluster.primary().await?;
    step(&context, &cluster, "primary's node drained", async || {
        drain(&context, &cluster, &primary).await
    })
    .await?;
    let primary = cluster.primary().await?;
    step(&context, &cluster, "primary's pod force-deleted", async || {
        delete(&cluster, &primary, true).await
    })
    .await
}

/// Ends the operator while it makes a cluster, while it heals one and while nothing happens.
pub(super) async fn operator(context: Arc<Context>) -> Result<()> {
    let env = &context.env;
    let namespace = context.namespace().await?;
    let fresh = Cluster::apply(env, &namespace, &context.manifest("fresh", 3).with_app()).await?;
    fresh
        .wait("waiting for the first record", HEAL, |c| c.status.as_ref()?.epoch)
        .await?;
    operator::restart(env).await?;
    fresh.serves(HEAL).await?;
    let primary = fresh.primary().await?;
    step(&context, &fresh, "primary's pod and operator deleted", async || {
        pods::delete(&fresh.pods(), &primary, true).await?;
        operator::restart(env).await
    })
    .await?;
    step(&context, &fresh, "operator deleted", async || {
        operator::restart(env).await
    })
    .await
}

/// Does something under a writer, expects that the cluster serves again and that nothing acknowledged is lost.
async fn step(
    context: &Context,
    cluster: &Cluster,
    what: &str,
    action: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let table = format!("w{}", jiff::Timestamp::now().as_millisecond());
    let login = cluster.app().await?;
    let lists = Lists::start(&login, &format!("l{table}"), 2).await?;
    let mut writer = Writer::start(login, &table).await?;
    let began = Instant::now();
    action().await.with_context(|| what.to_owned())?;
    writer.progress(50, WRITES).await.with_context(|| what.to_owned())?;
    cluster.serves(HEAL).await.with_context(|| what.to_owned())?;
    let healed = began.elapsed();
    let history = writer.finish().await?;
    cluster.check(&history, &table).await.with_context(|| what.to_owned())?;
    lists.finish(cluster).await.with_context(|| what.to_owned())?;
    context.note(format!(
        "{what}: longest gap {} ms, healed in {:.1} s, {} errors, {} writes, 0 lost",
        history.gap_ms(),
        healed.as_secs_f64(),
        history.error_count,
        history.acknowledged.len()
    ));
    if let Some(errors) = history.long_gap() {
        context.note(format!("  {errors}"));
    }
    Ok(())
}

/// Deletes a pod and waits until its successor is ready.
async fn delete(cluster: &Cluster, pod: &str, force: bool) -> Result<()> {
    replaced(cluster, pod, async || pods::delete(&cluster.pods(), pod, force).await).await
}

/// Does something that ends a pod, and waits until its successor is ready.
async fn replaced(cluster: &Cluster, pod: &str, action: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let before = cluster
        .pods()
        .get(pod)
        .await
        .context("failed to get the pod")?
        .metadata
        .uid;
    action().await?;
    wait::object(&cluster.pods(), pod, "waiting for its successor", HEAL, |now| {
        now.is_some_and(|p| p.metadata.uid != before && pods::ready(p))
            .then_some(())
    })
    .await
}

/// What `kubectl drain` does to an instance: its node takes no pods any more, and its pod is evicted. Returns when another
/// instance is the primary and the node is back.
async fn drain(context: &Context, cluster: &Cluster, instance: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(context.env.client.clone());
    let node = cluster.node_of(instance).await?;
    replaced(cluster, instance, async || {
        nodes.cordon(&node).await.context("failed to cordon the node")?;
        let moved = evict(cluster, instance).await;
        nodes.uncordon(&node).await.context("failed to uncordon the node")?;
        moved
    })
    .await
}

/// The disruption budget may refuse it for a moment, as it does to `kubectl drain`.
async fn evict(cluster: &Cluster, instance: &str) -> Result<()> {
    let pods = cluster.pods();
    wait::eventually("evicting the pod", HEAL, || async {
        let evicted = pods.evict(instance, &EvictParams::default()).await;
        evicted.map(drop).context("failed to evict the pod")
    })
    .await?;
    let elsewhere = |c: &MySQLCluster| {
        c.status
            .as_ref()?
            .primary
            .as_ref()
            .filter(|p| p.instance != instance)
            .map(drop)
    };
    cluster.wait("waiting for another primary", HEAL, elsewhere).await
}

/// Kills mysqld and waits until it answers again, as another process.
async fn kill(cluster: &Cluster, pod: &str) -> Result<()> {
    let login = cluster.app().await?.at(cluster.pod_address(pod).await?);
    let login = &login;
    let since = uptime(login).await?;
    pods::kill_mysqld(&cluster.pods(), pod).await?;
    wait::eventually("waiting for mysqld's restart", HEAL, || async move {
        let now = uptime(login).await?;
        anyhow::ensure!(now < since, "mysqld runs for {now} s");
        Ok(())
    })
    .await
}

/// Seconds since mysqld's start.
async fn uptime(login: &crate::sql::Login) -> Result<u64> {
    let query =
        "SELECT CAST(variable_value AS UNSIGNED) FROM performance_schema.global_status WHERE variable_name = 'Uptime'";
    login.connect().await?.row(query).await
}
