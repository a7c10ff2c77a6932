//! Whole screens, as a DBA sees them.

use std::collections::BTreeMap;

use mainstay_api::MySQLCluster;
use mainstay_core::status::seconds;
use serde_json::json;

use super::*;
use crate::plugin::fixtures::{cluster, now};
use crate::plugin::live::{Answers, Live};

#[expect(clippy::unnecessary_wraps, reason = "an answer, as it comes from an instance")]
fn live(value: serde_json::Value) -> Result<Live, String> {
    Ok(serde_json::from_value(value).unwrap())
}

const GI: u64 = 1 << 30;

fn replica(lag: f64, used: u64) -> Result<Live, String> {
    live(json!({
        "mysqld": "running",
        "replication": {"sourceHost": "shop-1.shop-instances.default.svc", "receiverRunning": true,
            "applierRunning": true, "lagSeconds": lag},
        "disk": {"usedBytes": used, "sizeBytes": 20 * GI},
    }))
}

fn primary(acknowledgers: &[&str]) -> Result<Live, String> {
    live(json!({
        "mysqld": "running", "writable": true, "semiSync": {"waiters": 0, "acknowledgers": acknowledgers},
        "disk": {"usedBytes": 42 * GI / 5, "sizeBytes": 20 * GI},
    }))
}

fn healthy() -> Answers {
    BTreeMap::from([
        ("shop-0".to_owned(), replica(0.0, 41 * GI / 5)),
        ("shop-1".to_owned(), primary(&["shop-0", "shop-2"])),
        ("shop-2".to_owned(), replica(0.1, 41 * GI / 5)),
    ])
}

fn screen(cluster: &MySQLCluster, answers: &Answers) -> String {
    render(&View::new(cluster, answers, &BTreeMap::new()), now(), Style::Plain)
}

#[test]
fn healthy_cluster() {
    insta::assert_snapshot!(screen(&cluster(json!({})), &healthy()));
}

#[test]
fn backups_are_one_line() {
    let reference = |name: &str, at: &str| json!({"name": name, "completedAt": at});
    let line = |backup: serde_json::Value| {
        let screen = screen(&cluster(json!({"backup": backup})), &healthy());
        let line = screen.lines().find(|line| line.starts_with("Backups"));
        line.unwrap().to_owned()
    };
    let good = reference("shop-nightly-1", "2026-11-29T03:00:00.000000Z");
    assert_eq!(
        line(json!({"lastSuccessful": good,
            "lastVerified": reference("shop-nightly-0", "2026-11-27T12:00:00.000000Z"),
            "archive": {"throughGtid": "", "throughTime": "2026-11-29T11:59:57.000000Z",
                "observedAt": "2026-11-29T12:00:00.000000Z"}})),
        "Backups: shop-nightly-1 9h ago, restored and checked 2d ago; recoverable to 3s ago or later"
    );
    let verified = |run: serde_json::Value| {
        line(
            json!({"lastSuccessful": good, "lastVerified": reference("shop-nightly-1", "2026-11-29T09:00:00.000000Z"),
            "verification": run}),
        )
    };
    let since = "2026-11-01T00:00:00.000000Z";
    assert_eq!(
        verified(json!({"since": since, "result": "Verified", "reachedTime": "2026-11-29T08:59:29.881302Z"})),
        "Backups: shop-nightly-1 9h ago, restored and checked 3h ago up to 2026-11-29T08:59:29.881302Z"
    );
    assert_eq!(
        verified(json!({"since": since, "result": "Failed", "completedAt": "2026-11-29T11:00:00.000000Z"})),
        "Backups: shop-nightly-1 9h ago, restored and checked 3h ago, a verification failed 60m ago"
    );
    assert!(verified(json!({"since": since, "result": "Running"})).ends_with("is being restored and checked now"));
    assert_eq!(
        line(json!({"lastFailed": reference("shop-nightly-2", "2026-11-29T11:00:00.000000Z")})),
        "Backups: none has succeeded yet, shop-nightly-2 failed 60m ago"
    );
    assert!(
        !screen(&cluster(json!({})), &healthy()).contains("Backups"),
        "none are declared"
    );
}

#[test]
fn healthy_cluster_for_programs() {
    let view = View::new(&cluster(json!({})), &healthy(), &BTreeMap::new());
    insta::assert_yaml_snapshot!(view);
}

#[test]
fn colours_change_no_width() {
    let view = View::new(&cluster(json!({})), &healthy(), &BTreeMap::new());
    let coloured = render(&view, now(), Style::Coloured);
    assert!(coloured.contains("\u{1b}[1mshop\u{1b}[0m"));
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    assert_eq!(plain, render(&view, now(), Style::Plain));
}

fn archived() -> serde_json::Value {
    json!({"backup": {"archive": {
        "throughGtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-88121",
        "throughTime": "2026-11-29T11:59:19.000000Z",
        "observedAt": "2026-11-29T11:59:20.000000Z",
    }}})
}

