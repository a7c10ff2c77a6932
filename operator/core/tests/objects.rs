//! The objects of a cluster, whole: a change of any byte shows as a change of a snapshot.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;

use common::{checked, manifests};
use mainstay_core::action::Desired;
use mainstay_core::backup::BackupId;
use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::verify;
use mainstay_core::backup::wire::{Donor, Task};
use mainstay_core::build::{BackupStart, Inputs, PodAddress, backup_job, desired_objects, endpoint_slices, verify_job};
use mainstay_core::diff::{needs_apply, stamped};
use mainstay_core::mycnf;
use mainstay_core::names::LABEL_COMPONENT;
use mainstay_core::observed::ObjectKind;
use mainstay_core::rules::InstanceName;
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;
use serde_json::{Value, json};

fn cluster(name: &str) -> ValidatedCluster {
    let file = format!("{name}.yaml");
    let (_, text) = manifests("valid")
        .into_iter()
        .find(|(path, _)| path.ends_with(&file))
        .unwrap();
    checked(&text).unwrap()
}

fn inputs(image: &str) -> Inputs {
    Inputs {
        server_id_base: 4200,
        operator_image: image.to_owned(),
    }
}

fn objects(cluster: &ValidatedCluster) -> Vec<Desired> {
    desired_objects(cluster, &inputs("mainstay.dev/mainstay:1"), None)
}

fn yaml(objects: &[Desired]) -> String {
    let documents: Vec<String> = objects
        .iter()
        .map(|object| serde_norway::to_string(&object.value).unwrap())
        .collect();
    documents.join("---\n")
}

fn of(objects: &[Desired], kind: ObjectKind) -> &Value {
    &objects.iter().find(|object| object.key.kind == kind).unwrap().value
}

fn template(cluster: &ValidatedCluster) -> Value {
    of(&objects(cluster), ObjectKind::StatefulSet)["spec"]["template"].clone()
}

#[test]
fn minimal_cluster() {
    insta::assert_snapshot!(yaml(&objects(&cluster("minimal"))));
}

#[test]
fn single_instance() {
    insta::assert_snapshot!(yaml(&objects(&cluster("single"))));
}

#[test]
fn every_field() {
    insta::assert_snapshot!(yaml(&objects(&cluster("everything"))));
}

fn job(cluster: &ValidatedCluster) -> Value {
    let start = BackupStart {
        backup: "shop-nightly-57bcae98-29933460".to_owned(),
        uid: "0b1c7f1e-0000-4000-8000-000000000000".to_owned(),
        job: "shop-nightly-57bcae98-29933460-backup".to_owned(),
        task: Task {
            id: BackupId::parse("20261130t030000z-57bcae98").unwrap(),
            name: "shop-nightly-57bcae98-29933460".to_owned(),
            schedule: Some("nightly".to_owned()),
            donor: Donor {
                instance: "shop-2".to_owned(),
                server_uuid: "3e11fa47-71ca-11e1-9e33-c80aa9429562".to_owned(),
                host: "shop-2.shop-instances.prod.svc".to_owned(),
                port: 33062,
            },
            epoch: 7,
            method: Method::Physical,
        },
    };
    serde_json::to_value(backup_job(cluster, "mainstay.dev/mainstay:1", &start)).unwrap()
}

#[test]
fn job_of_a_backup() {
    insta::assert_snapshot!(serde_norway::to_string(&job(&cluster("backup"))).unwrap());
}

#[test]
fn job_of_a_backup_with_every_field() {
    insta::assert_snapshot!(serde_norway::to_string(&job(&cluster("backup-everything"))).unwrap());
}

fn verification(cluster: &ValidatedCluster) -> Value {
    let start = verify::VerificationStart {
        job: cluster.names().verify_job(),
        due: "2026-11-29T09:00:00Z".parse().unwrap(),
        task: verify::Task {
            id: BackupId::parse("20261129t030000z-57bcae98").unwrap(),
            name: "shop-nightly-57bcae98-29933460".to_owned(),
        },
    };
    serde_json::to_value(verify_job(cluster, "mainstay.dev/mainstay:1", &start)).unwrap()
}

