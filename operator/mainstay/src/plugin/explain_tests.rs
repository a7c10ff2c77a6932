//! Whole pages, as a person reads them.

use mainstay_api::MySQLCluster;
use serde_json::json;

use super::*;
use crate::plugin::fixtures::{cluster, now, waiting};

fn page(cluster: &MySQLCluster) -> String {
    explain(cluster, now())
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> serde_json::Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-29T11:51:00Z"})
}

#[test]
fn a_healthy_cluster() {
    insta::assert_snapshot!(page(&cluster(json!({
        "primary": {"instance": "shop-1", "incarnation": "b", "serverUuid": "u1", "epoch": 6,
            "since": "2026-11-17T12:00:00.000000Z"},
        "lastChange": {"kind": "switchover", "from": "shop-0", "to": "shop-1", "at": "2026-11-17T12:00:00.000000Z",
            "writesBlockedMs": 187, "phases": {"fenceMs": 12, "catchUpMs": 48, "attachMs": 61, "recordMs": 9, "openMs": 22, "routeMs": 35}},
    }))));
}

#[test]
fn before_the_operator_saw_it() {
    let mut new = cluster(json!({}));
    new.status = None;
    insta::assert_snapshot!(page(&new));
}

#[test]
fn an_election_that_waits_for_lost_instances() {
    insta::assert_snapshot!(page(&waiting()));
}

#[test]
fn an_election_of_which_the_survivor_lacks_something() {
    let mut poor = waiting();
    let status = poor.status.as_mut().unwrap();
    status.instances[2].holds = Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-87990".to_owned());
    let text = page(&poor);
    assert!(
        text.contains("(known to be missing on shop-2: 3e11fa47-71ca-11e1-9e33-c80aa9429562:87991-88000)"),
        "{text}"
    );
}

