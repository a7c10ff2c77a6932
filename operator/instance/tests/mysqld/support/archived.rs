//! The archive of a cluster, read as somebody would who has nothing but the store, and judged as a recovery is planned.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::keys::{epoch_of, segments_of};
use mainstay_core::backup::manifest::{Method, ReignManifest, Segment, SegmentIndex};
use mainstay_core::backup::restore::{Archive, Base, Recovery, Refusal, Target, plan};
use mainstay_core::backup::{ClusterIdentity, Key};
use mainstay_mysql::binlog::{Found, Scanner};
use mainstay_store::archive::{PrivateKey, open_bytes};
use mainstay_store::catalog::Catalog;
use mainstay_store::{Entry, Listing, Store};

/// No document and no segment of a test is larger.
const LIMIT: u64 = 1 << 30;

/// What a primary archived.
pub(crate) struct Reign {
    pub(crate) manifest: ReignManifest,
    /// By their numbers, from all indexes.
    pub(crate) segments: BTreeMap<u64, Segment>,
}

/// Everything that was archived.
pub(crate) struct Archived {
    pub(crate) reigns: Vec<Reign>,
    /// As a recovery sees it.
    archive: Archive,
    cluster: ClusterIdentity,
}

impl Archived {
    pub(crate) async fn read(store: &dyn Store, cluster: &ClusterIdentity) -> Self {
        let mut epochs = Vec::new();
        for entry in store.list_all(Listing::shallow(cluster.binlogs())).await.unwrap() {
            if let Entry::Folder(folder) = entry {
                epochs.push(epoch_of(&folder).unwrap());
            }
        }
        let mut reigns = Vec::new();
        for epoch in epochs {
            reigns.push(reign(store, cluster, epoch).await);
        }
        let catalog = Catalog::read(store, cluster.clone()).await.unwrap();
        Self {
            reigns,
            archive: catalog.archive(),
            cluster: cluster.clone(),
        }
    }

    /// A recovery of everything, on a backup that holds `base`.
    pub(crate) fn recovery(&self, base: &GtidSet) -> Result<Recovery, Refusal> {
        let base = Base {
            id: "base".to_owned(),
            executed: base.clone(),
            completed_at: Timestamp::UNIX_EPOCH,
            complete: true,
            method: Method::Physical,
        };
        plan(&[base], &self.archive, &Target::Latest)
    }

    /// What a recovery on an empty server reaches. There is no hole.
    #[track_caller]
    pub(crate) fn reaches(&self) -> GtidSet {
        self.recovery(&GtidSet::new()).expect("there is no hole").reaches
    }

    /// Everything that is in some segment.
    pub(crate) fn stored(&self) -> GtidSet {
        let segments = self.reigns.iter().flat_map(|reign| reign.segments.values());
        segments.fold(GtidSet::new(), |set, segment| set.union(&segment.gtids))
    }

    /// Reads every segment: each is a binlog of its own that holds what its index says.
    pub(crate) async fn files(&self, store: &dyn Store, private: Option<&PrivateKey>) -> Vec<Vec<u8>> {
        let mut files = Vec::new();
        for reign in &self.reigns {
            for segment in reign.segments.values() {
                let encrypted = segment.encryption.is_some();
                let key = self.cluster.segment(reign.manifest.epoch, segment.sequence, encrypted);
                assert_eq!(segment.file.name, key.file_name());
                let sealed = store.get(&key, LIMIT).await.unwrap();
                let file = open_bytes(sealed, &segment.file, private, LIMIT).await.unwrap();
                check(segment, &file);
                files.push(file);
            }
        }
        files
    }
}

fn check(segment: &Segment, file: &[u8]) {
    assert_eq!(segment.uncompressed_bytes, file.len() as u64);
    let mut found = Vec::new();
    Scanner::new().feed(file, &mut found).unwrap();
    let mut transactions = Vec::new();
    for found in found {
        match found {
            Found::Format(_) => {}
            Found::Previous(previous) => assert_eq!(previous, segment.previous),
            Found::Transaction(transaction) => transactions.push((transaction.gtid, transaction.at)),
            Found::Rotated(_) | Found::Stopped => panic!("a segment ends with a transaction"),
        }
    }
    let told = segment.transactions.iter();
    let told: Vec<_> = told
        .map(|transaction| (transaction.gtid.clone(), transaction.at))
        .collect();
    assert_eq!(transactions, told);
    let gtids: GtidSet = transactions.into_iter().map(|(gtid, _)| gtid).collect();
    assert_eq!(gtids, segment.gtids);
}

async fn reign(store: &dyn Store, cluster: &ClusterIdentity, epoch: u64) -> Reign {
    let json = store.get(&cluster.reign_manifest(epoch), LIMIT).await;
    let manifest = ReignManifest::from_json(&json.expect("a reign has a manifest")).unwrap();
    assert_eq!((manifest.epoch, &manifest.cluster), (epoch, cluster));
    loop {
        let folder = Listing::shallow(cluster.segment_indexes(epoch));
        let keys: Vec<Key> = store
            .list_all(folder)
            .await
            .unwrap()
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Object(object) => Some(object.key),
                Entry::Folder(_) => None,
            })
            .collect();
        if let Some(segments) = segments(store, &manifest, &keys).await {
            return Reign { manifest, segments };
        }
    }
}

/// `None` when indexes were merged in the meantime.
async fn segments(store: &dyn Store, manifest: &ReignManifest, keys: &[Key]) -> Option<BTreeMap<u64, Segment>> {
    let mut segments = BTreeMap::new();
    for key in keys {
        let index = SegmentIndex::from_json(&store.get(key, LIMIT).await.ok()?).unwrap();
        assert_eq!(
            (index.epoch, &index.cluster, &index.server_uuid),
            (manifest.epoch, &manifest.cluster, &manifest.server_uuid)
        );
        let (first, last) = segments_of(key).unwrap();
        for segment in index.segments {
            assert!((first..=last).contains(&segment.sequence));
            let before = segments.insert(segment.sequence, segment.clone());
            assert!(before.is_none_or(|before| before == segment), "indexes say the same");
        }
    }
    Some(segments)
}
