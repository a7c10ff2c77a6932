//! What a backup does in the store: nothing but below its own name.

use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::{FORMAT, ManifestError};
use mainstay_core::backup::plan::BackupStep;
use mainstay_core::backup::wire::Task;
use mainstay_core::backup::{BackupId, BackupManifest, Key};
use mainstay_store::archive::{Meter, Packed, Sealing, content_size, store_directory};
use mainstay_store::{Access, Entry, Existing, Listing, S3, Store, StoreError};
use tokio::time::interval;

use super::Failure;
use super::progress::Course;

/// No manifest is longer, in bytes.
const LONGEST_MANIFEST: u64 = 16 << 20;
/// Between two looks at how much was read.
const LOOK: Duration = Duration::from_secs(1);

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn store_failed(error: StoreError) -> Failure {
    Failure::of("StoreFailed", &error)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn manifest_failed(error: ManifestError) -> Failure {
    Failure::of("StoreFailed", &error)
}

/// The access that is mounted.
pub(crate) fn access(directory: &Path) -> Result<Access, Failure> {
    let access = Access::read(directory).map_err(|error| Failure::of("AccessRefused", &error))?;
    access.ok_or_else(|| {
        Failure::new(
            "AccessRefused",
            "the access to the store is not mounted; see the condition BackupHealthy of the cluster",
        )
    })
}

/// Its client.
pub(crate) async fn open(access: &Access) -> Result<Arc<dyn Store>, Failure> {
    let opened = S3::new(access.store.clone()).await;
    Ok(Arc::new(opened.map_err(|error| Failure::of("AccessRefused", &error))?))
}

/// What is there of this backup: its manifest, if an earlier pod came that far; else what it left is deleted.
pub(super) async fn prepare(
    store: &dyn Store,
    access: &Access,
    id: &BackupId,
) -> Result<Option<BackupManifest>, Failure> {
    match store.get(&access.cluster.backup_manifest(id), LONGEST_MANIFEST).await {
        Ok(json) => return BackupManifest::from_json(&json).map(Some).map_err(manifest_failed),
        Err(StoreError::NotFound { .. }) => {}
        Err(error) => return Err(store_failed(error)),
    }
    abort_uploads(store, access, id).await.map_err(store_failed)?;
    let left = store.list_all(Listing::all(access.cluster.backup(id))).await;
    let left: Vec<Key> = left
        .map_err(store_failed)?
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Object(object) => Some(object.key),
            Entry::Folder(_) => None,
        })
        .collect();
    if !left.is_empty() {
        tracing::warn!(
            objects = left.len(),
            "an earlier pod was interrupted: what it stored is deleted"
        );
        store.delete_all(&left).await.map_err(store_failed)?;
    }
    Ok(None)
}

/// Aborts what was begun to be uploaded below the name of this backup.
pub(super) async fn abort_uploads(store: &dyn Store, access: &Access, id: &BackupId) -> Result<(), StoreError> {
    for upload in store.incomplete(&access.cluster.backup(id)).await? {
        store.abort(&upload).await?;
    }
    Ok(())
}

/// Streams the stopped data directory.
pub(super) async fn upload(
    store: &dyn Store,
    access: &Access,
    id: &BackupId,
    data: &Path,
    course: &Course,
) -> Result<Packed, Failure> {
    let failed = |error| Failure::of("UploadFailed", &error);
    let total = content_size(data, is_left_out).await.map_err(failed)?;
    course.begin(BackupStep::Upload, Some(total));
    let key = access.cluster.backup_data(id, access.recipient.is_some());
    let sealing = sealing(access);
    let meter = Meter::default();
    let mut looks = interval(LOOK);
    let storing = store_directory(store, &key, data, is_left_out, &sealing, &meter);
    tokio::pin!(storing);
    loop {
        tokio::select! {
            stored = &mut storing => return stored.map_err(failed),
            _ = looks.tick() => course.done(meter.bytes(), None),
        }
    }
}

/// How everything is stored.
pub(super) fn sealing(access: &Access) -> Sealing {
    Sealing {
        recipient: access.recipient.clone(),
        ..Sealing::default()
    }
}

