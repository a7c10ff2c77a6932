//! What is deleted from the store: backups by count and age, and segments of the archive that no kept backup needs.
//!
//! Whatever the numbers say, the newest backup that succeeded stays, a segment stays that a kept backup needs, and nothing
//! outside of the cluster's own folder is touched (case F22).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::GtidSet;

/// How long what did not succeed is left for a person to look at.
pub const LEFTOVERS: SignedDuration = SignedDuration::from_hours(24);

/// How long backups are kept; `None` in both: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Number of backups that succeeded.
    pub count: Option<u32>,
    /// Age.
    pub age: Option<SignedDuration>,
}

/// The policies of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// For backups of no schedule, or of one that says nothing or is gone.
    pub fallback: Policy,
    /// By the name of the schedule, as far as it says something.
    pub schedules: BTreeMap<String, Policy>,
}

impl Policies {
    fn of(&self, schedule: Option<&str>) -> Policy {
        schedule
            .and_then(|name| self.schedules.get(name))
            .copied()
            .unwrap_or(self.fallback)
    }
}

/// A backup in the cluster's folder, as its manifest or its leftovers say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name, which is its folder's.
    pub id: String,
    /// The schedule that made it.
    pub schedule: Option<String>,
    /// How far it came.
    pub state: State,
}

/// How far a stored backup came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a manifest.
    Complete {
        /// When it was completed.
        at: Timestamp,
        /// Transactions that it holds.
        executed: GtidSet,
    },
    /// It is being made, or its Job was not seen to end.
    Running,
    /// It has no manifest and never will.
    Leftover {
        /// When its newest object was written.
        at: Timestamp,
    },
    /// Its manifest exists and cannot be read: it may be the one that is needed.
    Unreadable,
}

/// What is deleted, and what stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Backups to delete, the oldest first.
    pub delete: Vec<String>,
    /// Backups that stay, in the order of their ids.
    pub keep: BTreeSet<String>,
}

/// Judges every backup of a cluster.
#[must_use]
pub fn judge(backups: &[Stored], policies: &Policies, now: Timestamp) -> Verdict {
    let mut complete: Vec<(Timestamp, &Stored)> = backups
        .iter()
        .filter_map(|backup| match &backup.state {
            State::Complete { at, .. } => Some((*at, backup)),
            State::Running | State::Leftover { .. } | State::Unreadable => None,
        })
        .collect();
    // The newest first; of two at the same time the one with the greater id, so that the answer is one.
    complete.sort_by(|(at, a), (other, b)| (other, &b.id).cmp(&(at, &a.id)));
    let mut ranks: BTreeMap<Option<&str>, u32> = BTreeMap::new();
    let mut delete: Vec<(Timestamp, String)> = Vec::new();
    for (place, (at, backup)) in complete.iter().enumerate() {
        let schedule = backup.schedule.as_deref();
        let rank = ranks.entry(schedule).or_default();
        *rank = rank.saturating_add(1);
        let policy = policies.of(schedule);
        let many = policy.count.is_some_and(|count| *rank > count);
        let old = policy.age.is_some_and(|age| now.duration_since(*at) > age);
        if place > 0 && (many || old) {
            delete.push((*at, backup.id.clone()));
        }
    }
    for backup in backups {
        match &backup.state {
            State::Leftover { at } if now.duration_since(*at) > LEFTOVERS => delete.push((*at, backup.id.clone())),
            State::Leftover { .. } | State::Complete { .. } | State::Running | State::Unreadable => {}
        }
    }
    delete.sort();
    let delete: Vec<String> = delete.into_iter().map(|(_, id)| id).collect();
    let gone: BTreeSet<&String> = delete.iter().collect();
    let keep = backups.iter().filter(|backup| !gone.contains(&backup.id));
    Verdict {
        keep: keep.map(|backup| backup.id.clone()).collect(),
        delete,
    }
}

/// When the next of these backups may be deleted because it is too old, or of a backup that failed.
#[must_use]
pub fn next(backups: &[Stored], policies: &Policies, now: Timestamp) -> Option<Timestamp> {
    let due = backups.iter().filter_map(|backup| match &backup.state {
        State::Complete { at, .. } => {
            let age = policies.of(backup.schedule.as_deref()).age?;
            at.checked_add(age).ok()
        }
        State::Leftover { at } => at.checked_add(LEFTOVERS).ok(),
        State::Running | State::Unreadable => None,
    });
    // Older than the limit, not as old.
    let after = due.filter_map(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
    after.filter(|at| *at > now).min()
}

/// A segment of the archive, in the order in which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Its key.
    pub key: String,
    /// Transactions in it that are valid: those of a reign up to the baseline of the next one.
    pub valid: GtidSet,
    /// When it was written.
    pub at: Timestamp,
}

/// Segments that nobody needs: `segments` in the order of the archive; `backups` are those that stay.
///
/// Only a beginning of the archive is ever deleted, so that what is left has no hole. Nothing is deleted while a backup that
/// stays cannot be read or is being made, or there is none.
#[must_use]
pub fn needless(segments: &[SegmentUse], backups: &[&Stored]) -> Vec<String> {
    let mut holds = Vec::new();
    for backup in backups {
        match &backup.state {
            State::Complete { executed, .. } => holds.push(executed),
            // What it will hold is not known yet, or not any more. A leftover is no backup.
            State::Running | State::Unreadable => return Vec::new(),
            State::Leftover { .. } => {}
        }
    }
    if holds.is_empty() {
        return Vec::new();
    }
    let in_all = |segment: &&SegmentUse| holds.iter().all(|executed| executed.contains(&segment.valid));
    segments
        .iter()
        .take_while(in_all)
        .map(|segment| segment.key.clone())
        .collect()
}

/// The folder of one cluster in a bucket: nothing outside of it is listed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(String);

/// A text that is no folder of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to take {0:?} for the folder of a cluster: it must end with / and have a part before it")]
pub struct NoFolder(String);

impl Folder {
    /// The folder, which ends with `/`: without it `shop` would be the beginning of `shop-2`.
    ///
    /// # Errors
    /// The text is the whole bucket, does not end with `/`, or has an empty part, `.` or `..`.
    pub fn new(folder: &str) -> Result<Self, NoFolder> {
        let Some(parts) = folder.strip_suffix('/') else {
            return Err(NoFolder(folder.to_owned()));
        };
        if parts.split('/').all(is_name) {
            Ok(Self(folder.to_owned()))
        } else {
            Err(NoFolder(folder.to_owned()))
        }
    }

    /// Its text, which is what a listing asks for.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a key is in it.
    #[must_use]
    pub fn holds(&self, key: &str) -> bool {
        key.strip_prefix(&self.0)
            .is_some_and(|rest| rest.split('/').all(is_name))
    }

    /// Of these keys, those that may be deleted. The last gate before a deletion, whatever was judged before it.
    #[must_use]
    pub fn only(&self, keys: &[String]) -> Vec<String> {
        keys.iter().filter(|key| self.holds(key)).cloned().collect()
    }
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".."
}
