use std::ops::RangeInclusive;

use mainstay_core::backup::manifest::{ArchivedTransaction, FORMAT, Method, Scheme};
use mainstay_core::gtid::Gtid;

use super::*;
use crate::faults::{Failure, Fault, Operation};
use crate::memory::Memory;
use crate::port::Existing;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "7a26fa47-71ca-11e1-9e33-c80aa9429562";

fn cluster(uid: &str) -> ClusterIdentity {
    ClusterIdentity::new("prod", "shop", uid).unwrap()
}

fn source(namespace: &str, name: &str, uid: Option<&str>) -> RecoverySource {
    RecoverySource {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.map(ToOwned::to_owned),
    }
}

fn set(text: &str) -> GtidSet {
    text.parse().unwrap()
}

/// Second `seconds` of the time in which the tests live.
fn second(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap()
}

/// Transactions of a server, one a second from its own number on.
fn segment(sequence: u64, server: &str, before: &str, numbers: RangeInclusive<u64>) -> Segment {
    let transaction = |number: u64| ArchivedTransaction {
        gtid: format!("{server}:{number}").parse().unwrap(),
        at: second(number).as_microsecond(),
    };
    Segment {
        sequence,
        file: StoredFile {
            name: format!("{sequence:020}.binlog.zst"),
            size: 7,
            sha256: "ab".to_owned(),
        },
        uncompressed_bytes: 100,
        encryption: None,
        previous: set(before),
        gtids: set(&format!("{server}:{}-{}", numbers.start(), numbers.end())),
        missing: GtidSet::new(),
        transactions: numbers.map(transaction).collect(),
    }
}

/// A store with what a cluster has in it.
struct Bench {
    store: Memory,
    cluster: ClusterIdentity,
}

impl Bench {
    fn new() -> Self {
        Self {
            store: Memory::new(),
            cluster: cluster("6f1c"),
        }
    }

    async fn put(&self, key: &Key, content: impl Into<bytes::Bytes>) {
        self.store.put(key, content.into(), Existing::Replace).await.unwrap();
    }

    fn manifest(&self, id: &str, executed: &str, completed: u64) -> BackupManifest {
        BackupManifest {
            format: FORMAT,
            id: BackupId::parse(id).unwrap(),
            name: None,
            schedule: None,
            cluster: self.cluster.clone(),
            instance: "shop-1".to_owned(),
            mysql_version: "9.7.4".to_owned(),
            server_uuid: A.to_owned(),
            epoch: 1,
            gtid_executed: set(executed),
            started_at: second(completed),
            completed_at: second(completed),
            method: Method::Physical,
            files: vec![StoredFile {
                name: "data.tar.zst".to_owned(),
                size: 4,
                sha256: "ab".to_owned(),
            }],
            encryption: None,
            uncompressed_bytes: 1000,
            data_bytes: None,
        }
    }

    async fn put_manifest(&self, manifest: &BackupManifest) {
        self.put(&self.cluster.backup_manifest(&manifest.id), manifest.to_json().unwrap())
            .await;
    }

    async fn backup(&self, id: &str, executed: &str, completed: u64) {
        let manifest = self.manifest(id, executed, completed);
        self.put(&self.cluster.backup_data(&manifest.id, false), "data").await;
        self.put_manifest(&manifest).await;
    }

    async fn reign(&self, epoch: u64, server: &str, baseline: &str) {
        let manifest = ReignManifest {
            format: FORMAT,
            cluster: self.cluster.clone(),
            epoch,
            instance: "shop-0".to_owned(),
            server_uuid: server.to_owned(),
            baseline: set(baseline),
            since: second(0),
        };
        self.put(&self.cluster.reign_manifest(epoch), manifest.to_json().unwrap())
            .await;
    }

    async fn index(&self, epoch: u64, server: &str, segments: &[Segment]) {
        let (first, last) = (segments.first().unwrap().sequence, segments.last().unwrap().sequence);
        let index = SegmentIndex {
            format: FORMAT,
            cluster: self.cluster.clone(),
            epoch,
            server_uuid: server.to_owned(),
            mysql_version: "9.7.4".to_owned(),
            segments: segments.to_vec(),
        };
        self.put(
            &self.cluster.segment_index(epoch, first, last),
            index.to_json().unwrap(),
        )
        .await;
    }

