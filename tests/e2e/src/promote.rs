//! A person's request to move the primary, as the plugin writes it (decision B5).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{Patch, PatchParams};
use mainstay_api::REQUEST_ANNOTATION;
use mainstay_api::status::RequestResult;
use serde_json::json;

use crate::cluster::Cluster;
use crate::wait;

/// Asks until `instance` is the primary: it is refused while it is more than half a second behind.
pub async fn eventually(cluster: &Cluster, instance: &str, limit: Duration) -> Result<()> {
    wait::eventually("promoting", limit, || request(cluster, instance, limit)).await
}

/// Asks for `instance` to become the primary, and waits until it is.
async fn request(cluster: &Cluster, instance: &str, limit: Duration) -> Result<()> {
    let id = format!("e2e-{}", jiff::Timestamp::now().as_microsecond());
    let request = json!({"id": id, "verb": "promote", "instance": instance}).to_string();
    let patch = json!({"metadata": {"annotations": {REQUEST_ANNOTATION: request}}});
    cluster
        .api()
        .patch(&cluster.name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .context("failed to write the request")?;
    let answer = cluster
        .wait(&format!("waiting for the promotion of {instance}"), limit, |c| {
            let answer = c.status.as_ref()?.request.as_ref()?;
            (answer.id == id && answer.result != RequestResult::Running).then(|| answer.clone())
        })
        .await?;
    if answer.result != RequestResult::Done {
        bail!(
            "the promotion of {instance} was not carried out: {:?}: {}",
            answer.result,
            answer.message
        );
    }
    Ok(())
}
