//! A directory, or files as they are made, as a stream, and back: tar, then zstd, then age if a key is given.
//!
//! Everything runs with bounded memory and at the pace of the slower side. SHA-256 and size are those of the bytes as
//! stored; a reader compares them with the manifest's at the end, and gives an error instead of the end if they differ.
//! So does age for each 64 KiB, and zstd for the content. `docs/backup-format.md` describes the same for people.

mod error;
mod files;
mod key;
mod seal;
mod tally;
mod tree;

use std::io;
use std::path::Path;

use mainstay_core::backup::manifest::StoredFile;
use mainstay_core::backup::{Folder, Key};
use tokio::task::JoinSet;

pub use error::ArchiveError;
pub use files::{Make, Packer, Take, load_files, store_files};
pub use key::{PrivateKey, Recipient};
pub use seal::{Sealer, Sealing, open, open_bytes, seal_bytes};
pub use tally::Tally;
pub use tree::{Content, Meter, Skip, content_size, pack, unpack};

use crate::pipe::pipe;
use crate::port::{Existing, Span, Store, StreamOptions};

/// What was stored of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The directory.
    pub content: Content,
    /// The object, for the manifest.
    pub file: StoredFile,
}

/// Stores a directory under a new key. Nothing is stored on an error. The meter shows how far it is.
///
/// Packing is a task of its own: one processor compresses while another one sends. In one task the two took turns, and a
/// backup took the sum of both.
pub async fn store_directory(
    store: &dyn Store,
    key: &Key,
    directory: &Path,
    skip: Skip,
    sealing: &Sealing,
    meter: &Meter,
) -> Result<Packed, ArchiveError> {
    let expected = tree::size(directory, skip).await?;
    let (writer, reader) = pipe();
    let options = StreamOptions {
        existing: Existing::Keep,
        expected: Some(expected),
    };
    let packing = {
        let (directory, sealing, meter) = (directory.to_owned(), sealing.clone(), meter.clone());
        async move { pack(&directory, skip, writer, &sealing, &meter).await }
    };
    // Dropped with this future, it ends the task.
    let mut tasks = JoinSet::new();
    tasks.spawn(packing);
    let (packed, stored) = tokio::join!(tasks.join_next(), store.put_stream(key, Box::pin(reader), options));
    let packed = match packed {
        Some(Ok(packed)) => packed,
        Some(Err(error)) => Err(ArchiveError::writing(error.into())),
        None => Err(ArchiveError::writing(io::Error::other("nothing packs the directory"))),
    };
    let (content, tally) = match (packed, stored) {
        (Ok(packed), Ok(_)) => packed,
        // Each side fails when the other does: the one that began is told.
        (Err(ArchiveError::Sink { .. }) | Ok(_), Err(error)) => return Err(ArchiveError::Store(error)),
        (Err(error), _) => return Err(error),
    };
    Ok(described(key, content, tally))
}

fn described(key: &Key, content: Content, tally: Tally) -> Packed {
    Packed {
        content,
        file: StoredFile {
            name: key.file_name().to_owned(),
            size: tally.bytes,
            sha256: tally.sha256,
        },
    }
}

/// Restores a directory from an object of a folder, into an empty directory. On an error what is in the directory must not
/// be used.
pub async fn load_directory(
    store: &dyn Store,
    folder: &Folder,
    file: &StoredFile,
    key: Option<&PrivateKey>,
    target: &Path,
) -> Result<Content, ArchiveError> {
    let object = folder.key(&file.name).map_err(|error| ArchiveError::Damaged {
        reason: error.to_string(),
    })?;
    let download = store
        .get_stream(&object, Span::ALL)
        .await
        .map_err(ArchiveError::Store)?;
    unpack(open(download.body, file, key).await?, target).await
}