#[test]
fn job_of_a_verification() {
    insta::assert_snapshot!(serde_norway::to_string(&verification(&cluster("backup"))).unwrap());
}

#[test]
fn job_of_a_verification_with_every_field() {
    insta::assert_snapshot!(serde_norway::to_string(&verification(&cluster("backup-everything"))).unwrap());
}

/// It reaches no instance, and the private keys are mounted where something is encrypted, and only there.
#[test]
fn the_job_of_a_verification_may_read_the_store_alone() {
    let secrets = |name: &str| {
        let job = verification(&cluster(name));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let names = volumes.filter_map(|volume| volume["secret"]["secretName"].as_str().map(str::to_owned));
        names.collect::<Vec<_>>()
    };
    assert_eq!(secrets("backup"), ["backup-server-tls", "backup-store"]);
    let encrypted = secrets("backup-everything");
    assert_eq!(encrypted.len(), 3, "{encrypted:?}");
    assert!(!encrypted.iter().any(|name| name.ends_with("-system")), "{encrypted:?}");
    let job = job(&cluster("backup-everything"));
    assert!(
        !job.to_string().contains(&format!("\"{}\"", encrypted[2])),
        "the Job of a backup has no private key"
    );
}

/// Its pod is no instance: neither a Service nor a budget finds it, it has no token, and of the passwords the one that copies.
#[test]
fn the_job_of_a_backup_may_little() {
    let cluster = cluster("backup");
    let job = job(&cluster);
    let pod = &job["spec"]["template"];
    for (key, value) in cluster.names().selector() {
        if key == LABEL_COMPONENT {
            assert_ne!(pod["metadata"]["labels"][key], json!(value));
        }
    }
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    let secrets: Vec<_> = pod["spec"]["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|volume| {
            Some((
                volume["secret"]["secretName"].as_str()?,
                volume["secret"]["items"].clone(),
            ))
        })
        .collect();
    assert_eq!(
        secrets,
        [
            ("backup-server-tls", json!([{"key": "ca.crt", "path": "ca.crt"}])),
            ("backup-store", Value::Null),
            ("backup-system", json!([{"key": "clone", "path": "clone"}])),
        ]
    );
}

/// What an overlay says of any pod holds for this one; what it says of the instances does not.
#[test]
fn f24_the_overlay_reaches_the_pod_of_a_backup() {
    let text = "{apiVersion: mysql.mainstay.dev/v1, kind: MySQLCluster, metadata: {name: shop}, spec: {replicas: 3, image: m,
        storage: {size: 1Gi}, podTemplate: {metadata: {annotations: {mesh/inject: \"false\"}}, spec: {
        priorityClassName: database, tolerations: [{key: mysql, operator: Exists}], containers: [{name: mysql, env: [{name: X, value: y}]}],
        affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}}}}}";
    let job = job(&checked(text).unwrap());
    let pod = &job["spec"]["template"];
    assert_eq!(pod["metadata"]["annotations"]["mesh/inject"], "false");
    assert_eq!(pod["spec"]["priorityClassName"], "database");
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "mysql");
    assert_eq!(pod["spec"]["restartPolicy"], "Never");
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
    let required = pod["spec"]["affinity"]["podAntiAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution");
    assert!(required.is_none_or(Value::is_null), "{required:?}");
}

#[test]
fn my_cnf_with_variables_of_the_user() {
    insta::assert_snapshot!(mycnf::render(&cluster("variables")));
}

#[test]
fn a_single_instance_has_no_disruption_budget() {
    let kinds = |name| {
        objects(&cluster(name))
            .iter()
            .map(|object| object.key.kind)
            .collect::<BTreeSet<_>>()
    };
    assert!(kinds("minimal").contains(&ObjectKind::PodDisruptionBudget));
    assert!(!kinds("single").contains(&ObjectKind::PodDisruptionBudget));
}

#[test]
fn every_object_is_labelled_owned_and_stamped() {
    for name in ["minimal", "single", "everything"] {
        let cluster = cluster(name);
        for Desired { key, value } in objects(&cluster) {
            let metadata = &value["metadata"];
            assert_eq!(metadata["name"], json!(key.name));
            assert_eq!(metadata["namespace"], "prod");
            assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "mainstay");
            assert_eq!(metadata["labels"]["mysql.mainstay.dev/cluster"], json!(name));
            assert_eq!(metadata["ownerReferences"][0]["uid"], json!(cluster.uid));
            assert_eq!(metadata["ownerReferences"][0]["controller"], true);
            assert!(value["apiVersion"].is_string() && value["kind"].is_string());
            assert_eq!(needs_apply(&value, &value), None, "{key:?}");
        }
    }
}

