//! The watches: one task for each kind and namespace, from the API server into the indexes.
//!
//! An error delays its own watch alone; a stream of errors cannot keep status streams or other kinds from calling a pass.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event as KubeEvent, PersistentVolumeClaim, Pod, Secret};
use kube::api::Api;
use kube::core::{ApiResource, DeserializeGuard, DynamicObject, TypeMeta};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::ExponentialBackoff};
use kube::{Client, Resource};
use mainstay_api::{MySQLBackup, MySQLCluster};
use mainstay_core::names::Names;
use mainstay_core::observed::{ClaimView, ObjectKind, PodView, Warning};
use mainstay_core::rules::InstanceName;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use crate::clusters::{ClusterWriter, Clusters, Fate, Guarded};
use crate::index::{ClusterName, Entry, Index, Writer};
use crate::kinds;
use crate::metrics::Metrics;
use crate::pool::{PodAddress, Pool};
use crate::secret_data::{self, Redacted, TLS_CRT};
use crate::trigger::Triggers;
use crate::views::{self, BackupPodView, JobView};

/// What the API server holds, as far as it is watched. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clusters: Clusters,
    pub(crate) pods: Index<PodView>,
    pub(crate) claims: Index<ClaimView>,
    pub(crate) secrets: Index<Redacted>,
    pub(crate) objects: HashMap<ObjectKind, Index<DynamicObject>>,
    pub(crate) warnings: Index<Warning>,
    pub(crate) backups: Index<MySQLBackup>,
    pub(crate) jobs: Index<JobView>,
    pub(crate) backup_pods: Index<BackupPodView>,
}

impl World {
    /// Nothing yet; so many watches of each kind will fill it.
    pub(crate) fn new(watches: usize) -> Self {
        let built = kinds::BUILT.into_iter().filter(|kind| *kind != ObjectKind::Secret);
        Self {
            clusters: Clusters::new(watches),
            pods: Index::new(watches),
            claims: Index::new(watches),
            secrets: Index::new(watches),
            objects: built.map(|kind| (kind, Index::new(watches))).collect(),
            warnings: Index::new(watches),
            backups: Index::new(watches),
            jobs: Index::new(watches),
            backup_pods: Index::new(watches),
        }
    }

    /// Waits until every first list was complete.
    pub(crate) async fn ready(&self) {
        self.clusters.ready().await;
        self.pods.ready().await;
        self.claims.ready().await;
        self.secrets.ready().await;
        for index in self.objects.values() {
            index.ready().await;
        }
        self.warnings.ready().await;
        self.backups.ready().await;
        self.jobs.ready().await;
        self.backup_pods.ready().await;
    }
}

/// Who wants to know about changes.
#[derive(Clone)]
pub(crate) struct Listeners {
    pub(crate) triggers: Triggers,
    pub(crate) pool: Pool,
    pub(crate) metrics: Arc<Metrics>,
    /// Called with the name of a cluster that was deleted.
    pub(crate) died: Arc<dyn Fn(&ClusterName) + Send + Sync>,
}

/// The watches; they end when this is dropped.
pub(crate) struct Watches {
    pub(crate) world: World,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Starts every watch, in these namespaces or, without any, in all.
pub(crate) fn start(client: &Client, namespaces: &[String], listeners: &Listeners) -> Watches {
    let scopes: Vec<Option<String>> = if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.iter().cloned().map(Some).collect()
    };
    let watches = scopes.len();
    let world = World::new(watches);
    let starter = Starter {
        client: client.clone(),
        listeners: listeners.clone(),
        world: world.clone(),
    };
    let tasks = scopes.into_iter().flat_map(|scope| starter.scope(scope)).collect();
    Watches { world, _tasks: tasks }
}

struct Starter {
    client: Client,
    listeners: Listeners,
    world: World,
}

