//! What is asked, and what is shown of it.

use mainstay_core::request::read;
use serde_json::json;

use super::*;
use crate::plugin::fixtures::{cluster, now};

#[test]
fn an_instance_may_be_named_by_its_number() {
    let cluster = cluster(json!({}));
    for (given, instance) in [("2", "shop-2"), ("shop-2", "shop-2"), ("blog-2", "blog-2")] {
        let asked = asked(Verb::Fence, &cluster, given);
        assert_eq!(asked.instance.as_deref(), Some(instance));
        assert_eq!(read(&asked.annotation().unwrap()), Ok(asked));
    }
    assert_eq!(reign(&cluster), Some(6));
}

fn request(result: &str, message: &str) -> serde_json::Value {
    json!({"id": "r1", "verb": "promote", "instance": "shop-2", "result": result, "message": message,
        "at": "2026-11-29T12:00:00.000000Z"})
}

#[test]
fn a_request_that_nobody_answered_is_named() {
    let annotated = |status| {
        let mut cluster = cluster(status);
        let text = r#"{"id":"r1","verb":"promote","instance":"shop-2"}"#.to_owned();
        cluster.annotations_mut().insert(REQUEST_ANNOTATION.to_owned(), text);
        cluster
    };
    assert!(unanswered(&annotated(json!({}))).is_some());
    assert!(unanswered(&annotated(json!({"request": request("refused", "no")}))).is_none());
    assert!(unanswered(&cluster(json!({}))).is_none());
}

#[test]
fn the_end_says_what_became_of_it() {
    let before = cluster(json!({}));
    let after = |result: &str| {
        cluster(json!({
            "request": request(result, "shop-2 is the primary of epoch 8"),
            "lastChange": {"kind": "switchover", "from": "shop-1", "to": "shop-2", "at": "2026-11-29T12:00:00.000000Z",
                "writesBlockedMs": 187, "phases": {"fenceMs": 12, "catchUpMs": 48, "routeMs": 35}},
        }))
    };
    let end = |cluster: &MySQLCluster| {
        let request = cluster.status.as_ref().unwrap().request.clone().unwrap();
        conclude(&before, cluster, &request)
    };
    assert_eq!(
        end(&after("done")).unwrap(),
        "shop-2 is the primary of epoch 8\n\
         switchover shop-1 → shop-2: 0.19 s without writes (fence 0.01, catch up 0.05, route 0.04)\n"
    );
    let refused = end(&after("refused")).unwrap_err().to_string();
    assert!(refused.starts_with("refused: shop-2"), "{refused}");
    let failed = end(&after("failed")).unwrap_err().to_string();
    assert!(failed.starts_with("it did not succeed: shop-2"), "{failed}");
}

#[test]
fn a_loss_is_spelled_out_at_the_end() {
    let before = cluster(json!({}));
    let after = cluster(json!({
        "request": request("done", "shop-2 is the primary of epoch 9"),
        "dataLoss": {"at": now().to_string(), "epoch": 9, "instance": "shop-2", "missing": "", "unheard": ["shop-0", "shop-1"]},
    }));
    let request = after.status.as_ref().unwrap().request.clone().unwrap();
    let text = done(&before, &after, &request);
    assert!(
        text.contains("Known to be missing: nothing.\n  What only shop-0, shop-1 had is missing, too."),
        "{text}"
    );
}

#[test]
fn progress_is_one_line() {
    let status = cluster(json!({"phase": "SwitchingOver", "conditions": [
        {"type": "Progressing", "status": "True", "reason": "SwitchingOver", "lastTransitionTime": "2026-11-29T11:58:30Z",
            "message": "switchover waits for shop-1 to become read-only"},
    ]}));
    let status = status.status.unwrap();
    assert_eq!(progress(&status, false), "waiting for the operator");
    assert_eq!(
        progress(&status, true),
        "SwitchingOver: switchover waits for shop-1 to become read-only"
    );
}
