//! Finds transactions in a binlog file that is still being written.

use super::event::{self, CHECKSUM, HEADER, Header, Kind};
use super::{BinlogError, Crc, Format, Found, Transaction};

/// What every binlog file begins with.
pub(super) const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// What an encrypted one begins with.
const ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];

/// Events that are read as a whole are no larger: a set of half a million ranges fits.
const LARGEST_READ: u32 = 16 << 20;

/// See the module. After an error it is of no use any more.
pub struct Scanner {
    /// Of the next byte.
    position: u64,
    /// Where the present event begins.
    begin: u64,
    stage: Stage,
    /// What is kept of the present event: its header, or all of one that is read, or the checksum of one that is passed by.
    kept: Vec<u8>,
    format: Option<Format>,
    /// The transaction that is not whole yet, and the sum of its bytes.
    open: Option<(Transaction, Crc)>,
    ended: bool,
}

/// What is expected next.
#[derive(Clone, Copy)]
enum Stage {
    Magic,
    Header,
    /// The rest of an event that is read, which has this many bytes.
    Read {
        kind: Kind,
        size: usize,
    },
    /// The rest of an event that is passed by, without its checksum.
    Pass {
        left: u64,
        crc: Crc,
    },
    /// Its checksum.
    Sum {
        crc: Crc,
    },
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// For a file, from its first byte on.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            position: 0,
            begin: 0,
            stage: Stage::Magic,
            kept: Vec::new(),
            format: None,
            open: None,
            ended: false,
        }
    }

    /// Position of the byte that is to be fed next.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Takes the next bytes, and adds what is whole with them.
    pub fn feed(&mut self, mut bytes: &[u8], found: &mut Vec<Found>) -> Result<(), BinlogError> {
        while !bytes.is_empty() {
            let (taken, rest) = bytes.split_at(self.wanted().min(bytes.len()));
            self.position += taken.len() as u64;
            bytes = rest;
            self.take(taken, found).map_err(|reason| BinlogError {
                position: self.begin,
                reason,
            })?;
        }
        Ok(())
    }

    /// How many bytes the present stage takes at most.
    fn wanted(&self) -> usize {
        let whole = match self.stage {
            Stage::Magic => MAGIC.len(),
            Stage::Header => HEADER,
            Stage::Read { size, .. } => size,
            Stage::Sum { .. } => CHECKSUM,
            Stage::Pass { left, .. } => return usize::try_from(left).unwrap_or(usize::MAX),
        };
        whole - self.kept.len()
    }

    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<(), String> {
        if self.ended {
            return Err("it stands behind the end of the file".to_owned());
        }
        match &mut self.stage {
            Stage::Pass { left, crc } => {
                *left -= bytes.len() as u64;
                crc.add(bytes);
            }
            Stage::Magic | Stage::Header | Stage::Read { .. } | Stage::Sum { .. } => self.kept.extend_from_slice(bytes),
        }
        if matches!(self.stage, Stage::Pass { .. } | Stage::Sum { .. })
            && let Some((_, crc)) = &mut self.open
        {
            crc.add(bytes);
        }
        self.advance(found)
    }

    /// Goes on to the next stage when the present one has all that it wants.
    fn advance(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        match self.stage {
            Stage::Pass { left: 0, crc } if self.has_checksums() => {
                self.kept.clear();
                self.stage = Stage::Sum { crc };
                Ok(())
            }
            Stage::Pass { left: 0, .. } => self.passed(found),
            _ if self.wanted() > 0 => Ok(()),
            Stage::Magic => {
                check_magic(&self.kept)?;
                self.next();
                Ok(())
            }
            Stage::Header => self.begin_event(found),
            Stage::Read { kind, .. } => self.read(kind, found),
            Stage::Sum { crc } => {
                if let Some(sum) = self.kept.first_chunk::<CHECKSUM>() {
                    event::compare(crc.sum(), u32::from_le_bytes(*sum))?;
                }
                self.passed(found)
            }
            Stage::Pass { .. } => Ok(()),
        }
    }

    fn has_checksums(&self) -> bool {
        self.format.as_ref().is_some_and(Format::has_checksums)
    }

    fn next(&mut self) {
        self.kept.clear();
        self.begin = self.position;
        self.stage = Stage::Header;
    }

    /// The header of an event is there.
    fn begin_event(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        let Some(header) = self.kept.first_chunk::<HEADER>().map(Header::read) else {
            return Ok(());
        };
        let sum = if self.has_checksums() { CHECKSUM } else { 0 };
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        let Some(body) = size.checked_sub(HEADER + sum) else {
            return Err(format!("it says that it has {size} bytes"));
        };
        if self.format.is_none() && header.kind != Kind::Format {
            return Err("it does not say how events are written, and is the first one".to_owned());
        }
        if header.kind.is_read() {
            if header.size > LARGEST_READ {
                return Err(format!(
                    "it says that it has {size} bytes, and is none of the large ones"
                ));
            }
            if self.open.is_some() {
                return Err("it stands within a transaction".to_owned());
            }
            self.stage = Stage::Read {
                kind: header.kind,
                size,
            };
        } else {
            if self.open.is_none() && !header.ignorable {
                return Err(format!("it stands outside of a transaction ({:?})", header.kind));
            }
            let mut crc = Crc::default();
            crc.add(&self.kept);
            if let Some((_, crc)) = &mut self.open {
                crc.add(&self.kept);
            }
            self.stage = Stage::Pass { left: body as u64, crc };
        }
        // Its body may be empty.
        self.advance(found)
    }

    /// An event is there that is read.
    fn read(&mut self, kind: Kind, found: &mut Vec<Found>) -> Result<(), String> {
        let event = std::mem::take(&mut self.kept);
        let Some(format) = &self.format else {
            let format = Format::read(&event)?;
            found.push(Found::Format(format.clone()));
            self.format = Some(format);
            self.next();
            return Ok(());
        };
        if format.has_checksums() {
            event::check(&event)?;
        }
        match kind {
            Kind::Gtid => {
                let begin = event::gtid(format, &event)?;
                if begin.length < event.len() as u64 {
                    return Err(format!("it says that its transaction has {} bytes", begin.length));
                }
                let transaction = Transaction {
                    gtid: begin.gtid,
                    at: begin.at,
                    from: self.begin,
                    length: begin.length,
                    crc: 0,
                };
                let mut crc = Crc::default();
                crc.add(&event);
                self.open = Some((transaction, crc));
                return self.passed(found);
            }
            Kind::Previous => found.push(Found::Previous(event::previous(format, &event)?)),
            Kind::Rotate => {
                found.push(Found::Rotated(event::rotate(format, &event)?));
                self.ended = true;
            }
            Kind::Stop => {
                found.push(Found::Stopped);
                self.ended = true;
            }
            Kind::Anonymous => return Err("its transaction has no GTID".to_owned()),
            Kind::Format => return Err("it says anew how events are written".to_owned()),
            Kind::Other(_) => {}
        }
        self.next();
        Ok(())
    }

    /// An event has ended, and with it perhaps its transaction.
    fn passed(&mut self, found: &mut Vec<Found>) -> Result<(), String> {
        if let Some((transaction, crc)) = self.open.take() {
            if self.position > transaction.to() {
                return Err("it goes on behind the end of its transaction".to_owned());
            }
            if self.position == transaction.to() {
                found.push(Found::Transaction(Transaction {
                    crc: crc.sum(),
                    ..transaction
                }));
            } else {
                self.open = Some((transaction, crc));
            }
        }
        self.next();
        Ok(())
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), String> {
    if bytes == ENCRYPTED {
        return Err(
            "the file is encrypted; set binlog_encryption=OFF: what is archived is encrypted with spec.backup.encryption"
                .to_owned(),
        );
    }
    if bytes == MAGIC {
        Ok(())
    } else {
        Err("the file is no binlog".to_owned())
    }
}
