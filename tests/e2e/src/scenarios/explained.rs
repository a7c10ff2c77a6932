//! A StatefulSet that cannot make its pods is explained in the cluster's conditions.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::cluster::Cluster;
use crate::manifest::Manifest;
use crate::runner::Context;

/// Quota, scheduling and image trouble, each with the words of Kubernetes.
pub(super) async fn conditions(context: Arc<Context>) -> Result<()> {
    let quota = quota(&context);
    let nowhere = context.manifest("nowhere", 1).with(
        "podTemplate",
        json!({"spec": {"nodeSelector": {"mainstay.dev/there-is": "no-such-node"}}}),
    );
    let scheduling = explained(&context, "explained-node", nowhere, &["node", "selector"]);
    // Never: a test asks no registry.
    let missing = Manifest::new("missing", 1, "mysql:there-is-no-such-tag").with("imagePullPolicy", json!("Never"));
    let image = explained(&context, "explained-image", missing, &["there-is-no-such-tag"]);
    let (quota, scheduling, image) = Box::pin(futures::future::try_join3(quota, scheduling, image)).await?;
    for message in [quota, scheduling, image] {
        context.note(message);
    }
    Ok(())
}

async fn quota(context: &Context) -> Result<String> {
    let namespace = context.namespace_for("explained-quota").await?;
    let quota: ResourceQuota =
        serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}))?;
    let api: Api<ResourceQuota> = Api::namespaced(context.env.client.clone(), &namespace);
    api.create(&PostParams::default(), &quota)
        .await
        .context("failed to create the quota")?;
    said(context, &namespace, context.manifest("poor", 1), &["quota"]).await
}

async fn explained(context: &Context, purpose: &str, manifest: Manifest, words: &[&str]) -> Result<String> {
    let namespace = context.namespace_for(purpose).await?;
    said(context, &namespace, manifest, words).await
}

/// Waits for a condition whose message has all the words.
async fn said(context: &Context, namespace: &str, manifest: Manifest, words: &[&str]) -> Result<String> {
    let cluster = Cluster::apply(&context.env, namespace, &manifest).await?;
    let limit = Duration::from_secs(45);
    cluster
        .wait(&format!("waiting for a condition that says {words:?}"), limit, |c| {
            let conditions = &c.status.as_ref()?.conditions;
            let found = conditions
                .iter()
                .find(|c| words.iter().all(|w| c.message.contains(w)))?;
            Some(format!(
                "{} {}={}: {}",
                cluster.name, found.type_, found.status, found.message
            ))
        })
        .await
}
