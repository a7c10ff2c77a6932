//! A small world in which plans are carried out: instances, operators, an API server, a network, clients and faults, all
//! in one seeded loop with its own clock. It checks after every tick what must never happen (docs/failover.md).

mod injected;
mod instances;
mod kubelets;
pub(crate) mod kubernetes;
pub(crate) mod node;
pub(crate) mod operator;
mod passes;
pub(crate) mod random;
mod replication;
mod safety;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mainstay_api::MySQLCluster;
use mainstay_core::GtidSet;
use mainstay_core::action::{Action, Record, Verb};
use mainstay_core::analyse::analyse;
use mainstay_core::check::check;
use mainstay_core::names::Names;
use mainstay_core::observed::{ClaimView, InstanceObserved, Mysqld, Observed, PodView, Recovered};
use mainstay_core::plan::{Plan, plan};
use mainstay_core::progress::Progress;
use mainstay_core::rules::{InstanceName, Memory, Phase, Rules};
use mainstay_core::status;
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use kubernetes::Kubernetes;
use node::{Answer, Node, Pod, Volume};
use operator::{Message, Operator, Seen};
use random::Random;

/// How long a recovery takes.
pub(super) const RECOVERY: Duration = Duration::from_secs(3);
/// server_uuid of the cluster whose data are recovered.
pub(crate) const SOURCE: &str = "50000000-0000-4000-8000-000000000000";

/// Length of a tick.
pub(crate) const TICK: SignedDuration = SignedDuration::from_millis(50);

/// Delays and probabilities; all quiet by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Percent of ticks in which a stream brings nothing.
    pub(crate) stale: u64,
    /// Percent of commands that are lost, and of answers.
    pub(crate) lose: u64,
    /// Percent of commands that are late by up to ten seconds.
    pub(crate) late: u64,
    /// Percent of ticks in which a client commits.
    pub(crate) writes: u64,
    /// Percent of ticks in which a replica applies and receives.
    pub(crate) pace: u64,
    /// Start of mysqld.
    pub(crate) start: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stale: 0,
            lose: 0,
            late: 0,
            writes: 50,
            pace: 100,
            start: Duration::from_secs(1),
        }
    }
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) random: Random,
    pub(crate) settings: Settings,
    pub(crate) cluster: MySQLCluster,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) nodes: Vec<Node>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) messages: Vec<Message>,
    /// Cut links between an operator and an instance.
    pub(crate) cut: BTreeSet<(usize, InstanceName)>,
    /// Cut links between two instances, in either direction.
    pub(crate) apart: BTreeSet<(InstanceName, InstanceName)>,
    /// Transactions that a client was told are committed.
    pub(crate) acked: GtidSet,
    pub(crate) last_plan: Plan,
    /// Instances that were opened for writes, in order.
    pub(crate) opened: Vec<InstanceName>,
    /// The annotation with a person's request.
    pub(crate) request: Option<String>,
    /// What happened, for the message of a failure.
    pub(crate) log: Vec<String>,
    /// What a recovery finds in the store.
    pub(crate) stored: GtidSet,
    counter: u64,
    pub(crate) passes: u64,
    /// The rules of a version of status: they are asked for in every tick.
    read: RefCell<Option<(u64, Option<Rules>)>>,
}

