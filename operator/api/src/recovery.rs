//! `spec.bootstrap.recovery` of a `MySQLCluster`: data that came from a backup and the archive that follows it.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, with its visibility"
)]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::store::{SecretEntry, Store};

/// Data from a backup and the archive that follows it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// From where.
    pub source: RecoverySource,

    /// Up to which point; unset: the latest that is stored. A target that cannot be reached exactly is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RecoveryTarget>,

    /// Entry of a Secret with the private key (`AGE-SECRET-KEY-1…`) that decrypts the source. Every other entry of that Secret
    /// that is such a key is tried, too: what was stored before a rotation needs the key of then. Unset: the keys of the
    /// backup's cluster, if there is one, or nothing is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_secret: Option<SecretEntry>,
}

/// From where data is recovered: a backup of this namespace, or a store and the cluster in it.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.backup) != (has(self.store) || has(self.cluster))")
    .message("set backup (the name of a MySQLBackup), or store and cluster"))]
#[x_kube(validation = Rule::new("has(self.store) == has(self.cluster)")
    .message("store says which bucket, and cluster whose data in it: set both"))]
#[serde(rename_all = "camelCase")]
pub struct RecoverySource {
    /// Name of a MySQLBackup of the same namespace. It says where to look; for a target an older or newer backup of the same
    /// cluster may be the better base.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,

    /// Store that holds the data; the objects of the source cluster may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,

    /// Cluster whose data it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<SourceCluster>,
}

/// A cluster, as it is written in the keys of a store.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceCluster {
    /// Namespace it lived in.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its uid; needed when the store holds several clusters of that name.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[-a-z0-9]+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The point up to which data is recovered.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("!(has(self.time) && has(self.gtid))")
    .message("set time or gtid; neither means the latest point that is stored"))]
#[serde(rename_all = "camelCase")]
pub struct RecoveryTarget {
    /// RFC 3339 with an offset: everything before the first transaction that was committed later.
    #[schemars(length(min = 20, max = 40))]
    #[x_kube(validation = Rule::new(r"self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$')")
        .message("write RFC 3339 with an offset, for example 2026-11-29T12:00:00+01:00 or 2026-11-29T11:00:00Z"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,

    /// One transaction (`uuid:number` or `uuid:tag:number`): everything up to and including it.
    #[schemars(length(min = 38, max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-fA-F-]{36}(:[A-Za-z_][A-Za-z0-9_]*)?:[1-9][0-9]*$')")
        .message("write one GTID, for example 3e11fa47-71ca-11e1-9e33-c80aa9429562:23; a set has no order in which it could be reached"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gtid: Option<String>,
}
