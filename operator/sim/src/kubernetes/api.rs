//! The fake API server as tests see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::admission::Admission;
use super::delete;
use super::failure::Failure;
use super::faults::{Faults, Fired, RequestInfo, Rule, StaleLists, WatchFault};
use super::resource::{Resource, Route};
use super::service::Endpoint;
use super::store::{Key, Store};
use super::verbs::{Options, PatchKind, Verbs};
use crate::clock::Clock;
use crate::random::Random;

/// So many requests at one instant are a loop without end.
const HOT_LOOP: usize = 5000;

/// An API server in memory. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    state: Arc<Mutex<State>>,
    wake: Arc<tokio::sync::watch::Sender<u64>>,
}

/// What the lock guards.
#[derive(Debug)]
pub struct State {
    /// Objects and changes.
    pub store: Store,
    /// Mutating webhooks.
    pub admission: Admission,
    /// Faults in force.
    pub faults: Faults,
    /// For schedules.
    pub random: Random,
    requests: Vec<RequestInfo>,
    clients: BTreeMap<String, ClientState>,
    down: bool,
    /// Clients whose packets are dropped.
    cut: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct ClientState {
    open_watches: Arc<AtomicUsize>,
    /// Rises with every forced disconnect: watches of an older number end.
    generation: Arc<AtomicUsize>,
}

/// Counts an open watch of a client as long as it lives.
#[derive(Debug)]
pub struct WatchGuard {
    client: String,
    open: Arc<AtomicUsize>,
    generation: Arc<AtomicUsize>,
    opened_in: usize,
}

impl WatchGuard {
    /// Name of the client.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The server ended the connection.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.generation.load(Ordering::SeqCst) != self.opened_in
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    /// A server with the namespaces `default` and `kube-system` and nothing else.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        let server = Self::over(Store::new(clock, seed), seed);
        for namespace in ["default", "kube-system"] {
            server.create_namespace(namespace);
        }
        server
    }

    fn over(store: Store, seed: u64) -> Self {
        let state = State {
            store,
            admission: Admission::default(),
            faults: Faults::default(),
            random: Random::new(seed ^ 0x5eed),
            requests: Vec::new(),
            clients: BTreeMap::new(),
            down: false,
            cut: BTreeSet::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            wake: Arc::new(tokio::sync::watch::Sender::new(0)),
        }
    }

