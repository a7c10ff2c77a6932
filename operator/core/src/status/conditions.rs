//! The conditions: what, why, and what to do.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mainstay_api::MySQLClusterStatus;
use mainstay_api::backup_status::{VerificationResult, VerificationStatus};
use mainstay_api::status::Phase;

use super::Serving;
use crate::analyse::{Analysis, ConditionType, Problem, ProblemCode, Severity};
use crate::plan::Plan;
use crate::subject::Subject;

/// A condition without its times.
struct Said {
    type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

const ARCHIVED: &str = ConditionType::BinlogArchived.as_str();

/// Whether what is said of the archive differs from what was said before.
pub(super) fn archive_changes(previous: &[Condition], conditions: &[Condition]) -> bool {
    let said = |conditions: &[Condition]| {
        let archived = conditions.iter().find(|condition| condition.type_ == ARCHIVED);
        archived.map(|condition| {
            (
                condition.status.clone(),
                condition.reason.clone(),
                condition.message.clone(),
            )
        })
    };
    said(previous) != said(conditions)
}

/// Something is missing or impaired, not only worth knowing.
pub(super) fn is_degraded(analysis: &Analysis) -> bool {
    analysis
        .told_in(ConditionType::Degraded)
        .any(|problem| problem.code.kind().severity < Severity::Notice)
}

/// All conditions; the time of one changes only with its status, and that of `WritesBlocked` with what is waited for.
pub(super) fn all(
    subject: &Subject<'_>,
    analysis: &Analysis,
    plan: &Plan,
    phase: Phase,
    serving: Serving,
    previous: &MySQLClusterStatus,
    now: Timestamp,
) -> Vec<Condition> {
    let said = [
        available(analysis, serving),
        Some(progressing(analysis, plan, phase)),
        Some(degraded(analysis)),
        Some(told(analysis, ConditionType::SpecAccepted, "True", "Accepted")),
        Some(told(analysis, ConditionType::ResourcesReady, "True", "Ready")),
        blocked(analysis, serving),
        Some(told(analysis, ConditionType::Fenced, "False", "NotFenced")),
        backups(subject, analysis),
        archived(subject, analysis, serving),
    ];
    let names = [
        "Available",
        "Progressing",
        "Degraded",
        "SpecAccepted",
        "ResourcesReady",
        "WritesBlocked",
        "Fenced",
        "BackupHealthy",
        ARCHIVED,
    ];
    let conditions = said.into_iter().zip(names).filter_map(|(said, type_)| {
        let undeclared = type_ == ConditionType::BackupHealthy.as_str() && has_no_backups(subject)
            || type_ == ARCHIVED && subject.archives() == Some(false);
        if undeclared {
            return None;
        }
        let before = previous.conditions.iter().find(|condition| condition.type_ == type_);
        match said {
            Some(said) => Some(dated(said, subject.generation, before, now)),
            None => before.cloned(),
        }
    });
    let ours: Vec<_> = conditions.collect();
    // Conditions that another part keeps are left alone.
    let others = previous
        .conditions
        .iter()
        .filter(|condition| !names.contains(&condition.type_.as_str()))
        .cloned();
    ours.iter().cloned().chain(others).collect()
}

fn dated(said: Said, generation: i64, before: Option<&Condition>, now: Timestamp) -> Condition {
    // How long commits wait for replicas decides when fewer have to acknowledge (durability `preferred`): waiting for something
    // else before does not count.
    let for_replicas = |reason: &str| reason == ProblemCode::WritesBlocked.kind().name;
    let same = before.filter(|before| {
        before.status == said.status
            && (said.type_ != ConditionType::WritesBlocked.as_str()
                || for_replicas(&before.reason) == for_replicas(&said.reason))
    });
    // Kubernetes keeps whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Condition {
        last_transition_time: same.map_or(Time(now), |before| before.last_transition_time.clone()),
        message: said.message,
        observed_generation: Some(generation),
        reason: said.reason,
        status: said.status.to_owned(),
        type_: said.type_.to_owned(),
    }
}

fn available(analysis: &Analysis, serving: Serving) -> Option<Said> {
    let type_ = ConditionType::Available.as_str();
    match serving {
        Serving::Unknown => None,
        Serving::Open => {
            // A client does not see the difference between a primary that is not there and one whose commits do not end.
            let problems: Vec<_> = analysis.told_in(ConditionType::WritesBlocked).collect();
            let (reason, message) = sentence(&problems, "Open", "the primary accepts writes");
            Some(Said {
                type_,
                status: if problems.is_empty() { "True" } else { "False" },
                reason,
                message,
            })
        }
        Serving::Closed => {
            let problems: Vec<_> = analysis.told_in(ConditionType::Available).collect();
            let (reason, message) = sentence(&problems, "Closed", "no primary accepts writes");
            Some(Said {
                type_,
                status: "False",
                reason,
                message,
            })
        }
    }
}

fn blocked(analysis: &Analysis, serving: Serving) -> Option<Said> {
    match serving {
        Serving::Unknown => None,
        Serving::Open => Some(told(analysis, ConditionType::WritesBlocked, "False", "Acknowledged")),
        // There is nobody whose commits could wait.
        Serving::Closed => Some(Said {
            type_: ConditionType::WritesBlocked.as_str(),
            status: "False",
            reason: "NotOpen".to_owned(),
            message: String::new(),
        }),
    }
}