impl World {
    /// A cluster that was just declared, and one operator.
    pub(crate) fn new(seed: u64, replicas: i32) -> Self {
        let cluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "mysql.mainstay.dev/v1",
            "kind": "MySQLCluster",
            "metadata": {"name": "shop", "namespace": "prod", "uid": "uid-shop", "generation": 1},
            "spec": {"replicas": replicas, "image": "mysql:9.7.4", "storage": {"size": "1Gi"}}
        }));
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let mut world = Self {
            now,
            random: Random::new(seed),
            settings: Settings::default(),
            cluster: cluster.unwrap(),
            kubernetes: Kubernetes::default(),
            nodes: Vec::new(),
            operators: Vec::new(),
            messages: Vec::new(),
            cut: BTreeSet::new(),
            apart: BTreeSet::new(),
            acked: GtidSet::new(),
            last_plan: Plan::default(),
            opened: Vec::new(),
            request: None,
            log: Vec::new(),
            stored: format!("{SOURCE}:1-40").parse().unwrap(),
            counter: 0,
            passes: 0,
            read: RefCell::new(None),
        };
        world.add_operator();
        world
    }

    /// A cluster that was just declared to begin with recovered data, and one operator.
    pub(crate) fn recovering(seed: u64, replicas: i32) -> Self {
        let mut world = Self::new(seed, replicas);
        let bootstrap = serde_json::json!({"recovery": {"source": {
            "store": {"bucket": "backups", "endpoint": "https://s3.example", "credentialsSecret": {"name": "s3"}},
            "cluster": {"namespace": "prod", "name": "old"},
        }}});
        world.cluster.spec.bootstrap = Some(serde_json::from_value(bootstrap).unwrap());
        world
    }

    pub(crate) fn add_operator(&mut self) -> usize {
        self.counter += 1;
        self.operators.push(Operator::new(self.counter, self.now));
        self.operators.len() - 1
    }

    /// The operator process is replaced by another one, which knows nothing.
    pub(crate) fn restart_operator(&mut self, number: usize) {
        self.counter += 1;
        let blind = self.operators[number].blind;
        self.operators[number] = Operator {
            blind,
            ..Operator::new(self.counter, self.now)
        };
    }

    pub(crate) fn say(&mut self, text: impl Into<String>) {
        let at = self
            .now
            .duration_since("2026-11-29T12:00:00Z".parse().unwrap())
            .as_millis();
        self.log.push(format!("{at:>7} {}", text.into()));
    }

    pub(crate) fn fail(&self, why: &str) -> ! {
        let tail = self
            .log
            .iter()
            .rev()
            .take(60)
            .rev()
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| {
                let process = node.process.as_ref();
                let volume = node.volume.as_ref();
                format!(
                    "{} {:?} writable={} source={:?} receiver={} ended={:?} accepted={:?} binlog={:?} exec={:?} relay={:?} inc={:?}",
                    node.name,
                    process.map(|p| p.mysqld),
                    node.writable(),
                    volume.and_then(|v| v.source.clone()),
                    process.is_some_and(|p| p.receiver),
                    process.map(|p| p.ended),
                    volume.map(|v| v.accepted),
                    volume.map(|v| v.binlog.to_string()),
                    volume.map(|v| v.executed.to_string()),
                    volume.map(|v| v.relay.to_string()),
                    volume.map(|v| v.incarnation.clone()),
                )
            })
            .collect();
        panic!(
            "{why}\n{tail}\nstatus: {}\n{}\nacked {}\nplan {:#?}",
            serde_json::to_string(&self.kubernetes.status).unwrap(),
            nodes.join("\n"),
            self.acked,
            self.last_plan
        );
    }

    pub(crate) fn names() -> Names {
        Names::new("prod", "shop")
    }

    pub(crate) fn replicas(&self) -> u32 {
        u32::try_from(self.cluster.spec.replicas).unwrap()
    }

    pub(crate) fn change_spec(&mut self, change: impl FnOnce(&mut MySQLCluster)) {
        change(&mut self.cluster);
        let generation = self.cluster.metadata.generation.unwrap();
        self.cluster.metadata.generation = Some(generation + 1);
    }

    pub(crate) fn node(&self, ordinal: usize) -> &Node {
        &self.nodes[ordinal]
    }

    pub(crate) fn rules(&self) -> Option<Rules> {
        let version = self.kubernetes.version;
        let mut read = self.read.borrow_mut();
        if let Some((_, rules)) = read.as_ref().filter(|(of, _)| *of == version) {
            return rules.clone();
        }
        let rules = match status::memory(Some(&self.kubernetes.status)) {
            Memory::Known(rules) => Some(*rules),
            Memory::Absent => None,
            Memory::Unreadable { reason } => self.fail(&reason),
        };
        *read = Some((version, rules.clone()));
        rules
    }

    /// Ordinal of the instance that is recorded and open.
    pub(crate) fn open_primary(&self) -> Option<usize> {
        let rules = self.rules()?;
        let primary = rules.primary.as_ref().filter(|_| rules.phase == Phase::Open)?;
        self.nodes.iter().position(|node| {
            node.id().as_ref() == Some(&primary.id)
                && node.writable()
                && node
                    .process
                    .as_ref()
                    .is_some_and(|process| process.ended.0 >= primary.epoch)
        })
    }

    pub(crate) fn tick(&mut self) {
        self.now += TICK;
        self.kubelets();
        self.mysqlds();
        self.deliver();
        self.progress();
        self.replicate();
        self.clients();
        self.stream();
        for number in 0..self.operators.len() {
            self.operate(number);
        }
        self.check_safety();
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
    }

    /// Runs until something is true, and fails after `limit` of the world's time.
    pub(crate) fn until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            if self.now >= end {
                self.fail(&format!("not in {limit:?}: {what}"));
            }
            self.tick();
        }
    }

    /// Everything is in place, and nothing is left to do.
    pub(crate) fn settle(&mut self, limit: Duration) {
        self.until("settled", limit, Self::settled);
    }

    pub(crate) fn settled(&self) -> bool {
        let Some(primary) = self.open_primary() else {
            return false;
        };
        let Some(rules) = self.rules() else { return false };
        let replicas = self.replicas();
        let source = Some(self.nodes[primary].name.0.clone());
        let followers = self.nodes.iter().enumerate().filter(|(at, node)| {
            *at != primary
                && node.ordinal < replicas
                && node.running()
                && node.id().is_some_and(|id| rules.members.contains(&id))
                && node.volume.as_ref().is_some_and(|volume| volume.source == source)
                && node.process.as_ref().is_some_and(|process| process.connected)
        });
        let template = self.kubernetes.template();
        let pods_fit = self.nodes.iter().filter(|node| node.ordinal < replicas).all(|node| {
            node.pod
                .as_ref()
                .is_some_and(|pod| pod.deleting.is_none() && pod.template == template)
        });
        pods_fit
            && followers.count() + 1 == usize::try_from(replicas).unwrap()
            && rules.acks_required == replicas / 2
            && self.last_plan.actions.is_empty()
            && self.last_plan.waiting.is_empty()
            && self.operators.iter().all(|operator| operator.pending.is_empty())
    }
}

/// Transaction `number` of a server.
pub(crate) fn gtids(uuid: &str, number: u64) -> GtidSet {
    format!("{uuid}:{number}").parse().unwrap()
}
