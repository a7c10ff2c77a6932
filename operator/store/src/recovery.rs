//! What is to be recovered from a store: the document beside the [`Access`] in the Secret of a recovery.

use std::io;
use std::path::{Path, PathBuf};

use mainstay_core::backup::restore::Target;
use serde::{Deserialize, Serialize};

use crate::access::{Access, AccessError};

/// Entry of the Secret, and file below its mount point.
pub const RECOVERY_FILE: &str = "recovery.json";

/// How the target "the latest point" is written.
const LATEST: &str = "latest";

/// What is to be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryOrder {
    /// The wish that it answers; it is reported with the data.
    pub request: String,
    /// Whose data.
    pub source: RecoverySource,
    /// Up to which point.
    pub target: Target,
}

/// The cluster whose data are recovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoverySource {
    /// Namespace it lived in.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; absent when it is the only one of that name in the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    request: String,
    source: RecoverySource,
    target: Point,
}

/// The target as JSON: exactly one member.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Point {
    Latest(String),
    Time(String),
    Gtid(String),
}

impl RecoveryOrder {
    /// Reads both documents of a mounted Secret; `None` when one of them is not there.
    ///
    /// # Errors
    /// A document cannot be read or understood.
    pub fn read(directory: &Path) -> Result<Option<(Access, Self)>, AccessError> {
        // The kubelet swaps all files of a Secret at once, by a link: both have to be of the same generation.
        let current = directory.join("..data");
        let directory: PathBuf = current.canonicalize().unwrap_or_else(|_plain| directory.to_owned());
        let Some(access) = Access::read(&directory)? else {
            return Ok(None);
        };
        let path = directory.join(RECOVERY_FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some((access, Self::from_json(&text)?))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AccessError::Read {
                path: path.display().to_string(),
                source,
            }),
        }
    }

    /// Reads what [`RecoveryOrder::to_json`] wrote.
    ///
    /// # Errors
    /// It is no such document.
    pub fn from_json(json: &str) -> Result<Self, AccessError> {
        let malformed = |reason: String| AccessError::Malformed { reason };
        let document: Document = serde_json::from_str(json).map_err(|error| malformed(error.to_string()))?;
        let target = match document.target {
            Point::Latest(_) => Target::Latest,
            Point::Time(time) => Target::Time(time.parse().map_err(|error| malformed(format!("{time}: {error}")))?),
            Point::Gtid(gtid) => Target::Gtid(gtid.parse().map_err(|error| malformed(format!("{gtid}: {error}")))?),
        };
        Ok(Self {
            request: document.request,
            source: document.source,
            target,
        })
    }

    /// The document; it holds no secret.
    #[must_use]
    pub fn to_json(&self) -> String {
        let document = Document {
            request: self.request.clone(),
            source: self.source.clone(),
            target: match &self.target {
                Target::Latest => Point::Latest(LATEST.to_owned()),
                Target::Time(time) => Point::Time(time.to_string()),
                Target::Gtid(gtid) => Point::Gtid(gtid.to_string()),
            },
        };
        // A document of texts can always be written.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let targets = [
            Target::Latest,
            Target::Time("2026-11-30T07:30:00.25Z".parse().unwrap()),
            Target::Gtid("3e11fa47-71ca-11e1-9e33-c80aa9429562:7".parse().unwrap()),
        ];
        for target in targets {
            for uid in [None, Some("6f1c2a9e".to_owned())] {
                let order = RecoveryOrder {
                    request: "abc".to_owned(),
                    source: RecoverySource {
                        namespace: "prod".to_owned(),
                        name: "shop".to_owned(),
                        uid,
                    },
                    target: target.clone(),
                };
                assert_eq!(RecoveryOrder::from_json(&order.to_json()).unwrap(), order);
            }
        }
        let wrong =
            RecoveryOrder::from_json(r#"{"request":"","source":{"namespace":"a","name":"b"},"target":{"time":"x"}}"#);
        assert!(wrong.unwrap_err().to_string().contains("x: "), "a time that is none");
    }

    #[test]
    fn a_secret_that_is_not_there_is_no_order() {
        let directory = tempfile::tempdir().unwrap();
        assert!(RecoveryOrder::read(directory.path()).unwrap().is_none());
    }
}
