//! What an operator process does: passes, writes of status, commands.

use super::bounds::Bounds;
use super::decide::Planner;
use super::defect::Defect;
use super::ids::Id;
use super::state::{Desk, Flaw, Flight, Message, Operator, Order, Owner, Pair, Phase, Snapshot, State, Status};
use super::view::Clock;

impl<const N: usize> Operator<N> {
    /// A process that has just begun.
    pub(super) fn new(cache: Option<Snapshot>) -> Self {
        Self {
            pending: None,
            desks: [Desk::default(); N],
            cache,
        }
    }
}

impl<const N: usize> State<N> {
    /// One pass: false when it does nothing. Commands are sent at once, unless a write of status has to come first.
    pub(super) fn pass(&mut self, operator: usize, clock: Clock, planner: &Planner<N>, bounds: &Bounds) -> bool {
        let decision = planner.decide(&self.view(operator, clock, bounds), bounds);
        if decision.flawed {
            self.flaw = Some(Flaw::Invariant);
            return true;
        }
        if !decision.acts() {
            return false;
        }
        if decision.record.is_some() {
            let owner = Owner::Operator(u8::try_from(operator).unwrap_or_default());
            self.operators[operator].pending = Some(decision.owned_by(owner));
            return true;
        }
        let read = self.read(operator);
        let epoch = read.map_or(0, |status| status.epoch);
        self.send(operator, epoch, &decision.orders);
        let again = planner.decide(&self.view(operator, clock, bounds), bounds);
        // An election goes on without those that are being told something, because they are not confirmed meanwhile; but
        // nobody's data directory is given up for want of an answer that is on its way.
        let electing = read.is_some_and(|status| matches!(status.phase, Phase::Electing(_)));
        let clones = again
            .orders
            .iter()
            .flatten()
            .any(|(_, order)| matches!(order, Order::Clone(_)));
        let clones = clones
            && decision
                .orders
                .iter()
                .flatten()
                .any(|(to, _)| self.nodes[to.ordinal()].up());
        if clones || (again.acts() && !electing) {
            self.flaw = Some(Flaw::NotIdempotent);
        }
        true
    }

    /// The status that an operator knows.
    pub(super) fn read(&self, operator: usize) -> Option<Status> {
        self.operators[operator].cache.map_or(self.status, |cache| cache.0)
    }

    /// The write of status reaches the API server; `heard`: its answer arrives, and the commands go out.
    pub(super) fn commit(&mut self, operator: usize, heard: bool, bounds: &Bounds) -> bool {
        let Some(plan) = self.operators[operator].pending.take() else {
            return false;
        };
        let Some(record) = plan.record else { return false };
        if self.read(operator) != self.status && !bounds.has(Defect::BlindWrites) {
            // Compare-and-set: the rest of the plan is dropped.
            return true;
        }
        self.status = Some(record);
        for other in 0..self.operators.len() {
            if !bounds.has(Defect::BlindWrites) {
                self.operators[other].pending = None;
            }
        }
        if heard {
            if let Some(cache) = &mut self.operators[operator].cache {
                *cache = Snapshot(Some(record));
            }
            self.send(operator, record.epoch, &plan.orders);
        }
        true
    }

    fn send(&mut self, operator: usize, epoch: u8, orders: &[Option<(Id, Order)>; N]) {
        for (ordinal, order) in orders.iter().enumerate() {
            let Some((to, order)) = *order else { continue };
            let seq = self.newest_seq(ordinal, epoch) + 1;
            let message = Message {
                to,
                pair: Pair { epoch, seq },
                order,
            };
            let overtaken = self.operators[operator].desks[ordinal].flight;
            let desk = &mut self.operators[operator].desks[ordinal];
            desk.newest = message.pair;
            desk.flight = Some(Flight { message, begun: false });
            if let Some(overtaken) = overtaken {
                desk.lost = true;
                if !overtaken.begun {
                    self.stray(overtaken.message);
                }
            }
        }
    }

    /// Remembers a command that may arrive late; one too many is a command that is lost.
    pub(super) fn stray(&mut self, message: Message) {
        if let Some(free) = self.strays.iter_mut().find(|stray| stray.is_none()) {
            *free = Some(message);
        }
    }

    /// The highest seq of this epoch that anybody knows of at that instance.
    fn newest_seq(&self, ordinal: usize, epoch: u8) -> u8 {
        let mut newest = 0;
        self.clone().pairs(ordinal, |pair| {
            if pair.epoch == epoch {
                newest = newest.max(pair.seq);
            }
        });
        newest
    }

    /// The process ends, and another one begins that knows nothing. Its commands may still arrive.
    pub(super) fn restart_operator(&mut self, operator: usize) {
        let this = Owner::Operator(u8::try_from(operator).unwrap_or_default());
        let flights = self.operators[operator].desks.map(|desk| desk.flight);
        for flight in flights.into_iter().flatten().filter(|flight| !flight.begun) {
            self.stray(flight.message);
        }
        let cache = self.operators[operator].cache.map(|_| Snapshot(self.status));
        self.operators[operator] = Operator::new(cache);
        self.each_status(|status| {
            if status.owner == this {
                status.owner = Owner::Nobody;
            }
        });
    }
}
