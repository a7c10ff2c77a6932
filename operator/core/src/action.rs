//! What a plan consists of: a closed set of typed actions, executed in order by one interpreter in the controller.
//!
//! Each action is idempotent, and whether it is done can be told from the next `Observed`. The order within a plan:
//!
//! 1. at most one `Record`, first. A compare-and-set that is lost, or fails, drops the rest of the plan;
//! 2. at most one `Command`. Its commands are *sent*, all at the same time, and not waited for: an answer is a report, it
//!    starts the next pass, and nothing that stands behind in the plan depends on it. So one instance that does not answer
//!    delays no other one;
//! 3. everything else (routing first), in order. An object that is refused or fails is reported, and the rest goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::GtidSet;
use crate::observed::ObjectKey;
use crate::rules::{InstanceName, MemberId, Rules};
use crate::validate::{Destination, RecoveryWish};

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Server-side apply of a built object; refused by the executor when a foreign object has that name.
    Apply(Box<Desired>),
    /// Create the Secret with random passwords for these keys, or add keys that are missing; never replaces a value, but
    /// for a `uri`, which is composed of the others.
    GeneratePasswords {
        /// Name of the Secret.
        secret: String,
        /// Keys that must exist.
        keys: Vec<String>,
        /// Further keys with values that are not secret (host, port, username), applied every time they differ.
        fixed: Vec<(String, String)>,
        /// Whether the Secret is deleted with the cluster: only when its claims are.
        owned: bool,
    },
    /// Let a Secret be deleted with the cluster, or outlive it, as `deletionPolicy` says now.
    OwnSecret {
        /// Name of the Secret.
        secret: String,
        /// Whether it is deleted with the cluster.
        owned: bool,
    },
    /// Label a pod with its instance and role, with its uid as precondition. For people; no decision reads it.
    LabelPod {
        /// The pod.
        instance: InstanceName,
        /// Its uid.
        uid: String,
        /// Value of [`LABEL_ROLE`](crate::names::LABEL_ROLE); `None` takes the label away.
        role: Option<&'static str>,
    },
    /// Create the cluster's CA (Secret `<cluster>-ca`) if there is none.
    CreateCa {
        /// Whether the Secret is deleted with the cluster.
        owned: bool,
    },
    /// Sign a new server certificate with these names (Secret `<cluster>-server-tls`), or renew it.
    IssueServerCertificate {
        /// DNS names, sorted.
        dns_names: Vec<String>,
        /// Lifetime.
        lifetime: Duration,
    },
    /// Write the bundle of client CAs (Secret `<cluster>-client-ca`).
    WriteClientCa,
    /// Write the access to the store (Secret `<cluster>-store`) from what is declared and the user's Secrets that it names, if
    /// it differs; with `None`, empty the Secret that is left of a store.
    WriteStoreAccess {
        /// What is declared.
        destination: Option<Box<Destination>>,
    },
    /// Look the source of a recovery up, and write the Secret with which the first instance recovers its data.
    WriteRecovery {
        /// Name of the Secret.
        secret: String,
        /// What is recovered.
        wish: Box<RecoveryWish>,
    },
    /// Write the rules' memory to status by compare-and-set. Nothing after it happens if it is lost.
    Record(Box<Record>),
    /// Commands to instance managers, at most one an instance, sent at the same time and not waited for. Until a command
    /// is answered, or its deadline passed, its instance is `busy`.
    Command(Vec<InstanceCommand>),
    /// Delete a pod, with its uid as precondition; the StatefulSet makes it anew from the present template.
    DeletePod {
        /// The pod.
        instance: InstanceName,
        /// Its uid.
        uid: String,
        /// What it holds is given up: nobody waits for its mysqld to end cleanly, which on a full or broken volume may take
        /// for ever.
        at_once: bool,
        /// Why, for the event.
        reason: String,
    },
    /// Delete the claim of an instance whose volume is given up, with uid and resourceVersion as preconditions. It goes when
    /// the pod that uses it does, and the StatefulSet makes it anew.
    DeleteClaim {
        /// Whose it is.
        instance: InstanceName,
        /// Its uid, which the recorded intent names.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
        /// Why, for the event.
        reason: String,
    },
    /// Ask for a larger volume, with the claim's uid as precondition.
    GrowClaim {
        /// Whose claim it is.
        instance: InstanceName,
        /// Its uid.
        uid: String,
        /// What is asked for, in bytes.
        bytes: u64,
        /// Why, for the event.
        reason: String,
    },
    /// Delete an object that is ours and not wanted any more, with uid and resourceVersion as preconditions.
    DeleteObject {
        /// The object.
        key: ObjectKey,
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
    },
}

/// An object as it should be: the fields that Mainstay owns, with `apiVersion`, `kind` and metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Kind and name.
    pub key: ObjectKey,
    /// The object as JSON.
    pub value: serde_json::Value,
}

