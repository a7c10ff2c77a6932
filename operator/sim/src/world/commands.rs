//! What an instance manager does when it is commanded: the contract of `operator/instance`, on the model.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::action::{Endpoint, InstanceCommand, Verb};
use mainstay_core::observed::InstanceReport;
use mainstay_core::rules::{MemberId, Trouble};
use mainstay_instance::convert::{Outcome, Reply};
use tokio::time::Instant;

use super::data::DataDir;
use super::process::{CLONE, Channel, Phase, Process, UNREACHABLE, Waiting};
use super::{Flaw, Inner, World};

/// What the manager may take beyond a fence's deadline to get mysqld up again.
const RESTART_MARGIN: Duration = Duration::from_millis(1500);

/// Nobody answers: the process ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dead;

/// How a command ended.
type Ended = Result<Outcome, Dead>;

fn refused(reason: impl Into<String>) -> Outcome {
    Outcome::Refused { reason: reason.into() }
}

/// A command that was accepted, under way at one process.
struct Task<'a> {
    world: &'a World,
    id: u64,
    pair: (u64, u64),
    deadline: Instant,
}

impl World {
    /// Delivers a command to an instance, whoever sent it and when; what it answers is lost.
    pub async fn deliver(&self, namespace: &str, instance: &str, command: &InstanceCommand, seq: u64) {
        if let Some(id) = self.with(|w| w.process(namespace, instance).map(|p| p.id)) {
            // It may have died meanwhile.
            let _ = self.command(id, command, seq).await;
        }
    }

    /// The pair has to be durable before anything is done: a command waits for a disk that hangs.
    async fn disk_answers(&self, id: u64) -> Result<(), Dead> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            let until = self.with(|w| {
                let volume = w.volumes.get(&w.processes.get(&id)?.claim)?;
                Some(volume.stalled_until.filter(|_| volume.stalls(Instant::now())))
            });
            let Some(until) = until.ok_or(Dead)? else { return Ok(()) };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Gives a command to a process and waits until it ended.
    pub(super) async fn command(&self, id: u64, command: &InstanceCommand, seq: u64) -> Result<Reply, Dead> {
        let pair = (command.epoch, seq);
        self.disk_answers(id).await?;
        let outcome = if let Err(reason) = self.change(|w| w.accept(id, command, pair))? {
            refused(reason)
        } else {
            let task = Task {
                world: self,
                id,
                pair,
                deadline: Instant::now() + command.deadline,
            };
            let outcome = task.run(&command.verb).await?;
            self.change(|w| {
                if let Some(process) = w.processes.get_mut(&id) {
                    process.ended = process.ended.max(pair);
                }
            });
            outcome
        };
        self.with(|w| {
            let (sequence, report) = w.message(id, Instant::now()).ok_or(Dead)?;
            let (epoch, seq) = w.pair(id).ok_or(Dead)?;
            Ok(Reply {
                outcome,
                epoch,
                seq,
                report: Some(report),
                sequence,
            })
        })
    }
}

impl Inner {
    /// Rule 0: only for this incarnation, only newer than what is persisted; durable before anything is done.
    fn accept(&mut self, id: u64, command: &InstanceCommand, pair: (u64, u64)) -> Result<Result<(), String>, Dead> {
        let process = self.processes.get(&id).ok_or(Dead)?;
        let volume = self.volumes.get_mut(&process.claim).ok_or(Dead)?;
        if command.to.incarnation.0 != volume.incarnation || volume.incarnation.is_empty() {
            return Ok(Err(format!("this is incarnation {:?}", volume.incarnation)));
        }
        if volume.suffers(Trouble::Unreadable) {
            return Ok(Err("the volume does not take the state file".to_owned()));
        }
        let newest = (volume.state.epoch, volume.state.seq);
        if pair <= newest && self.flaw != Some(Flaw::OldCommands) {
            return Ok(Err(format!("{pair:?} is not newer than {newest:?}")));
        }
        (volume.state.epoch, volume.state.seq) = pair;
        Ok(Ok(()))
    }

