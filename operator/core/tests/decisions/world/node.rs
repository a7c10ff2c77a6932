//! An instance: its volume, its mysqld and its manager, with the promises of docs/failover.md, "Commands".

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::action::{InstanceCommand, Verb};
use mainstay_core::observed::{Disk, InstanceReport, Mysqld, Persisted, Recovered, Replication, SemiSync};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};

/// (epoch, seq)
pub(crate) type Pair = (u64, u64);

/// What survives a crash of everything.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) incarnation: String,
    pub(crate) uuid: String,
    /// The newest pair that was accepted: durable before the command does anything.
    pub(crate) accepted: Pair,
    /// What Open and Allow told: epoch, primary, baseline, members, k.
    pub(crate) told: Persisted,
    pub(crate) pristine: bool,
    /// Everything in the binlog, waiting transactions included.
    pub(crate) binlog: GtidSet,
    /// Transactions that the engine committed.
    pub(crate) executed: GtidSet,
    /// Transactions in the relay log, applied or not.
    pub(crate) relay: GtidSet,
    pub(crate) purged: GtidSet,
    /// The source that the server remembers.
    pub(crate) source: Option<String>,
    /// What is in the relay log next cannot be applied.
    pub(crate) poisoned: bool,
    /// What it was recovered to.
    pub(crate) recovered: Option<Box<Recovered>>,
}

impl Volume {
    pub(crate) fn new(incarnation: String, uuid: String) -> Self {
        Self {
            incarnation,
            uuid,
            accepted: (0, 0),
            told: Persisted::default(),
            pristine: true,
            binlog: GtidSet::new(),
            executed: GtidSet::new(),
            relay: GtidSet::new(),
            purged: GtidSet::new(),
            source: None,
            poisoned: false,
            recovered: None,
        }
    }

    /// Everything that a follower of this one can get from it.
    pub(crate) fn offers(&self) -> GtidSet {
        self.binlog.union(&self.executed)
    }
}

/// A running manager and its mysqld.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of MySQL's")]
pub(crate) struct Process {
    pub(crate) mysqld: Mysqld,
    /// When the present state of mysqld ends by itself (starting, cloning).
    pub(crate) until: Timestamp,
    pub(crate) writable: bool,
    pub(crate) receiver: bool,
    pub(crate) connected: bool,
    pub(crate) applier: bool,
    /// Since when the applier has not got beyond an error.
    pub(crate) failing_since: Option<Timestamp>,
    pub(crate) last_heard: Option<Timestamp>,
    /// Who may acknowledge; `None`: whoever connects.
    pub(crate) allowed: Option<BTreeSet<InstanceName>>,
    /// Acknowledgements that a commit waits for; `None`: semi-synchronous replication is off.
    pub(crate) wait_for: Option<u32>,
    /// Commits that wait, in order, with who acknowledged them.
    pub(crate) waiting: BTreeMap<u64, BTreeSet<InstanceName>>,
    pub(crate) marker: Option<GtidSet>,
    /// The command in progress.
    pub(crate) progress: Option<Progress>,
    /// The newest pair that has ended.
    pub(crate) ended: Pair,
    pub(crate) donor: Option<(InstanceName, String)>,
    pub(crate) leaving: bool,
    /// No new commits are taken: it becomes read-only.
    pub(crate) closing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) command: InstanceCommand,
    pub(crate) pair: Pair,
    pub(crate) operator: usize,
    pub(crate) deadline: Timestamp,
    /// Number of the marker transaction.
    pub(crate) marker: Option<u64>,
}

/// What becomes of a command when it arrives.
enum Course {
    /// It ended, refused or not.
    Ended(Option<String>),
    /// It waits for others.
    Begun,
}

impl Course {
    fn refused(why: &str) -> Self {
        Self::Ended(Some(why.to_owned()))
    }
}

