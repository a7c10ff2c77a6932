//! Case F17: all instances are lost at once.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams};

use crate::cluster::{Cluster, HEAL};
use crate::history::History;
use crate::runner::Context;
use crate::writer::Writer;
use crate::{operator, pods, wait};

/// Force-deletes all pods: as they are; with a replica's volume gone; with ordinal 0 the most outdated.
pub(super) async fn force_deleted(context: Arc<Context>) -> Result<()> {
    let cluster = context.shared().await?;
    let history = write_some(&cluster, "f17_all").await?;
    force_delete_all(&cluster).await?;
    cluster.serves(HEAL).await.context("all pods force-deleted")?;
    cluster.check(&history, "f17_all").await?;

    let history = write_some(&cluster, "f17_volume").await?;
    let replica = cluster
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("there is no replica")?;
    lose_volume(&cluster, &replica).await?;
    cluster
        .serves(HEAL)
        .await
        .context("all pods force-deleted and a volume gone")?;
    cluster.check(&history, "f17_volume").await?;
    outdated(&context, &cluster).await
}

/// With the operator away, ordinal 0 stops receiving, rows are written, everything ends: the one with the rows comes first.
async fn outdated(context: &Context, cluster: &Cluster) -> Result<()> {
    let zero = cluster.instance(0);
    if cluster.primary().await? == zero {
        pods::delete(&cluster.pods(), &zero, false).await?;
        cluster
            .wait("waiting for another primary than ordinal 0", HEAL, |c| {
                let primary = c.status.as_ref()?.primary.as_ref()?;
                (primary.instance != zero).then_some(())
            })
            .await?;
        cluster.serves(HEAL).await?;
    }
    let history = operator::away(&context.env, async || {
        let mut client = cluster
            .root()
            .await?
            .at(cluster.pod_address(&zero).await?)
            .connect()
            .await?;
        client.execute("STOP REPLICA IO_THREAD").await?;
        let history = write_some(cluster, "f17_outdated").await?;
        force_delete_all(cluster).await?;
        Ok(history)
    })
    .await?;
    cluster
        .serves(HEAL)
        .await
        .context("all pods force-deleted with ordinal 0 outdated")?;
    cluster.check(&history, "f17_outdated").await
}

/// Force-deletes all pods while the node of a replica is down: two of three serve; the third joins when its node returns.
pub(super) async fn node_down(context: Arc<Context>) -> Result<()> {
    let testbed = context.env.testbed()?;
    // Its own, on three nodes: a lost volume may have put two instances of the shared one on the same node.
    let namespace = context.namespace().await?;
    let cluster = Cluster::create(&context.env, &namespace, &context.manifest("nodes", 3).with_app()).await?;
    let history = write_some(&cluster, "f17_node").await?;
    let node = lonely_node(&cluster).await?;
    testbed.power_off(&node).await?;
    let served = async {
        force_delete_all(&cluster).await?;
        let login = &cluster.app().await?;
        wait::eventually("writing with two of three", HEAL, || async move {
            let mut client = login.connect().await?;
            client
                .execute("CREATE TABLE IF NOT EXISTS two_of_three (id INT)")
                .await?;
            client.execute("INSERT INTO two_of_three VALUES (1)").await
        })
        .await
    }
    .await;
    testbed.power_on(&node).await?;
    served?;
    cluster.serves(HEAL).await.with_context(|| format!("{node} is back"))?;
    cluster.check(&history, "f17_node").await
}

/// The node of a replica, and of no other instance. An operator may be on it: another one takes over.
async fn lonely_node(cluster: &Cluster) -> Result<String> {
    let mut nodes = Vec::new();
    for ordinal in 0..3 {
        let name = cluster.instance(ordinal);
        let node = cluster.node_of(&name).await?;
        nodes.push((name, node));
    }
    let replicas = cluster.replicas().await?;
    let alone = |node: &String| nodes.iter().filter(|(_, other)| other == node).count() == 1;
    let found = nodes.iter().find(|(name, node)| replicas.contains(name) && alone(node));
    found
        .map(|(_, node)| node.clone())
        .with_context(|| format!("every replica shares its node: {nodes:?}"))
}

async fn write_some(cluster: &Cluster, table: &str) -> Result<History> {
    let mut writer = Writer::start(cluster.app().await?, table).await?;
    writer.progress(100, HEAL).await?;
    writer.finish().await
}

async fn force_delete_all(cluster: &Cluster) -> Result<()> {
    let before = cluster
        .pods()
        .list(&ListParams::default().labels(&cluster.selector()))
        .await?;
    let uids: Vec<_> = before.items.iter().filter_map(|p| p.metadata.uid.clone()).collect();
    cluster
        .pods()
        .delete_collection(
            &DeleteParams::default().grace_period(0),
            &ListParams::default().labels(&cluster.selector()),
        )
        .await
        .context("failed to delete the pods")?;
    wait::objects(
        &cluster.pods(),
        &cluster.selector(),
        "waiting for the old pods' end",
        HEAL,
        |now| {
            now.values()
                .all(|p| p.metadata.uid.as_ref().is_none_or(|uid| !uids.contains(uid)))
                .then_some(())
        },
    )
    .await
}

/// Deletes an instance's claim and then all pods, so that it comes back on an empty volume.
async fn lose_volume(cluster: &Cluster, instance: &str) -> Result<()> {
    let claims = cluster.of::<PersistentVolumeClaim>();
    let claim = format!("data-{instance}");
    let before = claims
        .get(&claim)
        .await
        .context("failed to get the claim")?
        .metadata
        .uid;
    claims
        .delete(&claim, &DeleteParams::default())
        .await
        .context("failed to delete the claim")?;
    force_delete_all(cluster).await?;
    wait::object(&claims, &claim, "waiting for a new claim", HEAL, |now| {
        now.is_some_and(|c| c.metadata.uid != before).then_some(())
    })
    .await
}
