//! [`Store`] in memory, for tests and the simulation, with faults by command.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use mainstay_core::backup::{Folder, Key};
use tokio::io::{AsyncReadExt as _, ReadBuf};

use crate::error::{Place, StoreError};
use crate::faults::{Failure, Fault, Operation};
use crate::port::{
    Body, Depth, Download, Entry, Existing, Incomplete, Listing, ObjectInfo, Span, Store, Stored, StreamOptions,
};

type Clock = dyn Fn() -> Timestamp + Send + Sync;

/// The store. Clones are the same store.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    clock: Arc<Clock>,
}

#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<Key, Object>,
    uploads: Vec<Incomplete>,
    /// Number of uploads that were ever begun.
    begun: u64,
    faults: Vec<Fault>,
}

#[derive(Clone)]
struct Object {
    content: Bytes,
    modified: Timestamp,
    /// It is not what was sent: a store knows by its checksum.
    damaged: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::with_clock(Timestamp::now)
    }
}

impl Memory {
    /// An empty store, whose time is the machine's.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with a clock of its own.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            state: Arc::default(),
            clock: Arc::new(clock),
        }
    }

    /// Another store with the same content, which goes ways of its own from now on.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().clone())),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Lets a call fail. Faults of one operation are counted independently of each other.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Flips a bit of a stored object; nothing happens if there is no such byte.
    pub fn flip(&self, key: &Key, byte: u64) {
        if let Some(object) = self.state().objects.get_mut(key) {
            object.flip(byte);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and tells what happens to it.
    fn called(&self, operation: Operation) -> Option<Failure> {
        let mut state = self.state();
        let mut hit = None;
        state.faults.retain_mut(|fault| {
            if fault.operation != operation {
                return true;
            }
            fault.nth = fault.nth.saturating_sub(1);
            if fault.nth == 0 {
                hit = hit.or(Some(fault.failure));
            }
            fault.nth > 0
        });
        hit
    }

    /// The same, for an operation of which nothing is done when it fails.
    fn begin(&self, operation: Operation, what: &'static str, name: &str) -> Result<Option<Failure>, StoreError> {
        let place = place(name);
        match self.called(operation) {
            Some(Failure::Unreachable) => Err(unreachable_store(what, name)),
            Some(Failure::Denied) => Err(StoreError::Denied {
                what,
                place,
                reason: "AccessDenied".to_owned(),
            }),
            Some(Failure::NoSuchBucket) => Err(StoreError::NoSuchBucket { what, place }),
            other => Ok(other),
        }
    }

    fn insert(
        &self,
        key: &Key,
        content: Bytes,
        existing: Existing,
        failure: Option<Failure>,
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        if existing == Existing::Keep && state.objects.contains_key(key) {
            return Err(StoreError::AlreadyExists {
                what: "store",
                place: place(key.as_str()),
            });
        }
        let mut object = Object {
            content,
            modified: (self.clock)(),
            damaged: false,
        };
        if let Some(Failure::Flip(byte)) = failure {
            object.flip(byte);
        }
        state.objects.insert(key.clone(), object);
        done(failure, "store", key.as_str())
    }

    fn object(&self, what: &'static str, key: &Key) -> Result<Object, StoreError> {
        self.state()
            .objects
            .get(key)
            .cloned()
            .ok_or_else(|| StoreError::NotFound {
                what,
                place: place(key.as_str()),
            })
    }

    fn found(&self, listing: &Listing) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (key, object) in &self.state().objects {
            if !listing.folder.holds(key) || listing.after.as_ref().is_some_and(|after| key <= after) {
                continue;
            }
            let rest = key.as_str().strip_prefix(listing.folder.as_str()).unwrap_or_default();
            let entry = match (listing.depth, rest.split_once('/')) {
                (Depth::Shallow, Some((name, _))) => {
                    Folder::parse(&format!("{}{name}", listing.folder)).map(Entry::Folder)
                }
                _ => Ok(Entry::Object(object.info(key))),
            };
            if let Ok(entry) = entry
                && entries.last() != Some(&entry)
            {
                entries.push(entry);
            }
        }
        entries
    }
}

impl Object {
    fn flip(&mut self, byte: u64) {
        let mut content = self.content.to_vec();
        if let Some(hit) = usize::try_from(byte).ok().and_then(|byte| content.get_mut(byte)) {
            *hit ^= 1;
            self.content = content.into();
            self.damaged = true;
        }
    }

    fn info(&self, key: &Key) -> ObjectInfo {
        ObjectInfo {
            key: key.clone(),
            size: self.content.len() as u64,
            modified: self.modified,
        }
    }
}

fn place(name: &str) -> Place {
    Place {
        endpoint: "memory".into(),
        bucket: "memory".into(),
        key: name.to_owned(),
    }
}

fn unreachable_store(what: &'static str, name: &str) -> StoreError {
    StoreError::Unreachable {
        what,
        place: place(name),
        reason: "an injected fault".to_owned(),
    }
}

/// The end of an operation that had its effect.
fn done(failure: Option<Failure>, what: &'static str, name: &str) -> Result<(), StoreError> {
    match failure {
        Some(Failure::AnswerLost) => Err(unreachable_store(what, name)),
        _ => Ok(()),
    }
}