/// What is said of backups; nothing while the spec cannot be read.
fn backups(subject: &Subject<'_>, analysis: &Analysis) -> Option<Said> {
    let told = || told(analysis, ConditionType::BackupHealthy, "True", "Healthy");
    subject.spec.is_ok().then(told)
}

/// It declares none: then there is no condition about them either.
fn has_no_backups(subject: &Subject<'_>) -> bool {
    subject.spec.is_ok_and(|spec| spec.backup.is_none())
}

/// Only the open primary knows, and only of an archive that is known to be wanted.
fn archived(subject: &Subject<'_>, analysis: &Analysis, serving: Serving) -> Option<Said> {
    let knows = serving == Serving::Open && subject.archives() == Some(true);
    knows.then(|| told(analysis, ConditionType::BinlogArchived, "True", "Archived"))
}

/// Whether backups can be restored, where that is tried: the condition follows the newest run that has ended.
pub(super) fn verification(
    subject: &Subject<'_>,
    analysis: &Analysis,
    status: &mut MySQLClusterStatus,
    now: Timestamp,
) {
    const VERIFIED: &str = ConditionType::BackupVerified.as_str();
    // Unknown while the spec cannot be read.
    let Ok(spec) = subject.spec else { return };
    let declared = spec
        .backup
        .as_ref()
        .is_some_and(|backup| backup.settings.verification.is_some());
    let place = status
        .conditions
        .iter()
        .position(|condition| condition.type_ == VERIFIED);
    let before = place.map(|place| status.conditions.remove(place));
    let run = status.backup.as_ref().and_then(|backup| backup.verification.as_ref());
    let Some(run) = run.filter(|_| declared) else { return };
    let condition = match verified(analysis, run) {
        Some(said) => Some(dated(said, subject.generation, before.as_ref(), now)),
        None => before,
    };
    status.conditions.extend(condition);
}

/// `None`: a run goes on, and what was said before stays.
fn verified(analysis: &Analysis, run: &VerificationStatus) -> Option<Said> {
    let failed = told(analysis, ConditionType::BackupVerified, "True", "Verified");
    let said = |status, reason: &str, message| Said {
        status,
        reason: reason.to_owned(),
        message,
        ..failed
    };
    match run.result {
        _ if failed.status == "False" => Some(failed),
        Some(VerificationResult::Verified) => {
            let texts = [&run.backup, &run.message].map(|text| text.as_deref().unwrap_or_default());
            Some(said("True", "Verified", texts.join(": ")))
        }
        None => Some(said("Unknown", "NotYet", "no verification has ended yet".to_owned())),
        Some(VerificationResult::Running | VerificationResult::Failed) => None,
    }
}

/// A condition that is `good` unless a problem is told in it.
fn told(analysis: &Analysis, condition: ConditionType, good: &'static str, reason: &'static str) -> Said {
    let problems: Vec<_> = analysis.told_in(condition).collect();
    let bad = if good == "True" { "False" } else { "True" };
    let status = if problems.is_empty() { good } else { bad };
    let (reason, message) = sentence(&problems, reason, "");
    Said {
        type_: condition.as_str(),
        status,
        reason,
        message,
    }
}

fn degraded(analysis: &Analysis) -> Said {
    let problems: Vec<_> = analysis.told_in(ConditionType::Degraded).collect();
    let (reason, message) = sentence(&problems, "Complete", "");
    let status = if is_degraded(analysis) { "True" } else { "False" };
    Said {
        type_: ConditionType::Degraded.as_str(),
        status,
        reason,
        message,
    }
}

fn progressing(analysis: &Analysis, plan: &Plan, phase: Phase) -> Said {
    let joining: Vec<_> = analysis
        .of(ProblemCode::InstanceJoining)
        .map(|problem| problem.message.clone())
        .collect();
    let (status, reason) = match phase {
        Phase::Creating => ("True", "Creating"),
        Phase::Updating => ("True", "Updating"),
        Phase::FailingOver => ("True", "FailingOver"),
        Phase::SwitchingOver => ("True", "SwitchingOver"),
        Phase::Blocked => ("False", "Blocked"),
        Phase::Running if !joining.is_empty() => ("True", "Joining"),
        Phase::Running if plan.waiting.iter().any(|wait| wait.lasting) => ("False", "Waiting"),
        Phase::Running => ("False", "UpToDate"),
    };
    let waits: Vec<_> = plan
        .waiting
        .iter()
        .filter(|wait| wait.lasting)
        .map(|wait| format!("{} waits for {}", wait.who, wait.for_what))
        .collect();
    Said {
        type_: "Progressing",
        status,
        reason: reason.to_owned(),
        message: if waits.is_empty() { joining } else { waits }.join("; "),
    }
}

/// The reason of the first problem, and what is said of all of them.
fn sentence(problems: &[&Problem], reason: &str, message: &str) -> (String, String) {
    match problems.first() {
        None => (reason.to_owned(), message.to_owned()),
        Some(first) => {
            let texts: Vec<_> = problems.iter().map(|problem| problem.text()).collect();
            (first.code.kind().name.to_owned(), texts.join(". "))
        }
    }
}
