//! What an instance does: with commands (docs/failover.md, "Commands"), with transactions, in a crash.

use super::bounds::Bounds;
use super::defect::Defect;
use super::ids::{Id, UNKNOWN, txn, txns};
use super::state::{Answer, Flight, Message, Node, Order, Pair, Process, Progress, Recovery, State, Told, has};

/// What becomes of a command when it arrives.
enum Course {
    /// Refused before anything: its pair is not persisted.
    NotTaken,
    /// Carried out, or refused for its content.
    Ended(bool),
    /// It waits for others.
    Begun,
}

impl<const N: usize> State<N> {
    /// A command arrives; `waits`: the operator that waits for the answer.
    pub(super) fn deliver(&mut self, message: Message, waits: Option<usize>, bounds: &Bounds) {
        let ordinal = message.to.ordinal();
        let course = self.accept(message, bounds);
        if matches!(course, Course::Ended(_)) {
            self.nodes[ordinal].ended = self.nodes[ordinal].accepted;
        }
        let Some(operator) = waits else { return };
        let desk = &mut self.operators[operator].desks[ordinal];
        match course {
            Course::Begun => desk.flight = Some(Flight { message, begun: true }),
            Course::NotTaken => self.answered(operator, ordinal, false, bounds),
            Course::Ended(done) => self.answered(operator, ordinal, done, bounds),
        }
    }

    /// An answer comes; it brings a report.
    fn answered(&mut self, operator: usize, ordinal: usize, done: bool, bounds: &Bounds) {
        let report = self.report(ordinal, bounds);
        let desk = &mut self.operators[operator].desks[ordinal];
        if let Some(flight) = desk.flight.take() {
            desk.answer = outcome(&flight.message, done);
        }
        desk.lost = false;
        if self.operators[operator].cache.is_some() {
            self.operators[operator].desks[ordinal].heard = Some(report);
        }
    }

    /// A command is given up: nobody knows whether it was or will be carried out.
    pub(super) fn give_up(&mut self, operator: usize, ordinal: usize) {
        let desk = &mut self.operators[operator].desks[ordinal];
        if let Some(flight) = desk.flight.take() {
            desk.lost = true;
            desk.answer = outcome(&flight.message, false);
        }
    }

    fn accept(&mut self, message: Message, bounds: &Bounds) -> Course {
        let ordinal = message.to.ordinal();
        let node = &self.nodes[ordinal];
        let old = match bounds.defect {
            Some(Defect::OldCommands) => false,
            // Each process counts for itself: the seqs of two of them do not tell which command is the newer one.
            Some(Defect::ForeignEpochs) => message.pair.epoch < node.accepted.epoch,
            _ => message.pair <= node.accepted,
        };
        let busy = node.progress.is_some() && message.order != Order::Fence;
        if message.to.life() != node.life || old || busy {
            return Course::NotTaken;
        }
        let node = &mut self.nodes[ordinal];
        node.accepted = message.pair;
        node.progress = None;
        self.carry_out(ordinal, message.order, message.pair, bounds)
    }

    fn carry_out(&mut self, ordinal: usize, order: Order, pair: Pair, bounds: &Bounds) -> Course {
        let node = &self.nodes[ordinal];
        let open = node.up() && node.writable;
        match order {
            Order::Fence => {
                self.fence(ordinal);
                Course::Ended(true)
            }
            Order::Restart => {
                if self.nodes[ordinal].up() {
                    self.stop(ordinal);
                }
                Course::Ended(true)
            }
            Order::Attach(source) => Course::Ended(self.attach(ordinal, source, bounds)),
            Order::Open { baseline, .. } if !node.up() || node.relay != 0 || baseline & !self.held(node.set()) != 0 => {
                Course::Ended(false)
            }
            Order::Open {
                members,
                acks,
                baseline,
            } => {
                let told = Told {
                    epoch: pair.epoch,
                    primary: Some(self.id(ordinal)),
                    baseline,
                    members,
                    acks,
                };
                self.tell(ordinal, told);
                self.nodes[ordinal].progress = Some(Progress::Open);
                self.end_or_wait(ordinal, bounds)
            }
            Order::Allow { .. } | Order::Mark if !open => Course::Ended(false),
            Order::Allow { members, acks } => {
                let told = Told {
                    epoch: pair.epoch,
                    members,
                    acks,
                    ..node.told
                };
                self.tell(ordinal, told);
                Course::Ended(true)
            }
            Order::Mark => {
                let node = &mut self.nodes[ordinal];
                node.progress = Some(Progress::Mark(node.binlog()));
                self.end_or_wait(ordinal, bounds)
            }
            Order::Clone(donor) => Course::Ended(self.begin_clone(ordinal, donor)),
        }
    }

    fn end_or_wait(&mut self, ordinal: usize, bounds: &Bounds) -> Course {
        if !self.can_finish(ordinal, bounds) {
            return Course::Begun;
        }
        self.complete(ordinal);
        Course::Ended(true)
    }

