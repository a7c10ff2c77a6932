//! What is read before writes are given up.

use serde_json::json;

use super::*;
use crate::plugin::fixtures::{cluster, now, waiting};

#[test]
fn who_is_missing_and_what_is_known() {
    insta::assert_snapshot!(warning(&waiting(), "shop-2", now()));
}

#[test]
fn what_is_known_to_be_missing_is_spelled_out() {
    let mut poor = waiting();
    let status = poor.status.as_mut().unwrap();
    status.instances[2].holds = Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-87990".to_owned());
    status.instances[0].unreachable_since = None;
    status.instances[0].holds = Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-88010".to_owned());
    let text = warning(&poor, "shop-2", now());
    assert!(
        text.contains("shop-0 has 3e11fa47-71ca-11e1-9e33-c80aa9429562:87991-88010 more"),
        "{text}"
    );
    assert!(
        text.contains("It lacks 3e11fa47-71ca-11e1-9e33-c80aa9429562:87991-88000 of what"),
        "{text}"
    );
    assert!(
        !text.contains("  shop-0 "),
        "it is fenced, so nothing of it is given up unseen: {text}"
    );
}

#[test]
fn while_the_primary_is_open_nothing_is_lost() {
    let text = warning(&cluster(json!({})), "shop-2", now());
    assert!(text.starts_with("Nothing seems to be lost"), "{text}");
}

#[test]
fn an_instance_that_is_not_fenced_yet_is_not_known() {
    let lost = cluster(json!({"instances": [
        {"name": "shop-0", "role": "replica", "ready": true},
        {"name": "shop-1", "role": "primary", "ready": false, "unreachableSince": "2026-11-29T11:51:00.000000Z"},
        {"name": "shop-2", "role": "replica", "ready": true},
    ]}));
    let text = warning(&lost, "shop-2", now());
    assert!(
        text.contains("What shop-2 has is not known before it is fenced."),
        "{text}"
    );
    assert!(
        text.contains("shop-1       the recorded primary, not heard for 9m"),
        "{text}"
    );
}
