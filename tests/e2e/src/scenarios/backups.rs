//! Physical backups, end to end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use mainstay_api::MySQLBackup;
use mainstay_api::backup::BackupPhase;
use mainstay_core::backup::{BackupManifest, Key};
use mainstay_store::Store as _;
use serde_json::json;

use crate::cluster::{Cluster, HEAL};
use crate::runner::Context;
use crate::s3::CREDENTIALS;
use crate::testbed::S3Server;
use crate::wait;

/// How long a backup of a small cluster may take.
const BACKUP: Duration = Duration::from_mins(3);
/// How long something may take that is a matter of a few requests.
const SOON: Duration = Duration::from_secs(30);
/// Folder in the bucket.
const PREFIX: &str = "e2e";
/// The backup.
const NAME: &str = "e2e-by-hand";

/// A backup by hand: the access is told as missing and taken up when it comes; the backup succeeds and is in the bucket; nothing
/// is left of its Job, no instance was restarted, and the cluster is as before.
pub(super) async fn by_hand(context: Arc<Context>) -> Result<()> {
    let s3 = context.env.testbed()?.s3().await?;
    let cluster = context.shared().await?;
    let pods = uids(&cluster).await?;
    let result = make(&context, &cluster, &s3).await;
    // Whatever came of it: the next scenario finds the cluster as it was.
    cluster.patch(json!({"backup": null})).await?;
    let secrets: Api<Secret> = cluster.of();
    delete(&secrets, CREDENTIALS).await?;
    delete(&cluster.of::<MySQLBackup>(), NAME).await?;
    result?;
    wait::object(
        &secrets,
        &format!("{}-store", cluster.name),
        "waiting until nothing of the store is left in it",
        SOON,
        |secret| {
            let data = secret?.data.as_ref();
            data.is_none_or(std::collections::BTreeMap::is_empty).then_some(())
        },
    )
    .await?;
    cluster.healthy(HEAL).await?;
    ensure!(uids(&cluster).await? == pods, "a pod was made anew for a backup");
    Ok(())
}

async fn make(context: &Context, cluster: &Cluster, s3: &S3Server) -> Result<()> {
    cluster.patch(json!({"backup": {"store": s3.declared(PREFIX)}})).await?;
    let told = cluster.condition("BackupHealthy", "False", SOON).await?;
    ensure!(
        told.message.contains("spec.backup.store.credentialsSecret") && told.message.contains(CREDENTIALS),
        "the condition does not name field and Secret: {}",
        told.message
    );
    s3.create_secret(&cluster.of()).await?;
    cluster.condition("BackupHealthy", "True", SOON).await?;

    let (name, namespace) = (cluster.name.as_str(), cluster.namespace.as_str());
    let said = context
        .env
        .mainstay(&["backup", name, "--name", NAME, "-n", namespace])
        .await?;
    ensure!(said.contains(NAME), "the plugin says {said:?}");
    let backup = succeeded(cluster, NAME).await?;
    let status = backup.status.context("it has no status")?;
    ensure!(
        status.instance.as_deref() != Some(cluster.primary().await?.as_str()),
        "the primary gave the data, though it has replicas"
    );
    let location = status.location.context("the status has no location")?;
    let manifest = manifest(s3, &location).await?;
    ensure!(
        status.gtid_executed == Some(manifest.gtid_executed.to_string()),
        "status and manifest hold other transactions"
    );
    let stored = i64::try_from(manifest.stored_bytes())?;
    ensure!(
        status.stored_bytes == Some(stored),
        "status and manifest have other sizes"
    );
    context.note(format!("{stored} bytes stored of {}", manifest.uncompressed_bytes));
    cluster
        .wait("waiting for the summary of backups", SOON, |cluster| {
            let summary = cluster.status.as_ref()?.backup.as_ref()?;
            (summary.last_successful.as_ref()?.name == NAME).then_some(())
        })
        .await?;
    let shown = context.env.mainstay(&["status", name, "-n", namespace]).await?;
    ensure!(
        shown.contains(&format!("Backups: {NAME}")),
        "the status does not show it:\n{shown}"
    );
    nothing_is_left(cluster).await
}

/// Waits until a backup has ended, and well.
pub(super) async fn succeeded(cluster: &Cluster, name: &str) -> Result<MySQLBackup> {
    let backups: Api<MySQLBackup> = cluster.of();
    let ended = wait::object(&backups, name, "waiting for its end", BACKUP, |backup| {
        let phase = backup?.status.as_ref()?.phase?;
        phase.is_final().then(|| backup.cloned()).flatten()
    })
    .await?;
    let status = ended.status.clone().unwrap_or_default();
    if status.phase != Some(BackupPhase::Succeeded) {
        bail!("the backup failed: {:?}", status.error);
    }
    Ok(ended)
}

/// The manifest in the bucket, and its data as large as it says.
async fn manifest(s3: &S3Server, location: &str) -> Result<BackupManifest> {
    let store = s3.open("").await?;
    let key = location
        .strip_prefix(&format!("s3://{}/", s3.bucket))
        .with_context(|| format!("{location} is not in the bucket"))?;
    ensure!(key.starts_with(&format!("{PREFIX}/")), "{key} is not below the prefix");
    let json = store.get(&Key::parse(key)?, 1 << 20).await?;
    let manifest = BackupManifest::from_json(&json)?;
    let folder = key.strip_suffix("manifest.json").context("it is no manifest")?;
    for file in &manifest.files {
        let object = store.head(&Key::parse(&format!("{folder}{}", file.name))?).await?;
        ensure!(object.size == file.size, "{} has {} bytes", file.name, object.size);
    }
    Ok(manifest)
}

/// Job, pod and claim are gone.
async fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let selector = format!("{},app.kubernetes.io/component=backup", cluster.selector());
    let gone = "waiting for the end of what was made for the backup";
    wait::objects(&cluster.of::<Job>(), &selector, gone, HEAL, |jobs| {
        jobs.is_empty().then_some(())
    })
    .await?;
    wait::objects(&cluster.pods(), &selector, gone, HEAL, |pods| {
        pods.is_empty().then_some(())
    })
    .await?;
    wait::objects(
        &cluster.of::<PersistentVolumeClaim>(),
        &selector,
        gone,
        HEAL,
        |claims| claims.is_empty().then_some(()),
    )
    .await
}

async fn uids(cluster: &Cluster) -> Result<Vec<Option<String>>> {
    let selector = format!("{},app.kubernetes.io/component=database", cluster.selector());
    let pods = cluster.pods().list(&ListParams::default().labels(&selector)).await?;
    Ok(pods.items.iter().map(ResourceExt::uid).collect())
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("failed to delete {name}")),
    }
}
