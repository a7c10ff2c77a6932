//! What is done about backups: started, told, cleaned up, created, deleted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::backup::{BackupError, BackupMethod, BackupPhase, BackupStep};
use mainstay_api::backup_status::BackupSummary;
use mainstay_core::action::Action;
use mainstay_core::analyse::{ConditionType, ProblemCode, analyse};
use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::plan::{
    BackupAction, BackupPlan, BackupSeen, Declared, JobSeen, JobState, Listing, Progress, ScheduleSettings, Seen,
    Settings, StoredBackup, plan,
};
use mainstay_core::backup::retention::{Folder, Policies, Policy, SegmentUse, State as StoredState, Stored};
use mainstay_core::backup::schedule::{Runs, Schedule, Switches};
use mainstay_core::backup::summary::{ArchivePoint, runs, summary};
use mainstay_core::names;
use mainstay_core::observed::{Mysqld, Observed, StoreSecret};
use mainstay_core::rules::Phase;
use mainstay_core::subject::Subject;

use crate::states::backups::{asked_for, with_backup};
use crate::states::*;

fn minutes_ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// A backup that was asked for that many minutes ago and has no status yet.
fn backup(name: &str, minutes: i64) -> BackupSeen {
    asked_for(name, minutes_ago(minutes))
}

/// The same of a schedule, due when it was created.
fn scheduled(name: &str, minutes: i64) -> BackupSeen {
    let mut seen = backup(name, minutes);
    seen.spec.schedule = Some("often".to_owned());
    seen.spec.scheduled_at = Some(seen.created_at.to_string());
    seen
}

fn in_phase(mut backup: BackupSeen, phase: BackupPhase) -> BackupSeen {
    backup.status.phase = Some(phase);
    backup
}

fn job(backup: &str, state: JobState) -> JobSeen {
    JobSeen {
        name: names::backup_job(backup),
        uid: format!("uid-job-{backup}"),
        ours: true,
        created_at: minutes_ago(3),
        donor: Some("shop-2".to_owned()),
        state,
    }
}

fn active(minutes: i64) -> JobState {
    JobState::Active {
        progress: None,
        moved_at: minutes_ago(minutes),
    }
}

fn progress(bytes: u64, minutes: i64) -> JobState {
    JobState::Active {
        progress: Some(Progress {
            step: BackupStep::Copy,
            bytes,
            total: Some(5_100_000_000),
            rate: Some(210_000_000),
            rows: None,
        }),
        moved_at: minutes_ago(minutes),
    }
}

fn manifest() -> StoredBackup {
    StoredBackup {
        size: 5_100_000_000,
        stored: 2_400_000_000,
        executed: Some(set("a:1-100")),
        location: "s3://shop-backups/prod/shop/x/manifest.json".to_owned(),
        key_id: None,
        mysql_version: "9.7.4".to_owned(),
        completed_at: now(),
    }
}

fn seen(backups: Vec<BackupSeen>, jobs: Vec<JobSeen>) -> Seen {
    Seen {
        backups,
        jobs,
        verification: None,
        runs: BTreeMap::new(),
        told: BackupSummary::default(),
        store: Listing::Known {
            folder: Folder::new("prod/shop/uid-shop/").unwrap(),
            backups: Vec::new(),
            segments: Vec::new(),
        },
    }
}

/// One schedule, `often`.
fn often(text: &str) -> Settings {
    let schedule = ScheduleSettings {
        schedule: Schedule::new(text, None).unwrap(),
        switches: Switches::default(),
        method: BackupMethod::Physical,
    };
    Settings {
        schedules: BTreeMap::from([("often".to_owned(), schedule)]),
        policies: Policies::default(),
        verification: None,
    }
}

fn planned(state: &State, settings: &Settings, seen: &Seen) -> BackupPlan {
    plan(&state.subject(), &state.observation(), &declared(settings), seen, now())
}

/// With a store that a Job would be given.
fn declared(settings: &Settings) -> Declared<'_> {
    Declared {
        settings: Some(settings),
        access: Ok(()),
    }
}

