//! One connection for one purpose, used by one operation at a time.
//!
//! An operation may be given up at any moment (a limit, a fence that interrupts it). Then nobody knows whether its
//! statement will still take effect in the server, so the connection is remembered as abandoned, and its session is
//! killed and gone before this session is used again.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder, Row};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, sleep, timeout};

use crate::accounts::MANAGER;
use crate::error::{Fault, MysqlError, is_denied, is_full, may_quote};
use crate::quote;
use crate::sql::{self, Statement};

/// How long a login may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks whether a killed session is gone.
const KILL_POLL: Duration = Duration::from_millis(10);
/// Former passwords that are tried.
const KNOWN: usize = 5;
/// Between two attempts to have a spare connection.
const SPARE_PAUSE: Duration = Duration::from_secs(1);

/// The largest packet that is expected of a session, in bytes.
const PACKET: usize = 64 * 1024 * 1024;

/// Makes connections.
pub(crate) struct Dialer {
    socket: PathBuf,
    packet: usize,
    passwords: Mutex<Passwords>,
    /// Rises with every server process: what belongs to a former one is void.
    run: AtomicU64,
    spare: tokio::sync::Mutex<Spare>,
}

#[derive(Default)]
struct Passwords {
    /// What is mounted.
    offered: Option<SecretString>,
    /// What the server may have instead, the likeliest first: what worked or was set last, and what was mounted before.
    known: Vec<SecretString>,
}

/// A connection that has nothing to do, for when clients use all others (case F08).
#[derive(Default)]
struct Spare {
    conn: Option<(u64, Conn)>,
    attempt: Option<Instant>,
}

