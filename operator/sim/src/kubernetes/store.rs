//! Objects, their versions and the log of changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::resource::Resource;
use crate::clock::Clock;
use crate::random::Random;

/// Key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its resource.
    pub resource: &'static Resource,
    /// Its namespace, empty when cluster-wide.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// A key.
    #[must_use]
    pub fn new(resource: &'static Resource, namespace: &str, name: &str) -> Self {
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// resourceVersion that it made.
    pub version: u64,
    /// When.
    pub at: Instant,
    /// Of which object.
    pub key: Key,
    /// Before; absent when it was created.
    pub old: Option<Arc<Value>>,
    /// After; absent when it was deleted.
    pub new: Option<Arc<Value>>,
}

/// The stored objects.
#[derive(Clone, Debug)]
pub struct Store {
    version: u64,
    matters: u64,
    compacted: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    log: VecDeque<Change>,
    random: Random,
    /// The simulation's clock.
    pub clock: Clock,
}

/// Changes that are kept for watches before old ones are compacted by themselves.
const KEPT_CHANGES: usize = 50_000;

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            version: 1000,
            matters: 0,
            compacted: 0,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            random: Random::new(seed),
            clock,
        }
    }

    /// The same objects with the same past; what comes is random in another way.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            ..self.clone()
        }
    }

    /// The newest resourceVersion.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Version of the newest change that other controllers act on: of anything but leases and events.
    #[must_use]
    pub const fn matters(&self) -> u64 {
        self.matters
    }

    /// Changes up to this one are forgotten.
    #[must_use]
    pub const fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Compacts, and drops the log: there are no stale lists from before.
    pub(super) fn forget(&mut self) {
        self.compact();
        self.log.clear();
    }

    /// No watch may start from an older version any more: it gets 410. The log itself is kept for stale lists.
    pub const fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// A new uid.
    pub fn uid(&mut self) -> String {
        self.random.uuid()
    }

    /// A suffix for `generateName`.
    pub fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let count = u64::try_from(LETTERS.len()).unwrap_or(1);
        (0..5)
            .filter_map(|_| usize::try_from(self.random.below(count)).ok())
            .filter_map(|i| LETTERS.get(i).copied().map(char::from))
            .collect()
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// The objects of a resource, in one namespace or (empty) in all.
    pub fn list(&self, resource: &'static Resource, namespace: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects
            .range(Key::new(resource, namespace, "")..)
            .take_while(move |(k, _)| k.resource == resource && (namespace.is_empty() || k.namespace == namespace))
    }

    /// The objects as they were at an older version, as far as it is not compacted.
    #[must_use]
    pub fn objects_at(&self, version: u64) -> BTreeMap<Key, Arc<Value>> {
        let mut objects = self.objects.clone();
        for change in self.log.iter().rev().take_while(|c| c.version > version) {
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), Arc::clone(old)),
                None => objects.remove(&change.key),
            };
        }
        objects
    }

    /// Changes after a version.
    pub fn changes_after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let start = self.log.partition_point(|c| c.version <= version);
        self.log.iter().skip(start)
    }

    /// Stores an object under the next version and returns it.
    pub fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        }
        let new = Arc::new(object);
        let old = self.objects.insert(key.clone(), Arc::clone(&new));
        self.record(key, old, Some(Arc::clone(&new)));
        new
    }

    /// Removes an object and returns what it was.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?;
        self.version += 1;
        self.record(key.clone(), Some(Arc::clone(&old)), None);
        Some(old)
    }

    /// Removes all objects of a kind.
    pub fn remove_all(&mut self, kind: &str) {
        let keys: Vec<Key> = self
            .objects
            .keys()
            .filter(|k| k.resource.kind == kind)
            .cloned()
            .collect();
        for key in keys {
            self.remove(&key);
        }
    }

    fn record(&mut self, key: Key, old: Option<Arc<Value>>, new: Option<Arc<Value>>) {
        if !matches!(key.resource.kind, "Lease" | "Event") {
            self.matters = self.version;
        }
        self.log.push_back(Change {
            version: self.version,
            at: Instant::now(),
            key,
            old,
            new,
        });
        if self.log.len() > KEPT_CHANGES
            && let Some(oldest) = self.log.pop_front()
        {
            self.compacted = oldest.version;
        }
    }
}
