//! `MySQLCluster`: one primary and its replicas.

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, with its visibility"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup_settings::BackupSettings;
use crate::recovery::Recovery;
use crate::status::MySQLClusterStatus;

// Unknown fields are not refused here: the API server prunes them (and `kubectl` refuses them before that), and an older
// operator must be able to keep a cluster whose definition already knows more.
/// What a DBA declares of a MySQL cluster.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "mysql.mainstay.dev",
    version = "v1",
    kind = "MySQLCluster",
    plural = "mysqlclusters",
    shortname = "myc",
    category = "all",
    namespaced,
    status = "MySQLClusterStatus",
    derive = "PartialEq",
    doc = "A MySQL cluster: one primary and its semi-synchronous replicas, declared by a DBA and kept by Mainstay.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health"),
    printcolumn(name = "Primary", type_ = "string", json_path = ".status.primary.instance"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.problems[0].name"),
    printcolumn(
        name = "Spec",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"SpecAccepted\")].reason"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version", priority = 1),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.epoch", priority = 1),
    printcolumn(
        name = "Last Backup",
        type_ = "date",
        json_path = ".status.backup.lastSuccessful.completedAt",
        priority = 1
    ),
    printcolumn(
        name = "Recoverable To",
        type_ = "date",
        json_path = ".status.backup.archive.throughTime",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 40").message(
        "metadata.name: at most 40 characters, because the names of pods, claims, Services and Jobs are derived from it"
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')").message(
        "metadata.name: lower case letters, digits and '-', beginning with a letter and without dots, because it becomes the name of Services"
    ),
    validation = Rule::new("!self.metadata.name.endsWith('-client')").message(
        "metadata.name: must not end with -client, because the Secret <name>-ca would be the <name>-client-ca of another cluster"
    )
)]
#[x_kube(validation = Rule::new("has(self.bootstrap) == has(oldSelf.bootstrap) && (!has(self.bootstrap) || self.bootstrap == oldSelf.bootstrap)")
    .field_path(".bootstrap")
    .message("cannot be added, changed or removed after creation: it says how the first data came to be"))]
#[serde(rename_all = "camelCase")]
pub struct MySQLClusterSpec {
    /// Number of instances, the primary included: 1, 3, 5 or 7.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 7").message("use 1, 3, 5 or 7 instances"))]
    #[x_kube(validation = Rule::new("self != 2").message("2 instances tolerate no more failures than 1; use 1, 3, 5 or 7"))]
    #[x_kube(validation = Rule::new("self != 4").message("4 instances tolerate no more failures than 3; use 1, 3, 5 or 7"))]
    #[x_kube(validation = Rule::new("self != 6").message("6 instances tolerate no more failures than 5; use 1, 3, 5 or 7"))]
    pub replicas: i32,

    /// Image of the MySQL server, for example `mysql:9.7.4`. Its version is read from `mysqld --version`, never from
    /// the tag.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,

    /// When the kubelet pulls the image: `IfNotPresent` (default), `Always` or `Never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Names of Secrets in the cluster's namespace with which images are pulled.
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalReference>,

    /// Volume of each instance.
    pub storage: Storage,

    /// CPU and memory of the mysql container. The buffer pool, the redo log and connection limits are derived from the
    /// memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,

    /// MySQL variables by name, written into my.cnf. Values are integers or strings: quote `"ON"`, `"OFF"` and
    /// fractions such as `"0.5"`. Variables that Mainstay owns (identity, network, replication safety) are refused.
    #[schemars(schema_with = "crate::schema::variables")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Variable>,

    /// How the first data came to be. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,

    /// Backups and the archive of binlogs; unset: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Box<BackupSettings>>,

    /// Certificates of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// Services through which clients connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Services>,

    /// What is kept when instances are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,

    /// What is replaced by itself when it does not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healing: Option<Healing>,

    /// Overlay (PodTemplateSpec) merged over the pod template that Mainstay builds; containers are merged by name
    /// (`mysql`). Use it for scheduling, security contexts, sidecars, annotations.
    #[schemars(schema_with = "crate::schema::pod_template")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,