    /// Another server with the same objects and their past; without clients, faults and webhooks.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        Self::over(self.with(|s| s.store.fork(seed)), seed)
    }

    /// A client. The name says who asks: counters, faults and disconnects refer to it.
    #[must_use]
    pub fn client(&self, name: &str) -> kube::Client {
        kube::Client::new(Endpoint::new(self.clone(), name), "default")
    }

    /// Runs `f` under the lock, then wakes the watches.
    pub fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.store.version();
        let result = f(&mut state);
        let changed = state.store.version() != before;
        drop(state);
        if changed {
            self.poke();
        }
        result
    }

    fn poke(&self) {
        self.wake.send_modify(|n| *n += 1);
    }

    /// Changes whenever a watch has to look again.
    #[must_use]
    pub fn wake(&self) -> tokio::sync::watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// The simulated time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.with(|s| s.store.clock)
    }

    /// Counts a new watch of a client.
    #[must_use]
    pub fn watch_guard(&self, client: &str) -> WatchGuard {
        self.with(|s| {
            let state = s.clients.entry(client.to_owned()).or_default();
            state.open_watches.fetch_add(1, Ordering::SeqCst);
            WatchGuard {
                client: client.to_owned(),
                open: Arc::clone(&state.open_watches),
                generation: Arc::clone(&state.generation),
                opened_in: state.generation.load(Ordering::SeqCst),
            }
        })
    }

    /// Number of open watches of a client.
    #[must_use]
    pub fn open_watches(&self, client: &str) -> usize {
        self.with(|s| {
            s.clients
                .get(client)
                .map_or(0, |c| c.open_watches.load(Ordering::SeqCst))
        })
    }

    /// Ends all watches of a client, as a load balancer or a restart of the server does.
    pub fn disconnect(&self, client: &str) {
        self.with(|s| {
            if let Some(state) = s.clients.get(client) {
                state.generation.fetch_add(1, Ordering::SeqCst);
            }
        });
        self.poke();
    }

    /// Stops or starts answering: while it is down every request fails as a refused connection does.
    pub fn set_down(&self, down: bool) {
        self.with(|s| {
            s.down = down;
            for client in s.clients.values().filter(|_| down) {
                client.generation.fetch_add(1, Ordering::SeqCst);
            }
        });
        self.poke();
    }

    /// Drops all packets of a client, or lets them pass again: requests and watches hang, nothing is refused.
    pub fn set_cut(&self, client: &str, cut: bool) {
        self.with(|s| {
            if cut {
                s.cut.insert(client.to_owned())
            } else {
                s.cut.remove(client)
            }
        });
        self.poke();
    }

    /// Whether the packets of a client are dropped.
    #[must_use]
    pub fn is_cut(&self, client: &str) -> bool {
        self.with(|s| s.cut.contains(client))
    }

    /// Waits until the packets of a client pass.
    pub async fn passable(&self, client: &str) {
        let mut wake = self.wake();
        while self.is_cut(client) {
            if wake.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether it answers.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.with(|s| s.down)
    }

    /// Forgets old changes: watches that resume get 410 and have to list again.
    pub fn compact(&self) {
        self.with(|s| s.store.compact());
    }

    /// Forgets the requests and the changes that were kept, so that what is allocated is what is in use.
    pub fn forget(&self) {
        self.clear_requests();
        self.with(|s| s.store.forget());
    }

    /// Injects a fault.
    #[expect(clippy::must_use_candidate, reason = "a fault happens, counted or not")]
    pub fn inject(&self, rule: Rule) -> Fired {
        self.with(|s| s.faults.add(rule))
    }

    /// Injects a fault of watches.
    pub fn inject_watch(&self, fault: WatchFault) {
        self.with(|s| s.faults.watches.insert(0, fault));
        self.poke();
    }

    /// The next lists of a client show this version.
    pub fn serve_stale_lists(&self, client: &str, version: u64, times: u64) {
        self.with(|s| {
            s.faults.stale = Some(StaleLists {
                client: client.to_owned(),
                version,
                times,
            });
        });
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.with(|s| s.faults.clear());
        self.poke();
    }

    /// Time that every request takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.with(|s| s.faults.latency = latency);
    }

    /// Adds a mutating webhook.
    pub fn add_admission(
        &self,
        hook: impl Fn(&Resource, Option<&Value>, &mut Value) -> Result<(), Failure> + Send + Sync + 'static,
    ) {
        self.with(|s| s.admission.add(hook));
    }

    /// Remembers a request.
    ///
    /// # Panics
    /// When a client asks and asks and no time passes: a hot loop, in which a simulation would never end.
    pub fn log(&self, request: RequestInfo) {
        let now = request.at;
        let loops = self.with(|s| {
            s.requests.push(request);
            let at_once = s.requests.iter().rev().take_while(|r| r.at == now);
            (s.requests.len() % HOT_LOOP == 0 && at_once.count() >= HOT_LOOP).then(|| {
                s.requests
                    .iter()
                    .rev()
                    .take(20)
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            })
        });
        #[expect(clippy::panic, reason = "a test that cannot go on has failed")]
        if let Some(last) = loops {
            panic!("{HOT_LOOP} requests at one instant, the last of them {last:#?}");
        }
    }

    /// The requests that match, in order.
    #[must_use]
    pub fn requests(&self, matches: impl Fn(&RequestInfo) -> bool) -> Vec<RequestInfo> {
        self.with(|s| s.requests.iter().filter(|r| matches(r)).cloned().collect())
    }

    /// Number of requests of a client by verb and resource.
    #[must_use]
    pub fn counters(&self, client: &str) -> BTreeMap<(&'static str, &'static str), usize> {
        let mut counters = BTreeMap::new();
        for request in self.requests(|r| r.client == client) {
            *counters.entry((request.verb, request.resource)).or_default() += 1;
        }
        counters
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.with(|s| s.requests.clear());
    }

    /// One pass of the garbage collector and of the namespace controller.
    #[must_use]
    pub fn collect_garbage(&self) -> usize {
        self.with(|s| delete::collect_garbage(&mut s.store))
    }

    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.with(|s| s.store.version())
    }

    /// Creates a namespace; none when it exists.
    pub fn create_namespace(&self, name: &str) {
        let route = Route::parse("/api/v1/namespaces");
        let body = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
        if let Some(route) = route {
            // An existing namespace is what was asked for.
            let _ = self.verbs(|v| v.create(&route, body, &Options::default()));
        }
    }

    /// Direct access, past faults and log: how the simulated rest of the world reads and writes.
    pub fn verbs<T>(&self, f: impl FnOnce(&mut Verbs<'_>) -> T) -> T {
        self.with(|s| {
            f(&mut Verbs {
                store: &mut s.store,
                admission: &s.admission,
            })
        })
    }

    /// Direct read of an object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.with(|s| s.store.get(key))
    }

    /// Direct list of the objects of a resource in one namespace or (empty) in all.
    #[must_use]
    pub fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Arc<Value>> {
        self.with(|s| s.store.list(resource, namespace).map(|(_, o)| Arc::clone(o)).collect())
    }

    /// Direct creation.
    ///
    /// # Errors
    /// What a client would get.
    pub fn create(&self, resource: &'static Resource, namespace: &str, object: Value) -> Result<Arc<Value>, Failure> {
        let route = Route {
            resource,
            namespace: namespace.to_owned(),
            name: None,
            subresource: None,
        };
        self.verbs(|v| v.create(&route, object, &world()))
    }

    /// Direct merge patch of an object or its status.
    ///
    /// # Errors
    /// What a client would get.
    pub fn patch(&self, key: &Key, subresource: Option<&str>, change: Value) -> Result<Arc<Value>, Failure> {
        let route = Route {
            resource: key.resource,
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
            subresource: subresource.map(ToOwned::to_owned),
        };
        self.verbs(|v| v.patch(&route, key, PatchKind::Merge, change, &world()))
    }

    /// Direct deletion.
    ///
    /// # Errors
    /// What a client would get.
    pub fn delete(&self, key: &Key, options: &delete::DeleteOptions) -> Result<Arc<Value>, Failure> {
        self.with(|s| delete::delete(&mut s.store, key, options))
    }
}

/// How the rest of the world writes.
fn world() -> Options {
    Options {
        manager: "world".to_owned(),
        unowned: true,
        ..Options::default()
    }
}
