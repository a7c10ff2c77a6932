//! What an operator sees in a pass, as a key: a decision is a function of it.

use super::bounds::Bounds;
use super::defect::Defect;
use super::ids::{Id, TXNS, Txns};
use super::state::{Answer, Owner, Pair, Phase, Process, Progress, Recovery, State, Status, Told};

/// What a clock decides is anybody's choice, anew in each pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Clock {
    /// Everything happened a moment ago: no silence is long enough, no deadline has passed, the reign has just begun.
    Early,
    /// As early, but the reign began long ago.
    Soon,
    /// Everything happened long ago, in the order in which it did.
    Late,
    /// As late; and of whatever is not heard, the pod is gone, too (which says nothing of its process).
    Gone,
    /// As late, but an election began right after its primary was recorded.
    Flapping,
}

/// Whether a receiver thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Receiver {
    Detached,
    /// It tries to connect, or hears nothing.
    Deaf(u8),
    Connected(u8),
}

/// What an instance manager says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that a manager reports"
)]
pub(super) struct Report {
    pub(super) life: u8,
    pub(super) recovered: bool,
    pub(super) process: Process,
    pub(super) ended: Pair,
    pub(super) told: Told,
    pub(super) executed: Txns,
    pub(super) relay: Txns,
    pub(super) purged: Txns,
    pub(super) receiver: Receiver,
    pub(super) applier: bool,
    pub(super) writable: bool,
    pub(super) leaving: bool,
    pub(super) marker: Option<Txns>,
}

/// How an instance looks to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Look {
    /// Neither pod nor claim.
    Nothing,
    /// No pod.
    Claim,
    /// A pod that is not heard.
    Silent,
    Heard {
        report: Report,
        settled: bool,
        /// The verb in flight (what matters: is it an Open), and its epoch.
        busy: Option<(Verb, u8)>,
        answer: Option<Answer>,
    },
}

/// A verb in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verb {
    Open,
    Another,
}

/// What a pass sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct View<const N: usize> {
    /// With the owner made relative: `Operator(0)` is the one that looks.
    pub(super) status: Option<Status>,
    pub(super) replicas: u8,
    pub(super) clock: Clock,
    pub(super) origin: [Option<Id>; TXNS],
    pub(super) number: [u8; TXNS],
    pub(super) looks: [Look; N],
}

impl<const N: usize> State<N> {
    /// What its manager says now.
    pub(super) fn report(&self, ordinal: usize, bounds: &Bounds) -> Report {
        let node = &self.nodes[ordinal];
        let up = node.up();
        let shown = |set: Txns| if up { set } else { 0 };
        let receiver = match node.source {
            Some(source) if up && node.receiver => {
                if self.link(ordinal, usize::from(source), bounds) {
                    Receiver::Connected(source)
                } else {
                    Receiver::Deaf(source)
                }
            }
            _ => Receiver::Detached,
        };
        Report {
            life: node.life,
            recovered: node.recovery == Recovery::Done,
            process: node.process,
            ended: node.ended,
            told: node.told,
            executed: shown(node.executed),
            relay: shown(node.relay),
            purged: shown(node.purged),
            receiver,
            applier: up && node.applier,
            writable: up && node.writable,
            leaving: node.leaving,
            marker: node.marker.filter(|_| up),
        }
    }

    /// What this operator sees.
    pub(super) fn view(&self, operator: usize, clock: Clock, bounds: &Bounds) -> View<N> {
        let mine = Owner::Operator(u8::try_from(operator).unwrap_or_default());
        let status = self.read(operator).map(|status| Status {
            owner: if status.owner == mine || bounds.has(Defect::ForeignEpochs) {
                Owner::Operator(0)
            } else {
                Owner::Nobody
            },
            ..status
        });
        let mut view = View {
            status,
            replicas: self.replicas,
            clock,
            origin: self.origin,
            number: self.number,
            looks: std::array::from_fn(|ordinal| self.look(operator, ordinal, bounds)),
        };
        bounds.distort(&mut view);
        view
    }

