//! The server's binlog files, read as they grow. Everything here blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_core::GtidSet;
use mainstay_core::backup::archive::{SEGMENT_BYTES, SEGMENT_TRANSACTIONS, cut};
use mainstay_mysql::binlog::{BinlogError, Format, Found, Scanner, Transaction};

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// The list of the files, which the server keeps.
const INDEX: &str = "binlog.index";

/// Why the binlog cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// A file cannot be read.
    #[error("failed to read {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be understood.
    #[error("{error} ({}); if this stays, switch over to another instance and have this one rebuilt", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where, and why.
        error: BinlogError,
    },
    /// A file became shorter, or other than it was.
    #[error("failed to read {}: it was changed at position {position} while it was read", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
        /// Where.
        position: u64,
    },
    /// The server keeps no list of its files.
    #[error("failed to find the binlogs: {} names none", path.display())]
    Nothing {
        /// The list.
        path: PathBuf,
    },
}

impl SourceError {
    /// The file is not there: it was deleted.
    #[must_use]
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Transactions that follow each other in one file, to become a segment.
pub(super) struct Piece {
    /// The file, which may have been deleted meanwhile.
    pub(super) file: Arc<File>,
    /// Its path.
    pub(super) path: PathBuf,
    /// How events are written in it.
    pub(super) format: Format,
    /// It begins with the first transaction of the file.
    pub(super) first: bool,
    /// What the server had executed before.
    pub(super) previous: GtidSet,
    /// The transactions.
    pub(super) transactions: Vec<Transaction>,
}

impl Piece {
    /// The transactions.
    pub(super) fn gtids(&self) -> GtidSet {
        gtids(&self.transactions)
    }

    /// Bytes of the transactions.
    pub(super) fn bytes(&self) -> u64 {
        self.transactions.iter().map(|transaction| transaction.length).sum()
    }
}

fn gtids<'a>(transactions: impl IntoIterator<Item = &'a Transaction>) -> GtidSet {
    transactions
        .into_iter()
        .map(|transaction| transaction.gtid.clone())
        .collect()
}

/// What is executed and was not found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// There is another file, to be read now.
    AnotherFile,
    /// No binlog holds these.
    NotLogged(GtidSet),
}

/// The binlogs of a server, from a transaction on.
pub(super) struct Source {
    directory: PathBuf,
    /// gtid_purged when the reading began: what precedes every file.
    purged: GtidSet,
    current: Reading,
    /// Transactions of the current file that were found and not taken, in order.
    waiting: VecDeque<Transaction>,
    /// What the server had executed before the first of them.
    before: GtidSet,
    /// What it had executed although no binlog holds it, since somebody last asked.
    unlogged: GtidSet,
}

/// A file that is being read.
struct Reading {
    path: PathBuf,
    file: Arc<File>,
    scanner: Scanner,
    format: Option<Format>,
    /// What stands in front of the transactions was read.
    begun: bool,
    /// Nothing was taken of it.
    first: bool,
    /// The file that the server went on with, when it had done so before the rest of this one was read.
    closed_by: Option<PathBuf>,
    /// It was read to its end; which one follows it, if the server went on.
    #[expect(
        clippy::option_option,
        reason = "whether its end was reached, and whether another file follows"
    )]
    end: Option<Option<PathBuf>>,
}

impl Reading {
    fn open(path: PathBuf, closed_by: Option<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(File::open(&path)?),
            path,
            scanner: Scanner::new(),
            format: None,
            begun: false,
            first: true,
            closed_by,
            end: None,
        })
    }

    fn io(&self, source: io::Error) -> SourceError {
        SourceError::Io {
            path: self.path.clone(),
            source,
        }
    }

    /// Reads on; whether there was something.
    fn read(&mut self, found: &mut Vec<Found>) -> Result<bool, SourceError> {
        let mut chunk = vec![0; CHUNK];
        let position = self.scanner.position();
        let count = self
            .file
            .read_at(&mut chunk, position)
            .map_err(|error| self.io(error))?;
        if count == 0 {
            let length = self.file.metadata().map_err(|error| self.io(error))?.len();
            if length < position {
                return Err(SourceError::Changed {
                    path: self.path.clone(),
                    position: length,
                });
            }
            return Ok(false);
        }
        let bytes = chunk.get(..count).unwrap_or_default();
        self.scanner
            .feed(bytes, found)
            .map_err(|error| SourceError::Malformed {
                path: self.path.clone(),
                error,
            })?;
        Ok(true)
    }
}

