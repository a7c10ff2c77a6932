//! `MySQLBackup`: one backup of a cluster.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, with its visibility"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::Store;

/// One backup of a cluster. It is made once: to have another one, create another object.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "mysql.mainstay.dev",
    version = "v1",
    kind = "MySQLBackup",
    plural = "mysqlbackups",
    shortname = "myb",
    category = "all",
    namespaced,
    status = "MySQLBackupStatus",
    derive = "PartialEq",
    doc = "A backup of a MySQL cluster: made by hand or by a schedule, booted once, and kept in an object store.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Method", type_ = "string", json_path = ".status.method"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Completed", type_ = "date", json_path = ".status.completedAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".status.instance", priority = 1),
    printcolumn(name = "Location", type_ = "string", json_path = ".status.location", priority = 1),
    printcolumn(name = "Executed", type_ = "string", json_path = ".status.gtidExecuted", priority = 1),
    validation = Rule::new("self.metadata.name.size() <= 56").message(
        "metadata.name: at most 56 characters, because the names of a Job, its pods and a claim are derived from it"
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name: lower case letters, digits and '-', without dots, because it becomes the value of a label"
    )
)]
#[x_kube(validation = Rule::new("self == oldSelf").message("a backup is made once: create another MySQLBackup instead of changing this one"))]
#[serde(rename_all = "camelCase")]
pub struct MySQLBackupSpec {
    /// Name of the MySQLCluster, in the same namespace.
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub cluster: String,

    /// `physical` (default) or `logical`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<BackupMethod>,

    /// Another store than the cluster's. What is stored there is not subject to the cluster's retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,

    /// Set by Mainstay: the schedule of the cluster that asked for it.
    #[schemars(length(min = 1, max = 20))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,

    /// Set by Mainstay: the time at which the schedule was due (RFC 3339).
    #[schemars(length(max = 40))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<String>,
}

/// How data is stored, from a clone of a replica that is booted once. `physical` (default): the server's files, for the same
/// series of MySQL. `logical`: SQL statements, for the same or a newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupMethod {
    /// The server's files.
    #[default]
    Physical,
    /// Statements.
    Logical,
}

impl BackupMethod {
    /// The word in specs and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Logical => "logical",
        }
    }
}

// As in the status of a cluster, nothing is bounded: a long GTID set must not refuse the write.
/// What became of a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MySQLBackupStatus {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<BackupPhase>,
    /// One line for people: what is waited for, how far it is, what was stored, or why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How data is copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<BackupMethod>,
    /// The instance that gives the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// When its Job was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When it succeeded or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<MicroTime>,
    /// How far it is, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<BackupProgress>,
    /// Bytes of data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Bytes in the store, compressed and encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<i64>,
    /// The transactions that it holds: a GTID set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gtid_executed: Option<String>,
    /// Where it is: `s3://bucket/key` of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Id of the key with which it is encrypted; unset: it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption_key_id: Option<String>,
    /// Version of the server that made it, and that booted the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mysql_version: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
    /// `Complete`: whether it is in the store, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackupPhase {
    /// It waits: the message says for what.
    Pending,
    /// Its Job was made.
    Running,
    /// It is in the store, manifest included.
    Succeeded,
    /// It was given up; what it made is cleaned up.
    Failed,
}

impl BackupPhase {
    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed => true,
        }
    }
}

/// How far a running backup is. Written at most every few seconds, and only while something moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// What is being done.
    pub step: BackupStep,
    /// Bytes that this step has done.
    pub bytes: i64,
    /// Bytes that it has to do, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<i64>,
    /// Rate over the last seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<i64>,
    /// Of a dump: rows that are in these bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<i64>,
}

/// A part of a backup, or of its verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupStep {
    /// Data is copied from the instance.
    Copy,
    /// The copy is started once.
    Boot,
    /// It is stored.
    Upload,
    /// Of a logical backup: it is written as statements, and stored.
    Dump,
    /// Of a verification: what is stored is looked up and fetched.
    Fetch,
    /// Of a verification: the archive is applied.
    Replay,
    /// Of a verification: tables are read.
    Check,
}

/// Why a backup failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupError {
    /// A word, as in events and conditions.
    pub reason: String,
    /// What was attempted, what stood against it, and what to do.
    pub message: String,
}
