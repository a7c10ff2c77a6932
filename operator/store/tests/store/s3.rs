//! The adapter, with a real server and its faults.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use mainstay_store::backup::Key;
use mainstay_store::{Existing, Listing, S3, Settings, Span, Store, StoreError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::AsyncReadExt as _;

use crate::conformance::{self, REPLACE, body, folder};
use crate::proxy::Proxy;
use crate::support::{BUCKET, Gateway, Noise, SECRET_KEY, free_port, keys};

const MIB: u64 = 1024 * 1024;

fn key(name: &str) -> Key {
    folder("prod/shop/u1").key(name).unwrap()
}

async fn with(settings: Settings) -> S3 {
    S3::new(settings).await.unwrap()
}

/// What each kind of request says.
async fn failures(store: &S3) -> Vec<StoreError> {
    let key = key("object");
    let mut failures = vec![
        store.put(&key, "x".into(), Existing::Replace).await.unwrap_err(),
        store
            .put_stream(&key, body(vec![1; 9 << 20]), REPLACE)
            .await
            .unwrap_err(),
        store.get(&key, 10).await.unwrap_err(),
        store.get_stream(&key, Span::ALL).await.err().unwrap(),
        store.head(&key).await.unwrap_err(),
        store.list_all(Listing::all(folder("prod"))).await.unwrap_err(),
        store.incomplete(&folder("prod")).await.unwrap_err(),
        store.delete_all(std::slice::from_ref(&key)).await.unwrap_err(),
    ];
    // A bucket that is not there holds no object either: some stores call that success.
    failures.extend(store.delete(&key).await.err());
    for failure in &failures {
        let text = failure.to_string();
        assert!(text.contains(" at http") && text.contains("127.0.0.1"), "{text}");
        assert!(!text.contains(SECRET_KEY), "{text}");
    }
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn conforms() {
    let gateway = Gateway::start().await;
    conformance::all(&gateway.store().await).await;
    assert_eq!(gateway.parts(), 0, "parts are left");
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_wrong_bucket_is_called_so() {
    let gateway = Gateway::start().await;
    let store = with(Settings {
        bucket: "no-such-bucket".to_owned(),
        ..gateway.settings()
    })
    .await;
    for failure in failures(&store).await {
        assert!(matches!(failure, StoreError::NoSuchBucket { .. }), "{failure}");
    }
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn wrong_credentials_are_called_so() {
    let gateway = Gateway::start().await;
    for identity in [keys("nobody", SECRET_KEY), keys("owner", "wrong-secret")] {
        let store = with(Settings {
            identity,
            ..gateway.settings()
        })
        .await;
        for failure in failures(&store).await {
            assert!(matches!(failure, StoreError::WrongCredentials { .. }), "{failure}");
            assert!(!failure.to_string().contains("wrong-secret"), "{failure}");
        }
    }
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn credentials_that_do_not_suffice_are_called_so() {
    let gateway = Gateway::start().await;
    gateway.add_user("guest", "the-guests-secret").await;
    let store = with(Settings {
        identity: keys("guest", "the-guests-secret"),
        ..gateway.settings()
    })
    .await;
    for failure in failures(&store).await {
        assert!(matches!(failure, StoreError::Denied { .. }), "{failure}");
    }
}

#[tokio::test]
async fn a_store_that_is_away_is_unreachable_soon() {
    let settings = Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", free_port())),
        region: "us-east-1".to_owned(),
        bucket: BUCKET.to_owned(),
        prefix: String::new(),
        path_style: true,
        ca: None,
        identity: keys("owner", "secret"),
    };
    let store = with(settings).await;
    let start = Instant::now();
    let failure = store.head(&key("object")).await.unwrap_err();
    assert!(matches!(failure, StoreError::Unreachable { .. }), "{failure}");
    assert!(failure.may_pass());
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        start.elapsed()
    );
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn only_the_ca_that_was_given_is_trusted() {
    let files = tempfile::TempDir::new().unwrap();
    let ca = authority();
    let key_pair = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key_pair, &ca.1)
        .unwrap();
    let (certificate, key_file) = (files.path().join("tls.crt"), files.path().join("tls.key"));
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key_file, key_pair.serialize_pem()).unwrap();
    let gateway = Gateway::start_tls(&certificate, &key_file).await;

    let trusted = with(Settings {
        ca: Some(ca.0),
        ..gateway.settings()
    })
    .await;
    let failure = trusted.head(&key("object")).await.unwrap_err();
    assert!(matches!(failure, StoreError::NoSuchBucket { .. }), "{failure}");
    for ca in [Some(authority().0), None] {
        let store = with(Settings {
            ca,
            ..gateway.settings()
        })
        .await;
        let failure = store.head(&key("object")).await.unwrap_err();
        assert!(matches!(failure, StoreError::Tls { .. }), "{failure}");
    }
}

/// A CA, as PEM and to sign with.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_flipped_bit_is_noticed() {
    let gateway = Gateway::start().await;
    let store = gateway.store().await;
    store
        .put(&key("manifest.json"), "0123456789".into(), Existing::Keep)
        .await
        .unwrap();
    let file = gateway.file("prod/shop/u1/manifest.json");
    let mut content = std::fs::read(&file).unwrap();
    content[4] ^= 1;
    // In place: the checksum is an attribute of the file.
    std::fs::write(&file, content).unwrap();
    let failure = store.get(&key("manifest.json"), 100).await.unwrap_err();
    assert!(matches!(failure, StoreError::Corrupt { .. }), "{failure}");
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_download_goes_on_where_its_connection_broke() {
    let gateway = Gateway::start().await;
    let content = Noise::bytes(5, 12 << 20);
    gateway
        .store()
        .await
        .put_stream(&key("object"), body(content.clone()), REPLACE)
        .await
        .unwrap();
    let proxy = Proxy::start(gateway.port).await;
    let store = with(Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", proxy.port)),
        ..gateway.settings()
    })
    .await;

    proxy.cut(4, 2 * MIB);
    assert!(conformance::read(&store, &key("object"), Span::ALL).await == content);
    assert_eq!(proxy.cuts_left(), 0, "connections were not cut");

    proxy.cut(2, MIB);
    let span = Span {
        from: 1_000_000,
        length: Some(5 * MIB),
    };
    let part = conformance::read(&store, &key("object"), span).await;
    assert!(part == content[1_000_000..1_000_000 + (5 << 20)]);
    assert_eq!(proxy.cuts_left(), 0, "connections were not cut");
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn an_object_that_is_replaced_while_it_is_read_is_not_mixed() {
    let gateway = Gateway::start().await;
    let direct = gateway.store().await;
    direct
        .put_stream(&key("object"), body(Noise::bytes(5, 12 << 20)), REPLACE)
        .await
        .unwrap();
    let proxy = Proxy::start(gateway.port).await;
    let store = with(Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", proxy.port)),
        ..gateway.settings()
    })
    .await;
    proxy.cut(1, 6 * MIB);
    let mut download = store.get_stream(&key("object"), Span::ALL).await.unwrap();
    download.body.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    direct
        .put_stream(&key("object"), body(Noise::bytes(6, 12 << 20)), REPLACE)
        .await
        .unwrap();
    let error = download.body.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(StoreError::of(&error), Some(StoreError::Corrupt { .. })),
        "{error}"
    );
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn a_download_that_cannot_go_on_is_an_error_and_not_an_end() {
    let gateway = Gateway::start().await;
    gateway
        .store()
        .await
        .put_stream(&key("object"), body(Noise::bytes(5, 12 << 20)), REPLACE)
        .await
        .unwrap();
    let proxy = Proxy::start(gateway.port).await;
    let store = with(Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", proxy.port)),
        ..gateway.settings()
    })
    .await;
    let mut download = store.get_stream(&key("object"), Span::ALL).await.unwrap();
    download.body.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    proxy.cut(u32::MAX, 0);
    let error = download.body.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(StoreError::of(&error), Some(StoreError::Unreachable { .. })),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn an_upload_survives_broken_connections() {
    let gateway = Gateway::start().await;
    let proxy = Proxy::start(gateway.port).await;
    let store = with(Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", proxy.port)),
        ..gateway.settings()
    })
    .await;
    proxy.cut(3, 0);
    let content = Noise::bytes(5, 40 << 20);
    let stored = store
        .put_stream(&key("object"), body(content.clone()), REPLACE)
        .await
        .unwrap();
    assert_eq!((stored.parts, proxy.cuts_left()), (5, 0));
    assert!(conformance::read(&store, &key("object"), Span::ALL).await == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs versitygw, which the testbed builds"]
async fn an_upload_whose_process_died_is_found_and_aborted() {
    let gateway = Gateway::start().await;
    let store = gateway.store().await;
    let client = gateway.client();
    for name in ["prod/shop/u1/data", "prod/shop-2/u2/data"] {
        let full = format!("mainstay/{name}");
        let begun = client
            .create_multipart_upload()
            .bucket(BUCKET)
            .key(&full)
            .send()
            .await
            .unwrap();
        let part = client
            .upload_part()
            .bucket(BUCKET)
            .key(&full)
            .upload_id(begun.upload_id().unwrap());
        part.part_number(1).body(vec![1; 6 << 20].into()).send().await.unwrap();
    }
    assert!(gateway.parts() >= 2);
    let mine = folder("prod/shop");
    let left = store.incomplete(&mine).await.unwrap();
    assert_eq!((left.len(), left[0].key.clone()), (1, key("data")));
    let hour = SignedDuration::from_hours(1);
    assert_eq!(store.abort_before(&mine, Timestamp::now() - hour).await.unwrap(), 0);
    assert_eq!(store.abort_before(&mine, Timestamp::now() + hour).await.unwrap(), 1);
    assert_eq!(store.incomplete(&mine).await.unwrap(), []);
    assert_eq!(store.incomplete(&folder("prod/shop-2")).await.unwrap().len(), 1);
    store.abort(&left[0]).await.unwrap();
}

#[tokio::test]
#[ignore = "needs versitygw, which the testbed builds"]
async fn nothing_outside_of_the_prefix_is_seen() {
    let gateway = Gateway::start().await;
    let mine = gateway.store().await;
    let other = with(Settings {
        prefix: "mainstay-2".to_owned(),
        ..gateway.settings()
    })
    .await;
    other.put(&key("object"), "x".into(), Existing::Keep).await.unwrap();
    assert_eq!(
        mine.list_all(Listing::all(mainstay_store::backup::Folder::root()))
            .await
            .unwrap(),
        []
    );
    mine.delete(&key("object")).await.unwrap();
    assert_eq!(other.get(&key("object"), 10).await.unwrap(), "x");
}