    fn pair(&self, id: u64) -> Option<(u64, u64)> {
        let volume = self.volumes.get(&self.processes.get(&id)?.claim)?;
        Some((volume.state.epoch, volume.state.seq))
    }

    /// A number that changes with everything that a manager reports but positions, which it only samples.
    pub(super) fn shape(&self, id: u64) -> Option<u64> {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        let process = self.processes.get(&id)?;
        let volume = self.volumes.get(&process.claim)?;
        let channel = process.channel.as_ref();
        channel
            .map(|c| (&c.host, c.connected.is_some(), &c.error))
            .hash(&mut hasher);
        std::mem::discriminant(&process.phase).hash(&mut hasher);
        (process.writable, process.semi_sync, process.ended, process.leaving).hash(&mut hasher);
        (
            process.applier_running,
            process.applier_stuck,
            process.failing_since.is_some(),
        )
            .hash(&mut hasher);
        (process.restarts, process.refusals, volume.trouble.is_some()).hash(&mut hasher);
        (process.marker.is_some(), &volume.incarnation, volume.data.is_some()).hash(&mut hasher);
        volume.state.told_epoch.hash(&mut hasher);
        self.receivers(id).hash(&mut hasher);
        volume.data.as_ref().map(|d| &d.allowed).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The next message of a manager.
    pub(super) fn message(&mut self, id: u64, now: Instant) -> Option<(u64, InstanceReport)> {
        let receivers = self.receivers(id);
        let process = self.processes.get_mut(&id)?;
        let volume = self.volumes.get(&process.claim)?;
        process.sequence += 1;
        let mut report = process.report(volume, now);
        let allowed = volume.data.as_ref().and_then(|d| d.allowed.clone());
        let listed = |name: &String| allowed.as_ref().is_none_or(|a| a.contains(name));
        report.semi_sync.acknowledgers = receivers
            .into_iter()
            .filter(listed)
            .map(mainstay_core::rules::InstanceName)
            .collect();
        Some((process.sequence, report))
    }

    /// The process and its data directory, while mysqld answers.
    fn server(&mut self, id: u64) -> Option<(&mut Process, &mut DataDir)> {
        let process = self.processes.get_mut(&id).filter(|p| p.running())?;
        let data = self.volumes.get_mut(&process.claim)?.data.as_mut()?;
        Some((process, data))
    }

    fn tell(&mut self, id: u64, pair: (u64, u64), members: &BTreeSet<MemberId>, acks: u32, baseline: Option<&GtidSet>) {
        let Some(process) = self.processes.get(&id) else { return };
        let name = process.name();
        let Some(volume) = self.volumes.get_mut(&process.claim) else {
            return;
        };
        let state = &mut volume.state;
        state.told_epoch = pair.0;
        state.members = members.iter().cloned().collect();
        state.acks_required = acks;
        if let Some(baseline) = baseline {
            state.primary = Some(MemberId {
                instance: name,
                incarnation: mainstay_core::rules::Incarnation(volume.incarnation.clone()),
            });
            state.baseline = baseline.clone();
        }
    }

    /// Puts an allow list into force: whoever is not on it is cut before anything else happens.
    fn allow(&mut self, id: u64, members: &BTreeSet<MemberId>) {
        let names: BTreeSet<String> = members.iter().map(|m| m.instance.0.clone()).collect();
        if let Some((process, data)) = self.server(id) {
            process.marker = None;
            data.allowed = Some(names.clone());
        }
        if self.flaw == Some(Flaw::OpenDoors) {
            return;
        }
        for replica in self.processes.values_mut().filter(|p| !names.contains(&p.instance)) {
            if let Some(channel) = replica.channel.as_mut().filter(|c| c.connected == Some(id)) {
                channel.connected = None;
                "access denied: account is locked".clone_into(&mut channel.error);
            }
        }
    }
}

impl Task<'_> {
    async fn run(&self, verb: &Verb) -> Ended {
        match verb {
            Verb::Fence => self.fence().await,
            Verb::Attach { source } => self.attach(source).await,
            Verb::Open {
                members,
                acks_required,
                baseline,
                application,
                ..
            } => {
                self.open(members, *acks_required, baseline, application.is_some())
                    .await
            }
            Verb::Allow { members, acks_required } => self.allow(members, *acks_required),
            Verb::Mark => self.mark().await,
            Verb::Clone { donor, .. } => self.clone_from(donor),
            // Clones do not fail in this world, so it is never needed.
            Verb::Refill { .. } => Ok(refused("the store holds no binlogs")),
            Verb::Restart => self.restart().await,
            Verb::Purge { stored } => self.purge(stored),
        }
    }

