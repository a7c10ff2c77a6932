//! `spec.backup` and `spec.bootstrap.recovery`: what CEL cannot say of schedules, ages and targets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use mainstay_api::backup_settings::{BackupSchedule, BackupSettings, Retention};
use mainstay_api::recovery::{Recovery, RecoveryTarget};
use mainstay_api::store::{SecretEntry, Store};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{RecoveryWish, SpecProblem, Volume};
use crate::backup::plan::{ScheduleSettings, Settings};
use crate::backup::restore::Target;
use crate::backup::retention::{Policies, Policy};
use crate::backup::schedule::{Schedule, ScheduleError, Switches};
use crate::backup::verify::Verification;

/// What is declared of backups and the archive, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// Schedules, and how long backups are kept.
    pub settings: Settings,
    /// Where they go.
    pub destination: Destination,
    /// The volume on which a backup is copied and booted, or restored to verify it.
    pub volume: Volume,
}

/// Where backups and the archive go, with which rights and for whom they are encrypted: what Secret `<cluster>-store` is made
/// from, together with the user's Secrets that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Destination {
    /// The store.
    pub store: Store,
    /// Entry with the age key for which everything is encrypted.
    pub key: Option<SecretEntry>,
    /// The primary archives its binlogs.
    pub archive: bool,
}

impl Destination {
    /// What a spec says of it.
    #[must_use]
    pub fn of(wish: &BackupSettings) -> Self {
        Self {
            store: wish.store.clone(),
            key: wish.encryption.as_ref().map(|encryption| encryption.key_secret.clone()),
            archive: wish
                .archive
                .as_ref()
                .and_then(|archive| archive.enabled)
                .unwrap_or(true),
        }
    }

    /// Names of the user's Secrets that it is made from.
    #[must_use]
    pub fn secrets(&self) -> BTreeSet<String> {
        let credentials = self.store.credentials_secret.iter().map(|secret| &secret.name);
        let entries = self.store.ca_secret.iter().chain(&self.key).map(|entry| &entry.name);
        credentials.chain(entries).cloned().collect()
    }
}

impl Backup {
    pub(super) fn new(wish: &BackupSettings, instances: &Volume, problems: &mut Vec<SpecProblem>) -> Self {
        let volume = wish.volume.clone().unwrap_or_default();
        let size = volume.size.as_ref();
        let bytes = size.map(|size| super::volume(size, "spec.backup.volume.size", problems));
        Self {
            settings: settings(wish, problems),
            destination: Destination::of(wish),
            volume: Volume {
                most: None,
                size: volume.size.unwrap_or_else(|| instances.size.clone()),
                bytes: bytes.unwrap_or(instances.bytes),
                storage_class: volume.storage_class_name.or_else(|| instances.storage_class.clone()),
            },
        }
    }
}

/// The schedules and how long backups are kept.
fn settings(backup: &BackupSettings, problems: &mut Vec<SpecProblem>) -> Settings {
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
    let verification = backup.verification.as_ref().and_then(|wish| {
        let zone = wish.time_zone.as_deref();
        let schedule = read(&wish.schedule, zone, "spec.backup.verification", problems)?;
        Some(Verification {
            schedule,
            suspended: wish.suspend.unwrap_or_default(),
        })
    });
    Settings {
        schedules,
        policies,
        verification,
    }
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

/// What a cluster is to begin with.
pub(super) fn recovery(declared: &Recovery, problems: &mut Vec<SpecProblem>) -> RecoveryWish {
    RecoveryWish {
        target: target(declared.target.clone().unwrap_or_default(), problems),
        request: digest(declared),
        declared: declared.clone(),
    }
}

/// Sixteen digits of the declaration's SHA-256.
fn digest(declared: &Recovery) -> String {
    // A declaration that was read from JSON can be written as JSON.
    let text = serde_json::to_string(declared).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let bytes = digest.iter().take(8);
    bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn target(target: RecoveryTarget, problems: &mut Vec<SpecProblem>) -> Target {
    let mut refuse = |field: &str, message: String| {
        problems.push(SpecProblem::new(format!("spec.bootstrap.recovery.{field}"), message));
        Target::Latest
    };
    match (target.time, target.gtid) {
        (None, None) => Target::Latest,
        (Some(_), Some(_)) => refuse(
            "target",
            "set time or gtid; neither means the latest point that is stored".to_owned(),
        ),
        (Some(time), None) => match time.parse::<Timestamp>() {
            Ok(time) => Target::Time(time),
            Err(error) => refuse(
                "target.time",
                format!("not a time ({error}); write RFC 3339 with an offset, for example 2026-11-29T12:00:00+01:00"),
            ),
        },
        (None, Some(gtid)) => match gtid.parse() {
            Ok(gtid) => Target::Gtid(gtid),
            Err(error) => refuse("target.gtid", error.to_string()),
        },
    }
}