impl Starter {
    fn scope(&self, scope: Option<String>) -> Vec<AbortOnDropHandle<()>> {
        let ours = || Config::default().labels(views::MANAGED);
        let mut tasks = vec![self.clusters(scope.as_deref())];
        let pods = self.api::<DeserializeGuard<Pod>>(scope.as_deref());
        tasks.push(self.index(&self.world.pods, pods, ours(), scope.clone(), |pod| {
            views::pod(&readable("Pod", pod)?)
        }));
        let claims = self.api::<DeserializeGuard<PersistentVolumeClaim>>(scope.as_deref());
        tasks.push(self.index(&self.world.claims, claims, ours(), scope.clone(), |claim| {
            views::claim(&readable("PersistentVolumeClaim", claim)?)
        }));
        let secrets = self.api::<DeserializeGuard<Secret>>(scope.as_deref());
        tasks.push(
            self.index(&self.world.secrets, secrets, ours(), scope.clone(), |secret| {
                views::secret(readable("Secret", secret)?)
            }),
        );
        for (kind, index) in &self.world.objects {
            let resource = kinds::resource(*kind);
            let api = self.dynamic(scope.as_deref(), &resource);
            let types = TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            };
            tasks.push(self.index_with(
                index,
                api,
                ours(),
                scope.clone(),
                resource.kind,
                move |mut object: DynamicObject| {
                    // Items of a list come without: to a comparison they would differ from what is built.
                    object.types.get_or_insert_with(|| types.clone());
                    views::object(object)
                },
            ));
        }
        tasks.extend(self.backups(scope.as_deref()));
        // The Event kind of the core group: only there warnings can be selected.
        let events = self.api::<DeserializeGuard<KubeEvent>>(scope.as_deref());
        let clusters = self.world.clusters.clone();
        let warnings = Config::default().fields("type=Warning");
        tasks.push(self.index(&self.world.warnings, events, warnings, scope, move |event| {
            views::warning(&readable("Event", event)?, |cluster| clusters.get(cluster).is_some())
        }));
        tasks
    }

    /// Backups, which people create too, and what is made for them.
    fn backups(&self, scope: Option<&str>) -> [AbortOnDropHandle<()>; 3] {
        let made = || Config::default().labels(views::BACKUPS);
        let namespace = scope.map(str::to_owned);
        let backups = self.api::<DeserializeGuard<MySQLBackup>>(scope);
        let jobs = self.api::<DeserializeGuard<Job>>(scope);
        let pods = self.api::<DeserializeGuard<Pod>>(scope);
        [
            self.index(
                &self.world.backups,
                backups,
                Config::default(),
                namespace.clone(),
                |backup| views::backup(readable("MySQLBackup", backup)?),
            ),
            self.index(&self.world.jobs, jobs, made(), namespace.clone(), |job| {
                views::job(&readable("Job", job)?)
            }),
            self.index(&self.world.backup_pods, pods, made(), namespace, |pod| {
                views::backup_pod(&readable("Pod", pod)?)
            }),
        ]
    }

    fn api<K>(&self, scope: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn dynamic(&self, scope: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
        match scope {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    fn index<K, T>(
        &self,
        index: &Index<T>,
        api: Api<K>,
        config: Config,
        scope: Option<String>,
        keep: impl Fn(K) -> Option<Entry<T>> + Send + Sync + 'static,
    ) -> AbortOnDropHandle<()>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        self.index_with(index, api, config, scope, K::kind(&()).into_owned(), keep)
    }

    fn index_with<K, T>(
        &self,
        index: &Index<T>,
        api: Api<K>,
        config: Config,
        scope: Option<String>,
        kind: String,
        keep: impl Fn(K) -> Option<Entry<T>> + Send + Sync + 'static,
    ) -> AbortOnDropHandle<()>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync + 'static,
    {
        let mut writer = Writer::new(index.clone(), scope);
        let listeners = self.listeners.clone();
        let world = self.world.clone();
        let events = patient(watcher(api, config), kind, Arc::clone(&listeners.metrics));
        AbortOnDropHandle::new(tokio::spawn(async move {
            // What belongs to no known cluster is told to nobody, and warnings about it are not even kept.
            world.clusters.ready().await;
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                for cluster in writer.apply(map(event, &keep)) {
                    tell(&world, &listeners, &cluster);
                }
            }
        }))
    }

    fn clusters(&self, scope: Option<&str>) -> AbortOnDropHandle<()> {
        let api: Api<Guarded> = self.api(scope);
        let mut writer = ClusterWriter::new(self.world.clusters.clone());
        let listeners = self.listeners.clone();
        let world = self.world.clone();
        let kind = MySQLCluster::kind(&()).into_owned();
        let events = patient(watcher(api, Config::default()), kind, Arc::clone(&listeners.metrics));
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                for fate in writer.apply(slim(event)) {
                    match fate {
                        Fate::Lives(cluster) => tell(&world, &listeners, &cluster),
                        Fate::Died(cluster) => {
                            listeners.pool.forget(&cluster);
                            listeners.metrics.forget(&cluster);
                            (listeners.died)(&cluster);
                        }
                    }
                }
            }
        }))
    }
}

