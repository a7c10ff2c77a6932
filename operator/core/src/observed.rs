//! What one pass saw, as a value.
//!
//! Built once a pass by the controller and never changed. Everything is three-valued: known, absent, or unknown with a
//! reason; unreachable is never absent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::GtidSet;
use crate::action::VerbKind;
use crate::backup::plan::Seen;
use crate::progress::Progress;
use crate::rules::{Incarnation, InstanceName, MemberId, Memory, OperatorId, Rules};

/// What one pass saw of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// This operator process: it may only command under an epoch that it wrote itself (rule 0).
    pub operator: OperatorId,
    /// The rules' memory, read from status together with the resourceVersion that the next write must carry.
    pub memory: Memory,
    /// Every instance that has a pod or a claim or is declared, by ordinal.
    pub instances: Vec<InstanceObserved>,
    /// Kubernetes objects with the derived names, whoever made them. Values of Secrets are never in here.
    pub objects: BTreeMap<ObjectKey, ObjectView>,
    /// What the generated Secrets hold, without their values.
    pub secrets: SecretsView,
    /// Warnings of Kubernetes about the cluster's pods, claims and StatefulSet (quota, scheduling, images), newest last.
    pub warnings: Vec<Warning>,
    /// The user's request annotation, if any, as text.
    pub request: Option<String>,
    /// What status told people, as far as decisions depend on it.
    pub told: Told,
    /// What this process saw of the present change of primary.
    pub progress: Progress,
    /// Its backups, their Jobs, and what is in the store.
    pub backups: Seen,
}

/// What status told people, as far as decisions depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Id of the newest request that was answered.
    pub answered: Option<String>,
    /// Since when it says that commits wait for acknowledgements that nobody gives.
    pub blocked_since: Option<Timestamp>,
    /// How far behind it says that replicas are: a step, which is left only some way below it.
    pub behind: BTreeMap<InstanceName, Duration>,
    /// Instances of which it says that they may serve reads.
    pub ready: BTreeSet<InstanceName>,
}

impl Observed {
    /// The rules' memory, when there is one that can be read.
    #[must_use]
    pub const fn rules(&self) -> Option<&Rules> {
        match &self.memory {
            Memory::Known(rules) => Some(rules),
            Memory::Absent | Memory::Unreadable { .. } => None,
        }
    }

    /// The instance of that name.
    #[must_use]
    pub fn instance(&self, name: &InstanceName) -> Option<&InstanceObserved> {
        self.instances.iter().find(|i| &i.name == name)
    }
}

/// One instance: its pod, its claim and what its manager says.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceObserved {
    /// Name, which is the pod's.
    pub name: InstanceName,
    /// Ordinal in the StatefulSet.
    pub ordinal: u32,
    /// The pod; absent when the API server has none.
    pub pod: Option<PodView>,
    /// The claim of its data volume.
    pub claim: Option<ClaimView>,
    /// What its manager says.
    pub reach: Reach,
}

impl InstanceObserved {
    /// The last report, if the manager can be heard now.
    #[must_use]
    pub fn report(&self) -> Option<&InstanceReport> {
        match &self.reach {
            Reach::Heard(heard) => Some(&heard.report),
            Reach::Silent { .. } | Reach::Unknown { .. } => None,
        }
    }

    /// What is heard of it, when it can be heard now.
    #[must_use]
    pub fn heard(&self) -> Option<&Heard> {
        match &self.reach {
            Reach::Heard(heard) => Some(heard),
            Reach::Silent { .. } | Reach::Unknown { .. } => None,
        }
    }

    /// The report if it is *confirmed* under the epoch of `rules` (docs/failover.md, "Confirmed"): `operator` wrote that
    /// epoch, the manager persisted it before it read what it reports, and no command is on its way to it.
    #[must_use]
    pub fn confirmed(&self, rules: &Rules, operator: &OperatorId) -> Option<&InstanceReport> {
        let heard = self.heard()?;
        let current = heard.report.persisted.epoch == rules.epoch && &rules.owner == operator;
        (current && heard.settled).then_some(&heard.report)
    }

