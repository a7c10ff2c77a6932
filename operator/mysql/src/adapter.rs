//! [`Mysql`] over the Unix socket of a server.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::GtidSet;
use mainstay_core::gtid::OWN_TAG;
use mysql_async::Row;
use secrecy::SecretString;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use crate::accounts::{self, Credentials, Restoration, SystemAccounts};
use crate::error::{Fault, MysqlError, is_denied};
use crate::notes::Notes;
use crate::port::{
    AccountLock, CloneDonor, CloneProgress, FirstApplication, Mysql, ReplicationSource, Sessions, SharedPassword,
};
use crate::read;
use crate::session::{Dialer, Late, Session, fault, kill_and_wait, left};
use crate::sql::{self, Statement};
use crate::state::{LockHolder, ServerState};
use crate::version::Version;

/// How long a look at the server may take.
const READ_LIMIT: Duration = Duration::from_secs(2);

/// Sessions that are ended at a time.
const KILLS: usize = 32;

/// How long one connection may take to be closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(200);

/// The adapter. Its connections are made at once and kept, so that they exist when clients have used up all others.
pub struct Adapter {
    dialer: Dialer,
    version: RwLock<Option<Version>>,
    /// Commands.
    control: Mutex<Session>,
    /// Looks.
    eye: Mutex<Session>,
    /// Writes through the binlog, which may wait for an acknowledgement.
    writer: Mutex<Session>,
    /// Highest number that was used for a marker in this server process.
    markers: Mutex<u64>,
}

impl Adapter {
    /// An adapter for the server at this socket; nothing is connected yet.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self {
            dialer: Dialer::new(socket),
            version: RwLock::new(None),
            control: Mutex::new(Session::new(Late::Harmful)),
            eye: Mutex::new(Session::new(Late::Harmless)),
            writer: Mutex::new(Session::new(Late::Harmless)),
            markers: Mutex::new(0),
        }
    }

    fn has_gtid_tags(&self) -> bool {
        self.version
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(Version::has_gtid_tags)
    }

    async fn run(
        &self,
        session: &Mutex<Session>,
        what: &'static str,
        limit: Duration,
        statements: &[Statement],
    ) -> Result<Vec<Vec<Row>>, MysqlError> {
        let deadline = Instant::now() + limit;
        let mut session = lock(session, what, limit).await?;
        session.run(&self.dialer, what, left(deadline), statements).await
    }

    async fn control(&self, what: &'static str, limit: Duration, statements: &[Statement]) -> Result<(), MysqlError> {
        self.run(&self.control, what, limit, statements)
            .await
            .map(|_results| ())
    }

    async fn control_plain(&self, what: &'static str, limit: Duration, text: &str) -> Result<(), MysqlError> {
        self.control(what, limit, &[Statement::plain(text)]).await
    }

    async fn rows(
        &self,
        session: &Mutex<Session>,
        what: &'static str,
        limit: Duration,
        statement: Statement,
    ) -> Result<Vec<Row>, MysqlError> {
        Ok(self
            .run(session, what, limit, &[statement])
            .await?
            .into_iter()
            .next()
            .unwrap_or_default())
    }

    /// Stops both replication threads. An applier that waits for the rest of a transaction would wait for a minute before it
    /// stops; without a receiver no rest comes, so it is killed, and rolls back. It must be gone before it is told to stop, or
    /// it waits in spite of having been killed.
    async fn stop_replica(&self, what: &'static str, limit: Duration) -> Result<(), MysqlError> {
        let deadline = Instant::now() + limit;
        self.control_plain(what, limit, sql::STOP_RECEIVER).await?;
        let waiting = Statement::plain(sql::WAITING_FOR_THE_REST);
        let rows = self.rows(&self.control, what, left(deadline), waiting).await?;
        let waiting = rows.iter().map(|row| read::column(row, 0));
        let waiting = waiting.collect::<Result<Vec<u64>, _>>()?;
        if !waiting.is_empty() {
            self.end_sessions(&waiting, left(deadline)).await?;
        }
        self.control_plain(what, left(deadline), sql::STOP_REPLICA).await
    }

    async fn notes(&self, limit: Duration) -> Result<Notes, MysqlError> {
        let rows = self
            .rows(
                &self.writer,
                "read Mainstay's notes",
                limit,
                Statement::plain(sql::READ_NOTES),
            )
            .await?;
        rows.first()
            .map_or_else(|| Ok(Notes::default()), |row| Ok(Notes::read(&read::text(row, 0)?)))
    }

    async fn executed(&self, limit: Duration) -> Result<(GtidSet, String), MysqlError> {
        const WHAT: &str = "read gtid_executed";
        let rows = self
            .rows(&self.eye, WHAT, limit, Statement::plain(sql::READ_EXECUTED))
            .await?;
        let row = rows.first().ok_or(MysqlError::Unexpected {
            what: WHAT,
            reason: "no row".to_owned(),
        })?;
        Ok((read::gtid_set(row, 0)?, read::text(row, 1)?))
    }

    /// Statements of a marker transaction. With tags its number must be one that was never used: MySQL skips a
    /// transaction whose GTID it has, and reports success.
    async fn marker(&self, limit: Duration) -> Result<Vec<Statement>, MysqlError> {
        if !self.has_gtid_tags() {
            return Ok(vec![Statement::plain(sql::MARK_UNTAGGED)]);
        }
        let mut last = self.markers.lock().await;
        let (executed, server_uuid) = self.executed(limit).await?;
        let number = executed.last_number(&server_uuid, OWN_TAG).unwrap_or(0).max(*last) + 1;
        *last = number;
        Ok(sql::mark_tagged(&server_uuid, OWN_TAG, number))
    }
}

