//! A client that commits a row every 10 ms and remembers what it was told.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::history::History;
use crate::sql::{Client, Login, PATIENCE};

/// Time between two commits.
const PERIOD: Duration = Duration::from_millis(10);

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    stop: watch::Sender<bool>,
    acknowledged: watch::Receiver<u64>,
    task: JoinHandle<History>,
    /// The table it fills.
    pub table: String,
}

impl Writer {
    /// Creates the table and begins; returns when the first row was acknowledged.
    pub async fn start(login: Login, table: &str) -> Result<Self> {
        Self::start_every(PERIOD, login, table).await
    }

    /// The same with another time between two commits.
    pub async fn start_every(period: Duration, login: Login, table: &str) -> Result<Self> {
        let mut client = login.connect().await?;
        client
            .execute(&format!(
                "CREATE TABLE IF NOT EXISTS {table} (id BIGINT UNSIGNED PRIMARY KEY, at TIMESTAMP(6) DEFAULT NOW(6))"
            ))
            .await?;
        let (stop, stopped) = watch::channel(false);
        let (count, mut acknowledged) = watch::channel(0);
        let task = tokio::spawn(write(period, login, client, table.to_owned(), stopped, count));
        tokio::time::timeout(Duration::from_secs(10), acknowledged.wait_for(|n| *n > 0))
            .await
            .context("the writer's first row was not acknowledged within 10 s")?
            .context("the writer ended")?;
        Ok(Self {
            stop,
            acknowledged,
            task,
            table: table.to_owned(),
        })
    }

    /// Waits until `more` further rows were acknowledged.
    pub async fn progress(&mut self, more: u64, limit: Duration) -> Result<()> {
        let goal = *self.acknowledged.borrow() + more;
        tokio::time::timeout(limit, self.acknowledged.wait_for(|n| *n >= goal))
            .await
            .with_context(|| format!("{more} further writes were not acknowledged within {limit:?}"))?
            .context("the writer ended")?;
        Ok(())
    }

    /// Ends the writer and returns what it did.
    pub async fn finish(self) -> Result<History> {
        self.stop.send(true).context("the writer ended before it was told to")?;
        self.task.await.context("the writer panicked")
    }
}

async fn write(
    period: Duration,
    login: Login,
    client: Client,
    table: String,
    mut stopped: watch::Receiver<bool>,
    count: watch::Sender<u64>,
) -> History {
    let mut history = History::default();
    let mut client = Some(client);
    let mut last = Instant::now();
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for id in 1.. {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            _ = ticks.tick() => {}
        }
        // A login that fails wrote nothing: the id is simply not used.
        let session = match client.take() {
            Some(session) => Ok(session),
            None => login.connect_within(PATIENCE).await,
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                history.error(last.elapsed(), &error);
                continue;
            }
        };
        match session
            .execute_within(&format!("INSERT INTO {table} (id) VALUES ({id})"), PATIENCE)
            .await
        {
            Ok(()) => {
                history.acknowledged.push(id);
                history.gap = history.gap.max(last.elapsed());
                last = Instant::now();
                client = Some(session);
                count.send_replace(u64::try_from(history.acknowledged.len()).unwrap_or(u64::MAX));
            }
            Err(error) => {
                history.unknown.push(id);
                history.error(last.elapsed(), &error);
            }
        }
    }
    history.gap = history.gap.max(last.elapsed());
    history
}
