//! A store with what a cluster would have in it: backups of stopped data directories, and an archive cut out of real binlogs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::{ArchivedTransaction, FORMAT, Method, Segment, StoredFile};
use mainstay_core::backup::restore::Target;
use mainstay_core::backup::{BackupId, BackupManifest, ClusterIdentity, Folder, Key, ReignManifest, SegmentIndex};
use mainstay_mysql::binlog::{self, Scanner};
use mainstay_store::archive::{Meter, PrivateKey, Recipient, Sealing, seal_bytes, store_directory};
use mainstay_store::{
    ACCESS_FILE, Access, Entry, Existing, Identity, Keys, Listing, RECOVERY_FILE, RecoveryOrder, RecoverySource, S3,
    Settings, Store,
};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::files::{fast_directory, free_port};
use super::{Node, write};

const BUCKET: &str = "backups";
const ACCESS_KEY: &str = "owner";
const SECRET_KEY: &str = "the-owners-secret";

/// The wish that tests recover for.
pub(crate) const WISH: &str = "a wish";

/// versitygw on a directory; it ends when it is dropped.
pub(crate) struct Gateway {
    port: u16,
    files: TempDir,
    process: Child,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The program: `MAINSTAY_TEST_S3`, or the one that the testbed built.
fn binary() -> PathBuf {
    if let Some(given) = std::env::var_os("MAINSTAY_TEST_S3") {
        return given.into();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/mainstay");
    let cache = std::env::var_os("MAINSTAY_CACHE")
        .map_or_else(home, PathBuf::from)
        .join("bin");
    let built = std::fs::read_dir(&cache).into_iter().flatten().flatten();
    let mut built: Vec<PathBuf> = built
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("versitygw-"))
        .collect();
    built.sort();
    built.pop().unwrap_or_else(|| {
        panic!(
            "there is no versitygw in {}: start the testbed once, or set MAINSTAY_TEST_S3 to the program",
            cache.display()
        )
    })
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        let files = tempfile::tempdir_in(fast_directory()).unwrap();
        // A bucket is a directory.
        for name in ["iam", "data", "data/backups"] {
            std::fs::create_dir(files.path().join(name)).unwrap();
        }
        let port = free_port();
        let log = std::fs::File::create(files.path().join("log")).unwrap();
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary())
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "--iam-dir"])
            .arg(files.path().join("iam"))
            .arg("posix")
            .arg(files.path().join("data"))
            .env("ROOT_ACCESS_KEY", ACCESS_KEY)
            .env("ROOT_SECRET_KEY", SECRET_KEY)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let gateway = Self { port, files, process };
        let deadline = Instant::now() + Duration::from_secs(10);
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(Instant::now() < deadline, "versitygw does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gateway
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            endpoint: Some(format!("http://127.0.0.1:{}", self.port)),
            region: "us-east-1".to_owned(),
            bucket: BUCKET.to_owned(),
            prefix: "mysql".to_owned(),
            path_style: true,
            ca: None,
            identity: Identity::Keys(Keys {
                access_key: ACCESS_KEY.to_owned(),
                secret_key: SECRET_KEY.to_owned().into(),
                session_token: None,
            }),
        }
    }

    /// The file in which an object is.
    pub(crate) fn file(&self, key: &Key) -> PathBuf {
        self.files.path().join("data/backups/mysql").join(key.as_str())
    }
}

/// What a cluster has stored.
pub(crate) struct Stored {
    pub(crate) gateway: Gateway,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: ClusterIdentity,
    /// With which its content is encrypted.
    pub(crate) key: Option<PrivateKey>,
    backups: u32,
}

/// A transaction in a binlog file.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    start: usize,
    end: usize,
    pub(crate) transaction: ArchivedTransaction,
}

impl Stored {
    pub(crate) async fn new(key: Option<PrivateKey>) -> Self {
        Self {
            key,
            ..Self::at(Gateway::start().await).await
        }
    }

    /// What is not encrypted.
    pub(crate) async fn at(gateway: Gateway) -> Self {
        let store = S3::new(gateway.settings()).await.unwrap();
        Self {
            store: Arc::new(store),
            gateway,
            cluster: ClusterIdentity::new("prod", "old", "6f1c2a9e").unwrap(),
            key: None,
            backups: 0,
        }
    }

    fn sealing(&self) -> Sealing {
        Sealing {
            level: 1,
            recipient: self.key.as_ref().map(PrivateKey::recipient),
        }
    }

    fn recipient(&self) -> Option<Recipient> {
        self.sealing().recipient
    }

