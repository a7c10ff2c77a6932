//! The rest of the world: nodes, kubelets, the StatefulSet controller, and a model of MySQL with its instance managers.
//!
//! One task advances everything. It sleeps until something is due or something changed, so that idle hours cost nothing,
//! and every state is behind one lock, so that a test can look at and break anything between two steps.

mod claims;
mod commands;
pub mod data;
pub mod flaw;
mod jobs;
mod kubelet;
mod link;
pub mod network;
mod nodes;
pub mod process;
mod replication;
mod statefulset;
pub mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::history::History;
use crate::kubernetes::Server;
use crate::random::Random;
pub(crate) use commands::waiting;
use data::Volume;
pub use flaw::Flaw;
pub use jobs::SimPages;
pub use link::SimDialler;
use network::Network;
pub use nodes::Node;
use process::Process;
use stores::SimStores;

/// The world. Clones are the same one.
#[derive(Clone, Debug)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<watch::Sender<u64>>,
    server: Server,
}

/// What a cluster that is gone has stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// server_uuid of its primary.
    pub source: String,
    /// Its rows, one a transaction.
    pub rows: BTreeSet<u64>,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            source: "50000000-0000-4000-8000-000000000000".to_owned(),
            // Clients count from 1.
            rows: (1_000_001..1_000_041).collect(),
        }
    }
}

/// What the lock guards.
#[derive(Clone, Debug)]
pub struct Inner {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Cuts.
    pub network: Network,
    /// Running instances.
    pub processes: BTreeMap<u64, Process>,
    /// Data volumes by the uid of their claim.
    pub volumes: BTreeMap<String, Volume>,
    /// What clients did.
    pub history: History,
    /// What another cluster stored, and a recovery finds.
    pub stored: Stored,
    /// For schedules and identities.
    pub random: Random,
    /// What instances do wrong on purpose.
    pub flaw: Option<Flaw>,
    server: Server,
    kubelet: kubelet::Kubelets,
    backups: jobs::Backups,
    stores: SimStores,
    /// uids of the pods that the API server has, with their address: what DNS answers.
    in_dns: BTreeSet<String>,
    next_process: u64,
    next_ip: u8,
    dirty: bool,
    /// What the controllers and kubelets saw when they last had nothing to do, and when they look again by themselves.
    seen: u64,
    kubelets_due: Option<Instant>,
    /// Connections of operators to instance managers that exist now.
    streams: usize,
}

impl World {
    /// A world with these nodes around an API server.
    #[must_use]
    pub fn new(server: Server, nodes: &[&str], seed: u64) -> Self {
        let inner = Inner {
            nodes: BTreeMap::new(),
            network: Network::default(),
            processes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            history: History::default(),
            stored: Stored::default(),
            random: Random::new(seed ^ 0x000f_f1ce),
            flaw: None,
            server: server.clone(),
            kubelet: kubelet::Kubelets::default(),
            backups: jobs::Backups::default(),
            stores: SimStores::new(server.clock()),
            in_dns: BTreeSet::new(),
            next_process: 1,
            next_ip: 1,
            dirty: false,
            seen: 0,
            kubelets_due: None,
            streams: 0,
        };
        let world = Self::over(inner, server);
        for node in nodes {
            world.with(|w| w.add_node(node));
        }
        world
    }

    fn over(inner: Inner, server: Server) -> Self {
        Self {
            inner: Arc::new(Mutex::new(inner)),
            changed: Arc::new(watch::Sender::new(0)),
            server,
        }
    }

    /// Another world in the same state, around a fork of the API server; nobody is connected to it.
    #[must_use]
    pub fn fork(&self, server: Server, seed: u64) -> Self {
        let inner = self.with(|w| Inner {
            random: Random::new(seed ^ 0x000f_f1ce),
            server: server.clone(),
            stores: w.stores.copy(),
            streams: 0,
            ..w.clone()
        });
        Self::over(inner, server)
    }

