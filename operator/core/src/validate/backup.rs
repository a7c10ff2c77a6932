//! `spec.backup` and `spec.bootstrap.recovery`: what CEL cannot say of schedules, ages and targets.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use mainstay_api::backup_settings::{BackupSchedule, BackupSettings, Retention};
use mainstay_api::recovery::Recovery;

use super::SpecProblem;
use crate::backup::plan::{ScheduleSettings, Settings};
use crate::backup::restore::Target;
use crate::backup::retention::{Policies, Policy};
use crate::backup::schedule::{Schedule, ScheduleError, Switches};

/// The schedules and how long backups are kept; store, encryption and volume go as they are into what is built.
pub(super) fn settings(backup: &BackupSettings, problems: &mut Vec<SpecProblem>) -> Settings {
    let mut schedules = BTreeMap::new();
    let mut policies = Policies {
        fallback: policy(backup.retention.as_ref(), "spec.backup.retention", problems).unwrap_or_default(),
        schedules: BTreeMap::new(),
    };
    for (place, wish) in backup.schedules.iter().enumerate() {
        let field = format!("spec.backup.schedules[{place}]");
        if schedules.contains_key(&wish.name) {
            let message = format!("\"{}\" is the name of another schedule; choose another one", wish.name);
            problems.push(SpecProblem::new(format!("{field}.name"), message));
        }
        if let Some(policy) = policy(wish.retention.as_ref(), &format!("{field}.retention"), problems) {
            policies.schedules.insert(wish.name.clone(), policy);
        }
        if let Some(schedule) = read(&wish.schedule, wish.time_zone.as_deref(), &field, problems) {
            schedules.insert(wish.name.clone(), with_switches(wish, schedule));
        }
    }
    if let Some(verification) = &backup.verification {
        let (text, zone) = (&verification.schedule, verification.time_zone.as_deref());
        read(text, zone, "spec.backup.verification", problems);
    }
    Settings { schedules, policies }
}

fn with_switches(wish: &BackupSchedule, schedule: Schedule) -> ScheduleSettings {
    ScheduleSettings {
        schedule,
        switches: Switches {
            suspended: wish.suspend.unwrap_or_default(),
            immediate: wish.immediate.unwrap_or_default(),
        },
        method: wish.method.unwrap_or_default(),
    }
}

fn read(text: &str, zone: Option<&str>, field: &str, problems: &mut Vec<SpecProblem>) -> Option<Schedule> {
    match Schedule::new(text, zone) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            let part = match &error {
                ScheduleError::Cron(_) => "schedule",
                ScheduleError::Zone(_) => "timeZone",
            };
            problems.push(SpecProblem::new(format!("{field}.{part}"), error.to_string()));
            None
        }
    }
}

fn policy(retention: Option<&Retention>, field: &str, problems: &mut Vec<SpecProblem>) -> Option<Policy> {
    let retention = retention?;
    let count = retention.count.map(u32::try_from);
    if count.is_some_and(|count| count.is_err() || count == Ok(0)) {
        let message = "at least 1: the newest backup that succeeded is never deleted";
        problems.push(SpecProblem::new(format!("{field}.count"), message));
    }
    let age = retention.age.as_deref().map(age);
    if age == Some(None) {
        let message = "not an age; write a number of hours, days or weeks, for example 36h, 30d or 12w";
        problems.push(SpecProblem::new(format!("{field}.age"), message));
    }
    Some(Policy {
        count: count.and_then(Result::ok),
        age: age.flatten(),
    })
}

/// `36h`, `30d`, `12w`. A day is 24 hours: an age is measured and not read off a calendar.
fn age(text: &str) -> Option<SignedDuration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let hours = match unit {
        "h" => 1,
        "d" => 24,
        "w" => 24 * 7,
        _ => return None,
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.then(|| number.parse().ok()).flatten()?;
    (1..=99_999)
        .contains(&number)
        .then(|| SignedDuration::from_hours(number * hours))
}

/// The target of a recovery.
///
/// A cluster that asks for one is not built: this version cannot carry it out, and an empty cluster in its place would look like
/// one that lost everything.
pub(super) fn recovery(recovery: &Recovery, problems: &mut Vec<SpecProblem>) -> Target {
    problems.push(SpecProblem::new(
        "spec.bootstrap.recovery",
        "this version cannot restore yet; use bootstrap.initdb",
    ));
    let target = recovery.target.clone().unwrap_or_default();
    match (target.time, target.gtid) {
        (None, None) => Target::Latest,
        (Some(_), Some(_)) => {
            problems.push(SpecProblem::new(
                "spec.bootstrap.recovery.target",
                "set time or gtid; neither means the latest point that is stored",
            ));
            Target::Latest
        }
        (Some(time), None) => time.parse::<Timestamp>().map_or_else(
            |error| {
                let message = format!(
                    "not a time ({error}); write RFC 3339 with an offset, for example 2026-11-29T12:00:00+01:00"
                );
                problems.push(SpecProblem::new("spec.bootstrap.recovery.target.time", message));
                Target::Latest
            },
            Target::Time,
        ),
        (None, Some(gtid)) => gtid.parse().map_or_else(
            |error: crate::gtid::ParseGtidError| {
                problems.push(SpecProblem::new(
                    "spec.bootstrap.recovery.target.gtid",
                    error.to_string(),
                ));
                Target::Latest
            },
            Target::Gtid,
        ),
    }
}
