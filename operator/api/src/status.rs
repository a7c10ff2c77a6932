//! `MySQLCluster` status (decision B3): what a DBA reads, and what the failover rules remember.
//!
//! It has one writer, the operator, which replaces it with `PUT` and the resourceVersion that it read: every write is a
//! compare-and-set. The fields `epoch`, `owner`, `election`, `primary`, `baseline`, `members` and `acksRequired` are the
//! rules' memory (docs/failover.md); the others can be derived again at any time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// Nothing in here is bounded, unlike the spec: a bound that a long GTID set exceeds would refuse the write of the rules'
// memory.
/// What Mainstay knows of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MySQLClusterStatus {
    /// Generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What the cluster is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Whether it serves, and with how much to spare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Label selector of the instances' pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Number of instances that exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of instances that may serve reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// `ready/desired`, for `kubectl get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Version of the primary's server, as `mysqld --version` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Epoch of the rules: rises with every election, change of members and new operator process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// Operator process that wrote the epoch: only it may command under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether a primary is recorded as open, or one is being elected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election: Option<Election>,
    /// The recorded primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Primary>,
    /// Instances that may acknowledge commits of the primary; never the primary itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Acknowledgements that a commit waits for (k).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acks_required: Option<i32>,
    /// GTID set of the primary when it was recorded: a later candidate must contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// First server_id of the cluster; instance n has `serverIdBase + n`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id_base: Option<i64>,

    /// The newest rebuild of each instance: recorded before its data directory is replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rebuilds: Vec<Rebuild>,

    /// The instances, in order of their ordinals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// The last change of primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change: Option<LastChange>,
    /// What stands between the declared and the actual state, by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What the cluster is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The first instances are being made.
    Creating,
    /// The declared state is reached.
    Running,
    /// Instances are restarted one at a time to take a change.
    Updating,
    /// A primary is being elected because the old one is lost.
    FailingOver,
    /// The primary is being moved on purpose.
    SwitchingOver,
    /// Nothing can be done before a person acts; the conditions say what.
    Blocked,
}

/// Whether the cluster serves, and with how much to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// Writes are accepted and every instance is in place.
    Healthy,
    /// Writes are accepted, but an instance is missing or impaired.
    Degraded,
    /// Writes are not accepted.
    Unavailable,
}

/// Phase of the failover rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Election {
    /// `Open`: the recorded primary may be open. `Electing`: nothing may be open, a winner is sought.
    pub phase: ElectionPhase,
    /// Instance that a switchover prefers as the winner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<Member>,
    /// When this phase was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
}

/// Whether a primary is recorded as open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ElectionPhase {
    /// The recorded primary may be open.
    Open,
    /// Nothing may be open, a winner is sought.
    Electing,
}

/// An instance in one life of its data directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Name of the instance, which is its pod's.
    pub instance: String,
    /// Random identity of the data directory: new with every initialise, clone and restore.
    pub incarnation: String,
}

/// The recorded primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Primary {
    /// Name of the instance, which is its pod's.
    pub instance: String,
    /// Random identity of the data directory.
    pub incarnation: String,
    /// server_uuid under which it writes.
    pub server_uuid: String,
    /// Epoch in which it was recorded: the name of its reign.
    pub epoch: i64,
    /// When it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
}

/// What is known of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Name of the instance, which is its pod's.
    pub name: String,
    /// `primary`, `replica`, or nothing while it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Random identity of the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// Version of its server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Kubernetes node on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it may serve reads.
    pub ready: bool,
}

/// Role of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Accepts writes.
    Primary,
    /// Follows the primary.
    Replica,
}

/// The replacement of a data directory by a clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rebuild {
    /// Instance that is rebuilt.
    pub instance: String,
    /// The data directory that is given up.
    pub incarnation: String,
    /// From where the new one comes.
    pub donor: Member,
    /// When it was decided.
    pub at: MicroTime,
    /// Why.
    pub reason: String,
}

/// A change of primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastChange {
    /// `failover` or `switchover`.
    pub kind: ChangeKind,
    /// Former primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// New primary.
    pub to: String,
    /// When the election began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<MicroTime>,
    /// When it was recorded.
    pub at: MicroTime,
    /// From the beginning of the election to the opening, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_blocked_ms: Option<i64>,
}

/// Why the primary changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The first primary of a new cluster.
    Bootstrap,
    /// The old primary was lost.
    Failover,
    /// The primary was moved on purpose.
    Switchover,
}