/// What the manager answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) operator: usize,
    pub(crate) pair: Pair,
    pub(crate) refusal: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: InstanceName,
    pub(crate) ordinal: u32,
    pub(crate) volume: Option<Volume>,
    pub(crate) process: Option<Process>,
    /// Pod: uid, template, ConfigMap; and whether it is being deleted.
    pub(crate) pod: Option<Pod>,
    /// The node is off, or the kubelet cannot start the pod, until then.
    pub(crate) off_until: Timestamp,
    pub(crate) restarts: u32,
    pub(crate) next_gtid: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) template: Option<String>,
    pub(crate) config_map: Option<String>,
    /// Ends then.
    pub(crate) deleting: Option<Timestamp>,
    /// It cannot start with this template.
    pub(crate) broken: bool,
    pub(crate) role: Option<String>,
}

impl Node {
    pub(crate) fn new(name: InstanceName, ordinal: u32) -> Self {
        Self {
            name,
            ordinal,
            volume: None,
            process: None,
            pod: None,
            off_until: Timestamp::UNIX_EPOCH,
            restarts: 0,
            next_gtid: 0,
        }
    }

    pub(crate) fn id(&self) -> Option<MemberId> {
        let volume = self.volume.as_ref()?;
        Some(MemberId {
            instance: self.name.clone(),
            incarnation: Incarnation(volume.incarnation.clone()),
        })
    }

