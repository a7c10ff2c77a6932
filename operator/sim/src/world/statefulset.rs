//! The StatefulSet controller, as far as `OnDelete` and `Parallel` go.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Inner;
use super::kubelet::{key_of, text};
use crate::kubernetes::{DeleteOptions, Key, Resource};

impl Inner {
    /// One pass over all StatefulSets.
    pub(super) fn reconcile_stateful_sets(&mut self) {
        let Some(sets) = Resource::find("apps", "statefulsets") else {
            return;
        };
        for set in self.server.list(sets, "") {
            if text(&set, "/metadata/deletionTimestamp").is_empty() {
                self.reconcile_set(sets, &set);
            }
        }
    }

    fn reconcile_set(&mut self, sets: &'static Resource, set: &Value) {
        let (Some(pods), Some(claims)) = (Resource::find("", "pods"), Resource::find("", "persistentvolumeclaims"))
        else {
            return;
        };
        let (namespace, name) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
        let replicas = set.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let revision = revision(set);
        for ordinal in 0..replicas {
            let ready = self.ensure_claims(claims, set, ordinal);
            let key = Key::new(pods, namespace, &format!("{name}-{ordinal}"));
            match self.server.get(&key) {
                // A claim that is being deleted blocks its pod (decision A11).
                None if ready => drop(self.server.create(pods, namespace, pod(set, ordinal, &revision))),
                None => {}
                Some(pod) => self.replace_ended(&key, &pod, set),
            }
        }
        let mut beyond: Vec<Arc<Value>> = self.server.list(pods, namespace);
        beyond.retain(|p| owned_by(p, set) && ordinal(p).is_some_and(|o| o >= replicas));
        for pod in beyond {
            let _ = self.server.delete(&key_of(pods, &pod), &DeleteOptions::default());
        }
        self.tell_set(sets, pods, set, &revision);
    }

    /// A pod that ended is made anew.
    fn replace_ended(&self, key: &Key, pod: &Value, set: &Value) {
        let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        if ended && owned_by(pod, set) && text(pod, "/metadata/deletionTimestamp").is_empty() {
            let _ = self.server.delete(key, &DeleteOptions::default());
        }
    }

    /// Makes the claims of an ordinal; tells whether none is being deleted.
    fn ensure_claims(&self, claims: &'static Resource, set: &Value, ordinal: u64) -> bool {
        let (namespace, name) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
        let delete = text(set, "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted") == "Delete";
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": text(set, "/metadata/uid")});
        let templates = set
            .pointer("/spec/volumeClaimTemplates")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        templates.iter().all(|template| {
            let key = Key::new(
                claims,
                namespace,
                &format!("{}-{name}-{ordinal}", text(template, "/metadata/name")),
            );
            let Some(existing) = self.server.get(&key) else {
                let mut labels = set.pointer("/spec/selector/matchLabels").cloned().unwrap_or_default();
                json_patch::merge(&mut labels, template.pointer("/metadata/labels").unwrap_or(&json!({})));
                let mut claim = template.clone();
                claim["metadata"] = json!({
                    "name": key.name, "labels": labels, "finalizers": ["kubernetes.io/pvc-protection"],
                    "annotations": template.pointer("/metadata/annotations"),
                });
                if delete {
                    claim["metadata"]["ownerReferences"] = json!([owner]);
                }
                return self.server.create(claims, namespace, claim).is_ok();
            };
            let owners = existing
                .pointer("/metadata/ownerReferences")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let ours = owners.iter().any(|o| text(o, "/uid") == text(set, "/metadata/uid"));
            if ours != delete {
                let owners = if delete { json!([owner]) } else { Value::Null };
                let _ = self
                    .server
                    .patch(&key, None, json!({"metadata": {"ownerReferences": owners}}));
            }
            text(&existing, "/metadata/deletionTimestamp").is_empty()
        })
    }

    fn tell_set(&self, sets: &'static Resource, pods: &'static Resource, set: &Value, revision: &str) {
        let mine: Vec<_> = self
            .server
            .list(pods, text(set, "/metadata/namespace"))
            .into_iter()
            .filter(|p| owned_by(p, set))
            .collect();
        let ready = mine.iter().filter(|p| is_ready(p)).count();
        let updated = mine
            .iter()
            .filter(|p| label(p, "controller-revision-hash") == revision)
            .count();
        let status = json!({"status": {
            "observedGeneration": set.pointer("/metadata/generation"), "replicas": mine.len(), "readyReplicas": ready,
            "availableReplicas": ready, "updatedReplicas": updated, "updateRevision": revision, "currentRevision": revision,
        }});
        let _ = self.server.patch(&key_of(sets, set), Some("status"), status);
    }
}

fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object
        .pointer("/metadata/labels")
        .and_then(|l| l.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether the kubelet said that a pod is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
}

fn owned_by(pod: &Value, set: &Value) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners
        .into_iter()
        .flatten()
        .any(|o| text(o, "/uid") == text(set, "/metadata/uid"))
}

fn ordinal(pod: &Value) -> Option<u64> {
    text(pod, "/metadata/name").rsplit('-').next()?.parse().ok()
}

/// A hash of the template: another template is another revision.
fn revision(set: &Value) -> String {
    let template = set
        .pointer("/spec/template")
        .map(ToString::to_string)
        .unwrap_or_default();
    let hash = template.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{:x}", text(set, "/metadata/name"), hash & 0xffff_ffff)
}

fn pod(set: &Value, ordinal: u64, revision: &str) -> Value {
    let set_name = text(set, "/metadata/name");
    let name = format!("{set_name}-{ordinal}");
    let mut pod = set.pointer("/spec/template").cloned().unwrap_or_default();
    let mut metadata = pod.get("metadata").cloned().unwrap_or_default();
    metadata["name"] = json!(name);
    metadata["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    metadata["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    metadata["labels"]["controller-revision-hash"] = json!(revision);
    metadata["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set_name, "uid": text(set, "/metadata/uid"),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod["metadata"] = metadata;
    pod["spec"]["hostname"] = json!(name);
    pod["spec"]["subdomain"] = set.pointer("/spec/serviceName").cloned().unwrap_or_default();
    let mut volumes = pod
        .pointer("/spec/volumes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let templates = set.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    for template in templates.into_iter().flatten() {
        let volume = text(template, "/metadata/name");
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": format!("{volume}-{name}")}}));
    }
    pod["spec"]["volumes"] = Value::Array(volumes);
    pod
}
