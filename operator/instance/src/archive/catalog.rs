//! What the store holds of the archive: read at each beginning, and nowhere else.

use std::sync::Arc;

use bytes::Bytes;
use mainstay_core::GtidSet;
use mainstay_core::backup::archive::{Index, Last, ReignEnd, Start, start};
use mainstay_core::backup::keys::{epoch_of, segments_of};
use mainstay_core::backup::manifest::{ReignManifest, Segment, SegmentIndex};
use mainstay_core::backup::{BackupId, BackupManifest, ClusterIdentity, Key};
use mainstay_store::{Entry, Existing, Listing, Store, StoreError};

use super::Fault;

/// An index is no larger.
pub(super) const LARGEST_INDEX: u64 = 64 << 20;
/// Neither is any other document.
const LARGEST_DOCUMENT: u64 = 16 << 20;
/// Newest backups that are looked at for what the archive lacks.
const BACKUPS: usize = 5;
/// How often a listing is repeated of which an object was deleted meanwhile, because another one says the same.
const LISTINGS: usize = 5;

/// The archive of a cluster in a store.
#[derive(Clone)]
pub(super) struct Catalog {
    pub(super) store: Arc<dyn Store>,
    pub(super) cluster: ClusterIdentity,
}

impl Catalog {
    /// Writes down that a reign begins, or finds that it did; and where it goes on.
    pub(super) async fn begin(&self, reign: &ReignManifest) -> Result<Start, Fault> {
        self.write_reign(reign).await?;
        let own = ReignEnd {
            baseline: reign.baseline.clone(),
            last: self.last(reign.epoch).await?,
        };
        let mut former = Vec::new();
        if own.last == Last::Nothing {
            let mut epochs = self.epochs().await?;
            epochs.retain(|epoch| *epoch < reign.epoch);
            while let Some(epoch) = epochs.pop() {
                let last = self.last(epoch).await?;
                let found = last != Last::Nothing;
                // What lies in a folder without a manifest, and without segments, is no reign.
                if let Some(baseline) = self.baseline(epoch).await? {
                    former.push(ReignEnd { baseline, last });
                }
                if found {
                    break;
                }
            }
        }
        Ok(start(&own, &former))
    }

    /// Another one of this epoch cannot be: no two primaries are recorded in one.
    async fn write_reign(&self, reign: &ReignManifest) -> Result<(), Fault> {
        let key = self.cluster.reign_manifest(reign.epoch);
        if self
            .make(&key, reign.to_json().map_err(Fault::Manifest)?.into())
            .await?
        {
            return Ok(());
        }
        let other = self.store.get(&key, LARGEST_DOCUMENT).await.map_err(Fault::Store)?;
        let other = ReignManifest::from_json(&other).map_err(Fault::Manifest)?;
        let same = |reign: &ReignManifest| {
            (
                reign.instance.clone(),
                reign.server_uuid.clone(),
                reign.baseline.clone(),
            )
        };
        if same(&other) == same(reign) {
            Ok(())
        } else {
            Err(Fault::Foreign { key: key.to_string() })
        }
    }

    /// Makes an object; whether it is there now as it should be. Another one of the name is left as it is. An answer that is
    /// lost is asked for again, and then finds the object that was made.
    pub(super) async fn make(&self, key: &Key, content: Bytes) -> Result<bool, Fault> {
        match self.store.put(key, content.clone(), Existing::Keep).await {
            Ok(()) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => {
                let limit = (content.len() as u64).max(LARGEST_DOCUMENT);
                let existing = self.store.get(key, limit).await.map_err(Fault::Store)?;
                Ok(existing == content)
            }
            Err(error) => Err(Fault::Store(error)),
        }
    }

