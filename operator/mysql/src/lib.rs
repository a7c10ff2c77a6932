//! What Mainstay asks of a MySQL server, and how that is said in SQL.
//!
//! [`Mysql`] is the port, in words of the failover rules; [`adapter::Adapter`] is its one implementation, over the
//! server's Unix socket. Every SQL text and every difference between server versions (8.0.26 and later, 8.4, 9.x) is in
//! this crate. Passwords are [`secrecy::SecretString`]s; they are written into statements by one quoting path
//! ([`quote`]), and statements that hold one are never logged nor part of an error.

pub mod accounts;
pub mod adapter;
pub mod binlog;
pub mod dump;
pub mod error;
mod notes;
pub mod port;
pub mod quote;
mod read;
pub mod recovery;
mod session;
mod sql;
pub mod state;
pub mod version;

pub use error::MysqlError;
pub use port::{AccountLock, CloneDonor, Mysql, ReplicationSource, Sessions};
pub use state::{Channel, Counters, DumpThread, LockHolder, Receiver, SemiSyncState, ServerMessage, ServerState};
pub use version::Version;
