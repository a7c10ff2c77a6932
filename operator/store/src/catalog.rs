//! What a cluster has in a store, read as the input of a recovery.
//!
//! What cannot be read is unknown and never empty: a part of the archive that is left out could make a recovery end too early
//! and look complete (case F06). Only a backup that cannot be read is left out, because another one serves as well.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::keys::{epoch_of, segments_of};
use mainstay_core::backup::manifest::{ArchivedThrough, Encryption, ManifestError, Segment, StoredFile};
use mainstay_core::backup::restore::{self, Archive, Base, Recovery, Refusal, Target};
use mainstay_core::backup::{
    BackupId, BackupManifest, ClusterIdentity, Folder, InvalidKey, Key, ReignManifest, SegmentIndex,
};

use crate::archive::{ArchiveError, PrivateKey, open};
use crate::error::StoreError;
use crate::port::{Body, Entry, Listing, Span, Store};
use crate::recovery::RecoverySource;

/// Largest manifest or index that is read.
const LIMIT: u64 = 256 * 1024 * 1024;
/// How often a reign's indexes are listed when some are replaced by a larger one in between.
const LISTINGS: usize = 5;
/// Documents that are read at the same time.
const AT_ONCE: usize = 8;

/// Why it is not known what a cluster has stored, or why that does not serve a recovery.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing of the cluster is there.
    #[error(
        "there is nothing of cluster {namespace}/{name} in the store; correct bucket and prefix, or the source cluster: \
         {found}"
    )]
    NoCluster {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What is there instead.
        found: String,
    },
    /// There are several of that name.
    #[error("the store holds several clusters {namespace}/{name}; name one of them by its uid: {uids}")]
    Several {
        /// Their namespace.
        namespace: String,
        /// Their name.
        name: String,
        /// Their uids.
        uids: String,
    },
    /// A name cannot be one in a store.
    #[error(transparent)]
    Name(#[from] InvalidKey),
    /// A manifest or an index cannot be read.
    #[error("{key}: {source}")]
    Unreadable {
        /// The object.
        key: Key,
        /// Why.
        source: ManifestError,
    },
    /// What the documents say does not fit together.
    #[error("{key}: {what}; the archive cannot be relied upon: use a backup's own point as target, in another bucket")]
    Contradiction {
        /// The object.
        key: Key,
        /// What does not fit.
        what: String,
    },
    /// The target cannot be reached.
    #[error("{0}")]
    Refused(Refusal),
    /// There are backups, and none of them is complete and can be read.
    #[error("{}; these cannot be read: {unreadable}", Refusal::NoBase)]
    NoneReadable {
        /// What is wrong with them.
        unreadable: String,
    },
    /// A segment is in the index and not in the store.
    #[error("the segment {key} is missing in the store; the latest point that can be reached without it is {reach}")]
    SegmentMissing {
        /// Which.
        key: String,
        /// How far a recovery could go.
        reach: String,
    },
    /// What is stored was encrypted for another key.
    #[error("failed to decrypt {what}: it was encrypted for {key_id}, and {given}; give that key's private part")]
    Key {
        /// What.
        what: String,
        /// For which public key.
        key_id: String,
        /// Which keys were given.
        given: String,
    },
}

impl CatalogError {
    /// Whether the same may succeed later without anybody doing something.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Store(error) if error.may_pass())
    }
}

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBackup {
    /// What its manifest says.
    pub manifest: BackupManifest,
    /// All of its files are there, each of the right size.
    pub complete: bool,
}

/// One reign of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReign {
    /// What its manifest says.
    pub manifest: ReignManifest,
    /// Its segments, in order.
    pub segments: Vec<Segment>,
    /// Until when it is whole, if that was said: later than its last transaction.
    pub through: Option<Timestamp>,
}

/// What a cluster has stored.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Which cluster.
    pub cluster: ClusterIdentity,
    /// Its backups.
    pub backups: Vec<StoredBackup>,
    /// Its archive, by epoch.
    pub reigns: Vec<StoredReign>,
    /// Backups that cannot be read, and why.
    pub unreadable: Vec<String>,
}

