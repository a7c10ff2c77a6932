//! What the watches brought, by cluster.
//!
//! An index of our own instead of a flat store: a pass reads the few objects of its cluster without looking at those of
//! two hundred others, and what is kept can be less than the object (a view of a pod, a Secret without its values).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// Namespace and name of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ClusterName {
    /// The cluster of that name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object as it is kept: where it belongs, its name and what is kept of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    /// Cluster to which its label says it belongs.
    pub(crate) cluster: ClusterName,
    /// Name of the object.
    pub(crate) name: String,
    /// Which object it is, and how new.
    pub(crate) version: Version,
    /// What is kept of it.
    pub(crate) value: T,
}

/// Identity and age of what is known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    uid: String,
    /// resourceVersion as a number, which it is wherever etcd is behind the API server.
    number: Option<u64>,
}

impl Version {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            number: metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok()),
        }
    }

    /// Whether this is certainly an older state of the same object than `other`.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        self.uid == other.uid && matches!((self.number, other.number), (Some(a), Some(b)) if a < b)
    }
}

/// How far watches have told, by namespace.
///
/// The answer to a write of our own may come after a watch told of a later deletion of the same object. Taken in then, the
/// object would stay for ever: nothing tells of its end a second time.
#[derive(Debug, Default)]
pub(crate) struct Horizon(RwLock<HashMap<String, u64>>);

impl Horizon {
    /// A watch told of this version.
    pub(crate) fn told(&self, namespace: &str, version: &Version) {
        let Some(number) = version.number else { return };
        let mut newest = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match newest.get_mut(namespace) {
            Some(newest) => *newest = number.max(*newest),
            None => drop(newest.insert(namespace.to_owned(), number)),
        }
    }

    /// Whether a version of our own is news, given what is known under its name.
    pub(crate) fn is_news(&self, namespace: &str, own: &Version, known: Option<&Version>) -> bool {
        if let Some(known) = known.filter(|known| known.uid == own.uid) {
            return !own.is_older_than(known);
        }
        // Another object has the name, or none: whatever a watch told last is newer than what it has passed.
        let newest = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !matches!((own.number, newest.get(namespace)), (Some(own), Some(newest)) if own <= *newest)
    }
}

type Clusters<T> = HashMap<ClusterName, BTreeMap<String, (Version, Arc<T>)>>;

/// Objects of one kind by cluster and name. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Index<T> {
    inner: Arc<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    clusters: RwLock<Clusters<T>>,
    horizon: Horizon,
    /// Watches whose first list is not complete.
    listing: watch::Sender<usize>,
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<T> Index<T> {
    /// An empty index that so many watches will fill.
    pub(crate) fn new(watches: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                clusters: RwLock::default(),
                horizon: Horizon::default(),
                listing: watch::Sender::new(watches),
            }),
        }
    }

    /// The objects of a cluster by name.
    pub(crate) fn of(&self, cluster: &ClusterName) -> BTreeMap<String, Arc<T>> {
        let clusters = self.inner.clusters.read().unwrap_or_else(PoisonError::into_inner);
        let objects = clusters.get(cluster).into_iter().flatten();
        objects
            .map(|(name, (_, value))| (name.clone(), Arc::clone(value)))
            .collect()
    }

    /// One object.
    pub(crate) fn get(&self, cluster: &ClusterName, name: &str) -> Option<Arc<T>> {
        let clusters = self.inner.clusters.read().unwrap_or_else(PoisonError::into_inner);
        clusters
            .get(cluster)
            .and_then(|objects| objects.get(name))
            .map(|(_, value)| Arc::clone(value))
    }

    /// Takes in what a request of our own brought, so that the next pass sees it before the watch tells it.
    pub(crate) fn put(&self, entry: Entry<T>) {
        let mut clusters = self.inner.clusters.write().unwrap_or_else(PoisonError::into_inner);
        let known = clusters
            .get(&entry.cluster)
            .and_then(|objects| objects.get(&entry.name));
        let known = known.map(|(version, _)| version);
        let namespace = &entry.cluster.namespace;
        if self.inner.horizon.is_news(namespace, &entry.version, known) {
            let objects = clusters.entry(entry.cluster).or_default();
            objects.insert(entry.name, (entry.version, Arc::new(entry.value)));
        }
    }

    /// Takes in what a watch tells.
    fn take(&self, entry: Entry<T>) {
        let mut clusters = self.inner.clusters.write().unwrap_or_else(PoisonError::into_inner);
        self.inner.horizon.told(&entry.cluster.namespace, &entry.version);
        let objects = clusters.entry(entry.cluster).or_default();
        // A watch that lags behind our own writes must not take them back.
        if objects
            .get(&entry.name)
            .is_none_or(|(known, _)| !entry.version.is_older_than(known))
        {
            objects.insert(entry.name, (entry.version, Arc::new(entry.value)));
        }
    }

    /// Waits until the first list of every watch was complete.
    pub(crate) async fn ready(&self) {
        // An error means that the sender is gone, and with it the process.
        let _ = self.inner.listing.subscribe().wait_for(|listing| *listing == 0).await;
    }
}