async fn lock<'a>(
    session: &'a Mutex<Session>,
    what: &'static str,
    limit: Duration,
) -> Result<MutexGuard<'a, Session>, MysqlError> {
    timeout(limit, session.lock())
        .await
        .map_err(|_elapsed| MysqlError::Timeout { what, limit })
}

#[async_trait]
impl Mysql for Adapter {
    fn server_started(&self, version: Version) {
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Some(version);
        self.dialer.next_run();
    }

    async fn close_connections(&self) {
        for session in [&self.control, &self.eye, &self.writer] {
            // One that is in use, or does not answer, is left to the server.
            let close = async { session.lock().await.close().await };
            drop(timeout(CLOSE_LIMIT, close).await);
        }
        drop(timeout(CLOSE_LIMIT, self.dialer.close_spare()).await);
    }

    fn offer_password(&self, password: SecretString) {
        self.dialer.offer(password);
    }

    async fn read_state(&self) -> Result<ServerState, MysqlError> {
        let statement = [Statement::plain(sql::READ_STATE)];
        let results = self
            .run(&self.eye, "read the state of mysqld", READ_LIMIT, &statement)
            .await?;
        drop(timeout(CLOSE_LIMIT, self.dialer.keep_spare()).await);
        read::state(&results)
    }

    async fn global_lock_holder(&self) -> Result<Option<LockHolder>, MysqlError> {
        const WHAT: &str = "read who holds the global read lock";
        let statement = Statement::plain(sql::GLOBAL_LOCK_HOLDER);
        let rows = self.rows(&self.eye, WHAT, READ_LIMIT, statement).await?;
        rows.first().map(read::lock_holder).transpose()
    }

    async fn read_executed(&self, limit: Duration) -> Result<GtidSet, MysqlError> {
        Ok(self.executed(limit).await?.0)
    }

    async fn settle(&self, limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "end the sessions of statements that were given up";
        let deadline = Instant::now() + limit;
        let mut session = lock(&self.control, WHAT, limit).await?;
        timeout(left(deadline), session.settle(&self.dialer))
            .await
            .map_err(|_elapsed| MysqlError::Timeout { what: WHAT, limit })?
    }

    async fn set_super_read_only(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("make mysqld read-only", limit, sql::SET_SUPER_READ_ONLY)
            .await
    }

    async fn leave_super_read_only(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("leave super_read_only", limit, sql::LEAVE_SUPER_READ_ONLY)
            .await
    }

