//! What was heard last of one instance.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::observed::{Heard, InstanceReport, Reach};
use mainstay_core::timing::Timing;
use mainstay_instance::convert::Message;

use crate::pool::link::Link;

/// Number of a session of one slot: a message of an ended session is not taken for news of the next.
pub(super) type SessionNumber = u64;

/// A connection and the session that it belongs to.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) link: Arc<dyn Link>,
    pub(super) session: SessionNumber,
}

/// What was heard last, written by the session task and by replies, read by passes.
pub(super) struct Slot {
    state: Mutex<State>,
}

struct State {
    session: SessionNumber,
    link: Option<Connected>,
    /// Number of the newest message of this session.
    sequence: u64,
    heard: Heardness,
}

enum Heardness {
    Never {
        since: Timestamp,
        reason: String,
    },
    Now {
        report: Box<InstanceReport>,
        at: Timestamp,
    },
    Before {
        last: Box<InstanceReport>,
        since: Timestamp,
        reason: String,
    },
}

/// What a message changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that a decision depends on.
    None,
    /// Only sets, ages and sizes: it matters while somebody waits.
    Progress,
    /// The same, and the archive holds more: people are told from time to time.
    Archive,
    /// Something that a decision may depend on.
    State,
}

impl Slot {
    pub(super) fn new(now: Timestamp) -> Self {
        let heard = Heardness::Never {
            since: now,
            reason: "it has not answered yet".to_owned(),
        };
        Self {
            state: Mutex::new(State {
                session: 0,
                link: None,
                sequence: 0,
                heard,
            }),
        }
    }

    /// A connection is up.
    pub(super) fn connected(&self, link: Arc<dyn Link>) -> SessionNumber {
        let mut state = self.lock();
        state.session += 1;
        state.sequence = 0;
        let session = state.session;
        state.link = Some(Connected { link, session });
        session
    }

    /// The connection is gone, or was never made; tells whether that is news.
    pub(super) fn lost(&self, reason: &str) -> bool {
        let mut state = self.lock();
        state.session += 1;
        state.link = None;
        let (heard, news) = match std::mem::replace(
            &mut state.heard,
            Heardness::Never {
                since: Timestamp::UNIX_EPOCH,
                reason: String::new(),
            },
        ) {
            Heardness::Now { report, at } => (
                Heardness::Before {
                    last: report,
                    since: at,
                    reason: reason.to_owned(),
                },
                true,
            ),
            Heardness::Before { last, since, .. } => (
                Heardness::Before {
                    last,
                    since,
                    reason: reason.to_owned(),
                },
                false,
            ),
            Heardness::Never { since, .. } => (
                Heardness::Never {
                    since,
                    reason: reason.to_owned(),
                },
                false,
            ),
        };
        state.heard = heard;
        news
    }

    /// A message of the stream of `session` arrived.
    pub(super) fn heard(&self, session: SessionNumber, message: &Message, now: Timestamp) -> Change {
        self.take(session, message.sequence, &message.report, now)
    }

    /// A reply to a command over the connection of `session` arrived.
    pub(super) fn replied(&self, session: SessionNumber, sequence: u64, report: &InstanceReport, now: Timestamp) {
        self.take(session, sequence, report, now);
    }

    /// The connection, if it is up.
    pub(super) fn link(&self) -> Option<Connected> {
        self.lock().link.clone()
    }

    /// What is known; whether it is settled, and what it is busy with, is for the ledger to say.
    pub(super) fn reach(&self) -> Reach {
        match &self.lock().heard {
            Heardness::Now { report, at } => {
                let report = InstanceReport::clone(report);
                Reach::Heard(Box::new(Heard {
                    report,
                    at: *at,
                    settled: false,
                    busy: None,
                    answer: None,
                }))
            }
            Heardness::Before { last, since, reason } => Reach::Silent {
                since: *since,
                reason: reason.clone(),
                last: Some(last.clone()),
            },
            Heardness::Never { since, reason } => Reach::Unknown {
                since: *since,
                reason: reason.clone(),
            },
        }
    }

    fn take(&self, session: SessionNumber, sequence: u64, report: &InstanceReport, now: Timestamp) -> Change {
        let mut state = self.lock();
        // A message of an ended session, or one that a reply on the other stream has overtaken.
        if session != state.session || sequence < state.sequence {
            return Change::None;
        }
        state.sequence = sequence;
        let change = match &state.heard {
            Heardness::Now { report: old, .. } => change(old, report),
            Heardness::Before { .. } | Heardness::Never { .. } => Change::State,
        };
        state.heard = Heardness::Now {
            report: Box::new(report.clone()),
            at: now,
        };
        change
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its source was heard lately: when that ends, it is a witness (rule 2b of docs/failover.md).
fn hears(report: &InstanceReport) -> bool {
    report.replication.heard_within(Timing::default().silence)
}

/// What is stored of what the instance has executed.
fn archived(report: &InstanceReport) -> Option<GtidSet> {
    let archive = report.archive.as_ref()?;
    Some(report.executed.subtract(&archive.behind))
}

/// Compares two reports. What changes all the time on a healthy cluster is progress; everything else is state.
fn change(old: &InstanceReport, new: &InstanceReport) -> Change {
    let mut steady = new.clone();
    steady.executed.clone_from(&old.executed);
    steady.received.clone_from(&old.received);
    steady.purged.clone_from(&old.purged);
    steady.disk = old.disk;
    steady.replication.last_heard = old.replication.last_heard;
    steady.replication.lag = old.replication.lag;
    if let (Some(age), Some(before)) = (&mut steady.replication.applier_failing, old.replication.applier_failing) {
        *age = before;
    }
    steady.semi_sync.waiters = old.semi_sync.waiters;
    if let (Some(steady), Some(old)) = (&mut steady.archive, &old.archive) {
        steady.behind.clone_from(&old.behind);
        steady.through = old.through;
    }
    if steady != *old || hears(new) != hears(old) || new.disk.level() != old.disk.level() {
        return Change::State;
    }
    if archived(new) != archived(old) {
        return Change::Archive;
    }
    // Ages and sizes alone are nobody's progress.
    let moved = new.executed != old.executed
        || new.received != old.received
        || new.semi_sync != old.semi_sync
        || new.replication.lag != old.replication.lag;
    if moved { Change::Progress } else { Change::None }
}
