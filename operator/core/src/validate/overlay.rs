//! The overlay of the pod template: what it may say, and what Mainstay's pods cannot do without.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use serde_json::{Value, json};

use super::{SpecProblem, metadata};
use crate::build::{INSTALL_CONTAINER, MYSQL_CONTAINER, is_own_mount, is_own_port, is_own_volume};
use crate::names::{DOMAIN_PREFIX, Names};

/// Fields of the pod that are Mainstay's, and what to do instead.
const OWNED_POD_FIELDS: &[(&str, &str)] = &[
    ("restartPolicy", "a StatefulSet restarts always; remove it"),
    (
        "hostNetwork",
        "the instances need their own addresses and ports; remove it",
    ),
    ("hostname", "the StatefulSet names its pods; remove it"),
    ("subdomain", "the StatefulSet names its pods; remove it"),
    ("setHostnameAsFQDN", "the StatefulSet names its pods; remove it"),
    (
        "nodeName",
        "all instances would be bound to one node; use nodeSelector or affinity",
    ),
    ("activeDeadlineSeconds", "a database does not end by itself; remove it"),
    ("imagePullSecrets", "use spec.imagePullSecrets"),
];

/// Fields of the container `mysql` that are Mainstay's.
const OWNED_CONTAINER_FIELDS: &[(&str, &str)] = &[
    ("image", "use spec.image"),
    ("imagePullPolicy", "use spec.imagePullPolicy"),
    (
        "command",
        "the container runs the instance manager; set variables in spec.config",
    ),
    (
        "args",
        "the container runs the instance manager; set variables in spec.config",
    ),
    ("resources", "use spec.resources, from which MySQL's sizes are derived"),
    (
        "startupProbe",
        "Mainstay's probes know recoveries and clones; remove it",
    ),
    (
        "readinessProbe",
        "Mainstay's probes know recoveries and clones; remove it",
    ),
    (
        "livenessProbe",
        "Mainstay's probes know recoveries and clones; remove it",
    ),
    ("lifecycle", "the primary is moved before its pod stops; remove it"),
    ("restartPolicy", "the kubelet restarts it always; remove it"),
];

/// Fields of the init container `install` that are Mainstay's.
const OWNED_INIT_FIELDS: &[(&str, &str)] = &[
    ("image", "it is the operator's; remove it"),
    ("command", "it puts the instance manager into the pod; remove it"),
    ("args", "it puts the instance manager into the pod; remove it"),
    ("restartPolicy", "it has to end before MySQL starts; remove it"),
];

/// Seconds that a primary needs to be relieved and to end cleanly.
const LEAST_GRACE: i64 = 60;

/// Reads an overlay and reports what Mainstay cannot accept.
pub(super) fn check(
    overlay: Option<&Value>,
    names: &Names,
    problems: &mut Vec<SpecProblem>,
) -> Option<PodTemplateSpec> {
    let given = overlay?;
    let before = problems.len();
    let template: PodTemplateSpec = match serde_json::from_value(given.clone()) {
        Ok(template) => template,
        Err(error) => {
            misfits(given, "", &|value| value, &error, problems);
            return None;
        }
    };
    unknown_fields(given, &template, problems);
    check_metadata(given, &template, names, problems);
    if let Some(spec) = given.get("spec") {
        owned(spec, "spec.podTemplate.spec", OWNED_POD_FIELDS, problems);
        check_containers(spec, "containers", MYSQL_CONTAINER, OWNED_CONTAINER_FIELDS, problems);
        check_containers(spec, "initContainers", INSTALL_CONTAINER, OWNED_INIT_FIELDS, problems);
    }
    if let Some(spec) = &template.spec {
        check_spec(spec, problems);
    }
    (problems.len() == before).then_some(template)
}

