//! One representation for all states that differ only in names: epochs, numbers of commands, and what nobody will read.

use super::bounds::Bounds;
use super::defect::Defect;
use super::ids::Id;
use super::state::{Answer, Operator, Order, Pair, Snapshot, State, Status, Told};

impl<const N: usize> State<N> {
    /// Renames epochs and seqs by rank, which keeps every comparison, and forgets what cannot matter any more.
    pub(super) fn canonical(&mut self, bounds: &Bounds) {
        self.forget(bounds);
        if bounds.renames_epochs() {
            self.rename_epochs();
        }
        for ordinal in 0..N {
            self.rename_seqs(ordinal);
        }
        self.strays.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn forget(&mut self, bounds: &Bounds) {
        let epoch = self.status.map_or(0, |status| status.epoch);
        for slot in 0..self.strays.len() {
            let dead = self.strays[slot].is_some_and(|message| {
                let node = &self.nodes[message.to.ordinal()];
                let old = message.pair <= node.accepted && !bounds.has(Defect::OldCommands);
                old || message.to.life() != node.life
            });
            if dead {
                self.strays[slot] = None;
            }
        }
        for ordinal in 0..N {
            let ended = self.nodes[ordinal].ended;
            for operator in &mut self.operators {
                let streams = operator.cache.is_some();
                let desk = &mut operator.desks[ordinal];
                if desk.flight.is_none() && (!desk.lost || (ended >= desk.newest && !streams)) {
                    desk.lost = false;
                    desk.newest = Pair::default();
                }
                if matches!(desk.answer, Some(Answer::NotOpened(of)) if of != epoch) {
                    desk.answer = None;
                }
            }
            let node = &mut self.nodes[ordinal];
            // Only the list of an open primary is read again, unless status is lost.
            if bounds.restores == 0 && !node.writable && !node.opening() {
                node.told = Told::default();
            }
        }
    }

    fn rename_epochs(&mut self) {
        let mut seen = [false; 256];
        self.epochs(|epoch| seen[usize::from(*epoch)] = true);
        let mut names = [0_u8; 256];
        let mut next = 1;
        for (epoch, name) in names.iter_mut().enumerate().skip(1) {
            if seen[epoch] {
                *name = next;
                next += 1;
            }
        }
        self.epochs(|epoch| *epoch = names[usize::from(*epoch)]);
    }

    fn rename_seqs(&mut self, ordinal: usize) {
        let mut pairs = [Pair::default(); 24];
        let mut count = 0;
        self.pairs(ordinal, |pair| {
            if *pair != Pair::default() && count < pairs.len() {
                pairs[count] = *pair;
                count += 1;
            }
        });
        let pairs = &mut pairs[..count];
        pairs.sort_unstable();
        self.pairs(ordinal, |pair| {
            let before = pairs
                .iter()
                .filter(|other| other.epoch == pair.epoch && other.seq < pair.seq);
            let mut last = 0;
            let distinct = before
                .filter(|other| std::mem::replace(&mut last, other.seq) != other.seq)
                .count();
            if *pair != Pair::default() {
                pair.seq = u8::try_from(distinct).unwrap_or(u8::MAX) + 1;
            }
        });
    }

    /// Every pair that anybody knows of at an instance.
    pub(super) fn pairs(&mut self, ordinal: usize, mut visit: impl FnMut(&mut Pair)) {
        let node = &mut self.nodes[ordinal];
        visit(&mut node.accepted);
        visit(&mut node.ended);
        for desk in self.operators.iter_mut().map(|operator| &mut operator.desks[ordinal]) {
            visit(&mut desk.newest);
            if let Some(flight) = &mut desk.flight {
                visit(&mut flight.message.pair);
            }
            if let Some(report) = &mut desk.heard {
                visit(&mut report.ended);
            }
        }
        let here = |message: &&mut super::state::Message| message.to.ordinal() == ordinal;
        for message in self.strays.iter_mut().flatten().filter(here) {
            visit(&mut message.pair);
        }
    }

    fn epochs(&mut self, mut visit: impl FnMut(&mut u8)) {
        self.each_status(|status| {
            visit(&mut status.epoch);
            if let Some(primary) = &mut status.primary {
                visit(&mut primary.reign);
            }
        });
        for node in &mut self.nodes {
            visit(&mut node.accepted.epoch);
            visit(&mut node.ended.epoch);
            visit(&mut node.told.epoch);
        }
        for operator in &mut self.operators {
            operator_epochs(operator, &mut visit);
        }
        for message in self.strays.iter_mut().flatten() {
            visit(&mut message.pair.epoch);
        }
    }

    /// Every status that somebody may still read or write.
    pub(super) fn each_status(&mut self, mut visit: impl FnMut(&mut Status)) {
        self.status.iter_mut().for_each(&mut visit);
        if let Some(Snapshot(Some(status))) = &mut self.backup {
            visit(status);
        }
        for operator in &mut self.operators {
            if let Some(Snapshot(Some(status))) = &mut operator.cache {
                visit(status);
            }
            let record = operator.pending.iter_mut().filter_map(|plan| plan.record.as_mut());
            record.for_each(&mut visit);
        }
    }

    /// Somebody still names that life of a data directory.
    pub(super) fn refers_to(&self, id: Id) -> bool {
        let mut named = false;
        self.clone().each_status(|status| {
            let electing = match status.phase {
                super::state::Phase::Open => None,
                super::state::Phase::Electing(preferred) => preferred,
            };
            named |= status.members.contains(id)
                || status.primary.is_some_and(|primary| primary.id == id)
                || electing == Some(id);
        });
        let told = |told: &Told| told.members.contains(id) || told.primary == Some(id);
        let order = |order: &Order| match order {
            Order::Attach(other) | Order::Clone(other) => *other == id,
            Order::Open { members, .. } | Order::Allow { members, .. } => members.contains(id),
            Order::Fence | Order::Mark | Order::Restart => false,
        };
        let desks = || self.operators.iter().flat_map(|operator| &operator.desks);
        let flights = desks().filter_map(|desk| Some(desk.flight?.message));
        let mut messages = flights.chain(self.strays.iter().flatten().copied());
        let mut reports = desks().filter_map(|desk| desk.heard);
        let plans = self.operators.iter().filter_map(|operator| operator.pending);
        let mut orders = plans.flat_map(|plan| plan.orders).flatten();
        named
            || self
                .nodes
                .iter()
                .any(|node| told(&node.told) || node.process == super::state::Process::Cloning(id))
            || messages.any(|message| message.to == id || order(&message.order))
            || orders.any(|(to, what)| to == id || order(&what))
            || reports.any(|report| told(&report.told) || Id::new(id.ordinal(), report.life) == id)
            || self.origin.contains(&Some(id))
    }
}

fn operator_epochs<const N: usize>(operator: &mut Operator<N>, visit: &mut impl FnMut(&mut u8)) {
    for desk in &mut operator.desks {
        visit(&mut desk.newest.epoch);
        if let Some(flight) = &mut desk.flight {
            visit(&mut flight.message.pair.epoch);
        }
        if let Some(Answer::NotOpened(epoch)) = &mut desk.answer {
            visit(epoch);
        }
        if let Some(report) = &mut desk.heard {
            visit(&mut report.ended.epoch);
            visit(&mut report.told.epoch);
        }
    }
}
