//! A server as SQL statements, and back (docs/adr/0012; docs/backup-format.md, "A logical backup").
//!
//! What is dumped is a private copy: nobody else is connected, nothing is applied and no event runs, so that all of it is of
//! one moment without a transaction that would have to be held open, and what the copy is asked to try out harms nobody.
//!
//! A dump is a sequence of files. Each is a list of statements that the `mysql` client reads as well, and sets what its
//! statements depend on. First come schemas and tables, then the rows, then accounts, and last what could act on rows and
//! belongs to accounts (routines, views, triggers, events).

mod accounts;
mod ddl;
mod literal;
mod load;
mod programs;
mod rows;
mod script;
mod views;

use std::path::PathBuf;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use secrecy::SecretString;

use crate::error::{Fault, MysqlError};
use crate::session::{Dialer, fault};

pub use load::{LoadError, Loader};

/// The largest statement that MySQL takes, in bytes.
const LARGEST_PACKET: usize = 1 << 30;
/// Bytes of statements after which a file ends.
const FILE: usize = 4 << 20;

/// Beside [`SESSION_MODE`](crate::quote::SESSION_MODE): what the answers depend on. A store may be slow, and so may be
/// whoever reads.
const SESSION: &str = "SET SESSION sql_quote_show_create=1, net_write_timeout=31536000, net_read_timeout=31536000, \
                       information_schema_stats_expiry=0 /*!80030 , show_gipk_in_create_table_and_information_schema=1 */";
/// Text comes and goes in UTF-8.
const NAMES: &str = "SET NAMES utf8mb4";

/// Schemas that every server makes itself.
const OWN_SCHEMAS: &str = "('mysql','sys','performance_schema','information_schema')";

/// Why there is no dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The server.
    #[error(transparent)]
    Mysql(#[from] MysqlError),
    /// What a prepared transaction did is in no table yet, and its GTID is executed already.
    #[error(
        "{count} XA transactions are prepared, which statements cannot express; commit them or roll them back \
         (XA RECOVER), or make a physical backup"
    )]
    Prepared {
        /// How many.
        count: usize,
    },
    /// A view cannot be created as it stands.
    #[error(
        "the view {view} cannot be created again: {reason}; correct or drop it (SHOW CREATE VIEW), or make a physical backup"
    )]
    View {
        /// Which.
        view: String,
        /// What the server says.
        reason: String,
    },
    /// A type that a newer server has.
    #[error("the column {column} has the type {data_type}, which this version cannot dump: make a physical backup")]
    Type {
        /// Which.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// A statement would be larger than any server takes.
    #[error("a row of {table} makes a statement of more than 1 GiB, which no server takes: make a physical backup")]
    TooLarge {
        /// Of which table.
        table: String,
    },
}

/// A file of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What is in it: `schema`, `rows`, `accounts` or `objects`.
    pub kind: &'static str,
    /// Its content, to be written one after the other.
    pub parts: Vec<Vec<u8>>,
    /// Rows in it.
    pub rows: u64,
}

/// Where files go, in their order.
pub trait Sink: Send {
    /// Why one cannot be taken, or made.
    type Error: From<DumpError> + Send;

    /// Takes the next file.
    fn take(&mut self, file: File) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A server that is dumped.
pub struct DumpServer {
    conn: Conn,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    schema: String,
    name: String,
    /// Its rows are in InnoDB: those of others are in no copy of a server.
    has_rows: bool,
}

impl Table {
    fn quoted(&self) -> String {
        qualified(&self.schema, &self.name)
    }
}

fn qualified(schema: &str, name: &str) -> String {
    format!(
        "{}.{}",
        crate::quote::identifier(schema),
        crate::quote::identifier(name)
    )
}

impl DumpServer {
    /// Logs in with the manager's password to the server at this socket, which has to be private and quiet. It may be written to
    /// from then on, because it is tried out whether what is dumped can be created.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn connect(socket: PathBuf, password: SecretString) -> Result<Self, MysqlError> {
        const WHAT: &str = "prepare a dump";
        let mut server = Self {
            conn: connect(socket, password).await?,
        };
        server
            .run(WHAT, "SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF")
            .await?;
        server.run(WHAT, NAMES).await?;
        server.run(WHAT, SESSION).await?;
        Ok(server)
    }

    /// Gives all files of the dump, in the order in which they are loaded.
    ///
    /// # Errors
    /// Something cannot be dumped, or the sink does not take it.
    pub async fn dump<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.refuse_prepared().await?;
        let tables = self.tables().await.map_err(DumpError::from)?;
        self.schema(&tables, sink).await?;
        for table in tables.iter().filter(|table| table.has_rows) {
            self.rows(table, sink).await?;
        }
        // A view that rests on another one is not made while that one's definer is missing.
        self.accounts(sink).await?;
        self.objects(sink).await
    }

    async fn refuse_prepared(&mut self) -> Result<(), DumpError> {
        let count = self.query("list prepared transactions", "XA RECOVER").await?.len();
        if count > 0 {
            return Err(DumpError::Prepared { count });
        }
        Ok(())
    }

    async fn run(&mut self, what: &'static str, text: impl AsRef<[u8]>) -> Result<(), MysqlError> {
        run(&mut self.conn, what, text.as_ref()).await
    }

    async fn query(&mut self, what: &'static str, text: impl AsRef<str>) -> Result<Vec<Row>, MysqlError> {
        let rows = self.conn.query(text.as_ref()).await;
        rows.map_err(|error| fault(what, false, Fault::from(error)))
    }
}

/// A session that takes and gives what is as large as MySQL allows.
async fn connect(socket: PathBuf, password: SecretString) -> Result<Conn, MysqlError> {
    let dialer = Dialer::with_packets(socket, LARGEST_PACKET);
    dialer.offer(password);
    dialer.connect().await
}

async fn run(conn: &mut Conn, what: &'static str, text: &[u8]) -> Result<(), MysqlError> {
    let done = conn.query_drop(text).await;
    done.map_err(|error| fault(what, false, Fault::from(error)))
}
