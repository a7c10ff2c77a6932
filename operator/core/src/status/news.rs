//! What a write of status says that is news: for events and metrics. (What is recorded is told where it is recorded.)

use mainstay_api::MySQLClusterStatus;
use mainstay_api::backup_status::{VerificationResult, VerificationStatus};
use mainstay_api::status::{ChangeKind, LastChange, Phases, RecoveryPhase, RecoveryStatus, Request, RequestResult};

use super::problems;
use crate::analyse::{Analysis, Problem};

/// Something that became known with a write of status.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A new primary is open and routed to.
    Changed(LastChange),
    /// A request ended, or was refused.
    Answered(Request),
    /// The first data were recovered, or cannot be.
    Recovery(RecoveryStatus),
    /// A verification began, or ended.
    Verification(VerificationStatus),
    /// Something is wrong that was not before.
    Found(Problem),
}

impl News {
    /// Whether a person should look at it.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Changed(_) => false,
            Self::Answered(request) => matches!(request.result, RequestResult::Refused | RequestResult::Failed),
            Self::Recovery(recovery) => recovery.phase == RecoveryPhase::Failed,
            Self::Verification(run) => run.result == Some(VerificationResult::Failed),
            Self::Found(_) => true,
        }
    }

    /// CamelCase, for an event.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Changed(_) => "PrimaryChanged",
            Self::Answered(request) => match request.result {
                RequestResult::Refused => "RequestRefused",
                RequestResult::Failed => "RequestFailed",
                RequestResult::Done | RequestResult::Running => "RequestDone",
            },
            Self::Recovery(recovery) => match recovery.phase {
                RecoveryPhase::Failed => "RecoveryFailed",
                RecoveryPhase::Running | RecoveryPhase::Done => "Recovered",
            },
            Self::Verification(run) => match run.result {
                Some(VerificationResult::Verified) => "BackupVerified",
                Some(VerificationResult::Failed) => "VerificationFailed",
                Some(VerificationResult::Running) | None => "VerificationStarted",
            },
            Self::Found(problem) => problem.code.kind().name,
        }
    }

    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Changed(change) => changed(change),
            Self::Answered(request) => {
                let about = request.instance.as_ref().map(|instance| format!(" {instance}"));
                let verb = if request.verb.is_empty() {
                    "request"
                } else {
                    &request.verb
                };
                format!("{verb}{}: {}", about.unwrap_or_default(), request.message)
            }
            Self::Recovery(recovery) => recovered(recovery),
            Self::Verification(run) => {
                let texts = [&run.backup, &run.message].map(|text| text.as_deref().unwrap_or_default());
                texts.join(": ")
            }
            Self::Found(problem) => problem.text(),
        }
    }
}

/// What is new in `next`.
#[must_use]
pub fn news(previous: &MySQLClusterStatus, next: &MySQLClusterStatus) -> Vec<News> {
    let mut news = Vec::new();
    let opened = |status: &MySQLClusterStatus| {
        let change = status.last_change.clone()?;
        change.writes_blocked_ms.is_some().then_some(change)
    };
    if let Some(change) = opened(next)
        && opened(previous).is_none_or(|before| before.at != change.at)
    {
        news.push(News::Changed(change));
    }
    if let Some(request) = &next.request
        && request.result != RequestResult::Running
        && previous.request.as_ref() != Some(request)
    {
        news.push(News::Answered(request.clone()));
    }
    if let Some(recovery) = next.recovery.as_deref()
        && recovery.phase != RecoveryPhase::Running
        && previous.recovery.as_deref() != Some(recovery)
    {
        news.push(News::Recovery(recovery.clone()));
    }
    if let Some(run) = verification(next).filter(|run| run.result.is_some())
        && verification(previous).is_none_or(|before| (&before.last_run, before.result) != (&run.last_run, run.result))
    {
        news.push(News::Verification(run.clone()));
    }
    news
}

fn verification(status: &MySQLClusterStatus) -> Option<&VerificationStatus> {
    status.backup.as_ref()?.verification.as_ref()
}

