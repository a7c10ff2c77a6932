//! The Secrets of users that specs name: each is watched by its name, as long as a cluster names it.
//!
//! They carry no label of Mainstay, so the watch of Secrets does not see them. Only metadata is asked for, and of that only the
//! version is kept: enough to notice that one appeared, was changed or is gone, without asking again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt as _};
use tokio_util::task::AbortOnDropHandle;

use crate::index::ClusterName;
use crate::metrics::Metrics;
use crate::trigger::Triggers;
use crate::watch::patient;

/// What is known of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// Nothing yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// There is one: its uid and resourceVersion.
    Known(String),
}

/// The Secrets that are watched. Cheap to clone.
#[derive(Clone)]
pub(crate) struct UserSecrets {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    triggers: Triggers,
    metrics: Arc<Metrics>,
    /// By namespace and name.
    watched: Mutex<BTreeMap<(String, String), Watched>>,
}

struct Watched {
    state: Arc<Mutex<State>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    version: Version,
    /// Who names it.
    clusters: BTreeSet<ClusterName>,
}

impl UserSecrets {
    pub(crate) fn new(client: Client, triggers: Triggers, metrics: Arc<Metrics>) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                triggers,
                metrics,
                watched: Mutex::default(),
            }),
        }
    }

    /// A cluster names these Secrets, and no others any more; what is known of each.
    pub(crate) fn of(&self, cluster: &ClusterName, names: &BTreeSet<String>) -> BTreeMap<String, Version> {
        let mut watched = self.inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|(namespace, name), watched| {
            let mut state = lock(&watched.state);
            if *namespace == cluster.namespace && !names.contains(name) {
                state.clusters.remove(cluster);
            }
            !state.clusters.is_empty()
        });
        let version = |name: &String| {
            let key = (cluster.namespace.clone(), name.clone());
            let watched = watched.entry(key).or_insert_with_key(|key| self.watch(&key.0, &key.1));
            let mut state = lock(&watched.state);
            state.clusters.insert(cluster.clone());
            (name.clone(), state.version.clone())
        };
        names.iter().map(version).collect()
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.of(cluster, &BTreeSet::new());
    }

    fn watch(&self, namespace: &str, name: &str) -> Watched {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(self.inner.client.clone(), namespace);
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let events = patient(
            watcher(api, config),
            "Secret".to_owned(),
            Arc::clone(&self.inner.metrics),
        );
        let state = Arc::new(Mutex::new(State::default()));
        let (told, triggers) = (Arc::clone(&state), self.inner.triggers.clone());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut listed = Version::Absent;
            while let Some(event) = events.next().await {
                let version = match event {
                    Event::Init => {
                        listed = Version::Absent;
                        continue;
                    }
                    Event::InitApply(secret) => {
                        listed = version(&secret);
                        continue;
                    }
                    Event::InitDone => listed.clone(),
                    Event::Apply(secret) => version(&secret),
                    Event::Delete(_) => Version::Absent,
                };
                for cluster in take(&told, version) {
                    triggers.poke(&cluster);
                }
            }
        });
        Watched {
            state,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

/// Notes a version; whom it concerns, if it is another one.
fn take(state: &Mutex<State>, version: Version) -> Vec<ClusterName> {
    let mut state = lock(state);
    if state.version == version {
        return Vec::new();
    }
    state.version = version;
    state.clusters.iter().cloned().collect()
}

fn version(secret: &PartialObjectMeta<Secret>) -> Version {
    let uid = secret.uid().unwrap_or_default();
    Version::Known(format!("{uid}/{}", secret.resource_version().unwrap_or_default()))
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
