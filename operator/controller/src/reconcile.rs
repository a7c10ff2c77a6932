//! One pass over one cluster: the table of contents of the controller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::runtime::controller::Action as Requeue;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::Role;
use mainstay_core::analyse::analyse;
use mainstay_core::observed::Observed;
use mainstay_core::plan::{Plan, plan};
use mainstay_core::rules::Memory;
use mainstay_core::status;
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use crate::class::{self, Class};
use crate::clusters::{self, Guarded};
use crate::context::Context;
use crate::error::chain;
use crate::execute::{Execution, ExecuteError, Executor, write_status};
use crate::index::ClusterName;
use crate::metrics::PassResult;
use crate::observe::{look_at_foreign, observe};
use crate::unreadable;

/// A pass that takes longer than this is given up; the next one looks anew.
const PASS_LIMIT: Duration = Duration::from_secs(60);

/// Why a pass did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    /// The API server did not answer a question.
    #[error("failed to observe the cluster")]
    Observe(#[source] Box<kube::Error>),
    /// An action or the status write failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// A bug.
    #[error("failed to finish a pass: {0}")]
    Panicked(String),
    /// It took too long.
    #[error("failed to finish a pass within {PASS_LIMIT:?}")]
    Late,
}

impl PassError {
    /// What it means for the next try.
    #[must_use]
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Observe(error) => class::of_kube(error),
            Self::Execute(error) => error.class(),
            Self::Panicked(_) | Self::Late => Class::Retry,
        }
    }
}

/// One pass, counted and limited.
pub(crate) async fn reconcile(object: Arc<Guarded>, context: Arc<Context>) -> Result<Requeue, PassError> {
    let Some(cluster) = clusters::name(&object) else { return Ok(Requeue::await_change()) };
    let start = Instant::now();
    let passed = match tokio::time::timeout(PASS_LIMIT, pass(&context, &cluster, &object)).await {
        Ok(passed) => passed,
        Err(_) => Err(PassError::Late),
    };
    let result = match passed.as_ref().map_err(PassError::class) {
        Ok(_) => PassResult::Success,
        Err(Class::Retry) => PassResult::Retry,
        Err(Class::Wait) => PassResult::Wait,
        Err(Class::Permanent) => PassResult::Permanent,
    };
    context.metrics.pass(result, start.elapsed());
    if passed.is_ok() {
        context.memories.succeeded(&cluster);
    }
    passed
}

async fn pass(context: &Context, cluster: &ClusterName, object: &Guarded) -> Result<Requeue, PassError> {
    let object = match &object.0 {
        Ok(object) if object.metadata.deletion_timestamp.is_some() => return Ok(Requeue::await_change()),
        Ok(object) => object.clone(),
        Err(invalid) => return Ok(unreadable::report(context, cluster, invalid).await?),
    };
    let uid = object.uid().unwrap_or_default();
    let now = context.platform.now();

    look_at_foreign(context, cluster, &uid).await.map_err(|error| PassError::Observe(Box::new(error)))?;
    let mut observed = observe(context, cluster, &object);
    let valid = ValidatedCluster::new(&object);
    let subject = Subject {
        namespace: &cluster.namespace,
        name: &cluster.name,
        uid: &uid,
        generation: object.metadata.generation.unwrap_or_default(),
        operator_image: &context.operator_image,
        spec: valid.as_ref().map_err(Vec::as_slice),
    };
    let analysis = analyse(&subject, &observed, now);
    let plan = plan(&subject, &observed, &analysis, now);

    let mut executor = Executor::new(context, cluster, object, &observed);
    let execution = executor.execute(plan.actions.clone()).await?;
    let object = executor.into_object();
    remember(&mut observed, &execution);

    let previous = object.status.clone().unwrap_or_default();
    let status = status::status(&subject, &observed, &analysis, &plan, &previous, now);
    publish_health(context, cluster, &status);
    if status != previous {
        write_status(context, cluster, &object, status).await?;
    }
    finish(context, cluster, &plan, execution)
}

/// After a `Record` the memory is what was recorded.
fn remember(observed: &mut Observed, execution: &Execution) {
    if let Some(rules) = &execution.recorded {
        observed.memory = Memory::Known(Box::new(rules.clone()));
    }
}

fn publish_health(context: &Context, cluster: &ClusterName, status: &MySQLClusterStatus) {
    for (role, label) in [(Role::Primary, "primary"), (Role::Replica, "replica")] {
        let serving = status.instances.iter().filter(|instance| instance.ready && instance.role == Some(role)).count();
        context.metrics.health(cluster, label, i64::try_from(serving).unwrap_or(i64::MAX));
    }
}

/// When to look again.
fn finish(
    context: &Context,
    cluster: &ClusterName,
    plan: &Plan,
    execution: Execution,
) -> Result<Requeue, PassError> {
    context.pool.attend(cluster, !(plan.actions.is_empty() && plan.waiting.is_empty()));
    for wait in &plan.waiting {
        tracing::debug!(%cluster, "{} waits for {}", wait.who, wait.for_what);
    }
    let mut failures = execution.failures;
    failures.sort_by_key(|failure| failure.class() as u8);
    let mut failures = failures.into_iter();
    let first = failures.next();
    for other in failures {
        tracing::warn!(%cluster, error = chain(&other), "an action failed");
    }
    match first {
        Some(failure) => Err(failure.into()),
        None => Ok(plan.look_again.map_or_else(Requeue::await_change, Requeue::requeue)),
    }
}

/// What happens after an error: this cluster's own backoff.
pub(crate) fn after_error(object: Arc<Guarded>, error: &PassError, context: Arc<Context>) -> Requeue {
    let Some(cluster) = clusters::name(&object) else { return Requeue::await_change() };
    let failures = context.memories.failed(&cluster);
    let pause = match error.class() {
        Class::Retry => backoff(failures),
        Class::Wait => Duration::from_secs(30),
        Class::Permanent => Duration::from_secs(300),
    };
    tracing::warn!(%cluster, failures, pause = ?pause, error = chain(error), "a pass failed");
    Requeue::requeue(pause)
}

/// 100 ms, twice as long each time, up to 30 s.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    Duration::from_millis(100).saturating_mul(1 << doublings).min(Duration::from_secs(30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_doubles_up_to_its_limit() {
        assert_eq!(backoff(1), Duration::from_millis(100));
        assert_eq!(backoff(2), Duration::from_millis(200));
        assert_eq!(backoff(9), Duration::from_millis(25_600));
        assert_eq!(backoff(10), Duration::from_secs(30));
        assert_eq!(backoff(u32::MAX), Duration::from_secs(30));
    }
}