/// What one watch writes into an index.
#[derive(Debug)]
pub(crate) struct Writer<T> {
    index: Index<T>,
    /// The namespace that the watch sees; `None`: all.
    namespace: Option<String>,
    /// What a list in progress brought so far: it replaces the content only when it is complete.
    listing: Clusters<T>,
    listed: bool,
}

impl<T> Writer<T> {
    pub(crate) fn new(index: Index<T>, namespace: Option<String>) -> Self {
        Self {
            index,
            namespace,
            listing: HashMap::new(),
            listed: false,
        }
    }

    /// Takes an event in and tells which clusters it touches. `None` is an object that belongs to no cluster.
    pub(crate) fn apply(&mut self, event: Event<Option<Entry<T>>>) -> Vec<ClusterName> {
        match event {
            Event::Apply(None) | Event::Delete(None) | Event::InitApply(None) => Vec::new(),
            Event::Apply(Some(entry)) => {
                let cluster = entry.cluster.clone();
                self.index.take(entry);
                vec![cluster]
            }
            Event::Delete(Some(entry)) => {
                let mut clusters = self.write();
                self.index.inner.horizon.told(&entry.cluster.namespace, &entry.version);
                if let Some(objects) = clusters.get_mut(&entry.cluster) {
                    objects.remove(&entry.name);
                    if objects.is_empty() {
                        clusters.remove(&entry.cluster);
                    }
                }
                vec![entry.cluster]
            }
            Event::Init => {
                self.listing = HashMap::new();
                Vec::new()
            }
            Event::InitApply(Some(entry)) => {
                self.index.inner.horizon.told(&entry.cluster.namespace, &entry.version);
                let value = (entry.version, Arc::new(entry.value));
                self.listing.entry(entry.cluster).or_default().insert(entry.name, value);
                Vec::new()
            }
            Event::InitDone => self.replace(),
        }
    }

