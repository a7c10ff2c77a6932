//! The volume controller: binding when a pod is scheduled, protection while it is used, the end of a volume.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_core::rules::Trouble;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Inner;
use super::data::Volume;
use super::kubelet::{key_of, text};
use crate::kubernetes::Resource;

impl Inner {
    /// One pass over all claims.
    pub(super) fn bind_and_protect_claims(&mut self) {
        let (Some(claims), Some(pods)) = (Resource::find("", "persistentvolumeclaims"), Resource::find("", "pods"))
        else {
            return;
        };
        let used: BTreeSet<(String, String)> = self
            .server
            .list(pods, "")
            .iter()
            // The kubelet starts no pod with a claim that is being deleted, so one that is not on a node keeps nothing.
            .filter(|pod| !text(pod, "/spec/nodeName").is_empty())
            .flat_map(|pod| {
                claims_of(pod)
                    .into_iter()
                    .map(|c| (text(pod, "/metadata/namespace").to_owned(), c))
                    .collect::<Vec<_>>()
            })
            .collect();
        let mut present = BTreeSet::new();
        for claim in self.server.list(claims, "") {
            let key = key_of(claims, &claim);
            present.insert(text(&claim, "/metadata/uid").to_owned());
            let deleting = !text(&claim, "/metadata/deletionTimestamp").is_empty();
            let in_use = used.contains(&(key.namespace.clone(), key.name.clone()));
            if deleting && !in_use {
                // Without its finalizer it goes.
                let _ = self.server.patch(&key, None, json!({"metadata": {"finalizers": null}}));
            }
            self.grow(&key, &claim);
        }
        let before = self.volumes.len();
        self.volumes.retain(|uid, _| present.contains(uid));
        self.dirty |= self.volumes.len() != before;
    }

    /// A bound volume gets what its claim asks for.
    fn grow(&self, key: &crate::kubernetes::Key, claim: &Value) {
        let asked = claim.pointer("/spec/resources/requests/storage");
        if text(claim, "/status/phase") == "Bound" && claim.pointer("/status/capacity/storage") != asked {
            let status = json!({"status": {"capacity": {"storage": asked}}});
            // It may just have been deleted.
            let _ = self.server.patch(key, Some("status"), status);
        }
    }

    /// Whether the volume of one of a pod's claims does not exist any more: no node takes it.
    pub(super) fn waits_for_lost_volume(&self, pod: &Value) -> bool {
        let Some(claims) = Resource::find("", "persistentvolumeclaims") else {
            return false;
        };
        claims_of(pod).iter().any(|name| {
            let key = crate::kubernetes::Key::new(claims, text(pod, "/metadata/namespace"), name);
            let claim = self.server.get(&key);
            claim.is_some_and(|claim| text(&claim, "/status/phase") == "Lost")
        })
    }

