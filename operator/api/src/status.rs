//! `MySQLCluster` status (decision B3): what a DBA reads, and what the failover rules remember.
//!
//! It has one writer, the operator, which replaces it with `PUT` and the resourceVersion that it read: every write is a
//! compare-and-set. The fields `epoch`, `owner`, `election`, `primary`, `baseline`, `members`, `acksRequired`, `rebuilds`
//! and `fences` are the rules' memory (docs/failover.md); the others can be derived again at any time, or are for people.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backup_status::BackupSummary;

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

    /// Instances that a person keeps out of the cluster until they are let in again: recorded before they are fenced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fences: Vec<Fence>,
    /// The newest request of a person (annotation `mysql.mainstay.dev/request`), and what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// The last promotion for which a person accepted that acknowledged writes may be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_loss: Option<DataLoss>,

    /// The instances, in order of their ordinals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,
    /// The last change of primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_change: Option<LastChange>,
    /// The recovery of the data with which the cluster began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Box<RecoveryStatus>>,
    /// Backups and the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Box<BackupSummary>>,
    /// What is wrong at present, the worst first, by the names of docs/failover.md; what is only worth knowing is not in here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<ProblemStatus>,
    /// What stands between the declared and the actual state, by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The recovery of the data with which a cluster began (`spec.bootstrap.recovery`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryStatus {
    /// How far it is.
    pub phase: RecoveryPhase,
    /// One line for people: how far it is, or why it does not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The backup with which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// The point that was reached: everything in this GTID set was recovered, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_gtid: Option<String>,
    /// When the last of it was committed, by the clock of the server that did, if the archive says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_time: Option<MicroTime>,
    /// When the recovery ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<MicroTime>,
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPhase {
    /// The first instance is made, or recovers the data.
    Running,
    /// It does not succeed, and is tried again; nothing was made.
    Failed,
    /// The target was reached.
    Done,
}

/// Something that is wrong: which problem, and with whom. The conditions say why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemStatus {
    /// Name of the problem, which is the reason of its condition.
    pub name: String,
    /// The instance it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
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
    /// While electing: when the first of the elections in a row began, since when no writes are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<MicroTime>,
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
    /// Since when the operator does not hear it; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<MicroTime>,
    /// Transactions that it has and the primary neither has nor wrote: it is rebuilt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errant: Option<String>,
    /// Seconds that it is behind the primary, while that is a problem (`ReplicationLagging`): the step that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_seconds: Option<i64>,
    /// What it has, while a primary is elected and it is fenced: nothing can be added to it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
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

impl Role {
    /// The role as it is written in status and on a label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
        }
    }
}

/// The replacement of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rebuild {
    /// Instance that is rebuilt.
    pub instance: String,
    /// The data directory that is given up.
    pub incarnation: String,
    /// The instance of which the new one is a clone; unset: the newest backup, and the archive behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub donor: Option<Member>,
    /// How many attempts in a row came to nothing before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<i32>,
    /// When it was decided.
    pub at: MicroTime,
    /// Why.
    pub reason: String,
    /// When the instance was first seen as a member again; absent while the rebuild goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<MicroTime>,
    /// What it is healed of; absent when it could not join as it was, or when a person asked for the rebuild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healing: Option<Healing>,
}

/// What an instance is healed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Healing {
    /// What was found.
    pub trouble: Trouble,
    /// uid of the claim whose volume is given up; absent when the data directory is replaced where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// How often in a row it was healed of that, this time included.
    pub times: i32,
}

/// What keeps an instance from coming back by itself: mysqld does not start on its data directory (`DataBroken`), or its volume
/// does not exist any more (`VolumeLost`), answers with I/O errors (`VolumeUnreadable`), or is full (`VolumeFull`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trouble {
    /// mysqld does not start on it.
    DataBroken,
    /// The volume does not exist any more.
    VolumeLost,
    /// The volume answers with I/O errors.
    VolumeUnreadable,
    /// The volume is full.
    VolumeFull,
}

/// An instance that a person keeps out of the cluster: read-only, without a source, behind no Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// Name of the instance, whatever its data directory.
    pub instance: String,
    /// When it was recorded.
    pub since: MicroTime,
}

/// A request of a person, and what became of it. Each is carried out once: its `id` is compared with this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The id in the annotation.
    pub id: String,
    /// What was asked for: `promote`, `fence`, `unfence`, `rebuild`; empty when the annotation could not be read.
    pub verb: String,
    /// The instance it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The person accepts that acknowledged writes may be lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_loss: bool,
    /// How far it is.
    pub result: RequestResult,
    /// Why it was refused or failed, or what it led to.
    pub message: String,
    /// When the operator answered it.
    pub at: MicroTime,
    /// When it is given up, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<MicroTime>,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestResult {
    /// Nothing was done; the message says why.
    Refused,
    /// It was accepted and recorded, and is carried out.
    Running,
    /// It was carried out.
    Done,
    /// It was begun and did not succeed; the message says why, and what is so now.
    Failed,
}

/// A promotion for which a person accepted that acknowledged writes may be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataLoss {
    /// When the promotion was recorded.
    pub at: MicroTime,
    /// Epoch of the reign that it began.
    pub epoch: i64,
    /// The instance that was promoted.
    pub instance: String,
    /// server_uuid of the primary that was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_uuid: Option<String>,
    /// Transactions that are known to be missing. It grows when an instance that was not heard comes back with more.
    pub missing: String,
    /// Instances that were not heard: what they alone had is lost, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<String>,
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
    /// From the beginning of the election until the new primary was open and routed to, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_blocked_ms: Option<i64>,
    /// How that time was spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
}

/// How the time without writes was spent, in milliseconds. What this operator process did not see is not in here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Phases {
    /// Recording the election and fencing the old primary; in a failover everybody who can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence_ms: Option<i64>,
    /// The candidate of a switchover receives what the old primary has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_ms: Option<i64>,
    /// The winner applies its relay log, and enough others follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach_ms: Option<i64>,
    /// The new primary is written to status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_ms: Option<i64>,
    /// It is opened for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_ms: Option<i64>,
    /// The Service is pointed to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_ms: Option<i64>,
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
