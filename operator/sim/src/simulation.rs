//! Everything together: a Kubernetes, a world, operators, and what a test wants to know.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use mainstay_api::MySQLCluster;
use mainstay_controller::platform::{self, Entropy, Platform};
use mainstay_controller::{Clients, Metrics, Parts, Settings};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::kubernetes::{Key, Resource, Server};
use crate::random::Random;
use crate::world::{SimDialler, SimPages, World};

/// Namespace of the operator.
pub const OPERATOR_NAMESPACE: &str = "mainstay-system";

/// A simulation. It ends when it is dropped.
#[derive(Debug)]
pub struct Simulation {
    /// Seed of everything that is random in it.
    pub seed: u64,
    /// The API server.
    pub server: Server,
    /// Nodes, pods, MySQL and clients.
    pub world: World,
    driver: JoinHandle<()>,
    starts: Mutex<u64>,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A running operator process. It dies when it is dropped: otherwise it would live on in the worlds that come after it.
#[derive(Debug)]
pub struct Operator {
    /// Its name: the name of its API client, and its end of network cuts.
    pub name: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Operator {
    /// Ends the process between two instructions, as SIGKILL does. Commands that it sent still arrive.
    pub async fn crash(mut self) {
        self.task.abort();
        // Cancelled is what was asked for.
        let _ = (&mut self.task).await;
    }

    /// Asks the process to end, as SIGTERM does, and waits for it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }

    /// Whether it ended by itself.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.task.is_finished()
    }
}

#[derive(Debug)]
struct SeededEntropy(Mutex<Random>);

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in buffer {
            *byte = random.bits().to_be_bytes()[0];
        }
    }
}

impl platform::Clock for Clock {
    fn now(&self) -> Timestamp {
        Clock::now(self)
    }
}