    /// Changes something, unless a newer command was accepted meanwhile.
    fn change<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> Result<Result<T, Outcome>, Dead> {
        self.world.change(|w| match w.pair(self.id) {
            None => Err(Dead),
            Some(pair) if pair != self.pair => Ok(Err(refused("a newer command took over"))),
            Some(_) => Ok(Ok(f(w))),
        })
    }

    /// Waits for something under the lock, until `deadline`, a newer command, or death.
    async fn until<T>(
        &self,
        deadline: Instant,
        mut f: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<Result<Option<T>, Outcome>, Dead> {
        let step = |w: &mut Inner| match w.pair(self.id) {
            None => Some(Err(Dead)),
            Some(pair) if pair != self.pair => Some(Ok(Err(refused("a newer command took over")))),
            Some(_) => f(w).map(|value| Ok(Ok(Some(value)))),
        };
        self.world.until(deadline, step).await.unwrap_or(Ok(Ok(None)))
    }

    async fn running(&self, deadline: Instant) -> Result<Result<bool, Outcome>, Dead> {
        let up = self.until(deadline, |w| w.server(self.id).map(|_| ())).await?;
        Ok(up.map(|up| up.is_some()))
    }

    async fn fence(&self) -> Ended {
        let before = self.change(|w| {
            let (process, _) = w.server(self.id)?;
            process.closing = process.writable;
            Some((process.writable, process.channel.take().is_some()))
        })?;
        let before = match before {
            Ok(before) => before,
            Err(overtaken) => return Ok(overtaken),
        };
        let idle = |w: &mut Inner| w.server(self.id).filter(|(p, _)| p.waiting.is_empty()).map(|_| ());
        let quiet = match self.until(self.deadline, idle).await? {
            Ok(quiet) => quiet.is_some(),
            Err(overtaken) => return Ok(overtaken),
        };
        if !quiet {
            // A commit waits that nobody acknowledges, or mysqld does not answer: it is killed, not waited for.
            let killed = self.change(|w| {
                if let Some(process) = w.processes.get_mut(&self.id).filter(|p| p.running()) {
                    process.kill_mysqld(Instant::now());
                }
            })?;
            if let Err(overtaken) = killed {
                return Ok(overtaken);
            }
            match self.running(self.deadline + RESTART_MARGIN).await? {
                Ok(true) => {}
                Ok(false) => return Ok(refused("mysqld does not answer yet")),
                Err(overtaken) => return Ok(overtaken),
            }
        }
        let closed = self.change(|w| {
            let Some((process, data)) = w.server(self.id) else {
                return refused("mysqld does not answer yet");
            };
            (process.writable, process.closing, process.channel) = (false, false, None);
            process.applier_running = true;
            process.semi_sync = process.semi_sync.map(|_| UNREACHABLE);
            process.marker = None;
            data.allowed = None;
            if before == Some((false, false)) && quiet {
                Outcome::Already
            } else {
                Outcome::Applied
            }
        })?;
        Ok(closed.unwrap_or_else(|overtaken| overtaken))
    }

    async fn attach(&self, source: &Endpoint) -> Ended {
        match self.running(self.deadline).await? {
            Ok(true) => {}
            Ok(false) => return Ok(refused("mysqld does not answer")),
            Err(overtaken) => return Ok(overtaken),
        }
        // The receiver that follows this source already, or did before, goes on: the relay log stays.
        let resumed = self.change(|w| {
            let Some((process, data)) = w.server(self.id) else {
                return Some(refused("mysqld does not answer"));
            };
            if process.writable {
                return Some(refused("it is writable"));
            }
            if data.followed.as_ref() != Some(&source.host) {
                return None;
            }
            let applied = std::mem::replace(&mut process.applier_running, true);
            if process.channel.is_some() && applied {
                return Some(Outcome::Already);
            }
            process.semi_sync = None;
            process.channel.get_or_insert_with(|| Channel::new(&source.host));
            Some(Outcome::Applied)
        })?;
        match resumed {
            Ok(None) => {}
            Ok(Some(outcome)) | Err(outcome) => return Ok(outcome),
        }
        // Another source drops the relay log, and it may hold the only copy of something (C3).
        let applied = |w: &mut Inner| {
            let (process, data) = w.server(self.id)?;
            (process.channel, process.applier_running) = (None, true);
            data.relay.is_empty().then_some(())
        };
        match self.until(self.deadline, applied).await? {
            Ok(Some(())) => {}
            Ok(None) => return Ok(refused("received transactions are not applied")),
            Err(overtaken) => return Ok(overtaken),
        }
        let attached = self.change(|w| {
            let Some((process, data)) = w.server(self.id) else {
                return refused("mysqld does not answer");
            };
            process.semi_sync = None;
            process.channel = Some(Channel::new(&source.host));
            data.followed = Some(source.host.clone());
            Outcome::Applied
        })?;
        Ok(attached.unwrap_or_else(|overtaken| overtaken))
    }

    async fn open(&self, members: &BTreeSet<MemberId>, acks: u32, baseline: &GtidSet, application: bool) -> Ended {
        match self.running(self.deadline).await? {
            Ok(true) => {}
            Ok(false) => return Ok(refused("mysqld does not answer")),
            Err(overtaken) => return Ok(overtaken),
        }
        let prepared = self.change(|w| {
            let Some((process, data)) = w.server(self.id) else {
                return Some(refused("mysqld does not answer"));
            };
            if !data.relay.is_empty() || !data.executed.contains(baseline) {
                return Some(refused("it does not hold what was recorded"));
            }
            let already = process.writable && process.semi_sync == Some(acks).filter(|k| *k > 0);
            process.channel = None;
            process.semi_sync = (acks > 0).then_some(UNREACHABLE);
            w.tell(self.id, self.pair, members, acks, Some(baseline));
            w.its_history_counts(self.id);
            w.allow(self.id, members);
            if already {
                w.set_acks(self.id, acks);
            }
            already.then_some(Outcome::Already)
        })?;
        match prepared {
            Ok(None) => {}
            Ok(Some(outcome)) | Err(outcome) => return Ok(outcome),
        }
        let needed = usize::try_from(acks).unwrap_or(usize::MAX);
        let enough = |w: &mut Inner| (w.listed_receivers(self.id, members) >= needed).then_some(());
        match self.until(self.deadline, enough).await? {
            Ok(Some(())) => {}
            Ok(None) => return Ok(refused(format!("fewer than {acks} members are connected"))),
            Err(overtaken) => return Ok(overtaken),
        }
        let opened = self.change(|w| {
            w.set_acks(self.id, acks);
            w.check_history_at_opening(self.id);
            let Some((process, data)) = w.server(self.id) else {
                return refused("mysqld does not answer");
            };
            process.writable = true;
            // Whoever writes himself has got over it.
            data.poisoned = false;
            if !std::mem::replace(&mut data.accounts, true) {
                // root@'%', then the application's database and user: through the binlog, delaying nothing.
                for _ in 0..=u8::from(application) {
                    process.waiting.extend(data.append(None).map(|index| waiting(index).0));
                }
            }
            Outcome::Applied
        })?;
        Ok(opened.unwrap_or_else(|overtaken| overtaken))
    }

    fn allow(&self, members: &BTreeSet<MemberId>, acks: u32) -> Ended {
        let allowed = self.change(|w| {
            if w.server(self.id).is_none_or(|(p, _)| !p.writable) {
                return refused("it is not open");
            }
            w.tell(self.id, self.pair, members, acks, None);
            w.allow(self.id, members);
            w.set_acks(self.id, acks);
            Outcome::Applied
        })?;
        Ok(allowed.unwrap_or_else(|overtaken| overtaken))
    }

    async fn mark(&self) -> Ended {
        let begun = self.change(|w| {
            let (process, data) = w.server(self.id).filter(|(p, _)| p.writable && !p.closing)?;
            let (entry, committed) = waiting(data.append(None)?);
            process.waiting.push(entry);
            Some(committed)
        })?;
        let committed = match begun {
            Ok(Some(committed)) => committed,
            Ok(None) => return Ok(refused("it is not open")),
            Err(overtaken) => return Ok(overtaken),
        };
        match tokio::time::timeout_at(self.deadline, committed).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(refused("mysqld ended")),
            Err(_) => return Ok(refused("the marker was not acknowledged")),
        }
        let marked = self.change(|w| {
            let Some((process, data)) = w.server(self.id) else {
                return refused("mysqld does not answer");
            };
            process.marker = Some(data.executed.clone());
            Outcome::Applied
        })?;
        Ok(marked.unwrap_or_else(|overtaken| overtaken))
    }

