//! How far a recovery or a verification is.

use std::fmt;
use std::sync::Arc;

use super::MIB;

/// Where it is said.
pub(crate) type Tell = Arc<dyn Fn(Stage) + Send + Sync>;

/// What is going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Manifests and indexes are read.
    Reading,
    /// The backup arrives.
    Fetching {
        /// Which.
        backup: String,
        /// Bytes on the volume.
        bytes: u64,
        /// Bytes that there will be.
        total: u64,
        /// Bytes a second, since this was said last.
        rate: u64,
    },
    /// A server is started on it.
    Starting,
    /// The archive is applied: transactions.
    Replaying {
        /// That are there.
        done: u64,
        /// That there will be.
        total: u64,
    },
    /// Tables are read.
    Checking {
        /// That were read.
        done: u64,
        /// That there are.
        total: u64,
    },
    /// The server is ended.
    Ending,
    /// Of any of them: so many bytes were moved until now. Only whether the number changes means something.
    Moved(u64),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reading => write!(f, "reading what is stored"),
            Self::Fetching {
                backup,
                bytes,
                total,
                rate,
            } => {
                let [bytes, total, rate] = [bytes, total, rate].map(|number| number / MIB);
                write!(f, "recovering {backup}: {bytes} of {total} MiB, {rate} MiB/s")
            }
            Self::Starting => write!(f, "starting a server on the recovered files"),
            Self::Replaying { done, total } => write!(f, "replaying the archive: {done} of {total} transactions"),
            Self::Checking { done, total } => write!(f, "checking tables: {done} of {total}"),
            Self::Ending => write!(f, "ending the recovery"),
            Self::Moved(bytes) => write!(f, "moved {bytes} bytes"),
        }
    }
}