/// What is particular to a server, and not to its data: its identity, its own settings, and what it received (decision B19).
fn is_left_out(path: &Path) -> bool {
    let mut parts = path.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return false;
    };
    let name = name.to_string_lossy();
    // In names of databases these characters are encoded: no directory of data is called so.
    name == "auto.cnf" || name == "mysqld-auto.cnf" || name.starts_with("relay.") || name.starts_with("relay-")
}

/// What the copy is.
pub(super) struct Copied {
    pub(super) began: Timestamp,
    pub(super) version: String,
    pub(super) executed: GtidSet,
    /// Of what was dumped: bytes of the data directory.
    pub(super) dumped: Option<u64>,
}

pub(super) fn manifest(task: &Task, access: &Access, packed: Packed, copied: Copied) -> BackupManifest {
    BackupManifest {
        format: FORMAT,
        id: task.id.clone(),
        name: Some(task.name.clone()),
        schedule: task.schedule.clone(),
        cluster: access.cluster.clone(),
        instance: task.donor.instance.clone(),
        mysql_version: copied.version,
        server_uuid: task.donor.server_uuid.clone(),
        epoch: task.epoch,
        gtid_executed: copied.executed,
        started_at: copied.began,
        completed_at: Timestamp::now(),
        method: task.method,
        files: vec![packed.file],
        encryption: sealing(access).encryption(),
        uncompressed_bytes: packed.content.bytes,
        data_bytes: copied.dumped,
    }
}

/// Stores the manifest: from here on it is a backup.
pub(super) async fn put_manifest(store: &dyn Store, access: &Access, manifest: &BackupManifest) -> Result<(), Failure> {
    let key = access.cluster.backup_manifest(&manifest.id);
    let json = manifest.to_json().map_err(manifest_failed)?;
    match store.put(&key, json.clone().into(), Existing::Keep).await {
        Ok(()) => Ok(()),
        // The answer to the first attempt was lost.
        Err(StoreError::AlreadyExists { .. })
            if store
                .get(&key, LONGEST_MANIFEST)
                .await
                .is_ok_and(|found| found.as_ref() == json.as_slice()) =>
        {
            Ok(())
        }
        Err(error) => Err(store_failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_core::backup::ClusterIdentity;
    use mainstay_store::{Identity, Memory, Settings};

    use super::*;

    fn access() -> Access {
        Access {
            store: Settings {
                endpoint: None,
                region: "us-east-1".to_owned(),
                bucket: "backups".to_owned(),
                prefix: String::new(),
                path_style: false,
                ca: None,
                identity: Identity::Pod,
            },
            cluster: ClusterIdentity::new("prod", "shop", "u1").unwrap(),
            archive: false,
            recipient: None,
            private_keys: Vec::new(),
        }
    }

    #[test]
    fn b19_what_is_a_servers_own_is_left_out() {
        for name in [
            "auto.cnf",
            "mysqld-auto.cnf",
            "relay.000001",
            "relay.index",
            "relay-x.000002",
        ] {
            assert!(is_left_out(Path::new(name)), "{name}");
        }
        for name in [
            "ibdata1",
            "mysql.ibd",
            "relay/t.ibd",
            "shop/relay.ibd",
            "shop/auto.cnf",
            "#innodb_redo",
        ] {
            assert!(!is_left_out(Path::new(name)), "{name}");
        }
    }

    #[tokio::test]
    async fn f23_what_an_earlier_pod_left_is_cleaned_up_and_nothing_else() {
        let (store, access) = (Memory::new(), access());
        let (own, other) = (
            BackupId::parse("20261130t030000z-a").unwrap(),
            BackupId::parse("20261130t030000z-ab").unwrap(),
        );
        for id in [&own, &other] {
            let key = access.cluster.backup_data(id, false);
            store.put(&key, vec![1].into(), Existing::Keep).await.unwrap();
        }
        assert_eq!(prepare(&store, &access, &own).await, Ok(None));
        assert!(store.head(&access.cluster.backup_data(&own, false)).await.is_err());
        store.head(&access.cluster.backup_data(&other, false)).await.unwrap();
    }
}