#[test]
fn a_primary_that_is_fenced_on_request() {
    insta::assert_snapshot!(page(&cluster(json!({
        "phase": "Blocked", "health": "Unavailable", "epoch": 8,
        "election": {"phase": "Electing", "since": "2026-11-29T11:51:00.000000Z", "began": "2026-11-29T11:51:00.000000Z",
            "preferred": {"instance": "shop-1", "incarnation": "b"}},
        "fences": [{"instance": "shop-1", "since": "2026-11-29T11:51:00.000000Z"}],
        "request": {"id": "r1", "verb": "fence", "instance": "shop-1", "result": "done", "at": "2026-11-29T11:51:00.000000Z",
            "message": "shop-1, the primary, is read-only; no writes are accepted until it is let in or another one is promoted"},
        "instances": [
            {"name": "shop-0", "role": "replica", "node": "node-1", "ready": true, "holds": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"},
            {"name": "shop-1", "role": "primary", "node": "node-2", "ready": false, "holds": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"},
            {"name": "shop-2", "role": "replica", "node": "node-3", "ready": true, "holds": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"},
        ],
        "conditions": [
            condition("Available", "False", "PrimaryFenced", "shop-1, the primary, is fenced on request; let it in again: kubectl mainstay unfence shop shop-1 -n default; or make another one the primary: kubectl mainstay promote shop ANOTHER -n default"),
            condition("Fenced", "True", "InstanceFenced", "shop-1 is fenced on request; let it in again when it is needed: kubectl mainstay unfence shop shop-1 -n default"),
        ],
    }))));
}

#[test]
fn commits_that_wait_an_errant_replica_and_a_former_loss() {
    insta::assert_snapshot!(page(&cluster(json!({
        "health": "Unavailable",
        "dataLoss": {"at": "2026-11-28T12:00:00.000000Z", "epoch": 6, "instance": "shop-1", "serverUuid": "u0",
            "missing": "3e11fa47-71ca-11e1-9e33-c80aa9429562:88122-88130", "unheard": ["shop-0", "shop-2"]},
        "request": {"id": "r1", "verb": "promote", "instance": "shop-0", "result": "refused", "at": "2026-11-29T11:59:00.000000Z",
            "message": "shop-0 cannot be reached: no route"},
        "rebuilds": [{"instance": "shop-2", "incarnation": "old", "donor": {"instance": "shop-1", "incarnation": "b"},
            "at": "2026-11-29T11:58:00.000000Z", "reason": "shop-2 has transactions that shop-1 does not have: 5f00:1"}],
        "instances": [
            {"name": "shop-0", "role": "replica", "node": "node-1", "ready": false, "unreachableSince": "2026-11-29T11:51:00.000000Z"},
            {"name": "shop-1", "role": "primary", "node": "node-2", "ready": true},
            {"name": "shop-2", "node": "node-3", "ready": false, "errant": "3e11fa47-71ca-11e1-9e33-c80aa9429563:1"},
        ],
        "conditions": [
            condition("Available", "False", "WritesBlocked", "a commit waits for 1 acknowledgement"),
            condition("WritesBlocked", "True", "WritesBlocked", "a commit waits for 1 acknowledgement, and 0 of 1 members receive from shop-1 (shop-0 cannot be reached; shop-2 is no member); commits wait and are not lost; bring a replica back"),
        ],
    }))));
}

/// `status` and `explain` say the same of the last change.
#[test]
fn a_primary_that_was_elected_again_is_no_change_to_itself() {
    for (kind, expected) in [
        (
            "failover",
            "Last change of primary: shop-1 was elected again, 12d ago, 0.19 s from its detection to writes.",
        ),
        (
            "switchover",
            "Last change of primary: shop-1 was opened again, 12d ago, 0.19 s without writes.",
        ),
    ] {
        let text = page(&cluster(json!({
            "lastChange": {"kind": kind, "from": "shop-1", "to": "shop-1", "at": "2026-11-17T12:00:00.000000Z",
                "writesBlockedMs": 187},
        })));
        assert!(text.contains(expected), "{text}");
    }
}

/// What `status` holds of one that came back long ago, or is looked at, is history.
#[test]
fn a_rebuild_is_told_while_it_goes_on() {
    let rebuilt = |ended: Option<&str>, fences: serde_json::Value| {
        page(&cluster(json!({
            "fences": fences,
            "rebuilds": [{"instance": "shop-2", "incarnation": "old", "donor": {"instance": "shop-0", "incarnation": "a"},
                "at": "2026-11-29T11:53:00.000000Z", "reason": "shop-2 is to be rebuilt on request", "ended": ended}],
            "instances": [
                {"name": "shop-0", "role": "replica", "ready": true},
                {"name": "shop-1", "role": "primary", "ready": true},
                {"name": "shop-2", "ready": false, "incarnation": "new"},
            ],
        })))
    };
    let told = "shop-2 is rebuilt as a clone of shop-0 since 2026-11-29T11:53:00Z (7m).";
    let going_on = rebuilt(None, json!([]));
    assert!(going_on.contains(told), "{going_on}");
    let ended = rebuilt(Some("2026-11-29T11:53:09.000000Z"), json!([]));
    assert!(!ended.contains("is rebuilt"), "{ended}");
    let fenced = rebuilt(
        None,
        json!([{"instance": "shop-2", "since": "2026-11-29T11:59:00.000000Z"}]),
    );
    assert!(!fenced.contains("is rebuilt"), "{fenced}");
}

fn new(status: serde_json::Value) -> String {
    let mut new = cluster(status);
    let status = new.status.as_mut().unwrap();
    (status.primary, status.last_change, status.election) = (None, None, None);
    page(&new)
}

#[test]
fn a_new_cluster_that_cannot_come_up_tells_the_cause_first() {
    let pending = condition(
        "Available",
        "False",
        "FirstPrimaryPending",
        "nothing is made before the spec can be accepted",
    );
    let refused = condition(
        "SpecAccepted",
        "False",
        "SpecInvalid",
        "spec.config.server_id: is Mainstay's; correct the field; nothing is made before",
    );
    let text = new(json!({"phase": "Blocked", "health": "Unavailable", "conditions": [pending, refused]}));
    assert_eq!(
        text,
        "shop is Blocked, Unavailable.\n\
         It has no primary yet: its spec cannot be accepted, and nothing is made before.\n\n\
         SpecAccepted is False since 2026-11-29T11:51:00Z (9m) (SpecInvalid).\n  \
         spec.config.server_id: is Mainstay's; correct the field; nothing is made before.\n"
    );
    let waits = condition(
        "Progressing",
        "True",
        "Creating",
        "first election waits for shop-0 to answer",
    );
    let pulled = condition(
        "ResourcesReady",
        "False",
        "ImageNotPulled",
        "shop-0: mysql: ImagePullBackOff; correct spec.image or spec.imagePullSecrets",
    );
    let text = new(json!({"phase": "Creating", "health": "Unavailable", "conditions": [pending, waits, pulled]}));
    let (first, second) = (
        text.find("ResourcesReady is").unwrap(),
        text.find("Progressing is").unwrap(),
    );
    assert!(first < second && text.contains("not every one comes up"), "{text}");
    assert!(!text.contains("Available is"), "{text}");
}

#[test]
fn a_fence_that_waits_says_for_whom() {
    let request = json!({"id": "r1", "verb": "fence", "instance": "shop-2", "result": "running", "message": "",
        "at": "2026-11-29T11:59:50.000000Z"});
    let mut waiting = waiting();
    let status = waiting.status.as_mut().unwrap();
    status.request = Some(serde_json::from_value(request).unwrap());
    assert!(page(&waiting).contains("is being carried out."));
    waiting.status.as_mut().unwrap().request.as_mut().unwrap().instance = Some("shop-0".to_owned());
    let text = page(&waiting);
    assert!(
        text.contains("is being carried out: shop-0 has to answer first."),
        "{text}"
    );
}

#[test]
fn names_are_joined_as_a_person_would() {
    assert_eq!(either(&["a"]), "a");
    assert_eq!(either(&["a", "b"]), "a or b");
    assert_eq!(either(&["a", "b", "c"]), "a, b or c");
}

#[test]
fn a_request_that_nobody_answers_is_told() {
    let mut asked = cluster(json!({}));
    let annotation = r#"{"id":"r9","verb":"promote","instance":"shop-2"}"#;
    asked.metadata.annotations = Some([(mainstay_api::REQUEST_ANNOTATION.to_owned(), annotation.to_owned())].into());
    let text = page(&asked);
    assert!(
        text.contains("promote shop-2 was asked for and is not answered yet"),
        "{text}"
    );
    let answer = json!({"id": "r9", "verb": "promote", "instance": "shop-2", "result": "done", "message": "",
        "at": "2026-11-29T11:51:00.000000Z"});
    let status = asked.status.as_mut().unwrap();
    status.request = Some(serde_json::from_value(answer).unwrap());
    assert!(!page(&asked).contains("not answered yet"));
}