fn text(action: &BackupAction) -> String {
    match action {
        BackupAction::Create { name, .. } => format!("create {name}"),
        BackupAction::Start(start) => format!("start {} from {}", start.job, start.task.donor.instance),
        BackupAction::Report {
            backup,
            status,
            unless_job,
            ..
        } => {
            let careful = if unless_job.is_some() {
                " unless there is a job"
            } else {
                ""
            };
            let phase = status.phase.unwrap();
            format!(
                "report {backup} {phase:?}{careful}: {}",
                status.message.as_deref().unwrap_or_default()
            )
        }
        BackupAction::Verify(start) => format!("verify {} with {}", start.task.name, start.job),
        BackupAction::DeleteJob { name, .. } => format!("delete job {name}"),
        BackupAction::Expire { id, .. } => format!("expire {id}"),
        BackupAction::Prune { keys, .. } => format!("prune {}", keys.join(" ")),
    }
}

/// The actions, and for what is waited, as lines.
fn lines(plan: &BackupPlan) -> Vec<String> {
    let waits = plan
        .waiting
        .iter()
        .map(|wait| format!("{} waits for {}", wait.who, wait.for_what));
    plan.actions.iter().map(text).chain(waits).collect()
}

fn does(state: &State, seen: &Seen, wanted: &[&str]) {
    assert_eq!(lines(&planned(state, &Settings::default(), seen)), wanted);
}

#[test]
fn a_replica_gives_the_data_never_the_primary() {
    let asked = seen(vec![backup("now", 1)], vec![]);
    does(&healthy(3), &asked, &["start now-backup from shop-2"]);
    does(&healthy(5), &asked, &["start now-backup from shop-4"]);
    // The one that has most.
    let behind = healthy(3).with(2, |i| i.set("a:1-90"));
    does(&behind, &asked, &["start now-backup from shop-1"]);
    // The only one.
    does(&healthy(1), &asked, &["start now-backup from shop-0"]);
}

