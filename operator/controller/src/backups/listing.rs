//! Reading what is in the folder of a cluster, and deleting in it.
//!
//! Of the archive only the beginning is read, up to the first segment that a backup needs: nothing behind it is ever deleted.

use std::collections::BTreeSet;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::ManifestError;
use mainstay_core::backup::plan::Listing;
use mainstay_core::backup::retention::{Folder as OwnFolder, NoFolder, SegmentUse, State, Stored};
use mainstay_core::backup::{
    BackupId, BackupManifest, ClusterIdentity, Folder, InvalidKey, Key, ReignManifest, SegmentIndex, keys,
};
use mainstay_store::{Entry, Listing as Range, Store, StoreError};

/// No manifest and no index is longer, in bytes.
const LONGEST: u64 = 16 << 20;
/// Segments that are looked at in one listing.
const SEGMENTS: usize = 1000;
/// How often the archive is listed again when an index was merged into another one meanwhile.
const LISTINGS: usize = 5;

/// Why a store could not be read, or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListingError {
    /// The store.
    #[error(transparent)]
    Store(StoreError),
    /// A name that no store can hold.
    #[error(transparent)]
    Key(InvalidKey),
    /// The folder of the cluster.
    #[error(transparent)]
    Folder(NoFolder),
    /// A document of the archive.
    #[error("{key}: {source}")]
    Document {
        /// Which.
        key: Key,
        /// What is wrong.
        source: ManifestError,
    },
}

/// What is in the folder of a cluster.
pub(crate) struct Contents {
    pub(crate) listing: Listing,
    /// Indexes of the segments in the listing, each with the key of the last segment that it describes.
    indexes: Vec<(Key, String)>,
}

/// Reads it.
pub(crate) async fn read(store: &dyn Store, cluster: &ClusterIdentity) -> Result<Contents, ListingError> {
    let backups = backups(store, cluster).await?;
    let beginning = if backups.iter().any(|backup| backup.state == State::Unreadable) {
        // Nothing of the archive is deleted then.
        Beginning::default()
    } else {
        settled_beginning(store, cluster, &backups).await?
    };
    Ok(Contents {
        listing: Listing::Known {
            folder: OwnFolder::new(cluster.folder().as_str()).map_err(ListingError::Folder)?,
            backups,
            segments: beginning.segments,
        },
        indexes: beginning.indexes,
    })
}

async fn backups(store: &dyn Store, cluster: &ClusterIdentity) -> Result<Vec<Stored>, ListingError> {
    let mut found = Vec::new();
    let folders = store.list_all(Range::shallow(cluster.backups())).await;
    for entry in folders.map_err(ListingError::Store)? {
        // What has another name was not put there by Mainstay, and is nobody's business.
        if let Entry::Folder(folder) = entry
            && let Some(id) = BackupId::of_folder(&folder)
        {
            found.extend(backup(store, cluster, &id).await?);
        }
    }
    Ok(found)
}

async fn backup(store: &dyn Store, cluster: &ClusterIdentity, id: &BackupId) -> Result<Option<Stored>, ListingError> {
    let stored = |schedule, state| {
        Some(Stored {
            id: id.to_string(),
            schedule,
            state,
        })
    };
    match store.get(&cluster.backup_manifest(id), LONGEST).await {
        Ok(json) => Ok(match BackupManifest::from_json(&json) {
            Ok(manifest) => stored(
                manifest.schedule,
                State::Complete {
                    at: manifest.completed_at,
                    executed: manifest.gtid_executed,
                },
            ),
            Err(error) => {
                tracing::warn!(%id, %error, "the manifest of a backup cannot be read");
                stored(None, State::Unreadable)
            }
        }),
        Err(StoreError::NotFound { .. }) => {
            let objects = store.list_all(Range::all(cluster.backup(id))).await;
            let newest = newest(&objects.map_err(ListingError::Store)?);
            Ok(newest.and_then(|at| stored(None, State::Leftover { at })))
        }
        Err(StoreError::Corrupt { .. } | StoreError::TooLarge { .. }) => Ok(stored(None, State::Unreadable)),
        Err(error) => Err(ListingError::Store(error)),
    }
}

