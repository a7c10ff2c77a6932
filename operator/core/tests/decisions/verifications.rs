//! Verifications: when one is due, what it waits for, and what is said of it, pass by pass.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use mainstay_api::MySQLClusterStatus;
use mainstay_api::backup::BackupPhase;
use mainstay_api::backup_status::{VerificationResult, VerificationStatus};
use mainstay_core::analyse::analyse;
use mainstay_core::backup::BackupId;
use mainstay_core::backup::plan::{BackupAction, BackupSeen, Declared, JobSeen, JobState, Seen, plan};
use mainstay_core::backup::verify::{VerificationJob, VerificationStart, Verified};
use mainstay_core::names;
use mainstay_core::observed::StoreSecret;
use mainstay_core::status::{News, news, status};
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use crate::states::backups::{asked_for, with_backup};
use crate::states::{State, electing, healthy, now, set, subject};

/// At noon a schedule of every hour becomes known.
fn after(minutes: i64) -> Timestamp {
    now() + SignedDuration::from_mins(minutes)
}

#[expect(clippy::needless_pass_by_value, reason = "it is a literal")]
fn spec(verification: serde_json::Value) -> ValidatedCluster {
    with_backup(&serde_json::json!({
        "store": {"bucket": "backups", "credentialsSecret": {"name": "s3"}},
        "archive": {"enabled": false},
        "verification": verification,
    }))
}

fn hourly() -> ValidatedCluster {
    spec(serde_json::json!({"schedule": "0 * * * *"}))
}

/// A backup that was asked for that many minutes after noon.
fn backup(name: &str, minutes: i64, phase: Option<BackupPhase>) -> BackupSeen {
    let mut seen = asked_for(name, after(minutes));
    seen.status.phase = phase;
    seen.status.completed_at = phase.map(|_| MicroTime(after(minutes)));
    seen
}

fn succeeded(name: &str, minutes: i64) -> BackupSeen {
    backup(name, minutes, Some(BackupPhase::Succeeded))
}

fn verified(tables: u64, minutes: i64) -> JobState<Verified> {
    JobState::Succeeded {
        stored: Some(Box::new(Verified {
            id: BackupId::parse("20261129t030000z-a").unwrap(),
            name: Some("nightly".to_owned()),
            reached: Some(set("a:1-100")),
            reached_time: Some(after(minutes) - SignedDuration::from_secs(31)),
            schemas: 7,
            tables,
            prepared: 0,
            seconds: 251,
            completed_at: after(minutes),
        })),
    }
}

fn broken(reason: &str) -> JobState<Verified> {
    JobState::Failed {
        reason: reason.to_owned(),
        message: "the words of the program".to_owned(),
    }
}

/// A cluster over several passes. What a plan asks for is done by the test, or is not.
struct Life {
    state: State,
    spec: ValidatedCluster,
    seen: Seen,
    status: MySQLClusterStatus,
    access: StoreSecret,
    news: Vec<&'static str>,
}

impl Life {
    fn new(backups: Vec<BackupSeen>) -> Self {
        Self {
            state: healthy(3),
            spec: hourly(),
            seen: Seen {
                backups,
                ..Seen::default()
            },
            status: MySQLClusterStatus::default(),
            access: StoreSecret::Current,
            news: Vec::new(),
        }
    }

    /// One whose schedule is known since noon.
    fn known(backups: Vec<BackupSeen>) -> Self {
        let mut life = Self::new(backups);
        assert_eq!(life.pass(0), [""; 0]);
        life
    }

