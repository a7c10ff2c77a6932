//! A server made of values, for tests of what is asked of it and in which order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::GtidSet;
use mainstay_core::action::Recorded;
use mainstay_core::observed::Mysqld;
use mainstay_core::rules::InstanceName;
use mainstay_mysql::accounts::{self, Account, AccountName, Credentials, Restoration, StoredHash, SystemAccounts, Way};
use mainstay_mysql::port::{CloneProgress, FirstApplication, SharedPassword};
use mainstay_mysql::{
    AccountLock, Channel, CloneDonor, DumpThread, LockHolder, Mysql, MysqlError, Receiver, ReplicationSource,
    SemiSyncState, ServerState, Sessions, Version,
};
use secrecy::SecretString;

use crate::config::{Config, Paths, Peers, Ports, Programs, Stores, Timing};
use crate::server::{CloneOrder, Server};
use crate::shared::Process;
use crate::shutdown::ReadOnly;

/// server_uuid of the fake.
pub(crate) const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

pub(crate) fn set(intervals: &str) -> GtidSet {
    format!("{UUID}:{intervals}").parse().unwrap()
}

/// When the primary of these tests was recorded.
pub(crate) fn recorded() -> Recorded {
    Recorded {
        epoch: 1,
        since: "2026-11-30T06:00:00Z".parse().unwrap(),
    }
}

pub(crate) fn config(root: &Path) -> Config {
    Config {
        namespace: "prod".to_owned(),
        cluster: "shop".to_owned(),
        instance: InstanceName("shop-1".to_owned()),
        ordinal: 1,
        host: "shop-1.shop-instances.prod.svc".to_owned(),
        pod_ip: "10.0.0.7".parse().unwrap(),
        server_id_base: 1200,
        config_hash: "abc".to_owned(),
        recovery: None,
        paths: Paths {
            volume: root.join("volume"),
            run: root.join("run"),
            config_file: root.join("config/my.cnf"),
            system_secret: root.join("system"),
            root_secret: root.join("root"),
            app_secret: root.join("app"),
            server_tls: root.join("server-tls"),
            client_ca: root.join("client-ca"),
            recovery: root.join("recovery"),
            store: root.join("store"),
        },
        ports: Ports {
            mysql: 3306,
            admin: 33062,
            grpc: 8443,
            http: 8080,
        },
        mysql_bind: "*".to_owned(),
        bind: "::".parse().unwrap(),
        peers: Peers::Names,
        api_server: None,
        programs: Programs {
            mysqld: vec!["mysqld".into()],
            mysqld_args: vec![],
            tzinfo: vec!["mysql_tzinfo_to_sql".into()],
            zoneinfo: "/usr/share/zoneinfo".into(),
        },
        timing: Timing::default(),
        stores: Stores::S3,
        adopt_orphans: false,
    }
}

pub(crate) fn replica() -> ServerState {
    ServerState {
        super_read_only: true,
        read_only: true,
        server_uuid: UUID.to_owned(),
        channel: Some(Channel {
            host: "localhost".to_owned(),
            port: 33062,
            auto_position: true,
            receiver: Receiver::On,
            applier_running: true,
            last_heard: Some(Duration::from_millis(100)),
            last_noted: Some(Duration::from_millis(100)),
            ..Channel::default()
        }),
        ..ServerState::default()
    }
}

/// An open primary with this many connected members, from ordinal 2 on.
pub(crate) fn primary(members: u32) -> ServerState {
    ServerState {
        server_uuid: UUID.to_owned(),
        event_scheduler: true,
        semi_sync: SemiSyncState {
            enabled: true,
            on: true,
            wait_for: 1,
            clients: members,
            waiters: 0,
        },
        dump_threads: (2..2 + members).map(dump_thread).collect(),
        executed: set("1-9"),
        ..ServerState::default()
    }
}

/// The session of a semi-synchronous replica.
pub(crate) fn dump_thread(ordinal: u32) -> DumpThread {
    DumpThread {
        connection: 100 + u64::from(ordinal),
        user: format!("mainstay_repl_{ordinal}"),
        ordinal: Some(ordinal),
        semi_sync: true,
    }
}

