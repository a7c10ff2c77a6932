//! A server whose data are being recovered: it runs without network on files of a backup, and its own applier replays
//! binlogs on them (decision A19; docs/backup.md, "Recovery").
//!
//! The binlogs lie in its relay log. Nothing else is asked of such a server, and nobody else talks to it, so this is no part
//! of the port through which an instance is commanded.

mod check;

use std::path::PathBuf;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::gtid::Gtid;
use mysql_async::Row;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;

use crate::accounts::{CLONE, ROOT, replication_user};
use crate::error::MysqlError;
use crate::notes::Notes;
use crate::port::REPLICATION_ACCOUNTS;
use crate::session::{Dialer, Late, Session};
use crate::sql::{self, Statement};
use crate::state::ServerMessage;
use crate::{quote, read};

/// How long one statement may take. What stops the applier waits for the transaction that it is in.
const LIMIT: Duration = Duration::from_mins(10);

/// Who the source is does not matter: nothing is ever received from it. `{file}` lies in the relay log's directory.
fn use_relay_log(file: &str) -> String {
    format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='nowhere.invalid', SOURCE_USER='nobody', SOURCE_AUTO_POSITION=0, \
         RELAY_LOG_FILE={}, RELAY_LOG_POS=4",
        quote::string(file)
    )
}

fn start_applier(before: Option<&Gtid>) -> String {
    match before {
        None => "START REPLICA SQL_THREAD".to_owned(),
        Some(gtid) => format!(
            "START REPLICA SQL_THREAD UNTIL SQL_BEFORE_GTIDS={}",
            quote::string(&gtid.to_string())
        ),
    }
}

/// What the applier does, whether it has read all there is, why it stopped, and what is executed; in this order, so that what
/// an applier that has nothing more to do has executed is final.
const APPLIER: &str = "\
SELECT (SELECT SERVICE_STATE FROM performance_schema.replication_applier_status WHERE CHANNEL_NAME=''), \
(SELECT COUNT(*) FROM performance_schema.threads WHERE PROCESSLIST_STATE LIKE '%has read all relay log%'); \
SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker \
WHERE CHANNEL_NAME='' AND LAST_ERROR_NUMBER<>0 \
UNION ALL SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_coordinator \
WHERE CHANNEL_NAME='' AND LAST_ERROR_NUMBER<>0 LIMIT 1; \
SELECT @@GLOBAL.gtid_executed";

/// What the applier of a server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applier {
    /// It applies, or waits for more.
    pub running: bool,
    /// It has read all that is in the relay log.
    pub has_read_all: bool,
    /// Why it stopped.
    pub error: Option<ServerMessage>,
    /// gtid_executed.
    pub executed: GtidSet,
}

/// See the module.
pub struct RecoveringServer {
    dialer: Dialer,
    session: Mutex<Session>,
}

impl RecoveringServer {
    /// The server at this socket, in which the manager's account has this password; nothing is connected yet.
    #[must_use]
    pub fn new(socket: PathBuf, password: SecretString) -> Self {
        let dialer = Dialer::new(socket);
        dialer.offer(password);
        Self {
            dialer,
            session: Mutex::new(Session::new(Late::Harmless)),
        }
    }

    async fn run(&self, what: &'static str, statements: &[Statement]) -> Result<Vec<Vec<Row>>, MysqlError> {
        let mut session = self.session.lock().await;
        session.run(&self.dialer, what, LIMIT, statements).await
    }

    async fn plain(&self, what: &'static str, text: String) -> Result<(), MysqlError> {
        self.run(what, &[Statement::plain(text)]).await.map(|_results| ())
    }

