//! What a server says about itself, as values.

use std::time::Duration;

use mainstay_core::GtidSet;

/// One reading of a server. Flags were read before sets: whoever sees it read-only and not receiving here has the sets
/// that were final then.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of MySQL's")]
pub struct ServerState {
    /// Nobody but the replication applier writes. (With `read_only` on before, it may say so while a statement that switches
    /// it on still waits for a commit: who needs to be sure switches it on himself.)
    pub super_read_only: bool,
    /// Nobody without a special privilege writes.
    pub read_only: bool,
    /// server_uuid.
    pub server_uuid: String,
    /// server_id.
    pub server_id: u32,
    /// Only privileged clients may connect (`offline_mode`).
    pub offline: bool,
    /// Sessions whose commit is on its way: in the binlog's or the engine's hands, or waiting for acknowledgements. One that
    /// waits for a lock is not among them.
    pub committing: u32,
    /// Sessions that wait for a lock on everything (`FLUSH TABLES WITH READ LOCK`): they can neither write nor commit.
    pub locked_out: u32,
    /// Names of variables that somebody changed and on which an acknowledgement rests; empty as it should be.
    pub not_durable: String,
    /// Events run.
    pub event_scheduler: bool,
    /// The replication channel; absent when the server never followed anybody, or forgot it.
    pub channel: Option<Channel>,
    /// Semi-synchronous replication to its replicas.
    pub semi_sync: SemiSyncState,
    /// Sessions that read the binlog.
    pub dump_threads: Vec<DumpThread>,
    /// Sessions of instances that are being cloned from this one.
    pub clones: u32,
    /// gtid_executed.
    pub executed: GtidSet,
    /// gtid_purged.
    pub purged: GtidSet,
    /// Counters for metrics.
    pub counters: Counters,
    /// Connections allowed on the client port.
    pub max_connections: u32,
}

impl ServerState {
    /// Complete transactions of the relay log; empty without a channel.
    #[must_use]
    pub fn received(&self) -> GtidSet {
        self.channel
            .as_ref()
            .map(|channel| channel.received.clone())
            .unwrap_or_default()
    }

    /// Every received transaction is applied: the relay log may be dropped (decision A5).
    #[must_use]
    pub fn fully_applied(&self) -> bool {
        self.channel
            .as_ref()
            .is_none_or(|channel| self.executed.contains(&channel.received))
    }

    /// The receiver runs, or tries to.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.channel
            .as_ref()
            .is_some_and(|channel| channel.receiver != Receiver::Off)
    }

    /// A commit waits for acknowledgements that the connected replicas cannot give: it will not end (rule 6).
    #[must_use]
    pub const fn commit_cannot_end(&self) -> bool {
        self.semi_sync.on && self.semi_sync.waiters > 0 && self.semi_sync.clients < self.semi_sync.wait_for
    }

    /// Delay between commit on the source and apply here; `None` when it is not known. By the clocks of two machines.
    #[must_use]
    pub fn lag(&self) -> Option<Duration> {
        let channel = self.channel.as_ref()?;
        if channel.receiver != Receiver::On || !channel.applier_running {
            return None;
        }
        let applying = if self.executed.contains(&channel.received) {
            Duration::ZERO
        } else {
            channel.applying_for?
        };
        // All that was received may be applied while much was not received yet.
        Some(applying.max(channel.receiving_for.unwrap_or_default()))
    }
}

/// The default replication channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Channel {
    /// Host of the source.
    pub host: String,
    /// Port of the source.
    pub port: u16,
    /// It asks its source for what it lacks, whatever files that is in.
    pub auto_position: bool,
    /// State of the receiver thread.
    pub receiver: Receiver,
    /// The applier runs.
    pub applier_running: bool,
    /// Complete transactions of the relay log.
    pub received: GtidSet,
    /// Age of what came last from the source, as far as the server tells; `None` when nothing came. Whoever compares
    /// `bytes_received` of two readings knows better.
    pub last_heard: Option<Duration>,
    /// Age of the last heartbeat, or of the end of the last transaction. While a transaction is being received there is
    /// neither.
    pub last_noted: Option<Duration>,
    /// What the receiver thread has received since it began; `None` when it does not run.
    pub bytes_received: Option<u64>,
    /// The receiver is writing to the relay log: it hears nothing meanwhile, however long its disk takes.
    pub writing: bool,
    /// Age of the commit on the source of the oldest transaction that is being applied.
    pub applying_for: Option<Duration>,
    /// Time from the source's commit of the last transaction that was received until it was; nothing as soon as the source
    /// has had nothing to send since, and said so by a heartbeat.
    pub receiving_for: Option<Duration>,
    /// Last error of the receiver.
    pub receiver_error: Option<ServerMessage>,
    /// Last error of the applier.
    pub applier_error: Option<ServerMessage>,
    /// For how long the applier has not got beyond its error. The server does not tell: whoever compares two readings does.
    pub failing_for: Option<Duration>,
}

/// State of the receiver thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiver {
    /// It does not run.
    #[default]
    Off,
    /// It tries to connect.
    Connecting,
    /// It is connected.
    On,
}

/// An error that the server keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerMessage {
    /// MySQL's error number.
    pub code: u32,
    /// Message.
    pub text: String,
}

/// Semi-synchronous replication to the server's replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SemiSyncState {
    /// It is switched on.
    pub enabled: bool,
    /// Commits wait for acknowledgements.
    pub on: bool,
    /// Acknowledgements that a commit waits for.
    pub wait_for: u32,
    /// Replicas that are connected as semi-synchronous clients.
    pub clients: u32,
    /// Sessions that wait for an acknowledgement (one for each group of commits).
    pub waiters: u32,
}

/// A session that reads the binlog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpThread {
    /// Connection id.
    pub connection: u64,
    /// User who logged in.
    pub user: String,
    /// Ordinal of the instance, when the user is one of Mainstay's replication accounts.
    pub ordinal: Option<u32>,
    /// It announced that it acknowledges.
    pub semi_sync: bool,
}

/// A session that holds a lock on everything, or waits for it in front of all who write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Connection id, as `KILL` takes it.
    pub connection: u64,
    /// User who logged in.
    pub user: String,
    /// Host that the user came from.
    pub host: String,
}

/// Counters of the server, for metrics only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Seconds since it started.
    pub uptime: u64,
    /// Statements.
    pub queries: u64,
    /// Statements that took longer than long_query_time.
    pub slow_queries: u64,
    /// Connections.
    pub threads_connected: u32,
    /// Connections that do something.
    pub threads_running: u32,
    /// Connections that were refused or broke while they were made.
    pub aborted_connects: u64,
    /// Bytes received from clients.
    pub bytes_received: u64,
    /// Bytes sent to clients.
    pub bytes_sent: u64,
    /// Commits that were acknowledged.
    pub acknowledged: u64,
}
