//! Verification: what a recovery would do, and then a look at every table instead of a new cluster (docs/backup.md,
//! "Verification").

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::BackupId;
use mainstay_mysql::MysqlError;
use mainstay_store::RecoveryOrder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::isolated::Isolated;
use super::{Restore, RestoreError, Stage, size_of};

/// Between two looks whether something moves.
const LOOK: Duration = Duration::from_secs(5);

/// What was proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    /// The backup with which it began.
    pub(crate) backup: BackupId,
    /// Its `MySQLBackup`.
    pub(crate) name: Option<String>,
    /// Exactly what was there at the end.
    pub(crate) reached: GtidSet,
    /// When the last of it that came from the archive was committed.
    pub(crate) time: Option<Timestamp>,
    /// What the data is made of.
    pub(crate) checked: Checked,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) schemas: u64,
    pub(crate) tables: u64,
    /// Prepared XA transactions: a part of the data.
    pub(crate) prepared: u64,
}

impl Restore {
    /// Puts the data together as [`Restore::run`] does, beginning with this backup or a newer one, reads every table, and
    /// leaves nothing. `stop` ends the work.
    pub(crate) async fn verify(
        &self,
        order: &RecoveryOrder,
        newest: &BackupId,
        stop: oneshot::Receiver<()>,
    ) -> Result<Proof, RestoreError> {
        let server = Isolated::default();
        let proved = tokio::select! {
            proved = Box::pin(self.prove(order, newest, &server)) => proved,
            () = self.watch(&server) => Err(RestoreError::Stopped),
            _stopped = stop => Err(RestoreError::Stopped),
        };
        server.kill().await;
        let cleared = self.clear(&[&self.scratch, &self.directory]).await;
        let proof = proved?;
        cleared.map(|()| proof)
    }

    async fn prove(&self, order: &RecoveryOrder, newest: &BackupId, server: &Isolated) -> Result<Proof, RestoreError> {
        let (plan, unreadable) = self.plan(order, Some(newest)).await?;
        // Names begin with the time.
        if plan.base.id < *newest {
            let unreadable: Vec<String> = unreadable.iter().map(|problem| format!("; {problem}")).collect();
            return Err(RestoreError::NotNewest {
                newest: newest.to_string(),
                base: plan.base.id.to_string(),
                unreadable: unreadable.concat(),
            });
        }
        self.rebuild(&plan, server).await?;
        let checked = self.check(server).await?;
        (self.tell)(Stage::Ending);
        self.prove_point(server, &plan.plan.reaches).await?;
        server.stop().await?;
        Ok(Proof {
            backup: plan.base.id,
            name: plan.base.name,
            reached: plan.plan.reaches,
            time: plan.plan.reaches_time,
            checked,
        })
    }

    /// One table at a time, and the names of one schema at a time.
    async fn check(&self, server: &Isolated) -> Result<Checked, RestoreError> {
        const DURING: &str = "tables were being listed";
        let total = server.ask(DURING, async |client| client.count_tables().await).await?;
        let mut checked = Checked::default();
        for schema in server.ask(DURING, async |client| client.schemas().await).await? {
            let tables = server.ask(DURING, async |client| client.tables(&schema).await).await?;
            checked.schemas += 1;
            for table in tables {
                let done = checked.tables;
                (self.tell)(Stage::Checking { done, total });
                Self::check_table(server, &schema, &table).await?;
                checked.tables += 1;
            }
        }
        checked.prepared = server.ask(DURING, async |client| client.prepared().await).await?;
        Ok(checked)
    }

    async fn check_table(server: &Isolated, schema: &str, table: &str) -> Result<(), RestoreError> {
        let wrong = |reason| {
            Err(RestoreError::Check {
                table: format!("{schema}.{table}"),
                reason,
            })
        };
        let found = server.ask("a table was being checked", async |client| {
            client.check(schema, table).await
        });
        match found.await {
            Ok(None) => Ok(()),
            Ok(Some(words)) => wrong(words),
            // A page that is broken ends the server.
            Err(RestoreError::Ended { reason, .. }) => wrong(format!("mysqld ended: {reason}")),
            Err(RestoreError::Mysql(error @ MysqlError::Lost { .. })) => {
                let words = server.last_words().await;
                wrong(words.map_or_else(|| error.to_string(), |reason| format!("mysqld ended: {reason}")))
            }
            Err(RestoreError::Mysql(error)) => wrong(error.to_string()),
            Err(other) => Err(other),
        }
    }

    /// Says again and again how much was moved, until it is dropped.
    async fn watch(&self, server: &Isolated) {
        loop {
            sleep(LOOK).await;
            let scratch = self.scratch.clone();
            let arriving = tokio::task::spawn_blocking(move || size_of(&scratch)).await;
            let moved = server.moved().saturating_add(arriving.unwrap_or_default());
            (self.tell)(Stage::Moved(moved));
        }
    }
}
