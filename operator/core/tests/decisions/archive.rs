//! The archive of the binlog: its condition, and how far status says that it reaches.

use crate::states::backups::with_backup;
use crate::states::{State, electing, healthy, now, set, subject};
use jiff::{SignedDuration, Timestamp};
use mainstay_api::MySQLClusterStatus;
use mainstay_core::analyse::{ProblemCode, analyse};
use mainstay_core::observed::ArchiveReport;
use mainstay_core::plan::plan;
use mainstay_core::status::status;
use mainstay_core::subject::Subject;
use mainstay_core::validate::{SpecProblem, ValidatedCluster};

fn declared() -> ValidatedCluster {
    with_backup(&serde_json::json!({"store": {"bucket": "backups", "credentialsSecret": {"name": "s3"}}}))
}

fn disabled() -> ValidatedCluster {
    with_backup(&serde_json::json!({
        "store": {"bucket": "backups", "credentialsSecret": {"name": "s3"}},
        "archive": {"enabled": false},
    }))
}

fn written_at(
    state: &State,
    spec: Result<&ValidatedCluster, &[SpecProblem]>,
    previous: &MySQLClusterStatus,
    at: Timestamp,
) -> MySQLClusterStatus {
    let observed = state.observation();
    let subject = Subject { spec, ..subject() };
    let analysis = analyse(&subject, &observed, at);
    let plan = plan(&subject, &observed, &analysis, at);
    status(&subject, &observed, &analysis, &plan, previous, at)
}

fn written(state: &State, spec: &ValidatedCluster, previous: &MySQLClusterStatus) -> MySQLClusterStatus {
    written_at(state, Ok(spec), previous, now())
}

/// The primary says this of its archive.
fn archiving(report: ArchiveReport) -> State {
    healthy(3).with(0, |primary| primary.report(|all| all.archive = Some(report)))
}

fn whole() -> ArchiveReport {
    ArchiveReport {
        through: Some(now()),
        ..ArchiveReport::default()
    }
}

fn condition(status: &MySQLClusterStatus) -> Option<(String, String, String)> {
    let mut conditions = status.conditions.iter();
    let archived = conditions.find(|condition| condition.type_ == "BinlogArchived")?;
    Some((
        archived.status.clone(),
        archived.reason.clone(),
        archived.message.clone(),
    ))
}

#[track_caller]
fn says(status: &MySQLClusterStatus, value: &str, reason: &str, words: &[&str]) {
    let (is, why, message) = condition(status).unwrap();
    assert_eq!((is.as_str(), why.as_str()), (value, reason), "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} in {message:?}");
    }
}

#[test]
fn the_condition_says_what_keeps_transactions_out_of_the_archive() {
    let nothing = MySQLClusterStatus::default();
    says(
        &written(&archiving(whole()), &declared(), &nothing),
        "True",
        "Archived",
        &[],
    );
    let none = written(&healthy(3), &declared(), &nothing);
    says(&none, "False", "ArchiveNotRunning", &["shop-0"]);
    let failing = ArchiveReport {
        error: "failed to store x: access denied".to_owned(),
        ..whole()
    };
    let failing = written(&archiving(failing), &declared(), &nothing);
    says(
        &failing,
        "False",
        "ArchiveFailing",
        &["shop-0", "access denied", "binlog_expire_logs_seconds"],
    );
    let gap = ArchiveReport {
        missing: set("a:50-60"),
        error: "no answer".to_owned(),
        ..whole()
    };
    let gap = written(&archiving(gap), &declared(), &nothing);
    says(
        &gap,
        "False",
        "ArchiveGap",
        &[&set("a:50-60").to_string(), "new backup", "no answer"],
    );
}

#[test]
fn without_an_archive_there_is_no_condition_and_what_nobody_can_tell_stays() {
    let failing = ArchiveReport {
        error: "no answer".to_owned(),
        ..whole()
    };
    let before = written(&archiving(failing), &declared(), &MySQLClusterStatus::default());
    assert!(condition(&before).is_some());
    for other in [disabled(), with_backup(&serde_json::Value::Null)] {
        assert_eq!(condition(&written(&archiving(whole()), &other, &before)), None);
    }
    // While a primary is elected, and while the spec cannot be accepted.
    let elected = written(&electing(3), &declared(), &before);
    assert_eq!(condition(&elected), condition(&before));
    let refused = written_at(&archiving(whole()), Err(&[]), &before, now());
    assert_eq!(condition(&refused), condition(&before));
}

