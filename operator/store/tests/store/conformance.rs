//! What every store does. Each function works in a folder of its own.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use mainstay_store::backup::{ClusterIdentity, Folder, Key};
use mainstay_store::{Body, Depth, Entry, Existing, Listing, Span, Store, StoreError, StreamOptions};
use tokio::io::{AsyncReadExt as _, ReadBuf};

use crate::support::Noise;

const MIB: usize = 1024 * 1024;

pub(crate) const REPLACE: StreamOptions = StreamOptions {
    existing: Existing::Replace,
    expected: None,
};
pub(crate) const KEEP: StreamOptions = StreamOptions {
    existing: Existing::Keep,
    expected: None,
};

/// Everything, one after the other.
pub(crate) async fn all(store: &dyn Store) {
    small_objects(store).await;
    what_exists_is_kept(store).await;
    streams_of_every_size(store).await;
    parts_of_objects(store).await;
    content_that_fails_is_not_stored(store).await;
    listings(store).await;
    many_objects(store).await;
    f22_clusters_share_nothing(store).await;
}

pub(crate) fn folder(name: &str) -> Folder {
    Folder::parse(name).unwrap()
}

pub(crate) fn body(content: impl Into<Bytes>) -> Body {
    Box::pin(io::Cursor::new(content.into()))
}

pub(crate) async fn read(store: &dyn Store, key: &Key, span: Span) -> Vec<u8> {
    let mut download = store.get_stream(key, span).await.unwrap();
    let mut content = Vec::new();
    download.body.read_to_end(&mut content).await.unwrap();
    content
}

async fn small_objects(store: &dyn Store) {
    let key = folder("small").key("a b+c=ü.json").unwrap();
    assert!(matches!(store.get(&key, 10).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.head(&key).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(
        store.get_stream(&key, Span::ALL).await,
        Err(StoreError::NotFound { .. })
    ));
    store.delete(&key).await.unwrap();

    for content in ["first", "", "second"] {
        store.put(&key, content.into(), Existing::Replace).await.unwrap();
        assert_eq!(store.get(&key, 10).await.unwrap(), content.as_bytes());
    }
    let info = store.head(&key).await.unwrap();
    let age = Timestamp::now().duration_since(info.modified);
    assert_eq!((info.key.clone(), info.size), (key.clone(), 6));
    assert!(age.as_secs().abs() < 60, "it was stored {age:?} ago");
    let refused = store.get(&key, 5).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLarge { limit: 5, .. }), "{refused}");

    store.delete(&key).await.unwrap();
    assert!(matches!(store.get(&key, 10).await, Err(StoreError::NotFound { .. })));
}

async fn what_exists_is_kept(store: &dyn Store) {
    let key = folder("kept").key("manifest.json").unwrap();
    store.put(&key, "first".into(), Existing::Keep).await.unwrap();
    let refused = store.put(&key, "second".into(), Existing::Keep).await.unwrap_err();
    assert!(matches!(refused, StoreError::AlreadyExists { .. }), "{refused}");
    for size in [1, 9 * MIB] {
        let refused = store.put_stream(&key, body(vec![7; size]), KEEP).await.unwrap_err();
        assert!(matches!(refused, StoreError::AlreadyExists { .. }), "{refused}");
    }
    assert_eq!(store.get(&key, 10).await.unwrap(), "first");
    assert_eq!(store.incomplete(&folder("kept")).await.unwrap(), []);
    let other = folder("kept").key("large").unwrap();
    store.put_stream(&other, body(vec![7; 9 * MIB]), KEEP).await.unwrap();
}

async fn streams_of_every_size(store: &dyn Store) {
    for size in [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 25 * MIB] {
        let key = folder("streams").key(&size.to_string()).unwrap();
        let content = Noise::bytes(size as u64, size);
        let stored = store.put_stream(&key, body(content.clone()), REPLACE).await.unwrap();
        assert_eq!(stored.size, size as u64);
        assert!(
            read(store, &key, Span::ALL).await == content,
            "{size} bytes came back changed"
        );
        assert_eq!(store.head(&key).await.unwrap().size, size as u64);
    }
}

async fn parts_of_objects(store: &dyn Store) {
    let key = folder("spans").key("object").unwrap();
    store.put(&key, "0123456789".into(), Existing::Replace).await.unwrap();
    let spans = [
        (0, None, "0123456789"),
        (4, None, "456789"),
        (4, Some(3), "456"),
        (4, Some(0), ""),
        (9, Some(100), "9"),
        (10, None, ""),
        (11, Some(5), ""),
    ];
    for (from, length, expected) in spans {
        let span = Span { from, length };
        assert_eq!(read(store, &key, span).await, expected.as_bytes(), "{span:?}");
        assert_eq!(store.get_stream(&key, span).await.unwrap().size, 10, "{span:?}");
    }
}

/// Fails after so many bytes.
struct Failing(usize);

impl tokio::io::AsyncRead for Failing {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let taken = self.0.min(buffer.remaining()).min(4096);
        if taken == 0 {
            return std::task::Poll::Ready(Err(io::Error::other("the disk is gone")));
        }
        buffer.put_slice(&[7; 4096][..taken]);
        self.0 -= taken;
        std::task::Poll::Ready(Ok(()))
    }
}