/// Finds the cluster whose data are to be recovered.
///
/// # Errors
/// There is none of that name, or more than one and none is named by its uid.
pub async fn find(store: &dyn Store, source: &RecoverySource) -> Result<ClusterIdentity, CatalogError> {
    let (namespace, name) = (source.namespace.clone(), source.name.clone());
    let folder = Folder::parse(&format!("{namespace}/{name}"))?;
    let uids = folders(store, &folder).await?;
    let mut uids: Vec<String> = uids.iter().map(|uid| uid.name().to_owned()).collect();
    if let Some(uid) = &source.uid {
        uids.retain(|found| found == uid);
    }
    match uids.as_slice() {
        [uid] => Ok(ClusterIdentity::new(&namespace, &name, uid)?),
        [] => Err(CatalogError::NoCluster {
            found: found_instead(store, source).await?,
            namespace,
            name,
        }),
        _ => Err(CatalogError::Several {
            namespace,
            name,
            uids: uids.join(", "),
        }),
    }
}

/// What a person may have meant.
async fn found_instead(store: &dyn Store, source: &RecoverySource) -> Result<String, CatalogError> {
    const SHOWN: usize = 8;
    let mut names = Vec::new();
    for namespace in folders(store, &Folder::root()).await?.into_iter().take(SHOWN) {
        let clusters = folders(store, &namespace).await?;
        names.extend(
            clusters
                .iter()
                .map(|cluster| format!("{}/{}", namespace.name(), cluster.name())),
        );
    }
    names.truncate(SHOWN);
    let uid = source
        .uid
        .as_ref()
        .map(|uid| format!("no uid {uid}, and "))
        .unwrap_or_default();
    Ok(match names.as_slice() {
        [] => format!("{uid}no cluster at all is there"),
        names => format!("{uid}found {}", names.join(", ")),
    })
}

async fn folders(store: &dyn Store, folder: &Folder) -> Result<Vec<Folder>, StoreError> {
    let entries = store.list_all(Listing::shallow(folder.clone())).await?;
    let folder = |entry| match entry {
        Entry::Folder(folder) => Some(folder),
        Entry::Object(_) => None,
    };
    Ok(entries.into_iter().filter_map(folder).collect())
}

/// The objects of a folder with their sizes.
async fn sizes(store: &dyn Store, listing: Listing) -> Result<BTreeMap<Key, u64>, StoreError> {
    let object = |entry| async move {
        Ok(match entry {
            Entry::Object(object) => Some((object.key, object.size)),
            Entry::Folder(_) => None,
        })
    };
    store.list(listing).try_filter_map(object).try_collect().await
}

impl Catalog {
    /// Reads everything that is needed to plan a recovery; no data, and no segment.
    ///
    /// # Errors
    /// The store fails, or a part of the archive cannot be read, or contradicts another one.
    pub async fn read(store: &dyn Store, cluster: ClusterIdentity) -> Result<Self, CatalogError> {
        let mut catalog = Self {
            backups: Vec::new(),
            reigns: Vec::new(),
            unreadable: Vec::new(),
            cluster,
        };
        catalog.read_backups(store).await?;
        catalog.read_archive(store).await?;
        Ok(catalog)
    }

    async fn read_backups(&mut self, store: &dyn Store) -> Result<(), CatalogError> {
        let objects = sizes(store, Listing::all(self.cluster.backups())).await?;
        let ids = folders(store, &self.cluster.backups()).await?;
        for id in ids.iter().filter_map(BackupId::of_folder) {
            let key = self.cluster.backup_manifest(&id);
            if !objects.contains_key(&key) {
                // Not complete: the manifest is written last.
                continue;
            }
            let json = match store.get(&key, LIMIT).await {
                // It was deleted in between.
                Err(StoreError::NotFound { .. }) => continue,
                // The store itself says that it is not what was stored: another backup serves as well.
                Err(error @ StoreError::Corrupt { .. }) => {
                    self.unreadable.push(error.to_string());
                    continue;
                }
                other => other?,
            };
            match BackupManifest::from_json(&json) {
                Ok(manifest) if manifest.id == id && manifest.cluster == self.cluster => {
                    let folder = self.cluster.backup(&id);
                    let there = |file: &StoredFile| {
                        let key = folder.key(&file.name);
                        key.is_ok_and(|key| objects.get(&key) == Some(&file.size))
                    };
                    let complete = !manifest.files.is_empty() && manifest.files.iter().all(there);
                    self.backups.push(StoredBackup { manifest, complete });
                }
                Ok(manifest) => {
                    let (cluster, id) = (&manifest.cluster, &manifest.id);
                    let (namespace, name, uid) = (cluster.namespace(), cluster.name(), cluster.uid());
                    self.unreadable
                        .push(format!("{key}: it is of backup {id} of {namespace}/{name}/{uid}"));
                }
                Err(error) => self.unreadable.push(format!("{key}: {error}")),
            }
        }
        Ok(())
    }