#[test]
fn without_a_healthy_replica_it_waits_and_says_why() {
    let asked = seen(vec![backup("now", 1)], vec![]);
    let all = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.mysqld(Mysqld::Down));
    let why = "a replica that can be copied (shop-2 does not run, shop-1 is not heard)";
    let report = format!("report now Pending: waits for {why}");
    does(&all, &asked, &[&report, &format!("now waits for {why}")]);
    // Told once: an idle wait writes nothing.
    let mut told = backup("now", 1);
    let BackupAction::Report { status, .. } = &planned(&all, &Settings::default(), &asked).actions[0] else {
        panic!("no report");
    };
    told.status = (**status).clone();
    does(&all, &seen(vec![told], vec![]), &[&format!("now waits for {why}")]);
    for (change, reason) in [
        (
            State::with(healthy(3), 2, Instance::deaf),
            "shop-2 does not follow the primary closely",
        ),
        (State::with(healthy(3), 2, Instance::leaving), "shop-2 is being stopped"),
        (
            healthy(3).rules(|rules| rules.members = members_but(rules, 2)),
            "shop-2 is not one of those that acknowledge",
        ),
    ] {
        let state = change.with(1, |i| i.silent(60));
        let said = lines(&planned(&state, &Settings::default(), &asked)).join("\n");
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

#[test]
fn nothing_is_planned_while_a_primary_is_elected() {
    let asked = seen(
        vec![backup("now", 1), in_phase(backup("old", 9), BackupPhase::Succeeded)],
        vec![job("old", active(0))],
    );
    does(&electing(3), &asked, &["backups waits for the election to end"]);
    does(
        &healthy(3).without_memory(),
        &asked,
        &["backups waits for a primary to be recorded"],
    );
    assert!(matches!(electing(3).rules.unwrap().phase, Phase::Electing { .. }));
}

#[test]
fn one_backup_of_a_cluster_runs_at_a_time() {
    let two = vec![backup("second", 1), backup("first", 2)];
    let turn = "another backup to end: one backup of a cluster runs at a time";
    let wanted = [
        "start first-backup from shop-2",
        &format!("report second Pending: waits for {turn}"),
        &format!("second waits for {turn}"),
    ];
    does(&healthy(3), &seen(two, vec![]), &wanted);
    // A Job that ended is cleaned up before another one begins.
    let ended = in_phase(backup("first", 2), BackupPhase::Failed);
    let after = seen(vec![backup("second", 1), ended], vec![job("first", active(0))]);
    let said = lines(&planned(&healthy(3), &Settings::default(), &after));
    assert!(said.contains(&"delete job first-backup".to_owned()), "{said:?}");
    assert!(said.iter().all(|line| !line.starts_with("start")), "{said:?}");
}

/// What stands in docs/backup.md, line by line.
#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn f23_a_backup_is_derived_from_its_job() {
    let waiting = |minutes| JobState::Waiting {
        since: minutes_ago(minutes),
        reason: Some("0/3 nodes are available".to_owned()),
    };
    let failed = JobState::Failed {
        reason: "Upload".to_owned(),
        message: "failed to store part 7: access denied".to_owned(),
    };
    let done = |stored| JobState::Succeeded { stored };
    let table: [(BackupPhase, Option<JobState>, &[&str]); 11] = [
        (BackupPhase::Pending, None, &["start b-backup from shop-2"]),
        (
            BackupPhase::Pending,
            Some(active(0)),
            &["report b Running: its Job runs"],
        ),
        (
            BackupPhase::Pending,
            Some(waiting(9)),
            &["report b Running: its pod starts: 0/3 nodes are available"],
        ),
        (
            BackupPhase::Running,
            Some(waiting(10)),
            &["report b Failed: its pod did not start in 10 minutes: 0/3 nodes are available"],
        ),
        (
            BackupPhase::Running,
            Some(active(15)),
            &["report b Failed: nothing moved for 15 minutes"],
        ),
        (
            BackupPhase::Running,
            Some(progress(2_100_000_000, 0)),
            &["report b Running: copied 2.1 GB of 5.1 GB, 210.0 MB/s, 15 s left"],
        ),
        (
            BackupPhase::Running,
            None,
            &[
                "report b Failed unless there is a job: its Job is gone; create another MySQLBackup, or wait for the next run of its schedule",
            ],
        ),
        (
            BackupPhase::Running,
            Some(done(Some(Box::new(manifest())))),
            &["report b Succeeded: 5.1 GB, stored in 2.4 GB"],
        ),
        // The first that is seen of it is its end.
        (
            BackupPhase::Pending,
            Some(done(Some(Box::new(manifest())))),
            &["report b Succeeded: 5.1 GB, stored in 2.4 GB"],
        ),
        (
            BackupPhase::Running,
            Some(done(None)),
            &["report b Failed: its Job ended well and told of no manifest: what it stored is no backup"],
        ),
        (
            BackupPhase::Running,
            Some(failed),
            &["report b Failed: failed to store part 7: access denied"],
        ),
    ];
    for (phase, state, wanted) in table {
        let jobs = state.clone().into_iter().map(|state| job("b", state)).collect();
        let seen = seen(vec![in_phase(backup("b", 30), phase)], jobs);
        assert_eq!(
            lines(&planned(&healthy(3), &Settings::default(), &seen)),
            wanted,
            "{phase:?} {state:?}"
        );
    }
}

#[test]
fn f23_what_ended_or_is_gone_leaves_nothing_behind() {
    let mut deleted = backup("deleted", 5);
    deleted.deleting = true;
    let all = seen(
        vec![
            in_phase(backup("good", 9), BackupPhase::Succeeded),
            deleted,
            in_phase(backup("running", 3), BackupPhase::Running),
        ],
        vec![
            job("good", JobState::Succeeded { stored: None }),
            job("deleted", active(0)),
            job("gone", active(0)),
            job("running", active(0)),
        ],
    );
    let said = lines(&planned(&healthy(3), &Settings::default(), &all));
    let deletions: Vec<_> = said.iter().filter(|line| line.starts_with("delete")).collect();
    assert_eq!(
        deletions,
        [
            "delete job good-backup",
            "delete job deleted-backup",
            "delete job gone-backup",
        ]
    );
    // The Job of a former MySQLBackup of that name says nothing about the new one, and goes first.
    let obsolete = seen(vec![backup("b", 1)], vec![job("b", JobState::Obsolete)]);
    does(&healthy(3), &obsolete, &["delete job b-backup"]);
    // A foreign Job is neither deleted nor taken for the backup's.
    let foreign = JobSeen {
        ours: false,
        ..job("b", active(0))
    };
    let wanted = "report b Failed: a Job b-backup exists that is not Mainstay's; delete it, or choose another name";
    does(&healthy(3), &seen(vec![backup("b", 1)], vec![foreign]), &[wanted]);
}

