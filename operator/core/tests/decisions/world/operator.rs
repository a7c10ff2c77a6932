//! An operator process: what it heard, what it sent, and one pass after the other, action by action.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::action::{Action, InstanceCommand, VerbKind};
use mainstay_core::observed::{Answer, Busy, Heard, InstanceReport, Reach};
use mainstay_core::rules::{InstanceName, OperatorId};

use crate::world::node::{Pair, Pod};

#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) id: OperatorId,
    pub(crate) started: Timestamp,
    pub(crate) streams: BTreeMap<InstanceName, (InstanceReport, Timestamp)>,
    pub(crate) ledger: BTreeMap<InstanceName, Ledger>,
    pub(crate) seq: u64,
    /// The rest of a plan, with the version of status that it was made from.
    pub(crate) pending: VecDeque<Action>,
    pub(crate) read: u64,
    pub(crate) look_at: Option<Timestamp>,
    /// What the last pass saw, as far as a change of it calls another one.
    pub(crate) seen: Option<Seen>,
    /// The last plan did or waited for something: growing sets call a pass, too.
    pub(crate) attends: bool,
    /// Cut off from the API server.
    pub(crate) blind: bool,
}

/// What a pass depends on, as far as a change of it calls one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    pub(crate) writes: u64,
    pub(crate) generation: Option<i64>,
    pub(crate) request: Option<String>,
    pub(crate) instances: Vec<(Outline, Option<Pod>, bool)>,
}

/// What an instance looks like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outline {
    Heard(Box<Heard>, Option<bool>),
    Silent(Timestamp),
    Unknown(Timestamp),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) newest: Pair,
    pub(crate) open: Option<Sent>,
    /// A command was given up: it may still arrive.
    pub(crate) lost: bool,
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) pair: Pair,
    pub(crate) verb: VerbKind,
    pub(crate) deadline: Timestamp,
}

/// A command on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) operator: usize,
    pub(crate) to: InstanceName,
    pub(crate) command: InstanceCommand,
    pub(crate) seq: u64,
    pub(crate) arrives: Timestamp,
}

impl Operator {
    pub(crate) fn new(number: u64, now: Timestamp) -> Self {
        Self {
            id: OperatorId(format!("operator-{number}")),
            started: now,
            streams: BTreeMap::new(),
            ledger: BTreeMap::new(),
            seq: 0,
            pending: VecDeque::new(),
            read: 0,
            look_at: None,
            seen: None,
            attends: true,
            blind: false,
        }
    }

    pub(crate) fn reach(&self, name: &InstanceName, now: Timestamp) -> Reach {
        let silence = jiff::SignedDuration::from_secs(2);
        let Some((report, at)) = self.streams.get(name) else {
            return Reach::Unknown {
                since: self.started,
                reason: "never heard".to_owned(),
            };
        };
        if now.duration_since(*at) >= silence {
            let last = Some(Box::new(report.clone()));
            return Reach::Silent {
                since: *at,
                reason: "no message".to_owned(),
                last,
            };
        }
        let ledger = self.ledger.get(name).cloned().unwrap_or_default();
        let reported = (report.persisted.epoch, report.persisted.seq);
        let all_answered = ledger.open.is_none() && !ledger.lost;
        let heard = Heard {
            report: report.clone(),
            at: *at,
            settled: all_answered || reported >= ledger.newest,
            busy: ledger.open.as_ref().map(|sent| Busy {
                verb: sent.verb,
                epoch: sent.pair.0,
            }),
            answer: ledger.answer,
        };
        Reach::Heard(Box::new(heard))
    }

    /// What an instance looks like, as far as a change of it calls a pass. Positions alone call one only while the
    /// cluster waits for something; the age of a heartbeat only when it passes the bound.
    pub(crate) fn outline(&self, name: &InstanceName, now: Timestamp) -> Outline {
        match self.reach(name, now) {
            Reach::Heard(mut heard) => {
                let report = &mut heard.report;
                let fresh = report.replication.last_heard.map(|age| age <= Duration::from_secs(2));
                report.replication.last_heard = None;
                report.replication.applier_failing = report.replication.applier_failing.map(|_| Duration::ZERO);
                report.semi_sync.waiters = 0;
                if !self.attends {
                    report.executed = GtidSet::new();
                    report.received = GtidSet::new();
                    report.replication.lag = None;
                }
                heard.at = Timestamp::UNIX_EPOCH;
                Outline::Heard(heard, fresh)
            }
            Reach::Silent { since, .. } => Outline::Silent(since),
            Reach::Unknown { since, .. } => Outline::Unknown(since),
        }
    }

    /// A command is sent.
    pub(crate) fn send(&mut self, command: &InstanceCommand, now: Timestamp) -> u64 {
        self.seq += 1;
        let ledger = self.ledger.entry(command.to.instance.clone()).or_default();
        if ledger.open.is_some() {
            ledger.lost = true;
        }
        let pair = (command.epoch, self.seq);
        ledger.newest = pair;
        let deadline = now + command.deadline + jiff::SignedDuration::from_millis(500);
        ledger.open = Some(Sent {
            pair,
            verb: command.verb.kind(),
            deadline,
        });
        self.seq
    }

    /// Gives up what was not answered in time.
    pub(crate) fn give_up(&mut self, now: Timestamp) {
        for ledger in self.ledger.values_mut() {
            if let Some(sent) = ledger.open.take_if(|sent| sent.deadline <= now) {
                ledger.lost = true;
                let failure = Some("no answer".to_owned());
                ledger.answer = Some(Answer {
                    verb: sent.verb,
                    epoch: sent.pair.0,
                    at: now,
                    failure,
                });
            }
        }
    }

    /// An answer comes, with the state after the effect.
    pub(crate) fn answered(
        &mut self,
        name: &InstanceName,
        pair: Pair,
        refusal: Option<String>,
        report: Option<InstanceReport>,
        now: Timestamp,
    ) {
        let ledger = self.ledger.entry(name.clone()).or_default();
        let persisted = report
            .as_ref()
            .is_some_and(|report| (report.persisted.epoch, report.persisted.seq) >= pair);
        if let Some(sent) = ledger.open.take_if(|sent| sent.pair == pair) {
            // A command that was refused before its pair was persisted says nothing of older ones that were given up.
            ledger.lost &= !persisted;
            ledger.answer = Some(Answer {
                verb: sent.verb,
                epoch: pair.0,
                at: now,
                failure: refusal,
            });
        }
        if let Some(report) = report {
            self.streams.insert(name.clone(), (report, now));
        }
    }
}