    async fn segments(&self, epoch: u64, server: &str, segments: &[Segment]) {
        for segment in segments {
            let key = self
                .cluster
                .segment(epoch, segment.sequence, segment.encryption.is_some());
            self.put(&key, "segment").await;
            self.index(epoch, server, std::slice::from_ref(segment)).await;
        }
    }

    /// A backup at A:1-10, a reign of A up to 30, of which the next one knew 25, and a reign of B.
    async fn usual() -> Self {
        let bench = Self::new();
        bench.backup("first", &format!("{A}:1-10"), 10).await;
        bench.reign(1, A, "").await;
        let first = [segment(1, A, "", 1..=20), segment(2, A, &format!("{A}:1-20"), 21..=30)];
        bench.segments(1, A, &first).await;
        bench.reign(2, B, &format!("{A}:1-25")).await;
        bench
            .segments(2, B, &[segment(1, B, &format!("{A}:1-25"), 40..=50)])
            .await;
        bench
    }

    async fn catalog(&self) -> Result<Catalog, CatalogError> {
        Catalog::read(&self.store, self.cluster.clone()).await
    }

    async fn plan(&self, target: &Target) -> Result<PlannedRecovery, CatalogError> {
        self.catalog().await?.plan(&self.store, target, &[]).await
    }
}