/// A write of the rules' memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What status will hold.
    pub rules: Rules,
    /// Why, for the event: a reason in CamelCase and a sentence.
    pub reason: &'static str,
    /// The sentence, with the instances named.
    pub message: String,
}

impl Record {
    /// Whether a person should look at it: the primary was lost, or acknowledged writes may have been given up.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        self.reason == PRIMARY_LOST || self.gives_up()
    }

    /// Whether acknowledged writes may have been given up, by a person's word.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        self.reason == PROMOTED_WITH_LOSS
    }
}

/// Reason of the record of an election that begins because the primary is lost.
pub const PRIMARY_LOST: &str = "PrimaryLost";

/// Reason of the record of a promotion for which a person accepted a loss.
pub const PROMOTED_WITH_LOSS: &str = "PromotedWithLoss";

/// A command to one instance manager; the executor adds the seq.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceCommand {
    /// For whom: refused by another incarnation.
    pub to: MemberId,
    /// Epoch under which it is given, written by this process (rule 0).
    pub epoch: u64,
    /// How long the manager may take.
    pub deadline: Duration,
    /// What to do.
    pub verb: Verb,
    /// Why, for the event; empty when it is routine.
    pub why: String,
}

/// What an instance manager can be told (proto `Instance`).
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Stop receiving, become read-only.
    Fence,
    /// Follow this instance.
    Attach {
        /// The source.
        source: Endpoint,
    },
    /// Become the primary and accept writes.
    Open {
        /// Who may acknowledge.
        members: BTreeSet<MemberId>,
        /// k.
        acks_required: u32,
        /// The recorded baseline.
        baseline: GtidSet,
        /// When this primary was recorded: the name of its reign in the archive, which an opening under a later epoch
        /// continues.
        recorded: Recorded,
        /// First application database and user, if declared.
        application: Option<Application>,
    },
    /// Replace the list of who may acknowledge, and k.
    Allow {
        /// Who may acknowledge.
        members: BTreeSet<MemberId>,
        /// k.
        acks_required: u32,
    },
    /// Commit a marker transaction.
    Mark,
    /// Replace the data directory by a clone of this instance. Answered when it has begun: how far it is and how it ended
    /// is told by the reports that follow (`Cloning`, then a new incarnation, or `Failed`).
    Clone {
        /// The donor.
        donor: Endpoint,
        /// The former data directory stays on the volume, if there is room.
        keep_former: bool,
    },
    /// Replace the data directory by what the store holds of this cluster: its newest backup, and the archive behind it.
    /// Answered and told like [`Verb::Clone`].
    Refill {
        /// What the new data must hold: what the primary has purged, and so cannot give any more.
        at_least: GtidSet,
        /// The former data directory stays on the volume, if there is room.
        keep_former: bool,
    },
    /// Restart mysqld read-only.
    Restart,
    /// Delete the binlogs, oldest first, of which every transaction is in `stored`: never the one that is written to. Changes
    /// no role, and is for an open primary as for a replica.
    Purge {
        /// Transactions that are kept elsewhere.
        stored: GtidSet,
    },
}

impl Verb {
    /// The verb without its operands.
    #[must_use]
    pub const fn kind(&self) -> VerbKind {
        match self {
            Self::Fence => VerbKind::Fence,
            Self::Attach { .. } => VerbKind::Attach,
            Self::Open { .. } => VerbKind::Open,
            Self::Allow { .. } => VerbKind::Allow,
            Self::Mark => VerbKind::Mark,
            Self::Clone { .. } => VerbKind::Clone,
            Self::Refill { .. } => VerbKind::Refill,
            Self::Restart => VerbKind::Restart,
            Self::Purge { .. } => VerbKind::Purge,
        }
    }
}

/// A verb without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VerbKind {
    /// [`Verb::Fence`]
    Fence,
    /// [`Verb::Attach`]
    Attach,
    /// [`Verb::Open`]
    Open,
    /// [`Verb::Allow`]
    Allow,
    /// [`Verb::Mark`]
    Mark,
    /// [`Verb::Clone`]
    Clone,
    /// [`Verb::Refill`]
    Refill,
    /// [`Verb::Restart`]
    Restart,
    /// [`Verb::Purge`]
    Purge,
}

impl VerbKind {
    /// The verb as it is written in messages and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Attach => "attach",
            Self::Open => "open",
            Self::Allow => "allow",
            Self::Mark => "mark",
            Self::Clone => "clone",
            Self::Refill => "refill",
            Self::Restart => "restart",
            Self::Purge => "purge",
        }
    }
}

/// When a primary was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The epoch.
    pub epoch: u64,
    /// The time, by the clock of the operator.
    pub since: Timestamp,
}

/// How SQL clients reach an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Which instance, in which life.
    pub id: MemberId,
    /// DNS name without a full domain.
    pub host: String,
    /// Admin port.
    pub port: u16,
}

/// First application database and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Database.
    pub database: String,
    /// User.
    pub user: String,
}
