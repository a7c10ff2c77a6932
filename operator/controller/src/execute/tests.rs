use std::sync::Mutex;

use kube::core::DeserializeGuard;
use mainstay_core::action::Desired;
use mainstay_core::observed::{ObjectKey, ObjectKind};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Fake, context};

const NAME: &str = "shop-primary";

fn shop() -> ClusterName {
    ClusterName::new("db", "shop")
}

fn cluster() -> MySQLCluster {
    serde_json::from_value(json!({
        "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster",
        "metadata": {"namespace": "db", "name": "shop", "uid": "cluster-uid", "resourceVersion": "5"},
        "spec": {"replicas": 3, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}}
    }))
    .unwrap()
}

fn service(metadata: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
}

fn wish() -> Action {
    let value = service(&json!({"name": NAME, "namespace": "db", "labels": {"mysql.mainstay.dev/cluster": "shop"}}));
    let key = ObjectKey {
        kind: ObjectKind::Service,
        name: NAME.to_owned(),
    };
    Action::Apply(Box::new(Desired { key, value }))
}

/// Runs actions against an API server that holds `object` and answers writes with `write`; gives what was written.
async fn run(
    object: Option<Value>,
    write: (u16, Value),
    actions: Vec<Action>,
) -> (Context, Execution, Vec<(String, Value)>) {
    let (context, executed, written) = attempt(object, write, actions).await;
    (context, executed.unwrap(), written)
}

async fn attempt(
    object: Option<Value>,
    write: (u16, Value),
    actions: Vec<Action>,
) -> (Context, Result<Execution, ExecuteError>, Vec<(String, Value)>) {
    let written: std::sync::Arc<Mutex<Vec<(String, Value)>>> = std::sync::Arc::default();
    let log = std::sync::Arc::clone(&written);
    let fake = Fake::new(move |method, path, body| {
        if method == "GET" {
            let found = object.clone();
            return found.map_or_else(|| Fake::failure(404), |object| (200, object));
        }
        log.lock().unwrap().push((format!("{method} {path}"), body));
        write.clone()
    });
    let context = context(&fake);
    context.world.clusters.put(DeserializeGuard(Ok(cluster())));
    let shop = shop();
    let observed = crate::observe::observe(&context, &shop, &cluster());
    let mut executor = Executor::new(&context, &shop, cluster(), &observed);
    let executed = executor.execute(actions).await;
    let written = written.lock().unwrap().clone();
    (context, executed, written)
}

#[rstest]
#[case::foreign(json!({"name": NAME, "namespace": "db", "uid": "theirs"}))]
#[case::of_another_cluster(json!({"name": NAME, "namespace": "db", "uid": "theirs",
    "labels": {"mysql.mainstay.dev/cluster": "shop-2"}}))]
#[case::of_a_former_cluster(json!({"name": NAME, "namespace": "db", "uid": "old",
    "labels": {"mysql.mainstay.dev/cluster": "shop"},
    "ownerReferences": [{"apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster", "name": "shop",
        "uid": "former-uid", "controller": true}]}))]
#[tokio::test]
async fn f28_an_object_that_is_not_ours_is_reported_and_not_touched(#[case] metadata: Value) {
    let (context, execution, written) = run(Some(service(&metadata)), Fake::failure(500), vec![wish()]).await;
    assert!(written.is_empty(), "{written:?}");
    assert!(
        matches!(execution.failures.as_slice(), [ExecuteError::Foreign { .. }]),
        "{execution:?}"
    );
    let observed = crate::observe::observe(&context, &shop(), &cluster());
    let seen = observed.objects.values().next().unwrap();
    assert!(!seen.ours, "the next pass knows");
}

