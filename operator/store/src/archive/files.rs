//! Archives of files that are made, or used up, one after the other: none of them is ever on a disk.

use std::io;

use futures::{StreamExt as _, stream};
use mainstay_core::backup::manifest::StoredFile;
use mainstay_core::backup::{Folder, Key};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tar::{Archive, Builder, EntryType, Header};
use tokio_util::io::StreamReader;

use super::error::ArchiveError;
use super::key::PrivateKey;
use super::seal::{Sealer, Sealing, open};
use super::tally::Tally;
use super::tree::{Content, FILE_MODE};
use super::{Packed, described};
use crate::pipe::{PipeWriter, pipe};
use crate::port::{Body, Existing, Span, Store, StreamOptions};

/// An archive that is being filled.
pub struct Packer {
    builder: Builder<Sealer>,
    content: Content,
    /// What it is written to takes no more.
    broken: bool,
}

impl Packer {
    async fn new(sink: PipeWriter, sealing: &Sealing) -> Result<Self, ArchiveError> {
        Ok(Self {
            builder: Builder::new_non_terminated(Sealer::new(sink, sealing).await?),
            content: Content::default(),
            broken: false,
        })
    }

    /// Adds a file, whose content is these parts one after the other.
    pub async fn add(&mut self, name: &str, parts: &[Vec<u8>]) -> Result<(), ArchiveError> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(size);
        header.set_mode(FILE_MODE);
        header.set_mtime(0);
        let parts = stream::iter(parts.iter().map(|part| Ok::<&[u8], io::Error>(part.as_slice())));
        let added = self
            .builder
            .append_data(&mut header, name, StreamReader::new(parts))
            .await;
        self.broken |= added.is_err();
        added.map_err(ArchiveError::writing)?;
        self.content.files += 1;
        self.content.bytes += size;
        Ok(())
    }

    /// What is in it so far.
    #[must_use]
    pub const fn content(&self) -> Content {
        self.content
    }

    async fn finish(self) -> Result<(Content, Tally), ArchiveError> {
        let mut sealer = self.builder.into_inner().await.map_err(ArchiveError::writing)?;
        // The end of an archive: two empty blocks.
        sealer.write_all(&[0; 1024]).await.map_err(ArchiveError::writing)?;
        Ok((self.content, sealer.finish().await?))
    }
}

/// Makes the files of an archive.
pub trait Make: Send {
    /// Why one cannot be made, or added.
    type Error: From<ArchiveError> + Send;

    /// Adds all of them.
    fn fill(&mut self, packer: &mut Packer) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Uses the files of an archive up.
pub trait Take: Send {
    /// Why one cannot be used, or read.
    type Error: From<ArchiveError> + Send;

    /// Takes the next one.
    fn take(&mut self, name: String, content: Vec<u8>) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Stores files under a new key, as `make` adds them. Nothing is stored on an error. `expected` is about how many bytes will be
/// stored at most.
pub async fn store_files<M: Make>(
    store: &dyn Store,
    key: &Key,
    sealing: &Sealing,
    expected: u64,
    make: &mut M,
) -> Result<Packed, M::Error> {
    let (writer, reader) = pipe();
    let options = StreamOptions {
        existing: Existing::Keep,
        expected: Some(expected),
    };
    let mut broken = false;
    let making = async {
        let mut packer = Packer::new(writer, sealing).await?;
        let made = make.fill(&mut packer).await;
        broken = packer.broken;
        made?;
        let finished = packer.finish().await;
        broken = finished.is_err();
        Ok::<_, M::Error>(finished?)
    };
    let (made, stored) = tokio::join!(making, store.put_stream(key, Box::pin(reader), options));
    match (made, stored) {
        (Ok((content, tally)), Ok(_)) => Ok(described(key, content, tally)),
        // Each side fails when the other does: the one that began is told.
        (Err(error), Err(_)) if !broken => Err(error),
        (_, Err(error)) => Err(ArchiveError::Store(error).into()),
        (Err(error), Ok(_)) => Err(error),
    }
}

/// Reads the files of a stored archive one after the other, each of at most `limit` bytes, and gives them to `taker`. They are
/// proved to be what was stored only when all of them were read: what was made of them must not be used on an error.
pub async fn load_files<T: Take>(
    store: &dyn Store,
    folder: &Folder,
    file: &StoredFile,
    key: Option<&PrivateKey>,
    limit: u64,
    taker: &mut T,
) -> Result<Content, T::Error> {
    let object = folder.key(&file.name).map_err(|error| ArchiveError::Damaged {
        reason: error.to_string(),
    })?;
    let download = store.get_stream(&object, Span::ALL).await;
    let opened = open(download.map_err(ArchiveError::Store)?.body, file, key).await?;
    let mut archive = Archive::new(opened);
    let mut entries = archive.entries().map_err(ArchiveError::reading)?;
    let mut content = Content::default();
    let mut refused = None;
    while let Some(entry) = entries.next().await {
        let mut entry = entry.map_err(ArchiveError::reading)?;
        let name = entry.path().map_err(ArchiveError::reading)?.display().to_string();
        let size = entry.effective_size();
        if entry.header().entry_type() != EntryType::Regular || size > limit {
            let reason = "it is no file, or too large for one";
            return Err(ArchiveError::Suspicious { name, reason }.into());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        entry.read_to_end(&mut bytes).await.map_err(ArchiveError::reading)?;
        if bytes.len() as u64 != size {
            let reason = format!("{name} has {} bytes instead of {size}", bytes.len());
            return Err(ArchiveError::Damaged { reason }.into());
        }
        content.files += 1;
        content.bytes += size;
        if let Err(error) = taker.take(name, bytes).await {
            refused = Some(error);
            break;
        }
    }
    drop(entries);
    let rest = archive.into_inner().map_err(|_| ArchiveError::Content {
        source: io::Error::other("the archive is still being read"),
    })?;
    // What is damaged may well be refused: then the damage is the reason.
    verify(rest).await?;
    refused.map_or(Ok(content), Err)
}

/// The end is where everything is verified.
async fn verify(mut rest: Body) -> Result<(), ArchiveError> {
    let read = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    read.map(|_bytes| ()).map_err(ArchiveError::reading)
}
