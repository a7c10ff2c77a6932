//! The world in a few hundred bytes.

use super::ids::{Id, Ids, TXNS, Txns};

/// Commands that were given up and may still arrive.
pub(super) const STRAYS: usize = 3;

/// (epoch, seq) of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) epoch: u8,
    pub(super) seq: u8,
}

/// Who wrote an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// An operator process that runs.
    Operator(u8),
    /// One that does not run any more.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Open,
    Electing(Option<Id>),
}

/// The recorded primary and its reign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Primary {
    pub(super) id: Id,
    pub(super) reign: u8,
}

/// What status holds of the rules. Times are not kept: how long something took is chosen anew in each pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Status {
    pub(super) epoch: u8,
    pub(super) owner: Owner,
    pub(super) phase: Phase,
    pub(super) primary: Option<Primary>,
    pub(super) baseline: Txns,
    pub(super) members: Ids,
    pub(super) acks: u8,
}

/// What Open and Allow told an instance; durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Told {
    pub(super) epoch: u8,
    pub(super) primary: Option<Id>,
    pub(super) baseline: Txns,
    pub(super) members: Ids,
    pub(super) acks: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Process {
    /// There is no pod.
    Absent,
    /// Pod and node are off.
    Off,
    /// The manager runs, mysqld does not.
    Down,
    /// A clone replaces the data directory.
    Cloning(Id),
    /// The clone did not work; nothing is there.
    Failed,
    /// mysqld answers.
    Up,
}

impl Process {
    /// Its manager can be heard.
    pub(super) const fn answers(self) -> bool {
        matches!(self, Self::Down | Self::Cloning(_) | Self::Failed | Self::Up)
    }
}

/// A command that has begun and waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    /// Open waits for k listed replicas.
    Open,
    /// Mark waits for k replicas to contain what was in the binlog.
    Mark(Txns),
}

/// Whether an instance recovers its data when it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Recovery {
    /// It makes an empty data directory.
    Never,
    /// It does, or is cloned.
    Wanted,
    /// The present data directory was recovered.
    Done,
}

/// An instance: its volume, its mysqld and its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of MySQL's")]
pub(super) struct Node {
    pub(super) life: u8,
    pub(super) process: Process,
    /// Its claim exists.
    pub(super) claim: bool,
    /// The data directory is half a clone, or there is none of one that recovers: the next start begins with an empty one, or
    /// recovers.
    pub(super) half: bool,
    pub(super) recovery: Recovery,
    /// The newest pair that was accepted: durable before the command does anything.
    pub(super) accepted: Pair,
    /// The newest pair that has ended.
    pub(super) ended: Pair,
    pub(super) told: Told,
    /// Committed in the engine.
    pub(super) executed: Txns,
    /// In the binlog, and waiting for acknowledgements.
    pub(super) waiting: Txns,
    /// In the relay log and not applied.
    pub(super) relay: Txns,
    /// What it cannot give to anybody.
    pub(super) purged: Txns,
    /// Ordinal of the source that the server remembers.
    pub(super) source: Option<u8>,
    pub(super) receiver: bool,
    pub(super) applier: bool,
    pub(super) writable: bool,
    /// It asked to be relieved.
    pub(super) leaving: bool,
    pub(super) marker: Option<Txns>,
    pub(super) progress: Option<Progress>,
}

impl Node {
    /// A data directory in which nothing ever happened.
    pub(super) const fn empty(life: u8) -> Self {
        Self {
            life,
            process: Process::Up,
            claim: true,
            half: false,
            recovery: Recovery::Never,
            accepted: Pair { epoch: 0, seq: 0 },
            ended: Pair { epoch: 0, seq: 0 },
            told: Told {
                epoch: 0,
                primary: None,
                baseline: 0,
                members: Ids::NONE,
                acks: 0,
            },
            executed: 0,
            waiting: 0,
            relay: 0,
            purged: 0,
            source: None,
            receiver: false,
            applier: true,
            writable: false,
            leaving: false,
            marker: None,
            progress: None,
        }
    }

    /// set(i)
    pub(super) const fn set(&self) -> Txns {
        self.executed | self.relay
    }

    /// Everything that a replica can get from it.
    pub(super) const fn binlog(&self) -> Txns {
        self.executed | self.waiting
    }

    pub(super) const fn up(&self) -> bool {
        matches!(self.process, Process::Up)
    }

    pub(super) const fn opening(&self) -> bool {
        matches!(self.progress, Some(Progress::Open))
    }
}

/// What an instance is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Order {
    Fence,
    Attach(Id),
    Open { members: Ids, acks: u8, baseline: Txns },
    Allow { members: Ids, acks: u8 },
    Mark,
    Clone(Id),
    Restart,
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) to: Id,
    pub(super) pair: Pair,
    pub(super) order: Order,
}

/// A command that its sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) message: Message,
    /// It arrived, was accepted, and has not ended.
    pub(super) begun: bool,
}

/// What became of the newest command that is not waited for any more; only what a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Fenced,
    NotFenced,
    /// An Open of this epoch did not work.
    NotOpened(u8),
}

