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
use crate::error::{Fault, MysqlError, is_denied};
use crate::quote;
use crate::sql::{self, Statement};

/// How long a login may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks whether a killed session is gone.
const KILL_POLL: Duration = Duration::from_millis(10);

/// Makes connections.
pub(crate) struct Dialer {
    socket: PathBuf,
    passwords: Mutex<Passwords>,
    /// Rises with every server process: what belongs to a former one is void.
    run: AtomicU64,
}

#[derive(Default)]
struct Passwords {
    offered: Option<SecretString>,
    worked: Option<SecretString>,
}

impl Dialer {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            passwords: Mutex::default(),
            run: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_run(&self) {
        self.run.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn run(&self) -> u64 {
        self.run.load(Ordering::SeqCst)
    }

    pub(crate) fn offer(&self, password: SecretString) {
        self.passwords().offered = Some(password);
    }

    fn passwords(&self) -> std::sync::MutexGuard<'_, Passwords> {
        // Nothing panics while it is held; a poisoned lock holds usable passwords all the same.
        self.passwords.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The offered password, then the one that worked last (F11: an edited Secret locks nobody out).
    fn candidates(&self) -> Vec<SecretString> {
        let passwords = self.passwords();
        let mut candidates: Vec<SecretString> = Vec::new();
        for password in [&passwords.offered, &passwords.worked].into_iter().flatten() {
            if candidates
                .iter()
                .all(|other| other.expose_secret() != password.expose_secret())
            {
                candidates.push(password.clone());
            }
        }
        candidates
    }

    /// A connection as the manager, ready for statements.
    pub(crate) async fn connect(&self) -> Result<Conn, MysqlError> {
        for password in self.candidates() {
            match self.login(MANAGER, &password).await {
                Ok(mut conn) => {
                    conn.query_drop(quote::SESSION_MODE)
                        .await
                        .map_err(|error| fault("prepare a session", false, error.into()))?;
                    self.passwords().worked = Some(password);
                    return Ok(conn);
                }
                Err(Fault::Refused { code, .. }) if is_denied(code) => {}
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
            .max_allowed_packet(Some(64 * 1024 * 1024))
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

/// Kills sessions and waits until the server does not know them any more; the caller limits the time.
pub(crate) async fn kill_and_wait(conn: &mut Conn, what: &'static str, ids: &[u64]) -> Result<(), MysqlError> {
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
        Fault::Refused { code, .. } if secret => MysqlError::Server {
            what,
            code,
            message: "message withheld, it may quote a password".to_owned(),
        },
        Fault::Refused { code, message } => MysqlError::Server { what, code, message },
        Fault::Broken(reason) => MysqlError::Lost { what, reason },
    }
}
