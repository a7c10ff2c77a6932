//! The Kubernetes objects of a cluster, built from its validated spec. Infallible: what can be refused was refused
//! before (validate.rs).

mod config;
mod disruption;
mod endpoints;
mod meta;
mod pod;
mod services;
mod stateful_set;

use serde::Serialize;

pub use endpoints::{PodAddress, endpoint_slices};
pub use pod::template_hash;

use crate::action::Desired;
use crate::diff;
use crate::observed::{ObjectKey, ObjectKind};
use crate::validate::ValidatedCluster;

/// What the objects need besides the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// First server_id of the cluster.
    pub server_id_base: u32,
    /// Image of the operator, from which the instance manager is copied into the pods.
    pub operator_image: String,
}

/// Every object of a cluster but its EndpointSlices and Secrets, in the order in which they are applied: what a pod
/// refers to comes before the StatefulSet.
#[must_use]
pub fn desired_objects(cluster: &ValidatedCluster, inputs: &Inputs) -> Vec<Desired> {
    let config = config::Config::new(cluster);
    let mut objects = vec![
        desired(ObjectKind::ServiceAccount, services::service_account(cluster)),
        desired(ObjectKind::ConfigMap, config.config_map(cluster)),
        desired(ObjectKind::Service, services::instances(cluster)),
        desired(ObjectKind::Service, services::primary(cluster)),
        desired(ObjectKind::Service, services::replicas(cluster)),
        desired(ObjectKind::StatefulSet, stateful_set::stateful_set(cluster, inputs, &config)),
    ];
    objects.extend(disruption::budget(cluster).map(|budget| desired(ObjectKind::PodDisruptionBudget, budget)));
    objects
}

/// An object as JSON, stamped with the hash by which a later pass knows that it was applied.
fn desired<T>(kind: ObjectKind, object: T) -> Desired
where
    T: Serialize + kube::Resource<DynamicType = ()>,
{
    let name = object.meta().name.clone().unwrap_or_default();
    // Serialising the types of k8s-openapi cannot fail: they have no maps with keys that are not strings.
    let value = diff::stamped(serde_json::to_value(&object).unwrap_or_default());
    Desired { key: ObjectKey { kind, name }, value }
}