#[tokio::test]
async fn an_object_that_is_not_in_the_index_but_exists_is_applied_with_its_uid() {
    let ours = json!({"name": NAME, "namespace": "db", "uid": "u", "labels": {"mysql.mainstay.dev/cluster": "shop"}});
    let (_, execution, written) = run(Some(service(&ours)), (200, service(&ours)), vec![wish()]).await;
    assert!(execution.failures.is_empty(), "{execution:?}");
    let [(request, body)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(request, "PATCH /api/v1/namespaces/db/services/shop-primary");
    assert_eq!(body["metadata"]["uid"], "u");
}

#[tokio::test]
async fn a_new_object_is_applied_without_force_and_seen_at_once() {
    let made = json!({"name": NAME, "namespace": "db", "uid": "u", "resourceVersion": "9",
        "labels": {"mysql.mainstay.dev/cluster": "shop"}});
    let (context, _, written) = run(None, (201, service(&made)), vec![wish()]).await;
    assert_eq!(written.len(), 1);
    assert!(written[0].1["metadata"].get("uid").is_none());
    let observed = crate::observe::observe(&context, &shop(), &cluster());
    assert_eq!(
        observed.objects.values().next().map(|seen| seen.uid.as_str()),
        Some("u")
    );
}

#[tokio::test]
async fn a_refusal_is_a_warning_and_is_not_repeated_at_once() {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "exceeded quota: small"});
    let (context, execution, written) = run(None, (403, status), vec![wish(), wish()]).await;
    assert_eq!(written.len(), 1, "the same wish a second time");
    assert_eq!(execution.failures.first().map(ExecuteError::class), Some(Class::Wait));
    let observed = crate::observe::observe(&context, &shop(), &cluster());
    let warning = observed.warnings.first().unwrap();
    assert_eq!(
        (warning.about.as_str(), warning.reason.as_str()),
        ("Service/shop-primary", "Forbidden")
    );
    assert!(warning.message.contains("exceeded quota"));
}

#[tokio::test]
async fn f27_nothing_is_tried_any_more_in_a_namespace_that_is_being_deleted() {
    let status = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "unable to create new content in namespace db because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}]}});
    let (context, execution, written) = run(None, (403, status), vec![wish(), wish()]).await;
    assert!(execution.terminating && execution.failures.is_empty(), "{execution:?}");
    assert_eq!(written.len(), 1);
    let observed = crate::observe::observe(&context, &shop(), &cluster());
    assert!(
        observed.warnings.is_empty(),
        "it is no refusal that a person could mend"
    );
}

#[tokio::test]
async fn f11_passwords_are_completed_and_never_replaced() {
    let existing = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "shop-system", "namespace": "db", "uid": "u", "resourceVersion": "3",
            "labels": {"mysql.mainstay.dev/cluster": "shop"}},
        "data": {"manager": "bWluZQ=="}});
    let actions = vec![Action::GeneratePasswords {
        secret: "shop-system".to_owned(),
        keys: vec!["manager".to_owned(), "clone".to_owned()],
        fixed: Vec::new(),
        owned: false,
    }];
    let (_, execution, written) = run(Some(existing.clone()), (200, existing), actions).await;
    assert!(execution.failures.is_empty(), "{execution:?}");
    let [(request, body)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(request, "PUT /api/v1/namespaces/db/secrets/shop-system");
    assert_eq!(body["data"]["manager"], "bWluZQ==");
    assert!(body["data"]["clone"].as_str().unwrap().len() >= 32);
    assert_eq!(
        body["metadata"]["resourceVersion"], "3",
        "only if nobody wrote meanwhile"
    );
}

#[tokio::test]
async fn a_pod_is_deleted_only_if_it_is_the_one_that_was_seen() {
    let action = Action::DeletePod {
        instance: mainstay_core::rules::InstanceName("shop-0".to_owned()),
        uid: "seen".to_owned(),
        at_once: true,
        reason: "test".to_owned(),
    };
    let (_, execution, written) = run(None, Fake::failure(409), vec![action]).await;
    assert!(
        matches!(execution.failures.as_slice(), [ExecuteError::Lost { .. }]),
        "{execution:?}"
    );
    assert_eq!(written[0].1["preconditions"]["uid"], "seen");
    assert_eq!(written[0].1["gracePeriodSeconds"], 1, "never forced");
}

