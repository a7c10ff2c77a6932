//! The server's binlog files, as far as an archive of them has to understand them.
//!
//! [`Scanner`] is fed the bytes of a file as they come, in pieces of any size, and says which transactions are where.
//! It reads what stands around transactions; what is in them is passed by, but for the checksums of the events.
//! [`head`] makes the beginning of a file of one's own, into which transactions can be copied as they are.
//!
//! Events are decoded by `mysql_common`; how they are found, checked and passed by is ours, because its reader wants each
//! event as a whole in memory, and a transaction may be one of gigabytes.

mod event;
mod head;
mod scanner;
mod sets;

use mainstay_core::GtidSet;
use mainstay_core::gtid::Gtid;

pub use event::Format;
pub use head::head;
pub use scanner::Scanner;

/// A file cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read the binlog at position {position}: {reason}")]
pub struct BinlogError {
    /// Where the event begins that it is about.
    pub position: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// What a [`Scanner`] finds, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// How events are written in this file; the first thing in it.
    Format(Format),
    /// What was logged before this file; the second.
    Previous(GtidSet),
    /// A whole transaction.
    Transaction(Transaction),
    /// The file has ended; the next one has this name.
    Rotated(String),
    /// The file has ended with the server.
    Stopped,
}

/// A transaction in a binlog file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Which.
    pub gtid: Gtid,
    /// When the server that a client wrote to committed it, by its clock, in microseconds since 1970.
    pub at: i64,
    /// Position in the file.
    pub from: u64,
    /// Bytes.
    pub length: u64,
    /// CRC-32 of these bytes: whoever reads them again compares it.
    pub crc: u32,
}

impl Transaction {
    /// Position behind it.
    #[must_use]
    pub const fn to(&self) -> u64 {
        self.from + self.length
    }
}

/// The CRC-32 that MySQL uses for events, of bytes that come in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Crc(crc_fast::Digest);

impl Default for Crc {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))
    }
}

impl Crc {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of what was added.
    #[must_use]
    pub fn sum(&self) -> u32 {
        // 32 bits of it are used.
        u32::try_from(self.0.finalize()).unwrap_or_default()
    }

    /// The sum of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u32 {
        let mut crc = Self::default();
        crc.add(bytes);
        crc.sum()
    }
}

#[cfg(test)]
mod tests;
