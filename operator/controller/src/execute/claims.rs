//! Claims of instances: the one of a volume that was given up is deleted, and others are asked to grow.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Preconditions;
use mainstay_core::names;
use mainstay_core::observed::Warning;
use mainstay_core::plan::GROWTH_REFUSED;
use mainstay_core::quantity::binary;
use mainstay_core::rules::InstanceName;
use serde_json::json;

use super::{ExecuteError, Executor};
use crate::class::{self, Class, is_not_found};
use crate::error::chain;
use crate::events::Line;
use crate::views;

impl Executor<'_> {
    /// Deletes the claim of a volume that was given up, if it is still as it was seen.
    pub(super) async fn delete_claim(
        &self,
        instance: &InstanceName,
        uid: &str,
        resource_version: &str,
        reason: &str,
    ) -> Result<(), ExecuteError> {
        let name = names::claim(instance);
        let claims = self
            .context
            .requests
            .typed::<PersistentVolumeClaim>(&self.cluster.namespace);
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        };
        let deleted = claims.delete(&name, seen, None).await;
        if deleted.map_err(|error| ExecuteError::kube(format!("delete the claim {name}"), error))? {
            tracing::warn!(%instance, claim = name, reason, "deleted a claim");
            let note = format!("the claim {name} is deleted, and made anew with a new volume: {reason}");
            self.context
                .events
                .publish(&self.object, Line::warning("VolumeReplaced", "Delete", note));
        }
        Ok(())
    }

    /// Asks for a larger volume, unless that was refused a short time ago.
    pub(super) async fn grow_claim(
        &self,
        instance: &InstanceName,
        uid: &str,
        bytes: u64,
        reason: &str,
    ) -> Result<(), ExecuteError> {
        let (name, size) = (names::claim(instance), binary(bytes));
        if !self.context.memories.may_grow(self.cluster, &name, bytes) {
            return Ok(());
        }
        let claims = self
            .context
            .requests
            .typed::<PersistentVolumeClaim>(&self.cluster.namespace);
        // Another claim that took the name meanwhile is a conflict.
        let patch = json!({"metadata": {"uid": uid}, "spec": {"resources": {"requests": {"storage": size}}}});
        match claims.merge(&name, &patch).await {
            Ok(claim) => {
                self.context.memories.grew(self.cluster, &name);
                if let Some(entry) = views::claim(&claim) {
                    self.context.world.claims.put(entry);
                }
                tracing::info!(%instance, claim = name, size, reason, "asked for a larger volume");
                let note = format!("the volume of {instance} grows to {size}: {reason}");
                self.context
                    .events
                    .publish(&self.object, Line::normal("VolumeGrows", "Grow", note));
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                self.remember_refused_growth(&name, uid, bytes, &error);
                Err(ExecuteError::kube(format!("grow the claim {name} to {size}"), error))
            }
        }
    }

    /// A refusal is told as a problem; anything else is tried again with the next pass.
    fn remember_refused_growth(&self, name: &str, uid: &str, bytes: u64, error: &kube::Error) {
        if class::of_kube(error) == Class::Retry || class::is_namespace_terminating(error) {
            return;
        }
        let message = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => chain(other),
        };
        let warning = Warning {
            about: format!("PersistentVolumeClaim/{name}"),
            uid: Some(uid.to_owned()),
            reason: GROWTH_REFUSED.to_owned(),
            message,
            at: self.context.platform.now(),
        };
        self.context.memories.refused_growth(self.cluster, name, bytes, warning);
    }
}
