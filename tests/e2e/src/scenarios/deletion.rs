//! Case F27: what deletion leaves behind and what comes back.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::cluster::{CREATE, Cluster, HEAL};
use crate::runner::Context;
use crate::wait;
use crate::writer::Writer;

/// Kept claims bring the cluster back with all rows; a lost StatefulSet is made again; policy Delete removes the claims;
/// a namespace ends while its cluster is being made.
pub(super) async fn claims(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let manifest = context.manifest("kept", 3).with_app();
    let cluster = Cluster::create(&context.env, &namespace, &manifest).await?;
    let mut writer = Writer::start(cluster.app().await?, "f27").await?;
    writer.progress(100, HEAL).await?;
    let history = writer.finish().await?;

    cluster.delete(HEAL).await?;
    cluster.no_pods(HEAL).await?;
    let kept = cluster.claims().await?;
    ensure!(kept.len() == 3, "the kept claims are {:?}", kept.keys());
    let left = cluster
        .of::<Service>()
        .list(&ListParams::default().labels(&cluster.selector()))
        .await?;
    ensure!(
        left.items.iter().all(|s| s.metadata.deletion_timestamp.is_some()),
        "Services outlive the cluster"
    );
    Cluster::create(&context.env, &namespace, &manifest)
        .await
        .context("re-created over kept claims")?;
    cluster.serves(HEAL).await?;
    cluster
        .check(&history, "f27")
        .await
        .context("re-created over kept claims")?;

    lost_stateful_set(&cluster).await?;
    cluster.check(&history, "f27").await.context("StatefulSet deleted")?;

    cluster.patch(json!({"deletionPolicy": "Delete"})).await?;
    cluster.healthy(HEAL).await?;
    cluster.delete(HEAL).await?;
    wait::objects(
        &cluster.of::<PersistentVolumeClaim>(),
        &cluster.selector(),
        "waiting for the claims' end",
        HEAL,
        |c| c.is_empty().then_some(()),
    )
    .await?;
    namespace_ends(&context).await
}

/// `kubectl delete statefulset` by mistake: the operator makes it again, over the same claims.
async fn lost_stateful_set(cluster: &Cluster) -> Result<()> {
    let sets = cluster.of::<StatefulSet>();
    let before = sets
        .get(&cluster.name)
        .await
        .context("failed to get the StatefulSet")?
        .metadata
        .uid;
    sets.delete(&cluster.name, &DeleteParams::background())
        .await
        .context("failed to delete the StatefulSet")?;
    let after = wait::object(&sets, &cluster.name, "waiting for a new StatefulSet", HEAL, |s| {
        s.filter(|s| s.metadata.uid != before && s.metadata.deletion_timestamp.is_none())
            .and_then(kube::ResourceExt::uid)
    })
    .await?;
    // Until the old pods are gone, the cluster looks as it did.
    let is_new = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == after);
    wait::objects(
        &cluster.of::<Pod>(),
        &cluster.selector(),
        "waiting for its pods",
        HEAL,
        |pods| (pods.len() == 3 && pods.values().all(is_new)).then_some(()),
    )
    .await?;
    cluster.serves(HEAL).await.context("StatefulSet deleted")
}

/// A policy that is changed to Delete on a live cluster takes the Secrets along with the claims.
pub(super) async fn policy_changed(context: Arc<Context>) -> Result<()> {
    let namespace = context.namespace().await?;
    let cluster = Cluster::create(&context.env, &namespace, &context.manifest("policy", 1)).await?;
    cluster.patch(json!({"deletionPolicy": "Delete"})).await?;
    cluster.healthy(HEAL).await?;
    cluster.delete(HEAL).await?;
    wait::objects(
        &cluster.of::<Secret>(),
        &cluster.selector(),
        "waiting for the Secrets' end",
        HEAL,
        |s| s.is_empty().then_some(()),
    )
    .await
}

/// A namespace that is deleted while a cluster is made in it, and with a cluster that serves, ends by itself.
async fn namespace_ends(context: &Context) -> Result<()> {
    for (purpose, complete) in [("f27-early", false), ("f27-late", true)] {
        let namespace = context.namespace_for(purpose).await?;
        let cluster = Cluster::apply(&context.env, &namespace, &context.manifest("gone", 1)).await?;
        if complete {
            cluster.healthy(CREATE).await?;
        } else {
            let pod = cluster.instance(0);
            wait::object(&cluster.of::<Pod>(), &pod, "waiting for a pod", CREATE, |p| p.map(drop)).await?;
        }
        context.env.delete_namespace(&namespace).await?;
        context
            .env
            .namespace_gone(&namespace, HEAL)
            .await
            .with_context(|| purpose.to_owned())?;
    }
    Ok(())
}