async fn content_that_fails_is_not_stored(store: &dyn Store) {
    let key = folder("failing").key("object").unwrap();
    for size in [0, 100, 8 * MIB, 20 * MIB] {
        let failed = store
            .put_stream(&key, Box::pin(Failing(size)), REPLACE)
            .await
            .unwrap_err();
        assert!(matches!(failed, StoreError::Content { .. }), "{failed}");
        assert!(failed.to_string().contains("the disk is gone"), "{failed}");
        assert!(matches!(store.head(&key).await, Err(StoreError::NotFound { .. })));
        assert_eq!(store.incomplete(&folder("failing")).await.unwrap(), []);
    }
    // Whoever waits for it gives up: it is aborted all the same.
    let (_open, never) = tokio::io::duplex(1);
    let stuck = Noise::new(1, 20 << 20).chain(never);
    let given_up = tokio::time::timeout(Duration::from_secs(2), store.put_stream(&key, Box::pin(stuck), REPLACE)).await;
    assert!(given_up.is_err());
    // A part that is on its way is waited for, and a busy machine takes its time.
    for _ in 0..600 {
        if store.incomplete(&folder("failing")).await.unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(store.incomplete(&folder("failing")).await.unwrap(), []);
    assert!(matches!(store.head(&key).await, Err(StoreError::NotFound { .. })));
}

async fn names(store: &dyn Store, listing: Listing) -> Vec<String> {
    let entries = store.list_all(listing).await.unwrap();
    entries
        .into_iter()
        .map(|entry| match entry {
            Entry::Object(object) => object.key.to_string(),
            Entry::Folder(folder) => folder.to_string(),
        })
        .collect()
}

async fn listings(store: &dyn Store) {
    let all = ["list/a/1", "list/a/2", "list/b", "list/c/d/3", "list/e", "list-2/a/1"];
    for key in all {
        store
            .put(&Key::parse(key).unwrap(), key.into(), Existing::Replace)
            .await
            .unwrap();
    }
    assert_eq!(names(store, Listing::all(folder("list"))).await, all[..5]);
    assert_eq!(
        names(store, Listing::shallow(folder("list"))).await,
        ["list/a/", "list/b", "list/c/", "list/e"]
    );
    let after = Listing {
        folder: folder("list"),
        depth: Depth::Deep,
        after: Some(Key::parse("list/a/2").unwrap()),
    };
    assert_eq!(names(store, after).await, all[2..5]);
    assert_eq!(names(store, Listing::all(folder("list/none"))).await, [""; 0]);
    let root = names(store, Listing::shallow(Folder::root())).await;
    assert!(
        root.contains(&"list/".to_owned()) && root.contains(&"list-2/".to_owned()),
        "{root:?}"
    );
    let Entry::Object(object) = store.list(Listing::all(folder("list"))).next().await.unwrap().unwrap() else {
        panic!("a folder in a deep listing");
    };
    assert_eq!(object.size, 8);
}

/// More than a page holds, and more than one request deletes.
async fn many_objects(store: &dyn Store) {
    let many = folder("many");
    let keys: Vec<Key> = (0..1100).map(|i| many.key(&format!("{i:05}")).unwrap()).collect();
    futures::stream::iter(keys.iter().map(Ok::<_, StoreError>))
        .try_for_each_concurrent(8, |key| store.put(key, "x".into(), Existing::Keep))
        .await
        .unwrap();
    let found: Vec<String> = names(store, Listing::all(many.clone())).await;
    assert_eq!(found, keys.iter().map(Key::to_string).collect::<Vec<_>>());
    store.delete_all(&keys[..1099]).await.unwrap();
    assert_eq!(names(store, Listing::all(many.clone())).await, ["many/01099"]);
    // Those that are gone are no error.
    store.delete_all(&keys).await.unwrap();
    assert_eq!(names(store, Listing::all(many)).await, [""; 0]);
    store.delete_all(&[]).await.unwrap();
}

async fn f22_clusters_share_nothing(store: &dyn Store) {
    let clusters: Vec<ClusterIdentity> = [
        ("prod", "db", "u1"),
        ("prod", "db-2", "u2"),
        ("prod", "db", "u3"),
        ("prod-2", "db", "u1"),
        ("test", "db", "u1"),
    ]
    .map(|(namespace, name, uid)| ClusterIdentity::new(namespace, name, uid).unwrap())
    .to_vec();
    for cluster in &clusters {
        for key in [cluster.segment(1, 1, false), cluster.segment_index(1, 1, 1)] {
            store.put(&key, "x".into(), Existing::Keep).await.unwrap();
        }
    }
    for (gone, cluster) in clusters.iter().enumerate() {
        let mine = store.list_all(Listing::all(cluster.folder())).await.unwrap();
        assert_eq!(mine.len(), 2, "{cluster:?}: {mine:?}");
        let keys: Vec<Key> = mine
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Object(object) => Some(object.key),
                Entry::Folder(_) => None,
            })
            .collect();
        store.delete_all(&keys).await.unwrap();
        for other in &clusters[gone + 1..] {
            assert_eq!(store.list_all(Listing::all(other.folder())).await.unwrap().len(), 2);
        }
    }
}