    fn replace(&mut self) -> Vec<ClusterName> {
        let listed = std::mem::take(&mut self.listing);
        let mut touched: Vec<ClusterName> = listed.keys().cloned().collect();
        let mut clusters = self.write();
        let seen = |cluster: &ClusterName| self.namespace.as_ref().is_none_or(|n| *n == cluster.namespace);
        touched.extend(
            clusters
                .extract_if(|cluster, _| seen(cluster))
                .map(|(cluster, _)| cluster),
        );
        clusters.extend(listed);
        drop(clusters);
        touched.sort();
        touched.dedup();
        if !std::mem::replace(&mut self.listed, true) {
            self.index
                .inner
                .listing
                .send_modify(|listing| *listing = listing.saturating_sub(1));
        }
        touched
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Clusters<T>> {
        self.index
            .inner
            .clusters
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cluster: &str, name: &str, value: u32) -> Entry<u32> {
        let version = Version {
            uid: "u".to_owned(),
            number: Some(value.into()),
        };
        Entry {
            cluster: ClusterName::new("db", cluster),
            name: name.to_owned(),
            version,
            value,
        }
    }

    fn values(index: &Index<u32>, cluster: &str) -> Vec<u32> {
        index
            .of(&ClusterName::new("db", cluster))
            .values()
            .map(|v| **v)
            .collect()
    }

    #[test]
    fn a_list_replaces_the_content_only_when_complete() {
        let index = Index::new(1);
        let mut writer = Writer::new(index.clone(), None);
        writer.apply(Event::Init);
        writer.apply(Event::InitApply(Some(entry("shop", "a", 1))));
        writer.apply(Event::InitDone);
        assert_eq!(values(&index, "shop"), [1]);

        // The connection breaks in the middle of a re-list: nothing was lost.
        writer.apply(Event::Init);
        writer.apply(Event::InitApply(Some(entry("blog", "b", 2))));
        assert_eq!(values(&index, "shop"), [1]);
        assert!(values(&index, "blog").is_empty());

        // The next list is complete; both the clusters that came and those that went are looked at.
        writer.apply(Event::Init);
        writer.apply(Event::InitApply(Some(entry("blog", "b", 3))));
        let touched = writer.apply(Event::InitDone);
        assert_eq!(
            touched,
            [ClusterName::new("db", "blog"), ClusterName::new("db", "shop")]
        );
        assert!(values(&index, "shop").is_empty());
        assert_eq!(values(&index, "blog"), [3]);
    }

    #[test]
    fn deleted_objects_leave_nothing_behind() {
        let index = Index::new(1);
        let mut writer = Writer::new(index.clone(), None);
        writer.apply(Event::Apply(Some(entry("shop", "a", 1))));
        assert_eq!(
            writer.apply(Event::Delete(Some(entry("shop", "a", 1)))),
            [ClusterName::new("db", "shop")]
        );
        assert!(index.inner.clusters.read().unwrap().is_empty());
        assert!(writer.apply(Event::Apply(None)).is_empty());
    }

    #[tokio::test]
    async fn is_ready_after_the_first_list() {
        let index: Index<u32> = Index::new(1);
        let mut writer = Writer::new(index.clone(), None);
        let mut ready = Box::pin(index.ready());
        writer.apply(Event::Init);
        assert!(futures::poll!(&mut ready).is_pending());
        writer.apply(Event::InitDone);
        ready.await;
    }

    #[tokio::test]
    async fn a_list_of_one_namespace_leaves_the_others() {
        let index: Index<u32> = Index::new(2);
        let mut db = Writer::new(index.clone(), Some("db".to_owned()));
        let mut web = Writer::new(index.clone(), Some("web".to_owned()));
        db.apply(Event::Apply(Some(entry("shop", "a", 1))));
        db.apply(Event::InitDone);
        web.apply(Event::InitDone);
        index.ready().await;
        assert!(values(&index, "shop").is_empty());
        db.apply(Event::Apply(Some(entry("shop", "a", 1))));
        web.apply(Event::Init);
        assert!(web.apply(Event::InitDone).is_empty());
        assert_eq!(values(&index, "shop"), [1]);
    }

    #[test]
    fn a_watch_that_lags_does_not_take_back_our_own_write() {
        let index: Index<u32> = Index::new(1);
        let mut writer = Writer::new(index.clone(), None);
        index.put(entry("shop", "a", 7));
        writer.apply(Event::Apply(Some(entry("shop", "a", 5))));
        assert_eq!(values(&index, "shop"), [7]);
        writer.apply(Event::Apply(Some(entry("shop", "a", 8))));
        assert_eq!(values(&index, "shop"), [8]);
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_its_object_is_no_news() {
        let index: Index<u32> = Index::new(1);
        let mut writer = Writer::new(index.clone(), None);
        writer.apply(Event::Apply(Some(entry("shop", "a", 5))));
        writer.apply(Event::Delete(Some(entry("shop", "a", 6))));
        index.put(entry("shop", "a", 5));
        assert!(values(&index, "shop").is_empty(), "nothing tells of its end again");
        index.put(entry("shop", "a", 7));
        assert_eq!(values(&index, "shop"), [7], "made anew");

        // Nor does an answer about a former object take the place of the one that followed it.
        let mut other = entry("shop", "a", 8);
        other.version.uid = "other".to_owned();
        writer.apply(Event::Apply(Some(other)));
        index.put(entry("shop", "a", 7));
        assert_eq!(values(&index, "shop"), [8]);
    }
}
