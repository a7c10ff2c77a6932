//! `status.recovery`: how far the recovery of the first data is, and what it reached.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::{RecoveryPhase, RecoveryStatus};

use crate::analyse::{Analysis, ProblemCode};
use crate::observed::{InstanceObserved, Mysqld, Observed, Recovered};
use crate::plan;
use crate::subject::Subject;

/// What is told at the end of a pass. What was reached is kept when the data directory that was recovered is gone.
pub(super) fn recovery(
    subject: &Subject<'_>,
    observed: &Observed,
    analysis: &Analysis,
    previous: &MySQLClusterStatus,
) -> Option<Box<RecoveryStatus>> {
    let before = previous.recovery.clone();
    let Some(wish) = subject.recovery() else { return before };
    let reports = observed.instances.iter().filter_map(InstanceObserved::report);
    let mut done = reports.filter_map(|report| report.recovered.as_deref());
    if let Some(recovered) = done.find(|recovered| recovered.request == wish.request) {
        return Some(Box::new(reached(recovered)));
    }
    if !plan::is_recovery_due(subject, observed) {
        return before;
    }
    let failure = analysis.of(ProblemCode::RecoveryFailed).next();
    let (phase, message) = match failure {
        Some(failure) => (RecoveryPhase::Failed, Some(failure.message.clone())),
        None => (RecoveryPhase::Running, progress(observed)),
    };
    Some(Box::new(RecoveryStatus {
        phase,
        message,
        backup: None,
        reached_gtid: None,
        reached_time: None,
        completed_at: None,
    }))
}

fn reached(recovered: &Recovered) -> RecoveryStatus {
    RecoveryStatus {
        phase: RecoveryPhase::Done,
        message: None,
        backup: Some(recovered.backup.clone()),
        reached_gtid: Some(recovered.reached.to_string()),
        reached_time: recovered.time.map(MicroTime),
        completed_at: Some(MicroTime(recovered.completed_at)),
    }
}

/// What the first instance says.
fn progress(observed: &Observed) -> Option<String> {
    let first = observed
        .instances
        .iter()
        .find(|instance| instance.ordinal == plan::RECOVERING)?;
    let report = first.report()?;
    let recovers = report.mysqld == Mysqld::Initialising && !report.message.is_empty();
    recovers.then(|| report.message.clone())
}
