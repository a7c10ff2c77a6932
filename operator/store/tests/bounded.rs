//! Memory of large streams. A program of its own, because memory is that of the whole process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as it must be"
)]

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "it uses a part of it")]
mod support;

use mainstay_store::archive::{Meter, PrivateKey, Sealing, load_directory, store_directory};
use mainstay_store::backup::Key;
use mainstay_store::backup::{BackupId, ClusterIdentity};
use mainstay_store::{Existing, Span, Store, StreamOptions};
use support::{Gateway, Noise};
use tokio::io::AsyncReadExt as _;

const MIB: u64 = 1024 * 1024;
const SIZE: u64 = 300 * MIB;

/// What `docs/backup-format.md` promises for streams up to 54 GiB: parts, and the program itself.
const LIMIT: u64 = 64 * MIB;

/// A figure of /proc/self/status in bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The most that was resident during a future, beyond what was before.
async fn peak<T>(what: &str, future: impl Future<Output = T>) -> T {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS");
    let start = std::time::Instant::now();
    let result = future.await;
    let more = memory("VmHWM").saturating_sub(before);
    println!(
        "{what}: {} MiB more than {} MiB, {:?}",
        more / MIB,
        before / MIB,
        start.elapsed()
    );
    assert!(more <= LIMIT, "{what} took {} MiB", more / MIB);
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_stream_of_300_mib_needs_64_mib() {
    let gateway = Gateway::start().await;
    let store = gateway.store().await;
    let key = Key::parse("prod/shop/object").unwrap();
    // Connections and what the client keeps.
    store.put(&key, "x".into(), Existing::Replace).await.unwrap();

    let options = StreamOptions {
        existing: Existing::Replace,
        expected: None,
    };
    let body = Box::pin(Noise::new(1, SIZE));
    let stored = peak("upload", store.put_stream(&key, body, options)).await.unwrap();
    assert_eq!((stored.size, stored.parts), (SIZE, 38));

    peak("download", async {
        let mut download = store.get_stream(&key, Span::ALL).await.unwrap();
        let mut expected = Noise::new(1, SIZE);
        let (mut found, mut wanted) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        for _ in 0..300 {
            download.body.read_exact(&mut found).await.unwrap();
            expected.fill(&mut wanted);
            assert!(found == wanted);
        }
        assert_eq!(download.body.read(&mut found).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn an_encrypted_directory_of_300_mib_needs_64_mib() {
    let gateway = Gateway::start().await;
    let store = gateway.store().await;
    let root = tempfile::TempDir::new().unwrap();
    for seed in 0..3 {
        let mut file = tokio::fs::File::create(root.path().join(format!("{seed}.ibd")))
            .await
            .unwrap();
        tokio::io::copy(&mut Noise::new(seed + 1, SIZE / 3), &mut file)
            .await
            .unwrap();
    }
    let key = PrivateKey::generate();
    let sealing = Sealing {
        level: 1,
        recipient: Some(key.recipient()),
    };
    let cluster = ClusterIdentity::new("prod", "shop", "u1").unwrap();
    let id = BackupId::parse("nightly-1").unwrap();
    let object = cluster.backup_data(&id, true);
    let meter = Meter::default();
    let packing = store_directory(&store, &object, root.path(), |_| false, &sealing, &meter);
    let packed = peak("store a directory", packing).await.unwrap();
    assert_eq!(packed.content.bytes, SIZE);

    let target = tempfile::TempDir::new().unwrap();
    let folder = cluster.backup(&id);
    let loading = load_directory(&store, &folder, &packed.file, Some(&key), target.path());
    assert_eq!(peak("load a directory", loading).await.unwrap(), packed.content);
}
