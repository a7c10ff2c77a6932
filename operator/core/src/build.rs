//! From a validated cluster to the Kubernetes objects that make it: pure, infallible, and the same bytes for the same
//! input, so that an idle cluster is never written to and a pod template changes only when something in it does.

mod backup;
mod config_map;
mod disruption;
mod endpoints;
mod pod;
mod service;
mod stateful_set;
mod verify;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use mainstay_api::MySQLCluster;
use serde::Serialize;
use serde_json::Value;

use crate::action::Desired;
use crate::diff;
use crate::layout;
use crate::names::Names;
use crate::observed::{ObjectKey, ObjectKind};
use crate::validate::ValidatedCluster;
pub use backup::{BACKUP_CONTAINER, BackupStart, backup_job};
pub use config_map::config_hash;
pub use endpoints::{PodAddress, endpoint_slices};
pub use pod::{INSTALL_CONTAINER, MYSQL_CONTAINER, template_hash};
pub use verify::{VERIFY_CONTAINER, verify_job};

/// What the objects depend on besides the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// First server_id of the cluster, from status.
    pub server_id_base: u32,
    /// Image of this operator, from which new pods take the instance manager.
    pub operator_image: String,
}

/// Everything that a cluster consists of, but for its Secrets (made by actions of their own) and the EndpointSlices
/// ([`endpoint_slices`], which follow the primary and not the spec).
///
/// `stateful_set` is the StatefulSet as it was observed: its pods keep the instance manager that they have until
/// something else restarts them, so that an upgrade of the operator restarts no database (case F26).
#[must_use]
pub fn desired_objects(cluster: &ValidatedCluster, inputs: &Inputs, stateful_set: Option<&Value>) -> Vec<Desired> {
    let mut objects = vec![service_account(cluster), config_map::build(cluster)];
    objects.extend(service::build(cluster));
    objects.extend(disruption::build(cluster));
    objects.push(stateful_set::build(cluster, inputs, stateful_set));
    objects
}

/// The identity of the instances. It has no rights and no token: an instance never speaks to the API server.
fn service_account(cluster: &ValidatedCluster) -> Desired {
    let account = k8s_openapi::api::core::v1::ServiceAccount {
        metadata: metadata(cluster, cluster.names().service_account()),
        automount_service_account_token: Some(false),
        ..Default::default()
    };
    desired(ObjectKind::ServiceAccount, &account)
}

/// Metadata of an object of the cluster.
fn metadata(cluster: &ValidatedCluster, name: String) -> ObjectMeta {
    owned_by(&cluster.names(), &cluster.uid, name)
}

/// Name, labels, and an owner whose deletion deletes the object.
fn owned_by(names: &Names, uid: &str, name: String) -> ObjectMeta {
    use kube::Resource as _;
    ObjectMeta {
        name: Some(name),
        namespace: Some(names.namespace().to_owned()),
        labels: Some(names.labels()),
        owner_references: Some(vec![OwnerReference {
            api_version: MySQLCluster::api_version(&()).into_owned(),
            kind: MySQLCluster::kind(&()).into_owned(),
            name: names.cluster().to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..Default::default()
    }
}

/// A typed object as it is applied and compared.
fn desired(kind: ObjectKind, object: &impl Serialize) -> Desired {
    // Types of k8s-openapi have string keys only: they can always be written as JSON.
    let value = serde_json::to_value(object).unwrap_or_default();
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    Desired {
        key: ObjectKey { kind, name },
        value: diff::stamped(value),
    }
}

/// A map from pairs of texts.
fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Whether a pod volume of that name is one of Mainstay's.
pub(crate) fn is_own_volume(name: &str) -> bool {
    name == crate::names::CLAIM_TEMPLATE || pod::VOLUMES.contains(&name)
}

/// Whether a path lies in, or covers, a folder of Mainstay's.
pub(crate) fn is_own_mount(path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let own = [layout::BIN_DIR, layout::VOLUME, layout::RUN_DIR, "/etc/mainstay"];
    let below = |inner: &str, outer: &str| {
        inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    own.into_iter().any(|folder| below(path, folder) || below(folder, path))
}

/// Whether a port is one of the mysql container's.
pub(crate) fn is_own_port(port: i32) -> bool {
    pod::PORTS.iter().any(|(_, own)| i32::from(*own) == port)
}
