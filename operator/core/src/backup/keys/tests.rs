use proptest::prelude::*;

use super::*;

const UID: &str = "6f1c2a9e-8a52-4b8e-9d8e-0d2f6a1f4c11";

fn cluster(namespace: &str, name: &str) -> ClusterIdentity {
    ClusterIdentity::new(namespace, name, UID).unwrap()
}

/// Every folder and one key of each kind.
fn everything(of: &ClusterIdentity) -> (Vec<Folder>, Vec<Key>) {
    let id = BackupId::parse("20261130t073000z-x7k2p").unwrap();
    let folders = vec![
        of.folder(),
        of.backups(),
        of.backup(&id),
        of.binlogs(),
        of.reign(7),
        of.segment_indexes(7),
    ];
    let keys = vec![
        of.backup_manifest(&id),
        of.backup_data(&id, true),
        of.reign_manifest(7),
        of.segment(7, 1, false),
        of.segment_index(7, 1, 60),
    ];
    (folders, keys)
}

fn share_nothing(a: &ClusterIdentity, b: &ClusterIdentity) {
    let (folders, _) = everything(a);
    let (_, keys) = everything(b);
    for folder in &folders {
        for key in &keys {
            assert!(!folder.holds(key), "{folder} of {a:?} holds {key} of {b:?}");
        }
    }
}

#[test]
fn names_are_those_of_the_documentation() {
    let shop = cluster("prod", "shop");
    let id = BackupId::at("2026-11-30T07:30:00Z".parse().unwrap(), "x7k2p").unwrap();
    assert_eq!(
        shop.backup_manifest(&id).as_str(),
        format!("prod/shop/{UID}/backups/20261130t073000z-x7k2p/manifest.json")
    );
    assert_eq!(
        shop.backup_data(&id, true).as_str(),
        format!("prod/shop/{UID}/backups/20261130t073000z-x7k2p/data.tar.zst.age")
    );
    assert_eq!(
        shop.segment(7, 12, false).as_str(),
        format!("prod/shop/{UID}/binlogs/00000000000000000007/segments/00000000000000000012.binlog.zst")
    );
    assert_eq!(
        shop.segment_index(7, 1, 60).as_str(),
        format!("prod/shop/{UID}/binlogs/00000000000000000007/index/00000000000000000001-00000000000000000060.json")
    );
}

#[test]
fn f22_clusters_that_are_called_alike_share_nothing() {
    let of = [
        cluster("prod", "db"),
        cluster("prod", "db-2"),
        cluster("prod-2", "db"),
        cluster("test", "db"),
        ClusterIdentity::new("prod", "db", "00000000-8a52-4b8e-9d8e-0d2f6a1f4c11").unwrap(),
    ];
    for a in &of {
        for b in of.iter().filter(|b| *b != a) {
            share_nothing(a, b);
        }
    }
}

#[test]
fn names_are_read_back() {
    let shop = cluster("prod", "shop");
    let id = BackupId::parse("nightly-1").unwrap();
    assert_eq!(ClusterIdentity::of_folder(&shop.folder()), Some(shop.clone()));
    assert_eq!(ClusterIdentity::of_folder(&shop.backups()), None);
    assert_eq!(BackupId::of_folder(&shop.backup(&id)), Some(id));
    assert_eq!(epoch_of(&shop.reign(u64::MAX)), Some(u64::MAX));
    assert_eq!(epoch_of(&shop.binlogs()), None);
    assert_eq!(segments_of(&shop.segment_index(7, 1, 60)), Some((1, 60)));
    assert_eq!(segments_of(&shop.segment_index(7, 61, 60)), None);
    assert_eq!(segments_of(&shop.segment(7, 1, false)), None);
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    for text in [
        "",
        "/a",
        "a//b",
        "a/",
        "../a",
        "a/./b",
        "a\nb",
        &"x".repeat(256),
        &"x/".repeat(400),
    ] {
        assert!(Key::parse(text).is_err(), "{text:?}");
    }
    for text in ["a", "a/b.c", "Ä/ö", "a b"] {
        assert!(Key::parse(text).is_ok(), "{text:?}");
    }
    for (namespace, name, uid) in [
        ("", "a", "b"),
        ("a/b", "c", "d"),
        ("a", "..", "c"),
        ("a", "b", "C"),
        ("a", "-b", "c"),
    ] {
        assert!(
            ClusterIdentity::new(namespace, name, uid).is_err(),
            "{namespace} {name} {uid}"
        );
    }
    for text in ["", "a.b", "a/b", &"x".repeat(64)] {
        assert!(BackupId::parse(text).is_err(), "{text:?}");
    }
    assert_eq!(Folder::parse("").unwrap(), Folder::root());
    assert_eq!(Folder::parse("a/b").unwrap(), Folder::parse("a/b/").unwrap());
    assert!(Folder::parse("a//").is_err());
}

fn label() -> impl Strategy<Value = String> {
    // Short ones meet often.
    "[ab]([-ab]{0,3}[ab])?"
}

proptest! {
    #[test]
    fn f22_no_two_clusters_share_a_folder(
        a in (label(), label(), label()),
        b in (label(), label(), label()),
    ) {
        let one = ClusterIdentity::new(&a.0, &a.1, &a.2).unwrap();
        let other = ClusterIdentity::new(&b.0, &b.1, &b.2).unwrap();
        if one != other {
            share_nothing(&one, &other);
        }
    }

    #[test]
    fn names_sort_as_their_numbers(a: u64, b: u64) {
        let shop = cluster("prod", "shop");
        prop_assert_eq!(a.cmp(&b), shop.reign(a).cmp(&shop.reign(b)));
        prop_assert_eq!(a.cmp(&b), shop.segment(1, a, false).cmp(&shop.segment(1, b, false)));
    }

    #[test]
    fn identifiers_sort_by_time(a in 0_i64..4_000_000_000, b in 0_i64..4_000_000_000) {
        let id = |second| BackupId::at(Timestamp::from_second(second).unwrap(), "aaaaa").unwrap();
        prop_assert_eq!(a.cmp(&b), id(a).cmp(&id(b)));
    }

    #[test]
    fn every_name_is_a_valid_key(namespace in label(), name in label(), epoch: u64, sequence: u64, encrypted: bool) {
        let of = cluster(&namespace, &name);
        for key in [of.segment(epoch, sequence, encrypted), of.segment_index(epoch, sequence, sequence)] {
            prop_assert_eq!(Key::parse(key.as_str()), Ok(key));
        }
    }
}
