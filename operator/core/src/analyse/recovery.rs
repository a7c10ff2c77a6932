//! Recoveries that do not succeed.

use crate::analyse::{Analysis, ProblemCode};
use crate::observed::Observed;
use crate::plan;
use crate::subject::Subject;

/// Reason of the warning that the source of a recovery cannot be looked up.
pub const RECOVERY_SOURCE: &str = "RecoverySource";

/// The first data of the cluster cannot be had.
pub(super) fn failed(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    if !plan::is_recovery_due(subject, observed) {
        return;
    }
    for warning in observed
        .warnings
        .iter()
        .filter(|warning| warning.reason == RECOVERY_SOURCE)
    {
        analysis.found(ProblemCode::RecoveryFailed, warning.message.clone());
    }
    if let Some((instance, report)) = plan::failing_recovery(observed) {
        let message = format!("{}: {}", instance.name, report.message);
        analysis.found_on(ProblemCode::RecoveryFailed, &instance.name, message);
    }
}
