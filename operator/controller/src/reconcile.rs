//! One pass over one cluster: the table of contents of the controller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action as Requeue;
use mainstay_api::status::Role;
use mainstay_api::{MySQLCluster, MySQLClusterStatus};
use mainstay_core::analyse::analyse;
use mainstay_core::backup;
use mainstay_core::backup::plan::{BackupPlan, Declared};
use mainstay_core::observed::Observed;
use mainstay_core::plan::plan;
use mainstay_core::progress::Stage;
use mainstay_core::rules::Memory;
use mainstay_core::status::{self, News};
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use crate::class::{self, Class};
use crate::clusters::{self, Guarded};
use crate::context::Context;
use crate::error::chain;
use crate::events::Line;
use crate::execute::{ExecuteError, Execution, Executor, write_status};
use crate::index::ClusterName;
use crate::observe::{look_at_foreign, observe};
use crate::trace;
use crate::unreadable;

/// A pass that takes longer than this is given up; the next one looks anew.
const PASS_LIMIT: Duration = Duration::from_mins(1);

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
    let Some(cluster) = clusters::name(&object) else {
        return Ok(Requeue::await_change());
    };
    let start = Instant::now();
    let passed = match tokio::time::timeout(PASS_LIMIT, Box::pin(pass(&context, &cluster, &object))).await {
        Ok(passed) => passed,
        Err(_) => Err(PassError::Late),
    };
    let (class, requeue) = match passed {
        Ok(Passed { look_again, failures }) => conclude(&context, &cluster, look_again, failures),
        Err(error) => (Some(error.class()), Err(error)),
    };
    context.metrics.pass(class, start.elapsed());
    requeue
}

/// What a pass came to.
struct Passed {
    /// When the plan wants to look again.
    look_again: Option<Duration>,
    /// Actions that failed while the rest of the plan was carried out.
    failures: Vec<ExecuteError>,
}

async fn pass(context: &Context, cluster: &ClusterName, object: &Guarded) -> Result<Passed, PassError> {
    let object = match &object.0 {
        Ok(object) if object.metadata.deletion_timestamp.is_some() => return Ok(Passed::nothing()),
        Ok(object) => object.clone(),
        Err(invalid) => {
            unreadable::report(context, cluster, invalid).await?;
            return Ok(Passed::nothing());
        }
    };
    let uid = object.uid().unwrap_or_default();
    if context.memories.ends(cluster, &uid) {
        return Ok(Passed::nothing());
    }
    let now = context.platform.now();

    look_at_foreign(context, cluster, &uid)
        .await
        .map_err(|error| PassError::Observe(Box::new(error)))?;
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
    let backups = plan_backups(&subject, &observed, now);
    trace::pass(cluster, &observed, &plan);
    enter(context, cluster, &mut observed, plan.stage, now);

    let mut executor = Executor::new(context, cluster, object, &observed);
    let mut execution = executor.execute(plan.actions.clone()).await?;
    if execution.terminating {
        tracing::info!(%cluster, "its namespace is being deleted: nothing is done any more");
        context.memories.end(cluster, &uid);
        return Ok(Passed::nothing());
    }
    // After the plan of the cluster: whatever is in its way, writes come first.
    execution
        .failures
        .extend(executor.execute_backups(subject.spec.ok(), backups.actions).await);
    let object = executor.into_object();
    remember(&mut observed, &execution);
    let done = plan.stage.and_then(Stage::after_actions);
    enter(context, cluster, &mut observed, done, context.platform.now());

    let previous = object.status.clone().unwrap_or_default();
    let status = status::status(&subject, &observed, &analysis, &plan, &previous, now);
    publish_health(context, cluster, &status);
    if status != previous {
        let mut news = status::news(&previous, &status);
        news.extend(status::found(&previous, &status, &analysis));
        write_status(context, cluster, &object, status).await?;
        tell(context, &object, &news);
    }
    context
        .pool
        .attend(cluster, !(plan.actions.is_empty() && plan.waiting.is_empty()));
    Ok(Passed {
        look_again: [plan.look_again, backups.look_again].into_iter().flatten().min(),
        failures: execution.failures,
    })
}

/// What is done about backups, from the same observation.
fn plan_backups(subject: &Subject<'_>, observed: &Observed, now: Timestamp) -> BackupPlan {
    let declared = Declared::of(subject, observed);
    backup::plan::plan(subject, observed, &declared, &observed.backups, now)
}

