//! The memory of the failover rules: what status holds (docs/failover.md, "Status").

use std::collections::BTreeSet;
use std::fmt;

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
}
