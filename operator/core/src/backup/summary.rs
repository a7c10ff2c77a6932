//! `status.backup` of a cluster: what people read first, and the two facts that scheduling cannot derive (since when a schedule is
//! known, and the last run of one whose backups were deleted).
//!
//! Nothing in it moves by itself: an idle cluster is not written to (docs/backup.md).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::backup::BackupPhase;
use mainstay_api::backup_status::{
    ArchiveStatus, BackupReference, BackupSummary, ScheduleStatus, VerificationResult, VerificationStatus,
};

use super::plan::{BackupSeen, Seen, Settings};
use super::schedule::Runs;
use super::verify;
use crate::GtidSet;
use crate::view::age;

/// How often the point that the archive reaches is written while clients write.
pub const ARCHIVE: Duration = Duration::from_mins(1);

/// How far the archive reaches, as its manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePoint {
    /// Transactions up to which there is no hole.
    pub through: GtidSet,
    /// Everything that was committed until then is stored.
    pub time: Timestamp,
    /// Mainstay's own transactions (probes, markers): alone they are no reason to write.
    pub own: GtidSet,
    /// A condition about the archive changes in this pass.
    pub condition_changes: bool,
}

/// What status knows of the schedules.
#[must_use]
pub fn runs(summary: Option<&BackupSummary>) -> BTreeMap<String, Runs> {
    let schedules = summary.into_iter().flat_map(|summary| &summary.schedules);
    schedules
        .map(|schedule| {
            let runs = Runs {
                since: schedule.since.0,
                last: schedule.last_run.as_ref().map(|time| time.0),
            };
            (schedule.name.clone(), runs)
        })
        .collect()
}

/// The summary at the end of a pass; equal to `previous` when nothing is new.
#[must_use]
pub fn summary(
    previous: Option<&BackupSummary>,
    settings: &Settings,
    seen: &Seen,
    archive: Option<&ArchivePoint>,
    now: Timestamp,
) -> BackupSummary {
    let before = previous.cloned().unwrap_or_default();
    let successful = newest(seen, BackupPhase::Succeeded);
    // An object that was deleted does not undo what was so.
    let last_successful = later(before.last_successful.clone(), successful);
    let failed = later(before.last_failed.clone(), newest(seen, BackupPhase::Failed));
    let since = last_successful.as_ref().map(|reference| reference.completed_at.0);
    let verification = verify::status(before.verification.as_ref(), settings.verification.as_ref(), seen, now);
    BackupSummary {
        last_failed: failed.filter(|reference| since.is_none_or(|since| reference.completed_at.0 > since)),
        last_successful,
        archive: archive_status(before.archive.as_ref(), archive, now),
        schedules: schedules(previous, settings, seen, now),
        last_verified: verification.as_ref().and_then(verified).or(before.last_verified),
        verification,
    }
}

/// What the newest run of a verification proved.
fn verified(verification: &VerificationStatus) -> Option<BackupReference> {
    (verification.result == Some(VerificationResult::Verified)).then_some(())?;
    Some(BackupReference {
        name: verification.backup.clone()?,
        completed_at: verification.completed_at.clone()?,
        message: None,
    })
}

fn newest(seen: &Seen, phase: BackupPhase) -> Option<BackupReference> {
    let ended = seen.backups.iter().filter(|backup| backup.status.phase == Some(phase));
    ended.filter_map(reference).max_by(|a, b| {
        let key = |reference: &BackupReference| (reference.completed_at.0, reference.name.clone());
        key(a).cmp(&key(b))
    })
}

fn reference(backup: &BackupSeen) -> Option<BackupReference> {
    let error = backup.status.error.as_ref();
    Some(BackupReference {
        name: backup.name.clone(),
        completed_at: backup.status.completed_at.clone()?,
        message: error.map(|error| error.message.clone()),
    })
}

fn later(a: Option<BackupReference>, b: Option<BackupReference>) -> Option<BackupReference> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.completed_at.0 > a.completed_at.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

fn schedules(
    previous: Option<&BackupSummary>,
    settings: &Settings,
    seen: &Seen,
    now: Timestamp,
) -> Vec<ScheduleStatus> {
    let known = runs(previous);
    let of = |name: &String| {
        let backups = seen
            .backups
            .iter()
            .filter(move |backup| backup.spec.schedule.as_ref() == Some(name));
        backups.map(BackupSeen::scheduled_at).max()
    };
    settings
        .schedules
        .keys()
        .map(|name| {
            let known = known.get(name);
            ScheduleStatus {
                name: name.clone(),
                since: MicroTime(known.map_or(now, |known| known.since)),
                last_run: known.and_then(|known| known.last).max(of(name)).map(MicroTime),
            }
        })
        .collect()
}

/// Decision D: when its condition changes, else at most once a minute and only when clients wrote something.
fn archive_status(
    before: Option<&ArchiveStatus>,
    point: Option<&ArchivePoint>,
    now: Timestamp,
) -> Option<ArchiveStatus> {
    let Some(point) = point else { return before.cloned() };
    let fresh = || ArchiveStatus {
        through_gtid: point.through.to_string(),
        through_time: MicroTime(point.time),
        observed_at: MicroTime(now),
    };
    let Some(before) = before else { return Some(fresh()) };
    let told: GtidSet = before.through_gtid.parse().unwrap_or_default();
    let clients_wrote = !point.through.subtract(&told).subtract(&point.own).is_empty();
    let due = clients_wrote && age(now, before.observed_at.0) >= ARCHIVE;
    let moved = point.through != told;
    Some(if due || moved && point.condition_changes {
        fresh()
    } else {
        before.clone()
    })
}
