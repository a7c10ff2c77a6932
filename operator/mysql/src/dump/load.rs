//! Loads a dump into a server that was just made.

use std::path::PathBuf;

use mainstay_core::GtidSet;
use mysql_async::Conn;
use secrecy::SecretString;

use super::script::statements;
use super::{connect, run};
use crate::error::MysqlError;
use crate::quote;

/// Why a file of a dump was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server.
    #[error(transparent)]
    Mysql(MysqlError),
    /// It is no file of a dump.
    #[error("it is no list of statements, or was cut short")]
    Malformed,
}

/// One session that loads. What it did half is thrown away with the server.
pub struct Loader {
    conn: Conn,
}

impl Loader {
    /// Logs in with the manager's password to the server at this socket.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn connect(socket: PathBuf, password: SecretString) -> Result<Self, MysqlError> {
        Ok(Self {
            conn: connect(socket, password).await?,
        })
    }

    /// Carries out the statements of a file.
    ///
    /// # Errors
    /// It is none, or the server refuses a statement.
    pub async fn load(&mut self, file: &[u8]) -> Result<(), LoadError> {
        const WHAT: &str = "carry out a statement of the backup";
        for statement in statements(file).ok_or(LoadError::Malformed)? {
            run(&mut self.conn, WHAT, statement).await.map_err(LoadError::Mysql)?;
        }
        Ok(())
    }

    /// Says which transactions were loaded, so that those behind them can be applied.
    ///
    /// # Errors
    /// The server refuses: it holds transactions of its own.
    pub async fn set_executed(&mut self, executed: &GtidSet) -> Result<(), MysqlError> {
        let text = format!("SET GLOBAL gtid_purged={}", quote::string(&executed.to_string()));
        run(
            &mut self.conn,
            "say which transactions the backup holds",
            text.as_bytes(),
        )
        .await
    }

    /// Closes the connection: a server that is asked to end waits for it.
    pub async fn close(self) {
        drop(self.conn.disconnect().await);
    }
}