fn newest(entries: &[Entry]) -> Option<Timestamp> {
    let objects = entries.iter().filter_map(|entry| match entry {
        Entry::Object(object) => Some(object.modified),
        Entry::Folder(_) => None,
    });
    objects.max()
}

#[derive(Default)]
struct Beginning {
    segments: Vec<SegmentUse>,
    indexes: Vec<(Key, String)>,
}

/// The same as [`beginning`], of an archive whose indexes are being merged.
async fn settled_beginning(
    store: &dyn Store,
    cluster: &ClusterIdentity,
    backups: &[Stored],
) -> Result<Beginning, ListingError> {
    let mut listings = 1;
    loop {
        match beginning(store, cluster, backups).await {
            Err(ListingError::Store(StoreError::NotFound { .. })) if listings < LISTINGS => listings += 1,
            result => return result,
        }
    }
}

/// The beginning of the archive, up to and including the first segment that a backup needs.
async fn beginning(
    store: &dyn Store,
    cluster: &ClusterIdentity,
    backups: &[Stored],
) -> Result<Beginning, ListingError> {
    let holds: Vec<&GtidSet> = backups
        .iter()
        .filter_map(|backup| match &backup.state {
            State::Complete { executed, .. } => Some(executed),
            State::Running | State::Leftover { .. } | State::Unreadable => None,
        })
        .collect();
    let mut beginning = Beginning::default();
    if holds.is_empty() {
        return Ok(beginning);
    }
    let reigns = store.list_all(Range::shallow(cluster.binlogs())).await;
    let reigns = reigns.map_err(ListingError::Store)?;
    let mut epochs: Vec<u64> = reigns
        .iter()
        .filter_map(|entry| match entry {
            Entry::Folder(folder) => keys::epoch_of(folder),
            Entry::Object(_) => None,
        })
        .collect();
    epochs.sort_unstable();
    for (place, epoch) in epochs.iter().enumerate() {
        // Valid up to the baseline of the next reign (decision A8); what was never acknowledged is needed by nobody.
        let until = match epochs.get(place + 1) {
            Some(next) => Some(reign(store, cluster, *next).await?.baseline),
            None => None,
        };
        if !of_reign(store, cluster, *epoch, until.as_ref(), &holds, &mut beginning).await? {
            break;
        }
    }
    Ok(beginning)
}

async fn reign(store: &dyn Store, cluster: &ClusterIdentity, epoch: u64) -> Result<ReignManifest, ListingError> {
    let key = cluster.reign_manifest(epoch);
    let json = store.get(&key, LONGEST).await.map_err(ListingError::Store)?;
    ReignManifest::from_json(&json).map_err(|source| ListingError::Document { key, source })
}

