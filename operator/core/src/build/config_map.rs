//! The ConfigMap with my.cnf. It is immutable and named by its content: a pod that restarts gets the configuration that
//! its template names, and one that was not meant to change does not.

use k8s_openapi::api::core::v1::ConfigMap;

use super::{desired, map, metadata};
use crate::action::Desired;
use crate::diff;
use crate::mycnf;
use crate::observed::ObjectKind;
use crate::validate::ValidatedCluster;

/// Key of the file, which is its name in the mounted folder.
const KEY: &str = "my.cnf";

/// Hash of the configuration, by which its ConfigMap is named.
#[must_use]
pub fn config_hash(cluster: &ValidatedCluster) -> String {
    diff::hash(&serde_json::Value::String(mycnf::render(cluster)))
        .chars()
        .take(8)
        .collect()
}

pub(super) fn build(cluster: &ValidatedCluster) -> Desired {
    let config = ConfigMap {
        metadata: metadata(cluster, cluster.names().config_map(&config_hash(cluster))),
        data: Some(map([(KEY, mycnf::render(cluster).as_str())])),
        immutable: Some(true),
        ..Default::default()
    };
    desired(ObjectKind::ConfigMap, &config)
}