#[test]
fn progress_is_written_when_it_is_worth_it() {
    let mut running = in_phase(backup("b", 3), BackupPhase::Running);
    let look = |running: &BackupSeen, bytes| {
        let seen = seen(vec![running.clone()], vec![job("b", progress(bytes, 0))]);
        planned(&healthy(3), &Settings::default(), &seen).actions
    };
    let mut writes = 0;
    for bytes in (0..=5_100_000_000_u64).step_by(10_000_000) {
        if let Some(BackupAction::Report { status, .. }) = look(&running, bytes).into_iter().next() {
            writes += 1;
            running.status = *status;
        }
    }
    assert!((15..=25).contains(&writes), "{writes}");
    assert_eq!(running.status.progress.unwrap().bytes, 5_100_000_000);
    assert_eq!(look(&running, 5_100_000_000), []);
}

fn known(settings: &Settings, mut seen: Seen, minutes: i64) -> Seen {
    for name in settings.schedules.keys() {
        let runs = Runs {
            since: minutes_ago(minutes),
            last: None,
        };
        seen.runs.insert(name.clone(), runs);
    }
    seen
}

#[test]
fn a_due_schedule_creates_one_backup_under_one_name() {
    let settings = often("*/10 * * * *");
    let due = known(&settings, seen(vec![], vec![]), 60);
    let plan = planned(&healthy(3), &settings, &due);
    let [BackupAction::Create { name, spec }] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!(spec.scheduled_at.as_deref(), Some("2026-11-29T12:00:00Z"));
    assert_eq!(name, &subject().names().scheduled_backup("often", now()));
    // It was created, and the operator died: it is found again, and nothing is due.
    let created = BackupSeen {
        spec: (**spec).clone(),
        ..backup(name, 0)
    };
    let again = planned(
        &healthy(3),
        &settings,
        &known(&settings, seen(vec![created], vec![]), 60),
    );
    assert_eq!(lines(&again), [format!("start {name}-backup from shop-2")]);
    assert_eq!(again.look_again, Some(std::time::Duration::from_mins(10)));
    // A schedule that status does not know yet waits for the record of since when it is known.
    assert_eq!(planned(&healthy(3), &settings, &seen(vec![], vec![])).actions, []);
}

/// A schedule of every minute, backups of five, for two hours: the world in which the plans are carried out.
#[test]
fn f23_a_schedule_of_every_minute_does_not_pile_up() {
    let settings = often("* * * * *");
    let state = healthy(3);
    let mut world = known(&settings, seen(vec![], vec![]), 0);
    let (mut started, mut most) = (0, 0);
    for second in (0..7200).step_by(10) {
        let clock = now() + SignedDuration::from_secs(second);
        for job in &mut world.jobs {
            let over = clock.duration_since(job.created_at) >= SignedDuration::from_mins(5);
            job.state = if over {
                JobState::Succeeded {
                    stored: Some(Box::new(manifest())),
                }
            } else {
                JobState::Active {
                    progress: None,
                    moved_at: clock,
                }
            };
        }
        let plan = plan(
            &state.subject(),
            &state.observation(),
            &declared(&settings),
            &world,
            clock,
        );
        for action in plan.actions {
            match action {
                BackupAction::Create { name, spec } => {
                    assert!(world.backups.iter().all(|backup| backup.name != name), "{name} twice");
                    world.backups.push(BackupSeen {
                        spec: *spec,
                        created_at: clock,
                        ..backup(&name, 0)
                    });
                }
                BackupAction::Start(start) => {
                    started += 1;
                    world.jobs.push(JobSeen {
                        created_at: clock,
                        ..job(&start.backup, active(0))
                    });
                }
                BackupAction::Report { backup, status, .. } => {
                    let found = world.backups.iter_mut().find(|seen| seen.name == backup);
                    found.unwrap().status = *status;
                }
                BackupAction::DeleteJob { name, .. } => world.jobs.retain(|job| job.name != name),
                other => panic!("{other:?}"),
            }
        }
        assert!(world.jobs.len() <= 1, "two Jobs at once");
        let unfinished = world.backups.iter().filter(|backup| !backup.ended()).count();
        most = most.max(unfinished);
    }
    assert_eq!(most, 1, "backups that wait or run at the same time");
    // Five minutes each, and some passes in between: neither starved nor piled up.
    assert!((18..=24).contains(&started), "{started}");
}

