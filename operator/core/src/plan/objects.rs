//! The Kubernetes objects of a cluster: everything in one pass, nothing waits for readiness that waits for it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::action::{Action, Desired};
use crate::build::{Inputs, desired_objects};
use crate::diff;
use crate::names::ANNOTATION_MISSING;
use crate::observed::{ObjectKey, ObjectKind, Observed};
use crate::plan::draft::Draft;
use crate::plan::{leave, recovery};
use crate::rules::Rules;
use crate::subject::Subject;
use crate::timing::Timing;
use crate::validate::ValidatedCluster;
use crate::view::{View, age};

/// Applies what differs, and deletes what nobody refers to any more.
pub(crate) fn plan(
    subject: &Subject<'_>,
    observed: &Observed,
    spec: &ValidatedCluster,
    now: Timestamp,
    draft: &mut Draft,
) {
    let inputs = Inputs {
        server_id_base: subject.server_id_base(observed),
        operator_image: subject.operator_image.to_owned(),
    };
    // The set shrinks only after its last instances have left the members (rule 9).
    let replicas = spec.replicas.max(in_use(observed.rules()));
    let set = ObjectKey {
        kind: ObjectKind::StatefulSet,
        name: subject.name.to_owned(),
    };
    let built = observed.objects.get(&set).map(|view| &view.value);
    let wanted = desired_objects(
        &ValidatedCluster {
            replicas,
            ..spec.clone()
        },
        &inputs,
        built,
    );
    let keys: BTreeSet<_> = wanted.iter().map(|desired| desired.key.clone()).collect();
    for mut desired in wanted {
        if desired.key == set && built.is_none() && !recovery::may_build(subject, observed) {
            draft.wait_briefly("building", "the Secret with which its data is recovered");
            continue;
        }
        if desired.key == set && built.is_some() {
            desired.value = awakened(desired.value, replicas, observed, now, draft);
        }
        if needs_apply(observed, &desired) {
            draft.push(Action::Apply(Box::new(desired)));
        }
    }
    delete_unused(subject, observed, &keys, draft);
}

/// A StatefulSet that fails to make a pod tries again later and later, after minutes in the end. That a pod of a former set,
/// which had the name, is gone at last is no news for it. A change of its annotations is.
fn awakened(set: Value, replicas: u32, observed: &Observed, now: Timestamp, draft: &mut Draft) -> Value {
    let wait = Timing::default().missing;
    let missing = observed.instances.iter().filter(|instance| instance.ordinal < replicas);
    let missing = missing.filter(|instance| instance.pod.is_none());
    let mut since = Vec::new();
    for (name, at) in missing.filter_map(|instance| Some((&instance.name, View::silent_since(instance)?))) {
        let age = age(now, at);
        if age >= wait {
            since.push(format!("{name} since {at:.0}"));
        } else {
            draft.look_in(wait.saturating_sub(age));
        }
    }
    // It says why it cannot, and goes on trying.
    let explained = observed.warnings.iter().any(|warning| warning.reason == "FailedCreate");
    if since.is_empty() || explained {
        return set;
    }
    diff::annotated(set, ANNOTATION_MISSING, &since.join(", "))
}

/// Number of instances that the set must not go below.
fn in_use(rules: Option<&Rules>) -> u32 {
    let Some(rules) = rules else { return 0 };
    let members = rules.members.iter().map(|member| &member.instance);
    let names = members.chain(rules.primary.iter().map(|primary| &primary.id.instance));
    names
        .filter_map(leave::ordinal)
        .map(|ordinal| ordinal.saturating_add(1))
        .max()
        .unwrap_or(0)
}

fn needs_apply(observed: &Observed, desired: &Desired) -> bool {
    match observed.objects.get(&desired.key) {
        None => true,
        Some(seen) => seen.ours && !seen.contested && diff::needs_apply(&desired.value, &seen.value).is_some(),
    }
}

/// ConfigMaps of former configurations. One that a pod refers to is kept: the pod may restart at any time (F14).
fn delete_unused(subject: &Subject<'_>, observed: &Observed, wanted: &BTreeSet<ObjectKey>, draft: &mut Draft) {
    let prefix = format!("{}-config-", subject.name);
    let in_use: BTreeSet<_> = observed
        .instances
        .iter()
        .filter_map(|instance| instance.pod.as_ref()?.config_map.as_ref())
        .chain(set_refers_to(subject, observed).iter())
        .cloned()
        .collect();
    for (key, view) in &observed.objects {
        let unused = key.kind == ObjectKind::ConfigMap
            && key.name.starts_with(&prefix)
            && view.ours
            && !wanted.contains(key)
            && !in_use.contains(&key.name);
        if unused {
            let (uid, resource_version) = (view.uid.clone(), view.resource_version.clone());
            draft.push(Action::DeleteObject {
                key: key.clone(),
                uid,
                resource_version,
            });
        }
    }
    // A budget that a single instance does not have: it could only make a drain hang.
    let budget = ObjectKey {
        kind: ObjectKind::PodDisruptionBudget,
        name: subject.name.to_owned(),
    };
    if let Some(view) = observed
        .objects
        .get(&budget)
        .filter(|view| view.ours && !wanted.contains(&budget))
    {
        let (uid, resource_version) = (view.uid.clone(), view.resource_version.clone());
        draft.push(Action::DeleteObject {
            key: budget,
            uid,
            resource_version,
        });
    }
}

fn stateful_set<'a>(subject: &Subject<'_>, observed: &'a Observed) -> Option<&'a serde_json::Value> {
    let key = ObjectKey {
        kind: ObjectKind::StatefulSet,
        name: subject.name.to_owned(),
    };
    observed.objects.get(&key).map(|set| &set.value)
}

/// ConfigMaps of the template that the StatefulSet has now: a pod that it makes this moment refers to them.
fn set_refers_to(subject: &Subject<'_>, observed: &Observed) -> Vec<String> {
    let volumes = stateful_set(subject, observed).and_then(|set| set.pointer("/spec/template/spec/volumes"));
    let volumes = volumes.and_then(serde_json::Value::as_array).into_iter().flatten();
    let name = |volume: &serde_json::Value| volume.pointer("/configMap/name")?.as_str().map(str::to_owned);
    volumes.filter_map(name).collect()
}