/// The problems that `next` has and `previous` has not, each once for its instance, as `analysis` found them. Without those that
/// pass or have an event of their own.
#[must_use]
pub fn found(previous: &MySQLClusterStatus, next: &MySQLClusterStatus, analysis: &Analysis) -> Vec<News> {
    let is_new = |problem: &&Problem| {
        let new = problems::contains(&next.problems, problem) && !problems::contains(&previous.problems, problem);
        new && !problems::passes(problem.code)
    };
    let problems = analysis.problems.iter().filter(is_new);
    problems.cloned().map(News::Found).collect()
}

/// "switchover shop-0 → shop-1: 0.19 s without writes (fence 0.01, catch up 0.05, …)"
fn changed(change: &LastChange) -> String {
    let what = described(change.kind, change.from.as_deref(), &change.to);
    let blocked = change.writes_blocked_ms.unwrap_or_default();
    let parts = change
        .phases
        .map(|phases| format!(" ({})", parts(&phases)))
        .unwrap_or_default();
    format!("{what}: {}{parts}", lasted(change.kind, blocked))
}

/// How long a change took, from milliseconds: of a failover it is not known since when no writes were accepted, only since when
/// that was seen.
#[must_use]
pub fn lasted(kind: ChangeKind, ms: i64) -> String {
    let seconds = seconds(ms);
    match kind {
        ChangeKind::Failover => format!("{seconds} s from its detection to writes"),
        ChangeKind::Bootstrap | ChangeKind::Switchover => format!("{seconds} s without writes"),
    }
}

/// A change of primary in the same words wherever it is told: "failover shop-0 → shop-1".
#[must_use]
pub fn described(kind: ChangeKind, from: Option<&str>, to: &str) -> String {
    match (kind, from) {
        (ChangeKind::Bootstrap, _) => format!("first primary {to}"),
        // It answered before another one could win.
        (ChangeKind::Failover, Some(from)) if from == to => format!("{to} was elected again"),
        // It was closed for a switchover that was given up, or by a fence.
        (ChangeKind::Switchover, Some(from)) if from == to => format!("{to} was opened again"),
        (ChangeKind::Failover, Some(from)) => format!("failover {from} → {to}"),
        (ChangeKind::Switchover, Some(from)) => format!("switchover {from} → {to}"),
        (ChangeKind::Failover, None) => format!("failover to {to}"),
        (ChangeKind::Switchover, None) => format!("switchover to {to}"),
    }
}

/// "recovered from 20261130t073000z-x7k2p up to 2026-11-30T08:12:44.1Z (3e11fa47-…:1-88121)"
fn recovered(recovery: &RecoveryStatus) -> String {
    if let (Some(backup), Some(gtid)) = (&recovery.backup, &recovery.reached_gtid) {
        let time = recovery.reached_time.as_ref();
        let reached = time.map_or_else(|| gtid.clone(), |time| format!("{} ({gtid})", time.0));
        return format!("recovered from {backup} up to {reached}");
    }
    recovery.message.clone().unwrap_or_default()
}

/// The parts that are known, in order: "fence 0.01, catch up 0.05".
#[must_use]
pub fn parts(phases: &Phases) -> String {
    let known = named(phases).into_iter().filter_map(|(name, ms)| Some((name, ms?)));
    let texts: Vec<_> = known.map(|(name, ms)| format!("{name} {}", seconds(ms))).collect();
    texts.join(", ")
}

/// Each part of a change with its name, in order.
#[must_use]
pub const fn named(phases: &Phases) -> [(&'static str, Option<i64>); 6] {
    [
        ("fence", phases.fence_ms),
        ("catch up", phases.catch_up_ms),
        ("attach", phases.attach_ms),
        ("record", phases.record_ms),
        ("open", phases.open_ms),
        ("route", phases.route_ms),
    ]
}

/// `0.19`, from milliseconds.
#[must_use]
pub fn seconds(ms: i64) -> String {
    let hundredths = ms.max(0).saturating_add(5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