fn gtid(text: &str) -> Gtid {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_cluster_is_found_by_its_name_and_several_by_their_uid() {
    let bench = Bench::new();
    bench.backup("b", "", 1).await;
    let found = find(&bench.store, &source("prod", "shop", None)).await.unwrap();
    assert_eq!(found, cluster("6f1c"));
    let error = find(&bench.store, &source("prod", "shopp", None)).await.unwrap_err();
    assert!(error.to_string().contains("found prod/shop"), "{error}");
    let error = find(&bench.store, &source("prod", "shop", Some("zz")))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no uid zz"), "{error}");
    // A cluster of the same name that lived before or after.
    let other = Bench {
        cluster: cluster("aaaa"),
        store: bench.store.clone(),
    };
    other.backup("b", "", 1).await;
    let error = find(&bench.store, &source("prod", "shop", None)).await.unwrap_err();
    assert!(
        error.to_string().contains("6f1c") && error.to_string().contains("aaaa"),
        "{error}"
    );
    assert!(!error.may_pass());
    let found = find(&bench.store, &source("prod", "shop", Some("aaaa"))).await.unwrap();
    assert_eq!(found, cluster("aaaa"));
    let empty = find(&Memory::new(), &source("prod", "shop", None)).await.unwrap_err();
    assert!(empty.to_string().contains("no cluster at all"), "{empty}");
}

#[tokio::test]
async fn the_latest_point_leaves_out_what_the_next_reign_did_not_know() {
    let planned = Bench::usual().await.plan(&Target::Latest).await.unwrap();
    assert_eq!(planned.plan.reaches, set(&format!("{A}:1-25,{B}:40-50")));
    assert_eq!(planned.base.id.as_str(), "first");
    let steps: Vec<_> = planned
        .steps
        .iter()
        .map(|step| (step.epoch, step.segments.len(), step.before.clone()))
        .collect();
    assert_eq!(steps, [(1, 2, Some(gtid(&format!("{A}:26")))), (2, 1, None)]);
    assert_eq!(planned.segment_bytes(), 300);
}

#[tokio::test]
async fn a_target_ends_the_plan() {
    let bench = Bench::usual().await;
    let planned = bench.plan(&Target::Gtid(gtid(&format!("{A}:15")))).await.unwrap();
    assert_eq!(planned.plan.reaches, set(&format!("{A}:1-15")));
    let planned = bench.plan(&Target::Time(second(44))).await.unwrap();
    assert_eq!(planned.plan.reaches, set(&format!("{A}:1-25,{B}:40-44")));
    let error = bench.plan(&Target::Time(second(51))).await.unwrap_err();
    assert!(error.to_string().contains("beyond what is stored"), "{error}");
    let error = bench.plan(&Target::Gtid(gtid(&format!("{A}:26")))).await.unwrap_err();
    assert!(error.to_string().contains("never acknowledged"), "{error}");
}

#[tokio::test]
async fn a_moment_at_which_nothing_happened_can_be_reached_when_it_is_known_that_nothing_did() {
    let bench = Bench::usual().await;
    let say = async |epoch, seconds| {
        let through = ArchivedThrough {
            format: FORMAT,
            cluster: bench.cluster.clone(),
            epoch,
            time: second(seconds),
        };
        let key = bench.cluster.reign_through(epoch);
        bench.put(&key, through.to_json().unwrap()).await;
    };
    // The word of a primary that was replaced counts nothing.
    say(1, 900).await;
    let error = bench.plan(&Target::Time(second(60))).await.unwrap_err();
    assert!(error.to_string().contains("beyond what is stored"), "{error}");
    say(2, 70).await;
    let planned = bench.plan(&Target::Time(second(70))).await.unwrap();
    assert_eq!(planned.plan.reaches, set(&format!("{A}:1-25,{B}:40-50")));
    let error = bench.plan(&Target::Time(second(71))).await.unwrap_err();
    assert!(error.to_string().contains(&second(70).to_string()), "{error}");
    // A word from before the last transaction takes nothing away.
    say(2, 45).await;
    assert!(bench.plan(&Target::Time(second(50))).await.is_ok());
    bench.put(&bench.cluster.reign_through(2), "{").await;
    assert!(
        bench.plan(&Target::Latest).await.is_err(),
        "what cannot be read is unknown"
    );
}

#[tokio::test]
async fn a_backup_that_is_not_whole_does_not_count() {
    let bench = Bench::new();
    bench.backup("whole", &format!("{A}:1-10"), 10).await;
    // Without data, with less data than there should be, and without a manifest.
    bench
        .put_manifest(&bench.manifest("without", &format!("{A}:1-20"), 20))
        .await;
    bench
        .put_manifest(&bench.manifest("less", &format!("{A}:1-21"), 21))
        .await;
    bench
        .put(
            &bench.cluster.backup_data(&BackupId::parse("less").unwrap(), false),
            "dat",
        )
        .await;
    bench
        .put(
            &bench.cluster.backup_data(&BackupId::parse("young").unwrap(), false),
            "data",
        )
        .await;
    let catalog = bench.catalog().await.unwrap();
    let complete: Vec<_> = catalog
        .bases()
        .into_iter()
        .map(|base| (base.id, base.complete))
        .collect();
    let wanted = [("less", false), ("whole", true), ("without", false)];
    assert_eq!(complete, wanted.map(|(id, complete)| (id.to_owned(), complete)));
    let planned = bench.plan(&Target::Latest).await.unwrap();
    assert_eq!(planned.base.id.as_str(), "whole");
}

#[tokio::test]
async fn a_backup_that_cannot_be_read_is_named_and_another_one_serves() {
    let bench = Bench::new();
    bench.backup("good", &format!("{A}:1-10"), 10).await;
    bench.backup("bad", &format!("{A}:1-20"), 20).await;
    bench.backup("moved", &format!("{A}:1-30"), 30).await;
    let key = |id: &str| bench.cluster.backup_manifest(&BackupId::parse(id).unwrap());
    bench.put(&key("bad"), "{").await;
    let mut moved = bench.manifest("moved", "", 30);
    moved.cluster = cluster("another");
    bench.put(&key("moved"), moved.to_json().unwrap()).await;
    let catalog = bench.catalog().await.unwrap();
    assert_eq!(catalog.backups.len(), 1);
    assert_eq!(catalog.unreadable.len(), 2, "{:?}", catalog.unreadable);
    assert!(catalog.unreadable[0].contains("bad"), "{:?}", catalog.unreadable);
    // The store notices it by itself. When no other one is left, the refusal says why.
    bench.store.flip(&key("bad"), 0);
    let planned = bench.plan(&Target::Latest).await.unwrap();
    assert_eq!(planned.base.id.as_str(), "good");
    bench.store.flip(&key("good"), 40);
    let error = bench.plan(&Target::Latest).await.unwrap_err().to_string();
    assert!(
        error.contains("no complete backup") && error.contains("good") && error.contains("damaged"),
        "{error}"
    );
}

#[tokio::test]
async fn of_the_archive_nothing_is_left_out_that_cannot_be_read() {
    let index = |bench: &Bench| bench.cluster.segment_index(1, 1, 1);
    // A damaged index, and one of a newer format.
    for content in ["{", r#"{"format": 2}"#] {
        let bench = Bench::usual().await;
        bench.put(&index(&bench), content).await;
        let error = bench.catalog().await.unwrap_err();
        assert!(matches!(error, CatalogError::Unreadable { .. }), "{error}");
    }
    // A reign whose manifest is gone.
    let bench = Bench::usual().await;
    bench.store.delete(&bench.cluster.reign_manifest(1)).await.unwrap();
    let error = bench.catalog().await.unwrap_err();
    assert!(error.to_string().contains("it is missing"), "{error}");
    // An index of another server, and segments that do not fit what they say of themselves.
    let bench = Bench::usual().await;
    bench.index(1, B, &[segment(1, A, "", 1..=20)]).await;
    let error = bench.catalog().await.unwrap_err();
    assert!(
        error.to_string().contains("another reign, cluster or server"),
        "{error}"
    );
    let bench = Bench::usual().await;
    let mut wrong = segment(1, A, "", 1..=20);
    wrong.transactions.pop();
    bench.index(1, A, &[wrong]).await;
    let error = bench.catalog().await.unwrap_err();
    assert!(error.to_string().contains("are not its GTID set"), "{error}");
    // A store that does not answer says nothing of what is in it.
    let bench = Bench::usual().await;
    bench.store.inject(Fault {
        operation: Operation::List,
        nth: 4,
        failure: Failure::Unreachable,
    });
    let error = bench.catalog().await.unwrap_err();
    assert!(error.may_pass(), "{error}");
}

#[tokio::test]
async fn an_index_of_many_replaces_those_of_fewer_while_they_are_read() {
    let bench = Bench::usual().await;
    let many = [segment(1, A, "", 1..=20), segment(2, A, &format!("{A}:1-20"), 21..=30)];
    bench.index(1, A, &many).await;
    let catalog = bench.catalog().await.unwrap();
    assert_eq!(catalog.reigns[0].segments, many);
    // Another one that says something else: nobody knows which is right.
    let mut other = many[1].clone();
    other.file.size = 8;
    bench
        .index(1, A, &[other, segment(3, A, &format!("{A}:1-30"), 31..=31)])
        .await;
    let error = bench.catalog().await.unwrap_err();
    assert!(error.to_string().contains("something else"), "{error}");
    // One that was listed and is gone is in a larger one by now.
    let bench = Bench::usual().await;
    let gone = Vanishing {
        store: bench.store.clone(),
        key: bench.cluster.segment_index(1, 1, 1),
        instead: (bench.cluster.segment_index(1, 1, 2), index_of(&bench, &many)),
    };
    let catalog = Catalog::read(&gone, bench.cluster.clone()).await.unwrap();
    assert_eq!(catalog.reigns[0].segments, many);
}

fn index_of(bench: &Bench, segments: &[Segment]) -> Vec<u8> {
    let index = SegmentIndex {
        format: FORMAT,
        cluster: bench.cluster.clone(),
        epoch: 1,
        server_uuid: A.to_owned(),
        mysql_version: "9.7.4".to_owned(),
        segments: segments.to_vec(),
    };
    index.to_json().unwrap()
}

/// A store in which an object is replaced by another one at the moment at which it is read.
struct Vanishing {
    store: Memory,
    key: Key,
    instead: (Key, Vec<u8>),
}

#[async_trait::async_trait]
impl Store for Vanishing {
    async fn get(&self, key: &Key, limit: u64) -> Result<bytes::Bytes, StoreError> {
        if *key == self.key {
            let (instead, content) = self.instead.clone();
            self.store.put(&instead, content.into(), Existing::Replace).await?;
            self.store.delete(&self.key).await?;
        }
        self.store.get(key, limit).await
    }

    async fn put(&self, key: &Key, content: bytes::Bytes, existing: Existing) -> Result<(), StoreError> {
        self.store.put(key, content, existing).await
    }

    async fn put_stream(
        &self,
        key: &Key,
        body: Body,
        options: crate::port::StreamOptions,
    ) -> Result<crate::port::Stored, StoreError> {
        self.store.put_stream(key, body, options).await
    }

    async fn get_stream(&self, key: &Key, span: Span) -> Result<crate::port::Download, StoreError> {
        self.store.get_stream(key, span).await
    }

    async fn head(&self, key: &Key) -> Result<crate::port::ObjectInfo, StoreError> {
        self.store.head(key).await
    }

    fn list(&self, listing: Listing) -> stream::BoxStream<'_, Result<Entry, StoreError>> {
        self.store.list(listing)
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.store.delete(key).await
    }

    async fn delete_all(&self, keys: &[Key]) -> Result<(), StoreError> {
        self.store.delete_all(keys).await
    }

    async fn incomplete(&self, folder: &Folder) -> Result<Vec<crate::port::Incomplete>, StoreError> {
        self.store.incomplete(folder).await
    }

    async fn abort(&self, upload: &crate::port::Incomplete) -> Result<(), StoreError> {
        self.store.abort(upload).await
    }
}

