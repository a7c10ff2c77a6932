//! What to do next about backups, as a value (docs/backup.md).
//!
//! Derived in each pass from what exists (`MySQLBackup`s, their Jobs, the store) and remembered nowhere, so that an
//! operator that dies between two steps is continued by the next one (case F23). It plans nothing while a primary is elected:
//! writes come first, and a backup that runs disturbs only a replica.

mod donor;
mod report;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::backup::{BackupMethod, BackupPhase};
use mainstay_api::{MySQLBackupSpec, MySQLBackupStatus};

use super::manifest::Method;
use super::retention::{self, Folder, Policies, State, Stored};
use super::schedule::{Due, Runs, due};
use super::verify::{self, VerificationStart};
use super::wire::{Donor, Task};
use crate::build::BackupStart;
use crate::names;
use crate::observed::{Observed, StoreSecret};
use crate::plan::Wait;
use crate::rules::{MemberId, Phase};
use crate::subject::Subject;
use crate::view::{View, age};
/// A part of a backup, as the API calls it: for those who do not know the API's crate.
pub use mainstay_api::backup::BackupStep;
pub use report::{Progress, Stored as StoredBackup};
pub use seen::{BackupSeen, JobSeen, JobState, Listing, ScheduleSettings, Seen, Settings};

/// A pod of a backup that does not start for this long is given up.
pub const START: Duration = Duration::from_mins(10);
/// A backup that does not move for this long is given up.
pub const STALL: Duration = Duration::from_mins(15);

/// One step. Each is idempotent, and whether it is done can be told from the next observation.
#[derive(Clone, Debug, PartialEq)]
pub enum BackupAction {
    /// Create a `MySQLBackup`; one of that name that exists is the same one.
    Create {
        /// Its name.
        name: String,
        /// What it asks for.
        spec: Box<MySQLBackupSpec>,
    },
    /// Create the Job of a `MySQLBackup`, owned by the cluster. Created and never applied: what exists is not changed to another donor.
    Start(Box<BackupStart>),
    /// Write the status of a `MySQLBackup`.
    Report {
        /// The `MySQLBackup`.
        backup: String,
        /// Its uid.
        uid: String,
        /// What it becomes.
        status: Box<MySQLBackupStatus>,
        /// Only when the API server, and not a cache, says that there is no Job of this name.
        unless_job: Option<String>,
    },
    /// Create the Job that verifies a backup, owned by the cluster. Created and never applied, likewise.
    Verify(Box<VerificationStart>),
    /// Delete a Job with its pod and volume, with its uid as precondition.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Delete a stored backup, manifest first, and its `MySQLBackup`.
    Expire {
        /// The folder of the cluster: nothing outside of it is touched.
        folder: Folder,
        /// The backup.
        id: String,
    },
    /// Delete segments of the archive, the oldest first.
    Prune {
        /// The folder of the cluster: nothing outside of it is touched.
        folder: Folder,
        /// Their keys.
        keys: Vec<String>,
    },
}

/// What one pass does about backups, and why it does no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupPlan {
    /// What to do, in order.
    pub actions: Vec<BackupAction>,
    /// What is waited for.
    pub waiting: Vec<Wait>,
    /// When to look again although nothing changed.
    pub look_again: Option<Duration>,
}

impl BackupPlan {
    pub(super) fn wait(&mut self, who: impl Into<String>, for_what: impl Into<String>) {
        self.waiting.push(Wait {
            who: who.into(),
            for_what: for_what.into(),
            lasting: true,
        });
    }

    pub(super) fn look_at(&mut self, at: Timestamp, now: Timestamp) {
        // A second at least: a moment that was missed by less than that is no reason to spin.
        let pause = age(at, now).max(Duration::from_secs(1));
        self.look_again = Some(self.look_again.map_or(pause, |sooner| sooner.min(pause)));
    }
}

/// What is declared, and what stands in the way of a Job.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared<'a> {
    /// Schedules and retention; `None` while the spec has none, or cannot be accepted.
    pub settings: Option<&'a Settings>,
    /// Whether a Job would be given the access to the store; otherwise for what a backup waits.
    pub access: Result<(), String>,
}

impl<'a> Declared<'a> {
    /// What a cluster declares, and whether `<cluster>-store` holds it.
    #[must_use]
    pub fn of(subject: &Subject<'a>, observed: &Observed) -> Self {
        let backup = subject.spec.ok().and_then(|spec| spec.backup.as_ref());
        let access = match (subject.spec, backup, &observed.secrets.store) {
            (Err(_), _, _) => Err("a spec of the cluster that can be accepted".to_owned()),
            (Ok(_), None, _) => Err("spec.backup.store of the cluster to be set".to_owned()),
            (Ok(_), Some(_), StoreSecret::Current) => Ok(()),
            (Ok(_), Some(_), StoreSecret::Refused { field, message }) => {
                Err(format!("the access to the store ({field}: {message})"))
            }
            (Ok(_), Some(_), StoreSecret::Outdated | StoreSecret::Unknown) => {
                Err("the access to the store to be written".to_owned())
            }
        };
        Self {
            settings: backup.map(|backup| &backup.settings),
            access,
        }
    }
}

