//! `Record`: the rules' memory, by compare-and-set.

use std::time::Instant;

use kube::core::DeserializeGuard;
use mainstay_api::{MySQLCluster, MySQLClusterStatus};
use mainstay_core::action::Record;
use mainstay_core::status;

use super::{ExecuteError, Executor};
use crate::class::is_conflict;
use crate::context::Context;
use crate::events::Line;
use crate::index::ClusterName;

impl Executor<'_> {
    /// Writes the rules' memory (rule 0). The resourceVersion is that of the status from which the plan was made.
    pub(super) async fn record(&mut self, record: &Record) -> Result<(), ExecuteError> {
        let previous = self.object.status.clone().unwrap_or_default();
        let status = status::record(&previous, &record.rules);
        self.object = write_status(self.context, self.cluster, &self.object, status).await?;
        tracing::info!(epoch = record.rules.epoch, reason = record.reason, "{}", record.message);
        let line = if record.is_warning() {
            Line::warning
        } else {
            Line::normal
        };
        self.context
            .events
            .publish(&self.object, line(record.reason, "Record", record.message.clone()));
        Ok(())
    }
}

/// Replaces the status, if it is still the one of `object`, and gives the object as it is then.
pub(crate) async fn write_status(
    context: &Context,
    cluster: &ClusterName,
    object: &MySQLCluster,
    status: MySQLClusterStatus,
) -> Result<MySQLCluster, ExecuteError> {
    let mut wanted = object.clone();
    wanted.status = Some(status);
    let clusters = context.requests.typed::<MySQLCluster>(&cluster.namespace);
    let start = Instant::now();
    let written = clusters.replace_status(&cluster.name, &wanted).await;
    let result = match &written {
        Ok(_) => "success",
        Err(error) if is_conflict(error) => "conflict",
        Err(_) => "error",
    };
    context.metrics.status_update(result, start.elapsed());
    match written {
        Ok(written) => {
            // The next pass must not plan from the status before this one.
            context.world.clusters.put(DeserializeGuard(Ok(written.clone())));
            Ok(written)
        }
        Err(error) => Err(ExecuteError::kube("write the status", error)),
    }
}