    /// A pass that many minutes after noon: what it does, and for what is waited.
    fn pass(&mut self, minutes: i64) -> Vec<String> {
        let at = after(minutes);
        self.seen.told = self.status.backup.as_deref().cloned().unwrap_or_default();
        let mut observed = self.state.observation();
        observed.backups = self.seen.clone();
        observed.secrets.store = self.access.clone();
        let subject = Subject {
            spec: Ok(&self.spec),
            ..subject()
        };
        let backups = plan(&subject, &observed, &Declared::of(&subject, &observed), &self.seen, at);
        let analysis = analyse(&subject, &observed, at);
        let cluster = mainstay_core::plan::plan(&subject, &observed, &analysis, at);
        let next = status(&subject, &observed, &analysis, &cluster, &self.status, at);
        // The same pass once more writes nothing.
        assert_eq!(next, status(&subject, &observed, &analysis, &cluster, &next, at));
        let new = news(&self.status, &next);
        let new = new.iter().filter(|news| matches!(news, News::Verification(_)));
        self.news.extend(new.map(News::reason));
        self.status = next;
        let actions = backups.actions.into_iter().map(|action| match action {
            BackupAction::Verify(start) => {
                let VerificationStart { job, due, task } = *start;
                format!("{job} verifies {} for {due}", task.name)
            }
            BackupAction::DeleteJob { name, .. } => format!("delete {name}"),
            BackupAction::Start(start) => format!("start {}", start.job),
            BackupAction::Report { backup, .. } => format!("report {backup}"),
            other => format!("{other:?}"),
        });
        let waits = backups
            .waiting
            .iter()
            .map(|wait| format!("{} waits for {}", wait.who, wait.for_what));
        actions
            .chain(waits)
            .filter(|line| !line.starts_with("retention waits for the store"))
            .collect()
    }

    fn job(&mut self, minutes: i64, due: i64, state: JobState<Verified>) {
        self.seen.verification = Some(VerificationJob {
            name: "shop-verify".to_owned(),
            uid: "uid-job".to_owned(),
            ours: true,
            created_at: after(minutes),
            due: after(due),
            backup: "nightly".to_owned(),
            state,
        });
    }

    fn running(&mut self, due: i64) {
        let moved_at = after(due);
        self.job(
            due,
            due,
            JobState::Active {
                progress: None,
                moved_at,
            },
        );
    }

    fn run(&self) -> VerificationStatus {
        self.status.backup.as_ref().unwrap().verification.clone().unwrap()
    }

    fn result(&self) -> (VerificationResult, String) {
        let run = self.run();
        (run.result.unwrap(), run.reason.unwrap_or_default())
    }

    fn condition(&self) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == "BackupVerified")
    }

    #[track_caller]
    fn says(&self, status: &str, reason: &str, words: &str) {
        let condition = self.condition().unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), (status, reason));
        assert!(condition.message.contains(words), "{}", condition.message);
    }
}

#[test]
fn one_run_makes_up_for_all_that_were_missed() {
    let mut life = Life::new(vec![succeeded("nightly", -500)]);
    // What was due before the schedule is known is not made up.
    assert_eq!(life.pass(0), [""; 0]);
    assert_eq!(life.run().since.0, now());
    assert_eq!(life.pass(59), [""; 0]);
    assert_eq!(life.pass(60), ["shop-verify verifies nightly for 2026-11-29T13:00:00Z"]);
    // The operator was away for a day.
    assert_eq!(
        life.pass(24 * 60 + 5),
        ["shop-verify verifies nightly for 2026-11-30T12:00:00Z"]
    );
    life.spec = spec(serde_json::json!({"schedule": "0 * * * *", "suspend": true}));
    assert_eq!(life.pass(24 * 60 + 5), [""; 0]);
}

#[test]
fn the_newest_backup_that_succeeded_is_verified() {
    let failed = backup("failed", 3, Some(BackupPhase::Failed));
    let mut life = Life::new(vec![succeeded("new", 2), failed, succeeded("old", 1)]);
    life.pass(0);
    assert_eq!(life.pass(60), ["shop-verify verifies new for 2026-11-29T13:00:00Z"]);
    let mut without = Life::new(vec![backup("failed", 3, Some(BackupPhase::Failed))]);
    without.pass(0);
    assert_eq!(without.pass(60), ["verification waits for a backup that succeeded"]);
    // It is made up as soon as there is one.
    without.seen.backups.push(succeeded("first", 70));
    assert_eq!(
        without.pass(71),
        ["shop-verify verifies first for 2026-11-29T13:00:00Z"]
    );
}