/// Decides what to do next about the backups of a cluster.
#[must_use]
pub fn plan(
    subject: &Subject<'_>,
    observed: &Observed,
    declared: &Declared<'_>,
    seen: &Seen,
    now: Timestamp,
) -> BackupPlan {
    let mut plan = BackupPlan::default();
    let Some(rules) = observed.rules() else {
        plan.wait("backups", "a primary to be recorded");
        return plan;
    };
    if rules.phase != Phase::Open {
        plan.wait("backups", "the election to end");
        return plan;
    }
    let view = View::new(subject, observed, rules, now);
    let jobs: BTreeMap<&str, &JobSeen> = seen.jobs.iter().map(|job| (job.name.as_str(), job)).collect();
    for backup in seen.backups.iter().filter(|backup| !backup.deleting && !backup.ended()) {
        report::plan(backup, &jobs, now, &mut plan);
    }
    clean(seen, &mut plan);
    start(&view, declared, seen, &jobs, &mut plan);
    if let Some(settings) = declared.settings {
        create(subject, settings, seen, now, &mut plan);
        sweep(settings, seen, now, &mut plan);
    }
    // Last: a backup that begins in this pass comes first.
    verify::plan(subject, declared, seen, now, &mut plan);
    plan
}

/// Jobs of backups that ended or are gone. In a pass after the report: what a Job said is written first.
fn clean(seen: &Seen, plan: &mut BackupPlan) {
    let needed: BTreeSet<String> = seen
        .backups
        .iter()
        .filter(|backup| !backup.deleting && !backup.ended())
        .map(|backup| names::backup_job(&backup.name))
        .collect();
    let useless = |job: &&JobSeen| !needed.contains(&job.name) || job.state == JobState::Obsolete;
    for job in seen.jobs.iter().filter(|job| job.ours).filter(useless) {
        plan.actions.push(BackupAction::DeleteJob {
            name: job.name.clone(),
            uid: job.uid.clone(),
        });
    }
}

/// Starts the backup that waits longest, if none runs.
fn start(
    view: &View<'_>,
    declared: &Declared<'_>,
    seen: &Seen,
    jobs: &BTreeMap<&str, &JobSeen>,
    plan: &mut BackupPlan,
) {
    let without_job = |backup: &&BackupSeen| {
        let waits = backup.status.phase.is_none_or(|phase| phase == BackupPhase::Pending);
        waits && !backup.deleting && !jobs.contains_key(names::backup_job(&backup.name).as_str())
    };
    let mut waiting: Vec<_> = seen.backups.iter().filter(without_job).collect();
    waiting.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
    // A Job that ended still holds its volume, and the store may still be busy with what it left: it is cleaned up first.
    let running = seen.jobs.iter().find(|job| job.ours);
    let mut free = running.is_none();
    for backup in waiting {
        if let Some((reason, message)) = unsupported(backup) {
            report::refused(backup, reason, message, view.now, plan);
            continue;
        }
        let begun = if free {
            begin(view, declared, backup)
        } else {
            let other = running.map_or("another backup", |job| job.name.as_str());
            Err(format!("{other} to end: one backup of a cluster runs at a time"))
        };
        free = false;
        match begun {
            Ok(begun) => plan.actions.push(BackupAction::Start(Box::new(begun))),
            Err(why) => {
                report::waits(backup, &why, plan);
                plan.wait(backup.name.clone(), why);
            }
        }
    }
}

/// What this version does not make, as a reason and a sentence.
fn unsupported(backup: &BackupSeen) -> Option<(&'static str, &'static str)> {
    backup.spec.store.is_some().then_some((
        "StoreNotSupported",
        "this version stores in the store of the cluster only; create a MySQLBackup without spec.store",
    ))
}

/// The task of a Job, if there is everything that it needs.
fn begin(view: &View<'_>, declared: &Declared<'_>, backup: &BackupSeen) -> Result<BackupStart, String> {
    declared.access.clone()?;
    let donor = donor::choose(view)?;
    let unnamed = |error: super::InvalidKey| format!("a name in the store ({error})");
    Ok(BackupStart {
        backup: backup.name.clone(),
        uid: backup.uid.clone(),
        job: names::backup_job(&backup.name),
        task: Task {
            id: backup.id().map_err(unnamed)?,
            name: backup.name.clone(),
            schedule: backup.spec.schedule.clone(),
            donor: reach(view, &donor),
            // What was committed under a later primary meanwhile is in the archive of a later reign.
            epoch: view
                .rules
                .primary
                .as_ref()
                .map_or(view.rules.epoch, |primary| primary.epoch),
            method: match backup.spec.method.unwrap_or_default() {
                BackupMethod::Physical => Method::Physical,
                BackupMethod::Logical => Method::Logical,
            },
        },
    })
}