    /// Runs `f` under the lock, then wakes whoever waits for a change.
    pub fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut inner);
        let dirty = std::mem::take(&mut inner.dirty);
        drop(inner);
        if dirty {
            self.changed.send_modify(|n| *n += 1);
        }
        result
    }

    /// As [`World::with`], and something certainly changed.
    pub fn change<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        self.with(|w| {
            w.dirty = true;
            f(w)
        })
    }

    /// Changes whenever something in the world does.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until `f` gives a value, at most until `deadline`.
    pub async fn until<T>(&self, deadline: Instant, mut f: impl FnMut(&mut Inner) -> Option<T>) -> Option<T> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(value) = self.with(&mut f) {
                return Some(value);
            }
            tokio::select! {
                biased;
                result = changes.changed() => if result.is_err() { return None },
                () = tokio::time::sleep_until(deadline) => return self.with(&mut f),
            }
        }
    }

    /// Starts the task that advances the world. It runs until it is aborted.
    #[must_use]
    pub fn start(&self) -> JoinHandle<()> {
        let world = self.clone();
        tokio::spawn(async move {
            let mut objects = world.server.wake();
            let mut changes = world.changes();
            loop {
                objects.borrow_and_update();
                changes.borrow_and_update();
                let now = Instant::now();
                let next = world.with(|w| w.step(now)).unwrap_or(now + Duration::from_hours(1));
                tokio::select! {
                    biased;
                    result = objects.changed() => if result.is_err() { return },
                    result = changes.changed() => if result.is_err() { return },
                    () = tokio::time::sleep_until(next) => {}
                }
            }
        })
    }

    /// The object store.
    #[must_use]
    pub fn stores(&self) -> SimStores {
        self.with(|w| w.stores.clone())
    }

    /// The API server.
    #[must_use]
    pub const fn objects(&self) -> &Server {
        &self.server
    }

    /// Connections of operators to instance managers that exist now.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.with(|w| w.streams)
    }
}

impl Inner {
    /// Lets everything happen that is due; returns when something is due next.
    fn step(&mut self, now: Instant) -> Option<Instant> {
        let mysql = self.advance(now);
        let present = self.fingerprint();
        if present != self.seen || self.kubelets_due.is_some_and(|at| at <= now) {
            // What they change among themselves is seen in the next pass, until nobody changes anything any more.
            self.seen = present;
            while self.server.collect_garbage() > 0 {}
            self.bind_and_protect_claims();
            self.reconcile_stateful_sets();
            self.reconcile_jobs();
            let nodes = self.step_nodes(now);
            let kubelets = self.step_kubelets(now);
            let moved = (self.fingerprint() != self.seen).then_some(now);
            self.kubelets_due = [nodes, kubelets, moved].into_iter().flatten().min();
        }
        [self.kubelets_due, mysql].into_iter().flatten().min()
    }

    /// A number that changes whenever controllers or kubelets may have something to do.
    fn fingerprint(&self) -> u64 {
        use std::hash::{Hash as _, Hasher as _};
        let mut hasher = std::hash::DefaultHasher::new();
        self.server.with(|s| s.store.matters()).hash(&mut hasher);
        for process in self.processes.values() {
            let relieved = process.leaving && !process.writable && process.waiting.is_empty();
            (process.id, process.ready(), relieved).hash(&mut hasher);
        }
        for (name, node) in &self.nodes {
            let heard = self.network.connected(name, network::API);
            (name, node.up, node.schedulable, heard).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether a node has power and is not frozen.
    fn is_up(&self, node: &str) -> bool {
        self.nodes.get(node).is_none_or(|n| n.up)
    }

    /// The running process of an instance.
    #[must_use]
    pub fn process(&self, namespace: &str, instance: &str) -> Option<&Process> {
        self.processes
            .values()
            .filter(|p| p.namespace == namespace && p.instance == instance)
            .max_by_key(|p| p.id)
    }

    /// An instance of a cluster that is open for writes.
    #[must_use]
    pub fn open(&self, namespace: &str, cluster: &str) -> Option<&Process> {
        self.processes
            .values()
            .find(|p| p.namespace == namespace && p.cluster == cluster && p.writable)
    }

    /// The running process of an instance, to be changed.
    pub fn process_mut(&mut self, namespace: &str, instance: &str) -> Option<&mut Process> {
        let id = self.process(namespace, instance)?.id;
        self.dirty = true;
        self.processes.get_mut(&id)
    }

    /// The volume of a process.
    #[must_use]
    pub fn volume(&self, process: &Process) -> Option<&Volume> {
        self.volumes.get(&process.claim)
    }

    /// From now on the applier of an instance stops with an error at what it receives next, as long as it has these data.
    pub fn break_applier(&mut self, namespace: &str, instance: &str) {
        self.dirty = true;
        let claim = self.process(namespace, instance).map(|process| process.claim.clone());
        let volume = claim.and_then(|claim| self.volumes.get_mut(&claim));
        if let Some(data) = volume.and_then(|volume| volume.data.as_mut()) {
            data.poisoned = true;
        }
    }

    /// Kills the mysqld of an instance; its manager starts it again.
    pub fn kill_mysqld(&mut self, namespace: &str, instance: &str) {
        if let Some(process) = self.process_mut(namespace, instance) {
            process.kill_mysqld(Instant::now());
        }
    }
}
