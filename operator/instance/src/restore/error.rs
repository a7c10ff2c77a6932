//! Why data cannot be recovered.

use std::io;

use mainstay_core::GtidSet;
use mainstay_mysql::MysqlError;
use mainstay_store::SettingsError;
use mainstay_store::archive::ArchiveError;
use mainstay_store::catalog::CatalogError;

use crate::mysqld::RunError;

/// Failure of a recovery. Nothing of the data is left then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The store cannot be used as it is declared.
    #[error(transparent)]
    Settings(SettingsError),
    /// What is stored does not serve, or cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The backup or a segment cannot be fetched, or is damaged.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A segment is damaged, or is no binlog.
    #[error("the segment {key} cannot be replayed: {reason}")]
    Segment {
        /// Which.
        key: String,
        /// Why.
        reason: String,
    },
    /// There would be nothing in it.
    #[error(
        "the backup {backup} holds no transaction: there is nothing to recover; create the cluster with bootstrap.initdb"
    )]
    Empty {
        /// Which backup.
        backup: String,
    },
    /// What comes after it is neither in the archive nor to be had from the primary.
    #[error(
        "the backup {backup} and the archive behind it do not hold {missing}, which the primary has purged: make another \
         backup"
    )]
    TooOld {
        /// Which backup.
        backup: String,
        /// What is missing.
        missing: GtidSet,
    },
    /// It was made in a way that is not known here.
    #[error(
        "the backup {backup} has {what}, which this version does not expect: use a newer Mainstay, or another backup"
    )]
    Unknown {
        /// Which backup.
        backup: String,
        /// What is unexpected.
        what: String,
    },
    /// The image has another server.
    #[error(
        "the backup {backup} was made by MySQL {made_by}, and the image has MySQL {server}: set spec.image to {wanted}"
    )]
    Version {
        /// Which backup.
        backup: String,
        /// Version of the server that made it.
        made_by: String,
        /// Version of the image's server.
        server: String,
        /// What would serve.
        wanted: &'static str,
    },
    /// The volume is too small.
    #[error(
        "the volume has {free} MiB free, and {needed} MiB are needed: {data} MiB for the backup, {replayed} MiB for binlogs \
         on their way, and some to spare; set {field} to more"
    )]
    Space {
        /// MiB that are free.
        free: u64,
        /// MiB that are needed.
        needed: u64,
        /// Of these for the backup.
        data: u64,
        /// Of these for binlogs on their way.
        replayed: u64,
        /// What says how large the volume is.
        field: &'static str,
    },
    /// The volume filled up while binlogs were replayed.
    #[error("the volume is full, and {left} transactions are still to be replayed; set {field} to more")]
    Full {
        /// What says how large the volume is.
        field: &'static str,
        /// Transactions that are left.
        left: u64,
    },
    /// The volume.
    #[error("failed to {what}")]
    Volume {
        /// What was attempted.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The password with which to log in is not mounted.
    #[error("the password of the manager's account is not known: see the Secret's file manager")]
    NoPassword,
    /// A program could not be started.
    #[error(transparent)]
    Run(RunError),
    /// mysqld ended.
    #[error("mysqld ended while {during}: {reason}")]
    Ended {
        /// What was being done.
        during: &'static str,
        /// How, with its own words.
        reason: String,
    },
    /// mysqld refused.
    #[error(transparent)]
    Mysql(MysqlError),
    /// A statement of a logical backup is refused.
    #[error(
        "{file} of the backup cannot be loaded: {reason}; a newer series may not take it any more: use an image of the series \
         that made the backup, or a physical one"
    )]
    Load {
        /// Which file.
        file: String,
        /// What the server says.
        reason: String,
    },
    /// The applier stopped.
    #[error("the server cannot replay the archive: {reason}")]
    Applier {
        /// What it says.
        reason: String,
    },
    /// There is something else than there should be.
    #[error(
        "{what} holds {found} instead of {expected}: it is not what its manifest says; use another backup or target"
    )]
    Mismatch {
        /// What.
        what: &'static str,
        /// What there should be.
        expected: GtidSet,
        /// What there is.
        found: GtidSet,
    },
    /// It would begin with an older backup than the one that is to be verified.
    #[error(
        "a recovery of now would not begin with the newest backup {newest}, but with {base}: the newest one is not complete \
         in the store, cannot be read, or holds what was never acknowledged; make another backup{unreadable}"
    )]
    NotNewest {
        /// The newest backup.
        newest: String,
        /// That with which it would begin.
        base: String,
        /// What is known of backups that cannot be read.
        unreadable: String,
    },
    /// A table cannot be read.
    #[error(
        "the table {table} cannot be read, or is inconsistent: {reason}; look at it in the cluster (CHECK TABLE), and use another backup"
    )]
    Check {
        /// Which.
        table: String,
        /// What the server says.
        reason: String,
    },
    /// Something more important came.
    #[error("it was stopped")]
    Stopped,
}

impl RestoreError {
    pub(super) fn volume(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Volume { what, source }
    }

    /// What went wrong, in one word (docs/backup.md, "Verification").
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Settings(_) => "AccessRefused",
            Self::Catalog(CatalogError::Store(_)) | Self::Archive(ArchiveError::Store(_)) => "StoreFailed",
            // That the keys fit is known before anything is fetched: what cannot be decrypted later is damaged.
            Self::Catalog(CatalogError::Key { .. }) => "KeyMissing",
            Self::Catalog(CatalogError::SegmentMissing { .. }) => "SegmentMissing",
            Self::Catalog(_) | Self::Empty { .. } | Self::TooOld { .. } | Self::Unknown { .. } => "NotRecoverable",
            Self::Archive(ArchiveError::Target { .. }) | Self::Volume { .. } => "VolumeFailed",
            Self::Archive(_) | Self::Segment { .. } => "Damaged",
            Self::Version { .. } => "Version",
            Self::Space { .. } | Self::Full { .. } => "NoRoom",
            Self::NoPassword | Self::Run(_) | Self::Mysql(_) => "ServerFailed",
            Self::Ended { .. } => "ServerEnded",
            Self::Load { .. } => "LoadFailed",
            Self::Applier { .. } => "ReplayFailed",
            Self::Mismatch { .. } => "Mismatch",
            Self::NotNewest { .. } => "NotNewest",
            Self::Check { .. } => "CheckFailed",
            Self::Stopped => "Interrupted",
        }
    }

    /// Whether the same may succeed in a moment without anybody doing something.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Catalog(error) => error.may_pass(),
            Self::Archive(ArchiveError::Store(error)) => error.may_pass(),
            Self::Volume { .. }
            | Self::Run(_)
            | Self::Ended { .. }
            | Self::Mysql(_)
            | Self::Stopped
            | Self::NoPassword => true,
            Self::Settings(_)
            | Self::Archive(_)
            | Self::Segment { .. }
            | Self::Empty { .. }
            | Self::TooOld { .. }
            | Self::Unknown { .. }
            | Self::Version { .. }
            | Self::Space { .. }
            | Self::Full { .. }
            | Self::Load { .. }
            | Self::Applier { .. }
            | Self::NotNewest { .. }
            | Self::Check { .. }
            | Self::Mismatch { .. } => false,
        }
    }
}
