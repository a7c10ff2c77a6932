//! A running instance: the manager and its mysqld, as a model. Everything in here dies with the process.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::observed::{Disk, InstanceReport, Mysqld, Replication, SemiSync};
use mainstay_core::rules::{Incarnation, InstanceName, Trouble};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::data::{DataDir, Volume};

/// How long an initialisation takes.
pub const INITIALISE: Duration = Duration::from_secs(2);
/// How long mysqld takes until it answers.
pub const START: Duration = Duration::from_millis(800);
/// How long a recovery takes.
pub const RECOVER: Duration = Duration::from_secs(4);
/// Between two looks for what data are recovered with.
pub const RETRY: Duration = Duration::from_secs(1);
/// How long a clone takes.
pub const CLONE: Duration = Duration::from_secs(3);
/// A receiver without a heartbeat for this long gives its connection up.
pub const NET_TIMEOUT: Duration = Duration::from_secs(2);
/// What an applier says that cannot apply a transaction.
const APPLIER_ERROR: &str = "Error 'Operation DROP USER failed for 'reader'@'%'' on query (MySQL error 1396)";
/// Wait count that nobody reaches, in force while the allow list changes.
pub const UNREACHABLE: u32 = 65_535;

/// What mysqld does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A data directory is being made.
    Initialising {
        /// Until when.
        until: Instant,
    },
    /// Started, not answering yet.
    Starting {
        /// Until when.
        until: Instant,
    },
    /// Answering.
    Running,
    /// A clone replaces the data directory.
    Cloning {
        /// Until when.
        until: Instant,
        /// Host of the donor.
        donor: String,
    },
    /// Does not start.
    Failed,
}

/// The replication channel of an instance.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Host that it follows.
    pub host: String,
    /// Process that it is connected to.
    pub connected: Option<u64>,
    /// Next transaction of the source's binlog to look at.
    pub position: usize,
    /// Last heartbeat or event.
    pub last_heard: Option<Instant>,
    /// What hinders it.
    pub error: String,
}

impl Channel {
    /// A channel that has to connect.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            connected: None,
            position: 0,
            last_heard: None,
            error: String::new(),
        }
    }
}

/// A commit that waits for acknowledgements.
#[derive(Debug)]
pub struct Waiting {
    /// Its place in the binlog.
    pub index: usize,
    /// Incarnations that acknowledged it.
    pub acks: BTreeSet<String>,
    /// Told when it is committed; dropped when mysqld ends.
    pub done: oneshot::Sender<()>,
}

impl Clone for Waiting {
    /// The same commit in another world, in which nobody waits for the answer.
    fn clone(&self) -> Self {
        Self {
            index: self.index,
            acks: self.acks.clone(),
            done: oneshot::channel().0,
        }
    }
}

/// A running instance.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of MySQL's, or of a test")]
pub struct Process {
    /// Number of the process: another start is another number.
    pub id: u64,
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub instance: String,
    /// Cluster that it belongs to.
    pub cluster: String,
    /// uid of its pod.
    pub pod_uid: String,
    /// Node that it runs on.
    pub node: String,
    /// Its address.
    pub ip: IpAddr,
    /// uid of its claim, which is the key of its volume.
    pub claim: String,
    /// Configuration that it was started with.
    pub config_hash: String,
    /// Version of the server.
    pub version: String,
    /// What mysqld does.
    pub phase: Phase,
    /// Starts of mysqld beyond the first.
    pub restarts: u32,
    /// Starts of mysqld in a row that failed because of what is in the data directory.
    pub refusals: u32,
    /// super_read_only is OFF.
    pub writable: bool,
    /// No new write is let in: super_read_only waits for those in flight.
    pub closing: bool,
    /// Wait count of the semi-synchronous source; absent when it is off.
    pub semi_sync: Option<u32>,
    /// Its source.
    pub channel: Option<Channel>,
    /// Commits that wait.
    pub waiting: Vec<Waiting>,
    /// Set at the end of the last marker.
    pub marker: Option<GtidSet>,
    /// The applier threads run. Somebody may have stopped them; a fence or an attach starts them.
    pub applier_running: bool,
    /// The applier runs and gets nowhere: a long transaction, a lock, a slow disk.
    pub applier_stuck: bool,
    /// Since when the applier has not got beyond an error.
    pub failing_since: Option<Instant>,
    /// The pod is being stopped.
    pub leaving: bool,
    /// The wish for which it recovers its data; it makes no empty data directory then.
    pub recovery: Option<String>,
    /// When a recovery that did not succeed is tried again.
    pub retry: Option<Instant>,
    /// Pair of the newest command that ended.
    pub ended: (u64, u64),
    /// Number of messages so far.
    pub sequence: u64,
}

impl Process {
    /// mysqld answers.
    #[must_use]
    pub fn running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Reads may be served.
    #[must_use]
    pub fn ready(&self) -> bool {
        let follows = self.channel.as_ref().is_some_and(|c| c.connected.is_some()) && self.applier_running;
        self.running() && (self.writable || follows)
    }