    /// Stores the data directory of an instance whose server was stopped, as a backup does.
    pub(crate) async fn back_up(&mut self, node: &Node, executed: &GtidSet, server_uuid: &str) -> BackupId {
        self.backups += 1;
        let id = BackupId::parse(&format!("20261130t07{:02}00z-test", self.backups)).unwrap();
        let skip = |path: &Path| {
            let name = path.to_string_lossy();
            ["auto.cnf", "mysqld-auto.cnf"].contains(&name.as_ref())
                || name.starts_with("relay.")
                || name.starts_with("binlog.")
        };
        let key = self.cluster.backup_data(&id, self.key.is_some());
        let data = node.config.paths.data();
        let (sealing, meter) = (self.sealing(), Meter::default());
        let packed = store_directory(self.store.as_ref(), &key, &data, skip, &sealing, &meter)
            .await
            .unwrap();
        let manifest = BackupManifest {
            format: FORMAT,
            id: id.clone(),
            name: None,
            schedule: None,
            cluster: self.cluster.clone(),
            instance: "old-1".to_owned(),
            mysql_version: "9.7.4".to_owned(),
            server_uuid: server_uuid.to_owned(),
            epoch: 1,
            gtid_executed: executed.clone(),
            started_at: Timestamp::now(),
            completed_at: Timestamp::now(),
            method: Method::Physical,
            files: vec![packed.file],
            encryption: self.sealing().encryption(),
            uncompressed_bytes: packed.content.bytes,
            data_bytes: None,
        };
        self.put_manifest(&manifest).await;
        id
    }

    pub(crate) async fn put_manifest(&self, manifest: &BackupManifest) {
        let key = self.cluster.backup_manifest(&manifest.id);
        let json = manifest.to_json().unwrap();
        self.store.put(&key, json.into(), Existing::Replace).await.unwrap();
    }

    pub(crate) async fn manifest(&self, id: &BackupId) -> BackupManifest {
        let json = self
            .store
            .get(&self.cluster.backup_manifest(id), 1 << 20)
            .await
            .unwrap();
        BackupManifest::from_json(&json).unwrap()
    }

    /// Stores what a primary wrote, in segments of a few transactions each, with one index for every third of them.
    pub(crate) async fn archive(
        &self,
        epoch: u64,
        server_uuid: &str,
        baseline: &GtidSet,
        binlogs: &[PathBuf],
        every: usize,
    ) -> Vec<Segment> {
        let reign = ReignManifest {
            format: FORMAT,
            cluster: self.cluster.clone(),
            epoch,
            instance: "old-0".to_owned(),
            server_uuid: server_uuid.to_owned(),
            baseline: baseline.clone(),
            since: Timestamp::now(),
        };
        let json = reign.to_json().unwrap();
        let key = self.cluster.reign_manifest(epoch);
        self.store.put(&key, json.into(), Existing::Replace).await.unwrap();
        let mut before = baseline.clone();
        let mut segments = Vec::new();
        for binlog in binlogs {
            let bytes = std::fs::read(binlog).unwrap();
            let found = transactions(binlog);
            let new: Vec<Found> = found
                .into_iter()
                .filter(|found| !before.contains_gtid(&found.transaction.gtid))
                .collect();
            for some in new.chunks(every) {
                let segment = self
                    .segment(epoch, segments.len() as u64 + 1, &bytes, some, &before)
                    .await;
                before = before.union(&segment.gtids);
                segments.push(segment);
            }
        }
        for some in segments.chunks(3) {
            self.put_index(epoch, server_uuid, some).await;
        }
        segments
    }

    async fn segment(&self, epoch: u64, sequence: u64, binlog: &[u8], found: &[Found], before: &GtidSet) -> Segment {
        let mut content = binlog[..description_end(binlog)].to_vec();
        for one in found {
            content.extend(&binlog[one.start..one.end]);
        }
        let (sealed, tally) = seal_bytes(&content, &self.sealing()).await.unwrap();
        let key = self.cluster.segment(epoch, sequence, self.recipient().is_some());
        self.store.put(&key, sealed, Existing::Keep).await.unwrap();
        let transactions: Vec<_> = found.iter().map(|found| found.transaction.clone()).collect();
        Segment {
            sequence,
            file: StoredFile {
                name: key.file_name().to_owned(),
                size: tally.bytes,
                sha256: tally.sha256,
            },
            uncompressed_bytes: content.len() as u64,
            encryption: self.sealing().encryption(),
            previous: before.clone(),
            gtids: transactions
                .iter()
                .map(|transaction| transaction.gtid.clone())
                .collect(),
            missing: GtidSet::new(),
            transactions,
        }
    }

