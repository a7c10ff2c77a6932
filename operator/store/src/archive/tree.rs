//! Directories as tar.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::StreamExt as _;
use tokio::fs;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter, ReadBuf};
use tokio_tar::{Archive, Builder, Entry, EntryType, Header};

use super::error::ArchiveError;
use super::seal::{Sealer, Sealing};
use super::tally::Tally;
use crate::port::Body;

/// Bytes that are read or written at once.
const BUFFER: usize = 1024 * 1024;

/// Permissions of files and directories, as mysqld makes them.
pub(super) const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;

/// Whether what stands at that path, relative to the directory, is left out, with all that is in it.
pub type Skip = fn(&Path) -> bool;

/// What a directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Files in it, at any depth.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// A file or directory, by its path in the tree.
struct Node {
    path: PathBuf,
    directory: bool,
    size: u64,
}

/// Bytes of the files of a directory, without what is left out.
pub async fn content_size(root: &Path, skip: Skip) -> Result<u64, ArchiveError> {
    Ok(walk(root, skip).await?.iter().map(|node| node.size).sum())
}

/// Bytes of the files that an archive would hold, with room for its headers.
pub(super) async fn size(root: &Path, skip: Skip) -> Result<u64, ArchiveError> {
    let nodes = walk(root, skip).await?;
    // A header of 512 bytes, padding of at most as much, and the same again for a long name.
    Ok(nodes.iter().map(|node| node.size + 2048).sum::<u64>() + 1024)
}

/// Files and directories in the order of their paths, directories before what is in them.
async fn walk(root: &Path, skip: Skip) -> Result<Vec<Node>, ArchiveError> {
    let mut nodes = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        let at = root.join(&directory);
        let failed = |source| ArchiveError::Source {
            path: at.clone(),
            source,
        };
        let mut entries = fs::read_dir(&at).await.map_err(failed)?;
        while let Some(entry) = entries.next_entry().await.map_err(failed)? {
            let path = directory.join(entry.file_name());
            if skip(&path) {
                continue;
            }
            let metadata = entry.metadata().await.map_err(failed)?;
            let directory = metadata.is_dir();
            if !directory && !metadata.is_file() {
                return Err(ArchiveError::Unsupported { path: entry.path() });
            }
            if directory {
                open.push(path.clone());
            }
            nodes.push(Node {
                path,
                directory,
                size: if directory { 0 } else { metadata.len() },
            });
        }
    }
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(nodes)
}

/// Counts what is read of a directory while it is packed: how far that is.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Bytes of files that were read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file whose bytes are counted.
struct Metered<'a> {
    file: BufReader<fs::File>,
    meter: &'a Meter,
}

impl AsyncRead for Metered<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.file).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        this.meter.0.fetch_add(read as u64, Ordering::Relaxed);
        polled
    }
}

/// Writes a directory as a sealed archive.
pub async fn pack(
    root: &Path,
    skip: Skip,
    sink: impl AsyncWrite + Send + Unpin + 'static,
    sealing: &Sealing,
    meter: &Meter,
) -> Result<(Content, Tally), ArchiveError> {
    let nodes = walk(root, skip).await?;
    let mut content = Content::default();
    let mut builder = Builder::new_non_terminated(Sealer::new(sink, sealing).await?);
    for node in &nodes {
        append(&mut builder, root, node, meter).await?;
        if !node.directory {
            content.files += 1;
            content.bytes += node.size;
        }
    }
    let mut sealer = builder.into_inner().await.map_err(ArchiveError::writing)?;
    // The end of an archive: two empty blocks.
    sealer.write_all(&[0; 1024]).await.map_err(ArchiveError::writing)?;
    Ok((content, sealer.finish().await?))
}

async fn append(builder: &mut Builder<Sealer>, root: &Path, node: &Node, meter: &Meter) -> Result<(), ArchiveError> {
    let path = root.join(&node.path);
    let mut header = Header::new_gnu();
    header.set_size(node.size);
    header.set_mtime(0);
    if node.directory {
        header.set_entry_type(EntryType::Directory);
        header.set_mode(DIRECTORY_MODE);
        let appended = builder.append_data(&mut header, &node.path, tokio::io::empty()).await;
        return appended.map_err(ArchiveError::writing);
    }
    header.set_entry_type(EntryType::Regular);
    header.set_mode(FILE_MODE);
    let source = |source| ArchiveError::Source {
        path: path.clone(),
        source,
    };
    let file = fs::File::open(&path).await.map_err(source)?;
    let file = BufReader::with_capacity(BUFFER, file);
    let mut reader = Metered { file, meter }.take(node.size);
    let appended = builder.append_data(&mut header, &node.path, &mut reader).await;
    if let Err(error) = appended {
        return Err(ArchiveError::writing(error));
    }
    let more = reader.get_mut().read(&mut [0]).await.map_err(source)?;
    if reader.limit() > 0 || more > 0 {
        return Err(ArchiveError::Changed { path });
    }
    Ok(())
}

