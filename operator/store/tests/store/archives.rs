//! Directories into a store and back, and what must not come back.

use std::path::Path;

use mainstay_store::archive::{
    ArchiveError, Make, Meter, Packer, PrivateKey, Sealer, Sealing, Take, Tally, content_size, load_directory,
    load_files, open, open_bytes, pack, seal_bytes, store_directory, store_files, unpack,
};
use mainstay_store::backup::manifest::StoredFile;
use mainstay_store::backup::{BackupId, ClusterIdentity, Key};
use mainstay_store::pipe::pipe;
use mainstay_store::{Failure, Fault, Memory, Operation, Store, StoreError};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tar::{Builder, EntryType, Header};

use crate::conformance::body;
use crate::support::{Gateway, Noise};

fn cluster() -> ClusterIdentity {
    ClusterIdentity::new("prod", "shop", "u1").unwrap()
}

fn id() -> BackupId {
    BackupId::parse("nightly-1").unwrap()
}

fn data(encrypted: bool) -> Key {
    cluster().backup_data(&id(), encrypted)
}

/// Something like a data directory.
fn tree() -> TempDir {
    let root = TempDir::new().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    write("ibdata1", &Noise::bytes(1, 3 << 20));
    write("mysql.ibd", &vec![0; 1 << 20]);
    write("shop/orders.ibd", &Noise::bytes(2, 100_001));
    write(&format!("shop/{}.ibd", "long".repeat(50)), b"a long name");
    write("shop/@00e4.ibd", b"");
    write("auto.cnf", b"[auto]");
    write("#innodb_redo/#ib_redo1", &[7; 4096]);
    std::fs::create_dir(root.path().join("empty")).unwrap();
    root
}

/// Names and content of a tree.
fn listed(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.push((name, None));
                open.push(path);
            } else {
                found.push((name, Some(std::fs::read(path).unwrap())));
            }
        }
    }
    found.sort();
    found
}

fn auto_cnf(path: &Path) -> bool {
    path == Path::new("auto.cnf")
}

fn for_key(key: &PrivateKey) -> Sealing {
    Sealing {
        level: 3,
        recipient: Some(key.recipient()),
    }
}

async fn round_trip(store: &dyn Store, sealing: &Sealing, key: Option<&PrivateKey>) {
    let root = tree();
    let object = data(key.is_some());
    let meter = Meter::default();
    let packed = store_directory(store, &object, root.path(), auto_cnf, sealing, &meter)
        .await
        .unwrap();
    assert_eq!(packed.content.files, 6);
    assert_eq!(meter.bytes(), packed.content.bytes);
    assert_eq!(content_size(root.path(), auto_cnf).await.unwrap(), packed.content.bytes);
    assert_eq!(store.head(&object).await.unwrap().size, packed.file.size);

    let target = TempDir::new().unwrap();
    let folder = cluster().backup(&id());
    let loaded = load_directory(store, &folder, &packed.file, key, target.path())
        .await
        .unwrap();
    assert_eq!(loaded, packed.content);
    std::fs::remove_file(root.path().join("auto.cnf")).unwrap();
    assert!(listed(root.path()) == listed(target.path()));

    let again = load_directory(store, &folder, &packed.file, key, target.path())
        .await
        .unwrap_err();
    assert!(matches!(again, ArchiveError::NotEmpty { .. }), "{again}");
    let twice = store_directory(store, &object, root.path(), auto_cnf, sealing, &Meter::default())
        .await
        .unwrap_err();
    assert!(
        matches!(twice, ArchiveError::Store(StoreError::AlreadyExists { .. })),
        "{twice}"
    );
}

#[tokio::test]
async fn what_is_stored_comes_back() {
    round_trip(&Memory::new(), &Sealing::default(), None).await;
    let key = PrivateKey::generate();
    round_trip(&Memory::new(), &for_key(&key), Some(&key)).await;
}

/// Files as they are made: name and parts; and an error behind them, if there is one.
struct Made {
    files: Vec<(String, Vec<Vec<u8>>)>,
    fails: bool,
}

impl Made {
    fn of(files: u8) -> Self {
        let parts = |number: u8| (0..number).map(move |part| Noise::bytes(number.into(), 40_000 + usize::from(part)));
        Self {
            files: (1..=files)
                .map(|number| (format!("{number}.sql"), parts(number).collect()))
                .collect(),
            fails: false,
        }
    }
}

fn refused(reason: String) -> ArchiveError {
    ArchiveError::Key { reason }
}

impl Make for Made {
    type Error = ArchiveError;