/// Mainstay's accounts as an init file makes them. Nobody knows the form of their hashes, so nobody judges them.
fn sound_accounts() -> SystemAccounts {
    let account = |user: &str, host: &str, tls: &str, privileges: &[&str]| {
        let account = Account {
            plugin: "caching_sha2_password".to_owned(),
            tls: tls.to_owned(),
            hashes: vec![StoredHash("a hash".to_owned())],
            privileges: privileges.iter().map(|name| (*name).to_owned()).collect(),
            ..Account::default()
        };
        (AccountName::new(user, host), account)
    };
    let admin = ["SERVICE_CONNECTION_ADMIN ON *.*", "CONNECTION_ADMIN ON *.*"];
    let replication = [&["REPLICATION SLAVE ON *.*"], &admin[..]].concat();
    let clone = [&["BACKUP_ADMIN ON *.*"], &admin[..]].concat();
    let monitor = [
        "PROCESS ON *.*",
        "REPLICATION CLIENT ON *.*",
        "SELECT ON performance_schema.*",
    ];
    let replication = (0..7).map(|ordinal| account(&accounts::replication_user(ordinal), "%", "ANY", &replication));
    let others = [
        account(accounts::MANAGER, "localhost", "", &[]),
        account(accounts::MONITOR, "localhost", "", &monitor),
        account(accounts::CLONE, "%", "ANY", &clone),
    ];
    SystemAccounts {
        accounts: replication.chain(others).collect(),
        own_grants: vec!["GRANT SUPER ON *.* TO `mainstay`@`localhost`".to_owned()],
    }
}

/// What becomes of the files when the binlogs before this one are purged.
pub(crate) type Purging = Box<dyn Fn(&str) + Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct FakeMysql {
    state: Mutex<ServerState>,
    locks: Mutex<Vec<AccountLock>>,
    calls: Mutex<Vec<String>>,
    hanging: AtomicBool,
    silent: AtomicBool,
    unsettled: AtomicBool,
    stays_writable: AtomicBool,
    locks_fail: AtomicBool,
    /// Accounts that are not there.
    missing: Mutex<BTreeSet<AccountName>>,
    /// Accounts that may not log in, but for those of replication.
    locked: Mutex<BTreeSet<AccountName>>,
    /// How long a look takes.
    slowness: Mutex<Duration>,
    /// Who holds a lock on everything.
    lock_holder: Mutex<Option<LockHolder>>,
    /// Replicas that connect when semi-sync is switched on.
    joining: Mutex<Vec<DumpThread>>,
    /// What a purge up to a binlog does.
    pub(crate) when_purged: Mutex<Option<Purging>>,
}

impl FakeMysql {
    pub(crate) fn new(state: ServerState) -> Self {
        let locks = (0..7).map(|ordinal| AccountLock { ordinal, locked: false }).collect();
        Self {
            state: Mutex::new(state),
            locks: Mutex::new(locks),
            ..Self::default()
        }
    }

    /// What was asked, but for looks.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    /// Commits do not end any more, so `super_read_only` does not return.
    pub(crate) fn hang_commits(&self) {
        self.hanging.store(true, Ordering::SeqCst);
    }

    /// It does not answer any more.
    pub(crate) fn fall_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }

    /// A statement that was given up does not end.
    pub(crate) fn never_settle(&self) {
        self.unsettled.store(true, Ordering::SeqCst);
    }

    /// It says that it is read-only now, and is not.
    pub(crate) fn stay_writable(&self) {
        self.stays_writable.store(true, Ordering::SeqCst);
    }

    /// Looks take so long from now on.
    pub(crate) fn answer_after(&self, slowness: Duration) {
        *self.slowness.lock().unwrap() = slowness;
    }

    /// Accounts cannot be locked or unlocked, or can again.
    pub(crate) fn fail_locks(&self, fail: bool) {
        self.locks_fail.store(fail, Ordering::SeqCst);
    }

    pub(crate) fn lock_account(&self, ordinal: u32) {
        for lock in self
            .locks
            .lock()
            .unwrap()
            .iter_mut()
            .filter(|lock| lock.ordinal == ordinal)
        {
            lock.locked = true;
        }
    }

    /// Somebody drops an account.
    pub(crate) fn drop_account(&self, user: &str, host: &str) {
        if let Some(ordinal) = accounts::replication_ordinal(user) {
            self.locks.lock().unwrap().retain(|lock| lock.ordinal != ordinal);
        }
        self.missing.lock().unwrap().insert(AccountName::new(user, host));
    }

    /// Somebody locks an account.
    pub(crate) fn lock(&self, user: &str, host: &str) {
        self.locked.lock().unwrap().insert(AccountName::new(user, host));
    }

    /// Whether everything is there, and everybody may log in.
    pub(crate) fn accounts_are_sound(&self) -> bool {
        self.missing.lock().unwrap().is_empty() && self.locked.lock().unwrap().is_empty()
    }

    pub(crate) fn join_when_semi_sync(&self, threads: Vec<DumpThread>) {
        *self.joining.lock().unwrap() = threads;
    }

    /// This session locks everything, or nobody does.
    pub(crate) fn lock_everything(&self, holder: Option<LockHolder>) {
        self.change(|state| state.locked_out = u32::from(holder.is_some()));
        *self.lock_holder.lock().unwrap() = holder;
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.state.lock().unwrap());
    }

    fn call(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }

    fn with_channel(&self, change: impl FnOnce(&mut Channel)) {
        self.change(|state| change(state.channel.get_or_insert_default()));
    }
}

