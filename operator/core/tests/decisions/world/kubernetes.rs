//! The API server: status with a resourceVersion, objects, Secrets by their keys.

use std::collections::BTreeMap;

use mainstay_api::MySQLClusterStatus;
use mainstay_core::action::{Action, Desired};
use mainstay_core::observed::{CertificateView, ObjectKey, ObjectKind, ObjectView, SecretsView, StoreSecret};
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub(crate) struct Kubernetes {
    pub(crate) status: MySQLClusterStatus,
    pub(crate) version: u64,
    pub(crate) objects: BTreeMap<ObjectKey, ObjectView>,
    pub(crate) secrets: SecretsView,
    /// Requests that changed something, by kind.
    pub(crate) writes: u64,
}

impl Kubernetes {
    /// Compare-and-set.
    pub(crate) fn put_status(&mut self, read: u64, status: &MySQLClusterStatus) -> bool {
        if read != self.version {
            return false;
        }
        // As it comes back from the API server.
        let text = serde_json::to_string(status).unwrap();
        self.status = serde_json::from_str(&text).unwrap();
        self.version += 1;
        self.writes += 1;
        true
    }

    pub(crate) fn apply(&mut self, desired: &Desired) {
        self.writes += 1;
        let version = self.writes.to_string();
        let uid = self
            .objects
            .get(&desired.key)
            .map_or_else(|| format!("uid-{version}"), |object| object.uid.clone());
        let view = ObjectView {
            uid,
            resource_version: version,
            ours: true,
            value: desired.value.clone(),
            contested: false,
        };
        self.objects.insert(desired.key.clone(), view);
    }

    /// Everything that is neither a record nor a command nor about pods.
    pub(crate) fn execute(&mut self, action: &Action, now: jiff::Timestamp) {
        match action {
            Action::Apply(desired) => self.apply(desired),
            Action::GeneratePasswords {
                secret, keys, fixed, ..
            } => {
                self.writes += 1;
                let keys = keys.iter().chain(fixed.iter().map(|(key, _)| key)).cloned().collect();
                self.secrets.keys.insert(secret.clone(), keys);
            }
            Action::CreateCa { .. } => {
                self.writes += 1;
                self.secrets.ca_expires = Some(now + jiff::SignedDuration::from_hours(10 * 365 * 24));
            }
            Action::IssueServerCertificate { dns_names, lifetime } => {
                self.writes += 1;
                let not_after = now + *lifetime;
                let dns_names = dns_names.clone();
                self.secrets.server = Some(CertificateView {
                    not_before: now,
                    not_after,
                    dns_names,
                });
            }
            Action::WriteClientCa => {
                self.writes += 1;
                self.secrets.client_ca_current = true;
            }
            Action::WriteStoreAccess { .. } => {
                self.writes += 1;
                self.secrets.store = StoreSecret::Current;
            }
            Action::WriteRecovery { secret, .. } => {
                let key = ObjectKey {
                    kind: ObjectKind::Secret,
                    name: secret.clone(),
                };
                let value = serde_json::json!({"metadata": {"name": secret}});
                self.apply(&Desired { key, value });
            }
            Action::DeleteObject { key, .. } => {
                self.writes += 1;
                self.objects.remove(key);
            }
            Action::OwnSecret { .. }
            | Action::Record(_)
            | Action::Command(_)
            | Action::DeletePod { .. }
            | Action::DeleteClaim { .. }
            | Action::GrowClaim { .. }
            | Action::LabelPod { .. } => {}
        }
    }

    /// Whether there is a Secret of that name.
    pub(crate) fn has_secret(&self, name: &str) -> bool {
        let is_it = |key: &&ObjectKey| key.kind == ObjectKind::Secret && key.name == name;
        self.objects.keys().any(|key| is_it(&key))
    }

    pub(crate) fn stateful_set(&self) -> Option<&Value> {
        let set = self.objects.iter().find(|(key, _)| key.kind == ObjectKind::StatefulSet);
        set.map(|(_, object)| &object.value)
    }

    pub(crate) fn set_replicas(&self) -> u32 {
        let replicas = self
            .stateful_set()
            .and_then(|set| set.pointer("/spec/replicas"))
            .and_then(Value::as_u64);
        u32::try_from(replicas.unwrap_or(0)).unwrap()
    }

    pub(crate) fn template(&self) -> Option<String> {
        let annotations = self.stateful_set()?.pointer("/spec/template/metadata/annotations")?;
        annotations
            .get("mysql.mainstay.dev/template")
            .and_then(Value::as_str)
            .map(str::to_owned)
    }

    /// Addresses behind a Service.
    pub(crate) fn routed(&self, service: &str) -> Vec<String> {
        let mut names = Vec::new();
        for (key, object) in &self.objects {
            let of = object
                .value
                .pointer("/metadata/labels/kubernetes.io~1service-name")
                .and_then(Value::as_str);
            if key.kind != ObjectKind::EndpointSlice || of != Some(service) {
                continue;
            }
            for endpoint in object.value["endpoints"].as_array().into_iter().flatten() {
                names.push(endpoint["targetRef"]["name"].as_str().unwrap().to_owned());
            }
        }
        names
    }
}