/// The files, oldest first.
pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let path = directory.join(INDEX);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(SourceError::Io { path, source }),
    };
    // A path that is absolute stays what it is.
    let files: Vec<PathBuf> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| directory.join(line.strip_prefix("./").unwrap_or(line)))
        .collect();
    if files.is_empty() {
        return Err(SourceError::Nothing { path });
    }
    Ok(files)
}

/// The file behind another one in the server's list; behind one that is not in there any more, because it was deleted while
/// it was read, the oldest of those that are.
fn follower(directory: &Path, path: &Path) -> Result<Option<PathBuf>, SourceError> {
    let mut files = list(directory)?;
    let at = files.iter().position(|file| file == path).map(|at| at + 1);
    let later = |file: &PathBuf| number(path).is_some_and(|own| number(file) > Some(own));
    let at = at.or_else(|| files.iter().position(later));
    Ok(at.filter(|at| *at < files.len()).map(|at| files.swap_remove(at)))
}

/// The number in a file's name, which rises from file to file.
fn number(path: &Path) -> Option<u64> {
    path.extension()?.to_str()?.parse().ok()
}

/// What was logged before a file; `None` when it does not say so yet.
pub(super) fn previous(path: &Path) -> Result<Option<GtidSet>, SourceError> {
    let mut reading = Reading::open(path.to_owned(), None).map_err(|source| SourceError::Io {
        path: path.to_owned(),
        source,
    })?;
    let mut found = Vec::new();
    while reading.read(&mut found)? {
        for found in found.drain(..) {
            match found {
                Found::Previous(set) => return Ok(Some(set)),
                Found::Format(_) => {}
                Found::Transaction(_) | Found::Rotated(_) | Found::Stopped => return Ok(None),
            }
        }
    }
    // The server has made it, and not written to it yet.
    Ok(None)
}

