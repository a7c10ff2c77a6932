//! Why something could not be had from a MySQL server.

use std::time::Duration;

/// Failure of one operation; `what` completes "failed to …". SQL texts are never part of it, they may hold passwords.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
    /// No connection could be made.
    #[error("failed to connect to mysqld: {reason}")]
    Connect {
        /// Why.
        reason: String,
    },
    /// Clients use all connections, and the spare one of its own is gone.
    #[error("failed to connect to mysqld: clients use all connections")]
    Full,
    /// None of the passwords that are known works.
    #[error("failed to log in to mysqld as {user}: access denied")]
    Denied {
        /// Account.
        user: &'static str,
    },
    /// It took too long. The statement may still run and take effect later, until its session was killed.
    #[error("failed to {what} within {limit:?}")]
    Timeout {
        /// What was attempted.
        what: &'static str,
        /// How long it was granted.
        limit: Duration,
    },
    /// The server refused.
    #[error("failed to {what}: {message} (MySQL error {code})")]
    Server {
        /// What was attempted.
        what: &'static str,
        /// MySQL's error number.
        code: u16,
        /// MySQL's message; withheld when the statement holds a password.
        message: String,
    },
    /// The connection was lost on the way; nobody knows whether the statement took effect.
    #[error("failed to {what}: the connection was lost: {reason}")]
    Lost {
        /// What was attempted.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// The server answered something that cannot be understood.
    #[error("failed to {what}: {reason}")]
    Unexpected {
        /// What was attempted.
        what: &'static str,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// Access denied.
const ER_ACCESS_DENIED: u16 = 1045;
/// The account is locked.
const ER_ACCOUNT_LOCKED: u16 = 3118;
/// The account's password expired.
const ER_MUST_CHANGE_PASSWORD: u16 = 1862;

/// Too many connections.
const ER_CON_COUNT_ERROR: u16 = 1040;

/// Errors of a clone: they name what is wrong with donor or recipient, and never quote the statement.
const ER_CLONE: std::ops::RangeInclusive<u16> = 3862..=3872;

/// Whether the message of an error may quote the statement, and a password with it.
pub(crate) fn may_quote(code: u16) -> bool {
    !ER_CLONE.contains(&code)
}

/// Whether a login failed because clients use all connections.
pub(crate) const fn is_full(code: u16) -> bool {
    code == ER_CON_COUNT_ERROR
}

/// Whether a login that failed like this may succeed with another password.
pub(crate) const fn is_denied(code: u16) -> bool {
    matches!(code, ER_ACCESS_DENIED | ER_ACCOUNT_LOCKED | ER_MUST_CHANGE_PASSWORD)
}

/// What the driver's error says about the statement that failed.
pub(crate) enum Fault {
    /// The server answered with an error: the statement is over.
    Refused {
        /// MySQL's error number.
        code: u16,
        /// MySQL's message.
        message: String,
    },
    /// The connection is unusable.
    Broken(String),
}

impl From<mysql_async::Error> for Fault {
    fn from(error: mysql_async::Error) -> Self {
        match error {
            mysql_async::Error::Server(server) => Self::Refused {
                code: server.code,
                message: server.message,
            },
            other => Self::Broken(chain(&other)),
        }
    }
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