    async fn open_writes(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("accept writes", limit, sql::OPEN_WRITES).await
    }

    async fn serve_clients(&self, serve: bool, limit: Duration) -> Result<(), MysqlError> {
        let what = if serve {
            "let clients come"
        } else {
            "send all clients away"
        };
        self.control(what, limit, &[sql::serve_clients(serve)]).await
    }

    async fn set_source(&self, source: &ReplicationSource, limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "set the replication source";
        let deadline = Instant::now() + limit;
        self.stop_replica(WHAT, limit).await?;
        self.control(WHAT, left(deadline), &[sql::set_source(source)]).await
    }

    async fn change_source(&self, source: &ReplicationSource, limit: Duration) -> Result<(), MysqlError> {
        self.control("change the replication source", limit, &[sql::change_source(source)])
            .await
    }

    async fn start_receiver(&self, ordinal: u32, password: &SecretString, limit: Duration) -> Result<(), MysqlError> {
        self.control("start the receiver", limit, &[sql::start_receiver(ordinal, password)])
            .await
    }

    async fn stop_receiver(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("stop the receiver", limit, sql::STOP_RECEIVER).await
    }

    async fn start_applier(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("start the applier", limit, sql::START_APPLIER).await
    }

    async fn forget_source(&self, limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "forget the replication source";
        let deadline = Instant::now() + limit;
        self.stop_replica(WHAT, limit).await?;
        self.control_plain(WHAT, left(deadline), sql::FORGET_SOURCE).await
    }

    async fn make_durable(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("set the variables of durability", limit, sql::DURABLE)
            .await
    }

    async fn semi_sync_on(&self, acks: u32, limit: Duration) -> Result<(), MysqlError> {
        self.control(
            "switch semi-synchronous replication on",
            limit,
            &sql::semi_sync_on(acks),
        )
        .await
    }

    async fn semi_sync_off(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("switch semi-synchronous replication off", limit, sql::SEMI_SYNC_OFF)
            .await
    }

    async fn set_acks(&self, acks: u32, limit: Duration) -> Result<(), MysqlError> {
        self.control("set the number of acknowledgements", limit, &[sql::set_acks(acks)])
            .await
    }

    async fn account_locks(&self, limit: Duration) -> Result<Vec<AccountLock>, MysqlError> {
        let statement = Statement::plain(sql::ACCOUNT_LOCKS);
        let rows = self
            .rows(&self.control, "read the replication accounts", limit, statement)
            .await?;
        let mut locks = Vec::with_capacity(rows.len());
        for row in &rows {
            let locked = read::text(row, 1)? == "Y";
            locks.extend(
                accounts::replication_ordinal(&read::text(row, 0)?).map(|ordinal| AccountLock { ordinal, locked }),
            );
        }
        locks.sort_unstable();
        Ok(locks)
    }

    async fn set_account_locks(&self, locks: &[AccountLock], limit: Duration) -> Result<(), MysqlError> {
        self.control(
            "lock or unlock replication accounts",
            limit,
            &sql::set_account_locks(locks),
        )
        .await
    }

    async fn system_accounts(&self, limit: Duration) -> Result<SystemAccounts, MysqlError> {
        const WHAT: &str = "read Mainstay's accounts";
        let deadline = Instant::now() + limit;
        // Not by the session of commands, nor by that of looks: they must not wait for somebody's statement about accounts.
        let statement = Statement::plain(sql::SYSTEM_ACCOUNTS);
        let rows = self.rows(&self.writer, WHAT, limit, statement).await?;
        let grants = Statement::plain(sql::OWN_GRANTS);
        let grants = match self.rows(&self.writer, WHAT, left(deadline), grants).await {
            Err(MysqlError::Server {
                code: sql::ER_NONEXISTING_GRANT,
                ..
            }) => Vec::new(),
            other => other?,
        };
        Ok(SystemAccounts {
            accounts: read::accounts(&rows)?,
            own_grants: grants.iter().map(|row| read::text(row, 0)).collect::<Result<_, _>>()?,
        })
    }

