//! The types of Mainstay's Kubernetes API, one kind a file.
//!
//! Only types and the CEL rules beside their fields live here; behaviour is in `mainstay-core`. `make gen` writes the
//! custom resource definitions of `crds/` from this crate.

pub mod cluster;
mod schema;
pub mod status;

pub use cluster::{MySQLCluster, MySQLClusterSpec};
pub use status::MySQLClusterStatus;

/// API group of every kind.
pub const GROUP: &str = "mysql.mainstay.dev";

/// Annotation on a `MySQLCluster` that carries one user command (verb, id, operands) as JSON.
pub const REQUEST_ANNOTATION: &str = "mysql.mainstay.dev/request";

/// The custom resource definitions that `make gen` writes and the chart installs.
#[must_use]
pub fn custom_resource_definitions()
-> Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    vec![MySQLCluster::crd()]
}
