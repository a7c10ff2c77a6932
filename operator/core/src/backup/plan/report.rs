//! What is said of a backup: derived from its Job.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use mainstay_api::MySQLBackupStatus;
use mainstay_api::backup::{BackupError, BackupPhase, BackupProgress, BackupStep};
use serde::{Deserialize, Serialize};

use super::{BackupAction, BackupPlan, BackupSeen, JobSeen, JobState, STALL, START};
use crate::GtidSet;
use crate::names;
use crate::view::age;

/// A step of progress is written when at least this much was done since the last one, or a fiftieth of the whole: an upload of
/// a terabyte costs fifty writes.
const WORTH_TELLING: u64 = 256 << 20;

/// How far a Job is, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What is being done.
    pub step: BackupStep,
    /// Bytes done; of a replay transactions, of a check tables.
    pub bytes: u64,
    /// Those to do, as far as known.
    pub total: Option<u64>,
    /// Of these in a second.
    pub rate: Option<u64>,
    /// Of a dump: rows that are in these bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// What the manifest of a backup says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// Bytes of data.
    pub size: u64,
    /// Bytes in the store.
    pub stored: u64,
    /// Transactions that it holds; absent when there are too many intervals to be told by the Job.
    pub executed: Option<GtidSet>,
    /// Where its manifest is.
    pub location: String,
    /// Id of the key that encrypts it.
    pub key_id: Option<String>,
    /// Version of the server that booted it.
    pub mysql_version: String,
    /// When it was completed.
    pub completed_at: Timestamp,
}

/// Writes what became of a backup that has not ended.
pub(super) fn plan(backup: &BackupSeen, jobs: &BTreeMap<&str, &JobSeen>, now: Timestamp, plan: &mut BackupPlan) {
    let name = names::backup_job(&backup.name);
    let job = jobs.get(name.as_str()).filter(|job| job.state != JobState::Obsolete);
    let Some(job) = job else {
        if backup.status.phase == Some(BackupPhase::Running) {
            let message = "its Job is gone; create another MySQLBackup, or wait for the next run of its schedule";
            write(backup, failed(backup, "JobGone", message, now), Some(name), plan);
        }
        return;
    };
    let status = if job.ours {
        of_job(backup, job, now, plan)
    } else {
        let message = format!("a Job {name} exists that is not Mainstay's; delete it, or choose another name");
        failed(backup, "NameTaken", &message, now)
    };
    write(backup, status, None, plan);
}

fn of_job(backup: &BackupSeen, job: &JobSeen, now: Timestamp, plan: &mut BackupPlan) -> MySQLBackupStatus {
    match &job.state {
        JobState::Waiting { since, reason } => {
            let what = reason.as_deref().unwrap_or("nothing was said of it");
            if age(now, *since) >= START {
                let message = format!("its pod did not start in {} minutes: {what}", START.as_secs() / 60);
                return failed(backup, "NotStarted", &message, now);
            }
            look_after(*since, START, now, plan);
            MySQLBackupStatus {
                message: Some(format!("its pod starts: {what}")),
                ..running(backup, job)
            }
        }
        JobState::Active { progress, moved_at } => {
            if age(now, *moved_at) >= STALL {
                let message = format!("nothing moved for {} minutes", STALL.as_secs() / 60);
                return failed(backup, "Stalled", &message, now);
            }
            look_after(*moved_at, STALL, now, plan);
            match progress {
                Some(progress) => moving(backup, job, *progress),
                None => running(backup, job),
            }
        }
        JobState::Succeeded { stored: Some(stored) } => succeeded(backup, job, stored),
        JobState::Succeeded { stored: None } => {
            let message = "its Job ended well and told of no manifest: what it stored is no backup";
            failed(backup, "NoManifest", message, now)
        }
        JobState::Failed { reason, message } => failed(backup, reason, message, now),
        // Not of this backup.
        JobState::Obsolete => backup.status.clone(),
    }
}

/// Writes why a backup cannot be made at all.
pub(super) fn refused(backup: &BackupSeen, reason: &str, message: &str, now: Timestamp, plan: &mut BackupPlan) {
    write(backup, failed(backup, reason, message, now), None, plan);
}

/// Says for what a backup waits that could not be started.
pub(super) fn waits(backup: &BackupSeen, why: &str, plan: &mut BackupPlan) {
    let status = MySQLBackupStatus {
        phase: Some(BackupPhase::Pending),
        method: Some(backup.spec.method.unwrap_or_default()),
        message: Some(format!("waits for {why}")),
        ..backup.status.clone()
    };
    write(backup, status, None, plan);
}

fn look_after(since: Timestamp, limit: Duration, now: Timestamp, plan: &mut BackupPlan) {
    if let Ok(at) = since.checked_add(limit) {
        plan.look_at(at, now);
    }
}