    /// SIGKILL of mysqld; the manager starts it again.
    pub fn kill_mysqld(&mut self, now: Instant) {
        // One that makes its data directory has none to start on: it begins again.
        self.phase = match self.phase {
            Phase::Initialising { .. } => Phase::Initialising { until: now + START },
            _ => Phase::Starting { until: now + START },
        };
        self.restarts += 1;
        self.forget();
    }

    /// What a start of mysqld does not remember: it comes up read-only and detached.
    pub fn forget(&mut self) {
        self.writable = false;
        self.closing = false;
        self.semi_sync = None;
        self.channel = None;
        self.applier_running = true;
        self.failing_since = None;
        self.waiting.clear();
        self.marker = None;
    }

    /// When something happens by itself next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Initialising { until } | Phase::Starting { until } | Phase::Cloning { until, .. } => Some(*until),
            Phase::Failed => self.retry,
            Phase::Running => None,
        }
    }

    /// What the manager reports now. Sets are empty while mysqld does not answer.
    #[must_use]
    pub fn report(&self, volume: &Volume, now: Instant) -> InstanceReport {
        let data = volume.data.as_ref().filter(|_| self.running());
        let mut persisted = volume.state.clone();
        (persisted.epoch, persisted.seq) = self.ended;
        let executed = data.map(|d| d.executed.clone()).unwrap_or_default();
        let rows = data.map_or(0, |d| d.rows.len());
        InstanceReport {
            incarnation: Incarnation(volume.incarnation.clone()),
            list_uncertain: false,
            history_reset: volume.history_reset,
            archive: None,
            pristine: data.is_some() && volume.state.epoch == 0 && executed.is_empty(),
            persisted,
            mysqld: match &self.phase {
                Phase::Initialising { .. } => Mysqld::Initialising,
                Phase::Starting { .. } => Mysqld::Starting,
                Phase::Running => Mysqld::Running,
                Phase::Cloning { .. } => Mysqld::Cloning,
                Phase::Failed => Mysqld::Failed,
            },
            message: self.message().to_owned(),
            restarts: self.restarts,
            failures: self.refusals,
            refusals: self.refusals,
            unreadable: volume.suffers(Trouble::Unreadable),
            standstill: None,
            version: self.version.clone(),
            server_uuid: volume.data.as_ref().map(|d| d.server_uuid.clone()).unwrap_or_default(),
            writable: self.writable,
            executed,
            received: data.map(DataDir::received).unwrap_or_default(),
            purged: data.map(|d| d.purged.clone()).unwrap_or_default(),
            replication: self.replication(data.is_some(), now),
            semi_sync: SemiSync {
                on: self.semi_sync.is_some(),
                wait_for: self.semi_sync.unwrap_or(0),
                waiters: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
                acknowledgers: Vec::new(),
            },
            disk: Disk {
                used: (1 << 28) + 1024 * u64::try_from(rows).unwrap_or(0),
                size: 1 << 30,
                full_for: volume
                    .trouble
                    .filter(|(trouble, _)| *trouble == Trouble::Full)
                    .map(|(_, since)| now.saturating_duration_since(since)),
            },
            marker: self.marker.clone(),
            config_hash: self.config_hash.clone(),
            leaving: self.leaving,
            recovered: volume.recovered.clone().map(Box::new),
        }
    }

    fn message(&self) -> &'static str {
        match (&self.phase, &self.recovery) {
            (Phase::Failed, Some(_)) => "what data are recovered with is not mounted yet",
            (Phase::Initialising { .. }, Some(_)) => "recovering",
            _ => "",
        }
    }

    fn replication(&self, running: bool, now: Instant) -> Replication {
        let lag = if self.applier_stuck {
            Duration::from_mins(1)
        } else {
            Duration::ZERO
        };
        let failing = self.failing_since.filter(|_| running);
        let applier_error = failing.map_or_else(String::new, |_| APPLIER_ERROR.to_owned());
        let applier_failing = failing.map(|since| now.saturating_duration_since(since));
        let Some(channel) = &self.channel else {
            return Replication {
                applier_running: running && self.applier_running,
                applier_error,
                applier_failing,
                ..Replication::default()
            };
        };
        Replication {
            source_host: Some(channel.host.clone()),
            receiver_running: channel.connected.is_some(),
            applier_running: running && self.applier_running,
            last_heard: channel.last_heard.map(|at| now.saturating_duration_since(at)),
            lag: (channel.connected.is_some() && self.applier_running).then_some(lag),
            receiver_error: channel.error.clone(),
            applier_error,
            applier_failing,
        }
    }

    /// Its name in the rules.
    #[must_use]
    pub fn name(&self) -> InstanceName {
        InstanceName(self.instance.clone())
    }
}
