//! A small world in which plans are carried out: instances, operators, an API server, a network, clients and faults, all
//! in one seeded loop with its own clock. It checks after every tick what must never happen (docs/failover.md).

pub(crate) mod kubernetes;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod random;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mainstay_api::MySQLCluster;
use mainstay_core::GtidSet;
use mainstay_core::action::{Action, Record, Verb};
use mainstay_core::analyse::analyse;
use mainstay_core::check::check;
use mainstay_core::names::Names;
use mainstay_core::observed::{ClaimView, InstanceObserved, Mysqld, Observed, PodView};
use mainstay_core::plan::{Plan, plan};
use mainstay_core::rules::{InstanceName, Memory, Phase, Rules};
use mainstay_core::status;
use mainstay_core::subject::Subject;
use mainstay_core::validate::ValidatedCluster;

use kubernetes::Kubernetes;
use node::{Answer, Node, Pod, Volume};
use operator::{Message, Operator};
use random::Random;

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
    /// What happened, for the message of a failure.
    pub(crate) log: Vec<String>,
    counter: u64,
    pub(crate) passes: u64,
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
            log: Vec::new(),
            counter: 0,
            passes: 0,
        };
        world.add_operator();
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
        match status::memory(Some(&self.kubernetes.status)) {
            Memory::Known(rules) => Some(*rules),
            Memory::Absent => None,
            Memory::Unreadable { reason } => self.fail(&reason),
        }
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

    // ---- the loop ----

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

    // ---- Kubernetes ----

    /// The StatefulSet's and the kubelets' work.
    fn kubelets(&mut self) {
        let wanted = self.kubernetes.set_replicas();
        let template = self.kubernetes.template();
        while self.nodes.len() < usize::try_from(wanted).unwrap() {
            let ordinal = u32::try_from(self.nodes.len()).unwrap();
            self.nodes.push(Node::new(Self::names().instance(ordinal), ordinal));
        }
        let volumes = self
            .kubernetes
            .stateful_set()
            .and_then(|set| set.pointer("/spec/template/spec/volumes"));
        let config_map = volumes.and_then(|volumes| {
            let mut names = volumes
                .as_array()?
                .iter()
                .filter_map(|volume| volume.pointer("/configMap/name")?.as_str());
            names.next().map(str::to_owned)
        });
        let (now, start) = (self.now, self.settings.start);
        for at in 0..self.nodes.len() {
            let gone = self.nodes[at].ordinal >= wanted
                || self.nodes[at]
                    .pod
                    .as_ref()
                    .is_some_and(|pod| pod.deleting.is_some_and(|end| end <= now));
            if gone {
                self.nodes[at].pod = None;
                self.nodes[at].process = None;
            }
            if self.nodes[at].ordinal < wanted && self.nodes[at].pod.is_none() {
                self.counter += 1;
                self.nodes[at].pod = Some(Pod {
                    uid: format!("pod-{}", self.counter),
                    template: template.clone(),
                    config_map: config_map.clone(),
                    deleting: None,
                    broken: false,
                });
                continue;
            }
            let node = &self.nodes[at];
            let startable = node.pod.as_ref().is_some_and(|pod| !pod.broken) && node.off_until <= now;
            if startable && node.process.is_none() {
                self.ensure_volume(at);
                self.nodes[at].start(now, start);
            }
        }
    }

    fn ensure_volume(&mut self, at: usize) {
        if self.nodes[at].volume.is_none() {
            let volume = self.new_volume();
            self.nodes[at].volume = Some(volume);
        }
    }

    fn new_volume(&mut self) -> Volume {
        self.counter += 1;
        let number = self.counter;
        Volume::new(
            format!("life-{number}"),
            format!("{number:08x}-0000-4000-8000-000000000000"),
        )
    }

    // ---- instances ----

    fn mysqlds(&mut self) {
        for at in 0..self.nodes.len() {
            let now = self.now;
            let Some(process) = &mut self.nodes[at].process else {
                continue;
            };
            match process.mysqld {
                Mysqld::Starting if process.until <= now => {
                    process.mysqld = Mysqld::Running;
                    self.nodes[at].recovered();
                }
                Mysqld::Cloning if process.until <= now => self.end_clone(at),
                _ => {}
            }
        }
    }

    /// A clone has ended: a data directory with another incarnation, of the donor's data or empty.
    fn end_clone(&mut self, at: usize) {
        let donor = self.nodes[at]
            .process
            .as_ref()
            .and_then(|process| process.donor.clone());
        let found = donor.and_then(|(name, incarnation)| {
            let donor = self.nodes.iter().find(|node| node.name == name && node.running())?;
            let volume = donor
                .volume
                .as_ref()
                .filter(|volume| volume.incarnation == incarnation)?;
            (!self.is_apart(&self.nodes[at].name, &name)).then(|| volume.executed.clone())
        });
        let accepted = self.nodes[at].volume.as_ref().map_or((0, 0), |volume| volume.accepted);
        let mut volume = self.new_volume();
        volume.accepted = accepted;
        volume.pristine = false;
        if let Some(executed) = found {
            volume.purged = executed.clone();
            volume.executed = executed;
        }
        let incarnation = volume.incarnation.clone();
        self.say(format!(
            "{} is cloned: {incarnation} {}",
            self.nodes[at].name, volume.executed
        ));
        self.nodes[at].volume = Some(volume);
        let (now, start) = (self.now, self.settings.start);
        self.nodes[at].start(now, start);
    }

    /// Commands that arrive.
    fn deliver(&mut self) {
        let now = self.now;
        let (due, rest) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|message| message.arrives <= now);
        self.messages = rest;
        for message in due {
            let Message {
                operator,
                to,
                command,
                seq,
                ..
            } = message;
            if self.cut.contains(&(operator, to.clone())) || self.random.chance(self.settings.lose) {
                continue;
            }
            let Some(at) = self.nodes.iter().position(|node| node.name == to) else {
                continue;
            };
            let start = self.settings.start;
            let text = format!("{:?} to {to} ({}, {seq})", command.verb.kind(), command.epoch);
            let answer = self.nodes[at].accept(command, seq, operator, now, start);
            let outcome = answer
                .as_ref()
                .map_or_else(|| "begun".to_owned(), |a| format!("{:?}", a.refusal));
            self.say(format!("{text}: {outcome}"));
            self.answer(at, answer);
        }
    }

    fn answer(&mut self, at: usize, answer: Option<Answer>) {
        let Some(Answer {
            operator,
            pair,
            refusal,
        }) = answer
        else {
            return;
        };
        let name = self.nodes[at].name.clone();
        if self.cut.contains(&(operator, name.clone())) || self.random.chance(self.settings.lose) {
            return;
        }
        let names = Self::names();
        let report = self.nodes[at].report(self.now, |name| names.instance_host(&InstanceName(name.to_owned())));
        self.operators[operator].answered(&name, pair, refusal, report, self.now);
    }

    /// Open and Mark wait for others.
    fn progress(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(progress) = self.nodes[at]
                .process
                .as_ref()
                .and_then(|process| process.progress.clone())
            else {
                continue;
            };
            let name = self.nodes[at].name.clone();
            let done = match &progress.command.verb {
                Verb::Open {
                    members, acks_required, ..
                } => {
                    let listed: Vec<_> = members.iter().map(|member| member.instance.clone()).collect();
                    let connected = self
                        .clients_of(&name)
                        .into_iter()
                        .filter(|client| listed.contains(client))
                        .count();
                    self.nodes[at].running() && connected >= usize::try_from(*acks_required).unwrap()
                }
                Verb::Mark => self.marked(at, progress.marker),
                Verb::Fence => self.nodes[at]
                    .process
                    .as_ref()
                    .is_some_and(|process| process.waiting.is_empty()),
                _ => true,
            };
            let late = progress.deadline <= self.now || !self.nodes[at].running();
            if !done && !late {
                continue;
            }
            match progress.command.verb {
                Verb::Open { .. } if done => self.open(at),
                Verb::Fence => {
                    let (now, start) = (self.now, self.settings.start);
                    self.nodes[at].process.as_mut().unwrap().progress = None;
                    self.nodes[at].fence(now, start);
                }
                _ => {}
            }
            let process = self.nodes[at].process.as_mut().unwrap();
            process.progress = None;
            process.ended = progress.pair;
            let fence = matches!(progress.command.verb, Verb::Fence);
            let refusal = (!done && !fence).then(|| "the deadline passed".to_owned());
            let answer = Answer {
                operator: progress.operator,
                pair: progress.pair,
                refusal,
            };
            self.answer(at, Some(answer));
        }
    }

    fn open(&mut self, at: usize) {
        let name = self.nodes[at].name.clone();
        let process = self.nodes[at].process.as_mut().unwrap();
        process.writable = true;
        process.closing = false;
        process.receiver = false;
        process.connected = false;
        self.nodes[at].volume.as_mut().unwrap().source = None;
        self.say(format!("{name} is open"));
        self.opened.push(name);
    }

    /// Writes the marker, then waits until it is committed.
    fn marked(&mut self, at: usize, number: Option<u64>) -> bool {
        let Some(number) = number else {
            let number = self.commit(at);
            let process = self.nodes[at].process.as_mut().unwrap();
            process.progress.as_mut().unwrap().marker = Some(number);
            return false;
        };
        let node = &mut self.nodes[at];
        let volume = node.volume.as_ref().unwrap();
        let gtid = gtids(&volume.uuid, number);
        let committed = volume.executed.contains(&gtid);
        if committed {
            let marker = volume.executed.clone();
            node.process.as_mut().unwrap().marker = Some(marker);
        }
        committed
    }

    // ---- replication ----

    pub(crate) fn is_apart(&self, one: &InstanceName, other: &InstanceName) -> bool {
        self.apart.contains(&(one.clone(), other.clone())) || self.apart.contains(&(other.clone(), one.clone()))
    }

    /// Instances that are connected to this one.
    fn clients_of(&self, source: &InstanceName) -> Vec<InstanceName> {
        let connected = self.nodes.iter().filter(|node| {
            node.running()
                && node
                    .process
                    .as_ref()
                    .is_some_and(|process| process.receiver && process.connected)
                && node
                    .volume
                    .as_ref()
                    .is_some_and(|volume| volume.source.as_ref() == Some(&source.0))
        });
        connected.map(|node| node.name.clone()).collect()
    }

    fn replicate(&mut self) {
        for at in 0..self.nodes.len() {
            if self.random.chance(self.settings.pace) {
                self.receive(at);
            }
            if self.random.chance(self.settings.pace) {
                let node = &mut self.nodes[at];
                let applies = node.running() && node.process.as_ref().is_some_and(|process| process.applier);
                if let Some(volume) = node.volume.as_mut().filter(|_| applies) {
                    volume.executed = volume.executed.union(&volume.relay);
                    volume.binlog = volume.binlog.union(&volume.relay);
                }
            }
        }
        for at in 0..self.nodes.len() {
            self.release(at);
        }
    }

    fn receive(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(source) = node.volume.as_ref().and_then(|volume| volume.source.clone()) else {
            return;
        };
        if !node.running() || !node.process.as_ref().is_some_and(|process| process.receiver) {
            return;
        }
        let name = node.name.clone();
        let from = self.nodes.iter().position(|other| {
            let listed = other
                .process
                .as_ref()
                .is_some_and(|process| process.allowed.as_ref().is_none_or(|allowed| allowed.contains(&name)));
            other.name.0 == source && other.running() && listed && !self.is_apart(&other.name, &name)
        });
        let Some(from) = from else {
            self.nodes[at].process.as_mut().unwrap().connected = false;
            return;
        };
        let offered = self.nodes[from].volume.as_ref().unwrap().offers();
        let lost = self.nodes[from].volume.as_ref().unwrap().purged.clone();
        let node = &mut self.nodes[at];
        let (process, volume) = (node.process.as_mut().unwrap(), node.volume.as_mut().unwrap());
        let has = volume.executed.union(&volume.relay);
        if !has.contains(&lost) {
            process.connected = false;
            return;
        }
        process.connected = true;
        process.last_heard = Some(self.now);
        volume.relay = volume.relay.union(&offered.subtract(&has));
        let has = volume.executed.union(&volume.relay);
        // Acknowledges what waits.
        let uuid = self.nodes[from].volume.as_ref().unwrap().uuid.clone();
        let source = self.nodes[from].process.as_mut().unwrap();
        for (number, by) in &mut source.waiting {
            if has.contains(&gtids(&uuid, *number)) {
                by.insert(name.clone());
            }
        }
    }

    /// Commits that have their acknowledgements return to their clients, in the order of the binlog.
    fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let (Some(process), Some(volume)) = (&mut node.process, &mut node.volume) else {
            return;
        };
        if process.mysqld != Mysqld::Running {
            return;
        }
        let needed = usize::try_from(process.wait_for.unwrap_or(0)).unwrap();
        while let Some((number, by)) = process.waiting.first_key_value() {
            if by.len() < needed {
                break;
            }
            let gtid = gtids(&volume.uuid, *number);
            volume.executed = volume.executed.union(&gtid);
            self.acked = self.acked.union(&gtid);
            let number = *number;
            process.waiting.remove(&number);
        }
    }

    /// Writes a transaction into the binlog of an instance.
    fn commit(&mut self, at: usize) -> u64 {
        let node = &mut self.nodes[at];
        node.next_gtid += 1;
        let number = node.next_gtid;
        let (process, volume) = (node.process.as_mut().unwrap(), node.volume.as_mut().unwrap());
        volume.binlog = volume.binlog.union(&gtids(&volume.uuid, number));
        process.waiting.insert(number, BTreeSet::new());
        number
    }

    fn clients(&mut self) {
        for at in 0..self.nodes.len() {
            let closing = self.nodes[at].process.as_ref().is_some_and(|process| process.closing);
            if self.nodes[at].writable() && !closing && self.random.chance(self.settings.writes) {
                self.commit(at);
            }
            self.release(at);
        }
    }

    /// A transaction that came from nowhere.
    pub(crate) fn write_errant(&mut self, ordinal: usize) {
        let volume = self.nodes[ordinal].volume.as_mut().unwrap();
        let gtid = gtids(&volume.uuid, 999_999);
        volume.binlog = volume.binlog.union(&gtid);
        volume.executed = volume.executed.union(&gtid);
    }

    // ---- operators ----

    fn stream(&mut self) {
        let names = Self::names();
        for number in 0..self.operators.len() {
            for at in 0..self.nodes.len() {
                let name = self.nodes[at].name.clone();
                if self.cut.contains(&(number, name.clone())) || self.random.chance(self.settings.stale) {
                    continue;
                }
                let host = |name: &str| names.instance_host(&InstanceName(name.to_owned()));
                if let Some(report) = self.nodes[at].report(self.now, host) {
                    self.operators[number].streams.insert(name, (report, self.now));
                }
            }
            self.operators[number].give_up(self.now);
        }
    }

    pub(crate) fn observe(&self, number: usize) -> Observed {
        let operator = &self.operators[number];
        let mut instances = Vec::new();
        for ordinal in 0..self.replicas().max(u32::try_from(self.nodes.len()).unwrap()) {
            let name = Self::names().instance(ordinal);
            let node = self.nodes.iter().find(|node| node.name == name);
            let pod = node.and_then(|node| {
                let pod = node.pod.as_ref()?;
                let ready = node.running();
                Some(PodView {
                    uid: pod.uid.clone(),
                    ip: Some(format!("10.0.0.{}", ordinal + 1)),
                    node: Some(format!("node-{ordinal}")),
                    zone: None,
                    phase: "Running".to_owned(),
                    ready,
                    deleting: pod.deleting.is_some(),
                    template: pod.template.clone(),
                    config_map: pod.config_map.clone(),
                    image: None,
                    trouble: pod.broken.then(|| "mysql: CrashLoopBackOff".to_owned()),
                    restarts: 0,
                })
            });
            let claim = node.and_then(|node| node.volume.as_ref()).map(|_| ClaimView {
                uid: format!("claim-{ordinal}"),
                phase: "Bound".to_owned(),
                requested: None,
                capacity: None,
                deleting: false,
            });
            let reach = operator.reach(&name, self.now);
            instances.push(InstanceObserved {
                name,
                ordinal,
                pod,
                claim,
                reach,
            });
        }
        Observed {
            operator: operator.id.clone(),
            memory: status::memory(Some(&self.kubernetes.status)),
            instances,
            objects: self.kubernetes.objects.clone(),
            secrets: self.kubernetes.secrets.clone(),
            warnings: Vec::new(),
            request: None,
        }
    }

    /// One step of an operator: an action of its plan, or a new pass.
    fn operate(&mut self, number: usize) {
        if self.operators[number].blind {
            return;
        }
        match self.operators[number].pending.pop_front() {
            Some(action) => self.act(number, &action),
            None if self.is_called(number) => self.pass(number),
            None => {}
        }
    }

    /// Something changed, or the time has come that the last plan named.
    fn is_called(&mut self, number: usize) -> bool {
        let operator = &self.operators[number];
        let mut seen = format!(
            "{} {} {:?}",
            self.kubernetes.version, self.kubernetes.writes, self.cluster.metadata
        );
        for ordinal in 0..self.replicas().max(u32::try_from(self.nodes.len()).unwrap()) {
            let name = Self::names().instance(ordinal);
            seen.push_str(&operator.outline(&name, self.now));
            let node = self.nodes.iter().find(|node| node.name == name);
            seen = format!("{seen}{:?} {}", node.map(|n| &n.pod), node.is_some_and(Node::running));
        }
        let due = operator.look_at.is_some_and(|at| at <= self.now);
        let called = due || seen != operator.seen;
        self.operators[number].seen = seen;
        called
    }

    /// What would be done about this observation.
    pub(crate) fn plan_of(&self, observed: &Observed) -> Plan {
        let spec = ValidatedCluster::new(&self.cluster);
        let subject = Subject {
            namespace: "prod",
            name: "shop",
            uid: "uid-shop",
            generation: 1,
            operator_image: "mainstay:test",
            spec: spec.as_ref().map_err(Vec::as_slice),
        };
        let analysis = analyse(&subject, observed, self.now);
        plan(&subject, observed, &analysis, self.now)
    }

    fn pass(&mut self, number: usize) {
        self.passes += 1;
        let observed = self.observe(number);
        let spec = ValidatedCluster::new(&self.cluster);
        let subject = Subject {
            namespace: "prod",
            name: "shop",
            uid: "uid-shop",
            generation: self.cluster.metadata.generation.unwrap(),
            operator_image: "mainstay:test",
            spec: spec.as_ref().map_err(Vec::as_slice),
        };
        let analysis = analyse(&subject, &observed, self.now);
        let plan = plan(&subject, &observed, &analysis, self.now);
        let violations = check(&subject, &observed, &plan, self.now);
        let acts = !plan.actions.is_empty();
        let read = self.kubernetes.version;
        self.last_plan = plan.clone();
        if !violations.is_empty() {
            self.fail(&format!("operator {number} breaks {violations:?}"));
        }
        self.operators[number].look_at = plan.look_again.map(|after| self.now + after);
        self.operators[number].attends = acts || !plan.waiting.is_empty();
        self.operators[number].read = read;
        self.operators[number].pending = plan.actions.iter().cloned().collect();
        if !acts {
            let previous = self.kubernetes.status.clone();
            let status = status::status(&subject, &observed, &analysis, &plan, &previous, self.now);
            if status != previous {
                self.kubernetes.put_status(read, &status);
            }
        }
        // The first action is carried out at once: what lies between two others is up to the other operator.
        if let Some(action) = self.operators[number].pending.pop_front() {
            self.act(number, &action);
        }
    }

    fn act(&mut self, number: usize, action: &Action) {
        match action {
            Action::Record(record) => self.record(number, record),
            Action::Command(commands) => {
                for command in commands {
                    let seq = self.operators[number].send(command, self.now);
                    let late = self.random.chance(self.settings.late);
                    let delay = if late {
                        self.random.below(10_000)
                    } else {
                        self.random.below(40)
                    };
                    self.messages.push(Message {
                        operator: number,
                        to: command.to.instance.clone(),
                        command: command.clone(),
                        seq,
                        arrives: self.now + Duration::from_millis(delay),
                    });
                }
            }
            Action::DeletePod { instance, uid, .. } => {
                let end = self.now + SignedDuration::from_secs(1);
                let node = self.nodes.iter_mut().find(|node| &node.name == instance).unwrap();
                if let Some(pod) = node.pod.as_mut().filter(|pod| &pod.uid == uid) {
                    pod.deleting = Some(end);
                }
                self.say(format!("delete {instance}"));
                self.kubernetes.writes += 1;
            }
            other => self.kubernetes.execute(other, self.now),
        }
    }

    fn record(&mut self, number: usize, record: &Record) {
        let read = self.operators[number].read;
        let status = status::record(&self.kubernetes.status, &record.rules);
        let done = self.kubernetes.put_status(read, &status);
        let members: Vec<_> = record
            .rules
            .members
            .iter()
            .map(|member| member.instance.to_string())
            .collect();
        self.say(format!(
            "{number} records epoch {} {:?} members {members:?} k {}: {} {}: {done}",
            record.rules.epoch, record.rules.phase, record.rules.acks_required, record.reason, record.message
        ));
        if done {
            self.operators[number].read = self.kubernetes.version;
        } else {
            self.operators[number].pending.clear();
        }
    }

    // ---- what must never happen ----

    fn check_safety(&self) {
        if let Some(primary) = self.open_primary() {
            let lost = self
                .acked
                .subtract(&self.nodes[primary].volume.as_ref().unwrap().offers());
            if !lost.is_empty() {
                self.fail(&format!("{} is open and lost {lost}", self.nodes[primary].name));
            }
        }
        let mut acknowledged = 0;
        for node in self.nodes.iter().filter(|node| node.writable()) {
            let process = node.process.as_ref().unwrap();
            let needed = usize::try_from(process.wait_for.unwrap_or(0)).unwrap();
            let clients = self.clients_of(&node.name);
            let can = clients.iter().filter(|client| {
                let at = self.nodes.iter().find(|other| &&other.name == client).unwrap();
                let listed = process.allowed.as_ref().is_none_or(|allowed| allowed.contains(client));
                listed && !self.is_apart(&node.name, &at.name)
            });
            if can.count() >= needed {
                acknowledged += 1;
                let lost = self.acked.subtract(&node.volume.as_ref().unwrap().offers());
                if !lost.is_empty() {
                    self.fail(&format!("{} can have commits acknowledged and lacks {lost}", node.name));
                }
            }
        }
        if acknowledged > 1 {
            self.fail("two instances can have commits acknowledged");
        }
    }

    // ---- faults ----

    /// Node and pod die; they start again after `time`.
    pub(crate) fn crash(&mut self, ordinal: usize, time: Duration) {
        self.say(format!("crash of {ordinal} for {time:?}"));
        let end = self.now + time;
        let node = &mut self.nodes[ordinal];
        node.process = None;
        node.off_until = end;
    }

    pub(crate) fn kill_mysqld(&mut self, ordinal: usize) {
        self.say(format!("mysqld of {ordinal} is killed"));
        let (now, start) = (self.now, self.settings.start);
        self.nodes[ordinal].kill_mysqld(now, start);
    }

    /// The volume is lost with the pod.
    pub(crate) fn lose_volume(&mut self, ordinal: usize) {
        self.say(format!("volume of {ordinal} is lost"));
        let node = &mut self.nodes[ordinal];
        node.process = None;
        node.volume = None;
        node.pod = None;
    }

    /// Cuts an instance from every operator.
    pub(crate) fn cut_from_operators(&mut self, ordinal: usize) {
        for number in 0..self.operators.len() {
            self.cut.insert((number, self.nodes[ordinal].name.clone()));
        }
    }

    /// Cuts an instance from every other one.
    pub(crate) fn cut_from_instances(&mut self, ordinal: usize) {
        let name = self.nodes[ordinal].name.clone();
        for node in &self.nodes {
            if node.name != name {
                self.apart.insert((name.clone(), node.name.clone()));
            }
        }
    }

    pub(crate) fn heal_network(&mut self) {
        self.cut.clear();
        self.apart.clear();
    }

    /// A pod is deleted with its grace: it asks to be relieved first.
    pub(crate) fn delete_pod(&mut self, ordinal: usize, grace: Duration) {
        self.say(format!("the pod of {ordinal} is deleted"));
        let end = self.now + grace;
        let node = &mut self.nodes[ordinal];
        if let Some(pod) = &mut node.pod {
            pod.deleting = Some(end);
        }
        if let Some(process) = &mut node.process {
            process.leaving = true;
        }
    }
}

/// Transaction `number` of a server.
pub(crate) fn gtids(uuid: &str, number: u64) -> GtidSet {
    format!("{uuid}:{number}").parse().unwrap()
}
