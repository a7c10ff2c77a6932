//! Verification: when the newest backup is tried out, and what is said of it (docs/backup.md, "Verification").
//!
//! A run has no object of its own. It is its Job, which says for which due time and of which backup it is, and the
//! status of the cluster. What came of it is written to status before the Job is deleted, so that an operator that dies
//! between any two steps is continued by the next one, and no due time is used twice.

pub mod wire;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::backup::BackupPhase;
use mainstay_api::backup_status::{VerificationResult, VerificationStatus};

use super::plan::{BackupAction, BackupPlan, BackupSeen, Declared, JobState, START, Seen};
use super::schedule::{Due, Runs, Schedule, Switches, due};
use crate::GtidSet;
use crate::subject::Subject;
use crate::view::age;
pub use wire::{Outcome, Task, Verified};

/// How often it is tried to make a Job whose name is somebody else's.
const FOREIGN: Duration = Duration::from_mins(1);

/// What the spec says of verification, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// When.
    pub schedule: Schedule,
    /// No run begins.
    pub suspended: bool,
}

/// The Job of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationJob {
    /// Its name: [`verify_job`](crate::names::Names::verify_job).
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// It carries Mainstay's labels.
    pub ours: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// For which due time it is.
    pub due: Timestamp,
    /// The `MySQLBackup` that it verifies.
    pub backup: String,
    /// How far it is.
    pub state: JobState<Verified>,
}

/// A verification that is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationStart {
    /// Name of the Job.
    pub job: String,
    /// For which due time.
    pub due: Timestamp,
    /// What it is to do.
    pub task: Task,
}

/// Starts a run that is due, and cleans up after one whose end was written.
pub(super) fn plan(subject: &Subject<'_>, declared: &Declared<'_>, seen: &Seen, now: Timestamp, plan: &mut BackupPlan) {
    let settings = declared.settings.and_then(|settings| settings.verification.as_ref());
    if let Some(job) = &seen.verification {
        // Of a spec that cannot be accepted nobody knows what it declares.
        let undeclared = settings.is_none() && (declared.settings.is_some() || subject.spec.is_ok());
        look_after(job, undeclared, seen, now, plan);
        return;
    }
    let (Some(settings), Some(told)) = (settings, &seen.told.verification) else {
        // When the schedule was seen first is written to status first: a due time before that is not made up.
        return;
    };
    let runs = Runs {
        since: told.since.0,
        last: told.last_run.as_ref().map(|at| at.0),
    };
    let switches = Switches {
        suspended: settings.suspended,
        immediate: false,
    };
    match due(&settings.schedule, switches, runs, now) {
        Due::Now(at) => match begin(subject, declared, seen, at, plan) {
            Ok(start) => plan.actions.push(BackupAction::Verify(Box::new(start))),
            Err(why) => plan.wait("verification", why),
        },
        Due::Later(at) => plan.look_at(at, now),
        Due::Never => {}
    }
}

fn look_after(job: &VerificationJob, undeclared: bool, seen: &Seen, now: Timestamp, plan: &mut BackupPlan) {
    if !job.ours {
        plan.wait(
            "verification",
            format!("the Job {}, which is not Mainstay's, to be deleted", job.name),
        );
        if let Ok(later) = now.checked_add(FOREIGN) {
            plan.look_at(later, now);
        }
        return;
    }
    if undeclared || is_over(seen.told.verification.as_ref(), job) {
        plan.actions.push(BackupAction::DeleteJob {
            name: job.name.clone(),
            uid: job.uid.clone(),
        });
        return;
    }
    if let JobState::Waiting { since, .. } = job.state
        && let Ok(limit) = since.checked_add(START)
    {
        plan.look_at(limit, now);
    }
}

/// What came of it stands in status: it says nothing new any more, whatever becomes of it.
fn is_over(told: Option<&VerificationStatus>, job: &VerificationJob) -> bool {
    told.is_some_and(|told| is_of(told, job) && told.result.is_some_and(VerificationResult::is_final))
}

fn is_of(told: &VerificationStatus, job: &VerificationJob) -> bool {
    told.last_run.as_ref().map(|at| at.0) == Some(job.due)
}

/// What a Job is to do, if one may begin; else for what it waits.
fn begin(
    subject: &Subject<'_>,
    declared: &Declared<'_>,
    seen: &Seen,
    due: Timestamp,
    plan: &BackupPlan,
) -> Result<VerificationStart, String> {
    declared.access.clone()?;
    let newest = newest(seen).ok_or("a backup that succeeded")?;
    if let Some(job) = seen.jobs.iter().find(|job| job.ours) {
        return Err(format!("{} to end", job.name));
    }
    let starts = |action: &BackupAction| matches!(action, BackupAction::Create { .. } | BackupAction::Start(_));
    // One that waits for something says so in its phase, and may wait for long.
    let begins = |backup: &&BackupSeen| {
        let phase = backup.status.phase;
        !backup.deleting && phase.is_none_or(|phase| phase == BackupPhase::Running)
    };
    if plan.actions.iter().any(starts) || seen.backups.iter().any(|backup| begins(&backup)) {
        return Err("a backup that is about to begin".to_owned());
    }
    Ok(VerificationStart {
        job: subject.names().verify_job(),
        due,
        task: Task {
            id: newest.id().map_err(|error| format!("a name in the store ({error})"))?,
            name: newest.name.clone(),
        },
    })
}

