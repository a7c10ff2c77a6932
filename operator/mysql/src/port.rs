//! The port: what the instance manager asks of its server, in words of the failover rules.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::GtidSet;
use secrecy::SecretString;

use crate::accounts::{Credentials, Restoration, SystemAccounts};
use crate::error::MysqlError;
use crate::state::{LockHolder, ServerState};
use crate::version::Version;

/// Number of replication accounts: one an ordinal (decision B6), and 7 instances are the most.
pub const REPLICATION_ACCOUNTS: u32 = 7;

/// What no number of replicas can give: with this many acknowledgements to wait for, no commit ends.
pub const UNREACHABLE_ACKS: u32 = 65_535;

/// An instance to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationSource {
    /// Host name.
    pub host: String,
    /// Admin port.
    pub port: u16,
    /// File with the CA that signed the source's certificate.
    pub ca: String,
}

/// An instance to clone from.
#[derive(Clone, Debug)]
pub struct CloneDonor {
    /// Host name; MySQL takes no IPv6 literal here (decision A3).
    pub host: String,
    /// Admin port.
    pub port: u16,
    /// Password of the clone account.
    pub password: SecretString,
}

/// Whether the replication account of an ordinal may log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountLock {
    /// Ordinal of the instance whose account it is.
    pub ordinal: u32,
    /// It may not.
    pub locked: bool,
}

/// How far a clone is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneProgress {
    /// Bytes to copy, as estimated.
    pub estimate: u64,
    /// Bytes copied.
    pub copied: u64,
}

/// Sessions of others than Mainstay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Of clients.
    Clients,
    /// Of clients that came over the network.
    Remote,
    /// Of clients, and those that read the binlog, whoever they are.
    ClientsAndReplicas,
}

/// Database and user of the application that a cluster is created with.
#[derive(Clone, Debug)]
pub struct FirstApplication {
    /// Database.
    pub database: String,
    /// User.
    pub user: String,
    /// Password of the user.
    pub password: SecretString,
}

/// An account whose password is to be what a Secret says.
#[derive(Clone, Debug)]
pub struct SharedPassword {
    /// User.
    pub user: String,
    /// Host part of the account.
    pub host: String,
    /// Password.
    pub password: SecretString,
    /// The former password stays valid beside it: for accounts whose users learn of the change at different times.
    pub retain: bool,
}

/// A MySQL server.
///
/// Every operation ends within `limit`, or within a few seconds where none is given. One that timed out may still take
/// effect later, until [`Mysql::settle`] has returned.
#[async_trait]
pub trait Mysql: Send + Sync {
    /// Tells that a new server process was started: connections to the former one are worthless.
    fn server_started(&self, version: Version);

    /// Closes all connections of its own: a server that is asked to end waits for them.
    async fn close_connections(&self);

    /// The password with which to log in from now on; the one that worked last is tried after it.
    fn offer_password(&self, password: SecretString);

    /// Reads everything that a report needs, flags before sets.
    async fn read_state(&self) -> Result<ServerState, MysqlError>;

    /// Reads gtid_executed alone.
    async fn read_executed(&self, limit: Duration) -> Result<GtidSet, MysqlError>;

    /// Who holds a lock on everything, or waits for one in front of all who write; `None` when the server does not know, or
    /// nobody does. It looks at every lock there is: for a server on which somebody waits for such a lock.
    async fn global_lock_holder(&self) -> Result<Option<LockHolder>, MysqlError>;