/// Brings the pool up to what is known of a cluster, and calls a pass of it.
fn tell(world: &World, listeners: &Listeners, cluster: &ClusterName) {
    // Pods of a cluster that was deleted, or that is not known yet, are nobody's.
    if world.clusters.get(cluster).is_none() {
        return;
    }
    let ca = world
        .secrets
        .get(cluster, &Names::new(&cluster.namespace, &cluster.name).ca_secret());
    let bundle = ca
        .as_ref()
        .and_then(|secret| secret.public.get(secret_data::CA_CRT).or(secret.public.get(TLS_CRT)));
    listeners.pool.trust(cluster, bundle.map(String::as_str));
    let pods = world.pods.of(cluster).into_iter().filter_map(|(name, pod)| {
        let ip = pod.ip.as_deref()?.parse().ok()?;
        Some((
            InstanceName(name),
            PodAddress {
                uid: pod.uid.clone(),
                ip,
            },
        ))
    });
    listeners.pool.set_pods(cluster, &pods.collect());
    listeners.triggers.poke(cluster);
}

/// The events of a watch; its errors are counted, logged and waited out.
pub(crate) fn patient<K>(
    events: impl Stream<Item = Result<Event<K>, Error>> + Send,
    kind: String,
    metrics: Arc<Metrics>,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Send,
{
    events.backoff(backoff()).filter_map(move |event| {
        let kept = match event {
            Ok(event) => Some(event),
            Err(error) => {
                metrics.watch_error(&kind);
                tracing::warn!(
                    kind,
                    error = crate::error::chain(&error),
                    "watch failed; it is tried again"
                );
                None
            }
        };
        std::future::ready(kept)
    })
}

/// 100 ms to 10 s, from the beginning again after 20 s without an error. Not reset by an event alone: the first event of
/// a list comes before its request.
fn backoff() -> impl Backoff {
    let delays = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(10))
        .with_jitter()
        .without_max_times();
    Steady(ResetTimerBackoff::new(
        ExponentialBackoff::from(delays),
        Duration::from_secs(20),
    ))
}

/// A backoff that only its own timer resets.
struct Steady<B>(B);

impl<B: Backoff> Iterator for Steady<B> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }
}

impl<B: Backoff> Backoff for Steady<B> {
    fn reset(&mut self) {}
}

fn map<K, T>(event: Event<K>, keep: &impl Fn(K) -> Option<Entry<T>>) -> Event<Option<Entry<T>>> {
    match event {
        Event::Apply(object) => Event::Apply(keep(object)),
        Event::Delete(object) => Event::Delete(keep(object)),
        Event::InitApply(object) => Event::InitApply(keep(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// Drops what nobody reads.
fn slim(event: Event<Guarded>) -> Event<Guarded> {
    event.modify(|object| object.meta_mut().managed_fields = None)
}

/// The object, or a warning that it could not be read.
fn readable<K: Resource<DynamicType = ()>>(kind: &'static str, object: DeserializeGuard<K>) -> Option<K> {
    match object.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let name = invalid.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(kind, name, error = invalid.error, "failed to read an object");
            None
        }
    }
}
