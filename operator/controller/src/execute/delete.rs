//! Deletions, each with the uid of what was seen as precondition: the API server decides, not a cache.

use k8s_openapi::api::core::v1::Pod;
use kube::api::Preconditions;
use mainstay_core::observed::ObjectKey;
use mainstay_core::rules::InstanceName;

use super::{ExecuteError, Executor};
use crate::events::Line;
use crate::kinds;

/// Seconds that a pod gets of which nothing is kept. Not 0, which would take the pod out of the API server while it may still run.
const AT_ONCE: u32 = 1;

impl Executor<'_> {
    pub(super) async fn delete_pod(
        &self,
        instance: &InstanceName,
        uid: &str,
        at_once: bool,
        reason: &str,
    ) -> Result<(), ExecuteError> {
        let attempt = || format!("delete the pod {instance}");
        let pods = self.context.requests.typed::<Pod>(&self.cluster.namespace);
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        if pods
            .delete(&instance.0, seen, at_once.then_some(AT_ONCE))
            .await
            .map_err(|error| ExecuteError::kube(attempt(), error))?
        {
            tracing::info!(%instance, at_once, reason, "deleted a pod");
            let note = format!("{instance} is restarted: {reason}");
            self.context
                .events
                .publish(&self.object, Line::normal("RestartInstance", "Delete", note));
        }
        Ok(())
    }

    pub(super) async fn delete_object(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
    ) -> Result<(), ExecuteError> {
        let attempt = || format!("delete {:?} {}", key.kind, key.name);
        let objects = self
            .context
            .requests
            .dynamic(&self.cluster.namespace, &kinds::resource(key.kind));
        let seen = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: Some(resource_version.to_owned()),
        };
        if objects
            .delete(&key.name, seen, None)
            .await
            .map_err(|error| ExecuteError::kube(attempt(), error))?
        {
            tracing::info!(kind = ?key.kind, name = key.name, "deleted an object that is not wanted any more");
        }
        Ok(())
    }
}
