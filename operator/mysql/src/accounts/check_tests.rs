use super::*;
use crate::accounts::replication_user;
use crate::accounts::tests::all;

/// A hash of "m" that MySQL stored.
fn hash_of_m() -> StoredHash {
    let bytes = b"$A$00A$\x01\x06B\x0ej\x0c#\x19g\x12\x04\x17\x01nw7\x04tEyqWDnwbimN2oGikHbUSBT0voObDc1dDkOz.RjtC3wbx5";
    StoredHash(String::from_utf8(bytes.to_vec()).unwrap())
}

fn credentials() -> Credentials {
    let password = || Some(SecretString::from("m".to_owned()));
    Credentials {
        manager: password(),
        replication: password(),
        clone: password(),
        monitor: password(),
    }
}

const OWN: &str = "GRANT SELECT, SUPER ON *.* TO `mainstay`@`localhost` WITH GRANT OPTION";

/// What an init file makes.
fn sound() -> SystemAccounts {
    let account = |group: &crate::accounts::Group<'_>| Account {
        plugin: PLUGIN.to_owned(),
        tls: group.tls().to_owned(),
        hashes: vec![hash_of_m()],
        privileges: group.privileges(),
        ..Account::default()
    };
    let credentials = credentials();
    let accounts = groups(&credentials).flat_map(|group| {
        let account = account(&group);
        group.accounts.into_iter().map(move |name| (name, account.clone()))
    });
    SystemAccounts {
        accounts: accounts.collect(),
        own_grants: vec![
            OWN.to_owned(),
            "GRANT SYSTEM_USER,BACKUP_ADMIN ON *.* TO `mainstay`@`localhost`".to_owned(),
        ],
    }
}

fn found(reference: &mut Reference, seen: &SystemAccounts) -> Vec<String> {
    let findings = reference.compare(&credentials(), seen, true);
    findings.iter().map(ToString::to_string).collect()
}

/// What is found after one account was changed.
fn after(user: &str, host: &str, change: impl FnOnce(&mut Account)) -> Vec<String> {
    let mut reference = Reference::default();
    assert!(found(&mut reference, &sound()).is_empty());
    let mut seen = sound();
    change(seen.accounts.get_mut(&AccountName::new(user, host)).unwrap());
    found(&mut reference, &seen)
}

#[test]
fn sound_accounts_are_left_alone() {
    let mut reference = Reference::default();
    for _ in 0..2 {
        assert!(found(&mut reference, &sound()).is_empty());
    }
    let all: BTreeSet<String> = sound().accounts.keys().map(ToString::to_string).collect();
    assert_eq!(all.len(), 10, "{all:?}");
}

#[test]
fn what_is_missing_is_named() {
    let mut reference = Reference::default();
    let mut seen = sound();
    for name in [
        AccountName::new(&replication_user(1), "%"),
        AccountName::new(MONITOR, "localhost"),
    ] {
        seen.accounts.remove(&name);
    }
    assert_eq!(
        found(&mut reference, &seen),
        ["mainstay_monitor@localhost is missing", "mainstay_repl_1@% is missing"]
    );
    // An account of that user for another host is another account.
    let other = seen.accounts[&AccountName::new(&replication_user(2), "%")].clone();
    seen.accounts
        .insert(AccountName::new(&replication_user(1), "10.%"), other);
    assert_eq!(found(&mut reference, &seen).len(), 2);
}

