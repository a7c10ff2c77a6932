//! The model of replication: who receives from whom, who acknowledges, what commits.
//!
//! A transaction is in the source's binlog before it is sent, in the replica's relay log before it is acknowledged, and
//! committed in the source after that (`AFTER_SYNC`). An acknowledgement is for a position: it covers everything before.
//! A replica that already holds a transaction when it connects does not acknowledge it again (L5, the careful reading).

use std::time::Duration;

use mainstay_core::observed::Recovered;
use mainstay_core::rules::Trouble;
use tokio::time::Instant;

use super::process::{NET_TIMEOUT, Phase, Process, RECOVER, RETRY, START};
use super::{Flaw, Inner};
use crate::kubernetes::{Key, Resource};

/// How long a step of replication takes.
const HOP: Duration = Duration::from_millis(1);
/// How often a receiver that has no connection tries to make one, and a connected one gets a heartbeat.
const HEARTBEAT: Duration = Duration::from_millis(500);

impl Inner {
    /// Advances everything that is due; returns when to look again.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Instant> {
        let ids: Vec<u64> = self.processes.keys().copied().collect();
        let mut next: Option<Instant> = None;
        let mut soon = |at: Instant| next = Some(next.map_or(at, |n| n.min(at)));
        self.volumes
            .values()
            .filter_map(|v| v.stalled_until)
            .filter(|until| *until > now)
            .for_each(&mut soon);
        for id in &ids {
            self.advance_phase(*id, now);
            let deadline = self.processes.get(id).and_then(Process::deadline);
            // What a disk that hangs holds up goes on when it answers again.
            if let Some(deadline) = deadline.filter(|at| *at > now) {
                soon(deadline);
            }
        }
        let mut moved = false;
        for id in &ids {
            if let Some(at) = self.receive(*id, now, &mut moved) {
                soon(at);
            }
            moved |= self.apply(*id, now);
        }
        for id in &ids {
            moved |= self.commit(*id, now);
        }
        if moved {
            self.dirty = true;
            soon(now + HOP);
        }
        next
    }

    fn advance_phase(&mut self, id: u64, now: Instant) {
        let Some(process) = self.processes.get(&id) else { return };
        if process.deadline().is_none_or(|at| at > now) || self.stalls(&process.claim, now) {
            return;
        }
        let recovers = process.recovery.is_some();
        match process.phase.clone() {
            Phase::Initialising { .. } if recovers => self.recover(id),
            Phase::Initialising { .. } => self.initialise(id),
            Phase::Failed => self.retry_recovery(id, now),
            Phase::Starting { .. } => self.start(id),
            Phase::Cloning { donor, .. } => self.finish_clone(id, &donor),
            Phase::Running => {}
        }
        self.dirty = true;
    }

    fn initialise(&mut self, id: u64) {
        let (uuid, incarnation) = (self.random.uuid(), self.random.uuid());
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&process.claim) else {
            return;
        };
        volume.data = Some(super::data::DataDir::new(uuid));
        volume.incarnation = incarnation;
        process.phase = Phase::Running;
    }

    /// The end of a recovery. Without the Secret there is nothing to recover with, and nothing is made.
    fn recover(&mut self, id: u64) {
        let (uuid, incarnation) = (self.random.uuid(), self.random.uuid());
        let Some(process) = self.processes.get(&id) else { return };
        let wish = process.recovery.clone().unwrap_or_default();
        let mounted = self.mounted_wish(&process.namespace, &process.cluster);
        let (source, rows) = (self.stored.source.clone(), self.stored.rows.clone());
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&process.claim) else {
            return;
        };
        if mounted.as_ref() != Some(&wish) {
            process.phase = Phase::Failed;
            process.retry = Some(Instant::now() + RETRY);
            return;
        }
        let data = super::data::DataDir::recovered(uuid, &source, &rows);
        volume.recovered = Some(Recovered {
            request: wish,
            backup: "20261130t073000z-sim".to_owned(),
            reached: data.executed.clone(),
            time: None,
            completed_at: jiff::Timestamp::UNIX_EPOCH,
        });
        volume.data = Some(data);
        volume.incarnation = incarnation;
        process.retry = None;
        process.phase = Phase::Running;
    }

    fn retry_recovery(&mut self, id: u64, now: Instant) {
        let Some(process) = self.processes.get(&id) else { return };
        let mounted = self.mounted_wish(&process.namespace, &process.cluster);
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        if mounted.is_some() && mounted == process.recovery {
            process.retry = None;
            process.phase = Phase::Initialising { until: now + RECOVER };
        } else {
            process.retry = Some(now + RETRY);
        }
    }

    /// The wish for which the Secret of a recovery was written, as an instance reads it.
    fn mounted_wish(&self, namespace: &str, cluster: &str) -> Option<String> {
        let secrets = Resource::find("", "secrets")?;
        let secret = self
            .server
            .get(&Key::new(secrets, namespace, &format!("{cluster}-recovery")))?;
        let text = secret.pointer("/data/recovery.json")?.clone();
        let bytes: k8s_openapi::ByteString = serde_json::from_value(text).ok()?;
        let order = mainstay_store::RecoveryOrder::from_json(&String::from_utf8(bytes.0).ok()?).ok()?;
        Some(order.request)
    }

    fn start(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&process.claim) else {
            return;
        };
        if volume.suffers(Trouble::Data) || volume.suffers(Trouble::Unreadable) {
            process.refusals += u32::from(volume.suffers(Trouble::Data));
            process.restarts += 1;
            process.phase = Phase::Starting {
                until: Instant::now() + START,
            };
            return;
        }
        process.refusals = 0;
        if let Some(data) = &mut volume.data {
            data.recover();
            if self.flaw == Some(Flaw::VolatileRelayLog) {
                data.relay.clear();
            }
        }
        process.phase = Phase::Running;
    }

    fn finish_clone(&mut self, id: u64, donor: &str) {
        let uuid = self.random.uuid();
        let source = self
            .processes
            .get(&id)
            .and_then(|p| self.reachable(&p.node, &p.namespace, donor));
        let copy = source
            .and_then(|s| self.processes.get(&s))
            .filter(|s| s.running())
            .and_then(|s| self.volumes.get(&s.claim))
            .and_then(|v| v.data.as_ref())
            .map(|d| d.cloned(uuid.clone()));
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&process.claim) else {
            return;
        };
        // A clone that failed leaves an empty instance, which is not pristine.
        // One that recovers its data makes no empty directory.
        if copy.is_none() && process.recovery.is_some() {
            process.phase = Phase::Failed;
            process.retry = Some(Instant::now() + RETRY);
            return;
        }
        volume.data = Some(copy.unwrap_or_else(|| super::data::DataDir::new(uuid)));
        process.phase = Phase::Running;
        process.refusals = 0;
        process.restarts += 1;
    }

    /// The process behind a host name, if a connection from `node` can be made.
    fn reachable(&self, node: &str, namespace: &str, host: &str) -> Option<u64> {
        let instance = host.split('.').next()?;
        let process = self
            .processes
            .values()
            .filter(|p| p.namespace == namespace && p.instance == instance && self.in_dns.contains(&p.pod_uid))
            .max_by_key(|p| p.id)?;
        (self.network.connected(node, &process.node) && self.is_up(&process.node)).then_some(process.id)
    }

    /// Lets one replica receive; returns when it has to be looked at again.
    fn receive(&mut self, id: u64, now: Instant, moved: &mut bool) -> Option<Instant> {
        let process = self.processes.get(&id).filter(|p| p.running())?;
        let channel = process.channel.as_ref()?;
        let (node, namespace, host) = (process.node.clone(), process.namespace.clone(), channel.host.clone());
        let connected = channel.connected;
        let source = match connected {
            Some(source) => self.check_connection(id, source, now)?,
            None => self.connect(id, &node, &namespace, &host)?,
        };
        if source.silent {
            return Some(now + HEARTBEAT);
        }
        *moved |= self.transfer(id, source.id, now);
        Some(now + HEARTBEAT)
    }

    /// Looks after a connection that exists: ended by the other side, silent, or alive.
    fn check_connection(&mut self, id: u64, source: u64, now: Instant) -> Option<Source> {
        let replica = self.processes.get(&id)?;
        let alive = self.processes.get(&source).is_some_and(Process::running);
        let passes = match self.processes.get(&source) {
            Some(s) => self.network.connected(&replica.node, &s.node) && self.is_up(&s.node),
            None => true,
        };
        let allowed = self.may_receive(&replica.instance, source);
        let channel = self.processes.get_mut(&id)?.channel.as_mut()?;
        let silent_since = channel.last_heard.unwrap_or(now);
        if !passes {
            if now.saturating_duration_since(silent_since) >= NET_TIMEOUT {
                channel.connected = None;
                "no heartbeat".clone_into(&mut channel.error);
                self.dirty = true;
            }
            return Some(Source {
                id: source,
                silent: true,
            });
        }
        if !alive || !allowed {
            channel.connected = None;
            let error = if alive {
                "access denied: account is locked"
            } else {
                "connection lost"
            };
            error.clone_into(&mut channel.error);
            self.dirty = true;
            return Some(Source {
                id: source,
                silent: true,
            });
        }
        Some(Source {
            id: source,
            silent: false,
        })
    }

    /// Makes a connection, if it can be made now.
    fn connect(&mut self, id: u64, node: &str, namespace: &str, host: &str) -> Option<Source> {
        let found = self.reachable(node, namespace, host);
        let source = found.filter(|s| self.processes.get(s).is_some_and(Process::running));
        let replica = self.processes.get(&id)?;
        let known = self.volumes.get(&replica.claim)?.data.as_ref()?.known();
        let instance = replica.instance.clone();
        let refusal = match source {
            None => Some("cannot connect"),
            Some(s) if !self.may_receive(&instance, s) => Some("access denied: account is locked"),
            Some(s) if !known.contains(&self.data_of(s)?.purged) => Some("the source has purged required binary logs"),
            Some(_) => None,
        };
        let channel = self.processes.get_mut(&id)?.channel.as_mut()?;
        let silent = refusal.is_some();
        if channel.error != refusal.unwrap_or_default() || !silent {
            self.dirty = true;
        }
        refusal.unwrap_or_default().clone_into(&mut channel.error);
        if !silent {
            channel.connected = source;
            channel.position = 0;
        }
        Some(Source {
            id: source.unwrap_or(0),
            silent,
        })
    }

    fn may_receive(&self, instance: &str, source: u64) -> bool {
        if self.flaw == Some(Flaw::OpenDoors) {
            return true;
        }
        self.data_of(source)
            .is_some_and(|d| d.allowed.as_ref().is_none_or(|allowed| allowed.contains(instance)))
    }

    fn data_of(&self, id: u64) -> Option<&super::data::DataDir> {
        self.volumes.get(&self.processes.get(&id)?.claim)?.data.as_ref()
    }

    /// Sends what the replica does not have, makes it durable there, and acknowledges.
    fn transfer(&mut self, id: u64, source: u64, now: Instant) -> bool {
        let Some(replica) = self.processes.get(&id) else {
            return false;
        };
        // A receiver that hangs in a write notes no heartbeat; a source that cannot read its binlog still sends them.
        if self.takes_nothing(&replica.claim, now) {
            return false;
        }
        let source_stalls = self.processes.get(&source).is_some_and(|s| self.stalls(&s.claim, now));
        let claim = replica.claim.clone();
        let Some(position) = replica.channel.as_ref().map(|c| c.position) else {
            return false;
        };
        let binlog = self.data_of(source).and_then(|d| d.binlog.get(position..));
        let Some(binlog) = binlog.filter(|news| !news.is_empty() && !source_stalls) else {
            if let Some(channel) = self.processes.get_mut(&id).and_then(|p| p.channel.as_mut()) {
                channel.last_heard = Some(now);
            }
            return false;
        };
        let Some(known) = self.data_of(id).map(super::data::DataDir::known) else {
            return false;
        };
        let news: Vec<_> = binlog
            .iter()
            .filter(|t| !known.contains_gtid(&t.gtid))
            .cloned()
            .collect();
        let end = position + binlog.len();
        let Some(volume) = self.volumes.get_mut(&claim) else {
            return false;
        };
        let incarnation = volume.incarnation.clone();
        let received = !news.is_empty();
        if let Some(data) = &mut volume.data {
            data.relay.extend(news);
        }
        if let Some(channel) = self.processes.get_mut(&id).and_then(|p| p.channel.as_mut()) {
            channel.position = end;
            channel.last_heard = Some(now);
        }
        if received && let Some(source) = self.processes.get_mut(&source) {
            // Off or not, a source notes nobody's acknowledgement while it is no semi-synchronous source.
            for waiting in source
                .waiting
                .iter_mut()
                .filter(|w| source.semi_sync.is_some() && w.index < end)
            {
                waiting.acks.insert(incarnation.clone());
            }
        }
        received
    }

    fn apply(&mut self, id: u64, now: Instant) -> bool {
        let Some(process) = self.processes.get_mut(&id) else {
            return false;
        };
        if self
            .volumes
            .get(&process.claim)
            .is_some_and(|volume| volume.takes_nothing(now))
        {
            return false;
        }
        if !process.running() || !process.applier_running || process.applier_stuck || process.writable {
            return false;
        }
        let Some(data) = self.volumes.get_mut(&process.claim).and_then(|v| v.data.as_mut()) else {
            return false;
        };
        let pending = data.relay.len();
        if pending > 0 && data.poisoned {
            process.applier_running = false;
            process.failing_since.get_or_insert(now);
            return true;
        }
        process.failing_since = None;
        for _ in 0..pending {
            data.apply_one();
        }
        pending > 0
    }

    /// Commits what has enough acknowledgements, in the order of the binlog.
    fn commit(&mut self, id: u64, now: Instant) -> bool {
        let Some(process) = self.processes.get_mut(&id) else {
            return false;
        };
        if process.waiting.is_empty() || self.volumes.get(&process.claim).is_none_or(|v| v.takes_nothing(now)) {
            return false;
        }
        let Some(data) = self.volumes.get_mut(&process.claim).and_then(|v| v.data.as_mut()) else {
            return false;
        };
        let required = process.semi_sync.filter(|_| self.flaw != Some(Flaw::NoWait));
        let needed = usize::try_from(required.unwrap_or(0)).unwrap_or(usize::MAX);
        let ready = process.waiting.iter().take_while(|w| w.acks.len() >= needed).count();
        for waiting in process.waiting.drain(..ready) {
            data.commit(waiting.index);
            // The client may have given up.
            let _ = waiting.done.send(());
        }
        ready > 0
    }

    /// Names of the instances that receive from a process as semi-synchronous clients.
    pub(super) fn receivers(&self, source: u64) -> Vec<String> {
        let connected = |p: &&Process| p.channel.as_ref().is_some_and(|c| c.connected == Some(source));
        self.processes
            .values()
            .filter(connected)
            .map(|p| p.instance.clone())
            .collect()
    }
}

/// The other end of a channel.
struct Source {
    id: u64,
    silent: bool,
}