#[test]
fn equal_clusters_give_equal_bytes() {
    let once = yaml(&objects(&cluster("everything")));
    assert_eq!(once, yaml(&objects(&cluster("everything"))));
}

/// observed.json holds what a Kubernetes 1.36 gave back for these objects after a server-side apply, defaults and all.
#[test]
fn f30_what_the_api_server_gives_back_is_no_difference() {
    let observed: Value = serde_json::from_str(include_str!("observed.json")).unwrap();
    for name in ["minimal", "single", "everything"] {
        let built = objects(&cluster(name));
        let observed = observed[name].as_array().unwrap();
        assert_eq!(built.len(), observed.len());
        for (Desired { key, value }, there) in built.iter().zip(observed) {
            assert_eq!(needs_apply(value, &with_hashes_of(value, there)), None, "{key:?}");
        }
    }
}

/// The observed object with the hashes, and what they are hashes of, as they are built now: a new line of my.cnf is no
/// reason to ask an API server again.
fn with_hashes_of(built: &Value, observed: &Value) -> Value {
    let mut observed = observed.clone();
    for pointer in [
        "/metadata/name",
        "/metadata/annotations/mysql.mainstay.dev~1applied",
        "/data/my.cnf",
        "/spec/template/metadata/annotations/mysql.mainstay.dev~1template",
        "/spec/template/spec/containers/0/env/5/value",
        "/spec/template/spec/volumes/2/configMap/name",
    ] {
        if let (Some(built), Some(there)) = (built.pointer(pointer), observed.pointer_mut(pointer)) {
            *there = built.clone();
        }
    }
    observed
}