#[test]
fn what_was_altered_is_named() {
    let clone = |change: fn(&mut Account)| after(super::super::CLONE, "%", change);
    assert_eq!(clone(|account| account.locked = true), ["mainstay_clone@% is locked"]);
    assert_eq!(
        clone(|account| account.expires = true),
        ["mainstay_clone@% has a password that expires"]
    );
    assert_eq!(
        clone(|account| account.tls = "X509".to_owned()),
        ["mainstay_clone@% logs in in another way"]
    );
    assert_eq!(
        clone(|account| account.plugin = "sha256_password".to_owned()),
        ["mainstay_clone@% logs in in another way"]
    );
    assert_eq!(
        clone(|account| {
            account.privileges.remove("BACKUP_ADMIN ON *.*");
        }),
        ["mainstay_clone@% lacks BACKUP_ADMIN ON *.*"]
    );
    // What somebody granted is nobody's harm.
    assert!(
        clone(|account| {
            account.privileges.insert("SELECT ON *.*".to_owned());
        })
        .is_empty()
    );
    let monitor = after(MONITOR, "localhost", |account| {
        account.privileges.remove("SELECT ON performance_schema.*");
        account.locked = true;
    });
    assert_eq!(
        monitor,
        ["mainstay_monitor@localhost is locked, lacks SELECT ON performance_schema.*"]
    );
}

#[test]
fn who_may_acknowledge_is_nothing_that_is_wrong() {
    assert!(after(&replication_user(3), "%", |account| account.locked = true).is_empty());
}

#[test]
fn a_password_is_one_of_the_two_that_are_valid() {
    let other = || StoredHash(format!("$A$00A${}", "a".repeat(63)));
    let name = replication_user(1);
    let is = |hashes: Vec<StoredHash>| after(&name, "%", |account| account.hashes = hashes).is_empty();
    assert!(is(vec![hash_of_m()]));
    assert!(is(vec![other(), hash_of_m()]), "the new one is not mounted here yet");
    assert!(!is(vec![other()]));
    assert!(!is(vec![]));
    // Somebody is about to set them.
    let mut seen = sound();
    seen.accounts.get_mut(&AccountName::new(&name, "%")).unwrap().hashes = vec![other()];
    assert!(Reference::default().compare(&credentials(), &seen, false).is_empty());
    // Another one is mounted.
    let changed = Credentials {
        replication: Some(SecretString::from("n".to_owned())),
        ..credentials()
    };
    let mut reference = Reference::default();
    assert!(reference.compare(&credentials(), &sound(), true).is_empty());
    assert_eq!(reference.compare(&changed, &sound(), true).len(), 7);
}

#[test]
fn a_password_that_is_not_known_leaves_its_accounts_alone() {
    let seen = SystemAccounts::default();
    let unknown = Credentials {
        replication: None,
        ..all()
    };
    let findings = Reference::default().compare(&unknown, &seen, true);
    assert!(
        !findings.iter().any(|finding| finding.account.is_replication()),
        "{findings:?}"
    );
    assert_eq!(findings.len(), 3);
}

#[test]
fn the_manager_keeps_what_it_was_granted_first() {
    let mut reference = Reference::default();
    assert!(found(&mut reference, &sound()).is_empty());
    let mut seen = sound();
    seen.own_grants = vec![
        "GRANT SELECT ON *.* TO `mainstay`@`localhost`".to_owned(),
        "GRANT BACKUP_ADMIN ON *.* TO `mainstay`@`localhost`".to_owned(),
    ];
    assert_eq!(
        found(&mut reference, &seen),
        ["mainstay@localhost lacks GRANT OPTION ON *.*, SUPER ON *.*, SYSTEM_USER ON *.*"]
    );
    assert_eq!(reference.own_grants(), sound().own_grants);
    // More is not less.
    seen.own_grants = vec![OWN.replace("SELECT", "SELECT, SHUTDOWN"), sound().own_grants[1].clone()];
    assert!(found(&mut reference, &seen).is_empty());
}

#[test]
fn the_notes_are_remembered_for_an_account_that_is_made_anew() {
    let mut reference = Reference::default();
    let mut seen = sound();
    let monitor = AccountName::new(MONITOR, "localhost");
    seen.accounts.get_mut(&monitor).unwrap().attribute = "{}".to_owned();
    found(&mut reference, &seen);
    seen.accounts.remove(&monitor);
    found(&mut reference, &seen);
    assert_eq!(reference.attribute(), "{}");
}