    async fn read_archive(&mut self, store: &dyn Store) -> Result<(), CatalogError> {
        let reigns = folders(store, &self.cluster.binlogs()).await?;
        let mut epochs: Vec<u64> = reigns.iter().filter_map(epoch_of).collect();
        epochs.sort_unstable();
        for epoch in epochs {
            let reign = self.read_reign(store, epoch).await?;
            self.reigns.push(reign);
        }
        Ok(())
    }

    async fn read_reign(&self, store: &dyn Store, epoch: u64) -> Result<StoredReign, CatalogError> {
        let key = self.cluster.reign_manifest(epoch);
        let contradiction = |key: &Key, what: &str| CatalogError::Contradiction {
            key: key.clone(),
            what: what.to_owned(),
        };
        let json = match store.get(&key, LIMIT).await {
            Err(StoreError::NotFound { .. }) => {
                return Err(contradiction(
                    &key,
                    "it is missing, though there is something of that reign",
                ));
            }
            other => other?,
        };
        let manifest = ReignManifest::from_json(&json).map_err(|source| CatalogError::Unreadable {
            key: key.clone(),
            source,
        })?;
        if manifest.epoch != epoch || manifest.cluster != self.cluster {
            return Err(contradiction(&key, "it is of another reign or cluster"));
        }
        // Before the segments: what was committed later than that may be stored after they were listed.
        let through = self.through(store, epoch).await?;
        let indexes = self.indexes(store, epoch).await?;
        let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
        for (key, index) in indexes {
            if index.epoch != epoch || index.cluster != self.cluster || index.server_uuid != manifest.server_uuid {
                return Err(contradiction(&key, "it is of another reign, cluster or server"));
            }
            for segment in index.segments {
                let told: GtidSet = segment.transactions.iter().map(|it| it.gtid.clone()).collect();
                if told != segment.gtids {
                    return Err(contradiction(&key, "a segment's transactions are not its GTID set"));
                }
                let before = segments.insert(segment.sequence, segment.clone());
                if before.is_some_and(|before| before != segment) {
                    return Err(contradiction(&key, "another index says something else of a segment"));
                }
            }
        }
        Ok(StoredReign {
            manifest,
            segments: segments.into_values().collect(),
            through,
        })
    }