#[test]
fn it_begins_neither_beside_a_backup_nor_before_one_that_is_about_to_begin() {
    let mut life = Life::new(vec![succeeded("nightly", -500)]);
    life.pass(0);
    life.seen.backups.push(backup("now", 59, None));
    let about = "verification waits for a backup that is about to begin";
    assert_eq!(life.pass(60), ["start now-backup", about]);
    // Its Job is not in the cache yet, or was made and is gone: told by its phase.
    life.seen.backups[1].status.phase = Some(BackupPhase::Running);
    assert!(life.pass(60).contains(&about.to_owned()));
    life.seen.jobs = vec![JobSeen {
        name: names::backup_job("now"),
        uid: "uid-job".to_owned(),
        ours: true,
        created_at: after(60),
        donor: None,
        state: JobState::Active {
            progress: None,
            moved_at: after(60),
        },
    }];
    let waits = life.pass(60);
    assert!(
        waits.contains(&"verification waits for now-backup to end".to_owned()),
        "{waits:?}"
    );
    // One that waits for a replica may do so for long.
    life.seen.jobs.clear();
    life.state = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    life.seen.backups[1].status.phase = Some(BackupPhase::Pending);
    let lines = life.pass(60);
    assert!(
        lines.contains(&"shop-verify verifies nightly for 2026-11-29T13:00:00Z".to_owned()),
        "{lines:?}"
    );
}

#[test]
fn nothing_begins_without_access_or_while_a_primary_is_elected() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.access = StoreSecret::Outdated;
    assert_eq!(
        life.pass(60),
        ["verification waits for the access to the store to be written"]
    );
    life.access = StoreSecret::Current;
    life.state = electing(3);
    assert_eq!(life.pass(60), ["backups waits for the election to end"]);
}

#[test]
fn a_backup_does_not_wait_for_a_verification_and_nothing_is_deleted_beside_it() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.running(60);
    life.seen.backups.push(backup("now", 61, None));
    assert_eq!(
        life.pass(61),
        ["start now-backup", "retention waits for shop-verify to end"]
    );
}

#[test]
fn what_came_of_it_is_written_before_its_job_is_deleted() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.says("Unknown", "NotYet", "no verification has ended");
    life.pass(60);
    life.running(60);
    life.pass(61);
    assert_eq!(life.result(), (VerificationResult::Running, String::new()));
    assert_eq!(life.run().last_run.unwrap().0, after(60));
    life.says("Unknown", "NotYet", "");
    // An operator that dies here leaves the Job as it is.
    life.job(60, 60, verified(412, 64));
    assert_eq!(life.pass(65), ["retention waits for shop-verify to end"]);
    let run = life.run();
    assert_eq!(run.result, Some(VerificationResult::Verified));
    assert_eq!(
        (run.schemas, run.tables, run.duration_seconds),
        (Some(7), Some(412), Some(251))
    );
    assert_eq!(run.reached_gtid, Some(set("a:1-100").to_string()));
    let told = life.status.backup.as_ref().unwrap().last_verified.clone().unwrap();
    assert_eq!((told.name.as_str(), told.completed_at.0), ("nightly", after(64)));
    life.says(
        "True",
        "Verified",
        "nightly: restored up to 2026-11-29T13:03:29Z; 412 tables of 7 schemas read",
    );
    assert_eq!(
        life.pass(66),
        ["delete shop-verify", "retention waits for shop-verify to end"]
    );
    // Whatever is seen of it from now on changes nothing.
    life.job(60, 60, broken("JobFailed"));
    life.pass(67);
    assert_eq!(life.run(), run);
    life.seen.verification = None;
    assert_eq!(life.pass(68), [""; 0]);
    assert_eq!(life.run(), run);
    assert_eq!(
        life.pass(120),
        ["shop-verify verifies nightly for 2026-11-29T14:00:00Z"]
    );
    assert_eq!(life.news, ["VerificationStarted", "BackupVerified"]);
}

