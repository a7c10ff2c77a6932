//! On binlogs that MySQL wrote, with a server and a store made of values.

#[path = "../../tests/mysqld/support/archived.rs"]
mod archived;

use std::fs::OpenOptions;
use std::io::Write as _;

use mainstay_core::backup::manifest::{BackupManifest, FORMAT, Method, Segment, SegmentIndex, StoredFile};
use mainstay_core::backup::restore::Refusal;
use mainstay_core::backup::{BackupId, ClusterIdentity};
use mainstay_mysql::{Mysql, ServerState};
use mainstay_store::archive::PrivateKey;
use mainstay_store::{
    Existing, Failure, Fault as StoreFault, Identity, Listing, Memory, Operation, Settings, Store as _,
};
use proptest::prelude::*;
use tokio::sync::mpsc;

use super::*;
use crate::config::Stores;
use crate::secrets::Secrets;
use crate::state::StateFile;
use crate::testing::{self, FakeMysql};
use archived::Archived;
use catalog::Catalog;

const UUID: &str = "1a1a709b-ecad-11f1-aef9-02fc00000001";
/// Transactions 1-5, mainstay:1, extra:7.
const FIRST: &[u8] = include_bytes!("../../../mysql/tests/data/plain.binlog");
/// 6-8, mainstay:2.
const SECOND: &[u8] = include_bytes!("../../../mysql/tests/data/compressed.binlog");
/// 9.
const LAST: &[u8] = include_bytes!("../../../mysql/tests/data/unchecked.binlog");
/// All of them.
const ALL: &str = "1-9:extra:7:mainstay:1-2";
const SOON: Duration = Duration::from_secs(20);

fn set(text: &str) -> GtidSet {
    if text.is_empty() {
        return GtidSet::new();
    }
    format!("{UUID}:{text}").parse().unwrap()
}

fn identity() -> ClusterIdentity {
    ClusterIdentity::new("prod", "shop", "6f1c2a9e").unwrap()
}

/// A server whose binlogs and whose word are made up.
struct World {
    _dir: tempfile::TempDir,
    mysql: Arc<FakeMysql>,
    shared: Arc<Shared>,
    store: Memory,
    archive: Archive,
}

impl World {
    fn new() -> Self {
        Self::with(Memory::new(), None)
    }

    /// Another server with the same store.
    fn beside(&self) -> Self {
        Self::with(self.store.clone(), None)
    }

    fn with(store: Memory, key: Option<&PrivateKey>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = testing::config(dir.path());
        config.stores = Stores::Fixed(Arc::new(store.clone()));
        config.timing.files = Duration::from_millis(20);
        for path in [&config.paths.data(), &config.paths.store] {
            std::fs::create_dir_all(path).unwrap();
        }
        let access = Access {
            store: Settings {
                endpoint: None,
                region: String::new(),
                bucket: "backups".to_owned(),
                prefix: String::new(),
                path_style: false,
                ca: None,
                identity: Identity::Pod,
            },
            cluster: identity(),
            archive: true,
            recipient: key.map(PrivateKey::recipient),
            private_keys: Vec::new(),
        };
        let file = config.paths.store.join(mainstay_store::ACCESS_FILE);
        std::fs::write(file, access.to_json().expose_secret()).unwrap();
        let (state, _) = StateFile::open(&config.paths.state()).unwrap();
        let secrets = Secrets::read(&config.paths);
        let mysql = Arc::new(FakeMysql::new(ServerState {
            server_uuid: UUID.to_owned(),
            ..ServerState::default()
        }));
        let fake: Arc<dyn Mysql> = Arc::clone(&mysql) as _;
        let shared = Arc::new(Shared::new(config, fake, "9.7.4".parse().unwrap(), state, secrets));
        shared.set_process(|process| process.phase = Mysqld::Running);
        let archive = Archive::new(Arc::clone(&shared));
        Self {
            _dir: dir,
            mysql,
            shared,
            store,
            archive,
        }
    }

    /// The server writes to one of its files, and makes it if need be.
    fn write(&self, name: &str, bytes: &[u8]) {
        let data = self.shared.config.paths.data();
        let new = !data.join(name).exists();
        let open = |name: &str| {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(data.join(name))
                .unwrap()
        };
        open(name).write_all(bytes).unwrap();
        if new {
            open("binlog.index")
                .write_all(format!("./{name}\n").as_bytes())
                .unwrap();
        }
    }

