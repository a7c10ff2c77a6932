//! Metadata that every object carries.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;
use mainstay_api::MySQLCluster;

use crate::validate::ValidatedCluster;

/// Metadata of an object that is deleted with the cluster.
pub(super) fn owned(cluster: &ValidatedCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.names().namespace().to_owned()),
        labels: Some(cluster.names().labels()),
        owner_references: Some(vec![owner(cluster)]),
        ..ObjectMeta::default()
    }
}

/// Annotations, if there are any: an empty map would be a field that differs for ever.
pub(super) fn annotations(annotations: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!annotations.is_empty()).then(|| annotations.clone())
}

/// The cluster as controlling owner. It does not block the cluster's deletion: nothing of ours ever does.
fn owner(cluster: &ValidatedCluster) -> OwnerReference {
    OwnerReference {
        api_version: MySQLCluster::api_version(&()).into_owned(),
        kind: MySQLCluster::kind(&()).into_owned(),
        name: cluster.names().cluster().to_owned(),
        uid: cluster.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
