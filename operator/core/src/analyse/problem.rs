//! The table of problems: each once, with everything that is said of it wherever it appears.

use crate::rules::InstanceName;
use crate::subject::Subject;

/// A problem that exists at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which.
    pub code: ProblemCode,
    /// The instance it is about, if it is about one.
    pub instance: Option<InstanceName>,
    /// What and why, with names; no figures that change while nothing happens.
    pub message: String,
    /// What to do, with the names in its commands; empty when it ends by itself.
    pub remedy: String,
}

impl ProblemCode {
    /// Whether it may be why an instance does not serve.
    pub(super) fn hinders(self) -> bool {
        self.kind().severity < Severity::Notice
            && !matches!(
                self,
                Self::DiskNearlyFull | Self::VolumeNotGrown | Self::ReplicationLagging
            )
    }
}

impl Problem {
    /// The message, and what to do.
    #[must_use]
    pub fn text(&self) -> String {
        if self.remedy.is_empty() {
            self.message.clone()
        } else {
            format!("{}; {}", self.message, self.remedy)
        }
    }

    /// The remedy with commands that can be typed as they are, as far as the instance is known.
    pub(super) fn typed(&self, subject: &Subject<'_>) -> String {
        let remedy = self.remedy.replace("CLUSTER", subject.name);
        let remedy = remedy.replace("NAMESPACE", subject.namespace);
        match &self.instance {
            Some(instance) => remedy.replace("INSTANCE", &instance.0),
            None => remedy,
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Writes are not accepted, or data is at risk.
    Critical,
    /// The cluster serves, with less to spare, or not as declared.
    Degraded,
    /// A person should know.
    Notice,
}

/// What must not be done while a problem exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Nothing.
    Nothing,
    /// Building objects from the spec.
    Building,
    /// Everything: not one action is planned.
    Everything,
}

impl Blocks {
    /// Whether a problem that blocks this blocks `what`, too.
    #[must_use]
    pub fn covers(self, what: Self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Building => what == Self::Building,
            Self::Everything => what != Self::Nothing,
        }
    }
}

/// The condition of the `MySQLCluster` in which a problem is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// Writes are accepted.
    Available,
    /// Something is missing or impaired.
    Degraded,
    /// The declared spec could be accepted.
    SpecAccepted,
    /// Objects, pods and volumes could be made.
    ResourcesReady,
    /// The primary is open, and commits wait for acknowledgements that nobody can give.
    WritesBlocked,
    /// A person keeps instances out.
    Fenced,
    /// Backups are made as declared.
    BackupHealthy,
    /// Every transaction is, or will be, in the archive of the binlog.
    BinlogArchived,
    /// The newest backup and its archive could be restored and read.
    BackupVerified,
}

impl ConditionType {
    /// Its name in status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Degraded => "Degraded",
            Self::SpecAccepted => "SpecAccepted",
            Self::ResourcesReady => "ResourcesReady",
            Self::WritesBlocked => "WritesBlocked",
            Self::Fenced => "Fenced",
            Self::BackupHealthy => "BackupHealthy",
            Self::BinlogArchived => "BinlogArchived",
            Self::BackupVerified => "BackupVerified",
        }
    }
}

/// What is said of a problem, whenever it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemKind {
    /// Which.
    pub code: ProblemCode,
    /// Its name: reason of conditions and events, label of metrics.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What must not be done while it exists.
    pub blocks: Blocks,
    /// Where it is told.
    pub condition: ConditionType,
    /// When it exists, in one line.
    pub predicate: &'static str,
    /// What to do; empty when it ends by itself. CLUSTER, NAMESPACE and INSTANCE stand for the names.
    pub remedy: &'static str,
}