    /// Until when a reign is whole, as its primary said while nothing was committed.
    async fn through(&self, store: &dyn Store, epoch: u64) -> Result<Option<Timestamp>, CatalogError> {
        let key = self.cluster.reign_through(epoch);
        let json = match store.get(&key, LIMIT).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            other => other?,
        };
        let through = ArchivedThrough::from_json(&json).map_err(|source| CatalogError::Unreadable {
            key: key.clone(),
            source,
        })?;
        if through.epoch != epoch || through.cluster != self.cluster {
            return Err(CatalogError::Contradiction {
                key,
                what: "it is of another reign or cluster".to_owned(),
            });
        }
        Ok(Some(through.time))
    }

    /// The indexes of a reign. One that is part of a larger one is deleted when that is there, so one that was listed and is
    /// gone is looked for in a newer listing.
    async fn indexes(&self, store: &dyn Store, epoch: u64) -> Result<Vec<(Key, SegmentIndex)>, CatalogError> {
        let mut listings = 1;
        loop {
            let listed = sizes(store, Listing::all(self.cluster.segment_indexes(epoch))).await?;
            let read = stream::iter(needed(listed.into_keys())).map(|key| async move {
                let json = store.get(&key, LIMIT).await?;
                let index = SegmentIndex::from_json(&json).map_err(|source| CatalogError::Unreadable {
                    key: key.clone(),
                    source,
                })?;
                Ok::<_, CatalogError>((key, index))
            });
            let read: Result<Vec<(Key, SegmentIndex)>, CatalogError> = read.buffered(AT_ONCE).try_collect().await;
            match read {
                Err(CatalogError::Store(StoreError::NotFound { .. })) if listings < LISTINGS => listings += 1,
                other => return other,
            }
        }
    }

    /// The backups that a recovery can begin with.
    #[must_use]
    pub fn bases(&self) -> Vec<Base> {
        let base = |backup: &StoredBackup| Base {
            id: backup.manifest.id.to_string(),
            executed: backup.manifest.gtid_executed.clone(),
            completed_at: backup.manifest.completed_at,
            complete: backup.complete,
            method: backup.manifest.method,
        };
        self.backups.iter().map(base).collect()
    }

    /// The archive as a recovery is planned with it.
    #[must_use]
    pub fn archive(&self) -> Archive {
        self.archive_without(&BTreeSet::new())
    }

    /// The archive without some of its segments, by key.
    fn archive_without(&self, missing: &BTreeSet<String>) -> Archive {
        let ends = self
            .reigns
            .iter()
            .skip(1)
            .map(|next| Some(next.manifest.baseline.clone()));
        let reigns = self.reigns.iter().zip(ends.chain([None]));
        let reigns: Vec<restore::Reign> = reigns
            .map(|(reign, until)| restore::Reign {
                epoch: reign.manifest.epoch,
                until,
                segments: self.segments(reign, missing),
            })
            .collect();
        let last = reigns.iter().rev().find_map(|reign| {
            let transactions = reign.segments.iter().flat_map(|segment| &segment.transactions);
            let valid = transactions.filter(|transaction| {
                let until = reign.until.as_ref();
                until.is_none_or(|until| until.contains_gtid(&transaction.gtid))
            });
            valid.map(|transaction| transaction.committed_at).max()
        });
        // Of an older reign only its transactions count: it may have been cut off when it wrote that nothing was committed.
        let said = self.reigns.last().and_then(|newest| newest.through);
        Archive {
            reigns,
            through: last.max(said),
        }
    }

    fn segments(&self, reign: &StoredReign, missing: &BTreeSet<String>) -> Vec<restore::Segment> {
        let epoch = reign.manifest.epoch;
        let segments = reign.segments.iter().map(|segment| restore::Segment {
            key: self.segment_key(epoch, segment).to_string(),
            before: segment.previous.clone(),
            transactions: segment
                .transactions
                .iter()
                .map(|transaction| restore::Transaction {
                    gtid: transaction.gtid.clone(),
                    committed_at: Timestamp::from_microsecond(transaction.at).unwrap_or(Timestamp::MAX),
                })
                .collect(),
        });
        segments.filter(|segment| !missing.contains(&segment.key)).collect()
    }

    fn segment_key(&self, epoch: u64, segment: &Segment) -> Key {
        self.cluster
            .segment(epoch, segment.sequence, segment.encryption.is_some())
    }

    /// Plans a recovery, and proves that everything it needs is there and can be decrypted. Nothing was made yet when it is
    /// refused.
    ///
    /// # Errors
    /// The target cannot be reached exactly: the error says how far a recovery could go.
    pub async fn plan(
        &self,
        store: &dyn Store,
        target: &Target,
        keys: &[PrivateKey],
    ) -> Result<PlannedRecovery, CatalogError> {
        let recovery = restore::plan(&self.bases(), &self.archive(), target).map_err(|refusal| match refusal {
            Refusal::NoBase if !self.unreadable.is_empty() => CatalogError::NoneReadable {
                unreadable: self.unreadable.join("; "),
            },
            refusal => CatalogError::Refused(refusal),
        })?;
        let Some(base) = self
            .backups
            .iter()
            .find(|backup| backup.manifest.id.as_str() == recovery.base)
        else {
            return Err(CatalogError::Refused(Refusal::NoBase));
        };
        let base = base.manifest.clone();
        key_for(base.encryption.as_ref(), keys, || format!("backup {}", base.id))?;
        let mut steps = Vec::new();
        for step in &recovery.steps {
            let reign = self.reigns.iter().find(|reign| reign.manifest.epoch == step.epoch);
            let by_key: BTreeMap<String, &Segment> = reign
                .into_iter()
                .flat_map(|reign| &reign.segments)
                .map(|segment| (self.segment_key(step.epoch, segment).to_string(), segment))
                .collect();
            let segments: Vec<Segment> = step
                .segments
                .iter()
                .filter_map(|key| by_key.get(key).map(|segment| (*segment).clone()))
                .collect();
            self.all_there(store, step.epoch, &segments, target).await?;
            for segment in &segments {
                key_for(segment.encryption.as_ref(), keys, || {
                    self.segment_key(step.epoch, segment).to_string()
                })?;
            }
            steps.push(PlannedStep {
                epoch: step.epoch,
                segments,
                before: step.before.clone(),
            });
        }
        Ok(PlannedRecovery {
            cluster: self.cluster.clone(),
            base,
            steps,
            plan: recovery,
        })
    }

    /// Every segment of a step is in the store, of the size that its index says.
    async fn all_there(
        &self,
        store: &dyn Store,
        epoch: u64,
        segments: &[Segment],
        target: &Target,
    ) -> Result<(), CatalogError> {
        let Some(first) = segments.first() else { return Ok(()) };
        let key = self.segment_key(epoch, first);
        let folder = Folder::parse(key.as_str().rsplit_once('/').map_or("", |(folder, _)| folder))?;
        // Only keys that sort behind a key are listed: the one before the first, which need not exist.
        let after = self.cluster.segment(epoch, first.sequence.saturating_sub(1), true);
        let listing = Listing {
            after: Some(after),
            ..Listing::all(folder)
        };
        let there = sizes(store, listing).await?;
        let lost = |segment: &&Segment| there.get(&self.segment_key(epoch, segment)) != Some(&segment.file.size);
        let lost: BTreeSet<String> = segments
            .iter()
            .filter(lost)
            .map(|segment| self.segment_key(epoch, segment).to_string())
            .collect();
        let Some(key) = lost.first().cloned() else {
            return Ok(());
        };
        let without = restore::plan(&self.bases(), &self.archive_without(&lost), target);
        let reach = match without {
            Ok(recovery) => recovery.reaches.to_string(),
            Err(Refusal::Hole { reach, .. } | Refusal::Beyond { reach }) => reach.to_string(),
            Err(refusal) => refusal.to_string(),
        };
        Err(CatalogError::SegmentMissing { key, reach })
    }
}