#[test]
fn a_failure_is_told_until_a_run_succeeds() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.job(60, 60, broken("KeyMissing"));
    life.pass(61);
    assert_eq!(life.result(), (VerificationResult::Failed, "KeyMissing".to_owned()));
    let words = "nightly was not verified (KeyMissing): the words of the program";
    life.says("False", "BackupsNotVerified", words);
    assert!(
        life.status
            .problems
            .iter()
            .any(|problem| problem.name == "BackupsNotVerified")
    );
    life.seen.verification = None;
    // It is not repeated before the schedule says so.
    assert_eq!(life.pass(90), [""; 0]);
    life.running(120);
    life.pass(121);
    assert_eq!(life.run().result, Some(VerificationResult::Running));
    life.says("False", "BackupsNotVerified", "the words of the program");
    assert_eq!(life.status.backup.as_ref().unwrap().last_verified, None);
    life.job(120, 120, verified(3, 125));
    life.pass(126);
    life.says("True", "Verified", "3 tables");
    assert!(life.status.problems.is_empty(), "{:?}", life.status.problems);
    // A later failure leaves what was proved.
    life.job(180, 180, broken("CheckFailed"));
    life.pass(181);
    assert!(life.status.backup.as_ref().unwrap().last_verified.is_some());
    assert_eq!(
        life.news,
        [
            "VerificationFailed",
            "VerificationStarted",
            "BackupVerified",
            "VerificationFailed"
        ]
    );
}

#[test]
fn f23_nothing_waits_for_ever() {
    let waiting = |since| JobState::Waiting {
        since: after(since),
        reason: Some("Unschedulable: 0/3 nodes".to_owned()),
    };
    let moved = |at| JobState::Active {
        progress: None,
        moved_at: after(at),
    };
    for (state, before, limit, reason) in [
        (waiting(60), 69, 70, "NotStarted"),
        (JobState::Succeeded { stored: None }, 60, 61, "NoOutcome"),
    ] {
        let mut life = Life::known(vec![succeeded("nightly", -500)]);
        life.job(60, 60, state);
        if reason != "NoOutcome" {
            life.pass(before);
            assert_eq!(life.result().0, VerificationResult::Running, "{reason}");
        }
        life.pass(limit);
        assert_eq!(life.result(), (VerificationResult::Failed, reason.to_owned()));
        assert!(
            life.pass(limit + 1).contains(&"delete shop-verify".to_owned()),
            "{reason}"
        );
    }
    // Whether something moves is known to the program: reading a large table takes hours.
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.job(60, 60, moved(61));
    life.pass(200);
    assert_eq!(life.result().0, VerificationResult::Running);
    // Somebody deletes the Job.
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.running(60);
    life.pass(61);
    life.seen.verification = None;
    assert_eq!(life.pass(62), [""; 0]);
    assert_eq!(life.result(), (VerificationResult::Failed, "JobGone".to_owned()));
}

#[test]
fn what_is_not_declared_any_more_leaves_nothing_but_what_was_proved() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.job(60, 60, verified(3, 64));
    life.pass(65);
    life.running(120);
    life.spec = spec(serde_json::Value::Null);
    assert!(life.pass(121).contains(&"delete shop-verify".to_owned()));
    let backup = life.status.backup.as_ref().unwrap();
    assert!(backup.verification.is_none() && backup.last_verified.is_some());
    assert_eq!(life.condition(), None);
}

#[test]
fn f28_a_job_that_is_not_mainstays_is_left_alone_and_told() {
    let mut life = Life::known(vec![succeeded("nightly", -500)]);
    life.running(60);
    life.seen.verification.as_mut().unwrap().ours = false;
    assert_eq!(
        life.pass(60),
        ["verification waits for the Job shop-verify, which is not Mainstay's, to be deleted"]
    );
    life.says(
        "False",
        "BackupsNotVerified",
        "a Job shop-verify exists that is not Mainstay's",
    );
    assert_eq!(life.run().result, None);
}