/// Writes the enum, the table and the way from one to the other from one list.
macro_rules! problems {
    ($($code:ident: $severity:ident, $blocks:ident, $condition:ident, $predicate:literal, $remedy:literal;)*) => {
        /// The problems, in the order in which they are told.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode {
            $(#[doc = $predicate] $code,)*
        }

        impl ProblemCode {
            /// What is said of it.
            #[must_use]
            pub const fn kind(self) -> &'static ProblemKind {
                match self {
                    $(Self::$code => &ProblemKind {
                        code: ProblemCode::$code,
                        name: stringify!($code),
                        severity: Severity::$severity,
                        blocks: Blocks::$blocks,
                        condition: ConditionType::$condition,
                        predicate: $predicate,
                        remedy: $remedy,
                    },)*
                }
            }
        }

        /// Every problem there is, in the order in which they are told.
        pub const PROBLEMS: &[ProblemCode] = &[$(ProblemCode::$code),*];
    };
}

problems! {
    // The memory of the rules.
    StatusUnreadable: Critical, Everything, Available,
        "a field of the rules' memory in status is missing or cannot be parsed",
        "nothing is touched before it can be read: restore the field, or run an operator that can read it";
    StatusLost: Critical, Nothing, Available,
        "status holds no memory, and an instance is not blank",
        "it is resumed when every instance answers; if one is lost for good, restore the status of the MySQLCluster";
    StatusBehind: Critical, Nothing, Available,
        "an instance was told of a higher epoch than status holds",
        "it is resumed when every instance answers; if one is lost for good, restore the newest status";

    // Writes.
    PrimaryLost: Critical, Nothing, Available,
        "phase is Open, and the recorded primary is not open",
        "";
    ElectionInProgress: Critical, Nothing, Available,
        "phase is Electing",
        "it goes on by itself as soon as it is safe; if who is missing is lost for good: kubectl mainstay promote CLUSTER INSTANCE -n NAMESPACE --accept-data-loss";
    PrimaryFenced: Critical, Nothing, Available,
        "the primary is fenced on request",
        "let it in again: kubectl mainstay unfence CLUSTER INSTANCE -n NAMESPACE; or make another one the primary: kubectl mainstay promote CLUSTER ANOTHER -n NAMESPACE";
    RecoveryFailed: Critical, Nothing, Available,
        "the data with which the cluster begins cannot be recovered: its source cannot be had, or the first instance says why",
        "it is tried again, and nothing was made yet: correct what is named, or create the cluster anew with another target";
    FirstPrimaryPending: Critical, Nothing, Available,
        "no primary was ever recorded",
        "";
    WritesBlocked: Critical, Nothing, WritesBlocked,
        "the primary is open, and fewer than k members receive from it",
        "commits wait and are not lost; bring a replica back";
    DiskFull: Critical, Nothing, WritesBlocked,
        "less than 16 MiB are free on the data volume of the open primary, until 32 MiB are and commits end",
        "what is archived is purged, the volume grows up to spec.storage.maxSize, or an instance with room takes over; if nothing of that can be: PURGE BINARY LOGS, and drop what is not needed; where nothing is free even that waits: then promote another instance (kubectl mainstay promote CLUSTER ANOTHER -n NAMESPACE), or restart this one, which gets the 64 MiB that are kept back (kubectl delete pod INSTANCE -n NAMESPACE)";
    GlobalReadLock: Critical, Nothing, WritesBlocked,
        "for 2 s sessions of the open primary wait for a lock that somebody holds on everything",
        "UNLOCK TABLES in that session, or end it with KILL; commits wait and are not lost";
    InstanceFenced: Degraded, Nothing, Fenced,
        "a person keeps an instance out of the cluster",
        "let it in again when it is needed: kubectl mainstay unfence CLUSTER INSTANCE -n NAMESPACE";
    StrangerWritable: Critical, Nothing, Degraded,
        "an instance accepts writes and is not the open primary",
        "it is fenced at once; find out who changed super_read_only";

    // The spec and the objects made from it.
    SpecInvalid: Degraded, Building, SpecAccepted,
        "a field of the spec cannot be accepted",
        "correct the field; what was built before goes on as it was last built";
    NameConflict: Degraded, Nothing, ResourcesReady,
        "an object with a derived name exists and is not part of this cluster",
        "it is left alone; rename or delete it, or choose another name for the cluster";
    SecretIncomplete: Degraded, Building, ResourcesReady,
        "a generated Secret lacks a key, and there is a data directory that was made with it",
        "it is never generated anew; restore the Secret with its former values";
    SecretUnusable: Degraded, Nothing, ResourcesReady,
        "an instance says that it ignores a password of a Secret",
        "the password of before stays in force; correct the Secret";
    ObjectRefused: Degraded, Nothing, ResourcesReady,
        "the API server refused an object",
        "";
    ObjectContested: Degraded, Nothing, ResourcesReady,
        "another writer changes an object back each time",
        "find out who writes it; it is left alone until the spec or the object changes";
    PodsNotCreated: Degraded, Nothing, ResourcesReady,
        "the StatefulSet reports FailedCreate while a pod is missing",
        "";
    PodUnschedulable: Degraded, Nothing, ResourcesReady,
        "the scheduler finds no node for a pod",
        "make room, or change spec.podTemplate or spec.resources";
    ImageNotPulled: Degraded, Nothing, ResourcesReady,
        "the kubelet cannot get an image",
        "correct spec.image or spec.imagePullSecrets";
    PodFailing: Degraded, Nothing, ResourcesReady,
        "a container of a pod does not stay up",
        "";
    VolumeNotBound: Degraded, Nothing, ResourcesReady,
        "a claim is not bound while its pod waits for it",
        "look at the claim's events: kubectl describe pvc data-INSTANCE -n NAMESPACE; if its StorageClass is missing or cannot be used, \
         create the class, or delete the cluster and the claims that are not bound and declare it anew, because \
         spec.storage.storageClassName cannot be changed";
    CertificateExpired: Critical, Nothing, Degraded,
        "the server certificate has ended",
        "it is renewed as soon as the API server can be written to";

    // Instances.
    MysqldFailing: Degraded, Nothing, Degraded,
        "mysqld of an instance is down, does not start, or starts again after it did not",
        "its whole log: kubectl logs INSTANCE -n NAMESPACE -c mysql";
    InstanceUnreachable: Degraded, Nothing, Degraded,
        "a wanted instance has a pod and is not heard for 2 s",
        "";
    DataBroken: Degraded, Nothing, Degraded,
        "mysqld of an instance did not start spec.healing.failedStarts times in a row, for a reason that lies in its data directory",
        "it is cloned from another instance as soon as it is shown that the others contain everything; its whole log: kubectl logs INSTANCE -n NAMESPACE -c mysql";
    VolumeLost: Degraded, Nothing, Degraded,
        "the claim of an instance is Lost: its PersistentVolume does not exist any more",
        "claim and pod are made anew, and it is cloned, as soon as it is shown that the others contain everything; if two of three are lost: \
         kubectl delete pvc data-INSTANCE -n NAMESPACE --wait=false && kubectl delete pod INSTANCE -n NAMESPACE";
    VolumeUnreadable: Degraded, Nothing, Degraded,
        "for some seconds a data volume has answered with I/O errors, or only reads",
        "claim and pod are made anew, and it is cloned, as soon as it is shown that the others contain everything; look at the disk and at its node";
    VolumeFull: Degraded, Nothing, Degraded,
        "for 3 s less than 16 MiB are free on the data volume of an instance that is not the open primary, until 32 MiB are",
        "what is archived is purged, the volume grows up to spec.storage.maxSize, or it is replaced as soon as it is shown that the others contain everything";
    HealingPaused: Degraded, Nothing, Degraded,
        "an instance is in a trouble of which it was healed a short time ago",
        "it is healed again, each time later, up to an hour; if the same comes back again and again, look at its node and its disk";
    VolumeReplaced: Degraded, Nothing, Degraded,
        "a member is heard with another incarnation",
        "it leaves the members when the others contain everything, then it is cloned";
    HistoryReset: Degraded, Nothing, Degraded,
        "the binlogs and GTIDs of an instance were reset, or its volume is an older copy",
        "it is isolated and rebuilt from another instance; if every instance was reset, say whose data counts: \
         kubectl mainstay promote CLUSTER INSTANCE -n NAMESPACE --accept-data-loss";
    ErrantTransactions: Degraded, Nothing, Degraded,
        "a replica has transactions that the primary does not have and did not write",
        "it is isolated and rebuilt from another instance; what it alone had is not kept";
    ReplicationBroken: Degraded, Nothing, Degraded,
        "the receiver of a replica reports an error, and was not attached within the last 5 s",
        "";
    ApplierBroken: Degraded, Nothing, Degraded,
        "a replica cannot apply what it received",
        "it is rebuilt after 30 s if others can acknowledge in its place; at once: kubectl mainstay rebuild CLUSTER INSTANCE -n NAMESPACE";
    ReplicationLagging: Degraded, Nothing, Degraded,
        "a replica is 30 s or more behind the open primary, until it is less than 15 s; told in steps",
        "reads from it are old, and it cannot take over before it has caught up; look for a long transaction, a table without a primary key, or a slow disk";
    InstanceJoining: Degraded, Nothing, Degraded,
        "a wanted instance runs and is neither the primary nor a member",
        "";
    InstanceMissing: Degraded, Nothing, Degraded,
        "a wanted instance has no pod",
        "";
    InstanceNotReady: Degraded, Nothing, Degraded,
        "the primary is open, a wanted instance does not serve, and no other problem names it: its pod is being deleted or has ended, its mysqld is starting, or it does not follow the primary yet",
        "";
    DiskNearlyFull: Degraded, Nothing, Degraded,
        "a data volume is used to 90 % or more",
        "remove data, or keep binlogs for a shorter time (spec.config.binlog_expire_logs_seconds); or let volumes grow: spec.storage.maxSize, or a larger spec.storage.size";
    VolumeNotGrown: Degraded, Nothing, Degraded,
        "Kubernetes refuses to enlarge a volume, or fails to",
        "nothing else waits for it: use a StorageClass with allowVolumeExpansion for the next cluster, or take the larger size back from spec.storage; \
         kubectl describe pvc data-INSTANCE -n NAMESPACE";

    // The archive of the binlog.
    ArchiveGap: Degraded, Nothing, BinlogArchived,
        "transactions are stored nowhere, and no complete backup holds them",
        "a recovery to what lies behind them is refused until a new backup is complete: make one now: kubectl mainstay backup CLUSTER -n NAMESPACE";
    ArchiveFailing: Degraded, Nothing, BinlogArchived,
        "the open primary cannot store its binlog, or not read it",
        "it is tried again by itself; nothing is lost while the binlogs are kept (binlog_expire_logs_seconds)";
    ArchiveNotRunning: Degraded, Nothing, BinlogArchived,
        "the archive is declared, and the open primary does not archive",
        "it begins when the kubelet has brought a right access to the store into the pod, mostly within two minutes";

    // For a person to know.
    ForeignTransactions: Notice, Nothing, Degraded,
        "the primary has transactions that neither the baseline nor its own server_uuid explains",
        "were they injected by hand? Without the primary no replica could be proven complete: switch over once";
    NodeShared: Notice, Nothing, Degraded,
        "two instances of a cluster run on one node",
        "the node's end would be the end of both; if a node without an instance can take one of them: when all are in place, delete its claim and then its pod";
    DurabilityLowered: Degraded, Nothing, Degraded,
        "durability is preferred, and a commit waits for fewer acknowledgements than declared",
        "bring the replicas back; what is written meanwhile may be lost with the primary";
    NoFailover: Notice, Nothing, Degraded,
        "k is 0: no other instance is known to hold what was committed",
        "bring the other instances back, or declare 3 replicas";

    // Backups.
    StoreRefused: Degraded, Nothing, BackupHealthy,
        "a Secret that spec.backup names does not exist, or lacks what is needed",
        "";
    BackupFailed: Degraded, Nothing, BackupHealthy,
        "a backup failed, and none has succeeded since",
        "correct what it names; the next run of its schedule tries again; at once: kubectl mainstay backup CLUSTER -n NAMESPACE";
    StoreNotListed: Degraded, Nothing, BackupHealthy,
        "the operator cannot list the store",
        "nothing is deleted until it can";
    BackupsNotVerified: Degraded, Nothing, BackupVerified,
        "a verification failed, and none has succeeded since",
        "a recovery may fail likewise: correct what it names; the next run is by spec.backup.verification.schedule";
}
