//! A piece of the binlog becomes a stored segment, read and stored a little at a time.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_core::backup::Key;
use mainstay_core::backup::manifest::StoredFile;
use mainstay_mysql::binlog::{Crc, Transaction, head};
use mainstay_store::archive::{ArchiveError, Sealer, Sealing, Tally};
use mainstay_store::pipe::{PipeWriter, pipe};
use mainstay_store::{Existing, Store, StreamOptions};
use tokio::io::AsyncWriteExt as _;

use super::Fault;
use super::source::{Piece, SourceError};

/// Bytes that are read at a time.
const CHUNK: usize = 256 << 10;

/// What was stored.
pub(super) struct Uploaded {
    /// The object.
    pub(super) file: StoredFile,
    /// Bytes before they were compressed.
    pub(super) uncompressed: u64,
}

/// Stores a piece under a new key. Nothing is stored when it cannot be read as it was found.
pub(super) async fn upload(store: &dyn Store, key: &Key, piece: &Piece, sealing: &Sealing) -> Result<Uploaded, Fault> {
    let head = head(&piece.format, &piece.previous, piece.first);
    let uncompressed = head.len() as u64 + piece.bytes();
    let options = StreamOptions {
        existing: Existing::Keep,
        // What does not become smaller becomes a little larger.
        expected: Some(uncompressed + uncompressed / 128 + 4096),
    };
    let (writer, reader) = pipe();
    let (written, stored) = tokio::join!(
        write(writer, head, piece, sealing),
        store.put_stream(key, Box::pin(reader), options)
    );
    let tally = match (written, stored) {
        (Ok(tally), Ok(_)) => tally,
        // Each side fails when the other does: the one that began is told.
        (Ok(_) | Err(Fault::Seal(ArchiveError::Sink { .. })), Err(error)) => return Err(Fault::Store(error)),
        (Err(fault), _) => return Err(fault),
    };
    Ok(Uploaded {
        file: StoredFile {
            name: key.file_name().to_owned(),
            size: tally.bytes,
            sha256: tally.sha256,
        },
        uncompressed,
    })
}

async fn write(writer: PipeWriter, head: Vec<u8>, piece: &Piece, sealing: &Sealing) -> Result<Tally, Fault> {
    let sink = |source| Fault::Seal(ArchiveError::Sink { source });
    let mut sealer = Sealer::new(writer, sealing).await.map_err(Fault::Seal)?;
    sealer.write_all(&head).await.map_err(sink)?;
    let mut copy = Reread {
        file: Arc::clone(&piece.file),
        path: piece.path.clone(),
        left: piece.transactions.iter().cloned().collect(),
        done: 0,
        crc: Crc::default(),
    };
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let chunk = copy.chunk();
            (copy, chunk)
        });
        let (next, chunk) = read.await.map_err(|error| Fault::Ended(error.to_string()))?;
        copy = next;
        let chunk = chunk.map_err(Fault::Source)?;
        if chunk.is_empty() {
            break;
        }
        sealer.write_all(&chunk).await.map_err(sink)?;
    }
    sealer.finish().await.map_err(Fault::Seal)
}

/// Transactions that are read again.
struct Reread {
    file: Arc<File>,
    path: PathBuf,
    left: VecDeque<Transaction>,
    /// Bytes of the first of them that were read.
    done: u64,
    crc: Crc,
}

impl Reread {
    /// The next bytes; none at the end.
    fn chunk(&mut self) -> Result<Vec<u8>, SourceError> {
        let mut chunk = Vec::with_capacity(CHUNK);
        while let Some(transaction) = self.left.front() {
            let room = (CHUNK - chunk.len()) as u64;
            let count = room.min(transaction.length - self.done);
            if count == 0 {
                break;
            }
            let begin = chunk.len();
            chunk.resize(begin + usize::try_from(count).unwrap_or_default(), 0);
            let new = chunk.get_mut(begin..).unwrap_or_default();
            let position = transaction.from + self.done;
            if let Err(source) = self.file.read_exact_at(new, position) {
                return Err(match source.kind() {
                    io::ErrorKind::UnexpectedEof => self.changed(position),
                    _ => SourceError::Io {
                        path: self.path.clone(),
                        source,
                    },
                });
            }
            self.crc.add(new);
            self.done += count;
            if self.done == transaction.length {
                if self.crc.sum() != transaction.crc {
                    return Err(self.changed(transaction.from));
                }
                self.left.pop_front();
                self.done = 0;
                self.crc = Crc::default();
            }
        }
        Ok(chunk)
    }

    fn changed(&self, position: u64) -> SourceError {
        SourceError::Changed {
            path: self.path.clone(),
            position,
        }
    }
}