#[test]
fn f23_a_failed_or_interrupted_run_does_not_block_the_next() {
    let settings = often("*/10 * * * *");
    for phase in [BackupPhase::Failed, BackupPhase::Succeeded] {
        let last = in_phase(scheduled("last", 10), phase);
        let seen = known(&settings, seen(vec![last], vec![]), 60);
        let said = lines(&planned(&healthy(3), &settings, &seen));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("create shop-often-"), "{said:?}");
    }
    // One that has not ended is waited for.
    let last = in_phase(scheduled("last", 10), BackupPhase::Running);
    let seen = known(&settings, seen(vec![last], vec![job("last", active(1))]), 60);
    let said = lines(&planned(&healthy(3), &settings, &seen));
    assert!(
        said.contains(&"schedule often waits for last to end, which it asked for before".to_owned()),
        "{said:?}"
    );
}

fn stored(id: &str, days: i64) -> Stored {
    Stored {
        id: id.to_owned(),
        schedule: Some("often".to_owned()),
        state: StoredState::Complete {
            at: minutes_ago(days * 24 * 60),
            executed: set(&format!("a:1-{}", 100 - days)),
        },
    }
}

#[test]
fn f22_retention_deletes_one_at_a_time_in_its_own_folder_only() {
    let mut settings = often("0 0 1 1 *");
    let count = Policy {
        count: Some(2),
        age: None,
    };
    settings.policies.schedules.insert("often".to_owned(), count);
    let own = "prod/shop/uid-shop/";
    let segment = |key: String, valid: &str| SegmentUse {
        key,
        valid: set(valid),
        at: now(),
    };
    let mut all = seen(vec![], vec![]);
    let listing = |backups: Vec<Stored>| Listing::Known {
        folder: Folder::new(own).unwrap(),
        backups,
        segments: vec![
            segment(format!("{own}binlog/1"), "a:1-40"),
            // A listing that went wrong.
            segment("prod/shop-2/uid-2/binlog/2".to_owned(), "a:41-60"),
            segment(format!("{own}binlog/3"), "a:61-100"),
        ],
    };
    all.store = listing(vec![stored("new", 1), stored("old", 9), stored("older", 20)]);
    assert_eq!(lines(&planned(&healthy(3), &settings, &all)), ["expire older"]);
    all.store = listing(vec![stored("new", 1), stored("old", 9)]);
    assert_eq!(
        lines(&planned(&healthy(3), &settings, &all)),
        [format!("prune {own}binlog/1")]
    );
    // What is not known is not empty.
    all.store = Listing::Unknown {
        reason: Some("access denied".to_owned()),
    };
    let said = lines(&planned(&healthy(3), &settings, &all));
    assert_eq!(said, ["retention waits for the store to be listed: access denied"]);
    // What has no manifest yet is being written, if its backup has not ended.
    let slow = backup("slow", 4000);
    let id = slow.id().unwrap().to_string();
    let leftover = Stored {
        id: id.clone(),
        schedule: None,
        state: StoredState::Leftover {
            at: minutes_ago(3 * 24 * 60),
        },
    };
    all.store = listing(vec![stored("new", 1), leftover]);
    assert_eq!(lines(&planned(&healthy(3), &settings, &all)), [format!("expire {id}")]);
    all.backups = vec![in_phase(slow, BackupPhase::Running)];
    all.jobs = vec![job("slow", active(0))];
    let said = lines(&planned(&healthy(3), &settings, &all));
    assert!(
        said.iter()
            .all(|line| !line.starts_with("expire") && !line.starts_with("prune")),
        "{said:?}"
    );
}