#[tokio::test]
async fn a_segment_that_is_missing_is_refused_before_anything_is_made() {
    let bench = Bench::usual().await;
    bench.store.delete(&bench.cluster.segment(1, 2, false)).await.unwrap();
    let error = bench.plan(&Target::Latest).await.unwrap_err().to_string();
    assert!(error.contains("00000000000000000002.binlog.zst is missing"), "{error}");
    assert!(error.contains(&format!("{A}:1-20")), "{error}");
    // What lies before it can be reached.
    let planned = bench.plan(&Target::Gtid(gtid(&format!("{A}:20")))).await.unwrap();
    assert_eq!(planned.plan.reaches, set(&format!("{A}:1-20")));
    // One of another size is not the one that was stored.
    let bench = Bench::usual().await;
    bench.put(&bench.cluster.segment(1, 2, false), "cut").await;
    let error = bench.plan(&Target::Latest).await.unwrap_err();
    assert!(matches!(error, CatalogError::SegmentMissing { .. }), "{error}");
    // A hole of which the archive itself tells.
    let bench = Bench::new();
    bench.backup("b", &format!("{A}:1-10"), 10).await;
    bench.reign(1, A, "").await;
    bench
        .segments(1, A, &[segment(1, A, &format!("{A}:1-15"), 16..=20)])
        .await;
    let error = bench.plan(&Target::Latest).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{A}:11-15 is missing")), "{error}");
}

