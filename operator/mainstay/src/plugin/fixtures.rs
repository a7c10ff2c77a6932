//! Clusters for the tests of what people see.

use jiff::Timestamp;
use mainstay_api::MySQLCluster;
use serde_json::json;

pub(crate) fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

/// Three instances, `shop-1` the primary; `status` is merged over it.
#[expect(clippy::needless_pass_by_value, reason = "it is given json!")]
pub(crate) fn cluster(status: serde_json::Value) -> MySQLCluster {
    let mut whole = json!({
        "observedGeneration": 3, "phase": "Running", "health": "Healthy", "ready": "3/3", "version": "9.7.4",
        "epoch": 7, "owner": "op-1", "election": {"phase": "Open"},
        "primary": {"instance": "shop-1", "incarnation": "b", "serverUuid": "u1", "epoch": 6},
        "members": [{"instance": "shop-0", "incarnation": "a"}, {"instance": "shop-2", "incarnation": "c"}],
        "acksRequired": 1,
        "instances": [
            {"name": "shop-0", "role": "replica", "node": "node-1", "ready": true},
            {"name": "shop-1", "role": "primary", "node": "node-2", "ready": true},
            {"name": "shop-2", "role": "replica", "node": "node-3", "ready": true},
        ],
        "lastChange": {"kind": "switchover", "from": "shop-0", "to": "shop-1", "at": "2026-11-17T12:00:00Z",
            "writesBlockedMs": 187},
        "conditions": [
            {"type": "Available", "status": "True", "reason": "Open", "message": "", "lastTransitionTime": "2026-11-17T12:00:00Z"},
            {"type": "Degraded", "status": "False", "reason": "Complete", "message": "", "lastTransitionTime": "2026-11-17T12:00:00Z"},
            {"type": "Progressing", "status": "False", "reason": "UpToDate", "message": "", "lastTransitionTime": "2026-11-17T12:00:00Z"},
        ],
    });
    for (key, value) in status.as_object().unwrap() {
        whole[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster",
        "metadata": {"name": "shop", "namespace": "default", "generation": 3},
        "spec": {"replicas": 3, "image": "mysql:9.7.4", "storage": {"size": "20Gi"}},
        "status": whole,
    }))
    .unwrap()
}

/// The same while a primary is elected in place of `shop-1`, which is lost together with `shop-0`.
pub(crate) fn waiting() -> MySQLCluster {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-29T11:56:00Z"})
    };
    cluster(json!({
        "phase": "FailingOver", "health": "Unavailable", "ready": "1/3", "epoch": 8,
        "election": {"phase": "Electing", "since": "2026-11-29T11:57:00.000000Z", "began": "2026-11-29T11:56:00.000000Z"},
        "baseline": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-88000",
        "instances": [
            {"name": "shop-0", "role": "replica", "node": "node-1", "ready": false,
                "unreachableSince": "2026-11-29T11:55:58.000000Z"},
            {"name": "shop-1", "role": "primary", "node": "node-2", "ready": false,
                "unreachableSince": "2026-11-29T11:55:58.000000Z"},
            {"name": "shop-2", "role": "replica", "node": "node-3", "ready": true,
                "holds": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-88121"},
        ],
        "conditions": [
            condition("Available", "False", "ElectionInProgress", "a primary is being elected in place of shop-1; it goes on by itself as soon as it is safe"),
            condition("Progressing", "True", "FailingOver",
                "election waits for 1 of 2 members is not fenced; it must be fewer than 1, or the old primary must answer (shop-0 cannot be reached: no route; shop-1 cannot be reached: no route)"),
            condition("Degraded", "True", "InstanceUnreachable",
                "shop-0 on node node-1 cannot be reached (no answer on port 8443). shop-1 on node node-2 cannot be reached (no answer on port 8443)"),
        ],
    }))
}
