//! The port: what Mainstay asks of an object store.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use mainstay_core::backup::{Folder, Key};
use tokio::io::AsyncRead;

use crate::error::StoreError;

/// Content on its way to or from a store.
///
/// A reader that returns an error stands for content that is not whole; the end stands for content that is. What is
/// produced by a task of its own goes through [`crate::pipe`], where a producer that dies is an error and not an end.
pub type Body = Pin<Box<dyn AsyncRead + Send>>;

/// What happens to an object that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    Replace,
    /// It stays, and the operation fails with [`StoreError::AlreadyExists`]. A request whose answer was lost is repeated, and
    /// then finds the object that it made itself: whoever makes objects under names of its own compares before it despairs.
    Keep,
}

/// How a stream is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// What happens to an object that has the name already.
    pub existing: Existing,
    /// An upper bound of the size in bytes, if one is known: parts of the right size need less memory (see
    /// [`crate::parts`]). More may come all the same.
    pub expected: Option<u64>,
}

/// What was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes.
    pub size: u64,
    /// Parts in which it was sent: 1 when it was small enough for one request.
    pub parts: u32,
}

/// Which bytes of an object are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first one, from 0. A position behind the end reads nothing.
    pub from: u64,
    /// How many at most; to the end if absent.
    pub length: Option<u64>,
}

impl Span {
    /// The whole object.
    pub const ALL: Self = Self { from: 0, length: None };
}

/// An object that is being read.
pub struct Download {
    /// Size of the whole object in bytes.
    pub size: u64,
    /// The bytes that were asked for. A connection that breaks is made again, from the last byte on.
    pub body: Body,
}

/// What is known of an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name.
    pub key: Key,
    /// Bytes.
    pub size: u64,
    /// When it was stored, by the store's clock.
    pub modified: Timestamp,
}

/// What a listing finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object(ObjectInfo),
    /// A folder, in which there is at least one object.
    Folder(Folder),
}

/// Which objects are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Only what lies in this folder.
    pub folder: Folder,
    /// How deep.
    pub depth: Depth,
    /// Only keys that sort behind this one.
    pub after: Option<Key>,
}

/// How deep a listing looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The folder's own objects, and its folders by their name.
    Shallow,
    /// All objects.
    Deep,
}

impl Listing {
    /// All objects in a folder, at any depth.
    #[must_use]
    pub const fn all(folder: Folder) -> Self {
        Self {
            folder,
            depth: Depth::Deep,
            after: None,
        }
    }

    /// The objects and folders directly in a folder.
    #[must_use]
    pub const fn shallow(folder: Folder) -> Self {
        Self {
            folder,
            depth: Depth::Shallow,
            after: None,
        }
    }
}

/// An upload that was begun and neither completed nor aborted; it costs space that no listing shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The object that it was to become.
    pub key: Key,
    /// The store's identifier.
    pub id: String,
    /// When it was begun, by the store's clock.
    pub begun: Timestamp,
}

/// An object store: one bucket, and one prefix in it.
///
/// Keys are relative to the prefix, and nothing outside of it is ever read, listed or deleted (case F22). Requests have
/// deadlines, and are repeated a bounded number of times when they failed for a reason that may pass.
#[async_trait]
pub trait Store: Send + Sync {
    /// Stores a small object in one request, with a checksum that the store verifies.
    async fn put(&self, key: &Key, content: Bytes, existing: Existing) -> Result<(), StoreError>;

    /// Stores content of any size, in parts. The object appears when the body has ended, or not at all: an error of the
    /// body, of the store, or a future that is dropped aborts the upload.
    async fn put_stream(&self, key: &Key, body: Body, options: StreamOptions) -> Result<Stored, StoreError>;

    /// Reads a whole object of at most `limit` bytes, and verifies its checksum where the store has one.
    async fn get(&self, key: &Key, limit: u64) -> Result<Bytes, StoreError>;

    /// Reads an object, or a part of it. Errors of the body hold a [`StoreError`] (see [`StoreError::of`]).
    async fn get_stream(&self, key: &Key, span: Span) -> Result<Download, StoreError>;

    /// Size and time of an object.
    async fn head(&self, key: &Key) -> Result<ObjectInfo, StoreError>;

    /// Objects of a folder in the order of their keys, page by page as they are consumed. Objects whose names are no
    /// [`Key`]s are not Mainstay's and are left out.
    fn list(&self, listing: Listing) -> BoxStream<'_, Result<Entry, StoreError>>;

    /// Deletes an object; that there is none is no error.
    async fn delete(&self, key: &Key) -> Result<(), StoreError>;

    /// Deletes many objects; those that do not exist are no error. After an error some may be left.
    async fn delete_all(&self, keys: &[Key]) -> Result<(), StoreError>;

    /// Uploads to a folder that are neither completed nor aborted.
    async fn incomplete(&self, folder: &Folder) -> Result<Vec<Incomplete>, StoreError>;

    /// Aborts an upload and frees its parts; that there is none is no error.
    async fn abort(&self, upload: &Incomplete) -> Result<(), StoreError>;

    /// Aborts the uploads to a folder that were begun before a time, and returns how many. An upload that runs is younger
    /// than what a backup may take.
    async fn abort_before(&self, folder: &Folder, before: Timestamp) -> Result<usize, StoreError> {
        let mut aborted = 0;
        for upload in self.incomplete(folder).await? {
            if upload.begun < before {
                self.abort(&upload).await?;
                aborted += 1;
            }
        }
        Ok(aborted)
    }

    /// All entries of a listing that is known to be short.
    async fn list_all(&self, listing: Listing) -> Result<Vec<Entry>, StoreError> {
        self.list(listing).try_collect().await
    }
}