/// Reports the values that are of another type than a pod has there. `within` puts a value where `given` stands, into a template
/// that has nothing else; so whatever of it cannot be read alone is, or holds, a misfit. `error` is what is said of `given`.
fn misfits(
    given: &Value,
    path: &str,
    within: &dyn Fn(Value) -> Value,
    error: &serde_json::Error,
    problems: &mut Vec<SpecProblem>,
) {
    let before = problems.len();
    let fits = |value: Value| serde_json::from_value::<PodTemplateSpec>(within(value)).is_ok();
    let mut look = |child: &Value, path: String, alone: &dyn Fn(Value) -> Value| {
        let within = |value: Value| within(alone(value));
        if let Err(error) = serde_json::from_value::<PodTemplateSpec>(within(child.clone())) {
            misfits(child, &path, &within, &error, problems);
        }
    };
    match given {
        Value::Object(map) if fits(json!({})) => {
            for (key, child) in map {
                look(child, format!("{path}.{key}"), &|value| json!({ key.as_str(): value }));
            }
        }
        Value::Array(list) if fits(json!([])) => {
            for (index, child) in list.iter().enumerate() {
                look(child, format!("{path}[{index}]"), &|value| json!([value]));
            }
        }
        // It is the misfit itself.
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if problems.len() == before {
        let field = format!("spec.podTemplate{path}");
        let message = format!(
            "{error}; what stands there: kubectl explain pod{}",
            without_indices(path)
        );
        problems.push(SpecProblem::new(field, message));
    }
}

/// `.spec.containers[0].ports` as kubectl takes it: `.spec.containers.ports`.
fn without_indices(path: &str) -> String {
    path.split('[')
        .map(|part| part.split_once(']').map_or(part, |(_, rest)| rest))
        .collect()
}

/// What a newer Kubernetes may know and this version does not would be left out silently.
fn unknown_fields(given: &Value, template: &PodTemplateSpec, problems: &mut Vec<SpecProblem>) {
    let understood = serde_json::to_value(template).unwrap_or_default();
    let mut lost = Vec::new();
    compare(given, &understood, "spec.podTemplate", &mut lost);
    problems.extend(
        lost.into_iter()
            .map(|field| SpecProblem::new(field, "is not a field of a pod; check its spelling")),
    );
}

fn compare(given: &Value, understood: &Value, path: &str, lost: &mut Vec<String>) {
    match (given, understood) {
        (Value::Object(given), Value::Object(understood)) => {
            for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("{path}.{key}");
                match understood.get(key) {
                    Some(understood) => compare(value, understood, &path, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(given), Value::Array(understood)) => {
            for (index, (given, understood)) in given.iter().zip(understood).enumerate() {
                compare(given, understood, &format!("{path}[{index}]"), lost);
            }
        }
        _ => {}
    }
}

fn check_metadata(given: &Value, template: &PodTemplateSpec, names: &Names, problems: &mut Vec<SpecProblem>) {
    let path = "spec.podTemplate.metadata";
    let given = given.get("metadata").and_then(Value::as_object);
    let (Some(given), Some(understood)) = (given, &template.metadata) else {
        return;
    };
    let (labels, annotations) = (understood.labels.as_ref(), understood.annotations.as_ref());
    for key in given
        .keys()
        .filter(|key| !matches!(key.as_str(), "labels" | "annotations"))
    {
        problems.push(SpecProblem::new(
            format!("{path}.{key}"),
            "only labels and annotations can be set",
        ));
    }
    let own = names.labels();
    let none = BTreeMap::new();
    let kinds = [
        ("labels", metadata::Kind::Labels, labels),
        ("annotations", metadata::Kind::Annotations, annotations),
    ];
    for (name, kind, map) in kinds {
        let (field, map) = (format!("{path}.{name}"), map.unwrap_or(&none));
        metadata::check(&field, kind, map, problems);
        for key in map
            .keys()
            .filter(|key| key.starts_with(DOMAIN_PREFIX) || own.contains_key(*key))
        {
            problems.push(SpecProblem::new(
                format!("{field}[{key}]"),
                "is set by Mainstay; remove it",
            ));
        }
    }
}

/// Reports fields that stand in `given` and are Mainstay's.
fn owned(given: &Value, path: &str, fields: &[(&str, &str)], problems: &mut Vec<SpecProblem>) {
    for (field, message) in fields {
        if given.get(field).is_some_and(|value| !value.is_null()) {
            problems.push(SpecProblem::new(
                format!("{path}.{field}"),
                format!("is set by Mainstay: {message}"),
            ));
        }
    }
}

fn check_containers(spec: &Value, list: &str, own: &str, fields: &[(&str, &str)], problems: &mut Vec<SpecProblem>) {
    let mut seen = BTreeSet::new();
    for (index, container) in spec
        .get(list)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let path = format!("spec.podTemplate.spec.{list}");
        if name.is_empty() {
            problems.push(SpecProblem::new(
                format!("{path}[{index}].name"),
                "containers are merged by name; name it",
            ));
        } else if !seen.insert(name) {
            problems.push(SpecProblem::new(format!("{path}[{name}]"), "is there twice"));
        } else if name == own {
            owned(container, &format!("{path}[{name}]"), fields, problems);
        }
    }
}

fn check_spec(spec: &PodSpec, problems: &mut Vec<SpecProblem>) {
    let path = "spec.podTemplate.spec";
    if let Some(seconds) = spec
        .termination_grace_period_seconds
        .filter(|seconds| *seconds < LEAST_GRACE)
    {
        let message = format!(
            "{seconds} s is too short for a primary to be relieved and to end without losing work; use at least {LEAST_GRACE}"
        );
        problems.push(SpecProblem::new(
            format!("{path}.terminationGracePeriodSeconds"),
            message,
        ));
    }
    for volume in spec
        .volumes
        .iter()
        .flatten()
        .filter(|volume| is_own_volume(&volume.name))
    {
        let field = format!("{path}.volumes[{}]", volume.name);
        problems.push(SpecProblem::new(
            field,
            "is a volume of Mainstay's; choose another name",
        ));
    }
    for (list, containers) in [
        ("containers", Some(&spec.containers)),
        ("initContainers", spec.init_containers.as_ref()),
    ] {
        for container in containers.into_iter().flatten() {
            let path = format!("{path}.{list}[{}]", container.name);
            if container.name == MYSQL_CONTAINER || container.name == INSTALL_CONTAINER {
                check_own_container(container, &path, problems);
            }
            for port in container
                .ports
                .iter()
                .flatten()
                .filter(|port| is_own_port(port.container_port))
            {
                let message = "is a port of the mysql container; choose another one";
                problems.push(SpecProblem::new(
                    format!("{path}.ports[{}]", port.container_port),
                    message,
                ));
            }
        }
    }
}

fn check_own_container(container: &Container, path: &str, problems: &mut Vec<SpecProblem>) {
    for variable in container
        .env
        .iter()
        .flatten()
        .filter(|variable| variable.name.starts_with("MAINSTAY_"))
    {
        problems.push(SpecProblem::new(
            format!("{path}.env[{}]", variable.name),
            "is set by Mainstay; remove it",
        ));
    }
    for mount in container
        .volume_mounts
        .iter()
        .flatten()
        .filter(|mount| is_own_mount(&mount.mount_path))
    {
        let field = format!("{path}.volumeMounts[{}]", mount.mount_path);
        problems.push(SpecProblem::new(
            field,
            "lies in a folder of Mainstay's; mount it elsewhere",
        ));
    }
}

#[cfg(test)]
mod tests;