    /// Binds the claims of a pod to the node that it was put on.
    pub(super) fn bind_claims(&mut self, pod: &Value, node: &str) {
        let Some(claims) = Resource::find("", "persistentvolumeclaims") else {
            return;
        };
        for name in claims_of(pod) {
            let key = crate::kubernetes::Key::new(claims, text(pod, "/metadata/namespace"), &name);
            let Some(claim) = self.server.get(&key) else { continue };
            let uid = text(&claim, "/metadata/uid").to_owned();
            if self.volumes.contains_key(&uid) {
                continue;
            }
            self.volumes.insert(uid.clone(), Volume::new(node));
            let size = claim
                .pointer("/spec/resources/requests/storage")
                .cloned()
                .unwrap_or_default();
            let status =
                json!({"status": {"phase": "Bound", "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}});
            let _ = self
                .server
                .patch(&key, None, json!({"spec": {"volumeName": format!("pv-{uid}")}}));
            let _ = self.server.patch(&key, Some("status"), status);
        }
    }

    /// Node that the volumes of a pod are on, if they exist.
    pub(super) fn node_of_volumes(&self, pod: &Value) -> Option<String> {
        claims_of(pod).iter().find_map(|name| {
            let uid = self.claim_uid(text(pod, "/metadata/namespace"), name)?;
            Some(self.volumes.get(&uid)?.node.clone())
        })
    }

    /// uid of a claim that exists.
    pub(super) fn claim_uid(&self, namespace: &str, name: &str) -> Option<String> {
        let claims = Resource::find("", "persistentvolumeclaims")?;
        let claim = self.server.get(&crate::kubernetes::Key::new(claims, namespace, name))?;
        Some(text(&claim, "/metadata/uid").to_owned())
    }

    /// Lets the disk of an instance's volume answer nothing for a while; what is on it stays.
    pub fn stall_volume(&mut self, namespace: &str, claim: &str, duration: Duration) {
        let uid = self.claim_uid(namespace, claim);
        if let Some(volume) = uid.and_then(|uid| self.volumes.get_mut(&uid)) {
            volume.stalled_until = Some(Instant::now() + duration);
            self.dirty = true;
        }
    }

    /// Whether the disk of a volume hangs.
    pub(super) fn stalls(&self, claim: &str, now: Instant) -> bool {
        self.volumes.get(claim).is_some_and(|v| v.stalls(now))
    }

    /// Whether nothing more can be written to a volume.
    pub(super) fn takes_nothing(&self, claim: &str, now: Instant) -> bool {
        self.volumes.get(claim).is_some_and(|v| v.takes_nothing(now))
    }

    /// Resets binlogs and GTIDs of an instance and keeps its rows; its manager sees that the set shrank and begins another life.
    pub fn reset_history(&mut self, namespace: &str, instance: &str) {
        let (uuid, incarnation) = (self.random.uuid(), self.random.uuid());
        let Some(claim) = self.process(namespace, instance).map(|p| p.claim.clone()) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&claim) else {
            return;
        };
        let Some(data) = volume.data.take() else { return };
        volume.data = Some(data.without_history(uuid));
        volume.incarnation = incarnation;
        volume.history_reset = true;
        volume.state = mainstay_core::observed::Persisted {
            epoch: volume.state.epoch,
            seq: volume.state.seq,
            ..Default::default()
        };
        self.kill_mysqld(namespace, instance);
    }

    /// An opened instance is what others are compared with.
    pub(super) fn its_history_counts(&mut self, id: u64) {
        let claim = self.processes.get(&id).map(|p| p.claim.clone());
        if let Some(volume) = claim.and_then(|claim| self.volumes.get_mut(&claim)) {
            volume.history_reset = false;
        }
    }

    /// The PersistentVolume of an instance does not exist any more: its process dies, and its claim is Lost.
    pub fn lose_persistent_volume(&mut self, namespace: &str, claim: &str) {
        let Some(claims) = Resource::find("", "persistentvolumeclaims") else {
            return;
        };
        let Some(uid) = self.claim_uid(namespace, claim) else {
            return;
        };
        self.processes.retain(|_, p| p.claim != uid);
        self.volumes.remove(&uid);
        let key = crate::kubernetes::Key::new(claims, namespace, claim);
        let _ = self
            .server
            .patch(&key, Some("status"), json!({"status": {"phase": "Lost"}}));
        self.dirty = true;
    }

    /// Fills the volume of an instance, for good; or lets it answer with errors, or breaks what is on it.
    pub fn trouble_volume(&mut self, namespace: &str, instance: &str, trouble: Trouble) {
        let Some(claim) = self.process(namespace, instance).map(|p| p.claim.clone()) else {
            return;
        };
        if let Some(volume) = self.volumes.get_mut(&claim) {
            volume.trouble = Some((trouble, Instant::now()));
        }
        if trouble != Trouble::Full {
            self.kill_mysqld(namespace, instance);
        }
        self.dirty = true;
    }

    /// Destroys the content of an instance's volume, as a disk that was replaced does; its process dies.
    pub fn lose_volume(&mut self, namespace: &str, claim: &str) {
        let Some(uid) = self.claim_uid(namespace, claim) else {
            return;
        };
        self.processes.retain(|_, p| p.claim != uid);
        if let Some(volume) = self.volumes.get_mut(&uid) {
            volume.trouble = None;
            volume.data = None;
            volume.recovered = None;
            volume.incarnation.clear();
            volume.history_reset = false;
            volume.state = mainstay_core::observed::Persisted::default();
        }
        self.dirty = true;
    }
}

/// Names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes
        .into_iter()
        .flatten()
        .filter_map(|v| v.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str))
        .map(ToOwned::to_owned)
        .collect()
}