#[async_trait]
impl Store for Memory {
    async fn put(&self, key: &Key, content: Bytes, existing: Existing) -> Result<(), StoreError> {
        let failure = self.begin(Operation::Put, "store", key.as_str())?;
        self.insert(key, content, existing, failure)
    }

    async fn put_stream(&self, key: &Key, body: Body, options: StreamOptions) -> Result<Stored, StoreError> {
        let failure = self.begin(Operation::PutStream, "store", key.as_str())?;
        let limit = match failure {
            Some(Failure::Cut(bytes)) => bytes,
            _ => u64::MAX,
        };
        let mut content = Vec::new();
        body.take(limit)
            .read_to_end(&mut content)
            .await
            .map_err(|error| StoreError::Content {
                what: "store",
                place: place(key.as_str()),
                reason: error.to_string(),
            })?;
        if let Some(Failure::Cut(_)) = failure {
            let mut state = self.state();
            state.begun += 1;
            let id = state.begun.to_string();
            state.uploads.push(Incomplete {
                key: key.clone(),
                id,
                begun: (self.clock)(),
            });
            return Err(unreachable_store("store", key.as_str()));
        }
        let size = content.len() as u64;
        self.insert(key, content.into(), options.existing, failure)?;
        Ok(Stored { size, parts: 1 })
    }

    async fn get(&self, key: &Key, limit: u64) -> Result<Bytes, StoreError> {
        const WHAT: &str = "read";
        let failure = self.begin(Operation::Get, WHAT, key.as_str())?;
        let mut object = self.object(WHAT, key)?;
        let place = place(key.as_str());
        if object.content.len() as u64 > limit {
            return Err(StoreError::TooLarge {
                what: WHAT,
                place,
                limit,
            });
        }
        if let Some(Failure::Flip(byte)) = failure {
            object.flip(byte);
        }
        if object.damaged {
            return Err(StoreError::Corrupt {
                what: WHAT,
                place,
                reason: "checksum mismatch".to_owned(),
            });
        }
        match failure {
            Some(Failure::Cut(_) | Failure::AnswerLost) => Err(unreachable_store(WHAT, key.as_str())),
            _ => Ok(object.content),
        }
    }

    async fn get_stream(&self, key: &Key, span: Span) -> Result<Download, StoreError> {
        const WHAT: &str = "read";
        let failure = self.begin(Operation::GetStream, WHAT, key.as_str())?;
        done(failure, WHAT, key.as_str())?;
        let mut object = self.object(WHAT, key)?;
        if let Some(Failure::Flip(byte)) = failure {
            object.flip(byte);
        }
        let size = object.content.len() as u64;
        let from = span.from.min(size);
        let until = span.length.map_or(size, |length| from.saturating_add(length).min(size));
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let mut content = object.content.slice(index(from)..index(until));
        let body: Body = match failure {
            Some(Failure::Cut(bytes)) if bytes < content.len() as u64 => {
                content.truncate(index(bytes));
                Box::pin(Cursor::new(content).chain(Broken(key.clone())))
            }
            _ => Box::pin(Cursor::new(content)),
        };
        Ok(Download { size, body })
    }

    async fn head(&self, key: &Key) -> Result<ObjectInfo, StoreError> {
        let failure = self.begin(Operation::Head, "look at", key.as_str())?;
        done(failure, "look at", key.as_str())?;
        Ok(self.object("look at", key)?.info(key))
    }

    fn list(&self, listing: Listing) -> BoxStream<'_, Result<Entry, StoreError>> {
        let name = listing.folder.as_str();
        let begun = self.begin(Operation::List, "list", name);
        match begun.and_then(|failure| done(failure, "list", name)) {
            Ok(()) => stream::iter(self.found(&listing).into_iter().map(Ok)).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.delete_all(std::slice::from_ref(key)).await
    }

    async fn delete_all(&self, keys: &[Key]) -> Result<(), StoreError> {
        let first = keys.first().map_or("", Key::as_str);
        let failure = self.begin(Operation::Delete, "delete", first)?;
        let mut state = self.state();
        for key in keys {
            state.objects.remove(key);
        }
        done(failure, "delete", first)
    }

    async fn incomplete(&self, folder: &Folder) -> Result<Vec<Incomplete>, StoreError> {
        const WHAT: &str = "list unfinished uploads to";
        let failure = self.begin(Operation::Incomplete, WHAT, folder.as_str())?;
        done(failure, WHAT, folder.as_str())?;
        let state = self.state();
        let mine = state.uploads.iter().filter(|upload| folder.holds(&upload.key));
        Ok(mine.cloned().collect())
    }

    async fn abort(&self, upload: &Incomplete) -> Result<(), StoreError> {
        const WHAT: &str = "abort the upload of";
        let failure = self.begin(Operation::Abort, WHAT, upload.key.as_str())?;
        self.state().uploads.retain(|other| other.id != upload.id);
        done(failure, WHAT, upload.key.as_str())
    }
}

/// A connection that is broken for good.
struct Broken(Key);

impl tokio::io::AsyncRead for Broken {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Err(unreachable_store("read", self.0.as_str()).into()))
    }
}
