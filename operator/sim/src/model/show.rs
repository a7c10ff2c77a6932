//! A state in a few lines, for people.

use std::fmt;

use super::ids::{Txns, txns};
use super::state::{Decision, Message, Node, Order, Pair, Phase, Process, Progress, State, Status};

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.epoch, self.seq)
    }
}

/// Transactions by letters.
fn set(set: Txns) -> String {
    let letters: String = txns(set).filter_map(|number| "tuvw".chars().nth(number)).collect();
    if letters.is_empty() { "-".to_owned() } else { letters }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} of {:?}, ", self.epoch, self.owner)?;
        match self.phase {
            Phase::Open => f.write_str("Open")?,
            Phase::Electing(None) => f.write_str("Electing")?,
            Phase::Electing(Some(id)) => write!(f, "Electing({id:?})")?,
        }
        match self.primary {
            None => f.write_str(", no primary")?,
            Some(primary) => write!(f, ", primary {:?} since {}", primary.id, primary.reign)?,
        }
        let baseline = set(self.baseline);
        write!(f, ", baseline {baseline}, members {:?}, k {}", self.members, self.acks)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Process::Up => {}
            Process::Absent | Process::Off | Process::Down | Process::Cloning(_) | Process::Failed => {
                write!(f, "{:?}, ", self.process)?;
            }
        }
        if self.writable {
            write!(f, "WRITABLE to {:?} k {}, ", self.told.members, self.told.acks)?;
        }
        if let Some(source) = self.source {
            let receives = if self.receiver { "follows" } else { "knows" };
            write!(f, "{receives} {source}, ")?;
        }
        write!(f, "executed {}", set(self.executed))?;
        let others = [
            ("waiting", self.waiting),
            ("relay", self.relay),
            ("purged", self.purged),
        ];
        for (name, transactions) in others.into_iter().filter(|(_, transactions)| *transactions != 0) {
            write!(f, ", {name} {}", set(transactions))?;
        }
        if !self.applier {
            f.write_str(", no applier")?;
        }
        if self.leaving {
            f.write_str(", leaving")?;
        }
        match self.progress {
            None => {}
            Some(Progress::Open) => write!(f, ", opens to {:?} k {}", self.told.members, self.told.acks)?,
            Some(Progress::Mark(marker)) => write!(f, ", marks {}", set(marker))?,
        }
        if let Some(marker) = self.marker {
            write!(f, ", marker {}", set(marker))?;
        }
        write!(f, ", ended {}", self.ended)?;
        if self.accepted != self.ended {
            write!(f, " of {}", self.accepted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fence => f.write_str("Fence"),
            Self::Attach(source) => write!(f, "Attach({source:?})"),
            Self::Open { members, acks, .. } => write!(f, "Open({members:?}, k {acks})"),
            Self::Allow { members, acks } => write!(f, "Allow({members:?}, k {acks})"),
            Self::Mark => f.write_str("Mark"),
            Self::Clone(donor) => write!(f, "Clone({donor:?})"),
            Self::Restart => f.write_str("Restart"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {:?} {}", self.order, self.to, self.pair)
    }
}

impl<const N: usize> fmt::Display for Decision<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(record) = &self.record {
            write!(f, "record [{record}]")?;
        }
        for (to, order) in self.orders.iter().flatten() {
            write!(f, " {order} to {to:?}")?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Display for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            None => f.write_str("no status")?,
            Some(status) => write!(f, "{status}")?,
        }
        write!(f, ", acknowledged {}", set(self.acked))?;
        for (name, mask) in [("cut", self.cut), ("apart", self.apart)] {
            let who: Vec<_> = (0..N).filter(|ordinal| super::state::has(mask, *ordinal)).collect();
            if !who.is_empty() {
                write!(f, ", {name} {who:?}")?;
            }
        }
        for (ordinal, node) in self.nodes.iter().enumerate() {
            write!(f, "\n      {:?}: {node}", self.id(ordinal))?;
        }
        for (number, operator) in self.operators.iter().enumerate() {
            if let Some(plan) = &operator.pending {
                write!(f, "\n      operator {number} is about to {plan}")?;
            }
            for desk in &operator.desks {
                if let Some(flight) = &desk.flight {
                    let begun = if flight.begun { " (begun)" } else { "" };
                    write!(f, "\n      operator {number} waits for {}{begun}", flight.message)?;
                }
                if desk.lost {
                    write!(f, "\n      operator {number} gave up {}", desk.newest)?;
                }
            }
        }
        for stray in self.strays.iter().flatten() {
            write!(f, "\n      may arrive: {stray}")?;
        }
        if let Some(flaw) = self.flaw {
            write!(f, "\n      {flaw:?}")?;
        }
        Ok(())
    }
}