/// How a Job reaches an instance.
fn reach(view: &View<'_>, donor: &MemberId) -> Donor {
    let endpoint = view.endpoint_of(donor);
    let uuid = view.find(donor).map(|seen| seen.report.server_uuid.clone());
    Donor {
        instance: donor.instance.0.clone(),
        server_uuid: uuid.unwrap_or_default(),
        host: endpoint.host,
        port: endpoint.port,
    }
}

/// Creates the backups that are due: none for a schedule whose last one has not ended.
fn create(subject: &Subject<'_>, settings: &Settings, seen: &Seen, now: Timestamp, plan: &mut BackupPlan) {
    for (name, schedule) in &settings.schedules {
        // What was seen first is written to status first: a due time before that is not made up.
        let Some(known) = seen.runs.get(name) else { continue };
        let of_schedule = |backup: &&BackupSeen| backup.spec.schedule.as_ref() == Some(name);
        let newest = seen
            .backups
            .iter()
            .filter(of_schedule)
            .map(BackupSeen::scheduled_at)
            .max();
        let runs = Runs {
            last: known.last.max(newest),
            ..*known
        };
        let unfinished = seen.backups.iter().filter(of_schedule).find(|backup| !backup.ended());
        match (due(&schedule.schedule, schedule.switches, runs, now), unfinished) {
            (Due::Now(_), Some(other)) => plan.wait(
                format!("schedule {name}"),
                format!("{} to end, which it asked for before", other.name),
            ),
            (Due::Now(at), None) => plan.actions.push(BackupAction::Create {
                name: subject.names().scheduled_backup(name, at),
                spec: Box::new(MySQLBackupSpec {
                    cluster: subject.name.to_owned(),
                    method: Some(schedule.method),
                    store: None,
                    schedule: Some(name.clone()),
                    scheduled_at: Some(at.to_string()),
                }),
            }),
            (Due::Later(at), _) => plan.look_at(at, now),
            (Due::Never, _) => {}
        }
    }
}

/// Retention: one backup a pass, then the beginning of the archive that nobody needs any more.
fn sweep(settings: &Settings, seen: &Seen, now: Timestamp, plan: &mut BackupPlan) {
    // A backup that becomes the newest meanwhile would make needless what is being read.
    if let Some(job) = seen.verification.as_ref().filter(|job| job.ours) {
        plan.wait("retention", format!("{} to end", job.name));
        return;
    }
    if let Listing::Unknown { reason } = &seen.store {
        let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        plan.wait("retention", format!("the store to be listed{why}"));
    }
    let (action, next) = retire(&settings.policies, &seen.backups, &seen.store, now);
    plan.actions.extend(action);
    if let Some(next) = next {
        plan.look_at(next, now);
    }
}

/// What is deleted next of what is in the store, and when something more will be due. Asked once more, with a new listing, before
/// anything is deleted.
#[must_use]
pub fn retire(
    policies: &Policies,
    backups: &[BackupSeen],
    store: &Listing,
    now: Timestamp,
) -> (Option<BackupAction>, Option<Timestamp>) {
    let Listing::Known {
        folder,
        backups: stored,
        segments,
    } = store
    else {
        return (None, None);
    };
    let unfinished: BTreeSet<String> = backups
        .iter()
        .filter(|backup| !backup.ended())
        .filter_map(|backup| Some(backup.id().ok()?.to_string()))
        .collect();
    // What has no manifest and a backup that has not ended is being written, whatever its age.
    let stored: Vec<Stored> = stored
        .iter()
        .cloned()
        .map(|stored| match &stored.state {
            State::Leftover { .. } if unfinished.contains(&stored.id) => Stored {
                state: State::Running,
                ..stored
            },
            State::Leftover { .. } | State::Complete { .. } | State::Running | State::Unreadable => stored,
        })
        .collect();
    let next = retention::next(&stored, policies, now);
    let verdict = retention::judge(&stored, policies, now);
    if let Some(id) = verdict.delete.into_iter().next() {
        let folder = folder.clone();
        return (Some(BackupAction::Expire { folder, id }), next);
    }
    let kept: Vec<&Stored> = stored.iter().collect();
    let keys = folder.only(&retention::needless(segments, &kept));
    let prune = (!keys.is_empty()).then(|| BackupAction::Prune {
        folder: folder.clone(),
        keys,
    });
    (prune, next)
}