impl Simulation {
    /// A simulation with three nodes, the namespaces of the operator and `shop`, and no operator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let server = Server::new(Clock::new(), seed);
        for namespace in [OPERATOR_NAMESPACE, "shop"] {
            server.create_namespace(namespace);
        }
        let world = World::new(server.clone(), &["node-1", "node-2", "node-3"], seed);
        let driver = world.start();
        Self {
            seed,
            server,
            world,
            driver,
            starts: Mutex::new(0),
        }
    }

    /// Another simulation that begins where this one is, without operators: a healthy cluster for the price of a copy.
    ///
    /// Nobody holds the leader lease in it. Both go on within the same runtime.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let server = self.server.fork(seed);
        server.with(|s| s.store.remove_all("Lease"));
        let world = self.world.fork(server.clone(), seed);
        let driver = world.start();
        // Another start is another operator, whatever the seed.
        let starts = *self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            seed,
            server,
            world,
            driver,
            starts: Mutex::new(starts),
        }
    }

    /// Starts an operator process. The name stays over restarts, its identity does not.
    #[must_use]
    pub fn start_operator(&self, name: &str) -> Operator {
        self.start(name, |_| {})
    }

    /// Starts an operator process that asks no lease whether it may work: it overlaps with every other one.
    #[must_use]
    pub fn start_rival(&self, name: &str) -> Operator {
        self.start(name, |settings| settings.lease = None)
    }

    fn start(&self, name: &str, change: impl FnOnce(&mut Settings)) -> Operator {
        let start = {
            let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
            *starts += 1;
            *starts
        };
        let clock = self.server.clock();
        let entropy = SeededEntropy(Mutex::new(Random::new(
            self.seed.wrapping_mul(1009).wrapping_add(start),
        )));
        let clients = Clients {
            requests: self.server.client(name),
            watches: self.server.client(name),
        };
        let mut settings = Settings::new("mainstay:test");
        settings.operator_namespace = Some(OPERATOR_NAMESPACE.to_owned());
        settings.health_addr = None;
        settings.metrics_addr = None;
        change(&mut settings);
        let stop = CancellationToken::new();
        let cancelled = stop.clone();
        let dialler = SimDialler::new(self.world.clone(), name);
        let stores = self.world.stores();
        let pages = SimPages(self.world.clone());
        let task = tokio::spawn(async move {
            let metrics = match Metrics::new() {
                Ok(metrics) => Arc::new(metrics),
                Err(error) => {
                    tracing::error!(%error, "failed to make metrics");
                    return;
                }
            };
            let platform = Platform::new(Arc::new(clock), Arc::new(entropy));
            let parts = Parts {
                clients,
                dialler: Some(Arc::new(dialler)),
                platform,
                metrics,
                stores: Arc::new(stores),
                pages: Arc::new(pages),
            };
            if let Err(error) = mainstay_controller::run_with(settings, parts, cancelled).await {
                tracing::error!(%error, "the operator ended");
            }
        });
        Operator {
            name: name.to_owned(),
            stop,
            task,
        }
    }

    /// The clusters of a namespace, as a user's client sees them.
    #[must_use]
    pub fn clusters(&self, namespace: &str) -> Api<MySQLCluster> {
        Api::namespaced(self.server.client("user"), namespace)
    }

    /// A small cluster.
    #[must_use]
    pub fn manifest(name: &str, replicas: i32) -> Value {
        json!({
            "apiVersion": "mysql.mainstay.dev/v1", "kind": "MySQLCluster", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "image": "mysql:9.7.4", "storage": {"size": "2Gi"},
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            },
        })
    }

    /// Creates a cluster.
    pub async fn create(&self, namespace: &str, manifest: Value) -> Result<MySQLCluster, kube::Error> {
        let cluster: MySQLCluster = serde_json::from_value(manifest).map_err(kube::Error::SerdeError)?;
        self.clusters(namespace).create(&PostParams::default(), &cluster).await
    }

    /// Deletes a cluster.
    pub async fn delete(&self, namespace: &str, name: &str) -> Result<(), kube::Error> {
        self.clusters(namespace)
            .delete(name, &DeleteParams::default())
            .await
            .map(|_| ())
    }

    /// The cluster as it is stored.
    #[must_use]
    pub fn cluster(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let resource = Resource::find(mainstay_api::GROUP, "mysqlclusters")?;
        self.server.get(&Key::new(resource, namespace, name))
    }

    /// Waits until something holds, at most `limit` of simulated time; tells whether it did.
    pub async fn wait(&self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut changes = self.world.changes();
        let mut objects = self.server.wake();
        loop {
            changes.borrow_and_update();
            objects.borrow_and_update();
            if holds(self) {
                return true;
            }
            tokio::select! {
                biased;
                result = changes.changed() => if result.is_err() { return false },
                result = objects.changed() => if result.is_err() { return false },
                () = tokio::time::sleep_until(deadline) => return holds(self),
            }
        }
    }

    /// Whether the status says so: a condition of that type is True for the present generation.
    #[must_use]
    pub fn condition(&self, namespace: &str, name: &str, kind: &str) -> bool {
        let Some(cluster) = self.cluster(namespace, name) else {
            return false;
        };
        let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array);
        conditions
            .into_iter()
            .flatten()
            .any(|c| c["type"] == kind && c["status"] == "True")
    }

    /// Whether every declared instance is in place: status says so, and it is true.
    #[must_use]
    pub fn healthy(&self, namespace: &str, name: &str) -> bool {
        let Some(cluster) = self.cluster(namespace, name) else {
            return false;
        };
        let said = cluster.pointer("/status/health") == Some(&json!("Healthy"))
            && cluster.pointer("/status/observedGeneration") == cluster.pointer("/metadata/generation");
        let declared = cluster.pointer("/spec/replicas").and_then(Value::as_u64);
        said && self.world.with(|w| {
            let mine = w
                .processes
                .values()
                .filter(|p| p.namespace == namespace && p.cluster == name);
            let (ready, open) = mine.fold((0, 0), |(ready, open), p| {
                (ready + u64::from(p.ready()), open + u64::from(p.writable))
            });
            Some(ready) == declared && open == 1
        })
    }

    /// What one needs to see when a scenario failed.
    #[must_use]
    pub fn picture(&self, namespace: &str, name: &str) -> String {
        use std::fmt::Write as _;
        let mut text = format!("seed {}\n", self.seed);
        let status = self
            .cluster(namespace, name)
            .and_then(|c| c.get("status").cloned())
            .unwrap_or_default();
        let _ = writeln!(text, "status {status:#}");
        self.world.with(|w| {
            for p in w.processes.values().filter(|p| p.namespace == namespace) {
                let volume = w.volume(p);
                let pair = volume.map(|v| (v.state.epoch, v.state.seq));
                let data = volume.and_then(|v| v.data.as_ref());
                let _ = writeln!(
                    text,
                    "{} on {}: {:?} writable={} semi_sync={:?} channel={:?} waiting={} pair={pair:?} ended={:?} executed={} binlog={} relay={}",
                    p.instance, p.node, p.phase, p.writable, p.semi_sync, p.channel, p.waiting.len(), p.ended,
                    data.map(|d| d.executed.to_string()).unwrap_or_default(),
                    data.map_or(0, |d| d.binlog.len()), data.map_or(0, |d| d.relay.len()),
                );
            }
        });
        let _ = writeln!(text, "last requests:");
        let requests = self
            .server
            .requests(|r| r.mutates() && r.client != "user" && r.resource != "leases");
        for request in requests.iter().rev().take(25).rev() {
            let _ = writeln!(text, "  {request}");
        }
        text
    }
}