/// What an operator knows of the commands to one instance (`controller/pool/ledger.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Desk {
    pub(super) flight: Option<Flight>,
    pub(super) newest: Pair,
    /// A command was given up: it may still arrive.
    pub(super) lost: bool,
    pub(super) answer: Option<Answer>,
    /// What it heard last, when reports are modelled as messages.
    pub(super) heard: Option<super::view::Report>,
}

/// What a pass decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decision<const N: usize> {
    pub(super) record: Option<Status>,
    pub(super) orders: [Option<(Id, Order)>; N],
    /// It breaks an invariant.
    pub(super) flawed: bool,
}

impl<const N: usize> Decision<N> {
    pub(super) const NOTHING: Self = Self {
        record: None,
        orders: [None; N],
        flawed: false,
    };

    /// The same with this owner in its record.
    pub(super) fn owned_by(self, owner: Owner) -> Self {
        Self {
            record: self.record.map(|status| Status { owner, ..status }),
            ..self
        }
    }

    pub(super) fn acts(&self) -> bool {
        self.record.is_some() || self.orders.iter().any(Option::is_some)
    }
}

/// Status as it was at a moment: a record, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Snapshot(pub(super) Option<Status>);

/// An operator process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operator<const N: usize> {
    /// A plan whose record is being written.
    pub(super) pending: Option<Decision<N>>,
    pub(super) desks: [Desk; N],
    /// The status that it read last, when that may be an older one.
    pub(super) cache: Option<Snapshot>,
}

/// How much of everything that is limited was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Used {
    pub(super) faults: u8,
    pub(super) volumes: u8,
    pub(super) late: u8,
    pub(super) departures: u8,
    pub(super) passes: u8,
    pub(super) restarts: u8,
    pub(super) scalings: u8,
    pub(super) restores: u8,
}

/// What should never have happened, other than what is seen from a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Flaw {
    /// A plan breaks an invariant of docs/failover.md.
    Invariant,
    /// The same pass again, before anything happened, plans something again.
    NotIdempotent,
}

/// The world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State<const N: usize> {
    pub(super) status: Option<Status>,
    /// An older status that can be restored.
    pub(super) backup: Option<Snapshot>,
    /// `spec.replicas`.
    pub(super) replicas: u8,
    pub(super) nodes: [Node; N],
    pub(super) operators: [Operator<N>; 2],
    pub(super) strays: [Option<Message>; STRAYS],
    /// Links between the first operator and instances that are cut.
    pub(super) cut: u8,
    /// Instances that are cut from all others.
    pub(super) apart: u8,
    /// Transactions that were ever written.
    pub(super) written: u8,
    /// Who wrote each.
    pub(super) origin: [Option<Id>; TXNS],
    /// Its number among those of its server.
    pub(super) number: [u8; TXNS],
    /// Who acknowledged each one that waits, by ordinal.
    pub(super) got: [u8; TXNS],
    /// Transactions that a client was told are committed.
    pub(super) acked: Txns,
    pub(super) used: Used,
    pub(super) flaw: Option<Flaw>,
    /// A limit of the model was passed: the state is not looked at further.
    pub(super) beyond: bool,
}

pub(super) const fn has(mask: u8, ordinal: usize) -> bool {
    mask >> ordinal & 1 == 1
}

impl<const N: usize> State<N> {
    pub(super) fn id(&self, ordinal: usize) -> Id {
        Id::new(ordinal, self.nodes[ordinal].life)
    }

    /// The instance lives in that life.
    pub(super) fn alive(&self, id: Id) -> bool {
        id.ordinal() < N && self.nodes[id.ordinal()].life == id.life()
    }

    /// An operator and an instance reach each other.
    pub(super) fn reach(&self, operator: usize, ordinal: usize) -> bool {
        self.nodes[ordinal].process.answers() && !(operator == 0 && has(self.cut, ordinal))
    }

    /// A command that had begun, and of which its instance knows nothing more.
    pub(super) fn is_forgotten(&self, flight: Flight) -> bool {
        let node = &self.nodes[flight.message.to.ordinal()];
        flight.begun && (node.progress.is_none() || node.accepted != flight.message.pair)
    }

    /// All transactions with the same GTID as this one. (Only with a defect there is another one.)
    pub(super) fn twins(&self, number: usize) -> Txns {
        let same =
            |other: &usize| self.origin[*other] == self.origin[number] && self.number[*other] == self.number[number];
        (0..usize::from(self.written))
            .filter(same)
            .fold(0, |set, other| set | super::ids::txn(other))
    }

    /// Ordinals below this have pods: the set shrinks after the rules let go of its last instances.
    pub(super) fn set_size(&self) -> usize {
        let in_use = self.status.iter().flat_map(|status| {
            let primary = status.primary.map(|primary| primary.id);
            status.members.iter().chain(primary).map(|id| id.ordinal() + 1)
        });
        in_use.max().unwrap_or(0).max(usize::from(self.replicas))
    }
}