fn write(backup: &BackupSeen, status: MySQLBackupStatus, unless_job: Option<String>, plan: &mut BackupPlan) {
    if status != backup.status {
        plan.actions.push(BackupAction::Report {
            backup: backup.name.clone(),
            uid: backup.uid.clone(),
            status: Box::new(status),
            unless_job,
        });
    }
}

fn running(backup: &BackupSeen, job: &JobSeen) -> MySQLBackupStatus {
    let before = &backup.status;
    let message = before.message.clone().filter(|_| before.progress.is_some());
    MySQLBackupStatus {
        phase: Some(BackupPhase::Running),
        method: Some(backup.spec.method.unwrap_or_default()),
        instance: job.donor.clone().or_else(|| before.instance.clone()),
        started_at: Some(MicroTime(job.created_at)),
        message: message.or_else(|| Some("its Job runs".to_owned())),
        ..before.clone()
    }
}

fn moving(backup: &BackupSeen, job: &JobSeen, progress: Progress) -> MySQLBackupStatus {
    let status = running(backup, job);
    let told = backup.status.progress.filter(|told| told.step == progress.step);
    let worth = progress
        .total
        .map_or(WORTH_TELLING, |total| WORTH_TELLING.max(total / 50));
    let done = progress.total == Some(progress.bytes);
    let news = told.is_none_or(|told| {
        let before = u64::try_from(told.bytes).unwrap_or_default();
        progress.bytes.abs_diff(before) >= worth || done && before != progress.bytes
    });
    if !news {
        return status;
    }
    MySQLBackupStatus {
        message: Some(sentence(progress)),
        progress: Some(BackupProgress {
            step: progress.step,
            bytes: signed(progress.bytes),
            total_bytes: progress.total.map(signed),
            bytes_per_second: progress.rate.map(signed),
            rows: progress.rows.map(signed),
        }),
        ..status
    }
}

fn succeeded(backup: &BackupSeen, job: &JobSeen, stored: &Stored) -> MySQLBackupStatus {
    MySQLBackupStatus {
        phase: Some(BackupPhase::Succeeded),
        message: Some(format!("{}, stored in {}", bytes(stored.size), bytes(stored.stored))),
        completed_at: Some(MicroTime(stored.completed_at)),
        progress: None,
        size_bytes: Some(signed(stored.size)),
        stored_bytes: Some(signed(stored.stored)),
        gtid_executed: stored.executed.as_ref().map(GtidSet::to_string),
        location: Some(stored.location.clone()),
        encryption_key_id: stored.key_id.clone(),
        mysql_version: Some(stored.mysql_version.clone()),
        error: None,
        conditions: complete("True", "Stored", "", stored.completed_at),
        ..running(backup, job)
    }
}

fn failed(backup: &BackupSeen, reason: &str, message: &str, now: Timestamp) -> MySQLBackupStatus {
    MySQLBackupStatus {
        phase: Some(BackupPhase::Failed),
        message: Some(message.to_owned()),
        method: Some(backup.spec.method.unwrap_or_default()),
        completed_at: Some(MicroTime(now)),
        progress: None,
        error: Some(BackupError {
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        conditions: complete("False", reason, message, now),
        ..backup.status.clone()
    }
}

/// What `kubectl wait --for=condition=Complete` looks at.
fn complete(status: &str, reason: &str, message: &str, at: Timestamp) -> Vec<Condition> {
    vec![Condition {
        type_: "Complete".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        // Kubernetes keeps whole seconds.
        last_transition_time: Time(Timestamp::from_second(at.as_second()).unwrap_or(at)),
        observed_generation: None,
    }]
}

fn sentence(progress: Progress) -> String {
    let done = match progress.step {
        BackupStep::Copy => "copied",
        BackupStep::Boot => return "the copy is started once".to_owned(),
        BackupStep::Upload => "stored",
        BackupStep::Dump => "dumped",
        // Of a verification, which is no MySQLBackup.
        BackupStep::Fetch | BackupStep::Replay | BackupStep::Check => "did",
    };
    let of = progress.total.map(|total| format!(" of {}", bytes(total)));
    let rows = progress.rows.map(|rows| format!(" with {rows} rows"));
    let rate = progress.rate.filter(|rate| *rate > 0);
    let speed = rate.map(|rate| format!(", {}/s", bytes(rate)));
    let left = progress.total.zip(rate).map(|(total, rate)| {
        let seconds = total.saturating_sub(progress.bytes).div_ceil(rate);
        format!(", {seconds} s left")
    });
    let parts = [of, rows, speed, left].map(Option::unwrap_or_default);
    format!("{done} {}{}", bytes(progress.bytes), parts.concat())
}

/// `5.1 GB`: powers of ten, as stores and disks are sold.
fn bytes(number: u64) -> String {
    let units = [("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)];
    let unit = units.into_iter().find(|(_, power)| number >= 10_u64.pow(*power));
    unit.map_or_else(
        || format!("{number} bytes"),
        |(unit, power)| {
            let tenths = number / 10_u64.pow(power - 1);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        },
    )
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