/// Adds the segments of a reign; whether what follows may be needless, too.
async fn of_reign(
    store: &dyn Store,
    cluster: &ClusterIdentity,
    epoch: u64,
    until: Option<&GtidSet>,
    holds: &[&GtidSet],
    beginning: &mut Beginning,
) -> Result<bool, ListingError> {
    let mut seen = 0;
    for index in indexes(store, cluster, epoch).await? {
        let Some((_, last)) = keys::segments_of(&index).filter(|(_, last)| *last > seen) else {
            // An index of many segments stands beside those of fewer.
            if let Some(key) = beginning.segments.last().map(|segment| segment.key.clone()) {
                beginning.indexes.push((index, key));
            }
            continue;
        };
        let json = store.get(&index, LONGEST).await.map_err(ListingError::Store)?;
        let document = SegmentIndex::from_json(&json).map_err(|source| ListingError::Document {
            key: index.clone(),
            source,
        })?;
        for segment in document.segments.iter().filter(|segment| segment.sequence > seen) {
            let valid = until.map_or_else(|| segment.gtids.clone(), |until| segment.gtids.intersect(until));
            let needed = holds.iter().any(|executed| !executed.contains(&valid));
            let key = cluster.segment(epoch, segment.sequence, segment.encryption.is_some());
            let last = segment.transactions.last().map(|transaction| transaction.at);
            beginning.segments.push(SegmentUse {
                key: key.to_string(),
                valid,
                at: last
                    .and_then(|micros| Timestamp::from_microsecond(micros).ok())
                    .unwrap_or(Timestamp::UNIX_EPOCH),
            });
            if needed || beginning.segments.len() >= SEGMENTS {
                return Ok(false);
            }
        }
        if let Some(segment) = beginning.segments.last() {
            beginning.indexes.push((index, segment.key.clone()));
        }
        seen = last;
    }
    Ok(true)
}

/// The indexes of a reign, by their first segment; of those that begin alike the one that describes most comes first.
async fn indexes(store: &dyn Store, cluster: &ClusterIdentity, epoch: u64) -> Result<Vec<Key>, ListingError> {
    let entries = store.list_all(Range::shallow(cluster.segment_indexes(epoch))).await;
    let entries = entries.map_err(ListingError::Store)?;
    let mut indexes: Vec<(u64, u64, Key)> = entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Object(object) => {
                let (first, last) = keys::segments_of(&object.key)?;
                Some((first, last, object.key))
            }
            Entry::Folder(_) => None,
        })
        .collect();
    indexes.sort_by(|(first, last, _), (other, longest, _)| (first, longest).cmp(&(other, last)));
    Ok(indexes.into_iter().map(|(_, _, key)| key).collect())
}

impl Contents {
    /// Deletes segments, then the indexes that describe nothing else. `folder` is the last gate: nothing outside of it is touched.
    pub(crate) async fn prune(
        &self,
        store: &dyn Store,
        folder: &OwnFolder,
        segments: &[String],
    ) -> Result<(), ListingError> {
        let gone: BTreeSet<&String> = segments.iter().collect();
        let indexes = self.indexes.iter().filter(|(_, last)| gone.contains(last));
        let indexes: Vec<String> = indexes.map(|(index, _)| index.to_string()).collect();
        for keys in [segments, &indexes] {
            let keys: Result<Vec<Key>, InvalidKey> = folder.only(keys).iter().map(|key| Key::parse(key)).collect();
            let keys = keys.map_err(ListingError::Key)?;
            store.delete_all(&keys).await.map_err(ListingError::Store)?;
        }
        Ok(())
    }
}