    /// Identity in this life of its data directory, if heard.
    #[must_use]
    pub fn member_id(&self) -> Option<MemberId> {
        self.report().map(|r| MemberId {
            instance: self.name.clone(),
            incarnation: r.incarnation.clone(),
        })
    }
}

/// Whether an instance manager can be heard.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// Its status stream is up.
    Heard(Box<Heard>),
    /// It was heard and is not any more.
    Silent {
        /// Since when.
        since: Timestamp,
        /// What failed, for a person.
        reason: String,
        /// What it said last; a hint, never a fact.
        last: Option<Box<InstanceReport>>,
    },
    /// It was never heard by this process (no pod, no address, or the first connection is still being made).
    Unknown {
        /// Since when.
        since: Timestamp,
        /// What is missing, for a person.
        reason: String,
    },
}

/// The last message of a status stream that is up.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it said.
    pub report: InstanceReport,
    /// When that was received, on the operator's clock.
    pub at: Timestamp,
    /// No command of this process to this instance can still have an effect after this report was read: each one sent
    /// was answered, or the pair in the report is at least the newest one sent. (A report carries the pair of the newest
    /// command that has *ended*, see [`Persisted`].)
    pub settled: bool,
    /// The command that was sent and neither answered nor given up: the planner sends no other one meanwhile, except
    /// that a fence may overtake anything.
    pub busy: Option<Busy>,
    /// The newest answer to a command of this process; the planner repeats a command that did not help only after
    /// [`Timing::retry`](crate::timing::Timing::retry), and says why it was refused.
    pub answer: Option<Answer>,
}

/// A command that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// What it asks for.
    pub verb: VerbKind,
    /// Epoch under which it was given.
    pub epoch: u64,
}

/// What became of the newest command that is not under way any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it asked for.
    pub verb: VerbKind,
    /// Epoch under which it was given.
    pub epoch: u64,
    /// When the answer came, or the command was given up, on the operator's clock.
    pub at: Timestamp,
    /// Why it was refused or given up; `None` when it was answered `applied` or `already`.
    pub failure: Option<String>,
}

/// What an instance manager reports (proto `Status`), parsed.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, as they come over the wire"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceReport {
    /// Identity of the data directory.
    pub incarnation: Incarnation,
    /// What it was last told.
    pub persisted: Persisted,
    /// State of mysqld.
    pub mysqld: Mysqld,
    /// Why mysqld is not running, or how far an initialisation or clone is; of a running one, which passwords are ignored
    /// and why, with `; ` between them.
    pub message: String,
    /// Restarts of mysqld since the manager began.
    pub restarts: u32,
    /// Starts of mysqld in a row that failed, and data directories that could not be made: of one that is starting, the message
    /// says why the one before it did not.
    pub failures: u32,
    /// Starts of mysqld in a row that failed for a reason that may lie in the data directory (corruption, files that are
    /// missing, a crash of the recovery), as its manager judges by how it ended and what it logged; 0 as soon as it answers. A
    /// configuration that it refuses, a permission, a full volume, a kill from outside do not count, and a volume whose I/O
    /// fails says so in `unreadable`.
    pub refusals: u32,
    /// The data volume has answered with I/O errors, or only reads, for at least 2 s as its manager sees it: another life of the
    /// data directory on it would not help.
    pub unreadable: bool,
    /// Version of the server, for example `9.7.4`.
    pub version: String,
    /// server_uuid; empty until mysqld ran once.
    pub server_uuid: String,
    /// super_read_only is OFF.
    pub writable: bool,
    /// gtid_executed.
    pub executed: GtidSet,
    /// Complete transactions of the relay log.
    pub received: GtidSet,
    /// gtid_purged: what it cannot give to a replica any more.
    pub purged: GtidSet,
    /// Replication from its source.
    pub replication: Replication,
    /// Semi-synchronous replication to its replicas.
    pub semi_sync: SemiSync,
    /// Space of the data volume.
    pub disk: Disk,
    /// What keeps writes from ending although mysqld answers and replicas acknowledge. For people: no rule reads it.
    pub standstill: Option<Standstill>,
    /// Set at the end of the last marker transaction (verb `Mark`): everything that was in the binlog before it is in
    /// here. The manager forgets it when mysqld ends, and when a command changes who may acknowledge, or k; so it was
    /// committed under the list and the k that [`Persisted`] holds.
    pub marker: Option<GtidSet>,
    /// Hash of the configuration with which mysqld runs.
    pub config_hash: String,
    /// The instance never took part in anything: no command was ever accepted, and the set is empty.
    pub pristine: bool,
    /// A list or k was told to the open server, and something of it failed: what `persisted` says of them is not in force.
    pub list_uncertain: bool,
    /// Transactions that it had executed are not in its set any more: somebody reset its binlogs and GTIDs, or its volume is an
    /// older copy. The set says nothing about its data, so nobody may compare by it.
    pub history_reset: bool,
    /// The pod is being stopped and asks to be relieved (pre-stop).
    pub leaving: bool,
    /// What the data directory was recovered to, in its present life; `None` when it came about in another way.
    pub recovered: Option<Box<Recovered>>,
    /// Its archive of the binlog; `None` while it does not archive.
    pub archive: Option<ArchiveReport>,
}