    /// What happens to the volume claims when the cluster is deleted: `Retain` (default) or `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// When the kubelet pulls an image: `IfNotPresent` (default), `Always` or `Never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Pull at every start.
    Always,
    /// Pull when the node does not have the image.
    IfNotPresent,
    /// Never pull: the node must have the image.
    Never,
}

impl ImagePullPolicy {
    /// The word that Kubernetes uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// Reference to an object of the same namespace by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Value of a MySQL variable.
///
/// Not Kubernetes' `IntOrString`, whose integers end at 2^31: one `max_binlog_cache_size: 4294967296` would make the
/// whole cluster unreadable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Variable {
    /// An integer.
    Integer(i64),
    /// Anything else, as MySQL writes it.
    Text(String),
}

/// Volume of each instance.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
    .field_path(".storageClassName")
    .message("cannot be added, changed or removed after creation: claims keep their class"))]
#[x_kube(validation = Rule::new("!has(self.maxSize) || !isQuantity(string(self.maxSize)) || !isQuantity(string(self.size)) || quantity(string(self.maxSize)).compareTo(quantity(string(self.size))) >= 0")
    .field_path(".maxSize")
    .message("less than size; raise it, or remove it if volumes shall not grow by themselves"))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each claim, for example `20Gi`; at least 1Gi, at most 256Ti. It can be raised later, if the StorageClass can
    /// expand volumes, and never lowered.
    #[schemars(schema_with = "crate::schema::quantity")]
    #[x_kube(validation = Rule::new("!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1Gi')) >= 0")
        .message("at least 1Gi, which holds the redo log, the relay logs and the binlogs of an empty server"))]
    #[x_kube(validation = Rule::new("!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('256Ti')) <= 0")
        .message("at most 256Ti, which is more than any volume holds: is the unit the right one?"))]
    #[x_kube(validation = Rule::new("quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0")
        .message("a volume cannot shrink; create a new cluster of the smaller size and move the data"))]
    pub size: Quantity,

    /// Up to this size a volume grows by itself, by a fifth and at least 1Gi at a time, when it is used to 80 %; unset: it does
    /// not. The StorageClass must be able to expand volumes.
    #[schemars(schema_with = "crate::schema::quantity")]
    #[x_kube(validation = Rule::new("!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('256Ti')) <= 0")
        .message("at most 256Ti, which is more than any volume holds: is the unit the right one?"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Quantity>,

    /// StorageClass of the claims; unset: the default class. Immutable.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// CPU and memory of the mysql container, as Kubernetes requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// What the scheduler reserves.
    #[schemars(schema_with = "crate::schema::quantities")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container may use at most.
    #[schemars(schema_with = "crate::schema::quantities")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// How the first data came to be; exactly one member is set.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.initdb) != has(self.recovery)").message("set exactly one of: initdb, recovery"))]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// An empty server with a first application database and its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initdb: Option<InitDb>,

    /// The data of a backup and of the archive that follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Box<Recovery>>,
}

/// An empty server with a first application database and its owner.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.user) || self.database.size() <= 32")
    .field_path(".database")
    .message("longer than the 32 characters of a user name: set user to name the owner"))]
#[x_kube(validation = Rule::new("!(has(self.user) ? self.user : self.database).startsWith('mainstay') && !((has(self.user) ? self.user : self.database) in ['root', 'event_scheduler'])")
    .field_path(".user")
    .message("root, event_scheduler and names that begin with mainstay are reserved: set user to another name"))]
