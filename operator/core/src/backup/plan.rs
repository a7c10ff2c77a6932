//! What to do next about backups, as a value (docs/backup.md).
//!
//! Derived in each pass from what exists (`MySQLBackup`s, their Jobs and claims, the store) and remembered nowhere, so that an
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

use super::retention::{self, Folder, State, Stored};
use super::schedule::{Due, Runs, due};
use crate::names;
use crate::observed::Observed;
use crate::plan::Wait;
use crate::rules::{MemberId, Phase};
use crate::subject::Subject;
use crate::view::{View, age};
pub use report::{Progress, Stored as StoredBackup};
pub use seen::{BackupSeen, ClaimSeen, JobSeen, JobState, Listing, ScheduleSettings, Seen, Settings};

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
    /// Create the claim and the Job, owned by the `MySQLBackup`. Created and never applied: what exists is not changed to
    /// another donor.
    Start {
        /// The `MySQLBackup`.
        backup: String,
        /// Its uid.
        uid: String,
        /// Name of Job and claim.
        job: String,
        /// The instance that is copied, in this life of its data directory.
        donor: MemberId,
        /// How.
        method: BackupMethod,
    },
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
    /// Delete a Job with its pods, with its uid as precondition.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Delete a claim, with its uid as precondition.
    DeleteClaim {
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
    fn wait(&mut self, who: impl Into<String>, for_what: impl Into<String>) {
        self.waiting.push(Wait {
            who: who.into(),
            for_what: for_what.into(),
            lasting: true,
        });
    }

    fn look_at(&mut self, at: Timestamp, now: Timestamp) {
        // A second at least: a moment that was missed by less than that is no reason to spin.
        let pause = age(at, now).max(Duration::from_secs(1));
        self.look_again = Some(self.look_again.map_or(pause, |sooner| sooner.min(pause)));
    }
}

/// Decides what to do next about the backups of a cluster.
#[must_use]
pub fn plan(
    subject: &Subject<'_>,
    observed: &Observed,
    settings: &Settings,
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
    start(&view, seen, &jobs, &mut plan);
    create(subject, settings, seen, now, &mut plan);
    sweep(settings, seen, now, &mut plan);
    plan
}

/// Jobs and claims of backups that ended or are gone. In a pass after the report: what a Job said is written first.
fn clean(seen: &Seen, plan: &mut BackupPlan) {
    let needed: BTreeSet<String> = seen
        .backups
        .iter()
        .filter(|backup| !backup.deleting && !backup.ended())
        .map(|backup| names::backup_job(&backup.name))
        .collect();
    for job in seen.jobs.iter().filter(|job| job.ours && !needed.contains(&job.name)) {
        plan.actions.push(BackupAction::DeleteJob {
            name: job.name.clone(),
            uid: job.uid.clone(),
        });
    }
    for claim in seen.claims.iter().filter(|claim| !needed.contains(&claim.name)) {
        plan.actions.push(BackupAction::DeleteClaim {
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        });
    }
}

/// Starts the backup that waits longest, if none runs.
fn start(view: &View<'_>, seen: &Seen, jobs: &BTreeMap<&str, &JobSeen>, plan: &mut BackupPlan) {
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
        let donor = if free {
            donor::choose(view)
        } else {
            let other = running.map_or("another backup", |job| job.name.as_str());
            Err(format!("{other} to end: one backup of a cluster runs at a time"))
        };
        free = false;
        match donor {
            Ok(donor) => plan.actions.push(BackupAction::Start {
                backup: backup.name.clone(),
                uid: backup.uid.clone(),
                job: names::backup_job(&backup.name),
                donor,
                method: backup.spec.method.unwrap_or_default(),
            }),
            Err(why) => {
                report::waits(backup, &why, plan);
                plan.wait(backup.name.clone(), why);
            }
        }
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
    let (folder, backups, segments) = match &seen.store {
        Listing::Known {
            folder,
            backups,
            segments,
        } => (folder, backups, segments),
        Listing::Unknown { reason } => {
            plan.wait("retention", format!("the store to be listed: {reason}"));
            return;
        }
    };
    let unfinished: BTreeSet<&str> = seen
        .backups
        .iter()
        .filter(|backup| !backup.ended())
        .map(|backup| backup.name.as_str())
        .collect();
    // What has no manifest and a backup that has not ended is being written, whatever its age.
    let backups: Vec<Stored> = backups
        .iter()
        .cloned()
        .map(|stored| match &stored.state {
            State::Leftover { .. } if unfinished.contains(stored.id.as_str()) => Stored {
                state: State::Running,
                ..stored
            },
            State::Leftover { .. } | State::Complete { .. } | State::Running | State::Unreadable => stored,
        })
        .collect();
    let verdict = retention::judge(&backups, &settings.policies, now);
    if let Some(id) = verdict.delete.into_iter().next() {
        plan.actions.push(BackupAction::Expire {
            folder: folder.clone(),
            id,
        });
        return;
    }
    let kept: Vec<&Stored> = backups.iter().collect();
    let keys = folder.only(&retention::needless(segments, &kept));
    if !keys.is_empty() {
        plan.actions.push(BackupAction::Prune {
            folder: folder.clone(),
            keys,
        });
    }
}