/// How far the archive of an open primary is. What of [`InstanceReport::executed`] is neither `behind` nor `missing` is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveReport {
    /// Executed transactions that are not stored yet.
    pub behind: GtidSet,
    /// Executed transactions that are stored nowhere, and will not be: a hole that no complete backup covers.
    pub missing: GtidSet,
    /// Everything that was committed until then is stored, by the instance's clock; `None` while it is not known.
    pub through: Option<Timestamp>,
    /// Why nothing can be stored at present; empty when it can.
    pub error: String,
}

impl InstanceReport {
    /// set(i) of rule 0: executed transactions plus complete transactions of the relay log.
    #[must_use]
    pub fn set(&self) -> GtidSet {
        self.executed.union(&self.received)
    }

    /// Every received transaction is applied: it may be re-pointed without losing one (decision A5).
    #[must_use]
    pub fn fully_applied(&self) -> bool {
        self.executed.contains(&self.received)
    }

    /// It was never opened and has no transaction: new, or left by a first election that came to no end (rule 9).
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.never_opened() && !self.history_reset && self.set().is_empty()
    }

    /// It was never told, in this life of its data directory, that it or another one is the primary.
    #[must_use]
    pub fn never_opened(&self) -> bool {
        self.persisted.told_epoch == 0 && self.persisted.primary.is_none()
    }

    /// Its data was recovered for that wish, and nothing has happened to it since (rule 9).
    #[must_use]
    pub fn is_recovered(&self, request: &str) -> bool {
        let recovered = self.recovered.as_ref();
        let is_it = |it: &Recovered| it.request == request && it.reached == self.set() && !it.reached.is_empty();
        self.never_opened() && !self.history_reset && recovered.is_some_and(|it| is_it(it))
    }
}

/// What a data directory was recovered to (docs/backup.md, "Recovery").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Which wish it answers: the digest of `spec.bootstrap.recovery` as it was then.
    pub request: String,
    /// The backup with which it began.
    pub backup: String,
    /// Everything that was there at the end, and nothing else.
    pub reached: GtidSet,
    /// When the last of it was committed, on the clock of the server that did, if the archive says so.
    pub time: Option<Timestamp>,
    /// When the recovery ended, on the instance's clock.
    pub completed_at: Timestamp,
}

/// What an instance was last told, from its state file; all empty when it never was.
///
/// In a report the pair (epoch, seq) is that of the newest command that has *ended*: it was made durable before the
/// command did anything, the command can have no effect any more, and the rest of the report was read after that. So a
/// streamed report is as good as a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// Epoch of the newest command.
    pub epoch: u64,
    /// Sequence of the newest command within the epoch.
    pub seq: u64,
    /// Epoch of the newest Open or Allow, which told the four that follow; 0 when there was none in this life of the
    /// data directory. With it a lost status is found again (rule 9).
    pub told_epoch: u64,
    /// Primary it was told of.
    pub primary: Option<MemberId>,
    /// Baseline it was told of.
    pub baseline: GtidSet,
    /// Members it was told of.
    pub members: Vec<MemberId>,
    /// k it was told of.
    pub acks_required: u32,
}

