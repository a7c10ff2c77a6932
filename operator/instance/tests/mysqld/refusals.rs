//! Recoveries that cannot be: what somebody declared wrongly, and what happened to objects in the store. Each is said with its
//! reason, makes nothing, and touches nothing in the store. (More damage to data, and lies in a manifest: `restores.rs`.)

use std::path::PathBuf;

use mainstay_core::backup::Key;
use mainstay_core::backup::restore::Target;
use mainstay_core::observed::Mysqld;
use mainstay_store::archive::PrivateKey;
use mainstay_store::{Identity, Settings};

use crate::restores::{Small, another_cluster, is_refused, refused, small, wipe};
use crate::support::content::content;
use crate::support::store::WISH;
use crate::support::{free_port, show_logs};

/// What a disk or a person does to an object.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flipped,
    Cut,
    Gone,
}

/// A file of the store that is harmed until this is undone. It is written in place and moved as a whole: the checksum that the
/// store keeps with it stays.
struct Harmed {
    file: PathBuf,
    aside: PathBuf,
    whole: Vec<u8>,
}

impl Harmed {
    fn by(harm: Harm, file: PathBuf) -> Self {
        let whole = std::fs::read(&file).unwrap();
        let aside = file.with_extension("aside");
        match harm {
            Harm::Flipped => {
                let mut bytes = whole.clone();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&file, bytes).unwrap();
            }
            Harm::Cut => std::fs::write(&file, &whole[..whole.len() - 3]).unwrap(),
            Harm::Gone => std::fs::rename(&file, &aside).unwrap(),
        }
        Self { file, aside, whole }
    }

    fn undo(self) {
        if self.aside.exists() {
            std::fs::rename(&self.aside, &self.file).unwrap();
        }
        std::fs::write(&self.file, self.whole).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn objects_that_are_harmed_are_named_and_nothing_is_made_of_the_rest() {
    show_logs();
    let small = small(Some(PrivateKey::generate())).await;
    let Small {
        stored,
        backup,
        segments,
        ..
    } = &small;
    let (last, expected) = small.last();
    let target = Target::Gtid(last.clone());
    let cluster = &stored.cluster;
    let segment = segments.last().unwrap();
    let indexes = cluster.segment_indexes(1);
    let index = stored
        .everything()
        .await
        .into_keys()
        .rfind(|key| key.as_str().starts_with(indexes.as_str()))
        .unwrap();
    let (manifest, data) = (cluster.backup_manifest(backup), cluster.backup_data(backup, true));
    let (reign, segment) = (cluster.reign_manifest(1), cluster.segment(1, segment.sequence, true));
    let cases: [(&Key, Harm, &str); 15] = [
        (&manifest, Harm::Flipped, "no complete backup"),
        (&manifest, Harm::Cut, "no complete backup"),
        (&manifest, Harm::Gone, "no complete backup"),
        (&data, Harm::Flipped, "damaged"),
        (&data, Harm::Cut, "no complete backup"),
        (&data, Harm::Gone, "no complete backup"),
        (&segment, Harm::Flipped, segment.file_name()),
        (&segment, Harm::Cut, segment.file_name()),
        (&segment, Harm::Gone, segment.file_name()),
        (&index, Harm::Flipped, index.file_name()),
        (&index, Harm::Cut, index.file_name()),
        (&index, Harm::Gone, "beyond what is stored"),
        (&reign, Harm::Flipped, reign.file_name()),
        (&reign, Harm::Cut, reign.file_name()),
        (&reign, Harm::Gone, reign.file_name()),
    ];
    let mut instance = another_cluster();
    let node = &mut instance.nodes[0];
    let keys = stored.keys();
    for (key, harm, reason) in cases {
        println!("{harm:?} {key}");
        let harmed = Harmed::by(harm, stored.gateway.file(key));
        let before = stored.everything().await;
        let message = refused(node, stored, &target, &keys).await;
        assert!(message.contains(reason), "{harm:?} {key}: {message}");
        assert_eq!(
            stored.everything().await,
            before,
            "{harm:?} {key}: something was deleted"
        );
        harmed.undo();
    }
    // Without harm, at once.
    wipe(node).await;
    stored.give_to(node, &target, &keys);
    node.start().await;
    node.wait("it is recovered", |report| report.mysqld == Mysqld::Running)
        .await;
    assert_eq!(&content(&mut node.inside().await).await, expected);
    instance.cut().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn a_store_that_is_declared_wrongly_is_said_and_nothing_is_made() {
    show_logs();
    let small = small(None).await;
    let stored = &small.stored;
    let good = stored.gateway.settings();
    let with_keys = |access_key: &str, secret_key: &str| {
        let mut settings = good.clone();
        if let Identity::Keys(keys) = &mut settings.identity {
            keys.access_key = access_key.to_owned();
            keys.secret_key = secret_key.to_owned().into();
        }
        settings
    };
    let bucket = Settings {
        bucket: "no-such-bucket".to_owned(),
        ..good.clone()
    };
    let prefix = Settings {
        prefix: "elsewhere".to_owned(),
        ..good.clone()
    };
    let away = Settings {
        endpoint: Some(format!("http://127.0.0.1:{}", free_port())),
        ..good.clone()
    };
    let cases: [(Settings, &[&str]); 5] = [
        (bucket, &["no-such-bucket"]),
        (prefix, &["there is nothing of cluster prod/old", "bucket and prefix"]),
        (with_keys("nobody", "the-owners-secret"), &["credential"]),
        (with_keys("owner", "not-the-secret"), &["credential"]),
        (away, &["127.0.0.1"]),
    ];
    let mut instance = another_cluster();
    let node = &mut instance.nodes[0];
    let before = stored.everything().await;
    for (settings, words) in cases {
        wipe(node).await;
        node.config.recovery = Some(WISH.to_owned());
        stored.mount_at(&settings, node, WISH, &Target::Latest, &[]);
        let message = is_refused(node).await;
        for word in words {
            assert!(message.contains(word), "{message}");
        }
        assert!(!message.contains("the-secret"), "{message}");
    }
    assert_eq!(stored.everything().await, before);
    // The Secret is corrected: it goes on by itself.
    stored.mount(node, WISH, &Target::Latest, &[]);
    node.wait("it is recovered", |report| report.mysqld == Mysqld::Running)
        .await;
    assert_eq!(&content(&mut node.inside().await).await, small.last().1);
    instance.cut().await;
}