/// A policy by age is looked at again when it will have something to do, and not before.
#[test]
fn retention_looks_again_when_something_will_be_too_old() {
    let mut settings = Settings::default();
    settings.policies.fallback = Policy {
        count: None,
        age: Some(SignedDuration::from_hours(10 * 24)),
    };
    let mut all = seen(vec![], vec![]);
    all.store = Listing::Known {
        folder: Folder::new("prod/shop/uid-shop/").unwrap(),
        backups: vec![stored("new", 1), stored("old", 7)],
        segments: vec![],
    };
    let plan = planned(&healthy(3), &settings, &all);
    assert_eq!(plan.actions, []);
    let three_days = std::time::Duration::from_hours(3 * 24) + std::time::Duration::from_secs(1);
    assert_eq!(plan.look_again, Some(three_days));
    // Nothing is judged while the spec cannot be read, or declares nothing.
    settings.policies.fallback.age = Some(SignedDuration::from_hours(24));
    let without = Declared {
        settings: None,
        access: Ok(()),
    };
    let state = healthy(3);
    let plan = mainstay_core::backup::plan::plan(&state.subject(), &state.observation(), &without, &all, now());
    assert_eq!((plan.actions, plan.look_again), (vec![], None));
}

#[test]
fn a_job_is_given_everything_that_it_needs_or_is_not_made() {
    let state = healthy(3);
    let asked = seen(vec![scheduled("now", 1)], vec![]);
    let plan = planned(&state, &Settings::default(), &asked);
    let [BackupAction::Start(start)] = plan.actions.as_slice() else {
        panic!("{plan:?}");
    };
    assert_eq!((start.backup.as_str(), start.uid.as_str()), ("now", "uid-now"));
    let task = &start.task;
    assert_eq!(task.donor.host, "shop-2.shop-instances.prod.svc");
    assert_eq!(
        (task.donor.port, task.donor.server_uuid.as_str()),
        (33062, uuid(2).as_str())
    );
    assert_eq!((task.name.as_str(), task.schedule.as_deref()), ("now", Some("often")));
    // The name in the store is of this very object, and sorts by its time.
    assert_eq!(task.id, asked.backups[0].id().unwrap());
    assert!(task.id.as_str().starts_with("20261129t115900z-"), "{}", task.id);
    let mut again = asked.backups[0].clone();
    again.uid = "another".to_owned();
    assert_ne!(again.id().unwrap(), task.id);
    // Without the access to the store it waits, and says for what.
    let without = Declared {
        settings: Some(&Settings::default()),
        access: Err("the access to the store (spec.backup.store.credentialsSecret: there is no Secret s)".to_owned()),
    };
    let plan = mainstay_core::backup::plan::plan(&state.subject(), &state.observation(), &without, &asked, now());
    let why = "the access to the store (spec.backup.store.credentialsSecret: there is no Secret s)";
    assert_eq!(
        lines(&plan),
        [
            format!("report now Pending: waits for {why}"),
            format!("now waits for {why}")
        ]
    );
}

#[test]
fn a_logical_backup_is_made_of_a_replica_like_any_other() {
    for (asked, made) in [
        (None, Method::Physical),
        (Some(BackupMethod::Physical), Method::Physical),
        (Some(BackupMethod::Logical), Method::Logical),
    ] {
        let mut now = backup("now", 1);
        now.spec.method = asked;
        let plan = planned(&healthy(3), &Settings::default(), &seen(vec![now], vec![]));
        let [BackupAction::Start(start)] = &plan.actions[..] else {
            panic!("{:?}", plan.actions)
        };
        assert_eq!(
            (start.task.method, start.task.donor.instance.as_str()),
            (made, "shop-2")
        );
    }
}