impl Passed {
    /// There was nothing to do.
    const fn nothing() -> Self {
        Self {
            look_again: None,
            failures: Vec::new(),
        }
    }
}

/// After a `Record` the memory is what was recorded.
fn remember(observed: &mut Observed, execution: &Execution) {
    if let Some(rules) = &execution.recorded {
        observed.memory = Memory::Known(Box::new(rules.clone()));
    }
}

/// Notes where a change of primary is: kept between passes, and for the status of this one.
fn enter(context: &Context, cluster: &ClusterName, observed: &mut Observed, stage: Option<Stage>, at: Timestamp) {
    if let (Some(stage), Memory::Known(rules)) = (stage, &observed.memory) {
        observed.progress.enter(rules, stage, at);
        context.memories.keep_progress(cluster, &observed.progress);
    }
}

/// Events and metrics of what became known with a write of status.
fn tell(context: &Context, about: &MySQLCluster, news: &[News]) {
    for news in news {
        if let News::Changed(change) = news {
            context.metrics.change(change);
        }
        let line = if news.is_warning() { Line::warning } else { Line::normal };
        let action = match news {
            News::Changed(_) => "Change",
            News::Answered(_) => "Request",
            News::Recovery(_) => "Recover",
            News::Verification(_) => "Verify",
            News::Found(_) => "Analyse",
        };
        context
            .events
            .publish(about, line(news.reason(), action, news.sentence()));
    }
}

fn publish_health(context: &Context, cluster: &ClusterName, status: &MySQLClusterStatus) {
    for role in [Role::Primary, Role::Replica] {
        let serving = status
            .instances
            .iter()
            .filter(|instance| instance.ready && instance.role == Some(role))
            .count();
        context
            .metrics
            .health(cluster, role.as_str(), i64::try_from(serving).unwrap_or(i64::MAX));
    }
    let backup = status.backup.as_deref();
    let verified = backup.and_then(|backup| backup.last_verified.as_ref());
    let declared = backup.is_some_and(|backup| backup.verification.is_some());
    let at = verified.map_or(0.0, |verified| verified.completed_at.0.as_duration().as_secs_f64());
    context.metrics.verified(cluster, declared.then_some(at));
}

/// When to look again after a pass in which some actions failed: as the plan wants, or sooner to try them again.
fn conclude(
    context: &Context,
    cluster: &ClusterName,
    look_again: Option<Duration>,
    mut failures: Vec<ExecuteError>,
) -> (Option<Class>, Result<Requeue, PassError>) {
    failures.sort_by_key(ExecuteError::class);
    let Some(class) = failures.first().map(ExecuteError::class) else {
        context.memories.succeeded(cluster);
        return (
            None,
            Ok(look_again.map_or_else(Requeue::await_change, Requeue::requeue)),
        );
    };
    let texts: Vec<String> = failures.iter().map(|failure| chain(failure)).collect();
    let pause = pause(context, cluster, class, &texts.join("; "));
    let soonest = look_again.map_or(pause, |look_again| look_again.min(pause));
    (Some(class), Ok(Requeue::requeue(soonest)))
}

/// What happens after an error: this cluster's own backoff.
pub(crate) fn after_error(object: &Guarded, error: &PassError, context: &Context) -> Requeue {
    let Some(cluster) = clusters::name(object) else {
        return Requeue::await_change();
    };
    Requeue::requeue(pause(context, &cluster, error.class(), &chain(error)))
}

/// How long to wait before the next try; says so when it is news.
fn pause(context: &Context, cluster: &ClusterName, class: Class, what: &str) -> Duration {
    let failures = context.memories.failed(cluster, what);
    let pause = match class {
        Class::Retry => backoff(failures),
        Class::Wait => Duration::from_secs(30),
        Class::Permanent => Duration::from_mins(5),
    };
    // Passes are called by changes, too: the same failure is told at its 1st, 2nd, 4th, 8th … time.
    if failures.is_power_of_two() {
        tracing::warn!(%cluster, failures, ?pause, error = what, "a pass failed");
    }
    pause
}

/// 100 ms, twice as long each time, up to 30 s.
fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    Duration::from_millis(100)
        .saturating_mul(1 << doublings)
        .min(Duration::from_secs(30))
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