/// Unpacks an opened archive into a directory, which has to be empty, and makes it durable. Nothing is written outside of
/// it: an archive that has links, absolute names or `..` is refused. On an error what is in the directory must not be used.
pub async fn unpack(archive: Body, target: &Path) -> Result<Content, ArchiveError> {
    empty(target).await?;
    let mut content = Content::default();
    let mut archive = Archive::new(archive);
    let mut entries = archive.entries().map_err(ArchiveError::reading)?;
    while let Some(entry) = entries.next().await {
        let entry = entry.map_err(ArchiveError::reading)?;
        if let Some(bytes) = unpack_one(entry, target).await? {
            content.files += 1;
            content.bytes += bytes;
        }
    }
    drop(entries);
    // The end is where everything is verified.
    let mut rest = archive.into_inner().map_err(|_| ArchiveError::Content {
        source: io::Error::other("the archive is still being read"),
    })?;
    tokio::io::copy(&mut rest, &mut tokio::io::sink())
        .await
        .map_err(ArchiveError::reading)?;
    durable(target).await?;
    Ok(content)
}

async fn empty(target: &Path) -> Result<(), ArchiveError> {
    let failed = |source| ArchiveError::Target {
        path: target.to_owned(),
        source,
    };
    let mut entries = fs::read_dir(target).await.map_err(failed)?;
    if entries.next_entry().await.map_err(failed)?.is_some() {
        return Err(ArchiveError::NotEmpty {
            path: target.to_owned(),
        });
    }
    Ok(())
}

/// Bytes of the file; `None` for a directory.
async fn unpack_one(mut entry: Entry<Archive<Body>>, target: &Path) -> Result<Option<u64>, ArchiveError> {
    let (path, size) = {
        let name = entry.path().map_err(ArchiveError::reading)?;
        (inside(target, &name)?, entry.effective_size())
    };
    let failed = |source| ArchiveError::Target {
        path: path.clone(),
        source,
    };
    match entry.header().entry_type() {
        EntryType::Directory => {
            let made = fs::DirBuilder::new().mode(DIRECTORY_MODE).create(&path).await;
            made.map_err(failed)?;
            Ok(None)
        }
        EntryType::Regular => {
            // A new file: never through what is there already.
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(FILE_MODE).open(&path).await;
            let mut file = BufWriter::with_capacity(BUFFER, file.map_err(failed)?);
            let written = copy(&mut entry, &mut file, &path).await?;
            if written != size {
                return Err(ArchiveError::Damaged {
                    reason: format!("{} has {written} bytes instead of {size}", path.display()),
                });
            }
            Ok(Some(written))
        }
        _ => Err(ArchiveError::Suspicious {
            name: path.display().to_string(),
            reason: "it is neither a file nor a directory",
        }),
    }
}

/// Errors of both sides are told apart, which [`tokio::io::copy`] does not.
async fn copy(
    entry: &mut Entry<Archive<Body>>,
    file: &mut BufWriter<fs::File>,
    path: &Path,
) -> Result<u64, ArchiveError> {
    let failed = |source| ArchiveError::Target {
        path: path.to_owned(),
        source,
    };
    let mut buffer = vec![0; 128 * 1024];
    let mut written = 0;
    loop {
        let read = entry.read(&mut buffer).await.map_err(ArchiveError::reading)?;
        if read == 0 {
            break;
        }
        let new = buffer.get(..read).unwrap_or_default();
        file.write_all(new).await.map_err(failed)?;
        written += read as u64;
    }
    file.flush().await.map_err(failed)?;
    Ok(written)
}

/// Where an entry goes.
fn inside(target: &Path, name: &Path) -> Result<PathBuf, ArchiveError> {
    let suspicious = |reason| ArchiveError::Suspicious {
        name: name.display().to_string(),
        reason,
    };
    let mut path = target.to_owned();
    for part in name.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => return Err(suspicious("its name has a '.'")),
            Component::ParentDir => return Err(suspicious("its name leads out of the directory")),
            Component::RootDir | Component::Prefix(_) => return Err(suspicious("its name is absolute")),
        }
    }
    if path == target {
        return Err(suspicious("it has no name"));
    }
    Ok(path)
}

/// Everything that was unpacked survives a power cut from now on.
async fn durable(target: &Path) -> Result<(), ArchiveError> {
    let path = target.to_owned();
    let synced = tokio::task::spawn_blocking(move || {
        let directory = std::fs::File::open(&path)?;
        rustix::fs::syncfs(&directory).map_err(io::Error::from)
    });
    let synced = synced.await.map_err(io::Error::other).and_then(|result| result);
    synced.map_err(|source| ArchiveError::Target {
        path: target.to_owned(),
        source,
    })
}