    async fn put_index(&self, epoch: u64, server_uuid: &str, segments: &[Segment]) {
        let index = SegmentIndex {
            format: FORMAT,
            cluster: self.cluster.clone(),
            epoch,
            server_uuid: server_uuid.to_owned(),
            mysql_version: "9.7.4".to_owned(),
            segments: segments.to_vec(),
        };
        let (first, last) = (segments[0].sequence, segments[segments.len() - 1].sequence);
        let key = self.cluster.segment_index(epoch, first, last);
        let json = index.to_json().unwrap();
        self.store.put(&key, json.into(), Existing::Replace).await.unwrap();
    }

    /// The access that the instances and Jobs of the cluster have.
    pub(crate) fn access(&self) -> Access {
        Access {
            store: self.gateway.settings(),
            cluster: self.cluster.clone(),
            archive: true,
            recipient: self.recipient(),
            private_keys: Vec::new(),
        }
    }

    /// Lets an instance archive here when it is the primary.
    pub(crate) fn archive_of(&self, node: &Node) {
        let file = node.config.paths.store.join(ACCESS_FILE);
        write(&file, self.access().to_json().expose_secret());
    }

    /// Everything that is stored, and how large it is.
    pub(crate) async fn everything(&self) -> BTreeMap<Key, u64> {
        let entries = self.store.list_all(Listing::all(Folder::root())).await.unwrap();
        let object = |entry| match entry {
            Entry::Object(object) => Some((object.key, object.size)),
            Entry::Folder(_) => None,
        };
        entries.into_iter().filter_map(object).collect()
    }

    /// Lets an instance recover this when it is started, with these keys.
    pub(crate) fn give_to(&self, node: &mut Node, target: &Target, keys: &[PrivateKey]) {
        node.config.recovery = Some(WISH.to_owned());
        self.mount(node, WISH, target, keys);
    }

    /// What the operator writes for a wish.
    pub(crate) fn mount(&self, node: &Node, wish: &str, target: &Target, keys: &[PrivateKey]) {
        self.mount_at(&self.gateway.settings(), node, wish, target, keys);
    }

    /// The same, with a store as somebody declared it.
    pub(crate) fn mount_at(&self, store: &Settings, node: &Node, wish: &str, target: &Target, keys: &[PrivateKey]) {
        let access = Access {
            store: store.clone(),
            ..self.access_with(keys)
        };
        let order = RecoveryOrder {
            request: wish.to_owned(),
            source: RecoverySource {
                namespace: "prod".to_owned(),
                name: "old".to_owned(),
                uid: None,
            },
            target: target.clone(),
        };
        let directory = &node.config.paths.recovery;
        write(&directory.join(ACCESS_FILE), access.to_json().expose_secret());
        write(&directory.join(RECOVERY_FILE), &order.to_json());
    }

    /// How it is reached, and with which private keys.
    pub(crate) fn access_with(&self, keys: &[PrivateKey]) -> Access {
        Access {
            store: self.gateway.settings(),
            cluster: self.cluster.clone(),
            archive: false,
            recipient: None,
            private_keys: keys.to_vec(),
        }
    }

    /// The key with which it is encrypted, as a list.
    pub(crate) fn keys(&self) -> Vec<PrivateKey> {
        self.key.iter().cloned().collect()
    }
}

/// Where the format description of a binlog ends.
fn description_end(binlog: &[u8]) -> usize {
    let length = u32::from_le_bytes(binlog[4 + 9..4 + 13].try_into().unwrap());
    4 + usize::try_from(length).unwrap()
}

/// The transactions of a binlog file.
pub(crate) fn transactions(binlog: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    Scanner::new()
        .feed(&std::fs::read(binlog).unwrap(), &mut found)
        .unwrap();
    let transaction = |found| match found {
        binlog::Found::Transaction(transaction) => Some(Found {
            start: usize::try_from(transaction.from).unwrap(),
            end: usize::try_from(transaction.to()).unwrap(),
            transaction: ArchivedTransaction {
                gtid: transaction.gtid,
                at: transaction.at,
            },
        }),
        _ => None,
    };
    found.into_iter().filter_map(transaction).collect()
}

/// The binlog files of an instance, in order.
pub(crate) fn binlogs(node: &Node) -> Vec<PathBuf> {
    let files = std::fs::read_dir(node.config.paths.data()).unwrap();
    let files: BTreeSet<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    let numbered = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.strip_prefix("binlog.")
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
    };
    files.into_iter().filter(numbered).collect()
}
