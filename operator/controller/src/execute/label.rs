//! Labels of pods, which the StatefulSet's template cannot give since they differ from pod to pod.

use k8s_openapi::api::core::v1::Pod;
use mainstay_core::names::{LABEL_INSTANCE, LABEL_ROLE};
use mainstay_core::rules::InstanceName;
use serde_json::json;

use super::{ExecuteError, Executor};
use crate::class::is_not_found;
use crate::views;

impl Executor<'_> {
    pub(super) async fn label_pod(
        &self,
        instance: &InstanceName,
        uid: &str,
        role: Option<&str>,
    ) -> Result<(), ExecuteError> {
        let pods = self.context.requests.typed::<Pod>(&self.cluster.namespace);
        // Another pod that took the name meanwhile is a conflict.
        let patch = json!({"metadata": {"uid": uid, "labels": {LABEL_INSTANCE: instance.0, LABEL_ROLE: role}}});
        match pods.merge(&instance.0, &patch).await {
            Ok(pod) => {
                if let Some(entry) = views::pod(&pod) {
                    self.context.world.pods.put(entry);
                }
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(ExecuteError::kube(format!("label the pod {instance}"), error)),
        }
    }
}