fn timed_out(what: &'static str, limit: Duration) -> MysqlError {
    MysqlError::Timeout { what, limit }
}

#[async_trait]
impl Mysql for FakeMysql {
    fn server_started(&self, _version: Version) {}

    async fn close_connections(&self) {
        self.call("close_connections");
    }

    fn offer_password(&self, _password: SecretString) {}

    async fn read_state(&self) -> Result<ServerState, MysqlError> {
        if self.silent.load(Ordering::SeqCst) {
            return Err(timed_out("read", Duration::ZERO));
        }
        let slowness = *self.slowness.lock().unwrap();
        if !slowness.is_zero() {
            tokio::time::sleep(slowness).await;
        }
        Ok(self.state.lock().unwrap().clone())
    }

    async fn global_lock_holder(&self) -> Result<Option<LockHolder>, MysqlError> {
        self.call("global_lock_holder");
        Ok(self.lock_holder.lock().unwrap().clone())
    }

    async fn read_executed(&self, _limit: Duration) -> Result<GtidSet, MysqlError> {
        Ok(self.read_state().await?.executed)
    }

    async fn settle(&self, limit: Duration) -> Result<(), MysqlError> {
        if self.unsettled.load(Ordering::SeqCst) {
            return Err(timed_out("end a statement", limit));
        }
        Ok(())
    }

    async fn set_super_read_only(&self, limit: Duration) -> Result<(), MysqlError> {
        self.call("set_super_read_only");
        if self.hanging.load(Ordering::SeqCst) {
            tokio::time::sleep(limit).await;
            return Err(timed_out("make mysqld read-only", limit));
        }
        if !self.stays_writable.load(Ordering::SeqCst) {
            self.change(|state| {
                state.super_read_only = true;
                state.read_only = true;
            });
        }
        Ok(())
    }

    async fn leave_super_read_only(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("leave_super_read_only");
        self.change(|state| state.super_read_only = false);
        Ok(())
    }

    async fn open_writes(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("open_writes");
        self.change(|state| {
            state.super_read_only = false;
            state.read_only = false;
            state.offline = false;
        });
        Ok(())
    }

