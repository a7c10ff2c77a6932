//! What Kubernetes does, and how a run begins.

use super::bounds::{Bounds, Start};
use super::ids::{Id, Ids, TXNS, UNKNOWN, txn};
use super::state::{
    Node, Operator, Owner, Pair, Phase, Primary, Process, Recovery, STRAYS, Snapshot, State, Status, Told, Used,
};

impl<const N: usize> State<N> {
    /// How a run begins.
    pub(super) fn first(bounds: &Bounds) -> Self {
        let replicas = usize::from(bounds.replicas);
        let mut state = Self {
            status: None,
            backup: None,
            replicas: bounds.replicas,
            nodes: [Node::empty(0); N],
            operators: [Operator::new(None); 2],
            strays: [None; STRAYS],
            cut: 0,
            apart: 0,
            written: 0,
            origin: [None; TXNS],
            number: [0; TXNS],
            got: [0; TXNS],
            acked: 0,
            used: Used::default(),
            flaw: None,
            beyond: false,
        };
        for node in &mut state.nodes[replicas..] {
            node.process = Process::Absent;
            node.claim = false;
        }
        if bounds.start.begun() {
            state.found(bounds, replicas);
        }
        if bounds.start == Start::Recovered {
            state.recovered();
        }
        if bounds.streams {
            state.operators[0].cache = Some(Snapshot(state.status));
            for ordinal in 0..replicas {
                state.operators[0].desks[ordinal].heard = Some(state.report(ordinal, bounds));
            }
        }
        state.canonical(bounds);
        state
    }

    /// The first instance has what another cluster wrote; nothing of it may ever be missing.
    fn recovered(&mut self) {
        self.written = 1;
        self.origin[0] = Some(Id::new(0, UNKNOWN));
        self.number[0] = 1;
        self.acked = txn(0);
        self.nodes[0].executed = txn(0);
        self.nodes[0].purged = txn(0);
        self.nodes[0].recovery = Recovery::Done;
    }

    /// A primary is open, and the members follow it.
    fn found(&mut self, bounds: &Bounds, replicas: usize) {
        let outside = usize::from(bounds.start != Start::Healthy);
        let members: Ids = (1..replicas - outside).map(|ordinal| Id::new(ordinal, 0)).collect();
        let former = Id::new(0, 0);
        let primary = if bounds.start == Start::HeldBack {
            self.written = 1;
            self.origin[0] = Some(former);
            self.number[0] = 1;
            self.nodes[replicas - 1].executed = txn(0);
            Id::new(0, 1)
        } else {
            former
        };
        self.nodes[0].life = primary.life();
        let acks = bounds.replicas / 2;
        self.status = Some(Status {
            epoch: 1,
            owner: Owner::Operator(0),
            phase: Phase::Open,
            primary: Some(Primary { id: primary, reign: 1 }),
            baseline: 0,
            members,
            acks,
        });
        for (ordinal, node) in self.nodes.iter_mut().enumerate().take(replicas) {
            node.accepted = Pair { epoch: 1, seq: 1 };
            node.ended = node.accepted;
            if members.contains(Id::new(ordinal, 0)) {
                node.source = Some(0);
                node.receiver = true;
            }
        }
        self.nodes[0].writable = true;
        self.nodes[0].told = Told {
            epoch: 1,
            primary: Some(primary),
            baseline: 0,
            members,
            acks,
        };
    }

    /// The next pod of the set that is missing is made; its volume is the one that was kept, or a new one.
    pub(super) fn make_pod(&mut self) -> bool {
        let size = self.set_size();
        let missing = (0..size).find(|ordinal| self.nodes[*ordinal].process == Process::Absent);
        let Some(ordinal) = missing else { return false };
        self.start(ordinal);
        true
    }

    /// A pod beyond the set's size ends.
    pub(super) fn remove_pod(&mut self) -> bool {
        let size = self.set_size();
        let extra = (size..N).find(|ordinal| self.nodes[*ordinal].process != Process::Absent);
        let Some(ordinal) = extra else { return false };
        self.crash(ordinal);
        self.nodes[ordinal].process = Process::Absent;
        true
    }
}
