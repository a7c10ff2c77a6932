//! What a plan about backups is made from: what was declared, and what was seen.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mainstay_api::backup::{BackupMethod, BackupPhase};
use mainstay_api::backup_status::BackupSummary;
use mainstay_api::{MySQLBackupSpec, MySQLBackupStatus};
use sha2::{Digest as _, Sha256};

use super::report::{Progress, Stored as StoredBackup};
use crate::backup::keys::{BackupId, InvalidKey};
use crate::backup::retention::{Folder, Policies, SegmentUse, Stored};
use crate::backup::schedule::{Runs, Schedule, Switches};
use crate::backup::verify::{Verification, VerificationJob};

/// What the spec says of backups, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The schedules, by name.
    pub schedules: BTreeMap<String, ScheduleSettings>,
    /// How long backups are kept.
    pub policies: Policies,
    /// When the newest one is tried out.
    pub verification: Option<Verification>,
}

/// One schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSettings {
    /// When.
    pub schedule: Schedule,
    /// Suspended, immediate.
    pub switches: Switches,
    /// How.
    pub method: BackupMethod,
}

/// What one pass saw of a cluster's backups.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The `MySQLBackup`s that name the cluster.
    pub backups: Vec<BackupSeen>,
    /// Jobs with the names that backups of the cluster have, whoever made them.
    pub jobs: Vec<JobSeen>,
    /// The Job that verifies a backup.
    pub verification: Option<VerificationJob>,
    /// What status knows of the schedules.
    pub runs: BTreeMap<String, Runs>,
    /// What status said before.
    pub told: BackupSummary,
    /// What is in the store.
    pub store: Listing,
}

impl Default for Seen {
    /// Nothing was seen, and nothing is known of the store.
    fn default() -> Self {
        Self {
            backups: Vec::new(),
            jobs: Vec::new(),
            verification: None,
            runs: BTreeMap::new(),
            told: BackupSummary::default(),
            store: Listing::Unknown { reason: None },
        }
    }
}

/// A `MySQLBackup`.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupSeen {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// A deletion was asked for.
    pub deleting: bool,
    /// What was asked for.
    pub spec: MySQLBackupSpec,
    /// What became of it.
    pub status: MySQLBackupStatus,
}

impl BackupSeen {
    /// It succeeded or failed.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.status.phase.is_some_and(BackupPhase::is_final)
    }

    /// Its name in the store: when it was created, and a hash of its uid. The same for whoever asks, and another one for a
    /// `MySQLBackup` that is created again under its old name.
    ///
    /// # Errors
    /// Its time cannot be written.
    pub fn id(&self) -> Result<BackupId, InvalidKey> {
        let digest = Sha256::digest(self.uid.as_bytes());
        let hash = digest
            .iter()
            .take(4)
            .fold(0_u32, |hash, byte| hash << 8 | u32::from(*byte));
        BackupId::at(self.created_at, &format!("{hash:08x}"))
    }

    /// The due time that it stands for.
    #[must_use]
    pub fn scheduled_at(&self) -> Timestamp {
        let at = self.spec.scheduled_at.as_deref().and_then(|text| text.parse().ok());
        at.unwrap_or(self.created_at)
    }
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// Its name: [`backup_job`](crate::names::backup_job) of the backup's.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// It carries Mainstay's labels.
    pub ours: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// The instance that it copies.
    pub donor: Option<String>,
    /// How far it is.
    pub state: JobState,
}

/// How far a Job is. `T` is what it tells when it ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState<T = StoredBackup> {
    /// Its pod does not run yet, or again.
    Waiting {
        /// Since when.
        since: Timestamp,
        /// What Kubernetes says of it.
        reason: Option<String>,
    },
    /// It works.
    Active {
        /// How far it is, once it said so.
        progress: Option<Progress>,
        /// When that last changed.
        moved_at: Timestamp,
    },
    /// It ended well.
    Succeeded {
        /// What its manifest says; `None` when it told of none.
        stored: Option<Box<T>>,
    },
    /// It is of a `MySQLBackup` that was deleted, and whose name another one has now.
    Obsolete,
    /// It was given up.
    Failed {
        /// Why: a word and a sentence.
        reason: String,
        /// The sentence.
        message: String,
    },
}

/// What is in the cluster's folder of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// It was listed completely.
    Known {
        /// The folder.
        folder: Folder,
        /// Backups in it.
        backups: Vec<Stored>,
        /// The archive, in its order.
        segments: Vec<SegmentUse>,
    },
    /// It was not, or not yet: nothing is deleted.
    Unknown {
        /// Why it cannot be; `None` while it is being done.
        reason: Option<String>,
    },
}
