//! What the operator and the program of a backup's Job tell each other: the task, how far it is, and what came of it.
//!
//! The task is an environment variable, progress a page of the pod, and the outcome the container's termination message
//! (docs/backup.md, "The Job").

use serde::{Deserialize, Serialize};

use super::keys::BackupId;
use super::manifest::Method;
use super::plan::StoredBackup;

/// Longest termination message that Kubernetes keeps, in bytes.
pub const LONGEST: usize = 4096;

/// Longest sentence in an outcome that is too long, in bytes: quotes and other scripts grow when they are escaped.
const SHORTENED: usize = 600;

/// What a Job is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Name of the backup in the store.
    pub id: BackupId,
    /// Name of the `MySQLBackup`.
    pub name: String,
    /// The schedule that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Who gives the data.
    pub donor: Donor,
    /// Epoch of the reign in which it is made.
    pub epoch: u64,
    /// What is stored: the files of a copy, or statements.
    #[serde(default)]
    pub method: Method,
}

/// The instance that is copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Donor {
    /// Its name.
    pub instance: String,
    /// server_uuid.
    pub server_uuid: String,
    /// DNS name, without a full domain.
    pub host: String,
    /// Admin port.
    pub port: u16,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The manifest is in the store, and says this.
    Stored(Box<StoredBackup>),
    /// It was given up.
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
            Self::Stored(stored) => Self::Stored(Box::new(StoredBackup {
                executed: None,
                ..(**stored).clone()
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

/// A termination message: the whole outcome if Kubernetes keeps it, else what `short` makes of it.
pub(super) fn fitting<T: Serialize>(outcome: &T, short: impl FnOnce() -> T) -> String {
    let text = json(outcome);
    if text.len() <= LONGEST { text } else { json(&short()) }
}

/// A sentence that fits into a termination message.
pub(super) fn shortened(message: &str) -> String {
    let end = message.floor_char_boundary(SHORTENED);
    format!("{}…", message.get(..end).unwrap_or_default())
}

pub(super) fn json(value: &impl Serialize) -> String {
    // Texts, numbers and flags can always be written.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GtidSet;

    fn stored(executed: &str) -> StoredBackup {
        StoredBackup {
            size: 5,
            stored: 2,
            executed: Some(executed.parse().unwrap()),
            location: "s3://b/k".to_owned(),
            key_id: None,
            mysql_version: "9.7.4".to_owned(),
            completed_at: "2026-11-30T07:31:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn what_is_told_is_understood() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let failed = Outcome::Failed {
            reason: "UploadFailed".to_owned(),
            message: "failed to store: \"access\" denied\n".to_owned(),
        };
        for outcome in [Outcome::Stored(Box::new(stored(&format!("{uuid}:1-5")))), failed] {
            assert_eq!(Outcome::from_text(&outcome.to_text()), Some(outcome));
        }
        assert_eq!(Outcome::from_text("Killed"), None);
        assert_eq!(Outcome::from_text(""), None);
    }

    #[test]
    fn an_outcome_fits_into_a_termination_message() {
        let sets: Vec<String> = (0..200)
            .map(|n| format!("3e11fa47-71ca-11e1-9e33-{n:012}:1-5"))
            .collect();
        let whole = stored(&sets.join(","));
        let text = Outcome::Stored(Box::new(whole.clone())).to_text();
        assert!(text.len() <= LONGEST, "{}", text.len());
        let Some(Outcome::Stored(read)) = Outcome::from_text(&text) else {
            panic!("{text}");
        };
        assert_eq!((read.executed, read.size), (None::<GtidSet>, whole.size));
        let long = Outcome::Failed {
            reason: "CopyFailed".to_owned(),
            message: "\"ä\u{1}".repeat(2000),
        };
        let text = long.to_text();
        assert!(text.len() <= LONGEST, "{}", text.len());
        assert!(
            matches!(Outcome::from_text(&text), Some(Outcome::Failed { .. })),
            "{text}"
        );
    }
}