#[test]
fn an_archive_that_fails_makes_no_cluster_unhealthy() {
    let nothing = MySQLClusterStatus::default();
    let well = written(&archiving(whole()), &declared(), &nothing);
    let none = written(&healthy(3), &declared(), &nothing);
    assert_eq!(well.health, none.health);
}

fn reaches(status: &MySQLClusterStatus) -> Option<(String, Timestamp)> {
    let archive = status.backup.as_ref()?.archive.as_ref()?;
    Some((archive.through_gtid.clone(), archive.through_time.0))
}

/// Decision D: when the condition changes, and otherwise at most once a minute, when clients wrote.
#[test]
fn status_says_how_far_the_archive_reaches_when_there_is_a_reason() {
    let at = |seconds: i64| now() + SignedDuration::from_secs(seconds);
    let executed = |text: &str, archive: ArchiveReport| {
        archiving(archive).with(0, |primary| primary.report(|report| report.executed = set(text)))
    };
    let archive = |seconds: i64| ArchiveReport {
        behind: set("a:120"),
        through: Some(at(seconds)),
        ..ArchiveReport::default()
    };
    let spec = declared();
    let write = |state: &State, previous: &MySQLClusterStatus, seconds: i64| {
        written_at(state, Ok(&spec), previous, at(seconds))
    };
    let first = write(&executed("a:1-100", whole()), &MySQLClusterStatus::default(), 0);
    assert_eq!(reaches(&first), Some((set("a:1-100").to_string(), now())));
    // It is idle: the time alone is no reason.
    let idle = ArchiveReport {
        through: Some(at(600)),
        ..ArchiveReport::default()
    };
    assert_eq!(
        reaches(&write(&executed("a:1-100", idle.clone()), &first, 600)),
        reaches(&first)
    );
    let soon = write(&executed("a:1-120", archive(59)), &first, 59);
    assert_eq!(reaches(&soon), reaches(&first), "not more than once a minute");
    let later = write(&executed("a:1-120", archive(60)), &first, 60);
    assert_eq!(reaches(&later), Some((set("a:1-119").to_string(), at(60))));
    // Probes and markers are Mainstay's own.
    let own = format!("{}:mainstay:1-7", set("a:1-100")).parse().unwrap();
    let probed = archiving(idle).with(0, |primary| primary.report(|report| report.executed = own));
    assert_eq!(reaches(&write(&probed, &first, 600)), reaches(&first));
    let failing = ArchiveReport {
        error: "no answer".to_owned(),
        ..archive(5)
    };
    let failed = write(&executed("a:1-120", failing), &first, 5);
    assert_eq!(
        reaches(&failed),
        Some((set("a:1-119").to_string(), at(5))),
        "the condition changes"
    );
}

/// What lies beyond a hole cannot be reached.
#[test]
fn beyond_a_hole_the_archive_does_not_reach() {
    let gap = ArchiveReport {
        missing: set("a:50-60"),
        through: None,
        ..ArchiveReport::default()
    };
    let state = archiving(gap).with(0, |primary| primary.report(|report| report.executed = set("a:1-100")));
    let status = written(&state, &declared(), &MySQLClusterStatus::default());
    assert_eq!(reaches(&status), None, "nobody knows up to when everything is stored");
}

#[test]
fn an_archive_that_was_not_declared_is_no_problem() {
    let observed = healthy(3).observation();
    let none = with_backup(&serde_json::Value::Null);
    let subject = Subject {
        spec: Ok(&none),
        ..subject()
    };
    let analysis = analyse(&subject, &observed, now());
    for code in [
        ProblemCode::ArchiveNotRunning,
        ProblemCode::ArchiveGap,
        ProblemCode::ArchiveFailing,
    ] {
        assert_eq!(analysis.of(code).count(), 0);
    }
}