    pub(crate) fn running(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.mysqld == Mysqld::Running)
    }

    pub(crate) fn writable(&self) -> bool {
        self.running() && self.process.as_ref().is_some_and(|process| process.writable)
    }

    /// The container starts: mysqld begins to start.
    pub(crate) fn start(&mut self, now: Timestamp, took: Duration) {
        let accepted = self.volume.as_ref().map_or((0, 0), |volume| volume.accepted);
        self.process = Some(Process {
            mysqld: Mysqld::Starting,
            until: now + took,
            writable: false,
            receiver: false,
            connected: false,
            applier: false,
            failing_since: None,
            last_heard: None,
            allowed: None,
            wait_for: None,
            waiting: BTreeMap::new(),
            marker: None,
            progress: None,
            ended: accepted,
            donor: None,
            leaving: false,
            closing: false,
        });
    }

    /// mysqld is killed; its manager lives and starts it again.
    pub(crate) fn kill_mysqld(&mut self, now: Timestamp, took: Duration) {
        self.restarts += 1;
        if let Some(process) = &mut self.process {
            let (ended, progress, leaving) = (process.ended, process.progress.take(), process.leaving);
            self.start(now, took);
            if let Some(process) = &mut self.process {
                process.ended = ended;
                process.progress = progress;
                process.leaving = leaving;
            }
        }
    }

    /// Crash recovery commits everything that is in the binlog, acknowledged or not.
    pub(crate) fn recovered(&mut self) {
        if let Some(volume) = &mut self.volume {
            volume.executed = volume.executed.union(&volume.binlog);
        }
    }

    /// Its applier applies what was received, or stops with an error.
    pub(crate) fn apply(&mut self, now: Timestamp) {
        let (Some(process), Some(volume)) = (&mut self.process, &mut self.volume) else {
            return;
        };
        if !process.applier {
            return;
        }
        if volume.poisoned && !volume.executed.contains(&volume.relay) {
            process.applier = false;
            process.failing_since.get_or_insert(now);
            return;
        }
        process.failing_since = None;
        volume.executed = volume.executed.union(&volume.relay);
        volume.binlog = volume.binlog.union(&volume.relay);
    }

    /// What the manager reports now.
    pub(crate) fn report(&self, now: Timestamp, host: impl Fn(&str) -> String) -> Option<InstanceReport> {
        let (process, volume) = (self.process.as_ref()?, self.volume.as_ref()?);
        let running = process.mysqld == Mysqld::Running;
        let failing = process.failing_since.filter(|_| running);
        let shown = |set: &GtidSet| if running { set.clone() } else { GtidSet::new() };
        Some(InstanceReport {
            incarnation: Incarnation(volume.incarnation.clone()),
            persisted: Persisted {
                epoch: process.ended.0,
                seq: process.ended.1,
                ..volume.told.clone()
            },
            mysqld: process.mysqld,
            message: String::new(),
            restarts: self.restarts,
            failures: 0,
            refusals: 0,
            unreadable: false,
            standstill: None,
            version: "9.7.4".to_owned(),
            server_uuid: volume.uuid.clone(),
            writable: running && process.writable,
            executed: shown(&volume.executed),
            received: shown(&volume.relay),
            purged: shown(&volume.purged),
            replication: Replication {
                source_host: volume
                    .source
                    .as_ref()
                    .filter(|_| running && process.receiver)
                    .map(|source| host(source)),
                receiver_running: running && process.receiver && process.connected,
                applier_running: running && process.applier,
                last_heard: process
                    .last_heard
                    .filter(|_| process.receiver)
                    .map(|at| Duration::try_from(now.duration_since(at)).unwrap_or_default()),
                lag: running.then(|| {
                    let behind = !volume.executed.contains(&volume.relay);
                    Duration::from_millis(if behind { 5000 } else { 0 })
                }),
                receiver_error: String::new(),
                applier_error: failing.map_or_else(String::new, |_| "cannot be applied".to_owned()),
                applier_failing: failing.map(|since| Duration::try_from(now.duration_since(since)).unwrap_or_default()),
            },
            semi_sync: SemiSync {
                on: running && process.writable && process.wait_for.is_some(),
                wait_for: process.wait_for.unwrap_or(0),
                waiters: u32::try_from(process.waiting.len()).unwrap(),
                acknowledgers: Vec::new(),
            },
            disk: Disk::default(),
            marker: process.marker.clone().filter(|_| running),
            config_hash: String::new(),
            pristine: volume.pristine,
            list_uncertain: false,
            history_reset: false,
            archive: None,
            leaving: process.leaving,
            recovered: volume.recovered.clone(),
        })
    }

    /// A command arrives. Some end at once, others are in progress for a while.
    pub(crate) fn accept(
        &mut self,
        command: InstanceCommand,
        seq: u64,
        operator: usize,
        now: Timestamp,
        restart: Duration,
    ) -> Option<Answer> {
        let pair = (command.epoch, seq);
        let refuse = |reason: &str| {
            Some(Answer {
                operator,
                pair,
                refusal: Some(reason.to_owned()),
            })
        };
        let (process, volume) = (self.process.as_mut()?, self.volume.as_mut()?);
        if command.to.incarnation.0 != volume.incarnation {
            return refuse("another incarnation");
        }
        if pair <= volume.accepted {
            return refuse("an old command");
        }
        let fence = matches!(command.verb, Verb::Fence);
        if process.progress.is_some() && !fence {
            return refuse("another command is in progress");
        }
        volume.accepted = pair;
        volume.pristine = false;
        process.progress = None;
        let deadline = now + command.deadline;
        match self.carry_out(&command, now, restart) {
            Course::Begun => {
                let marker = None;
                self.process.as_mut()?.progress = Some(Progress {
                    command,
                    pair,
                    operator,
                    deadline,
                    marker,
                });
                None
            }
            Course::Ended(refusal) => {
                self.process.as_mut()?.ended = pair;
                Some(Answer {
                    operator,
                    pair,
                    refusal,
                })
            }
        }
    }

    fn carry_out(&mut self, command: &InstanceCommand, now: Timestamp, restart: Duration) -> Course {
        let (Some(process), Some(volume)) = (&mut self.process, &mut self.volume) else {
            return Course::refused("no process");
        };
        let open = process.mysqld == Mysqld::Running && process.writable;
        match &command.verb {
            // Commits that wait get a moment; no new ones begin.
            Verb::Fence if open && !process.waiting.is_empty() => {
                process.closing = true;
                Course::Begun
            }
            Verb::Fence => {
                self.fence(now, restart);
                Course::Ended(None)
            }
            Verb::Attach { source } => Course::Ended(self.attach(&source.id.instance)),
            Verb::Open {
                members,
                acks_required,
                baseline,
                ..
            } => {
                let set = volume.executed.union(&volume.relay);
                if process.mysqld != Mysqld::Running || !volume.executed.contains(&volume.relay) {
                    return Course::refused("not running or not applied");
                }
                if !set.contains(baseline) {
                    return Course::refused("lacks the baseline");
                }
                self.tell(command, baseline.clone(), members, *acks_required);
                Course::Begun
            }
            Verb::Allow { .. } | Verb::Mark if !open => Course::refused("not writable"),
            Verb::Allow { members, acks_required } => {
                let baseline = volume.told.baseline.clone();
                self.tell(command, baseline, members, *acks_required);
                Course::Ended(None)
            }
            Verb::Mark => Course::Begun,
            Verb::Clone { .. } if process.writable => Course::refused("writable"),
            Verb::Clone { donor, .. } => {
                process.mysqld = Mysqld::Cloning;
                process.until = now + Duration::from_secs(2);
                process.donor = Some((donor.id.instance.clone(), donor.id.incarnation.0.clone()));
                process.receiver = false;
                Course::Ended(None)
            }
            // No volume fills up in this world.
            Verb::Purge { .. } => Course::refused("nothing to purge"),
            Verb::Restart => {
                self.kill_mysqld(now, restart);
                Course::Ended(None)
            }
        }
    }

    /// The list and k are in force; a marker that was committed under others is forgotten.
    fn tell(&mut self, command: &InstanceCommand, baseline: GtidSet, members: &BTreeSet<MemberId>, acks: u32) {
        let (Some(process), Some(volume)) = (&mut self.process, &mut self.volume) else {
            return;
        };
        let list = Some(members.iter().map(|member| member.instance.clone()).collect());
        let wait_for = (acks > 0).then_some(acks);
        if process.allowed != list || process.wait_for != wait_for {
            process.marker = None;
        }
        volume.told = told(command.epoch, &command.to, baseline, members, acks);
        process.allowed = list;
        process.wait_for = wait_for;
    }

    /// Stops receiving, becomes read-only; killed rather than waiting for a commit that nobody acknowledges.
    pub(crate) fn fence(&mut self, now: Timestamp, restart: Duration) {
        let Some(process) = &mut self.process else { return };
        if process.mysqld != Mysqld::Running {
            return;
        }
        if process.writable && !process.waiting.is_empty() {
            self.kill_mysqld(now, restart);
            return;
        }
        process.writable = false;
        process.receiver = false;
        process.connected = false;
        process.applier = true;
        process.allowed = None;
        process.wait_for = None;
        process.marker = None;
    }

    fn attach(&mut self, source: &InstanceName) -> Option<String> {
        let (process, volume) = (self.process.as_mut()?, self.volume.as_mut()?);
        if process.mysqld != Mysqld::Running || process.writable {
            return Some("not running, or writable".to_owned());
        }
        if volume.source.as_ref() != Some(&source.0) {
            if !volume.executed.contains(&volume.relay) {
                return Some("its relay log is not applied".to_owned());
            }
            // Pointing to another source deletes the relay log.
            volume.relay = GtidSet::new();
            volume.source = Some(source.0.clone());
            process.connected = false;
        }
        process.receiver = true;
        process.applier = true;
        None
    }
}

fn told(
    epoch: u64,
    primary: &MemberId,
    baseline: GtidSet,
    members: &BTreeSet<MemberId>,
    acks_required: u32,
) -> Persisted {
    Persisted {
        epoch: 0,
        seq: 0,
        told_epoch: epoch,
        primary: Some(primary.clone()),
        baseline,
        members: members.iter().cloned().collect(),
        acks_required,
    }
}