/// State of mysqld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mysqld {
    /// The data directory is being made.
    Initialising,
    /// Started and not answering yet; recovery may take long.
    Starting,
    /// Answering.
    Running,
    /// Ended; will be started again.
    Down,
    /// A clone replaces the data directory.
    Cloning,
    /// Does not start.
    Failed,
}

/// What keeps writes from ending, but for missing replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standstill {
    /// The data volume is full: statements that need room fail, and commits wait.
    DiskFull,
    /// Somebody locked everything for reads (`FLUSH TABLES WITH READ LOCK`), and others wait to write.
    GlobalLock {
        /// The session, as "session 73 of root@10.0.0.7"; empty when the server does not know it.
        holder: String,
    },
}

/// Replication of an instance from its source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replication {
    /// Host that its receiver thread follows, connected or trying to connect; `None` when there is no receiver thread
    /// (detached), whatever configuration the server remembers.
    pub source_host: Option<String>,
    /// The receiver thread runs and is connected.
    pub receiver_running: bool,
    /// The applier threads run.
    pub applier_running: bool,
    /// Age of the last heartbeat or event; `None` when detached or never heard.
    pub last_heard: Option<Duration>,
    /// Delay between commit on the source and apply here; `None` when unknown.
    pub lag: Option<Duration>,
    /// Last error of the receiver.
    pub receiver_error: String,
    /// Last error of the applier; as long as it has applied nothing since, also after it was started again.
    pub applier_error: String,
    /// For how long the applier has not got beyond its error, however often it was started again; `None` when it has none,
    /// or everything that was received is applied.
    pub applier_failing: Option<Duration>,
}

impl Replication {
    /// A heartbeat or event came from its source in that time.
    #[must_use]
    pub fn heard_within(&self, limit: Duration) -> bool {
        self.last_heard.is_some_and(|age| age <= limit)
    }
}

/// Semi-synchronous replication of an instance to its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemiSync {
    /// Commits wait for acknowledgements at present.
    pub on: bool,
    /// Acknowledgements that a commit waits for.
    pub wait_for: u32,
    /// Sessions that wait for an acknowledgement.
    pub waiters: u32,
    /// Instances that are connected as semi-synchronous clients.
    pub acknowledgers: Vec<InstanceName>,
}

/// Space of the data volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in all.
    pub size: u64,
    /// For how long it has been full, as its manager saw it: since less than [`Disk::FULL`] were free, until [`Disk::ROOM`] are.
    /// `None` while it is not. Of every instance, whatever its role, and whether or not mysqld answers.
    pub full_for: Option<Duration>,
}

impl Disk {
    /// With fewer bytes free the volume is full: InnoDB extends its files by 4 MiB and more, and a binlog may be one large
    /// transaction.
    pub const FULL: u64 = 16 << 20;
    /// With fewer bytes free after it was full it is full still: what is told must not change with every file.
    pub const ROOM: u64 = 2 * Self::FULL;

    /// How much of it is in use, as far as decisions differ by it: 0 below 75 %, then a step for every 5 %, and the last one when it
    /// is full. What is in use changes all the time.
    #[must_use]
    pub const fn level(&self) -> u64 {
        const FIRST: u64 = 15;
        if self.full_for.is_some() {
            return u64::MAX;
        }
        match self.used.saturating_mul(20).checked_div(self.size) {
            Some(step) if step >= FIRST => step - FIRST + 1,
            Some(_) | None => 0,
        }
    }
}