    pub(super) fn look(&self, operator: usize, ordinal: usize, bounds: &Bounds) -> Look {
        let node = &self.nodes[ordinal];
        let desk = &self.operators[operator].desks[ordinal];
        let streams = self.operators[operator].cache.is_some();
        let report = match desk.heard {
            Some(report) => report,
            None if node.process == Process::Absent => {
                return if node.claim { Look::Claim } else { Look::Nothing };
            }
            None if streams || !self.reach(operator, ordinal) => return Look::Silent,
            None => self.report(ordinal, bounds),
        };
        let answered = desk.flight.is_none() && !desk.lost;
        let busy = desk.flight.map(|flight| {
            let verb = match flight.message.order {
                super::state::Order::Open { .. } => Verb::Open,
                _ => Verb::Another,
            };
            (verb, flight.message.pair.epoch)
        });
        Look::Heard {
            settled: answered || report.ended >= desk.newest,
            // Only the ledger looks at a seq.
            report: Report {
                ended: Pair {
                    seq: u8::from(report.ended.seq > 0 || report.ended.epoch > 0),
                    ..report.ended
                },
                ..report
            },
            busy,
            answer: desk.answer,
        }
    }

    /// The clocks with which a pass may decide something of its own.
    pub(super) fn clocks(&self, operator: usize, bounds: &Bounds) -> impl Iterator<Item = Clock> {
        let looks = || (0..N).map(|ordinal| self.look(operator, ordinal, bounds));
        let silent = looks().any(|look| !matches!(look, Look::Heard { .. }));
        let electing = self
            .status
            .is_some_and(|status| matches!(status.phase, Phase::Electing(_)));
        let possible = [
            (true, Clock::Early),
            (true, Clock::Late),
            (silent, Clock::Gone),
            (electing, Clock::Flapping),
        ];
        possible
            .into_iter()
            .filter(|(possible, _)| *possible)
            .map(|(_, clock)| clock)
    }

    /// This replica is connected to that source.
    pub(super) fn link(&self, replica: usize, source: usize, bounds: &Bounds) -> bool {
        let (r, s) = (&self.nodes[replica], &self.nodes[source]);
        let follows = replica != source && r.up() && r.receiver && r.source.map(usize::from) == Some(source);
        let enforced = (s.writable || s.opening()) && !bounds.has(Defect::AnyoneAcknowledges);
        follows
            && s.up()
            && (!enforced || s.told.members.names(replica))
            && (self.apart >> replica | self.apart >> source) & 1 == 0
            && s.purged & !self.held(r.set()) == 0
    }

    /// Listed replicas that are connected.
    pub(super) fn links(&self, source: usize, bounds: &Bounds) -> u32 {
        let linked = (0..N).filter(|replica| self.link(*replica, source, bounds));
        u32::try_from(linked.count()).unwrap_or_default()
    }

    /// What counts as held when this set is: everything with the same GTIDs.
    pub(super) fn held(&self, set: Txns) -> Txns {
        super::ids::txns(set).fold(set, |held, number| held | self.twins(number))
    }

    /// Who is open as status wants it: the recorded primary, accepting writes.
    pub(super) fn open_primary(&self) -> Option<usize> {
        let status = self.status.filter(|status| status.phase == Phase::Open)?;
        let primary = status.primary?;
        let node = &self.nodes[primary.id.ordinal()];
        let open = self.alive(primary.id) && node.up() && node.writable && node.ended.epoch >= primary.reign;
        open.then_some(primary.id.ordinal())
    }

    /// It waits for replicas, and they are there.
    pub(super) fn can_finish(&self, ordinal: usize, bounds: &Bounds) -> bool {
        let node = &self.nodes[ordinal];
        match node.progress {
            None => false,
            Some(Progress::Open) => node.up() && self.links(ordinal, bounds) >= u32::from(node.told.acks),
            Some(Progress::Mark(set)) => {
                let contain = (0..N)
                    .filter(|replica| self.link(*replica, ordinal, bounds))
                    .filter(|replica| set & !self.held(self.nodes[*replica].set()) == 0);
                let enough = contain.count() >= usize::from(node.told.acks);
                node.up() && node.writable && node.waiting & set == 0 && enough
            }
        }
    }
}