/// The newest backup that succeeded.
fn newest(seen: &Seen) -> Option<&BackupSeen> {
    let usable = |backup: &&BackupSeen| !backup.deleting && backup.status.phase == Some(BackupPhase::Succeeded);
    let at = |backup: &&BackupSeen| (backup.status.completed_at.as_ref().map(|at| at.0), backup.name.clone());
    seen.backups.iter().filter(usable).max_by_key(at)
}

/// `status.backup.verification` at the end of a pass; equal to `previous` when nothing is new.
#[must_use]
pub fn status(
    previous: Option<&VerificationStatus>,
    declared: Option<&Verification>,
    seen: &Seen,
    now: Timestamp,
) -> Option<VerificationStatus> {
    declared?;
    let before = previous.cloned().unwrap_or_else(|| known_since(MicroTime(now)));
    let Some(job) = seen.verification.as_ref().filter(|job| job.ours) else {
        // It was told from its Job, and every operator lists all Jobs before its first pass: this one is gone.
        let gone = before.result == Some(VerificationResult::Running);
        return Some(if gone {
            let message = "its Job is gone; the next run is by the schedule";
            failed(before, "JobGone", message, now)
        } else {
            before
        });
    };
    if is_over(Some(&before), job) {
        return Some(before);
    }
    Some(of_job(before, job, now))
}

fn known_since(since: MicroTime) -> VerificationStatus {
    VerificationStatus {
        since,
        last_run: None,
        result: None,
        backup: None,
        started_at: None,
        completed_at: None,
        duration_seconds: None,
        reached_gtid: None,
        reached_time: None,
        schemas: None,
        tables: None,
        reason: None,
        message: None,
    }
}

fn of_job(before: VerificationStatus, job: &VerificationJob, now: Timestamp) -> VerificationStatus {
    let running = running(before, job);
    match &job.state {
        JobState::Waiting { since, reason } if age(now, *since) >= START => {
            let what = reason.as_deref().unwrap_or("nothing was said of it");
            let message = format!("its pod did not start in {} minutes: {what}", START.as_secs() / 60);
            failed(running, "NotStarted", &message, now)
        }
        // A large table is one step of its page for hours: that nothing moves is noticed by the program alone.
        JobState::Waiting { .. } | JobState::Active { .. } => running,
        JobState::Succeeded { stored: Some(verified) } => succeeded(running, verified),
        JobState::Succeeded { stored: None } | JobState::Obsolete => {
            let message = "its Job ended well and told of nothing: nothing is proved";
            failed(running, "NoOutcome", message, now)
        }
        JobState::Failed { reason, message } => failed(running, reason, message, now),
    }
}

/// A run that goes on. Why the run before it failed is true until one succeeds.
fn running(before: VerificationStatus, job: &VerificationJob) -> VerificationStatus {
    let message = if is_of(&before, job) {
        before.message
    } else {
        let former = before.message.filter(|_| before.reason.is_some());
        let former = former.map_or_else(String::new, |former| format!("; the run before it failed: {former}"));
        Some(format!("it is restored and checked{former}"))
    };
    VerificationStatus {
        last_run: Some(MicroTime(job.due)),
        result: Some(VerificationResult::Running),
        backup: Some(job.backup.clone()),
        started_at: Some(MicroTime(job.created_at)),
        reason: before.reason,
        message,
        ..known_since(before.since)
    }
}

fn succeeded(running: VerificationStatus, verified: &Verified) -> VerificationStatus {
    VerificationStatus {
        result: Some(VerificationResult::Verified),
        // A backup that ended meanwhile is the newest one then.
        backup: verified.name.clone().or(running.backup),
        completed_at: Some(MicroTime(verified.completed_at)),
        duration_seconds: Some(signed(verified.seconds)),
        reached_gtid: verified.reached.as_ref().map(GtidSet::to_string),
        reached_time: verified.reached_time.map(MicroTime),
        schemas: Some(signed(verified.schemas)),
        tables: Some(signed(verified.tables)),
        reason: None,
        message: Some(verified.sentence()),
        ..running
    }
}

fn failed(running: VerificationStatus, reason: &str, message: &str, now: Timestamp) -> VerificationStatus {
    let began = running.started_at.as_ref().map(|at| age(now, at.0).as_secs());
    VerificationStatus {
        result: Some(VerificationResult::Failed),
        completed_at: Some(MicroTime(now)),
        duration_seconds: began.map(signed),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..running
    }
}

/// Why nobody may rely on a recovery, or on its being tried; `None` when nothing is known against it.
#[must_use]
pub fn failure(run: &VerificationStatus, seen: &Seen) -> Option<String> {
    if let Some(job) = seen.verification.as_ref().filter(|job| !job.ours) {
        return Some(format!("a Job {} exists that is not Mainstay's; delete it", job.name));
    }
    let reason = run.reason.as_deref()?;
    let backup = run.backup.as_deref().unwrap_or("the newest backup");
    let message = run.message.as_deref().unwrap_or_default();
    Some(format!("{backup} was not verified ({reason}): {message}"))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
