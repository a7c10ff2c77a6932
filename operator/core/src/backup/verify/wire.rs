//! What the operator and the program of a verification's Job tell each other, likewise: the task is an environment variable,
//! the outcome the container's termination message.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::GtidSet;
use crate::backup::keys::BackupId;
use crate::backup::wire::{fitting, json, shortened};

/// What a Job is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Name of the backup in the store. A newer one will do.
    pub id: BackupId,
    /// Name of its `MySQLBackup`.
    pub name: String,
}

/// What was proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The backup with which it began, in the store.
    pub id: BackupId,
    /// Its `MySQLBackup`, if its manifest names one.
    pub name: Option<String>,
    /// What was there at the end; absent when there are too many intervals to be told by the Job.
    pub reached: Option<GtidSet>,
    /// When the last of it that came from the archive was committed.
    pub reached_time: Option<Timestamp>,
    /// Schemas with tables.
    pub schemas: u64,
    /// Tables that were read.
    pub tables: u64,
    /// Prepared XA transactions in the data.
    pub prepared: u64,
    /// How long it took.
    pub seconds: u64,
    /// When it ended, on the clock of the pod.
    pub completed_at: Timestamp,
}

impl Verified {
    /// For people: "restored up to 2026-11-29T08:59:29.881302Z; 412 tables of 7 schemas read".
    #[must_use]
    pub fn sentence(&self) -> String {
        let point = self.reached_time.map_or_else(
            || "restored to its own point".to_owned(),
            |time| format!("restored up to {time}"),
        );
        let prepared = match self.prepared {
            0 => String::new(),
            number => format!("; it holds {number} prepared XA transactions"),
        };
        format!(
            "{point}; {} tables of {} schemas read{prepared}",
            self.tables, self.schemas
        )
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Everything could be restored and read.
    Verified(Box<Verified>),
    /// It could not, or it was given up.
    Failed {
        /// A word.
        reason: String,
        /// What was attempted, what stood against it, and what to do.
        message: String,
    },
}

impl Outcome {
    /// The termination message: what makes it too long is left out, or cut.
    #[must_use]
    pub fn to_text(&self) -> String {
        fitting(self, || match self {
            Self::Verified(verified) => Self::Verified(Box::new(Verified {
                reached: None,
                ..(**verified).clone()
            })),
            Self::Failed { reason, message } => Self::Failed {
                reason: reason.clone(),
                message: shortened(message),
            },
        })
    }

    /// Reads a termination message; `None` when the program left none.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl Task {
    /// The value of the environment variable.
    #[must_use]
    pub fn to_text(&self) -> String {
        json(self)
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is no task.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::wire::LONGEST;

    fn verified(reached: &str) -> Verified {
        Verified {
            id: BackupId::parse("20261130t030000z-57bcae98").unwrap(),
            name: Some("shop-nightly".to_owned()),
            reached: Some(reached.parse().unwrap()),
            reached_time: Some("2026-11-30T07:31:00Z".parse().unwrap()),
            schemas: 7,
            tables: 412,
            prepared: 0,
            seconds: 251,
            completed_at: "2026-11-30T07:35:11Z".parse().unwrap(),
        }
    }

    #[test]
    fn what_is_told_is_understood_and_fits() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let failed = Outcome::Failed {
            reason: "CheckFailed".to_owned(),
            message: "`a`.`t`: \"Corrupt\"\n".to_owned(),
        };
        for outcome in [Outcome::Verified(Box::new(verified(&format!("{uuid}:1-5")))), failed] {
            assert_eq!(Outcome::from_text(&outcome.to_text()), Some(outcome));
        }
        assert_eq!(Outcome::from_text("Killed"), None);
        let sets: Vec<String> = (0..200)
            .map(|n| format!("3e11fa47-71ca-11e1-9e33-{n:012}:1-5"))
            .collect();
        let text = Outcome::Verified(Box::new(verified(&sets.join(",")))).to_text();
        assert!(text.len() <= LONGEST, "{}", text.len());
        let Some(Outcome::Verified(read)) = Outcome::from_text(&text) else {
            panic!("{text}");
        };
        assert_eq!((read.reached, read.tables), (None, 412));
    }

    #[test]
    fn what_was_proved_is_one_sentence() {
        let all = verified("3e11fa47-71ca-11e1-9e33-c80aa9429562:1");
        assert_eq!(
            all.sentence(),
            "restored up to 2026-11-30T07:31:00Z; 412 tables of 7 schemas read"
        );
        let alone = Verified {
            reached_time: None,
            prepared: 2,
            ..all
        };
        assert_eq!(
            alone.sentence(),
            "restored to its own point; 412 tables of 7 schemas read; it holds 2 prepared XA transactions"
        );
    }
}