#[test]
fn a_dump_says_how_many_rows_it_has() {
    let mut running = in_phase(backup("now", 3), BackupPhase::Running);
    running.spec.method = Some(BackupMethod::Logical);
    let state = JobState::Active {
        progress: Some(Progress {
            step: BackupStep::Dump,
            bytes: 2_100_000_000,
            total: None,
            rate: Some(61_000_000),
            rows: Some(10_400_221),
        }),
        moved_at: minutes_ago(0),
    };
    let plan = planned(
        &healthy(3),
        &Settings::default(),
        &seen(vec![running], vec![job("now", state)]),
    );
    let [BackupAction::Report { status, .. }] = &plan.actions[..] else {
        panic!("{:?}", plan.actions)
    };
    assert_eq!(
        status.message.as_deref(),
        Some("dumped 2.1 GB with 10400221 rows, 61.0 MB/s")
    );
    assert_eq!(status.method, Some(BackupMethod::Logical));
    assert_eq!(status.progress.unwrap().rows, Some(10_400_221));
}

#[test]
fn what_this_version_does_not_make_fails_at_once_and_blocks_nothing() {
    let mut elsewhere = backup("elsewhere", 2);
    elsewhere.spec.store =
        serde_json::from_value(serde_json::json!({"bucket": "b", "credentialsSecret": {"name": "s"}})).unwrap();
    let said = lines(&planned(
        &healthy(3),
        &Settings::default(),
        &seen(vec![elsewhere, backup("good", 1)], vec![]),
    ));
    assert_eq!(
        said,
        [
            "report elsewhere Failed: this version stores in the store of the cluster only; create a MySQLBackup without spec.store",
            "start good-backup from shop-2",
        ]
    );
}

fn point(through: &str, own: &str) -> ArchivePoint {
    ArchivePoint {
        through: set(through),
        time: now(),
        own: set(own),
        condition_changes: false,
    }
}

#[test]
fn an_idle_cluster_is_not_written_to() {
    let settings = often("*/10 * * * *");
    let mut good = in_phase(scheduled("good", 20), BackupPhase::Succeeded);
    good.status.completed_at = Some(MicroTime(minutes_ago(15)));
    let mut bad = in_phase(scheduled("bad", 40), BackupPhase::Failed);
    bad.status.completed_at = Some(MicroTime(minutes_ago(39)));
    let all = seen(vec![good, bad], vec![]);
    let first = summary(None, &settings, &all, Some(&point("a:1-100", "")), now());
    assert_eq!(first.last_successful.as_ref().unwrap().name, "good");
    assert_eq!(first.last_failed, None, "it succeeded since");
    assert_eq!(runs(Some(&first))["often"].last, Some(minutes_ago(20)));
    let later = |seconds| now() + SignedDuration::from_secs(seconds);
    let write =
        |point: &ArchivePoint, seconds| summary(Some(&first), &settings, &all, Some(point), later(seconds)) != first;
    assert!(!write(&point("a:1-100", ""), 3600), "nothing is new");
    assert!(
        !write(&point("a:1-120", "a:101-120"), 3600),
        "Mainstay's own transactions alone"
    );
    assert!(!write(&point("a:1-120", ""), 59), "not more than once a minute");
    assert!(write(&point("a:1-120", "a:101-110"), 60), "clients wrote");
    let changed = ArchivePoint {
        condition_changes: true,
        ..point("a:1-120", "")
    };
    assert!(write(&changed, 1), "the condition changes");
    // The objects were deleted: what was so stays so, and the schedule does not start anew.
    let gone = summary(Some(&first), &settings, &seen(vec![], vec![]), None, later(3600));
    assert_eq!(gone, first);
}

#[expect(clippy::needless_pass_by_value, reason = "it is a literal")]
fn problems(backup: serde_json::Value, change: impl Fn(&mut Observed)) -> Vec<(ProblemCode, String)> {
    let spec = with_backup(&backup);
    let subject = Subject {
        spec: Ok(&spec),
        ..subject()
    };
    let mut observed = healthy(3).observation();
    change(&mut observed);
    let analysis = analyse(&subject, &observed, now());
    // What is told of the archive is in archive.rs.
    let backups = analysis
        .problems
        .iter()
        .filter(|problem| problem.code.kind().condition != ConditionType::BinlogArchived);
    backups.map(|problem| (problem.code, problem.text())).collect()
}

