//! `Apply`: server-side apply of a built object, never over somebody else's.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use mainstay_core::action::Desired;
use mainstay_core::observed::{ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::{ExecuteError, Executor};
use crate::class::{self, Class};
use crate::error::chain;
use crate::kinds;
use crate::memory::{May, refusal};
use crate::observe::{is_ours, view};
use crate::views;

impl Executor<'_> {
    pub(super) async fn apply(&self, desired: &Desired) -> Result<(), ExecuteError> {
        let key = &desired.key;
        let wish = hash(&desired.value);
        let seen = self
            .observed
            .objects
            .get(key)
            .filter(|view| view.ours)
            .map(|view| view.uid.clone());
        match self.context.memories.may_apply(self.cluster, key, wish, seen.is_some()) {
            May::Apply => {}
            May::NotYet | May::Contested => return Ok(()),
        }
        match self.apply_now(desired, seen).await {
            Ok(applied) => {
                self.context.memories.accepted(self.cluster, key);
                self.keep(key.kind, applied);
                Ok(())
            }
            Err(error) => {
                self.remember_refusal(key, wish, &error);
                Err(error)
            }
        }
    }

    async fn apply_now(&self, desired: &Desired, seen: Option<String>) -> Result<DynamicObject, ExecuteError> {
        let key = &desired.key;
        let attempt = || format!("apply {:?} {}", key.kind, key.name);
        let objects = self
            .context
            .requests
            .dynamic(&self.cluster.namespace, &kinds::resource(key.kind));
        // What is not in the index may exist all the same: not ours, or not told yet.
        let uid = match seen {
            Some(uid) => Some(uid),
            None => self.existing(key).await?,
        };
        let mut value = desired.value.clone();
        if let (Some(uid), Some(metadata)) = (&uid, value.get_mut("metadata")) {
            // A precondition: another object that took the name meanwhile is a conflict.
            metadata["uid"] = json!(uid);
        }
        // Without force, an object that appears between the look and the write is a conflict as well.
        let applied = objects.apply(&key.name, &value, uid.is_some()).await;
        tracing::debug!(kind = ?key.kind, name = key.name, created = uid.is_none(), "applied an object");
        applied.map_err(|error| ExecuteError::kube(attempt(), error))
    }

    /// uid of the object as the API server has it now, if it is ours; `None` if there is none.
    async fn existing(&self, key: &ObjectKey) -> Result<Option<String>, ExecuteError> {
        let attempt = || format!("apply {:?} {}", key.kind, key.name);
        let objects = self
            .context
            .requests
            .dynamic(&self.cluster.namespace, &kinds::resource(key.kind));
        let found = objects
            .get(&key.name)
            .await
            .map_err(|error| ExecuteError::kube(attempt(), error))?;
        match found {
            None => Ok(None),
            Some(object) if is_ours(&object.metadata, self.cluster, &self.uid) => Ok(object.metadata.uid),
            Some(object) => {
                if self.is_left_behind(&object.metadata) {
                    self.keep(key.kind, object);
                } else {
                    self.context
                        .memories
                        .foreign(self.cluster, key, view(&object, false, false));
                }
                Err(ExecuteError::Foreign { attempt: attempt() })
            }
        }
    }

    /// With our label it is what a former cluster of this name left behind, and its end will be told by a watch.
    pub(super) fn is_left_behind(&self, metadata: &ObjectMeta) -> bool {
        views::cluster_of(metadata).is_some_and(|owner| owner == *self.cluster)
    }

    /// Lets the next pass see what was applied before the watch tells it.
    pub(super) fn keep(&self, kind: ObjectKind, object: DynamicObject) {
        if kind == ObjectKind::Secret {
            if let Ok(secret) = object.try_parse() {
                self.keep_secret(secret);
            }
        } else if let (Some(index), Some(entry)) = (self.context.world.objects.get(&kind), views::object(object)) {
            index.put(entry);
        }
    }

    /// The same for a Secret.
    pub(super) fn keep_secret(&self, secret: Secret) {
        if let Some(entry) = views::secret(secret) {
            self.context.world.secrets.put(entry);
        }
    }

    fn remember_refusal(&self, key: &ObjectKey, wish: u64, error: &ExecuteError) {
        let (reason, message) = match error {
            ExecuteError::Kube { source, .. } if class::is_namespace_terminating(source) => return,
            ExecuteError::Kube { source, .. } if class::of_kube(source) != Class::Retry => match source.as_ref() {
                kube::Error::Api(status) => (status.reason.clone(), status.message.clone()),
                other => ("Refused".to_owned(), chain(other)),
            },
            ExecuteError::Kube { .. }
            | ExecuteError::Foreign { .. }
            | ExecuteError::Lost { .. }
            | ExecuteError::Missing { .. }
            | ExecuteError::Declared { .. }
            | ExecuteError::Pki { .. } => return,
        };
        let warning = refusal(key, &reason, message, self.context.platform.now());
        self.context.memories.refused(self.cluster, key, wish, warning);
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