    async fn restore_accounts(&self, restoration: &Restoration, limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "restore Mainstay's accounts";
        let statements = sql::unlogged(restoration.statements());
        // By the control session: what comes late could undo what was told since.
        let run = self.run(&self.control, WHAT, limit, &statements).await;
        run.map(|_results| ())
    }

    async fn end_sessions(&self, connections: &[u64], limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "end sessions";
        let work = async {
            let run = self.dialer.run();
            let mut conn = self.dialer.connect().await?;
            let result = kill_and_wait(&mut conn, WHAT, connections).await;
            self.dialer.give_back(run, conn).await;
            result
        };
        timeout(limit, work)
            .await
            .map_err(|_elapsed| MysqlError::Timeout { what: WHAT, limit })?
    }

    async fn end_client_sessions(&self, which: Sessions, limit: Duration) -> Result<usize, MysqlError> {
        const WHAT: &str = "end the clients' sessions";
        let deadline = Instant::now() + limit;
        let run = self.dialer.run();
        // Not by the session of commands: one of them may be waiting for just this.
        let rows = self.rows(&self.eye, WHAT, limit, sql::client_sessions(which)).await?;
        let ids = rows
            .iter()
            .map(|row| read::column(row, 0))
            .collect::<Result<Vec<u64>, _>>()?;
        // Looks come in between. It is not waited until they are gone: a session may take its time to roll back.
        for some in ids.chunks(KILLS) {
            if self.dialer.run() != run {
                // They ended with their server. In the next one these are numbers of others.
                break;
            }
            let mut session = lock(&self.eye, WHAT, left(deadline)).await?;
            session.kill(&self.dialer, WHAT, left(deadline), some).await?;
        }
        Ok(ids.len())
    }

    async fn mark(&self, limit: Duration) -> Result<GtidSet, MysqlError> {
        let deadline = Instant::now() + limit;
        let statements = self.marker(limit).await?;
        self.run(&self.writer, "commit a marker transaction", left(deadline), &statements)
            .await?;
        Ok(self.executed(READ_LIMIT).await?.0)
    }

    async fn purge_binlogs(&self, to: &str, limit: Duration) -> Result<(), MysqlError> {
        // Not by a session that is kept: one that hangs would hold up what comes after it.
        Session::new(Late::Harmless)
            .run(&self.dialer, "delete binlogs", limit, &[sql::purge_binlogs(to)])
            .await
            .map(|_results| ())
    }

