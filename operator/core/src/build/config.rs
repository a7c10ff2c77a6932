//! The ConfigMap with my.cnf.

use k8s_openapi::api::core::v1::ConfigMap;

use super::meta;
use crate::diff;
use crate::mycnf;
use crate::validate::ValidatedCluster;

/// my.cnf and the name under which the pods refer to it.
pub(super) struct Config {
    /// The file.
    text: String,
    /// Its hash, by which a running mysqld is known to use it.
    pub(super) hash: String,
    /// Name of the ConfigMap.
    pub(super) name: String,
}

impl Config {
    pub(super) fn new(cluster: &ValidatedCluster) -> Self {
        let text = mycnf::render(cluster);
        let hash = diff::hash(&serde_json::Value::String(text.clone()));
        let name = cluster.names().config_map(&hash);
        Self { text, hash, name }
    }

    /// my.cnf under the hash of its content. Immutable: a pod that restarts gets the file that it was made with, and a
    /// change makes another ConfigMap, to which the pods are moved one at a time (case F14).
    pub(super) fn config_map(&self, cluster: &ValidatedCluster) -> ConfigMap {
        ConfigMap {
            metadata: meta::owned(cluster, self.name.clone()),
            immutable: Some(true),
            data: Some([("my.cnf".to_owned(), self.text.clone())].into()),
            ..ConfigMap::default()
        }
    }
}
