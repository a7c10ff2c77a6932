//! What an overlay may say.

use rstest::rstest;
use serde_json::json;

use super::*;

fn checked(overlay: &Value) -> (Option<PodTemplateSpec>, Vec<String>) {
    let mut problems = Vec::new();
    let template = check(Some(overlay), &Names::new("prod", "shop"), &mut problems);
    (
        template,
        problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.field, problem.message))
            .collect(),
    )
}

#[test]
fn f24_what_pods_usually_need_is_accepted() {
    let (template, problems) = checked(&json!({
        "metadata": {"labels": {"team": "payments"}, "annotations": {"example.com/scrape": "true"}},
        "spec": {
            "priorityClassName": "database",
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "mysql", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 600,
            "securityContext": {"runAsUser": 27, "fsGroup": 27},
            "containers": [
                {"name": "mysql", "env": [{"name": "TZ", "value": "UTC"}], "securityContext": {"runAsUser": 27}},
                {"name": "sidecar", "image": "proxy:1", "command": ["proxy"], "ports": [{"containerPort": 9104}],
                 "resources": {"limits": {"memory": "64Mi", "cpu": 1}}}
            ],
            "volumes": [{"name": "extra-ca", "configMap": {"name": "ca"}}, {"name": "scratch", "emptyDir": {}}]
        }
    }));
    assert_eq!(problems, Vec::<String>::new());
    assert!(template.is_some());
}

#[test]
fn no_overlay_is_no_problem() {
    let mut problems = Vec::new();
    assert_eq!(check(None, &Names::new("prod", "shop"), &mut problems), None);
    assert!(problems.is_empty());
}

#[rstest]
#[case(json!({"spec": {"nodeselector": {"a": "b"}}}), "spec.podTemplate.spec.nodeselector: is not a field of a pod")]
#[case(json!({"specs": {}}), "spec.podTemplate.specs: is not a field")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "evn": []}]}}), "spec.containers[0].evn: is not a field")]
#[case(json!({"spec": {"containers": "mysql"}}), "spec.podTemplate.spec.containers: invalid type: string \"mysql\", expected a sequence; what stands there: kubectl explain pod.spec.containers")]
#[case(json!({"spec": {"containers": [{"name": "a"}, {"name": "mysql", "ports": [{"containerPort": "web"}]}]}}), "spec.podTemplate.spec.containers[1].ports[0].containerPort: invalid type: string \"web\"")]
#[case(json!({"spec": {"nodeSelector": {"disk": 1}}, "metadata": {"labels": ["a"]}}), "spec.podTemplate.spec.nodeSelector.disk: invalid type: integer `1`, expected a string; what stands there: kubectl explain pod.spec.nodeSelector.disk")]
#[case(json!({"spec": {"nodeSelector": {"disk": 1}}, "metadata": {"labels": ["a"]}}), "spec.podTemplate.metadata.labels: invalid type: sequence, expected a map")]
#[case(json!({"spec": true}), "spec.podTemplate.spec: invalid type: boolean `true`")]
#[case(json!({"metadata": {"labels": {"bad key": "x"}}}), "metadata.labels[bad key]: is not the key of a label")]
#[case(json!({"metadata": {"labels": {"a": "two words"}}}), "metadata.labels[a]: \"two words\" is not the value of a label")]
#[case(json!({"metadata": {"annotations": {"a b": "x"}}}), "metadata.annotations[a b]: is not the key of an annotation")]
#[case(json!({"spec": {"containers": [{"image": "x"}]}}), "containers[0].name: containers are merged by name")]
#[case(json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}), "containers[a]: is there twice")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "image": "x"}]}}), "containers[mysql].image: is set by Mainstay: use spec.image")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "command": ["mysqld"]}]}}), "containers[mysql].command: is set by Mainstay")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "resources": {}}]}}), "containers[mysql].resources: is set by Mainstay: use spec.resources")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "livenessProbe": {}}]}}), "containers[mysql].livenessProbe: is set by Mainstay")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "lifecycle": {}}]}}), "containers[mysql].lifecycle: is set by Mainstay")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "env": [{"name": "MAINSTAY_CLUSTER", "value": "x"}]}]}}), "env[MAINSTAY_CLUSTER]: is set by Mainstay")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "volumeMounts": [{"name": "x", "mountPath": "/var/lib/mainstay/data"}]}]}}), "lies in a folder of Mainstay's")]
#[case(json!({"spec": {"containers": [{"name": "mysql", "volumeMounts": [{"name": "x", "mountPath": "/etc"}]}]}}), "lies in a folder of Mainstay's")]
#[case(json!({"spec": {"containers": [{"name": "x", "ports": [{"containerPort": 8080}]}]}}), "containers[x].ports[8080]: is a port of the mysql container")]
#[case(json!({"spec": {"initContainers": [{"name": "install", "image": "x"}]}}), "initContainers[install].image: is set by Mainstay")]
#[case(json!({"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}}), "volumes[data]: is a volume of Mainstay's")]
#[case(json!({"spec": {"volumes": [{"name": "config", "emptyDir": {}}]}}), "volumes[config]: is a volume of Mainstay's")]
#[case(json!({"spec": {"restartPolicy": "Never"}}), "spec.restartPolicy: is set by Mainstay")]
#[case(json!({"spec": {"hostNetwork": true}}), "spec.hostNetwork: is set by Mainstay")]
#[case(json!({"spec": {"terminationGracePeriodSeconds": 5}}), "terminationGracePeriodSeconds: 5 s is too short")]
#[case(json!({"metadata": {"name": "x"}}), "metadata.name: only labels and annotations can be set")]
#[case(json!({"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}), "labels[app.kubernetes.io/component]: is set by Mainstay")]
#[case(json!({"metadata": {"annotations": {"mysql.mainstay.dev/template": "x"}}}), "annotations[mysql.mainstay.dev/template]: is set by Mainstay")]
fn what_the_pods_cannot_do_without_is_refused(#[case] overlay: Value, #[case] expected: &str) {
    let (template, problems) = checked(&overlay);
    assert!(template.is_none());
    assert!(
        problems.iter().any(|problem| problem.contains(expected)),
        "{problems:#?}"
    );
}
