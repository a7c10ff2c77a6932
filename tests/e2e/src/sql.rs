//! SQL clients as an application has them: over TLS, verified against the cluster's CA.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{Conn, Opts, OptsBuilder, SslOpts};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep};

/// How long a client waits for one answer: kube-proxy does not reset connections to a dead node (decision A9).
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How long a login may take, and how long it is tried.
const LOGIN: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a client waits for a statement that may take its time.
const LONG: Duration = Duration::from_mins(1);

/// Where and as whom to log in.
#[derive(Clone, Debug)]
pub struct Login {
    /// Address of a Service or of a pod.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password; never printed, because `Debug` is used for nothing that is shown.
    pub password: String,
    /// Default database.
    pub database: Option<String>,
    /// CA certificate in PEM and the name that the server's certificate must carry; `None`: without TLS.
    pub tls: Option<(Vec<u8>, String)>,
}

impl Login {
    /// The same login at another address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Self {
        Self {
            address,
            ..self.clone()
        }
    }

    fn opts(&self) -> Opts {
        let ssl = self.tls.as_ref().map(|(ca, name)| {
            SslOpts::default()
                .with_root_certs(vec![ca.clone().into()])
                .with_disable_built_in_roots(true)
                .with_danger_tls_hostname_override(Some(name.clone()))
        });
        OptsBuilder::default()
            .ip_or_hostname(self.address.to_string())
            .tcp_port(self.port)
            .user(Some(self.user.clone()))
            .pass(Some(self.password.clone()))
            .db_name(self.database.clone())
            .prefer_socket(false)
            .ssl_opts(ssl)
            .into()
    }

    /// Logs in. The way to a server may be a moment behind its state (kube-proxy): who cannot be reached is asked again.
    pub async fn connect(&self) -> Result<Client> {
        let (attempt, limit) = LOGIN;
        let deadline = Instant::now() + limit;
        loop {
            match self.connect_within(attempt).await {
                Err(error) if is_unreachable(&error) && Instant::now() < deadline => sleep(PAUSE).await,
                other => return other,
            }
        }
    }

    /// Logs in within a time.
    pub async fn connect_within(&self, limit: Duration) -> Result<Client> {
        let to = format!("{} as {}", self.address, self.user);
        let conn = tokio::time::timeout(limit, Conn::new(self.opts()))
            .await
            .with_context(|| format!("failed to log in to {to}: no answer within {limit:?}"))?
            .with_context(|| format!("failed to log in to {to}"))?;
        Ok(Client { conn, to })
    }
}

/// ER_SERVER_OFFLINE_MODE: a former primary, to which the way still led.
const OFFLINE: u16 = 3032;

/// No answer, or none of a server that serves clients; one that refuses a login has answered.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let passes = |error: &mysql_async::Error| match error {
        mysql_async::Error::Io(_) => true,
        mysql_async::Error::Server(error) => error.code == OFFLINE,
        _ => false,
    };
    error
        .chain()
        .any(|cause| cause.is::<Elapsed>() || cause.downcast_ref().is_some_and(passes))
}

/// A session.
#[derive(Debug)]
pub struct Client {
    conn: Conn,
    to: String,
}

impl Client {
    /// Executes a statement without a result.
    pub async fn execute(&mut self, statement: &str) -> Result<()> {
        self.execute_within(statement, LONG).await
    }

    /// Executes a statement without a result, within a time. After a missed deadline the session is of no use.
    pub async fn execute_within(&mut self, statement: &str, limit: Duration) -> Result<()> {
        tokio::time::timeout(limit, self.conn.query_drop(statement))
            .await
            .with_context(|| format!("no answer within {limit:?} from {} to: {statement}", self.to))?
            .with_context(|| format!("failed on {}: {statement}", self.to))
    }

    /// All rows of a query.
    pub async fn rows<T: FromRow + Send + 'static>(&mut self, query: &str) -> Result<Vec<T>> {
        tokio::time::timeout(LONG, self.conn.query::<T, _>(query))
            .await
            .with_context(|| format!("no answer within {LONG:?} from {} to: {query}", self.to))?
            .with_context(|| format!("failed on {}: {query}", self.to))
    }

    /// The first row of a query, which must have one.
    pub async fn row<T: FromRow + Send + 'static>(&mut self, query: &str) -> Result<T> {
        let rows: Vec<T> = self.rows(query).await?;
        rows.into_iter()
            .next()
            .with_context(|| format!("no row on {} from: {query}", self.to))
    }

    /// A global variable as text.
    pub async fn variable(&mut self, name: &str) -> Result<String> {
        self.row(&format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)")).await
    }

    /// The ids of a table that a writer filled.
    pub async fn ids(&mut self, table: &str) -> Result<BTreeSet<u64>> {
        Ok(self
            .rows::<u64>(&format!("SELECT id FROM {table}"))
            .await?
            .into_iter()
            .collect())
    }

    /// Waits until the instance has applied a GTID set.
    pub async fn wait_for_gtids(&mut self, set: &str, seconds: u32) -> Result<()> {
        let missed: u8 = self
            .row(&format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{set}', {seconds})"))
            .await?;
        anyhow::ensure!(missed == 0, "{} did not apply {set} within {seconds} s", self.to);
        Ok(())
    }
}