    async fn clone_from(&self, donor: &CloneDonor) -> Result<(), MysqlError> {
        const WHAT: &str = "clone the donor";
        let statements = [
            sql::clone_donor_list(&donor.host, donor.port),
            sql::clone_instance(&donor.host, donor.port, &donor.password),
        ];
        match Session::new(Late::Harmless)
            .run_unlimited(&self.dialer, WHAT, &statements)
            .await
        {
            // mysqld ends when the copy is complete, and with it the connection: the exit code tells what happened.
            Ok(_) | Err(MysqlError::Lost { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    async fn clone_progress(&self) -> Result<CloneProgress, MysqlError> {
        let statement = Statement::plain(sql::CLONE_PROGRESS);
        let rows = self
            .rows(&self.eye, "read the progress of the clone", READ_LIMIT, statement)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(CloneProgress::default());
        };
        let bytes = |index| Ok::<u64, MysqlError>(read::column::<Option<u64>>(row, index)?.unwrap_or_default());
        Ok(CloneProgress {
            estimate: bytes(0)?,
            copied: bytes(1)?,
        })
    }

    async fn set_event_scheduler(&self, on: bool, limit: Duration) -> Result<(), MysqlError> {
        self.control("switch the event scheduler", limit, &[sql::set_event_scheduler(on)])
            .await
    }

    async fn enable_events_of(&self, server_ids: &[u32], limit: Duration) -> Result<usize, MysqlError> {
        const WHAT: &str = "enable events";
        if server_ids.is_empty() {
            return Ok(0);
        }
        let rows = self.rows(&self.writer, WHAT, limit, sql::events_of(server_ids)).await?;
        let notes = self.notes(limit).await?;
        let mut enabled = 0;
        for row in &rows {
            let (schema, name, definer) = (read::text(row, 0)?, read::text(row, 1)?, read::text(row, 2)?);
            if notes.is_disabled(&schema, &name) {
                continue;
            }
            self.run(
                &self.writer,
                WHAT,
                limit,
                &[sql::enable_event(&schema, &name, &definer)],
            )
            .await?;
            enabled += 1;
        }
        Ok(enabled)
    }

    async fn note_disabled_events(&self, limit: Duration) -> Result<(), MysqlError> {
        const WHAT: &str = "note which events are disabled";
        let rows = self
            .rows(&self.eye, WHAT, limit, Statement::plain(sql::DISABLED_EVENTS))
            .await?;
        let disabled = rows
            .first()
            .map(|row| read::text(row, 0))
            .transpose()?
            .unwrap_or_default();
        let notes = self.notes(limit).await?;
        match notes.with_disabled_events(&disabled) {
            Some(changed) => self
                .run(&self.writer, WHAT, limit, &[sql::note(&changed)])
                .await
                .map(|_results| ()),
            None => Ok(()),
        }
    }

    async fn first_accounts_made(&self, limit: Duration) -> Result<bool, MysqlError> {
        Ok(self.notes(limit).await?.first_accounts)
    }

    async fn create_first_accounts(
        &self,
        root: Option<&SecretString>,
        application: Option<&FirstApplication>,
        limit: Duration,
    ) -> Result<bool, MysqlError> {
        const WHAT: &str = "create the first database and users";
        if self.first_accounts_made(limit).await? {
            return Ok(false);
        }
        let rows = self
            .rows(&self.writer, WHAT, limit, Statement::plain(sql::PARTIAL_REVOKES))
            .await?;
        let partial_revokes = rows
            .first()
            .map(|row| read::column::<bool>(row, 0))
            .transpose()?
            .unwrap_or(false);
        let mut statements = Vec::new();
        if let Some(password) = root {
            let rows = self
                .rows(&self.writer, WHAT, limit, Statement::plain(sql::OWN_GRANTS))
                .await?;
            let own = rows
                .iter()
                .map(|row| read::text(row, 0))
                .collect::<Result<Vec<_>, _>>()?;
            statements.extend(sql::create_root(password, &own));
        }
        statements.extend(
            application
                .into_iter()
                .flat_map(|app| sql::create_application(app, partial_revokes)),
        );
        statements.push(sql::note(Notes::FIRST_ACCOUNTS_MADE));
        self.run(&self.writer, WHAT, limit, &statements).await?;
        Ok(true)
    }

    async fn can_log_in(&self, user: &str, password: &SecretString, limit: Duration) -> Result<bool, MysqlError> {
        const WHAT: &str = "try a login";
        match timeout(limit, self.dialer.login(user, password)).await {
            Ok(Ok(conn)) => {
                drop(conn.disconnect().await);
                Ok(true)
            }
            Ok(Err(Fault::Refused { code, .. })) if is_denied(code) => Ok(false),
            Ok(Err(other)) => Err(fault(WHAT, true, other)),
            Err(_elapsed) => Err(MysqlError::Timeout { what: WHAT, limit }),
        }
    }

    async fn set_shared_passwords(&self, accounts: &[SharedPassword], limit: Duration) -> Result<(), MysqlError> {
        let statements: Vec<Statement> = accounts.iter().map(sql::set_password).collect();
        self.run(&self.writer, "set passwords", limit, &statements)
            .await
            .map(|_results| ())
    }

    async fn set_local_passwords(&self, credentials: &Credentials, limit: Duration) -> Result<(), MysqlError> {
        let statements = accounts::local_passwords(credentials);
        // Before it is tried: what becomes of a statement that is given up, nobody knows.
        if let Some(password) = &credentials.manager {
            self.dialer.remember(password.clone());
        }
        self.run(&self.writer, "set the passwords of local accounts", limit, &statements)
            .await
            .map(|_results| ())
    }

    async fn reload_tls(&self, limit: Duration) -> Result<(), MysqlError> {
        self.control_plain("reload TLS certificates", limit, sql::RELOAD_TLS)
            .await
    }
}