/// A pod, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// uid: another one is another pod.
    pub uid: String,
    /// Address, when it has one.
    pub ip: Option<String>,
    /// Node, when it is scheduled.
    pub node: Option<String>,
    /// Zone of the node, when known.
    pub zone: Option<String>,
    /// Kubernetes' own word: Pending, Running, Succeeded, Failed, Unknown.
    pub phase: String,
    /// The kubelet says it is ready.
    pub ready: bool,
    /// A deletion was asked for.
    pub deleting: bool,
    /// Kubernetes deletes it because of a taint of its node: mostly, because the node does not answer Kubernetes.
    pub evicted: bool,
    /// Hash of the pod template that it was made from (annotation `mysql.mainstay.dev/template`).
    pub template: Option<String>,
    /// Name of the ConfigMap it refers to.
    pub config_map: Option<String>,
    /// Image of the mysql container.
    pub image: Option<String>,
    /// Why a container does not run (ImagePullBackOff, CrashLoopBackOff, …) and the message, when the kubelet says so.
    pub trouble: Option<String>,
    /// Restarts of the mysql container.
    pub restarts: i32,
    /// Its role label: compared with what it should be, and never believed.
    pub role: Option<String>,
}

/// A claim, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// uid: another one is another volume.
    pub uid: String,
    /// resourceVersion, for preconditions.
    pub resource_version: String,
    /// Pending, Bound or Lost.
    pub phase: String,
    /// Requested bytes.
    pub requested: Option<u64>,
    /// Capacity in bytes.
    pub capacity: Option<u64>,
    /// Its StorageClass.
    pub class: Option<String>,
    /// The node for which the scheduler had its volume made.
    pub node: Option<String>,
    /// A deletion was asked for.
    pub deleting: bool,
}

impl ClaimView {
    /// The volume that it was bound to does not exist any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.phase == "Lost"
    }

    /// It has a volume.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.phase == "Bound"
    }
}

/// Kinds of objects that Mainstay builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// apps/v1
    StatefulSet,
    /// v1
    Service,
    /// discovery.k8s.io/v1
    EndpointSlice,
    /// v1
    ConfigMap,
    /// v1
    Secret,
    /// v1
    ServiceAccount,
    /// policy/v1
    PodDisruptionBudget,
}

/// Key of an object in the cluster's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
}

/// An object that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectView {
    /// uid, for preconditions.
    pub uid: String,
    /// resourceVersion, for preconditions.
    pub resource_version: String,
    /// Belongs to this cluster by label (`mysql.mainstay.dev/cluster`) and, where it has a controlling owner, by uid.
    pub ours: bool,
    /// The object; for Secrets without `data`.
    pub value: serde_json::Value,
    /// Server-side apply could not make it so (another writer changes it back): not tried again before it changes.
    pub contested: bool,
}

/// What the generated Secrets hold, without values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretsView {
    /// Secret name → keys with a non-empty value; without a `uri` that holds another password than the Secret. Secrets that
    /// do not exist are not in here.
    pub keys: BTreeMap<String, Vec<String>>,
    /// The cluster CA's certificate: expiry.
    pub ca_expires: Option<Timestamp>,
    /// The server certificate, when it can be read and was signed by the present CA.
    pub server: Option<CertificateView>,
    /// The bundle of client CAs is the present operator CA plus the present cluster CA.
    pub client_ca_current: bool,
    /// Whether `<cluster>-store` is what is declared.
    pub store: StoreSecret,
}

/// Whether the Secret `<cluster>-store` holds what is declared: the access to the store, or nothing if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreSecret {
    /// It does.
    #[default]
    Current,
    /// It does not, or nobody has compared it since something changed.
    Outdated,
    /// What is declared cannot be had: a Secret that the spec names does not exist, or lacks something. The Secret holds what
    /// it held before.
    Refused {
        /// The field that names it.
        field: String,
        /// What is wrong, and what to do; never a value.
        message: String,
    },
    /// The user's Secrets were not seen yet.
    Unknown,
}

/// A certificate without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// DNS names, sorted.
    pub dns_names: Vec<String>,
}

/// A warning event of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Object it is about, as `Kind/name`.
    pub about: String,
    /// uid of that object, if the warning says it: events outlive what they are about.
    pub uid: Option<String>,
    /// Reason, as Kubernetes writes it.
    pub reason: String,
    /// Message.
    pub message: String,
    /// When it was last seen.
    pub at: Timestamp,
}
