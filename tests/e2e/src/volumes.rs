//! Volumes that fill up, and volumes that are lost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use mainstay_core::layout;
use serde_json::json;

use crate::cluster::{Cluster, is_healthy};
use crate::pods;

/// The file that fills a disk.
const FILLER: &str = "filler";

/// Fills the data volume: what is free is allocated, and what is left then is written.
pub async fn fill(cluster: &Cluster, pod: &str) -> Result<()> {
    let file = format!("{}/{FILLER}", layout::VOLUME);
    let script = format!(
        "free=$(df --output=avail -B1 {0} | tail -n1); \
         fallocate -l $((free - 1048576)) {file} || fallocate -l $((free * 98 / 100)) {file}; \
         for size in 64k 4k 1; do dd if=/dev/zero of={file} bs=$size oflag=append conv=notrunc status=none 2>/dev/null; done; \
         df --output=avail -B1 {0} | tail -n1",
        layout::VOLUME
    );
    let left = pods::exec(&cluster.pods(), pod, pods::MYSQL, &["sh", "-c", &script]).await?;
    let left: u64 = left.trim().parse().with_context(|| format!("df says {left:?}"))?;
    ensure!(left < 1 << 20, "{left} bytes are still free on the volume of {pod}");
    Ok(())
}

/// The PersistentVolume is deleted as an administrator does whose disk is gone, and the pod with it.
pub async fn lose(cluster: &Cluster, pod: &str) -> Result<()> {
    let claims = cluster.of::<PersistentVolumeClaim>();
    let claim = claims
        .get(&format!("data-{pod}"))
        .await
        .context("failed to get the claim")?;
    let volume = claim
        .spec
        .and_then(|spec| spec.volume_name)
        .context("the claim has no volume")?;
    let volumes: Api<PersistentVolume> = Api::all(cluster.env.client.clone());
    volumes
        .delete(&volume, &DeleteParams::background())
        .await
        .with_context(|| format!("failed to delete {volume}"))?;
    // A volume that is bound is kept as long as it is in use.
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes
        .patch(&volume, &PatchParams::default(), &release)
        .await
        .with_context(|| format!("failed to release {volume}"))?;
    pods::delete(&cluster.pods(), pod, true).await
}

/// Takes the filler away where it is still: the disk of a healthy instance must have room for what follows. Whether it was there.
pub async fn take_filler_away(cluster: &Cluster, pod: &str) -> Result<bool> {
    let script = format!(
        "cd {} && if [ -e {FILLER} ]; then rm {FILLER} && echo there; fi",
        layout::VOLUME
    );
    let there = pods::exec(&cluster.pods(), pod, pods::MYSQL, &["sh", "-c", &script]).await?;
    Ok(!there.is_empty())
}

/// Waits until the status says that all is not well, and then that it is.
pub async fn healed(cluster: Cluster, limit: Duration) -> Result<()> {
    let mut told = false;
    cluster
        .wait("waiting until it is told and healed", limit, |cluster| {
            let healthy = is_healthy(cluster);
            told |= !healthy;
            (told && healthy).then_some(())
        })
        .await
}