#[serde(rename_all = "camelCase")]
pub struct InitDb {
    /// Name of the database: letters, digits, `_`, `$` and `-`.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_$-]+$')").message("letters, digits, '_', '$' and '-' make the name of a database here"))]
    #[x_kube(validation = Rule::new("!(self.lowerAscii() in ['mysql', 'sys', 'information_schema', 'performance_schema'])")
        .message("a system schema cannot be the application's database"))]
    pub database: String,

    /// Name of the user that owns the database; default: the database's name. Its password is in the Secret
    /// `<cluster>-app`, with host, port and a ready connection URI.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9_$-]+$')").message("letters, digits, '_', '$' and '-' make the name of a user here"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Certificates of the instances, signed by a CA of the cluster's own.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Further DNS names that the server certificate carries, for clients that come from outside.
    #[schemars(
        length(max = 32),
        inner(
            length(min = 1, max = 253),
            regex(pattern = r"^(\*\.)?([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        )
    )]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[serde(rename = "extraDNSNames", default, skip_serializing_if = "Vec::is_empty")]
    pub extra_dns_names: Vec<String>,

    /// Lifetime of the server certificate in hours; default 2160 (90 days). It is renewed after two thirds of it.
    #[schemars(range(min = 1, max = 87600))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_hours: Option<i32>,
}

/// The Services through which clients connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// `<cluster>-primary`: the read-write Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<ServiceSettings>,
    /// `<cluster>-replicas`: the Service for reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasServiceSettings>,
}

/// Type and annotations of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSettings {
    /// Type of the Service; default `ClusterIP`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceType>,
    /// Annotations, for example of a cloud's load balancer.
    #[schemars(schema_with = "crate::schema::annotations")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Settings of the Service for reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasServiceSettings {
    /// Type of the Service; default `ClusterIP`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceType>,
    /// Annotations, for example of a cloud's load balancer.
    #[schemars(schema_with = "crate::schema::annotations")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whether reads go to the primary while no replica can serve them; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_to_primary: Option<bool>,
}

/// Type of a Service: `ClusterIP` (default), `NodePort` or `LoadBalancer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Reachable inside the Kubernetes cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Reachable on a port of every node.
    NodePort,
    /// Reachable through the cloud's load balancer.
    LoadBalancer,
}

impl ServiceType {
    /// The word that Kubernetes uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// What is kept when instances are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failover {
    /// What comes first when too few replicas can acknowledge: `strict` (default) or `preferred`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// What becomes of the data directory that a rebuild replaces by a clone: `delete` (default) or `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_data: Option<FormerData>,
}

/// What becomes of the data directory that a rebuild replaces by a clone. `delete` (default): it is deleted. `keep`: it
/// stays on the instance's volume as `data.former`, for whoever wants to look at the transactions in it, until the next
/// rebuild or until somebody deletes it. Where more than half of the volume is in use it is deleted all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FormerData {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays on the volume until the next rebuild.
    Keep,
}

/// What is replaced by itself when it does not come back. Only ever an instance that is neither the primary nor, any more, a
/// member: everything that was acknowledged is shown to be elsewhere first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Healing {
    /// After so many starts of mysqld in a row that failed because of what is in the data directory, it is replaced by a clone
    /// of another instance; default 3.
    #[schemars(range(min = 1, max = 20))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_starts: Option<i32>,
    /// Whether a volume that is lost, answers with errors, or is full and cannot be helped is replaced: `Replace` (default) or
    /// `Keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Volumes>,
}

/// What becomes of a volume that is lost, answers with errors, or is full and cannot be helped. `Replace` (default): its claim is
/// deleted and made anew, and the instance is cloned onto the new volume; what becomes of the old volume is up to the reclaim
/// policy of its StorageClass. `Keep`: it stays as it is, and a person is told what to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Volumes {
    /// The claim is deleted and made anew.
    #[default]
    Replace,
    /// Nothing is deleted.
    Keep,
}

/// What comes first when too few replicas can acknowledge. `strict` (default): commits wait until enough of them are back.
/// `preferred`: after 10 seconds commits wait for those that are left, for none if none is, until the others are back; a
/// write that was acknowledged meanwhile is lost with the primary. Never during an election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Commits wait until enough replicas are back.
    #[default]
    Strict,
    /// Commits go on with fewer acknowledgements after a while.
    Preferred,
}

/// What happens to the volume claims when the cluster is deleted: `Retain` (default) keeps them, and a cluster of the same
/// name comes back with all rows; `Delete` deletes them with the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The claims stay; a cluster of the same name comes back with all rows.
    #[default]
    Retain,
    /// The claims are deleted with the cluster.
    Delete,
}