impl Dialer {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self::with_packets(socket, PACKET)
    }

    /// For sessions whose statements and rows may be as large as this, in bytes.
    pub(crate) fn with_packets(socket: PathBuf, packet: usize) -> Self {
        Self {
            socket,
            packet,
            passwords: Mutex::default(),
            run: AtomicU64::new(0),
            spare: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn next_run(&self) {
        self.run.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn run(&self) -> u64 {
        self.run.load(Ordering::SeqCst)
    }

    pub(crate) fn offer(&self, password: SecretString) {
        let former = self.passwords().offered.replace(password);
        if let Some(former) = former {
            self.remember(former);
        }
    }

    /// Notes a password that the server may have from now on.
    pub(crate) fn remember(&self, password: SecretString) {
        let mut passwords = self.passwords();
        passwords
            .known
            .retain(|other| other.expose_secret() != password.expose_secret());
        passwords.known.insert(0, password);
        passwords.known.truncate(KNOWN);
    }

    fn passwords(&self) -> std::sync::MutexGuard<'_, Passwords> {
        // Nothing panics while it is held; a poisoned lock holds usable passwords all the same.
        self.passwords.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The offered password, then those that the server may still have (F11: an edited Secret locks nobody out).
    fn candidates(&self) -> Vec<SecretString> {
        let passwords = self.passwords();
        let offered = passwords.offered.iter();
        let is_offered = |password: &&SecretString| {
            let offered = passwords.offered.as_ref().map(SecretString::expose_secret);
            offered == Some(password.expose_secret())
        };
        offered
            .chain(passwords.known.iter().filter(|password| !is_offered(password)))
            .cloned()
            .collect()
    }

    /// A connection as the manager, ready for statements; the spare one when clients use all others.
    pub(crate) async fn connect(&self) -> Result<Conn, MysqlError> {
        match self.connect_anew().await {
            Err(MysqlError::Full) => self.take_spare().await.ok_or(MysqlError::Full),
            other => other,
        }
    }

    /// Sees to it that there is a spare connection, if it can be had now.
    pub(crate) async fn keep_spare(&self) {
        let Ok(mut spare) = self.spare.try_lock() else { return };
        let run = self.run();
        let there = spare.conn.as_ref().is_some_and(|(of, _)| *of == run);
        if there || spare.attempt.is_some_and(|at| at.elapsed() < SPARE_PAUSE) {
            return;
        }
        spare.attempt = Some(Instant::now());
        if let Ok(conn) = self.connect_anew().await {
            spare.conn = Some((run, conn));
        }
    }

    /// Gives a connection back that was had with [`Dialer::connect`] while the server process `run` ran.
    pub(crate) async fn give_back(&self, run: u64, conn: Conn) {
        let mut spare = self.spare.lock().await;
        if self.run() == run && spare.conn.as_ref().is_none_or(|(of, _)| *of != run) {
            spare.conn = Some((run, conn));
        } else {
            drop(conn.disconnect().await);
        }
    }

    /// Closes the spare connection.
    pub(crate) async fn close_spare(&self) {
        let mut spare = self.spare.lock().await;
        spare.attempt = Some(Instant::now());
        if let Some((_, conn)) = spare.conn.take() {
            drop(conn.disconnect().await);
        }
    }

    async fn take_spare(&self) -> Option<Conn> {
        let run = self.run();
        let (of, mut conn) = self.spare.lock().await.conn.take()?;
        (of == run && conn.ping().await.is_ok()).then_some(conn)
    }

    async fn connect_anew(&self) -> Result<Conn, MysqlError> {
        for password in self.candidates() {
            match self.login(MANAGER, &password).await {
                Ok(mut conn) => {
                    conn.query_drop(quote::SESSION_MODE)
                        .await
                        .map_err(|error| fault("prepare a session", false, error.into()))?;
                    self.remember(password);
                    return Ok(conn);
                }
                Err(Fault::Refused { code, .. }) if is_denied(code) => {}
                Err(Fault::Refused { code, .. }) if is_full(code) => return Err(MysqlError::Full),
                Err(Fault::Refused { code, message }) => {
                    return Err(MysqlError::Connect {
                        reason: format!("{message} (MySQL error {code})"),
                    });
                }
                Err(Fault::Broken(reason)) => return Err(MysqlError::Connect { reason }),
            }
        }
        Err(MysqlError::Denied { user: MANAGER })
    }

    /// A plain login over the socket.
    pub(crate) async fn login(&self, user: &str, password: &SecretString) -> Result<Conn, Fault> {
        let opts = OptsBuilder::default()
            .socket(self.socket.to_str().map(str::to_owned))
            .user(Some(user))
            .pass(Some(password.expose_secret()))
            // Both are asked of the server otherwise, one more round trip.
            .max_allowed_packet(Some(self.packet))
            .wait_timeout(Some(28_800));
        match timeout(CONNECT_LIMIT, Conn::new(opts)).await {
            Ok(Ok(conn)) => Ok(conn),
            Ok(Err(error)) => Err(error.into()),
            Err(_elapsed) => Err(Fault::Broken(format!("no answer within {CONNECT_LIMIT:?}"))),
        }
    }
}

/// See the module.
pub(crate) struct Session {
    /// Connection and the server process to which it belongs.
    conn: Option<(u64, Conn)>,
    /// Server process and connection id of statements that were given up.
    abandoned: Vec<(u64, u64)>,
    late: Late,
}

/// What it means when a statement that was given up takes effect later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// It could undo what was done after it: its session must be gone before the next statement.
    Harmful,
    /// Nothing: it only reads, or it writes what is wanted in any case, and is refused when the server is read-only. It may
    /// wait for an acknowledgement, from which KILL does not release it, so nobody waits until it is gone.
    Harmless,
}

impl Session {
    pub(crate) const fn new(late: Late) -> Self {
        Self {
            conn: None,
            abandoned: Vec::new(),
            late,
        }
    }

    /// Runs the statements one after the other and gives all their result sets.
    pub(crate) async fn run(
        &mut self,
        dialer: &Dialer,
        what: &'static str,
        limit: Duration,
        statements: &[Statement],
    ) -> Result<Vec<Vec<Row>>, MysqlError> {
        match timeout(limit, self.run_unlimited(dialer, what, statements)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(MysqlError::Timeout { what, limit }),
        }
    }

    /// Like [`Session::run`], for what takes as long as it takes.
    pub(crate) async fn run_unlimited(
        &mut self,
        dialer: &Dialer,
        what: &'static str,
        statements: &[Statement],
    ) -> Result<Vec<Vec<Row>>, MysqlError> {
        let (run, mut conn) = self.connection(dialer).await?;
        let id = (run, u64::from(conn.id()));
        // From here on until the answers are read this future may be dropped.
        if self.late == Late::Harmful {
            self.abandoned.push(id);
        }
        let mut results = Vec::new();
        for statement in statements {
            match query(&mut conn, statement.text(), &mut results).await {
                Ok(()) => {}
                Err(Fault::Refused { code, message }) => {
                    // The statement is over. What it and those before it set in the session is not worth keeping.
                    self.abandoned.retain(|other| *other != id);
                    drop(conn.disconnect().await);
                    return Err(fault(what, statement.is_secret(), Fault::Refused { code, message }));
                }
                Err(broken @ Fault::Broken(_)) => return Err(fault(what, statement.is_secret(), broken)),
            }
        }
        self.abandoned.retain(|other| *other != id);
        self.conn = Some((run, conn));
        Ok(results)
    }

    /// Kills sessions, and does not wait until they are gone. For a session whose statements may come late.
    pub(crate) async fn kill(
        &mut self,
        dialer: &Dialer,
        what: &'static str,
        limit: Duration,
        ids: &[u64],
    ) -> Result<(), MysqlError> {
        let work = async {
            let (run, mut conn) = self.connection(dialer).await?;
            kill_all(&mut conn, what, ids).await?;
            self.conn = Some((run, conn));
            Ok(())
        };
        timeout(limit, work)
            .await
            .map_err(|_elapsed| MysqlError::Timeout { what, limit })?
    }

    /// Kills what was abandoned and waits until it is gone.
    pub(crate) async fn settle(&mut self, dialer: &Dialer) -> Result<(), MysqlError> {
        const WHAT: &str = "end the session of a statement that was given up";
        let run = dialer.run();
        self.abandoned.retain(|(of, _)| *of == run);
        if self.abandoned.is_empty() {
            return Ok(());
        }
        let ids: Vec<u64> = self.abandoned.iter().map(|(_, id)| *id).collect();
        let mut conn = dialer.connect().await?;
        kill_and_wait(&mut conn, WHAT, &ids).await?;
        if dialer.run() == run {
            self.abandoned.clear();
            self.conn = Some((run, conn));
        }
        Ok(())
    }

    /// Closes the connection, if there is one.
    pub(crate) async fn close(&mut self) {
        if let Some((_, conn)) = self.conn.take() {
            drop(conn.disconnect().await);
        }
    }

    async fn connection(&mut self, dialer: &Dialer) -> Result<(u64, Conn), MysqlError> {
        self.settle(dialer).await?;
        let run = dialer.run();
        if let Some((of, mut conn)) = self.conn.take()
            && of == run
            && conn.ping().await.is_ok()
        {
            return Ok((run, conn));
        }
        Ok((run, dialer.connect().await?))
    }
}

/// Kills sessions; those that are gone already are no error.
async fn kill_all(conn: &mut Conn, what: &'static str, ids: &[u64]) -> Result<(), MysqlError> {
    for id in ids {
        match query(conn, sql::kill(*id).text(), &mut Vec::new()).await {
            Ok(())
            | Err(Fault::Refused {
                code: sql::ER_NO_SUCH_THREAD,
                ..
            }) => {}
            Err(other) => return Err(fault(what, false, other)),
        }
    }
    Ok(())
}

/// Kills sessions and waits until the server does not know them any more; the caller limits the time.
pub(crate) async fn kill_and_wait(conn: &mut Conn, what: &'static str, ids: &[u64]) -> Result<(), MysqlError> {
    kill_all(conn, what, ids).await?;
    if ids.is_empty() {
        return Ok(());
    }
    loop {
        let mut results = Vec::new();
        query(conn, sql::sessions_among(ids).text(), &mut results)
            .await
            .map_err(|error| fault(what, false, error))?;
        if results.iter().all(Vec::is_empty) {
            return Ok(());
        }
        sleep(KILL_POLL).await;
    }
}

/// What is left of a limit.
pub(crate) fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

async fn query(conn: &mut Conn, text: &str, results: &mut Vec<Vec<Row>>) -> Result<(), Fault> {
    let mut result = conn.query_iter(text).await?;
    loop {
        results.push(result.collect::<Row>().await?);
        if result.is_empty() {
            return Ok(());
        }
    }
}

pub(crate) fn fault(what: &'static str, secret: bool, fault: Fault) -> MysqlError {
    match fault {
        Fault::Refused { code, .. } if secret && may_quote(code) => MysqlError::Server {
            what,
            code,
            message: "message withheld, it may quote a password".to_owned(),
        },
        Fault::Refused { code, message } => MysqlError::Server { what, code, message },
        Fault::Broken(reason) => MysqlError::Lost { what, reason },
    }
}