#[test]
fn f24_one_overlay_reaches_every_pod() {
    let plain = template(&cluster("minimal"));
    let pod = template(&cluster("overlay"));
    assert_eq!(pod["metadata"]["labels"]["team"], "payments");
    assert_eq!(pod["metadata"]["annotations"]["example.com/scrape"], "true");
    assert_eq!(pod["spec"]["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["spec"]["tolerations"][0]["key"], "dedicated");
    let names = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(|item| item["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&pod["spec"]["containers"]), [json!("mysql"), json!("sidecar")]);
    // What Mainstay set is still there, and the user's variable on top.
    let mysql = &pod["spec"]["containers"][0];
    assert_eq!(mysql["command"], plain["spec"]["containers"][0]["command"]);
    assert_eq!(mysql["volumeMounts"], plain["spec"]["containers"][0]["volumeMounts"]);
    assert!(names(&mysql["env"]).contains(&json!("TZ")) && names(&mysql["env"]).contains(&json!("MAINSTAY_INSTANCE")));
    assert!(names(&pod["spec"]["volumes"]).contains(&json!("scratch")));
    assert_ne!(hash(&pod), hash(&plain));
}

fn hash(template: &Value) -> &Value {
    &template["metadata"]["annotations"]["mysql.mainstay.dev/template"]
}

#[test]
fn the_template_changes_with_what_a_pod_is_made_of_and_with_nothing_else() {
    let base = cluster("minimal");
    let before = hash(&template(&base)).clone();
    let other = |change: fn(&mut ValidatedCluster)| {
        let mut cluster = base.clone();
        change(&mut cluster);
        hash(&template(&cluster)).clone()
    };
    assert_ne!(other(|c| c.image = "mysql:9.7.5".to_owned()), before);
    assert_ne!(
        other(|c| c.sizes.max_connections += 1),
        before,
        "my.cnf is a part of the pod"
    );
    assert_eq!(other(|c| c.replicas = 5), before);
    assert_eq!(other(|c| c.generation = 9), before);
    assert_eq!(other(|c| c.fallback_to_primary = false), before);
    assert_eq!(
        other(|c| c.primary_service.annotations = [("a".to_owned(), "b".to_owned())].into()),
        before
    );
}

#[test]
fn f26_an_upgrade_of_the_operator_restarts_nothing() {
    let mut cluster = cluster("minimal");
    let old = desired_objects(&cluster, &inputs("mainstay:1"), None);
    let set = of(&old, ObjectKind::StatefulSet);
    let new = desired_objects(&cluster, &inputs("mainstay:2"), Some(set));
    assert_eq!(needs_apply(of(&new, ObjectKind::StatefulSet), set), None);
    assert_eq!(image(of(&new, ObjectKind::StatefulSet)), "mainstay:1");

    // Something else restarts the pods: they come with the new instance manager.
    cluster.image = "mysql:9.7.5".to_owned();
    let rolled = desired_objects(&cluster, &inputs("mainstay:2"), Some(set));
    assert_eq!(image(of(&rolled, ObjectKind::StatefulSet)), "mainstay:2");
}

fn image(set: &Value) -> &str {
    set["spec"]["template"]["spec"]["initContainers"][0]["image"]
        .as_str()
        .unwrap()
}

#[test]
fn f28_equal_names_in_two_namespaces_differ_in_every_object() {
    let one = cluster("minimal");
    let other = ValidatedCluster {
        namespace: "test".to_owned(),
        uid: "other".to_owned(),
        ..one.clone()
    };
    for (a, b) in objects(&one).iter().zip(objects(&other)) {
        assert_ne!(a.value["metadata"]["namespace"], b.value["metadata"]["namespace"]);
        assert_ne!(
            a.value["metadata"]["ownerReferences"],
            b.value["metadata"]["ownerReferences"]
        );
    }
}

/// The pods of a namespace with the pod security standard "restricted" are accepted.
#[test]
fn pods_are_restricted() {
    let template = template(&cluster("minimal"));
    let pod = &template["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod[list].as_array().unwrap());
    for container in containers {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(volume["hostPath"].is_null(), "{volume}");
    }
}

fn pod(ordinal: u32, address: &str) -> PodAddress {
    PodAddress {
        instance: InstanceName(format!("minimal-{ordinal}")),
        address: address.parse().unwrap(),
        uid: format!("pod-{ordinal}"),
        node: Some(format!("node-{ordinal}")),
        zone: None,
    }
}

#[test]
fn f04_slices_by_address_family() {
    let cluster = cluster("minimal");
    let subject = Subject {
        namespace: &cluster.namespace,
        name: &cluster.name,
        uid: &cluster.uid,
        generation: 1,
        operator_image: "mainstay:1",
        spec: Ok(&cluster),
    };
    let pods = [pod(2, "10.0.0.3"), pod(0, "fd00::1"), pod(1, "10.0.0.2")];
    let slices = endpoint_slices(&subject, "minimal-replicas", &pods);
    insta::assert_snapshot!(yaml(&slices));
    let mut reversed = pods.to_vec();
    reversed.reverse();
    assert_eq!(
        endpoint_slices(&subject, "minimal-replicas", &reversed),
        slices,
        "the order of what was seen is no change"
    );
    let nobody = endpoint_slices(&subject, "minimal-primary", &[]);
    assert!(nobody.iter().all(|slice| slice.value["endpoints"] == json!([])));
    // What the API server gives back for an empty slice, and a foreign endpoint in it.
    let mut observed = nobody[0].value.clone();
    observed["endpoints"] = Value::Null;
    assert_eq!(needs_apply(&nobody[0].value, &observed), None);
    observed["endpoints"] = slices[0].value["endpoints"].clone();
    assert_eq!(needs_apply(&nobody[0].value, &observed).as_deref(), Some("endpoints"));
}

#[test]
fn f29_a_field_that_is_wanted_no_more_is_taken_out() {
    // The object as it was applied holds every field that is wanted now, and one more.
    let with = |annotations: Value| {
        let object = json!({"kind": "Service", "metadata": {"name": "shop", "annotations": annotations}});
        stamped(object)
    };
    let (wanted, there) = (with(json!({"a": "1"})), with(json!({"a": "1", "b": "2"})));
    assert_eq!(needs_apply(&wanted, &wanted), None);
    assert!(needs_apply(&wanted, &there).is_some());
}
