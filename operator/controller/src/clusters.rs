//! The `MySQLCluster` objects, in the store that the queue of passes reads.
//!
//! kube's store is replaced as a whole by each list, which is right for one watch; with one watch for each of several
//! namespaces a list must leave the others alone. So lists are turned into single changes here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource as _, ResourceExt as _};
use mainstay_api::MySQLCluster;
use tokio::sync::watch;

use crate::index::{ClusterName, Horizon, Version};

/// A cluster, or the reason why it could not be read.
pub(crate) type Guarded = DeserializeGuard<MySQLCluster>;

/// All clusters that are watched. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Clusters {
    store: Store<Guarded>,
    writer: Arc<Mutex<reflector::store::Writer<Guarded>>>,
    horizon: Arc<Horizon>,
    /// Watches whose first list is not complete.
    listing: Arc<watch::Sender<usize>>,
}

impl Clusters {
    /// No clusters, and so many watches that will bring some.
    pub(crate) fn new(watches: usize) -> Self {
        let (store, mut writer) = reflector::store();
        // The store counts as ready from now on: whoever reads it has waited for `ready` of this type.
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        Self {
            store,
            writer: Arc::new(Mutex::new(writer)),
            horizon: Arc::default(),
            listing: Arc::new(watch::Sender::new(watches)),
        }
    }

    /// The store, for kube.
    pub(crate) fn store(&self) -> Store<Guarded> {
        self.store.clone()
    }

    /// One cluster.
    pub(crate) fn get(&self, cluster: &ClusterName) -> Option<Arc<Guarded>> {
        self.store.get(&reference(cluster))
    }

    /// Takes in what a request of our own brought, so that the next pass sees it before the watch tells it.
    pub(crate) fn put(&self, object: Guarded) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = object.namespace().unwrap_or_default();
        let version = Version::of(object.meta());
        if self.horizon.is_news(&namespace, &version, self.known(&object).as_ref()) {
            writer.apply_watcher_event(&Event::Apply(object));
        }
    }

    /// Takes in what a watch tells.
    fn take(&self, object: Guarded) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let version = Version::of(object.meta());
        self.horizon.told(&object.namespace().unwrap_or_default(), &version);
        // A watch that lags behind our own writes must not take them back.
        if self.known(&object).is_none_or(|known| !version.is_older_than(&known)) {
            writer.apply_watcher_event(&Event::Apply(object));
        }
    }

    fn known(&self, object: &Guarded) -> Option<Version> {
        let known = self.store.get(&ObjectRef::from_obj(object));
        known.map(|known| Version::of(known.meta()))
    }

    /// The names of all clusters.
    pub(crate) fn names(&self) -> Vec<ClusterName> {
        self.store.state().iter().filter_map(|object| name(object)).collect()
    }

    /// Waits until the first list of every watch was complete.
    pub(crate) async fn ready(&self) {
        // An error means that the sender is gone, and with it the process.
        let _ = self.listing.subscribe().wait_for(|listing| *listing == 0).await;
    }
}

/// The key by which kube knows a cluster.
pub(crate) fn reference(cluster: &ClusterName) -> ObjectRef<Guarded> {
    ObjectRef::new(&cluster.name).within(&cluster.namespace)
}

/// Namespace and name of a cluster.
pub(crate) fn name(object: &Guarded) -> Option<ClusterName> {
    Some(ClusterName::new(object.namespace()?, object.meta().name.clone()?))
}

/// What became of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is new or has changed.
    Lives(ClusterName),
    /// It was deleted.
    Died(ClusterName),
}

/// What one watch writes into the clusters.
pub(crate) struct ClusterWriter {
    clusters: Clusters,
    /// What this watch wrote, to tell what is missing from a list.
    known: BTreeSet<ClusterName>,
    listing: BTreeMap<ClusterName, Guarded>,
    listed: bool,
}

impl ClusterWriter {
    pub(crate) fn new(clusters: Clusters) -> Self {
        Self {
            clusters,
            known: BTreeSet::new(),
            listing: BTreeMap::new(),
            listed: false,
        }
    }

    /// Takes an event in and tells which clusters it touches.
    pub(crate) fn apply(&mut self, event: Event<Guarded>) -> Vec<Fate> {
        match event {
            Event::Apply(object) => name(&object).map(|name| self.lives(name, object)).into_iter().collect(),
            Event::Delete(object) => {
                let version = Version::of(object.meta());
                let died = name(&object).map(|name| {
                    self.clusters.horizon.told(&name.namespace, &version);
                    self.died(name)
                });
                died.into_iter().collect()
            }
            Event::Init => {
                self.listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(name) = name(&object) {
                    self.listing.insert(name, object);
                }
                Vec::new()
            }
            Event::InitDone => self.replace(),
        }
    }

    fn replace(&mut self) -> Vec<Fate> {
        let listed = std::mem::take(&mut self.listing);
        let gone: Vec<ClusterName> = self
            .known
            .iter()
            .filter(|name| !listed.contains_key(name))
            .cloned()
            .collect();
        let mut fates: Vec<Fate> = gone.into_iter().map(|name| self.died(name)).collect();
        fates.extend(listed.into_iter().map(|(name, object)| self.lives(name, object)));
        if !std::mem::replace(&mut self.listed, true) {
            self.clusters
                .listing
                .send_modify(|listing| *listing = listing.saturating_sub(1));
        }
        fates
    }

    fn lives(&mut self, name: ClusterName, object: Guarded) -> Fate {
        self.clusters.take(object);
        self.known.insert(name.clone());
        Fate::Lives(name)
    }

    fn died(&mut self, name: ClusterName) -> Fate {
        self.known.remove(&name);
        // The store looks at the key alone.
        let metadata = ObjectMeta {
            name: Some(name.name.clone()),
            namespace: Some(name.namespace.clone()),
            ..ObjectMeta::default()
        };
        let gone = Event::Delete(DeserializeGuard(Err(InvalidObject {
            error: String::new(),
            metadata,
        })));
        self.clusters
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .apply_watcher_event(&gone);
        Fate::Died(name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, replicas: &serde_json::Value) -> Guarded {
        serde_json::from_value(json!({
            "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"replicas": replicas, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}}
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_list_of_one_namespace_leaves_the_others_and_tells_who_is_gone() {
        let clusters = Clusters::new(2);
        let (mut db, mut web) = (
            ClusterWriter::new(clusters.clone()),
            ClusterWriter::new(clusters.clone()),
        );
        for (writer, namespace) in [(&mut db, "db"), (&mut web, "web")] {
            writer.apply(Event::Init);
            writer.apply(Event::InitApply(object(namespace, "shop", &json!(3))));
            writer.apply(Event::InitDone);
        }
        clusters.ready().await;
        assert_eq!(clusters.names().len(), 2);
        db.apply(Event::Init);
        assert_eq!(db.apply(Event::InitDone), [Fate::Died(ClusterName::new("db", "shop"))]);
        assert_eq!(clusters.names(), [ClusterName::new("web", "shop")]);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_kept_as_such() {
        let clusters = Clusters::new(1);
        let mut writer = ClusterWriter::new(clusters.clone());
        writer.apply(Event::Apply(object("db", "shop", &json!("three"))));
        let kept = clusters.get(&ClusterName::new("db", "shop")).unwrap();
        assert!(kept.0.as_ref().unwrap_err().error.contains("three"));
    }
}