    fn write_all(&self) {
        self.write("binlog.000001", FIRST);
        self.write("binlog.000002", SECOND);
        self.write("binlog.000003", LAST);
    }

    fn purge(&self, names: &[&str]) {
        let data = self.shared.config.paths.data();
        let index = data.join("binlog.index");
        let mut text = std::fs::read_to_string(&index).unwrap();
        for name in names {
            std::fs::remove_file(data.join(name)).unwrap();
            text = text.replace(&format!("./{name}\n"), "");
        }
        std::fs::write(index, text).unwrap();
    }

    fn executes(&self, text: &str) {
        self.mysql.change(|state| state.executed = set(text));
    }

    fn begin(&self, epoch: u64, baseline: &str) {
        self.archive.begin(Told {
            recorded: Recorded {
                epoch,
                since: Timestamp::UNIX_EPOCH,
            },
            baseline: set(baseline),
        });
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
        let found = timeout(SOON, async {
            loop {
                if let Some(report) = self.shared.archive().filter(&wanted) {
                    return report;
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
        let found = found.await.ok();
        found.unwrap_or_else(|| panic!("waited in vain until {what}: {:?}", self.shared.archive()))
    }

    async fn until_stored(&self, text: &str) -> Report {
        let wanted = set(text);
        self.until(text, |report| report.through.as_ref() == Some(&wanted))
            .await
    }

    async fn archived(&self) -> Archived {
        Archived::read(&self.store, &identity()).await
    }
}

#[tokio::test]
async fn what_the_server_has_executed_is_stored_as_it_comes() {
    let world = World::new();
    world.write("binlog.000001", &FIRST[..600]);
    world.executes("1-2");
    world.begin(7, "");
    let report = world.until_stored("1-2").await;
    assert_eq!((report.segments, report.error.as_str()), (1, ""));
    world.write("binlog.000001", &FIRST[600..1000]);
    world.executes("1-3");
    world.until_stored("1-3").await;
    world.write("binlog.000001", &FIRST[1000..]);
    world.write("binlog.000002", SECOND);
    world.write("binlog.000003", LAST);
    world.executes(ALL);
    let report = world.until_stored(ALL).await;
    assert!(report.time.is_some() && report.missing.is_empty());
    let archived = world.archived().await;
    assert_eq!(archived.reaches(), set(ALL));
    let files = archived.files(&world.store, None).await;
    assert_eq!(files.len() as u64, report.segments);
    assert!(files.len() >= 5, "each file begins a segment");
}

/// AFTER_SYNC: the binlog holds it before a replica has acknowledged it (decision A8).
#[tokio::test]
async fn a8_what_is_written_and_not_executed_is_not_stored() {
    let world = World::new();
    world.write_all();
    world.executes("1-2");
    world.begin(7, "");
    world.until_stored("1-2").await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(world.archived().await.stored(), set("1-2"));
    // Nothing grows any more: the acknowledgement comes.
    world.executes(ALL);
    world.until_stored(ALL).await;
}

#[tokio::test]
async fn an_idle_server_causes_no_requests() {
    let world = World::new();
    world.write_all();
    world.executes(ALL);
    world.begin(7, "");
    world.until_stored(ALL).await;
    sleep(Duration::from_millis(300)).await;
    for operation in [
        Operation::Put,
        Operation::PutStream,
        Operation::Get,
        Operation::List,
        Operation::Head,
    ] {
        world.store.inject(StoreFault {
            operation,
            nth: 1,
            failure: Failure::Denied,
        });
    }
    sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.shared.archive().unwrap().error, "");
}

#[tokio::test]
async fn segments_are_encrypted_for_the_declared_key() {
    let key = PrivateKey::generate();
    let world = World::with(Memory::new(), Some(&key));
    world.write_all();
    world.executes(ALL);
    world.begin(7, "");
    world.until_stored(ALL).await;
    let archived = world.archived().await;
    let segment = archived.reigns[0].segments.values().next().unwrap();
    assert_eq!(segment.encryption.as_ref().unwrap().key_id, key.recipient().key_id());
    archived.files(&world.store, Some(&key)).await;
}

/// The old primary had stored 1-3, and dies. What it had not stored is in the binlogs of the new one.
#[tokio::test]
async fn a_change_of_primary_leaves_no_hole() {
    let old = World::new();
    old.write("binlog.000001", FIRST);
    old.executes("1-3");
    old.begin(7, "");
    old.until_stored("1-3").await;
    old.archive.end().await;
    assert_eq!(old.shared.archive(), None);
    let new = old.beside();
    new.write("binlog.000001", FIRST);
    new.write("binlog.000002", SECOND);
    new.executes("1-7:extra:7:mainstay:1");
    new.begin(9, "1-5:extra:7:mainstay:1");
    new.until_stored("1-7:extra:7:mainstay:1").await;
    let archived = new.archived().await;
    assert_eq!(archived.reaches(), set("1-7:extra:7:mainstay:1"));
    let first = archived.reigns[1].segments.values().next().unwrap();
    assert_eq!(first.previous, set("1-3"), "it goes on where the other one ended");
}

/// It had stored a transaction that nobody acknowledged: k was 0, or it was let go.
#[tokio::test]
async fn a8_what_the_old_primary_stored_beyond_the_baseline_is_cut_off() {
    let old = World::new();
    old.write("binlog.000001", FIRST);
    old.executes("1-4:mainstay:1");
    old.begin(7, "");
    old.until_stored("1-4:mainstay:1").await;
    old.archive.end().await;
    let new = old.beside();
    new.write("binlog.000001", FIRST);
    new.executes("1-5:extra:7:mainstay:1");
    // Another transaction 4 could be here; what counts is that it is stored again.
    new.begin(9, "1-3:mainstay:1");
    new.until_stored("1-5:extra:7:mainstay:1").await;
    let archived = new.archived().await;
    assert!(archived.reigns[1].stored().contains(&set("4-5")));
    assert_eq!(archived.reaches(), set("1-5:extra:7:mainstay:1"));
}

impl archived::Reign {
    fn stored(&self) -> GtidSet {
        self.segments
            .values()
            .fold(GtidSet::new(), |set, segment| set.union(&segment.gtids))
    }
}

/// Binlogs were purged while nobody archived.
#[tokio::test]
async fn f09_what_was_purged_before_it_was_stored_is_missing_until_a_backup_holds_it() {
    let old = World::new();
    old.write("binlog.000001", FIRST);
    old.executes("1-3");
    old.begin(7, "");
    old.until_stored("1-3").await;
    old.archive.end().await;
    let new = old.beside();
    new.write_all();
    new.purge(&["binlog.000001"]);
    new.mysql.change(|state| state.purged = set("1-5:extra:7:mainstay:1"));
    new.executes("1-7:extra:7:mainstay:1");
    new.begin(9, "1-5:extra:7:mainstay:1");
    let lost = "4-5:extra:7:mainstay:1";
    let report = new.until_stored("1-3:6-7").await;
    assert_eq!(report.missing, set(lost));
    let reached = report.time.expect("the time of the last transaction before the hole");
    let refusal = new.archived().await.recovery(&GtidSet::new()).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Hole { missing, .. } if *missing == set(lost)),
        "{refusal}"
    );
    // It goes on behind the hole, also in the next life, and reaches no further.
    new.archive.end().await;
    new.executes(ALL);
    new.begin(9, "1-5:extra:7:mainstay:1");
    let report = new.until_stored("1-3:6-9:mainstay:2").await;
    assert_eq!(report.missing, set(lost));
    assert!(report.time.is_some_and(|time| time >= reached));
    // A backup closes it.
    store_backup(&new.store, ALL).await;
    new.archive.end().await;
    new.begin(9, "1-5:extra:7:mainstay:1");
    // The first report of a new reign may be one of before its first look.
    new.until("the hole is closed", |report| {
        report.missing.is_empty() && report.through == Some(set(ALL))
    })
    .await;
    let beyond = new.archived().await.recovery(&set(ALL)).unwrap();
    assert_eq!(beyond.reaches, set(ALL));
}

async fn store_backup(store: &Memory, executed: &str) {
    let id = BackupId::parse("20261130t073000z-x7k2p").unwrap();
    let manifest = BackupManifest {
        format: FORMAT,
        id: id.clone(),
        name: None,
        schedule: None,
        cluster: identity(),
        instance: "shop-1".to_owned(),
        mysql_version: "9.7.4".to_owned(),
        server_uuid: UUID.to_owned(),
        epoch: 9,
        gtid_executed: set(executed),
        started_at: Timestamp::UNIX_EPOCH,
        completed_at: Timestamp::UNIX_EPOCH,
        method: Method::Physical,
        files: Vec::new(),
        encryption: None,
        uncompressed_bytes: 0,
        data_bytes: None,
    };
    let json = manifest.to_json().unwrap().into();
    let key = identity().backup_manifest(&id);
    store.put(&key, json, Existing::Keep).await.unwrap();
}

/// `SET GLOBAL gtid_purged`, or a GTID with `sql_log_bin=0`.
#[tokio::test]
async fn f09_what_no_binlog_holds_is_missing() {
    let world = World::new();
    world.write("binlog.000001", &FIRST[..555]);
    world.executes("1-2");
    world.begin(7, "");
    world.until_stored("1-2").await;
    world.executes("1-2:foreign:1-3");
    // It is noticed when the server executes something.
    world.write("binlog.000001", &FIRST[555..837]);
    world.executes("1-3:foreign:1-3");
    let report = world.until("it is missing", |report| !report.missing.is_empty()).await;
    assert_eq!(report.missing, set("foreign:1-3"));
    world.until_stored("1-3").await;
    world.write("binlog.000001", &FIRST[837..]);
    world.executes("1-5:extra:7:foreign:1-3:mainstay:1");
    world.until_stored("1-5:extra:7:mainstay:1").await;
    let refusal = world.archived().await.recovery(&GtidSet::new()).unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Hole { missing, .. } if *missing == set("foreign:1-3")),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_history_that_was_reset_is_not_continued() {
    let world = World::new();
    world.write("binlog.000001", FIRST);
    world.executes("1-5:extra:7:mainstay:1");
    world.begin(7, "");
    world.until_stored("1-5:extra:7:mainstay:1").await;
    world.purge(&["binlog.000001"]);
    world.write("binlog.000001", &FIRST[..343]);
    world.executes("1");
    let report = world.until("it is refused", |report| !report.error.is_empty()).await;
    assert!(report.error.contains("its history was reset"), "{}", report.error);
}

#[tokio::test]
async fn a_file_that_a_crash_ended_is_followed_by_the_next_one() {
    let world = World::new();
    // No rotation at its end, and a torn transaction, as recovery leaves none.
    world.write("binlog.000001", &FIRST[..22_129]);
    world.write("binlog.000002", SECOND);
    world.executes("1-8:extra:7:mainstay:1-2");
    world.begin(7, "");
    world.until_stored("1-8:extra:7:mainstay:1-2").await;
    assert_eq!(world.archived().await.reaches(), set("1-8:extra:7:mainstay:1-2"));
}

/// Of three files the first two are stored.
const TWO: &str = "1-8:extra:7:mainstay:1-2";

#[test]
fn only_files_of_which_everything_is_stored_may_be_purged() {
    let world = World::new();
    let directory = world.shared.config.paths.data();
    let first_to_stay = |purged: &str, stored: &str| {
        let bound = purge::first_to_stay(&directory, &set(purged), &set(stored)).unwrap();
        bound.map(|name| name.trim_start_matches("binlog.00000").parse::<u32>().unwrap())
    };
    world.write("binlog.000001", FIRST);
    assert_eq!(first_to_stay("", ALL), None, "it is the only one");
    world.write("binlog.000002", SECOND);
    world.write("binlog.000003", LAST);
    assert_eq!(first_to_stay("", ""), None);
    assert_eq!(
        first_to_stay("", "1-4:extra:7:mainstay:1"),
        None,
        "5 is in the first file"
    );
    assert_eq!(first_to_stay("", "1-5:extra:7:mainstay:1"), Some(2));
    assert_eq!(first_to_stay("", "1-7:extra:7:mainstay:1-2"), Some(2));
    assert_eq!(first_to_stay("", TWO), Some(3));
    assert_eq!(first_to_stay("", ALL), Some(3), "the last one is written to");
    // What no file holds need not be stored.
    assert_eq!(first_to_stay("1-3", "4-8:extra:7:mainstay:1-2"), Some(3));
    // A file that was made, and is not written to yet, is no bound.
    world.write("binlog.000004", b"");
    assert_eq!(first_to_stay("", ALL), Some(3));
    // A purge that did not come to its end.
    std::fs::remove_file(directory.join("binlog.000001")).unwrap();
    std::fs::remove_file(directory.join("binlog.000002")).unwrap();
    assert_eq!(first_to_stay("", ALL), Some(3));
    assert_eq!(purge::oldest(&directory).unwrap().as_deref(), Some("binlog.000003"));
}

#[tokio::test]
async fn stored_files_that_are_purged_while_they_are_archived_make_no_hole() {
    let world = World::new();
    // It reads the end of the second one while that is the last.
    world.write("binlog.000001", FIRST);
    let end = SECOND.len() - 100;
    world.write("binlog.000002", &SECOND[..end]);
    world.executes("1-7:extra:7:mainstay:1");
    world.begin(7, "");
    world.until_stored("1-7:extra:7:mainstay:1").await;
    world.purge(&["binlog.000001"]);
    world.write("binlog.000002", &SECOND[end..]);
    world.write("binlog.000003", LAST);
    world.executes(TWO);
    world.until_stored(TWO).await;
    world.purge(&["binlog.000002"]);
    world.executes(ALL);
    let report = world.until_stored(ALL).await;
    assert_eq!((report.missing, report.error), (GtidSet::new(), String::new()));
    assert_eq!(world.archived().await.reaches(), set(ALL));
}

/// The file ended without saying which one follows, and is purged before anybody looks again.
#[test]
fn behind_a_file_that_was_purged_comes_the_oldest_that_is_left() {
    let world = World::new();
    let directory = world.shared.config.paths.data();
    world.write("binlog.000001", &FIRST[..22_129]);
    let mut source = source::Source::open(&directory, &GtidSet::new(), None).unwrap();
    let first = set("1-5:extra:7:mainstay:1");
    assert!(source.cut(&first).unwrap().is_some());
    world.write("binlog.000002", SECOND);
    world.purge(&["binlog.000001"]);
    assert_eq!(source.rest(&set(TWO)).unwrap(), source::Rest::AnotherFile);
    let piece = source.cut(&set(TWO)).unwrap().unwrap();
    assert_eq!(piece.gtids(), set("6-8:mainstay:2"));
    assert!(source.take_unlogged().is_empty());
}

#[tokio::test]
async fn a_file_that_is_named_and_gone_does_not_hold_the_archive_up() {
    let world = World::new();
    world.write_all();
    world.executes(ALL);
    let data = world.shared.config.paths.data();
    std::fs::remove_file(data.join("binlog.000001")).unwrap();
    world.mysql.change(|state| state.purged = set("1-5:extra:7:mainstay:1"));
    world.begin(7, "1-5:extra:7:mainstay:1");
    world.until_stored(ALL).await;
}

#[tokio::test]
async fn damage_is_told_with_its_place_and_never_stored() {
    let world = World::new();
    let mut damaged = FIRST.to_vec();
    damaged[10_000] ^= 1;
    world.write("binlog.000001", &damaged);
    world.executes("1-5:extra:7:mainstay:1");
    world.begin(7, "");
    let report = world.until("it is refused", |report| !report.error.is_empty()).await;
    assert!(
        report.error.contains("position 1770") && report.error.contains("binlog.000001"),
        "{}",
        report.error
    );
    assert!(!world.archived().await.stored().contains(&set("5")));
}

/// Rules of the store: what fails is told in its words, and tried again until it works.
#[tokio::test]
async fn a_store_that_denies_is_told_and_tried_again() {
    let world = World::new();
    world.write_all();
    world.executes(ALL);
    world.store.inject(StoreFault {
        operation: Operation::PutStream,
        nth: 1,
        failure: Failure::Denied,
    });
    world.begin(7, "");
    let report = world.until("it is told", |report| !report.error.is_empty()).await;
    assert!(report.error.contains("access denied"), "{}", report.error);
    let report = world.until_stored(ALL).await;
    world.until("it works", |report| report.error.is_empty()).await;
    assert!(report.segments > 0);
}

#[tokio::test]
async fn a_store_that_is_declared_later_is_used_and_one_that_is_gone_is_not() {
    let world = World::new();
    let file = world.shared.config.paths.store.join(mainstay_store::ACCESS_FILE);
    let access = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    world.write_all();
    world.executes(ALL);
    world.begin(7, "");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(world.shared.archive(), None);
    std::fs::write(&file, access).unwrap();
    world.until_stored(ALL).await;
    std::fs::remove_file(&file).unwrap();
    timeout(SOON, async {
        while world.shared.archive().is_some() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_end_of_the_binlog_is_stored_before_a_stop() {
    let world = World::new();
    world.write("binlog.000001", &FIRST[..343]);
    world.executes("1");
    world.begin(7, "");
    world.until_stored("1").await;
    world.write("binlog.000001", &FIRST[343..555]);
    world.executes("1-2");
    world.archive.finish(SOON).await;
    assert_eq!(world.archived().await.reaches(), set("1-2"));
    assert_eq!(world.shared.archive(), None);
}

#[tokio::test]
async fn a_stop_waits_for_no_store_that_does_not_answer() {
    let world = World::new();
    world.write("binlog.000001", FIRST);
    world.executes("1-5:extra:7:mainstay:1");
    for nth in 1..50 {
        world.store.inject(StoreFault {
            operation: Operation::PutStream,
            nth,
            failure: Failure::Unreachable,
        });
    }
    world.begin(7, "");
    world.until("it fails", |report| !report.error.is_empty()).await;
    let began = tokio::time::Instant::now();
    world.archive.finish(SOON).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn two_instances_of_one_epoch_do_not_write_to_one_reign() {
    let world = World::new();
    world.write_all();
    world.executes(ALL);
    world.begin(7, "1-2");
    world.until_stored(ALL).await;
    let other = world.beside();
    other.write_all();
    other.executes(ALL);
    other.begin(7, "1-3");
    let report = other.until("it is refused", |report| !report.error.is_empty()).await;
    assert!(report.error.contains("exists with other content"), "{}", report.error);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::too_many_lines, reason = "a test tells one story")]
async fn many_indexes_become_one() {
    let store = Memory::new();
    let catalog = Catalog {
        store: Arc::new(store.clone()),
        cluster: identity(),
    };
    let index = |sequence: u64| SegmentIndex {
        format: FORMAT,
        cluster: identity(),
        epoch: 7,
        server_uuid: UUID.to_owned(),
        mysql_version: "9.7.4".to_owned(),
        segments: vec![Segment {
            sequence,
            file: StoredFile {
                name: String::new(),
                size: 0,
                sha256: String::new(),
            },
            uncompressed_bytes: 0,
            encryption: None,
            previous: GtidSet::new(),
            gtids: GtidSet::new(),
            missing: GtidSet::new(),
            transactions: Vec::new(),
        }],
    };
    let put = async |sequence: u64| {
        let json = index(sequence).to_json().unwrap();
        let key = identity().segment_index(7, sequence, sequence);
        let bytes = json.len() as u64;
        store.put(&key, json.into(), Existing::Keep).await.unwrap();
        mainstay_core::backup::archive::Index {
            first: sequence,
            last: sequence,
            bytes,
        }
    };
    // A number is left out.
    let mut indexes = Vec::new();
    for sequence in (1..=40).filter(|sequence| *sequence != 5) {
        indexes.push(put(sequence).await);
    }
    for (operation, failure) in [
        (Operation::Get, Failure::Unreachable),
        (Operation::Put, Failure::AnswerLost),
        (Operation::Delete, Failure::Unreachable),
    ] {
        store.inject(StoreFault {
            operation,
            nth: 1,
            failure,
        });
    }
    let new = indexes.split_off(20);
    let (sender, receiver) = mpsc::unbounded_channel();
    let merger = tokio::spawn(merge::merge(catalog.clone(), 7, indexes, receiver));
    for index in new {
        sender.send(index).unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    let merged = timeout(SOON, async {
        loop {
            let indexes = catalog.indexes(7).await.unwrap();
            if indexes.iter().any(|index| index.first < index.last) {
                return indexes;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    let one = merged.into_iter().find(|index| index.first < index.last).unwrap();
    assert_eq!((one.first, one.last), (1, 33));
    let numbers: Vec<u64> = catalog
        .index(7, one)
        .await
        .unwrap()
        .segments
        .iter()
        .map(|segment| segment.sequence)
        .collect();
    assert_eq!(numbers, (1..=33).filter(|sequence| *sequence != 5).collect::<Vec<_>>());
    drop(sender);
    timeout(Duration::from_mins(5), merger).await.unwrap().unwrap();
    // The next one finds what was not deleted.
    let left = catalog.indexes(7).await.unwrap();
    assert!(left.len() > 8);
    let (sender, receiver) = mpsc::unbounded_channel();
    drop(sender);
    merge::merge(catalog.clone(), 7, left, receiver).await;
    assert_eq!(catalog.indexes(7).await.unwrap().len(), 8, "one, and those from 34 on");
}

/// A store fails, and the process ends, at any points: at the end everything is there, and nothing twice in a recovery.
fn any_faults() -> impl Strategy<Value = Vec<(Operation, u32, Failure)>> {
    let operation = prop::sample::select(vec![
        Operation::Put,
        Operation::PutStream,
        Operation::Get,
        Operation::List,
        Operation::Delete,
    ]);
    let failure = prop::sample::select(vec![
        Failure::Unreachable,
        Failure::AnswerLost,
        Failure::Denied,
        Failure::Cut(40),
    ]);
    prop::collection::vec((operation, 1_u32..8, failure), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_fails_the_archive_is_whole_at_the_end(
        faults in any_faults(),
        cuts in prop::collection::vec(1_usize..24_000, 0..4),
        ends in prop::collection::vec(any::<bool>(), 4),
    ) {
        // Time is nobody's business here: it goes on when there is nothing else to do.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            for (operation, nth, failure) in &faults {
                world.store.inject(StoreFault { operation: *operation, nth: *nth, failure: *failure });
            }
            let stream: Vec<(&str, &[u8])> =
                vec![("binlog.000001", FIRST), ("binlog.000002", SECOND), ("binlog.000003", LAST)];
            let whole: usize = stream.iter().map(|(_, bytes)| bytes.len()).sum();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % whole).chain([0, whole]).collect();
            cuts.sort_unstable();
            for (at, cut) in cuts.windows(2).enumerate() {
                write_part(&world, &stream, cut[0], cut[1]);
                // All that is written whole is executed.
                world.executes(&executed(&stream, cut[1]));
                world.begin(7, "");
                sleep(Duration::from_millis(20)).await;
                if ends.get(at) == Some(&true) {
                    world.archive.end().await;
                }
            }
            world.begin(7, "");
            world.until_stored(ALL).await;
            // What has not failed yet would fail whoever judges.
            for _ in 0..10 {
                drop(world.store.get(&identity().reign_manifest(1), 1).await);
                drop(world.store.list_all(Listing::shallow(identity().binlogs())).await);
            }
            let archived = world.archived().await;
            assert_eq!(archived.reaches(), set(ALL));
            archived.files(&world.store, None).await;
        });
    }
}

/// Writes what lies between two places of the stream of all files.
fn write_part(world: &World, stream: &[(&str, &[u8])], from: usize, to: usize) {
    let mut begin = 0;
    for (name, bytes) in stream {
        let end = begin + bytes.len();
        let (first, last) = (from.clamp(begin, end), to.clamp(begin, end));
        if first < last {
            world.write(name, &bytes[first - begin..last - begin]);
        }
        begin = end;
    }
}

/// Transactions that are whole when so much is written.
fn executed(stream: &[(&str, &[u8])], to: usize) -> String {
    use mainstay_mysql::binlog::{Found, Scanner};
    let mut all = GtidSet::new();
    let mut begin = 0;
    for (_, bytes) in stream {
        let part = &bytes[..to.saturating_sub(begin).min(bytes.len())];
        let mut found = Vec::new();
        Scanner::new().feed(part, &mut found).unwrap();
        let gtids = found.into_iter().filter_map(|found| match found {
            Found::Transaction(transaction) => Some(transaction.gtid),
            _ => None,
        });
        all = all.union(&gtids.collect());
        begin += bytes.len();
    }
    all.to_string()
        .strip_prefix(&format!("{UUID}:"))
        .unwrap_or_default()
        .to_owned()
}
