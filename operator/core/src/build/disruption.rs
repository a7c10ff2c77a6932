//! The disruption budget (decision B21).

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta;
use crate::validate::ValidatedCluster;

/// One instance may be evicted at a time. A single instance has no budget: it could only make a drain hang.
pub(super) fn budget(cluster: &ValidatedCluster) -> Option<PodDisruptionBudget> {
    (cluster.replicas > 1).then(|| PodDisruptionBudget {
        metadata: meta::owned(cluster, cluster.names().cluster().to_owned()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(cluster.names().selector()),
                ..LabelSelector::default()
            }),
            // An instance that does not run protects nothing.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