    /// The reigns, by epoch.
    async fn epochs(&self) -> Result<Vec<u64>, Fault> {
        let entries = self.store.list_all(Listing::shallow(self.cluster.binlogs())).await;
        let mut epochs: Vec<u64> = entries.map_err(Fault::Store)?.iter().filter_map(epoch).collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    async fn baseline(&self, epoch: u64) -> Result<Option<GtidSet>, Fault> {
        let key = self.cluster.reign_manifest(epoch);
        match self.store.get(&key, LARGEST_DOCUMENT).await {
            Ok(json) => {
                let reign = ReignManifest::from_json(&json).map_err(Fault::Manifest)?;
                Ok(Some(reign.baseline))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(Fault::Store(error)),
        }
    }

    /// The indexes of a reign, in the order of their segments.
    pub(super) async fn indexes(&self, epoch: u64) -> Result<Vec<Index>, Fault> {
        let folder = self.cluster.segment_indexes(epoch);
        let entries = self
            .store
            .list_all(Listing::shallow(folder))
            .await
            .map_err(Fault::Store)?;
        let mut indexes: Vec<Index> = entries.iter().filter_map(index).collect();
        indexes.sort_unstable();
        Ok(indexes)
    }

    /// How a reign ends.
    async fn last(&self, epoch: u64) -> Result<Last, Fault> {
        let mut listings = 0;
        loop {
            listings += 1;
            let indexes = self.indexes(epoch).await?;
            // Of several with the last segment the shortest is enough.
            let newest = indexes.iter().max_by_key(|index| (index.last, index.first));
            let Some(newest) = newest.copied() else {
                return Ok(Last::Nothing);
            };
            match self.index(epoch, newest).await {
                Ok(index) => return Ok(end(index, newest)),
                Err(Fault::Store(StoreError::NotFound { .. })) if listings < LISTINGS => {}
                Err(Fault::Manifest(error)) => {
                    tracing::error!(%error, epoch, "the end of the archive cannot be read");
                    return Ok(Last::Unreadable { sequence: newest.last });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// An index.
    pub(super) async fn index(&self, epoch: u64, index: Index) -> Result<SegmentIndex, Fault> {
        let key = self.cluster.segment_index(epoch, index.first, index.last);
        let json = self.store.get(&key, LARGEST_INDEX).await.map_err(Fault::Store)?;
        SegmentIndex::from_json(&json).map_err(Fault::Manifest)
    }

    /// Whether one of the newest complete backups holds all of these transactions.
    pub(super) async fn is_backed_up(&self, missing: &GtidSet) -> Result<bool, Fault> {
        let entries = self.store.list_all(Listing::shallow(self.cluster.backups())).await;
        let mut backups: Vec<BackupId> = entries.map_err(Fault::Store)?.iter().filter_map(backup).collect();
        // Their names begin with the time.
        backups.sort_by(|a, b| b.as_str().cmp(a.as_str()));
        for id in backups.iter().take(BACKUPS) {
            match self
                .store
                .get(&self.cluster.backup_manifest(id), LARGEST_DOCUMENT)
                .await
            {
                Ok(json) => match BackupManifest::from_json(&json) {
                    Ok(manifest) if manifest.gtid_executed.contains(missing) => return Ok(true),
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, backup = id.as_str(), "a backup is not looked at"),
                },
                // It is not complete.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(Fault::Store(error)),
            }
        }
        Ok(false)
    }
}

fn epoch(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Folder(folder) => epoch_of(folder),
        Entry::Object(_) => None,
    }
}

fn index(entry: &Entry) -> Option<Index> {
    match entry {
        Entry::Object(object) => segments_of(&object.key).map(|(first, last)| Index {
            first,
            last,
            bytes: object.size,
        }),
        Entry::Folder(_) => None,
    }
}

fn backup(entry: &Entry) -> Option<BackupId> {
    match entry {
        Entry::Folder(folder) => BackupId::of_folder(folder),
        Entry::Object(_) => None,
    }
}

fn end(index: SegmentIndex, newest: Index) -> Last {
    let last = index
        .segments
        .into_iter()
        .max_by_key(|segment: &Segment| segment.sequence);
    last.map_or(Last::Unreadable { sequence: newest.last }, |segment| {
        Last::Segment(Box::new(segment))
    })
}