    /// What the command in progress waited for has come.
    fn complete(&mut self, ordinal: usize) {
        let node = &mut self.nodes[ordinal];
        match node.progress.take() {
            Some(Progress::Open) => {
                node.writable = true;
                node.receiver = false;
                node.source = None;
            }
            Some(Progress::Mark(set)) => node.marker = Some(set),
            None => {}
        }
    }

    /// The command in progress ends: done, or because its deadline passed or mysqld ended.
    pub(super) fn end_progress(&mut self, ordinal: usize, done: bool, bounds: &Bounds) {
        if done {
            self.complete(ordinal);
        }
        let node = &mut self.nodes[ordinal];
        node.progress = None;
        node.ended = node.accepted;
        let ended = node.ended;
        for operator in 0..self.operators.len() {
            let flight = self.operators[operator].desks[ordinal].flight;
            let this = |flight: Flight| flight.begun && flight.message.pair == ended;
            if flight.is_some_and(this) && self.reach(operator, ordinal) {
                self.answered(operator, ordinal, done, bounds);
            }
        }
    }

    /// The list and k are in force; a marker that was committed under others is forgotten. Without semi-synchronous
    /// replication nothing waits any more.
    fn tell(&mut self, ordinal: usize, told: Told) {
        let node = &mut self.nodes[ordinal];
        if (told.members, told.acks) != (node.told.members, node.told.acks) {
            node.marker = None;
        }
        node.told = told;
        if told.acks == 0 && node.waiting != 0 {
            self.acked |= node.waiting;
            node.executed |= node.waiting;
            for number in txns(node.waiting) {
                self.got[number] = 0;
            }
            node.waiting = 0;
        }
    }

    /// Read-only and detached; killed rather than waiting for a commit that nobody acknowledges. One that does not run
    /// starts like this.
    fn fence(&mut self, ordinal: usize) {
        if !self.nodes[ordinal].up() {
            return;
        }
        if self.nodes[ordinal].waiting != 0 {
            self.stop(ordinal);
            self.nodes[ordinal].process = Process::Up;
        }
        let node = &mut self.nodes[ordinal];
        node.writable = false;
        node.receiver = false;
        node.applier = true;
        node.marker = None;
    }

    fn attach(&mut self, ordinal: usize, source: Id, bounds: &Bounds) -> bool {
        let node = &mut self.nodes[ordinal];
        if !node.up() || node.writable || source.ordinal() == ordinal {
            return false;
        }
        let to = u8::try_from(source.ordinal()).ok();
        let same = node.source == to && !bounds.has(Defect::RelayLogsDropped);
        if !same && node.relay != 0 && !bounds.has(Defect::RelayLogsDropped) {
            // It stops receiving and applies what it has, which takes too long.
            node.receiver = false;
            node.applier = true;
            return false;
        }
        if !same {
            // Pointing to another source deletes the relay log.
            node.relay = 0;
        }
        node.source = to;
        node.receiver = true;
        node.applier = true;
        true
    }

    /// The former data directory is nobody's any more.
    fn begin_clone(&mut self, ordinal: usize, donor: Id) -> bool {
        let node = &self.nodes[ordinal];
        if (node.up() && node.writable) || donor.ordinal() == ordinal || matches!(node.process, Process::Cloning(_)) {
            return false;
        }
        self.begin_life(ordinal);
        let node = &mut self.nodes[ordinal];
        node.process = Process::Cloning(donor);
        node.half = true;
        true
    }

    /// A clone has ended. Its donor has to live, and to be reached, at the end.
    pub(super) fn end_clone(&mut self, ordinal: usize, donor: Id) {
        let apart = (self.apart >> ordinal | self.apart >> donor.ordinal()) & 1 == 1;
        let gives = self.alive(donor) && self.nodes[donor.ordinal()].up() && !apart;
        let executed = self.nodes[donor.ordinal()].executed;
        let node = &mut self.nodes[ordinal];
        if gives {
            node.process = Process::Up;
            node.half = false;
            node.executed = executed;
            node.purged = executed;
        } else {
            node.process = Process::Failed;
        }
    }

    /// An empty data directory with another incarnation. What was told to the former one is forgotten, the pair is not.
    fn begin_life(&mut self, ordinal: usize) {
        self.forget_waiting(ordinal);
        let Some(life) = self.unused_life(ordinal) else {
            self.beyond = true;
            return;
        };
        let node = &self.nodes[ordinal];
        self.nodes[ordinal] = Node {
            process: node.process,
            accepted: node.accepted,
            ended: node.ended,
            leaving: node.leaving,
            applier: false,
            recovery: match node.recovery {
                Recovery::Never => Recovery::Never,
                Recovery::Wanted | Recovery::Done => Recovery::Wanted,
            },
            ..Node::empty(life)
        };
    }