    fn clone_from(&self, donor: &Endpoint) -> Ended {
        let begun = self.change(|w| {
            let incarnation = w.random.uuid();
            let Some(process) = w.processes.get_mut(&self.id) else {
                return refused("it ended");
            };
            if process.writable {
                return refused("it is writable");
            }
            process.forget();
            process.phase = Phase::Cloning {
                until: Instant::now() + CLONE,
                donor: donor.host.clone(),
            };
            let Some(volume) = w.volumes.get_mut(&process.claim) else {
                return refused("it has no volume");
            };
            volume.trouble = volume.trouble.filter(|(trouble, _)| *trouble != Trouble::Data);
            volume.data = None;
            volume.recovered = None;
            volume.incarnation = incarnation;
            volume.history_reset = false;
            let (epoch, seq) = (volume.state.epoch, volume.state.seq);
            volume.state = mainstay_core::observed::Persisted {
                epoch,
                seq,
                ..Default::default()
            };
            Outcome::Applied
        })?;
        Ok(begun.unwrap_or_else(|overtaken| overtaken))
    }

    fn purge(&self, stored: &GtidSet) -> Ended {
        let purged = self.change(|w| {
            let Some((_, data)) = w.server(self.id) else {
                return refused("mysqld does not answer");
            };
            let purged = data.purged.union(&stored.intersect(&data.executed));
            if purged == data.purged {
                return Outcome::Already;
            }
            data.purged = purged;
            Outcome::Applied
        })?;
        Ok(purged.unwrap_or_else(|overtaken| overtaken))
    }