#[test]
fn how_far_a_recovery_could_go() {
    let line = |answers: &Answers| {
        let screen = screen(&cluster(archived()), answers);
        screen
            .lines()
            .find(|line| line.starts_with("Backups"))
            .map(ToOwned::to_owned)
    };
    assert_eq!(
        line(&healthy()).as_deref(),
        Some("Backups: none has succeeded yet; recoverable to 41s ago or later"),
        "the primary does not say"
    );
    let mut answers = healthy();
    for (age, shown) in [(0, "0s"), (2999, "2s"), (300_000, "5m")] {
        let primary = live(json!({"mysqld": "running", "writable": true, "archive": {"throughAgeMs": age}}));
        answers.insert("shop-1".to_owned(), primary);
        let wanted = format!("Backups: none has succeeded yet; recoverable to {shown} ago");
        assert_eq!(line(&answers).unwrap(), wanted);
    }
    let unknown = live(json!({"mysqld": "running", "writable": true, "archive": {"throughAgeMs": null}}));
    answers.insert("shop-1".to_owned(), unknown);
    assert_eq!(
        line(&answers).as_deref(),
        Some("Backups: none has succeeded yet; recoverable to 41s ago or later")
    );
}

#[test]
fn without_live_figures() {
    let answers = BTreeMap::from([
        ("shop-0".to_owned(), Err("you may not use pods/exec here".to_owned())),
        ("shop-1".to_owned(), Err("no answer within 4 s".to_owned())),
    ]);
    insta::assert_snapshot!(screen(&cluster(json!({})), &answers));
}

#[test]
fn a_replica_is_away_and_another_does_not_follow() {
    let mut answers = healthy();
    answers.insert("shop-1".to_owned(), primary(&[]));
    answers.insert(
        "shop-0".to_owned(),
        live(json!({"mysqld": "down", "message": "exit 1"})),
    );
    answers.insert(
        "shop-2".to_owned(),
        live(json!({"mysqld": "running", "replication": {"sourceHost": "x", "receiverRunning": false, "applierRunning": true}})),
    );
    let cluster = cluster(json!({
        "health": "Unavailable", "ready": "1/3",
        "conditions": [
            {"type": "Available", "status": "False", "reason": "WritesBlocked", "lastTransitionTime": "2026-11-29T11:58:30Z",
             "message": "0 of 2 members can acknowledge, 1 is needed: shop-0 does not run (exit 1), shop-2 does not receive"},
            {"type": "Degraded", "status": "True", "reason": "InstanceDown", "message": "shop-0: exit 1",
             "lastTransitionTime": "2026-11-29T09:30:00Z"},
        ],
    }));
    insta::assert_snapshot!(screen(&cluster, &answers));
}

#[test]
fn while_a_primary_is_elected() {
    let mut answers = healthy();
    answers.remove("shop-1");
    answers.insert("shop-0".to_owned(), live(json!({"mysqld": "running"})));
    answers.insert(
        "shop-2".to_owned(),
        live(json!({"mysqld": "running", "writable": true})),
    );
    let cluster = cluster(json!({
        "phase": "FailingOver", "health": "Unavailable", "election": {"phase": "Electing"},
        "instances": [
            {"name": "shop-0", "role": "replica", "node": "node-1", "ready": true},
            {"name": "shop-1", "role": "primary", "ready": false},
            {"name": "shop-2", "role": "replica", "node": "node-3", "ready": true},
        ],
    }));
    insta::assert_snapshot!(screen(&cluster, &answers));
}

/// The primary lists a replica that was detached for a moment longer.
#[test]
fn one_that_is_fenced_on_request_acknowledges_nothing() {
    let mut answers = healthy();
    answers.insert("shop-0".to_owned(), live(json!({"mysqld": "running"})));
    let fenced = cluster(json!({"fences": [{"instance": "shop-0", "since": "2026-11-29T11:59:58.000000Z"}]}));
    let text = screen(&fenced, &answers);
    assert!(text.contains("1 of 2 can acknowledge (1 needed)"), "{text}");
    assert!(text.contains("shop-0    fenced   node-1  detached  no"), "{text}");
    let closed = cluster(json!({
        "election": {"phase": "Electing"}, "fences": [{"instance": "shop-1", "since": "2026-11-29T11:59:58.000000Z"}],
    }));
    let text = screen(&closed, &answers);
    assert!(text.contains("shop-1    primary (fenced)  node-2"), "{text}");
}

#[test]
fn a_condition_without_a_message_ends_without_a_colon() {
    let cluster = cluster(json!({"conditions": [
        {"type": "Progressing", "status": "True", "reason": "Updating", "message": "", "lastTransitionTime": "2026-11-29T11:58:30Z"},
    ]}));
    let text = screen(&cluster, &healthy());
    assert!(text.ends_with("Progressing=True (Updating) for 90s\n"), "{text}");
}

#[test]
fn writes_that_stand_are_told_once() {
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": "GlobalReadLock", "lastTransitionTime": "2026-11-29T11:58:30Z",
            "message": "session 73 of root@10.0.0.7 locked everything on shop-1, the primary (FLUSH TABLES WITH READ LOCK): \
                        no commit ends, though enough replicas acknowledge; UNLOCK TABLES in that session, or end it with \
                        KILL; commits wait and are not lost"})
    };
    let cluster = cluster(json!({
        "health": "Unavailable", "epoch": 6,
        "conditions": [condition("Available", "False"), condition("WritesBlocked", "True")],
    }));
    insta::assert_snapshot!(screen(&cluster, &healthy()));
}