    /// Ends the sessions of statements that were given up, and waits until they are gone: after that, none of them can
    /// take effect any more.
    async fn settle(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Refuses all writes but the applier's. Returns only when no commit is in flight, so it does not return while one
    /// waits for an acknowledgement that does not come, whatever the variable says meanwhile.
    async fn set_super_read_only(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Leaves `super_read_only`, not `read_only`: only privileged clients may write. For changing account locks.
    async fn leave_super_read_only(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Accepts writes, and clients.
    async fn open_writes(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Lets clients connect, or nobody but Mainstay's accounts and those with the privilege CONNECTION_ADMIN: the sessions
    /// of all others end at once.
    async fn serve_clients(&self, serve: bool, limit: Duration) -> Result<(), MysqlError>;

    /// Sets the source, with both replication threads stopped. This DROPS the relay log (decision A5).
    async fn set_source(&self, source: &ReplicationSource, limit: Duration) -> Result<(), MysqlError>;

    /// Changes the source of a channel with auto-positioning whose receiver is stopped and whose applier runs on. The relay
    /// log stays; a transaction of which only a part was received is received again from the new source. A tenth of the time
    /// of [`Mysql::set_source`], and it cannot hang on such a part.
    async fn change_source(&self, source: &ReplicationSource, limit: Duration) -> Result<(), MysqlError>;

    /// Starts receiving, logged in as the replication account of `ordinal`. The password is kept by the server in memory
    /// only: not in its tables, so not in clones and backups.
    async fn start_receiver(&self, ordinal: u32, password: &SecretString, limit: Duration) -> Result<(), MysqlError>;

    /// Stops receiving. The relay log stays.
    async fn stop_receiver(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Starts applying the relay log.
    async fn start_applier(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Stops both threads and forgets the source. This DROPS the relay log.
    async fn forget_source(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Sets what every server is started with and an acknowledgement rests on.
    async fn make_durable(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Lets commits wait for `acks` acknowledgements, for ever if need be.
    async fn semi_sync_on(&self, acks: u32, limit: Duration) -> Result<(), MysqlError>;

    /// Lets no commit wait. Releases those that do: only on a server where none can be, or with k = 0.
    async fn semi_sync_off(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Acknowledgements that a commit waits for, semi-sync being on.
    async fn set_acks(&self, acks: u32, limit: Duration) -> Result<(), MysqlError>;

    /// Which replication accounts are locked.
    async fn account_locks(&self, limit: Duration) -> Result<Vec<AccountLock>, MysqlError>;

    /// Locks and unlocks replication accounts, outside of the binlog.
    async fn set_account_locks(&self, locks: &[AccountLock], limit: Duration) -> Result<(), MysqlError>;

    /// Mainstay's own accounts as they are. A statement about accounts that waits for an acknowledgement holds it up.
    async fn system_accounts(&self, limit: Duration) -> Result<SystemAccounts, MysqlError>;

    /// Makes accounts again what an init file makes them.
    async fn restore_accounts(&self, restoration: &Restoration, limit: Duration) -> Result<(), MysqlError>;

    /// Kills sessions and waits until they are gone.
    async fn end_sessions(&self, connections: &[u64], limit: Duration) -> Result<(), MysqlError>;

    /// Kills sessions of others than Mainstay; their number. It does not wait until they are gone.
    async fn end_client_sessions(&self, which: Sessions, limit: Duration) -> Result<usize, MysqlError>;

    /// Commits a transaction that changes nothing, and gives gtid_executed after it: everything that was in the binlog
    /// before is in there (rule 1 b).
    async fn mark(&self, limit: Duration) -> Result<GtidSet, MysqlError>;

    /// Deletes the binlogs that come before this one, as far as nobody reads them. It waits for room on a volume without any,
    /// because it writes before it deletes. One that was given up deletes later, and harms nothing: what is to be deleted does
    /// not change.
    async fn purge_binlogs(&self, to: &str, limit: Duration) -> Result<(), MysqlError>;

    /// Copies the data of `donor` over this server's, which ends with exit code 16. Returns when the server ends.
    async fn clone_from(&self, donor: &CloneDonor) -> Result<(), MysqlError>;

    /// How far the clone is that runs now.
    async fn clone_progress(&self) -> Result<CloneProgress, MysqlError>;

    /// Runs events, or not.
    async fn set_event_scheduler(&self, on: bool, limit: Duration) -> Result<(), MysqlError>;

    /// Enables the events that are disabled because they came from one of these servers (decision A18), except those that
    /// were disabled on purpose, as far as [`Mysql::note_disabled_events`] told; their number.
    async fn enable_events_of(&self, server_ids: &[u32], limit: Duration) -> Result<usize, MysqlError>;

    /// Records which events are disabled on purpose, for the next primary, if that changed since it was recorded.
    async fn note_disabled_events(&self, limit: Duration) -> Result<(), MysqlError>;

    /// Whether the account of the DBA and the application's database and user were made: a note in the data says so.
    async fn first_accounts_made(&self, limit: Duration) -> Result<bool, MysqlError>;

    /// Creates the account of the DBA and the application's database and user, once in the life of the data: what was
    /// dropped later is not made again. Whether it was done now.
    async fn create_first_accounts(
        &self,
        root: Option<&SecretString>,
        application: Option<&FirstApplication>,
        limit: Duration,
    ) -> Result<bool, MysqlError>;

    /// Whether a client can log in like this over the socket.
    async fn can_log_in(&self, user: &str, password: &SecretString, limit: Duration) -> Result<bool, MysqlError>;

    /// Sets passwords through the binlog, where the accounts exist.
    async fn set_shared_passwords(&self, accounts: &[SharedPassword], limit: Duration) -> Result<(), MysqlError>;

    /// Sets the passwords of Mainstay's own local accounts, outside of the binlog.
    async fn set_local_passwords(&self, credentials: &Credentials, limit: Duration) -> Result<(), MysqlError>;

    /// Reads the certificate files again.
    async fn reload_tls(&self, limit: Duration) -> Result<(), MysqlError>;
}