    async fn restart(&self) -> Ended {
        let killed = self.change(|w| {
            if let Some(process) = w.processes.get_mut(&self.id) {
                process.kill_mysqld(Instant::now());
            }
        })?;
        if let Err(overtaken) = killed {
            return Ok(overtaken);
        }
        Ok(match self.running(self.deadline).await? {
            Ok(true) => Outcome::Applied,
            Ok(false) => refused("mysqld does not answer yet"),
            Err(overtaken) => overtaken,
        })
    }
}

impl Inner {
    fn set_acks(&mut self, id: u64, acks: u32) {
        if let Some((process, _)) = self.server(id) {
            process.semi_sync = (acks > 0).then_some(acks);
        }
    }

    fn listed_receivers(&self, id: u64, members: &BTreeSet<MemberId>) -> usize {
        self.receivers(id)
            .iter()
            .filter(|name| members.iter().any(|m| &m.instance.0 == *name))
            .count()
    }
}

/// A commit that waits, and what tells that it is done.
pub(crate) fn waiting(index: usize) -> (Waiting, tokio::sync::oneshot::Receiver<()>) {
    let (done, receiver) = tokio::sync::oneshot::channel();
    (
        Waiting {
            index,
            acks: BTreeSet::new(),
            done,
        },
        receiver,
    )
}