/// Deletes a backup, manifest first, and what was begun to be uploaded to it. `own` is the last gate.
pub(crate) async fn delete_backup(
    store: &dyn Store,
    cluster: &ClusterIdentity,
    id: &BackupId,
    own: &OwnFolder,
) -> Result<(), ListingError> {
    let folder: Folder = cluster.backup(id);
    let manifest = cluster.backup_manifest(id);
    let inside = |key: &Key| own.holds(key.as_str()) && folder.holds(key);
    if !inside(&manifest) {
        return Ok(());
    }
    store.delete(&manifest).await.map_err(ListingError::Store)?;
    let objects = store.list_all(Range::all(folder.clone())).await;
    let objects = objects.map_err(ListingError::Store)?;
    let keys: Vec<Key> = objects
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Object(object) => Some(object.key),
            Entry::Folder(_) => None,
        })
        .filter(inside)
        .collect();
    store.delete_all(&keys).await.map_err(ListingError::Store)?;
    let uploads = store.incomplete(&folder).await.map_err(ListingError::Store)?;
    for upload in uploads {
        if inside(&upload.key) {
            store.abort(&upload).await.map_err(ListingError::Store)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mainstay_core::backup::manifest::{ArchivedTransaction, FORMAT, Method, Segment, StoredFile};
    use mainstay_store::{Existing, Memory};

    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn cluster(name: &str) -> ClusterIdentity {
        ClusterIdentity::new("prod", name, "u1").unwrap()
    }

    fn set(numbers: &str) -> GtidSet {
        format!("{UUID}:{numbers}").parse().unwrap()
    }

    async fn put(store: &Memory, key: &Key, content: Vec<u8>) {
        store.put(key, content.into(), Existing::Keep).await.unwrap();
    }

    async fn put_backup(store: &Memory, cluster: &ClusterIdentity, id: &str, executed: &str) {
        let id = BackupId::parse(id).unwrap();
        put(store, &cluster.backup_data(&id, false), vec![1; 10]).await;
        let manifest = BackupManifest {
            format: FORMAT,
            id: id.clone(),
            name: None,
            schedule: Some("nightly".to_owned()),
            cluster: cluster.clone(),
            instance: "shop-1".to_owned(),
            mysql_version: "9.7.4".to_owned(),
            server_uuid: UUID.to_owned(),
            epoch: 1,
            gtid_executed: set(executed),
            started_at: Timestamp::UNIX_EPOCH,
            completed_at: Timestamp::UNIX_EPOCH,
            method: Method::Physical,
            files: Vec::new(),
            encryption: None,
            uncompressed_bytes: 1,
            data_bytes: None,
        };
        put(store, &cluster.backup_manifest(&id), manifest.to_json().unwrap()).await;
    }

    async fn put_reign(store: &Memory, cluster: &ClusterIdentity, epoch: u64, baseline: &str) {
        let reign = ReignManifest {
            format: FORMAT,
            cluster: cluster.clone(),
            epoch,
            instance: "shop-1".to_owned(),
            server_uuid: UUID.to_owned(),
            baseline: set(baseline),
            since: Timestamp::UNIX_EPOCH,
        };
        put(store, &cluster.reign_manifest(epoch), reign.to_json().unwrap()).await;
    }

    /// Segments from `first`, each with these transactions, and one index of them.
    async fn put_segments(store: &Memory, cluster: &ClusterIdentity, epoch: u64, first: u64, sets: &[&str]) {
        let mut segments = Vec::new();
        for (number, numbers) in (first..).zip(sets) {
            let key = cluster.segment(epoch, number, false);
            put(store, &key, vec![2; 10]).await;
            segments.push(Segment {
                sequence: number,
                file: StoredFile {
                    name: key.file_name().to_owned(),
                    size: 10,
                    sha256: String::new(),
                },
                uncompressed_bytes: 10,
                encryption: None,
                previous: GtidSet::new(),
                gtids: set(numbers),
                missing: GtidSet::new(),
                transactions: Vec::<ArchivedTransaction>::new(),
            });
        }
        let last = first + sets.len() as u64 - 1;
        let index = SegmentIndex {
            format: FORMAT,
            cluster: cluster.clone(),
            epoch,
            server_uuid: UUID.to_owned(),
            mysql_version: "9.7.4".to_owned(),
            segments,
        };
        put(
            store,
            &cluster.segment_index(epoch, first, last),
            index.to_json().unwrap(),
        )
        .await;
    }

    async fn keys(store: &Memory, folder: &str) -> Vec<String> {
        let entries = store
            .list_all(Range::all(Folder::parse(folder).unwrap()))
            .await
            .unwrap();
        let keys = entries.into_iter().filter_map(|entry| match entry {
            Entry::Object(object) => Some(object.key.as_str().trim_start_matches(folder).to_owned()),
            Entry::Folder(_) => None,
        });
        keys.collect()
    }

    #[tokio::test]
    async fn f22_only_the_clusters_own_folder_is_read_and_deleted_in() {
        let store = Memory::new();
        for name in ["shop", "shop-2"] {
            put_backup(&store, &cluster(name), "20261130t030000z-a", "1-5").await;
        }
        let leftover = BackupId::parse("20261130t040000z-b").unwrap();
        put(&store, &cluster("shop").backup_data(&leftover, true), vec![3; 10]).await;
        put(&store, &Key::parse("prod/shop/u1/backups/README.md").unwrap(), vec![4]).await;
        let contents = read(&store, &cluster("shop")).await.unwrap();
        let Listing::Known { folder, backups, .. } = &contents.listing else {
            panic!("{:?}", contents.listing);
        };
        let found: Vec<_> = backups
            .iter()
            .map(|stored| (stored.id.as_str(), stored.schedule.as_deref()))
            .collect();
        assert_eq!(
            found,
            [("20261130t030000z-a", Some("nightly")), ("20261130t040000z-b", None)]
        );
        assert!(matches!(backups[1].state, State::Leftover { .. }));

        let id = BackupId::parse("20261130t030000z-a").unwrap();
        // A folder that is not the cluster's stands in the way of everything.
        let other = OwnFolder::new("prod/shop-2/u1/").unwrap();
        delete_backup(&store, &cluster("shop"), &id, &other).await.unwrap();
        assert_eq!(keys(&store, "prod/shop/").await.len(), 4);
        delete_backup(&store, &cluster("shop"), &id, folder).await.unwrap();
        assert_eq!(
            keys(&store, "prod/shop/u1/").await,
            ["backups/20261130t040000z-b/data.tar.zst.age", "backups/README.md"]
        );
        assert_eq!(keys(&store, "prod/shop-2/").await.len(), 2);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_taken_for_nothing() {
        let store = Memory::new();
        let id = BackupId::parse("20261130t030000z-a").unwrap();
        put(&store, &cluster("shop").backup_manifest(&id), b"{".to_vec()).await;
        put_reign(&store, &cluster("shop"), 1, "1").await;
        put_segments(&store, &cluster("shop"), 1, 1, &["1-5"]).await;
        let contents = read(&store, &cluster("shop")).await.unwrap();
        let Listing::Known { backups, segments, .. } = contents.listing else {
            panic!("unknown");
        };
        assert_eq!(backups[0].state, State::Unreadable);
        assert_eq!(segments, []);
    }

    #[tokio::test]
    async fn the_beginning_of_the_archive_is_read_up_to_what_a_backup_needs() {
        let store = Memory::new();
        let shop = cluster("shop");
        put_backup(&store, &shop, "20261130t030000z-a", "1-20").await;
        put_reign(&store, &shop, 1, "1").await;
        put_reign(&store, &shop, 7, "1-12").await;
        put_segments(&store, &shop, 1, 1, &["2-5", "6-9"]).await;
        // What the first primary wrote beyond the baseline of the second was never acknowledged.
        put_segments(&store, &shop, 1, 3, &["10-40"]).await;
        put_segments(&store, &shop, 7, 1, &["13-20", "21-30", "31-35"]).await;
        let contents = read(&store, &shop).await.unwrap();
        let Listing::Known { folder, segments, .. } = &contents.listing else {
            panic!("unknown");
        };
        assert_eq!(segments.len(), 5, "{segments:#?}");
        assert_eq!(segments[2].valid, set("10-12"));
        let needless: Vec<String> = segments[..4].iter().map(|segment| segment.key.clone()).collect();
        contents.prune(&store, folder, &needless).await.unwrap();
        let left = keys(&store, "prod/shop/u1/binlogs/").await;
        let number = |number: u64| format!("{number:020}");
        assert_eq!(
            left,
            [
                format!("{}/reign.json", number(1)),
                format!("{}/index/{}-{}.json", number(7), number(1), number(3)),
                format!("{}/reign.json", number(7)),
                format!("{}/segments/{}.binlog.zst", number(7), number(2)),
                format!("{}/segments/{}.binlog.zst", number(7), number(3)),
            ]
        );
    }
}