impl Source {
    /// Begins with the first transaction that is not stored; with the oldest one, if nobody knows what is stored.
    pub(super) fn open(directory: &Path, purged: &GtidSet, stored: Option<&GtidSet>) -> Result<Self, SourceError> {
        let files = list(directory)?;
        // A file that is named and not there was deleted meanwhile, or behind the server's back.
        let mut begin = files.iter().find(|file| file.exists()).cloned();
        if let Some(stored) = stored {
            for file in files.iter().rev() {
                let previous = match previous(file) {
                    Err(error) if error.is_gone() => continue,
                    previous => previous?.unwrap_or_default(),
                };
                if stored.contains(&previous) {
                    begin = Some(file.clone());
                    break;
                }
            }
        }
        let Some(begin) = begin else {
            return Err(SourceError::Nothing {
                path: directory.join(INDEX),
            });
        };
        let closed_by = follower(directory, &begin)?;
        let current =
            Reading::open(begin.clone(), closed_by).map_err(|source| SourceError::Io { path: begin, source })?;
        let mut source = Self {
            directory: directory.to_owned(),
            purged: purged.clone(),
            current,
            waiting: VecDeque::new(),
            before: purged.clone(),
            unlogged: GtidSet::new(),
        };
        while !source.current.begun {
            let more = source.read()?;
            if !source.current.begun && (!more || source.current.end.is_some()) {
                return Err(source.current.io(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        // What the files before it hold was not looked at.
        source.unlogged = GtidSet::new();
        if let Some(stored) = stored {
            source.skip(stored)?;
        }
        Ok(source)
    }

    /// What the server had executed before the first transaction that waits.
    pub(super) const fn before(&self) -> &GtidSet {
        &self.before
    }

    /// When the first transaction was committed that waits.
    pub(super) fn first_waiting(&self) -> Option<i64> {
        self.waiting.front().map(|transaction| transaction.at)
    }

    /// The file that may grow.
    pub(super) fn path(&self) -> &Path {
        &self.current.path
    }

    /// Takes what was found to be executed although no binlog holds it.
    pub(super) fn take_unlogged(&mut self) -> GtidSet {
        std::mem::take(&mut self.unlogged)
    }

    /// Cuts the next piece from what is executed, if there is something.
    pub(super) fn cut(&mut self, executed: &GtidSet) -> Result<Option<Piece>, SourceError> {
        self.fill()?;
        let waiting = self
            .waiting
            .iter()
            .map(|transaction| (&transaction.gtid, transaction.length));
        let cut = cut(waiting, executed);
        let (true, Some(format)) = (cut.transactions > 0, self.current.format.clone()) else {
            return Ok(None);
        };
        let transactions: Vec<Transaction> = self.waiting.drain(..cut.transactions).collect();
        let piece = Piece {
            file: Arc::clone(&self.current.file),
            path: self.current.path.clone(),
            format,
            first: std::mem::replace(&mut self.current.first, false),
            previous: self.before.clone(),
            transactions,
        };
        self.before = self.before.union(&piece.gtids());
        Ok(Some(piece))
    }

    /// Whether something is to be looked for again although no file grows: transactions that are not executed yet, or a
    /// file that the server is about to make.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.waiting.is_empty() || self.current.end.is_some()
    }

    /// What of `executed` no binlog holds. To be asked when everything was taken that had been written when that was read.
    pub(super) fn rest(&mut self, executed: &GtidSet) -> Result<Rest, SourceError> {
        let known = self.before.union(&gtids(&self.waiting));
        let unknown = executed.subtract(&known);
        if unknown.is_empty() || self.current.end.is_some() {
            return Ok(Rest::Nothing);
        }
        // The server may have gone on without saying so in the file.
        self.current.closed_by = follower(&self.directory, &self.current.path)?;
        if self.current.closed_by.is_some() {
            return Ok(Rest::AnotherFile);
        }
        self.before = self.before.union(&unknown);
        Ok(Rest::NotLogged(unknown))
    }

    /// Reads on until enough waits for a segment, or nothing more was written.
    fn fill(&mut self) -> Result<(), SourceError> {
        let mut bytes: u64 = self.waiting.iter().map(|transaction| transaction.length).sum();
        while bytes < SEGMENT_BYTES && self.waiting.len() < SEGMENT_TRANSACTIONS {
            if let Some(next) = &self.current.end {
                // A segment is of one file, whose format it has.
                let (true, Some(next)) = (self.waiting.is_empty(), next.clone()) else {
                    return Ok(());
                };
                if !self.go_on(next)? {
                    return Ok(());
                }
            }
            let known = self.waiting.len();
            if !self.read()? {
                return Ok(());
            }
            let new = self.waiting.iter().skip(known);
            bytes += new.map(|transaction| transaction.length).sum::<u64>();
        }
        Ok(())
    }

    /// Goes on with the next file; whether it is there. A server names it at the end of the former one before it makes it.
    fn go_on(&mut self, next: PathBuf) -> Result<bool, SourceError> {
        let last = list(&self.directory)?.last() == Some(&self.current.path);
        let closed_by = follower(&self.directory, &next)?;
        match Reading::open(next.clone(), closed_by) {
            Ok(reading) => {
                self.current = reading;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && last => Ok(false),
            Err(source) => Err(SourceError::Io { path: next, source }),
        }
    }

    /// Reads on in the current file; whether there was something, or its end.
    fn read(&mut self) -> Result<bool, SourceError> {
        let mut found = Vec::new();
        let more = self.current.read(&mut found)?;
        for found in found {
            match found {
                Found::Format(format) => self.current.format = Some(format),
                Found::Previous(previous) => {
                    // What was executed before this file and is in none of the files before it is in no binlog.
                    let claimed = previous.union(&self.purged);
                    self.unlogged = self.unlogged.union(&claimed.subtract(&self.before));
                    self.before = self.before.union(&claimed);
                    self.current.begun = true;
                }
                Found::Transaction(transaction) => self.waiting.push_back(transaction),
                Found::Rotated(next) => {
                    let next = next.strip_prefix("./").unwrap_or(&next);
                    self.current.end = Some(Some(self.directory.join(next)));
                }
                Found::Stopped => self.current.end = Some(self.current.closed_by.clone()),
            }
        }
        // One that a crash ended does not say so.
        if !more && self.current.end.is_none() && self.current.closed_by.is_some() {
            self.current.end = Some(self.current.closed_by.clone());
        }
        Ok(more || self.current.end.is_some())
    }

    /// Passes by what is stored, up to the first transaction that is not.
    fn skip(&mut self, stored: &GtidSet) -> Result<(), SourceError> {
        loop {
            self.fill()?;
            let count = self
                .waiting
                .iter()
                .take_while(|transaction| stored.contains_gtid(&transaction.gtid))
                .count();
            if count == 0 {
                return Ok(());
            }
            let skipped: Vec<Transaction> = self.waiting.drain(..count).collect();
            self.before = self.before.union(&gtids(&skipped));
            self.current.first = false;
        }
    }
}