    async fn serve_clients(&self, serve: bool, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("serve_clients {serve}"));
        self.change(|state| state.offline = !serve);
        Ok(())
    }

    async fn set_source(&self, source: &ReplicationSource, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("set_source {}:{}", source.host, source.port));
        self.change(|state| {
            state.channel = Some(Channel {
                host: source.host.clone(),
                port: source.port,
                auto_position: true,
                ..Channel::default()
            });
        });
        Ok(())
    }

    async fn change_source(&self, source: &ReplicationSource, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("change_source {}:{}", source.host, source.port));
        self.with_channel(|channel| {
            channel.host.clone_from(&source.host);
            channel.port = source.port;
        });
        Ok(())
    }

    async fn start_receiver(&self, ordinal: u32, _password: &SecretString, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("start_receiver {ordinal}"));
        self.with_channel(|channel| channel.receiver = Receiver::On);
        Ok(())
    }

    async fn stop_receiver(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("stop_receiver");
        self.with_channel(|channel| channel.receiver = Receiver::Off);
        Ok(())
    }

    async fn start_applier(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("start_applier");
        self.change(|state| {
            if let Some(channel) = &mut state.channel {
                channel.applier_running = true;
                state.executed = state.executed.union(&channel.received);
            }
        });
        Ok(())
    }

    async fn forget_source(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("forget_source");
        self.change(|state| state.channel = None);
        Ok(())
    }

    async fn make_durable(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("make_durable");
        self.change(|state| state.not_durable.clear());
        Ok(())
    }

    async fn semi_sync_on(&self, acks: u32, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("semi_sync_on {acks}"));
        let joining = std::mem::take(&mut *self.joining.lock().unwrap());
        self.change(|state| {
            state.semi_sync.enabled = true;
            state.semi_sync.on = true;
            state.semi_sync.wait_for = acks;
            state.semi_sync.clients += u32::try_from(joining.len()).unwrap();
            state.dump_threads.extend(joining);
        });
        Ok(())
    }

    async fn semi_sync_off(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("semi_sync_off");
        self.change(|state| state.semi_sync = SemiSyncState::default());
        Ok(())
    }

    async fn set_acks(&self, acks: u32, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("set_acks {acks}"));
        self.change(|state| state.semi_sync.wait_for = acks);
        Ok(())
    }

    async fn account_locks(&self, _limit: Duration) -> Result<Vec<AccountLock>, MysqlError> {
        Ok(self.locks.lock().unwrap().clone())
    }

    async fn set_account_locks(&self, locks: &[AccountLock], limit: Duration) -> Result<(), MysqlError> {
        if self.locks_fail.load(Ordering::SeqCst) {
            return Err(timed_out("lock or unlock replication accounts", limit));
        }
        for lock in locks {
            self.call(format!(
                "{} {}",
                if lock.locked { "lock" } else { "unlock" },
                lock.ordinal
            ));
            for own in self
                .locks
                .lock()
                .unwrap()
                .iter_mut()
                .filter(|own| own.ordinal == lock.ordinal)
            {
                own.locked = lock.locked;
            }
        }
        Ok(())
    }

    async fn system_accounts(&self, _limit: Duration) -> Result<SystemAccounts, MysqlError> {
        let missing = self.missing.lock().unwrap().clone();
        let mut seen = sound_accounts();
        seen.accounts.retain(|name, _account| !missing.contains(name));
        for (name, account) in &mut seen.accounts {
            account.locked = self.locked.lock().unwrap().contains(name);
        }
        for lock in self.locks.lock().unwrap().iter() {
            let name = AccountName::new(&accounts::replication_user(lock.ordinal), "%");
            if let Some(account) = seen.accounts.get_mut(&name) {
                account.locked = lock.locked;
            }
        }
        Ok(seen)
    }

    async fn restore_accounts(&self, restoration: &Restoration, limit: Duration) -> Result<(), MysqlError> {
        let names: Vec<_> = restoration
            .findings
            .iter()
            .map(|finding| finding.account.user.clone())
            .collect();
        self.call(format!("restore {:?} {}", restoration.way, names.join(" ")));
        if self.locks_fail.load(Ordering::SeqCst) {
            return Err(timed_out("restore accounts", limit));
        }
        for finding in &restoration.findings {
            self.missing.lock().unwrap().remove(&finding.account);
            self.locked.lock().unwrap().remove(&finding.account);
            let ordinal = accounts::replication_ordinal(&finding.account.user);
            let mut locks = self.locks.lock().unwrap();
            if let Some(ordinal) = ordinal.filter(|ordinal| locks.iter().all(|lock| lock.ordinal != *ordinal)) {
                let locked = restoration.way == Way::Primary;
                locks.push(AccountLock { ordinal, locked });
            }
        }
        Ok(())
    }

    async fn end_sessions(&self, connections: &[u64], _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("end_sessions {connections:?}"));
        self.change(|state| {
            let before = state.dump_threads.len();
            state
                .dump_threads
                .retain(|thread| !connections.contains(&thread.connection));
            let ended = u32::try_from(before - state.dump_threads.len()).unwrap();
            state.semi_sync.clients = state.semi_sync.clients.saturating_sub(ended);
        });
        Ok(())
    }

    async fn end_client_sessions(&self, which: Sessions, _limit: Duration) -> Result<usize, MysqlError> {
        self.call(match which {
            Sessions::Clients => "end_client_sessions",
            Sessions::Remote => "end_remote_sessions",
            Sessions::ClientsAndReplicas => "end_all_sessions",
        });
        Ok(0)
    }

    async fn mark(&self, limit: Duration) -> Result<GtidSet, MysqlError> {
        self.call("mark");
        if self.hanging.load(Ordering::SeqCst) {
            tokio::time::sleep(limit).await;
            return Err(timed_out("commit a marker transaction", limit));
        }
        Ok(self.state.lock().unwrap().executed.clone())
    }

    async fn purge_binlogs(&self, to: &str, limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("purge_binlogs {to}"));
        if self.hanging.load(Ordering::SeqCst) {
            tokio::time::sleep(limit).await;
            return Err(timed_out("delete binlogs", limit));
        }
        let then = self.when_purged.lock().unwrap();
        if let Some(then) = then.as_ref() {
            then(to);
        }
        Ok(())
    }

    async fn clone_from(&self, _donor: &CloneDonor) -> Result<(), MysqlError> {
        self.call("clone_from");
        Ok(())
    }

    async fn clone_progress(&self) -> Result<CloneProgress, MysqlError> {
        Ok(CloneProgress::default())
    }

    async fn set_event_scheduler(&self, on: bool, _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("set_event_scheduler {on}"));
        Ok(())
    }

    async fn enable_events_of(&self, server_ids: &[u32], _limit: Duration) -> Result<usize, MysqlError> {
        self.call(format!("enable_events_of {server_ids:?}"));
        Ok(0)
    }

    async fn note_disabled_events(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("note_disabled_events");
        Ok(())
    }

    async fn first_accounts_made(&self, _limit: Duration) -> Result<bool, MysqlError> {
        Ok(false)
    }

    async fn create_first_accounts(
        &self,
        _root: Option<&SecretString>,
        _application: Option<&FirstApplication>,
        _limit: Duration,
    ) -> Result<bool, MysqlError> {
        self.call("create_first_accounts");
        Ok(true)
    }

    async fn can_log_in(&self, _user: &str, _password: &SecretString, _limit: Duration) -> Result<bool, MysqlError> {
        Ok(true)
    }

    async fn set_shared_passwords(&self, accounts: &[SharedPassword], _limit: Duration) -> Result<(), MysqlError> {
        self.call(format!("set_shared_passwords {}", accounts.len()));
        Ok(())
    }

    async fn set_local_passwords(&self, _credentials: &Credentials, _limit: Duration) -> Result<(), MysqlError> {
        self.call("set_local_passwords");
        Ok(())
    }

    async fn reload_tls(&self, _limit: Duration) -> Result<(), MysqlError> {
        self.call("reload_tls");
        Ok(())
    }
}

