//! What is wrong, as a list of names: for `kubectl get`, and to tell what is new.

use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::ProblemStatus;

use super::Serving;
use crate::analyse::{Analysis, ConditionType, PROBLEMS, Problem, ProblemCode, Severity};
use crate::rules::InstanceName;
use crate::view::View;

/// The problems, the worst first, each once; of what was not heard for a moment, what was told before.
pub(super) fn all(
    view: Option<&View<'_>>,
    analysis: &Analysis,
    serving: Serving,
    previous: &MySQLClusterStatus,
) -> Vec<ProblemStatus> {
    let found = analysis.problems.iter().filter(|problem| is_told(problem.code));
    let mut problems: Vec<_> = found
        .map(|problem| {
            (
                problem.code,
                problem.instance.as_ref().map(|instance| instance.0.clone()),
            )
        })
        .collect();
    let before = previous.problems.iter().filter_map(|told| Some((code(told)?, told)));
    let kept = before.filter(|(code, told)| is_unknown(view, analysis, serving, *code, told));
    problems.extend(kept.map(|(code, told)| (code, told.instance.clone())));
    sorted(problems)
}

/// The same while a primary is being elected, which is recorded before anything else is looked at.
pub(super) fn with(previous: &MySQLClusterStatus, code: ProblemCode, instance: Option<String>) -> Vec<ProblemStatus> {
    let before = previous
        .problems
        .iter()
        .filter_map(|told| Some((self::code(told)?, told.instance.clone())));
    // It says where writes are, as these do.
    let others = before.filter(|(code, _)| !is_about_writes(*code));
    sorted(others.chain([(code, instance)]).collect())
}

/// Whether it is in the list, with these names.
pub(super) fn contains(list: &[ProblemStatus], problem: &Problem) -> bool {
    let name = problem.code.kind().name;
    let instance = problem.instance.as_ref().map(|instance| instance.0.as_str());
    list.iter()
        .any(|told| told.name == name && told.instance.as_deref() == instance)
}

/// A notice is no problem, and neither is it that a cluster is being made.
fn is_told(code: ProblemCode) -> bool {
    code.kind().severity < Severity::Notice && code != ProblemCode::FirstPrimaryPending
}

fn is_about_writes(code: ProblemCode) -> bool {
    matches!(
        code.kind().condition,
        ConditionType::Available | ConditionType::WritesBlocked
    )
}

/// Nobody can say at the moment whether it is still so: an operator that has just begun shows nothing and tells nothing anew.
fn is_unknown(
    view: Option<&View<'_>>,
    analysis: &Analysis,
    serving: Serving,
    code: ProblemCode,
    told: &ProblemStatus,
) -> bool {
    if is_about_writes(code) {
        return serving == Serving::Unknown;
    }
    let (Some(view), Some(instance)) = (view, &told.instance) else {
        return false;
    };
    // As its condition: only the open primary knows.
    if code.kind().condition == ConditionType::BinlogArchived && view.subject.archives() != Some(false) {
        return serving != Serving::Open || view.subject.archives().is_none();
    }
    let name = InstanceName(instance.clone());
    let silent = view.observed.instance(&name).and_then(View::silent_since);
    let moment = silent.is_some_and(|since| view.age(since) < view.timing.silence);
    let named = |problem: &Problem| problem.instance.as_ref() == Some(&name) && !passes(problem.code);
    moment && !passes(code) && !analysis.problems.iter().any(named)
}

/// The code of a name; `None` for one of another version.
fn code(told: &ProblemStatus) -> Option<ProblemCode> {
    PROBLEMS.iter().copied().find(|code| code.kind().name == told.name)
}

fn sorted(mut problems: Vec<(ProblemCode, Option<String>)>) -> Vec<ProblemStatus> {
    problems.sort_by(|a, b| (rank(a.0), a).cmp(&(rank(b.0), b)));
    problems.dedup();
    let write = |(code, instance): (ProblemCode, Option<String>)| ProblemStatus {
        name: code.kind().name.to_owned(),
        instance,
    };
    problems.into_iter().map(write).collect()
}

/// That no primary is open is mostly what something else comes to, and `health` says it, too.
fn rank(code: ProblemCode) -> (bool, Severity) {
    (code == ProblemCode::PrimaryLost, code.kind().severity)
}

/// It passes by itself as a rule, or what leads to it is told in an event: that a primary was lost, or a pod deleted.
pub(super) const fn passes(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::PrimaryLost
            | ProblemCode::ElectionInProgress
            | ProblemCode::PrimaryFenced
            | ProblemCode::RecoveryFailed
            | ProblemCode::FirstPrimaryPending
            | ProblemCode::InstanceFenced
            | ProblemCode::InstanceJoining
            | ProblemCode::InstanceMissing
            | ProblemCode::InstanceNotReady
            | ProblemCode::BackupFailed
            | ProblemCode::BackupsNotVerified
    )
}