#[test]
fn what_is_declared_is_no_problem() {
    let mut backup = serde_json::json!({"store": {"bucket": "b", "credentialsSecret": {"name": "s"}}});
    assert_eq!(problems(serde_json::Value::Null, |_| ()), []);
    assert_eq!(problems(backup.clone(), |_| ()), []);
    backup["verification"] = serde_json::json!({"schedule": "@weekly"});
    assert_eq!(problems(backup, |_| ()), []);
}

#[test]
fn a_store_that_cannot_be_used_is_told_with_its_field() {
    let backup = serde_json::json!({"store": {"bucket": "b", "credentialsSecret": {"name": "s"}}});
    let found = problems(backup, |observed| {
        observed.secrets.store = StoreSecret::Refused {
            field: "spec.backup.store.credentialsSecret".to_owned(),
            message: "there is no Secret s".to_owned(),
        };
    });
    let sentence = "spec.backup.store.credentialsSecret: there is no Secret s".to_owned();
    assert_eq!(found, [(ProblemCode::StoreRefused, sentence)]);
    assert_eq!(ProblemCode::StoreRefused.kind().condition, ConditionType::BackupHealthy);
}

#[test]
fn a_backup_that_failed_is_told_until_one_succeeds() {
    let backup_spec = serde_json::json!({"store": {"bucket": "b", "credentialsSecret": {"name": "s"}}});
    let ended = |name: &str, minutes, phase| {
        let mut ended = in_phase(backup(name, minutes), phase);
        ended.status.completed_at = Some(MicroTime(minutes_ago(minutes)));
        ended.status.error = Some(BackupError {
            reason: "CopyFailed".to_owned(),
            message: "no route".to_owned(),
        });
        ended
    };
    let found = problems(backup_spec.clone(), |observed| {
        observed.backups.backups = vec![ended("old", 9, BackupPhase::Failed)];
        observed.backups.store = Listing::Unknown {
            reason: Some("access denied".to_owned()),
        };
    });
    let codes: Vec<_> = found.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [ProblemCode::BackupFailed, ProblemCode::StoreNotListed]);
    assert!(found[0].1.starts_with("old failed: no route; "), "{}", found[0].1);
    let found = problems(backup_spec, |observed| {
        observed.backups.backups = vec![
            ended("old", 9, BackupPhase::Failed),
            ended("new", 1, BackupPhase::Succeeded),
        ];
    });
    assert_eq!(found, []);
}

/// Written when it is not what is declared, emptied when nothing is declared any more, and not fought over.
#[test]
fn the_access_to_the_store_is_written_when_it_is_outdated() {
    let store = serde_json::json!({"store": {"bucket": "b", "credentialsSecret": {"name": "s"}}, "archive": {"enabled": false}});
    let planned = |backup: serde_json::Value, state: StoreSecret| {
        let spec = with_backup(&backup);
        let subject = Subject {
            spec: Ok(&spec),
            ..subject()
        };
        let mut observed = healthy(3).observation();
        observed.secrets.store = state;
        let analysis = analyse(&subject, &observed, now());
        let plan = mainstay_core::plan::plan(&subject, &observed, &analysis, now());
        let written = plan.actions.into_iter().filter_map(|action| match action {
            Action::WriteStoreAccess { destination } => Some(destination),
            _ => None,
        });
        written.collect::<Vec<_>>()
    };
    let refused = StoreSecret::Refused {
        field: String::new(),
        message: String::new(),
    };
    for state in [StoreSecret::Current, StoreSecret::Unknown, refused] {
        assert_eq!(planned(store.clone(), state), []);
    }
    let written = planned(store, StoreSecret::Outdated);
    let [Some(destination)] = written.as_slice() else {
        panic!("{written:?}")
    };
    assert_eq!(destination.store.bucket, "b");
    assert!(!destination.archive);
    assert_eq!(planned(serde_json::Value::Null, StoreSecret::Outdated), [None]);
}
