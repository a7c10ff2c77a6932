//! `MySQLCluster.status.backup`: backups and the archive of a cluster, as people and the scheduler read them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Backups and the archive of a cluster. The archive moves all the time: it is written when a condition about it changes,
/// and otherwise at most once a minute and only when transactions of clients came; what is true to the second is in the
/// metrics and in `kubectl mainstay status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupSummary {
    /// The newest backup that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful: Option<BackupReference>,
    /// The newest backup that failed, while none has succeeded since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failed: Option<BackupReference>,
    /// The newest backup that was restored and checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_verified: Option<BackupReference>,
    /// The newest run of `spec.backup.verification`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationStatus>,
    /// How far the archive of binlogs reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveStatus>,
    /// The schedules, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleStatus>,
}

/// A backup that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupReference {
    /// Name of the MySQLBackup.
    pub name: String,
    /// When it ended, or when it was checked.
    pub completed_at: MicroTime,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The newest run of `spec.backup.verification`. Nothing of it is true of an earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationStatus {
    /// Since when the schedule is known: what was due before is not made up.
    pub since: MicroTime,
    /// The due time of the newest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<MicroTime>,
    /// What came of it; unset: there was none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<VerificationResult>,
    /// Name of the MySQLBackup that is, or was, restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// When its Job was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<MicroTime>,
    /// How long restoring and checking took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i64>,
    /// The transactions that were there at the end: a GTID set; unset when it is too long for a Job to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_gtid: Option<String>,
    /// When the last of them that came from the archive was committed; unset: nothing came from the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_time: Option<MicroTime>,
    /// Schemas whose tables were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemas: Option<i64>,
    /// Tables that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<i64>,
    /// Why it failed: a word, as in docs/backup.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One line for people: what is done, what was proved, or why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What came of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerificationResult {
    /// It has not ended.
    Running,
    /// Everything could be restored and read.
    Verified,
    /// It could not, or it was given up.
    Failed,
}

impl VerificationResult {
    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Running => false,
            Self::Verified | Self::Failed => true,
        }
    }
}

/// How far the archive of binlogs reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveStatus {
    /// Transactions up to which a recovery is possible without a hole: a GTID set.
    pub through_gtid: String,
    /// Everything that was committed until then is stored.
    pub through_time: MicroTime,
    /// When that was seen.
    pub observed_at: MicroTime,
}

/// A schedule of `spec.backup.schedules`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// Its name.
    pub name: String,
    /// Since when it is known: what was due before is not made up.
    pub since: MicroTime,
    /// The due time of its newest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<MicroTime>,
}