/// Of the indexes of a reign those that are not part of a larger one.
fn needed(keys: impl Iterator<Item = Key>) -> Vec<Key> {
    let mut ranges: Vec<(u64, u64, Key)> = keys
        .filter_map(|key| segments_of(&key).map(|(first, last)| (first, last, key)))
        .collect();
    ranges.sort_by(|a, b| (a.0, b.1).cmp(&(b.0, a.1)));
    let mut through: Option<u64> = None;
    ranges.retain(|(_, last, _)| {
        let more = through.is_none_or(|through| *last > through);
        through = through.max(Some(*last));
        more
    });
    ranges.into_iter().map(|(_, _, key)| key).collect()
}

/// The private key that opens something; `None` when it is not encrypted.
///
/// # Errors
/// It was encrypted for a key that is not among the given ones.
pub fn key_for<'a>(
    encryption: Option<&Encryption>,
    keys: &'a [PrivateKey],
    what: impl Fn() -> String,
) -> Result<Option<&'a PrivateKey>, CatalogError> {
    let Some(encryption) = encryption else { return Ok(None) };
    let ids: Vec<String> = keys.iter().map(|key| key.recipient().key_id()).collect();
    let place = ids.iter().position(|id| *id == encryption.key_id);
    match place.and_then(|place| keys.get(place)) {
        Some(key) => Ok(Some(key)),
        None => Err(CatalogError::Key {
            what: what(),
            key_id: encryption.key_id.clone(),
            given: if ids.is_empty() {
                "no key was given".to_owned()
            } else {
                format!("the given keys are those of {}", ids.join(", "))
            },
        }),
    }
}

/// A recovery of which everything is known to be there.
#[derive(Clone, Debug)]
pub struct PlannedRecovery {
    /// Whose data.
    pub cluster: ClusterIdentity,
    /// The backup with which it begins.
    pub base: BackupManifest,
    /// What is replayed on it, in order.
    pub steps: Vec<PlannedStep>,
    /// The plan, with the point that is reached.
    pub plan: Recovery,
}

/// Segments of one reign that are replayed together.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// The reign.
    pub epoch: u64,
    /// The segments, in order.
    pub segments: Vec<Segment>,
    /// The first transaction that is not wanted any more; absent: all of them are.
    pub before: Option<mainstay_core::gtid::Gtid>,
}

impl PlannedRecovery {
    /// Folder of the base's files.
    #[must_use]
    pub fn base_folder(&self) -> Folder {
        self.cluster.backup(&self.base.id)
    }

    /// Bytes of all segments before compression.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        let segments = self.steps.iter().flat_map(|step| &step.segments);
        segments.fold(0, |sum, segment| sum.saturating_add(segment.uncompressed_bytes))
    }

    /// The content of a segment: a binlog. It ends with an error if it is not what was stored, so it is read to the end before
    /// anything of it is used.
    ///
    /// # Errors
    /// The store, or the wrong key.
    pub async fn segment(
        &self,
        store: &dyn Store,
        epoch: u64,
        segment: &Segment,
        keys: &[PrivateKey],
    ) -> Result<Body, ArchiveError> {
        let encrypted = segment.encryption.is_some();
        let key = self.cluster.segment(epoch, segment.sequence, encrypted);
        let private =
            key_for(segment.encryption.as_ref(), keys, || key.to_string()).map_err(|error| ArchiveError::Key {
                reason: error.to_string(),
            })?;
        let download = store.get_stream(&key, Span::ALL).await.map_err(ArchiveError::Store)?;
        open(download.body, &segment.file, private).await
    }
}

#[cfg(test)]
mod tests;