#[tokio::test]
async fn the_key_is_chosen_by_what_was_encrypted_for_it() {
    let (mine, other) = (PrivateKey::generate(), PrivateKey::generate());
    let keys = [other, mine];
    let encryption = |key: &PrivateKey| Encryption {
        scheme: Scheme::AgeX25519,
        key_id: key.recipient().key_id(),
    };
    let bench = Bench::new();
    let mut manifest = bench.manifest("b", &format!("{A}:1-10"), 10);
    manifest.encryption = Some(encryption(&keys[1]));
    bench.put(&bench.cluster.backup_data(&manifest.id, false), "data").await;
    bench.put_manifest(&manifest).await;
    let catalog = bench.catalog().await.unwrap();
    let error = catalog
        .plan(&bench.store, &Target::Latest, &[])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("no key was given"), "{error}");
    assert!(catalog.plan(&bench.store, &Target::Latest, &keys).await.is_ok());
    let error = catalog
        .plan(&bench.store, &Target::Latest, &keys[..1])
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(error.contains(&keys[0].recipient().key_id()), "{error}");
    assert!(error.contains(&keys[1].recipient().key_id()), "{error}");
    // A segment, too.
    let bench = Bench::usual().await;
    let mut sealed = segment(2, B, &format!("{A}:1-25,{B}:40-50"), 51..=60);
    sealed.encryption = Some(encryption(&keys[1]));
    bench.segments(2, B, &[sealed]).await;
    let catalog = bench.catalog().await.unwrap();
    assert!(catalog.plan(&bench.store, &Target::Latest, &keys).await.is_ok());
    let error = catalog.plan(&bench.store, &Target::Latest, &[]).await.unwrap_err();
    assert!(
        error.to_string().contains("00000000000000000002.binlog.zst.age"),
        "{error}"
    );
    // Not before it is needed.
    let earlier = Target::Gtid(gtid(&format!("{B}:50")));
    assert!(catalog.plan(&bench.store, &earlier, &[]).await.is_ok());
}

#[test]
fn an_index_that_is_part_of_another_one_is_not_read() {
    let key = |first, last| cluster("6f1c").segment_index(1, first, last);
    let keys = [key(1, 1), key(1, 10), key(2, 2), key(5, 11), key(11, 11), key(12, 12)];
    assert_eq!(needed(keys.into_iter()), [key(1, 10), key(5, 11), key(12, 12)]);
}
