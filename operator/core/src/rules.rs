//! The memory of the failover rules: what status holds (docs/failover.md, "Status").

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::GtidSet;

/// Name of an instance, which is its pod's (`shop-0`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName(pub String);

/// Random identity of a data directory: new with every initialise, clone and restore.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub String);

/// Random identity of an operator process: new at each start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub String);

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An instance in one life of its data directory (decision B1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// Name of the instance.
    pub instance: InstanceName,
    /// Identity of its data directory.
    pub incarnation: Incarnation,
}

/// The recorded primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryRef {
    /// Which instance, in which life.
    pub id: MemberId,
    /// server_uuid under which it writes.
    pub server_uuid: String,
    /// Epoch in which it was recorded: the name of its reign.
    pub epoch: u64,
    /// When it was recorded.
    pub since: Timestamp,
}

/// Phase of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The recorded primary may be open.
    Open,
    /// Nothing may be open; a winner is sought.
    Electing {
        /// Incarnation that is preferred as the winner (a switchover's candidate).
        preferred: Option<MemberId>,
    },
}

/// What status holds of the rules; every write is compare-and-set on the status last read (rule 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rises with every election, change of members or k, and first command of an operator process.
    pub epoch: u64,
    /// Process that wrote the epoch.
    pub owner: OperatorId,
    /// Open or Electing.
    pub phase: Phase,
    /// When the phase was entered.
    pub phase_since: Timestamp,
    /// The recorded primary; absent only in the first election of a new cluster.
    pub primary: Option<PrimaryRef>,
    /// A later candidate must contain this set.
    pub baseline: GtidSet,
    /// Who may acknowledge; never the primary.
    pub members: BTreeSet<MemberId>,
    /// k: acknowledgements that a commit waits for.
    pub acks_required: u32,
    /// First server_id of the cluster.
    pub server_id_base: u32,
    /// The newest rebuild of each instance: the intent is recorded before its data directory is replaced (rule 7), and
    /// kept to limit how often that happens.
    pub rebuilds: BTreeMap<InstanceName, Rebuild>,
    /// While electing: when the first of the elections in a row began; no writes are accepted since then. For people.
    pub began: Option<Timestamp>,
    /// Instances that a person keeps out, since when: recorded before they are fenced.
    pub fences: BTreeMap<InstanceName, Timestamp>,
    /// The newest request of a person. One that runs and accepts a loss of data is what permits one (rule 10).
    pub request: Option<Request>,
    /// The last loss that a person accepted, for people.
    pub data_loss: Option<DataLoss>,
    /// The last change of primary, for people; no rule reads it.
    pub last_change: Option<Change>,
}

impl Rules {
    /// A person keeps this instance out.
    #[must_use]
    pub fn keeps_out(&self, instance: &InstanceName) -> bool {
        self.fences.contains_key(instance)
    }
}

/// What status holds of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// No rule ever wrote it: a new cluster, or a status that was lost.
    Absent,
    /// It could be read in full.
    Known(Box<Rules>),
    /// A part of it is missing or cannot be read. Never treated as absent: nothing is decided before it can be read.
    Unreadable {
        /// Which field, and what is wrong with it.
        reason: String,
    },
}

/// The intent to replace a data directory (rule 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// The data directory that is given up.
    pub incarnation: Incarnation,
    /// From where the new one comes.
    pub donor: Donor,
    /// How many attempts in a row came to nothing before this one.
    pub failures: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// Why, for a person.
    pub reason: String,
    /// When the instance was first seen as a member again; absent until then. It limits how often instances are healed, and no
    /// rule of safety reads it.
    pub ended: Option<Timestamp>,
    /// What it is healed of; `None`: it could not join as it was, or a person asked for it.
    pub healing: Option<Healing>,
}

/// From where the data of a rebuild come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Donor {
    /// It is a clone of this instance.
    Instance(MemberId),
    /// The newest backup of the cluster, and the archive behind it.
    Store,
}

impl fmt::Display for Donor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(id) => id.instance.fmt(f),
            Self::Store => f.write_str("the newest backup"),
        }
    }
}

/// What an instance is healed of (docs/healing.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healing {
    /// What was found.
    pub trouble: Trouble,
    /// uid of the claim whose volume is given up with everything on it: nothing that lies there ever joins again, whoever
    /// deletes it and when. `None`: the data directory is replaced on the volume that it has.
    pub claim: Option<String>,
    /// How often in a row it was healed of that, this time included.
    pub times: u32,
}

/// What keeps an instance from coming back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// mysqld does not start, for a reason that lies in its data directory.
    Data,
    /// The volume does not exist any more.
    Lost,
    /// The volume answers with I/O errors.
    Unreadable,
    /// The volume is full.
    Full,
}

/// A change of primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Why it changed.
    pub kind: ChangeKind,
    /// The former primary; absent for the first one.
    pub from: Option<InstanceName>,
    /// The new primary.
    pub to: InstanceName,
    /// When the election began.
    pub began: Timestamp,
    /// When the new primary was recorded.
    pub recorded: Timestamp,
    /// When the new primary was seen to accept writes, and was routed to; absent until then.
    pub opened: Option<Timestamp>,
    /// How the time in between was spent.
    pub phases: Phases,
}

/// Why the primary changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The first primary of a new cluster.
    Bootstrap,
    /// The old primary was lost.
    Failover,
    /// The primary was moved on purpose.
    Switchover,
}

/// How the time without writes was spent (status `lastChange.phases`); what was not seen is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Recording the election and fencing.
    pub fence: Option<Duration>,
    /// The candidate of a switchover receives what the old primary has.
    pub catch_up: Option<Duration>,
    /// The winner applies its relay log, and enough others follow it.
    pub attach: Option<Duration>,
    /// The new primary is written to status.
    pub record: Option<Duration>,
    /// It is opened for writes.
    pub open: Option<Duration>,
    /// The Service is pointed to it.
    pub route: Option<Duration>,
}

/// A request of a person (annotation `mysql.mainstay.dev/request`, decision B5), and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id: each is carried out once.
    pub id: String,
    /// What was asked for, as it was written: one of another version is only remembered.
    pub verb: String,
    /// The instance it is about.
    pub instance: Option<InstanceName>,
    /// The person accepts that acknowledged writes may be lost.
    pub accept_data_loss: bool,
    /// How far it is.
    pub state: RequestState,
    /// Why, or what it led to.
    pub message: String,
    /// When it was answered.
    pub at: Timestamp,
    /// When it is given up, while it runs.
    pub deadline: Option<Timestamp>,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// Nothing was done.
    Refused,
    /// It was recorded, and is carried out.
    Running,
    /// It was carried out.
    Done,
    /// It was begun and did not succeed.
    Failed,
}

/// A promotion for which a person accepted that acknowledged writes may be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataLoss {
    /// When it was recorded.
    pub at: Timestamp,
    /// Epoch of the reign that it began.
    pub epoch: u64,
    /// Who was promoted.
    pub instance: InstanceName,
    /// server_uuid of the primary that was given up.
    pub server_uuid: Option<String>,
    /// What is known to be missing.
    pub missing: GtidSet,
    /// Who was not heard: what they alone had is lost, too.
    pub unheard: BTreeSet<InstanceName>,
}
