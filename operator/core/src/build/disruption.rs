//! The PodDisruptionBudget (decision B21).

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{desired, metadata};
use crate::action::Desired;
use crate::observed::ObjectKind;
use crate::validate::ValidatedCluster;

/// One instance at a time may be evicted. A single instance has no budget: it would make a drain hang for ever.
pub(super) fn build(cluster: &ValidatedCluster) -> Option<Desired> {
    let budget = PodDisruptionBudget {
        metadata: metadata(cluster, cluster.name.clone()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(cluster.names().selector()),
                ..Default::default()
            }),
            // An instance that does not serve must not keep a node from being emptied.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    };
    (cluster.replicas > 1).then(|| desired(ObjectKind::PodDisruptionBudget, &budget))
}
