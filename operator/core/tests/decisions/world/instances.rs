//! Managers and mysqld: what starts, arrives, waits and ends.

use super::*;

impl World {
    pub(super) fn mysqlds(&mut self) {
        for at in 0..self.nodes.len() {
            let now = self.now;
            let orders = self.nodes[at].ordinal == 0 && self.kubernetes.has_secret("shop-recovery");
            let Some(process) = &mut self.nodes[at].process else {
                continue;
            };
            match process.mysqld {
                Mysqld::Starting if process.until <= now => {
                    process.mysqld = Mysqld::Running;
                    self.nodes[at].recovered();
                }
                Mysqld::Cloning if process.until <= now => self.end_clone(at),
                Mysqld::Initialising if process.until <= now => self.end_recovery(at),
                Mysqld::Failed if orders => {
                    process.mysqld = Mysqld::Initialising;
                    process.until = now + RECOVERY;
                }
                _ => {}
            }
        }
    }

    /// A clone has ended: a data directory with another incarnation, of the donor's data or empty.
    pub(super) fn end_clone(&mut self, at: usize) {
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
    pub(super) fn deliver(&mut self) {
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

    pub(super) fn answer(&mut self, at: usize, answer: Option<Answer>) {
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
    pub(super) fn progress(&mut self) {
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

    pub(super) fn open(&mut self, at: usize) {
        let name = self.nodes[at].name.clone();
        let process = self.nodes[at].process.as_mut().unwrap();
        process.writable = true;
        process.closing = false;
        process.receiver = false;
        process.connected = false;
        let volume = self.nodes[at].volume.as_mut().unwrap();
        volume.source = None;
        volume.poisoned = false;
        self.say(format!("{name} is open"));
        self.opened.push(name);
    }

    /// Writes the marker, then waits until it is committed.
    pub(super) fn marked(&mut self, at: usize, number: Option<u64>) -> bool {
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
}