/// A process around the fake: a kill makes it what a restart makes of a server.
#[derive(Default)]
pub(crate) struct FakeServer {
    pub(crate) mysql: Arc<FakeMysql>,
    /// It answers.
    pub(crate) running: AtomicBool,
    /// Killed, it does not end: it waits for its disk.
    pub(crate) does_not_end: AtomicBool,
    /// Why it was killed.
    pub(crate) reasons: Mutex<Vec<String>>,
    /// What else happens then.
    pub(crate) when_killed: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl FakeServer {
    fn restart(&self) {
        self.mysql.hanging.store(false, Ordering::SeqCst);
        self.mysql.silent.store(false, Ordering::SeqCst);
        self.mysql.unsettled.store(false, Ordering::SeqCst);
        self.mysql.stays_writable.store(false, Ordering::SeqCst);
        self.mysql.change(|state| {
            state.offline = true;
            state.super_read_only = true;
            state.read_only = true;
            state.semi_sync = SemiSyncState::default();
            state.dump_threads.clear();
            if let Some(channel) = &mut state.channel {
                channel.receiver = Receiver::Off;
                channel.applier_running = false;
            }
        });
    }
}

#[async_trait]
impl Server for FakeServer {
    fn process(&self) -> Process {
        let phase = if self.running.load(Ordering::SeqCst) {
            Mysqld::Running
        } else {
            Mysqld::Down
        };
        Process {
            phase,
            run: 1,
            message: String::new(),
            restarts: 0,
            failures: 0,
            refusals: 0,
            pid: None,
        }
    }

    async fn running(&self, limit: Duration) -> Result<(), String> {
        if self.running.load(Ordering::SeqCst) {
            return Ok(());
        }
        tokio::time::sleep(limit).await;
        Err("mysqld is down".to_owned())
    }

    async fn kill(&self, why: &str) {
        self.mysql.call("kill");
        self.reasons.lock().unwrap().push(why.to_owned());
        if self.does_not_end.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.restart();
        if let Some(then) = self.when_killed.lock().unwrap().as_ref() {
            then();
        }
    }

    async fn stop(&self, _proof: ReadOnly) {
        self.mysql.call("stop");
        self.restart();
    }

    async fn clone_from(&self, order: CloneOrder) -> Result<(), String> {
        let former = if order.keep_former { ", keep the former" } else { "" };
        self.mysql.call(format!("clone from {}{former}", order.origin));
        Ok(())
    }
}