    /// gtid_executed; also how one finds out whether the server answers.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn executed(&self) -> Result<GtidSet, MysqlError> {
        Ok(self.applier().await?.executed)
    }

    /// Takes a file of the relay log's directory as the relay log. It has to be the only one in the index.
    ///
    /// # Errors
    /// The server refuses, for instance because the file is no binlog.
    pub async fn use_relay_log(&self, file: &str) -> Result<(), MysqlError> {
        self.plain("take a binlog as the relay log", use_relay_log(file)).await
    }

    /// Starts to apply the relay log, up to this transaction if one is named, which is not applied.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn replay(&self, before: Option<&Gtid>) -> Result<(), MysqlError> {
        self.plain("replay binlogs", start_applier(before)).await
    }

    /// What the applier does now.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn applier(&self) -> Result<Applier, MysqlError> {
        const WHAT: &str = "look at the replay of binlogs";
        let results = self.run(WHAT, &[Statement::plain(APPLIER)]).await?;
        let [state, errors, executed] = results.as_slice() else {
            return Err(MysqlError::Unexpected {
                what: WHAT,
                reason: format!("{} result sets", results.len()),
            });
        };
        let unexpected = || MysqlError::Unexpected {
            what: WHAT,
            reason: "no row".to_owned(),
        };
        let state = state.first().ok_or_else(unexpected)?;
        let error = errors.first();
        let error =
            error.map(|row| Ok::<_, MysqlError>(sql::server_message(read::column(row, 0)?, read::text(row, 1)?)));
        Ok(Applier {
            running: read::text(state, 0)? == "ON",
            has_read_all: read::column::<u64>(state, 1)? > 0,
            error: error.transpose()?.flatten(),
            executed: read::gtid_set(executed.first().ok_or_else(unexpected)?, 0)?,
        })
    }

    /// Stops the applier and forgets the relay log, whose files are deleted.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn forget_relay_log(&self) -> Result<(), MysqlError> {
        let statements = [Statement::plain("STOP REPLICA"), Statement::plain("RESET REPLICA ALL")];
        self.run("forget the replayed binlogs", &statements)
            .await
            .map(|_results| ())
    }

    /// Makes the data a new cluster's: the DBA's account gets the password that its Secret says now, former passwords of
    /// shared accounts are forgotten, and events that another server created run again, except those that were disabled on
    /// purpose. Outside of the binlog. Passwords of Mainstay's own accounts are set at each start of a server.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn take_over(&self, root: Option<&SecretString>) -> Result<(), MysqlError> {
        const WHAT: &str = "make the recovered data the new cluster's";
        let mut statements = vec![Statement::plain("SET SESSION sql_log_bin=0")];
        statements.extend(root.map(set_root_password));
        statements.push(Statement::plain(forget_former_passwords()));
        self.run(WHAT, &statements).await?;
        let results = self
            .run(
                WHAT,
                &[
                    Statement::plain(sql::READ_NOTES),
                    Statement::plain(sql::EVENTS_FROM_ELSEWHERE),
                ],
            )
            .await?;
        let [notes, events] = results.as_slice() else {
            return Err(MysqlError::Unexpected {
                what: WHAT,
                reason: format!("{} result sets", results.len()),
            });
        };
        let notes = notes.first().map(|row| read::text(row, 0)).transpose()?;
        let notes = Notes::read(&notes.unwrap_or_default());
        for row in events {
            let (schema, name, definer) = (read::text(row, 0)?, read::text(row, 1)?, read::text(row, 2)?);
            if !notes.is_disabled(&schema, &name) {
                self.run(WHAT, &[sql::enable_event(&schema, &name, &definer)]).await?;
            }
        }
        Ok(())
    }

    /// Closes the connection: a server that is asked to end waits for it.
    pub async fn close(&self) {
        self.session.lock().await.close().await;
    }
}

fn set_root_password(password: &SecretString) -> Statement {
    Statement::secret(format!(
        "ALTER USER IF EXISTS {} IDENTIFIED BY {}",
        quote::account(ROOT, "%"),
        quote::string(password.expose_secret())
    ))
}

/// A password that was replaced in the source stays valid there beside the new one for a while (`RETAIN CURRENT PASSWORD`).
/// Who knows it has no business here.
fn forget_former_passwords() -> String {
    let replication = (0..REPLICATION_ACCOUNTS).map(|ordinal| quote::account(&replication_user(ordinal), "%"));
    let shared = [quote::account(CLONE, "%"), quote::account(ROOT, "%")];
    let each: Vec<_> = replication
        .chain(shared)
        .map(|account| format!("{account} DISCARD OLD PASSWORD"))
        .collect();
    format!("ALTER USER IF EXISTS {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a19_the_applier_stops_before_a_transaction() {
        let gtid: Gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:8".parse().unwrap();
        assert_eq!(
            start_applier(Some(&gtid)),
            "START REPLICA SQL_THREAD UNTIL SQL_BEFORE_GTIDS='3e11fa47-71ca-11e1-9e33-c80aa9429562:8'"
        );
        assert_eq!(start_applier(None), "START REPLICA SQL_THREAD");
    }

    #[test]
    fn f31_the_dbas_password_is_never_shown() {
        let statement = set_root_password(&SecretString::from("hunter2".to_owned()));
        assert_eq!(format!("{statement:?}"), "Statement(..)");
    }

    #[test]
    fn events_keep_their_definer() {
        let statement = sql::enable_event("a`b", "nightly", "o'hara@10.0.%");
        assert_eq!(
            statement.text(),
            "ALTER DEFINER='o''hara'@'10.0.%' EVENT `a``b`.`nightly` ENABLE"
        );
    }
}