#[test]
fn before_the_operator_saw_it() {
    let mut cluster = cluster(json!({}));
    cluster.status = None;
    insta::assert_snapshot!(screen(&cluster, &Answers::new()));
}

#[test]
fn single_instance() {
    let cluster = cluster(json!({
        "observedGeneration": 2, "members": [], "acksRequired": 0,
        "primary": {"instance": "shop-0", "incarnation": "a", "serverUuid": "u0", "epoch": 2},
        "instances": [{"name": "shop-0", "role": "primary", "ready": true}],
        "lastChange": {"kind": "bootstrap", "to": "shop-0", "at": "2026-11-29T11:55:00Z"},
    }));
    let answers = BTreeMap::from([("shop-0".to_owned(), primary(&[]))]);
    let nodes = BTreeMap::from([("shop-0".to_owned(), "node-9".to_owned())]);
    insta::assert_snapshot!(render(&View::new(&cluster, &answers, &nodes), now(), Style::Plain));
}

/// After a promotion that gave the others up.
#[test]
fn a_primary_alone_among_several_is_no_single_instance() {
    let cluster = cluster(json!({"members": [], "acksRequired": 0}));
    let screen = screen(&cluster, &healthy());
    assert!(
        screen.contains("no replica may acknowledge yet: commits wait for nobody"),
        "{screen}"
    );
}

#[test]
fn changes_of_primary() {
    let line = |kind, from: Option<&str>, writes_blocked_ms| {
        let (from, to) = (from.map(ToOwned::to_owned), "shop-1".to_owned());
        last_change(
            &Change {
                kind,
                from,
                to,
                at: now(),
                writes_blocked_ms,
                phases: None,
            },
            now(),
        )
    };
    let cases = [
        (
            line(ChangeKind::Bootstrap, None, Some(9)),
            "Primary: shop-1 since the cluster was made, 0s ago",
        ),
        (
            line(ChangeKind::Failover, Some("shop-0"), Some(1500)),
            "Last change of primary: failover shop-0 → shop-1, 0s ago, 1.50 s from its detection to writes",
        ),
        (
            line(ChangeKind::Failover, Some("shop-1"), None),
            "Last change of primary: shop-1 was elected again, 0s ago",
        ),
        (
            line(ChangeKind::Switchover, Some("shop-1"), None),
            "Last change of primary: shop-1 was opened again, 0s ago",
        ),
        (
            line(ChangeKind::Switchover, None, None),
            "Last change of primary: switchover to shop-1, 0s ago",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn sizes_and_ages_are_short() {
    let sizes = [
        (0, "0 B"),
        (1 << 20, "1 Mi"),
        (20 * GI, "20 Gi"),
        (3 * GI / 2, "1.5 Gi"),
        (20 * GI - 30, "20 Gi"),
        (u64::MAX, "16777216 Ti"),
    ];
    for (bytes, expected) in sizes {
        assert_eq!(size(bytes), expected);
    }
    let ages = [
        (-5, "0s"),
        (41, "41s"),
        (119, "119s"),
        (600, "10m"),
        (9 * 3600, "9h"),
        (12 * 86_400, "12d"),
    ];
    for (seconds, expected) in ages {
        let since = now() - jiff::SignedDuration::from_secs(seconds);
        assert_eq!(age(since, now()), expected);
    }
    assert_eq!(
        disk(Disk {
            used_bytes: u64::MAX,
            size_bytes: u64::MAX
        }),
        "100 % of 16777216 Ti"
    );
    assert_eq!(
        (seconds(187), seconds(-1), seconds(12_345)),
        ("0.19".into(), "0.00".into(), "12.35".into())
    );
}

#[test]
fn a_recovery_is_told_while_it_runs_and_when_it_is_done() {
    let with = |recovery: serde_json::Value| {
        let screen = screen(&cluster(json!({"recovery": recovery})), &healthy());
        let lines: Vec<String> = screen
            .lines()
            .filter(|line| line.starts_with("Recovery"))
            .map(ToOwned::to_owned)
            .collect();
        lines
    };
    let message = "recovering 20261130t030000z-x7k2p: 1228 of 5100 MiB, 104 MiB/s";
    assert_eq!(
        with(json!({"phase": "Running", "message": message})),
        [format!("Recovery: {message}")]
    );
    let done = json!({
        "phase": "Done",
        "backup": "20261130t030000z-x7k2p",
        "reachedGtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-88121",
        "reachedTime": now().to_string(),
        "completedAt": (now() - jiff::SignedDuration::from_mins(5)).to_string(),
    });
    let told = format!(
        "Recovery: 5m ago, from 20261130t030000z-x7k2p and its archive up to {}",
        now()
    );
    assert_eq!(with(done), [told]);
    assert!(with(json!({"phase": "Failed", "message": "no room"})).is_empty());
}
