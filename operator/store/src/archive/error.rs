//! Why a directory could not be stored or restored.

use std::io;
use std::path::PathBuf;

use crate::error::{StoreError, chain};

/// Failure of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file of the directory cannot be read.
    #[error("failed to read {}: {source}", path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file changed while it was read.
    #[error("failed to store {}: its size changed; the server must be stopped while its files are read", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
    },
    /// It is neither a file nor a directory.
    #[error(
        "failed to store {}: it is neither a file nor a directory, and what it leads to would be missing; move the data \
         into the data directory",
        path.display()
    )]
    Unsupported {
        /// Which.
        path: PathBuf,
    },
    /// The archive could not be written.
    #[error("failed to write the archive: {source}")]
    Sink {
        /// Why.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// A file cannot be written.
    #[error("failed to write {}: {source}", path.display())]
    Target {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is something where an archive is to be unpacked.
    #[error("failed to unpack into {}: it is not empty; nothing is ever restored over data", path.display())]
    NotEmpty {
        /// Which directory.
        path: PathBuf,
    },
    /// The archive holds something that no archive of Mainstay holds.
    #[error(
        "failed to unpack {name:?}: {reason}; the archive was not made by Mainstay, and is not unpacked any further"
    )]
    Suspicious {
        /// Name in the archive.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The archive is not what was stored.
    #[error("failed to read the archive: it is damaged ({reason}); use another backup")]
    Damaged {
        /// How that is known.
        reason: String,
    },
    /// It is encrypted, and there is no key for it.
    #[error("failed to decrypt the archive: {reason}; give the private key of the public key in its manifest")]
    Key {
        /// What is wrong.
        reason: String,
    },
    /// A key is no key.
    #[error("failed to read the {what}: {reason}")]
    InvalidKey {
        /// Which key.
        what: &'static str,
        /// What is wrong; never the key.
        reason: &'static str,
    },
    /// It cannot be read for another reason.
    #[error("failed to read the archive: {source}")]
    Content {
        /// Why.
        source: io::Error,
    },
}

impl ArchiveError {
    /// What an error means that came out of a stream of content.
    pub(super) fn reading(source: io::Error) -> Self {
        if let Some(error) = StoreError::of(&source) {
            return Self::Store(error.clone());
        }
        match source.kind() {
            // zstd and tar have no kind for damage.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other => {
                Self::Damaged { reason: chain(&source) }
            }
            _ => Self::Content { source },
        }
    }

    pub(super) fn writing(source: io::Error) -> Self {
        Self::Sink { source }
    }
}
