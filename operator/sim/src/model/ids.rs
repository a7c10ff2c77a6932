//! Names in a bit each.

use std::fmt;

/// A set of transactions.
pub(super) type Txns = u8;

/// Transactions that a state can hold.
pub(super) const TXNS: usize = 4;

/// Lives of a data directory that can be told apart at a time; a life that nobody refers to any more is used again.
pub(super) const LIVES: u8 = 4;

/// The life of a member of which nobody knows any more in which life it was one.
pub(super) const UNKNOWN: u8 = LIVES - 1;

/// A set with one transaction.
pub(super) const fn txn(number: usize) -> Txns {
    1 << number
}

/// The transactions of a set, in the order in which they were written.
pub(super) fn txns(set: Txns) -> impl Iterator<Item = usize> {
    (0..TXNS).filter(move |number| set & txn(*number) != 0)
}

/// An instance in one life of its data directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(u8);

impl Id {
    pub(super) fn new(ordinal: usize, life: u8) -> Self {
        Self(u8::try_from(ordinal).unwrap_or(u8::MAX / LIVES) * LIVES + life)
    }

    pub(super) const fn ordinal(self) -> usize {
        (self.0 / LIVES) as usize
    }

    pub(super) const fn life(self) -> u8 {
        self.0 % LIVES
    }

    pub(super) const fn number(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ordinal())?;
        (0..self.life()).try_for_each(|_| f.write_str("'"))
    }
}

/// A set of instances in lives.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ids(u32);

impl Ids {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn contains(self, id: Id) -> bool {
        self.0 >> id.0 & 1 == 1
    }

    pub(super) const fn with(self, id: Id) -> Self {
        Self(self.0 | 1 << id.0)
    }

    /// Whether an instance of that ordinal is in it, in whatever life: replication accounts do not know lives.
    pub(super) fn names(self, ordinal: usize) -> bool {
        (0..LIVES).any(|life| self.contains(Id::new(ordinal, life)))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Id> {
        (0..32).map(Id).filter(move |id| self.contains(*id))
    }
}

impl FromIterator<Id> for Ids {
    fn from_iter<I: IntoIterator<Item = Id>>(ids: I) -> Self {
        ids.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