#[tokio::test]
async fn a_claim_is_deleted_only_as_it_was_seen() {
    let action = Action::DeleteClaim {
        instance: mainstay_core::rules::InstanceName("shop-0".to_owned()),
        uid: "seen".to_owned(),
        resource_version: "7".to_owned(),
        reason: "test".to_owned(),
    };
    let (_, execution, written) = run(None, Fake::failure(409), vec![action]).await;
    assert!(
        matches!(execution.failures.as_slice(), [ExecuteError::Lost { .. }]),
        "{execution:?}"
    );
    let [(request, body)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(
        request,
        "DELETE /api/v1/namespaces/db/persistentvolumeclaims/data-shop-0"
    );
    assert_eq!(body["preconditions"], json!({"uid": "seen", "resourceVersion": "7"}));
}

#[tokio::test]
async fn growth_that_is_refused_is_told_and_not_tried_again_at_once() {
    let grow = || Action::GrowClaim {
        instance: mainstay_core::rules::InstanceName("shop-0".to_owned()),
        uid: "seen".to_owned(),
        bytes: 3 << 30,
        reason: "test".to_owned(),
    };
    let (context, execution, written) = run(None, Fake::failure(403), vec![grow(), grow()]).await;
    assert_eq!(execution.failures.len(), 1, "{execution:?}");
    let [(request, body)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(
        request,
        "PATCH /api/v1/namespaces/db/persistentvolumeclaims/data-shop-0"
    );
    assert_eq!(body["metadata"]["uid"], "seen");
    assert_eq!(body["spec"]["resources"]["requests"]["storage"], "3Gi");
    let told = context.memories.refusals(&crate::index::ClusterName::new("db", "shop"));
    assert_eq!(told[0].about, "PersistentVolumeClaim/data-shop-0");
    assert_eq!(told[0].reason, mainstay_core::plan::GROWTH_REFUSED);
}

/// A write of the memory, in epoch 6.
fn record() -> Action {
    let status: mainstay_api::MySQLClusterStatus = serde_json::from_value(json!({
        "epoch": 6, "owner": "me", "election": {"phase": "Electing", "since": "2026-11-29T12:00:00.000000Z"},
        "baseline": "", "acksRequired": 1, "serverIdBase": 100
    }))
    .unwrap();
    let mainstay_core::rules::Memory::Known(rules) = mainstay_core::status::memory(Some(&status)) else {
        panic!("no memory")
    };
    Action::Record(Box::new(mainstay_core::action::Record {
        rules: *rules,
        reason: "Test",
        message: String::new(),
    }))
}

#[tokio::test]
async fn rule_0_a_record_is_written_over_the_status_that_was_read_and_seen_at_once() {
    let mut after = serde_json::to_value(cluster()).unwrap();
    after["metadata"]["resourceVersion"] = json!("6");
    after["status"] = json!({"epoch": 6});
    let (context, executed, mut written) = attempt(None, (200, after), vec![record(), wish()]).await;
    written.retain(|(request, _)| !request.ends_with("/events"));
    assert_eq!(executed.unwrap().recorded.map(|rules| rules.epoch), Some(6));
    let (request, body) = &written[0];
    assert_eq!(
        request,
        "PUT /apis/mysql.mainstay.dev/v1/namespaces/db/mysqlclusters/shop/status"
    );
    assert_eq!(
        (&body["metadata"]["resourceVersion"], &body["status"]["epoch"]),
        (&json!("5"), &json!(6))
    );
    assert_eq!(written.len(), 2, "the rest of the plan is carried out");
    let known = context.world.clusters.get(&shop()).unwrap();
    let status = known.0.as_ref().unwrap().status.as_ref();
    assert_eq!(
        status.and_then(|status| status.epoch),
        Some(6),
        "the next pass plans from it"
    );
}

#[rstest]
#[case::somebody_wrote_before(409)]
#[case::nobody_knows(504)]
#[case::refused(422)]
#[tokio::test]
async fn rule_0_a_record_that_is_not_made_drops_the_rest_of_the_plan(#[case] code: u16) {
    let (context, executed, written) = attempt(None, Fake::failure(code), vec![record(), wish()]).await;
    executed.unwrap_err();
    assert!(
        written.iter().all(|(request, _)| request.ends_with("/status")),
        "{written:?}"
    );
    let known = context.world.clusters.get(&shop()).unwrap();
    assert!(known.0.as_ref().unwrap().status.is_none());
}