    /// The volume is gone with everything on it, and with the process.
    pub(super) fn lose_volume(&mut self, ordinal: usize) {
        self.crash(ordinal);
        self.begin_life(ordinal);
        let node = &mut self.nodes[ordinal];
        node.accepted = Pair::default();
        node.ended = Pair::default();
        node.process = Process::Off;
        node.half = node.recovery != Recovery::Never;
    }

    fn unused_life(&self, ordinal: usize) -> Option<u8> {
        (0..UNKNOWN).find(|life| *life != self.nodes[ordinal].life && !self.refers_to(Id::new(ordinal, *life)))
    }

    /// mysqld ends without warning. What is in the binlog is committed by its recovery, acknowledged or not.
    pub(super) fn stop(&mut self, ordinal: usize) {
        self.forget_waiting(ordinal);
        let node = &mut self.nodes[ordinal];
        node.executed |= node.waiting;
        node.waiting = 0;
        node.process = Process::Down;
        node.writable = false;
        node.receiver = false;
        node.applier = false;
        node.marker = None;
    }

    fn forget_waiting(&mut self, ordinal: usize) {
        for number in txns(self.nodes[ordinal].waiting) {
            self.got[number] = 0;
        }
    }

    /// mysqld and manager end without warning.
    pub(super) fn crash(&mut self, ordinal: usize) {
        self.stop(ordinal);
        let node = &mut self.nodes[ordinal];
        node.process = Process::Off;
        node.progress = None;
        node.ended = node.accepted;
        node.leaving = false;
    }

    /// It starts: read-only and detached, without its applier. Half a clone becomes an empty data directory, or recovered
    /// data, while there is what to recover with: until a primary is recorded.
    pub(super) fn start(&mut self, ordinal: usize) {
        self.nodes[ordinal].claim = true;
        let recovers = self.nodes[ordinal].recovery != Recovery::Never;
        let due = self.status.is_none_or(|status| status.primary.is_none());
        if self.nodes[ordinal].half && recovers && !due {
            self.nodes[ordinal].process = Process::Failed;
            return;
        }
        if self.nodes[ordinal].half {
            self.begin_life(ordinal);
            if recovers {
                let node = &mut self.nodes[ordinal];
                node.executed = txn(0);
                node.purged = txn(0);
                node.recovery = Recovery::Done;
            }
        }
        self.nodes[ordinal].process = Process::Up;
    }

    /// A client writes.
    pub(super) fn write(&mut self, ordinal: usize, bounds: &Bounds) {
        let number = usize::from(self.written);
        let life = if bounds.has(Defect::UuidsKept) {
            0
        } else {
            self.nodes[ordinal].life
        };
        let origin = Id::new(ordinal, life);
        let earlier = txns(self.nodes[ordinal].binlog()).filter(|other| self.origin[*other] == Some(origin));
        self.number[number] = earlier.map(|other| self.number[other]).max().unwrap_or(0) + 1;
        self.origin[number] = Some(origin);
        self.written += 1;
        let node = &mut self.nodes[ordinal];
        if node.told.acks == 0 {
            node.executed |= txn(number);
            self.acked |= txn(number);
        } else {
            node.waiting |= txn(number);
        }
    }

    /// A replica receives the next transaction that it lacks and acknowledges it, or acknowledges one that it has.
    pub(super) fn receive(&mut self, replica: usize, bounds: &Bounds) -> bool {
        let Some(source) = self.nodes[replica].source.map(usize::from) else {
            return false;
        };
        if !self.link(replica, source, bounds) {
            return false;
        }
        for number in txns(self.nodes[source].binlog()) {
            let fresh = self.twins(number) & self.nodes[replica].set() == 0;
            let waits = self.nodes[source].waiting & txn(number) != 0;
            let acknowledges = waits && !has(self.got[number], replica);
            if fresh {
                self.nodes[replica].relay |= txn(number);
            }
            if acknowledges {
                self.got[number] |= 1 << replica;
            }
            if fresh || acknowledges {
                return true;
            }
        }
        false
    }

    pub(super) fn apply(&mut self, ordinal: usize) {
        let node = &mut self.nodes[ordinal];
        node.executed |= node.relay;
        node.relay = 0;
    }

    /// The first commit that waits has its acknowledgements, and its client is told.
    pub(super) fn acknowledge(&mut self, ordinal: usize) -> bool {
        let node = &mut self.nodes[ordinal];
        let Some(number) = txns(node.waiting).next() else {
            return false;
        };
        if !node.up() || self.got[number].count_ones() < u32::from(node.told.acks) {
            return false;
        }
        node.waiting &= !txn(number);
        node.executed |= txn(number);
        self.acked |= txn(number);
        self.got[number] = 0;
        true
    }
}

fn outcome(message: &Message, done: bool) -> Option<Answer> {
    match (message.order, done) {
        (Order::Fence, true) => Some(Answer::Fenced),
        (Order::Fence, false) => Some(Answer::NotFenced),
        (Order::Open { .. }, false) => Some(Answer::NotOpened(message.pair.epoch)),
        _ => None,
    }
}