    async fn fill(&mut self, packer: &mut Packer) -> Result<(), ArchiveError> {
        for (name, parts) in &self.files {
            packer.add(name, parts).await?;
        }
        if self.fails {
            Err(refused("the server ended".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// Takes files, but for those of this name.
#[derive(Default)]
struct Taken {
    files: Vec<(String, Vec<u8>)>,
    refuses: Option<&'static str>,
}

impl Take for Taken {
    type Error = ArchiveError;

    async fn take(&mut self, name: String, content: Vec<u8>) -> Result<(), ArchiveError> {
        if self.refuses == Some(name.as_str()) {
            return Err(refused(format!("{name} is refused")));
        }
        self.files.push((name, content));
        Ok(())
    }
}

#[tokio::test]
async fn files_that_are_made_one_by_one_come_back_one_by_one() {
    let (store, key) = (Memory::new(), PrivateKey::generate());
    let (object, folder) = (data(true), cluster().backup(&id()));
    let packed = store_files(&store, &object, &for_key(&key), 1 << 20, &mut Made::of(9)).await;
    let packed = packed.unwrap();
    assert_eq!(packed.content.files, 9);
    let mut taken = Taken::default();
    let loaded = load_files(&store, &folder, &packed.file, Some(&key), 1 << 20, &mut taken);
    assert_eq!(loaded.await.unwrap(), packed.content);
    let expected = Made::of(9)
        .files
        .into_iter()
        .map(|(name, parts)| (name, parts.concat()));
    assert!(taken.files == expected.collect::<Vec<_>>());

    // A file that is larger than there can be one.
    let large = load_files(&store, &folder, &packed.file, Some(&key), 1000, &mut taken).await;
    assert!(matches!(large, Err(ArchiveError::Suspicious { .. })), "{large:?}");
}

/// What is made of a damaged archive may be refused before the damage is found: that is not the reason.
#[tokio::test]
async fn whoever_refuses_a_file_is_told_of_damage_first() {
    let store = Memory::new();
    let (object, folder) = (data(false), cluster().backup(&id()));
    let packed = store_files(&store, &object, &Sealing::default(), 1 << 20, &mut Made::of(3)).await;
    let mut file = packed.unwrap().file;
    let mut taken = Taken {
        refuses: Some("2.sql"),
        ..Taken::default()
    };
    let refused = load_files(&store, &folder, &file, None, 2 << 20, &mut taken).await;
    assert!(
        matches!(&refused, Err(ArchiveError::Key { reason }) if reason == "2.sql is refused"),
        "{refused:?}"
    );
    assert_eq!(taken.files.len(), 1);
    file.sha256 = "00".repeat(32);
    let damaged = load_files(&store, &folder, &file, None, 2 << 20, &mut taken).await;
    assert!(matches!(damaged, Err(ArchiveError::Damaged { .. })), "{damaged:?}");
}

#[tokio::test]
async fn of_files_nothing_is_stored_when_one_cannot_be_made() {
    let store = Memory::new();
    let object = data(false);
    let mut made = Made {
        fails: true,
        ..Made::of(9)
    };
    let failed = store_files(&store, &object, &Sealing::default(), 1 << 20, &mut made).await;
    let failed = failed.unwrap_err();
    assert!(
        matches!(&failed, ArchiveError::Key { reason } if reason == "the server ended"),
        "{failed}"
    );
    assert!(store.head(&object).await.is_err());
    // A store that takes nothing is the reason, too, and whoever makes the files ends.
    made.fails = false;
    store_files(&store, &object, &Sealing::default(), 1 << 20, &mut made)
        .await
        .unwrap();
    let exists = store_files(&store, &object, &Sealing::default(), 1 << 20, &mut made).await;
    let exists = exists.unwrap_err();
    assert!(
        matches!(exists, ArchiveError::Store(StoreError::AlreadyExists { .. })),
        "{exists}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn what_is_stored_in_s3_comes_back() {
    let gateway = Gateway::start().await;
    let key = PrivateKey::generate();
    round_trip(&gateway.store().await, &for_key(&key), Some(&key)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_bit_that_flips_in_the_store_is_noticed() {
    let gateway = Gateway::start().await;
    let store = gateway.store().await;
    let root = tree();
    let packed = store_directory(
        &store,
        &data(false),
        root.path(),
        auto_cnf,
        &Sealing::default(),
        &Meter::default(),
    )
    .await
    .unwrap();
    let file = gateway.file(data(false).as_str());
    let mut content = std::fs::read(&file).unwrap();
    content[1_000_000] ^= 1;
    std::fs::write(&file, content).unwrap();
    let target = TempDir::new().unwrap();
    let folder = cluster().backup(&id());
    let error = load_directory(&store, &folder, &packed.file, None, target.path())
        .await
        .unwrap_err();
    assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
}

/// The way that `docs/backup-format.md` describes.
#[tokio::test]
#[ignore = "needs the programs age, zstd and tar"]
async fn a_backup_is_restored_by_hand() {
    let root = tree();
    let files = TempDir::new().unwrap();
    let key = PrivateKey::generate();
    let sink = tokio::fs::File::create(files.path().join("data.tar.zst.age"))
        .await
        .unwrap();
    let (_, tally) = pack(root.path(), |_| false, sink, &for_key(&key), &Meter::default())
        .await
        .unwrap();
    std::fs::write(
        files.path().join("key.txt"),
        secrecy::ExposeSecret::expose_secret(&key.to_text()),
    )
    .unwrap();
    let script = format!(
        "set -e; mkdir data; echo '{}  data.tar.zst.age' | sha256sum -c -; \
         age -d -i key.txt data.tar.zst.age | zstd -dc | tar -xf - -C data",
        tally.sha256
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(files.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(listed(root.path()) == listed(&files.path().join("data")));
}

/// What the programs make can be read: the format is theirs.
#[tokio::test]
async fn what_age_and_zstd_made_is_read() {
    let sealed: &[u8] = include_bytes!("fixtures/hello.zst.age");
    let key = PrivateKey::parse(&include_str!("fixtures/key.txt").into()).unwrap();
    let content = open_bytes(sealed.into(), &file("hello.zst.age", sealed), Some(&key), 100)
        .await
        .unwrap();
    assert_eq!(content, b"made by zstd and age\n");
}

/// What a manifest would say of these bytes.
fn file(name: &str, stored: &[u8]) -> StoredFile {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, stored);
    StoredFile {
        name: name.to_owned(),
        size: stored.len() as u64,
        sha256: digest
            .as_ref()
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
    }
}

#[tokio::test]
async fn a_key_that_is_missing_or_wrong_is_called_so() {
    let key = PrivateKey::generate();
    let (sealed, Tally { bytes, sha256 }) = seal_bytes(b"secret", &for_key(&key)).await.unwrap();
    let file = StoredFile {
        name: "x.zst.age".to_owned(),
        size: bytes,
        sha256,
    };
    for wrong in [None, Some(PrivateKey::generate())] {
        let error = open_bytes(sealed.clone(), &file, wrong.as_ref(), 100)
            .await
            .unwrap_err();
        assert!(matches!(error, ArchiveError::Key { .. }), "{error}");
    }
    assert_eq!(
        open_bytes(sealed.clone(), &file, Some(&key), 6).await.unwrap(),
        b"secret"
    );
    assert!(open_bytes(sealed, &file, Some(&key), 5).await.is_err());
}

#[tokio::test]
async fn a_store_that_fails_is_named_and_nothing_is_stored() {
    let root = tree();
    let store = Memory::new();
    for failure in [Failure::Unreachable, Failure::Denied, Failure::Cut(1000)] {
        store.inject(Fault {
            operation: Operation::PutStream,
            nth: 1,
            failure,
        });
        let error = store_directory(
            &store,
            &data(false),
            root.path(),
            auto_cnf,
            &Sealing::default(),
            &Meter::default(),
        )
        .await;
        assert!(matches!(error, Err(ArchiveError::Store(_))), "{error:?}");
        assert!(store.head(&data(false)).await.is_err());
    }
}

#[tokio::test]
async fn what_cannot_be_archived_is_named_and_nothing_is_stored() {
    let root = tree();
    std::os::unix::fs::symlink("/elsewhere", root.path().join("shop/link.ibd")).unwrap();
    let store = Memory::new();
    let error = store_directory(
        &store,
        &data(false),
        root.path(),
        auto_cnf,
        &Sealing::default(),
        &Meter::default(),
    )
    .await
    .unwrap_err();
    assert!(matches!(error, ArchiveError::Unsupported { .. }), "{error}");
    assert!(store.head(&data(false)).await.is_err());
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_a_restore() {
    let root = tree();
    let store = Memory::new();
    let packed = store_directory(
        &store,
        &data(false),
        root.path(),
        auto_cnf,
        &Sealing::default(),
        &Meter::default(),
    )
    .await
    .unwrap();
    let folder = cluster().backup(&id());
    for failure in [
        Failure::Cut(2_000_000),
        Failure::Cut(packed.file.size - 1),
        Failure::Flip(1_500_000),
    ] {
        store.inject(Fault {
            operation: Operation::GetStream,
            nth: 1,
            failure,
        });
        let target = TempDir::new().unwrap();
        let error = load_directory(&store, &folder, &packed.file, None, target.path())
            .await
            .unwrap_err();
        match failure {
            Failure::Cut(_) => assert!(
                matches!(error, ArchiveError::Store(StoreError::Unreachable { .. })),
                "{error}"
            ),
            _ => assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}"),
        }
    }
}

/// An archive with one entry that nobody should make.
async fn malicious(kind: EntryType, name: &str, link: &str) -> Vec<u8> {
    let (sink, mut stored) = pipe();
    let sealer = Sealer::new(sink, &Sealing::default()).await.unwrap();
    let mut builder = Builder::new_non_terminated(sealer);
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(4);
    header.set_mode(0o777);
    // Not by the setters: they refuse such names.
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    if kind != EntryType::Regular {
        header.set_size(0);
        header.set_cksum();
    }
    let content: &[u8] = if kind == EntryType::Regular { b"evil" } else { b"" };
    let write = async {
        builder.append(&header, content).await.unwrap();
        let mut sealer = builder.into_inner().await.unwrap();
        sealer.write_all(&[0; 1024]).await.unwrap();
        sealer.finish().await.unwrap();
    };
    let mut bytes = Vec::new();
    let ((), read) = tokio::join!(write, stored.read_to_end(&mut bytes));
    read.unwrap();
    bytes
}

#[tokio::test]
async fn nothing_is_unpacked_outside_of_the_directory() {
    let outside = TempDir::new().unwrap();
    let absolute = outside.path().join("evil");
    let entries = [
        (EntryType::Regular, "../evil", ""),
        (EntryType::Regular, "a/../../evil", ""),
        (EntryType::Regular, absolute.to_str().unwrap(), ""),
        (EntryType::Symlink, "link", outside.path().to_str().unwrap()),
        (EntryType::Link, "link", "/etc/passwd"),
        (EntryType::Char, "device", ""),
        (EntryType::Fifo, "fifo", ""),
        (EntryType::Directory, "..", ""),
    ];
    for (kind, name, link) in entries {
        let archive = malicious(kind, name, link).await;
        let target = outside.path().join("target");
        std::fs::create_dir_all(&target).unwrap();
        let file = file("data.tar.zst", &archive);
        let opened = open(body(archive), &file, None).await.unwrap();
        let error = unpack(opened, &target).await.unwrap_err();
        assert!(
            matches!(error, ArchiveError::Suspicious { .. }),
            "{kind:?} {name}: {error}"
        );
        assert_eq!(listed(outside.path()), [("target".to_owned(), None)], "{kind:?} {name}");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_come_back(seed: u64, size in 0_usize..400_000, encrypted: bool, level in 1..6) {
        block_on(async {
            let key = PrivateKey::generate();
            let sealing = Sealing { level, recipient: encrypted.then(|| key.recipient()) };
            let content = Noise::bytes(seed, size);
            let (sealed, tally) = seal_bytes(&content, &sealing).await.unwrap();
            let name = if encrypted { "x.zst.age" } else { "x.zst" };
            let file = file(name, &sealed);
            assert_eq!((file.size, &file.sha256), (tally.bytes, &tally.sha256));
            assert!(open_bytes(sealed, &file, Some(&key), size as u64).await.unwrap() == content);
        });
    }

    /// Whatever is changed in what is stored: an error, never other bytes.
    #[test]
    fn no_damage_passes(seed: u64, size in 0_usize..200_000, encrypted: bool, at: prop::sample::Index, cut: bool) {
        block_on(async {
            let key = PrivateKey::generate();
            let sealing = Sealing { level: 1, recipient: encrypted.then(|| key.recipient()) };
            let content = Noise::bytes(seed, size);
            let (sealed, _) = seal_bytes(&content, &sealing).await.unwrap();
            let name = if encrypted { "x.zst.age" } else { "x.zst" };
            let whole = file(name, &sealed);
            let mut damaged = sealed.to_vec();
            let at = at.index(damaged.len());
            if cut {
                damaged.truncate(at);
            } else {
                damaged[at] ^= 1;
            }
            assert!(open_bytes(damaged.clone().into(), &whole, Some(&key), size as u64).await.is_err());
            if encrypted {
                // Even if somebody mends the manifest: each chunk is authenticated, and so is the end.
                let forged = file(name, &damaged);
                assert!(open_bytes(damaged.into(), &forged, Some(&key), size as u64).await.is_err());
            }
        });
    }
}
