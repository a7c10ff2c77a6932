//! Decisions of the continuous archive: where it goes on, where a segment ends, what is missing, which indexes are merged
//! (docs/backup.md, "The archive").
//!
//! Nothing is remembered but what the store holds: each beginning is made from the ends of the reigns that are in it.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;

use super::manifest::Segment;
use crate::GtidSet;
use crate::gtid::Gtid;

/// A segment is closed this long after the first transaction that it could hold was written.
pub const CLOSE: Duration = Duration::from_millis(300);

/// Bytes of the binlog in a segment, unless it is one transaction.
pub const SEGMENT_BYTES: u64 = 8 << 20;

/// Transactions in a segment: its index, and what is held in memory of it, stay small.
pub const SEGMENT_TRANSACTIONS: usize = 4096;

/// Indexes that are merged into one.
const MERGED: usize = 32;

/// An index of this size is not merged any more: [`MERGED`] smaller ones have at most 4 MiB.
const LARGE: u64 = 128 << 10;

/// The longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How a reign ends in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// No segment of it is indexed.
    Nothing,
    /// The last segment that an index names.
    Segment(Box<Segment>),
    /// The index of the last one cannot be read: what was stored is unknown, and not nothing.
    Unreadable {
        /// The last number, which is part of the index's name.
        sequence: u64,
    },
}

/// A reign, as far as the beginning of another one needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReignEnd {
    /// Transactions with which it began.
    pub baseline: GtidSet,
    /// How it ends.
    pub last: Last,
}

/// Where an archive goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The number of the next segment.
    pub sequence: u64,
    /// Transactions that need not be stored any more; `None` when the store holds nothing, or nobody knows what.
    pub stored: Option<GtidSet>,
    /// Holes of before: transactions that are stored nowhere.
    pub missing: GtidSet,
    /// When the last of what is stored was committed.
    pub through: Option<Timestamp>,
}

/// Where a reign goes on, from its own end and, if it has none yet, those of the reigns before it, newest first (as far back as
/// to the first that has an end).
///
/// What a former primary stored beyond the baseline of the next reign never happened (decision A8): the part of it that
/// counts is what need not be stored again, and everything else up to the own baseline is in the own binlogs.
#[must_use]
pub fn start(own: &ReignEnd, former: &[ReignEnd]) -> Start {
    match &own.last {
        Last::Segment(segment) => return after(segment, None, segment.sequence.saturating_add(1)),
        Last::Unreadable { sequence } => {
            return Start {
                sequence: sequence.saturating_add(1),
                ..Start::default()
            };
        }
        Last::Nothing => {}
    }
    let mut counts = own.baseline.clone();
    for reign in former {
        match &reign.last {
            Last::Segment(segment) => return after(segment, Some(&counts), 1),
            Last::Unreadable { .. } => break,
            Last::Nothing => counts = counts.intersect(&reign.baseline),
        }
    }
    Start {
        sequence: 1,
        ..Start::default()
    }
}

fn after(segment: &Segment, counts: Option<&GtidSet>, sequence: u64) -> Start {
    let valid = |set: &GtidSet| counts.map_or_else(|| set.clone(), |counts| set.intersect(counts));
    let mut transactions = segment.transactions.iter().rev();
    let last = transactions.find(|transaction| counts.is_none_or(|counts| counts.contains_gtid(&transaction.gtid)));
    Start {
        sequence,
        stored: Some(valid(&segment.previous.union(&segment.gtids))),
        missing: valid(&segment.missing),
        through: last.and_then(|transaction| Timestamp::from_microsecond(transaction.at).ok()),
    }
}

/// What is missing when a server has executed `before` in front of the next segment, and the store holds `stored`.
#[must_use]
pub fn hole(before: &GtidSet, stored: Option<&GtidSet>, missing: &GtidSet) -> GtidSet {
    stored.map_or_else(GtidSet::new, |stored| before.subtract(stored).subtract(missing))
}

/// Where the next segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Transactions in it; 0 when the first one that waits is not executed yet.
    pub transactions: usize,
    /// It holds as much as a segment may: there is no reason to wait for more.
    pub full: bool,
}

/// Cuts the next segment from what waits, in the order of the binlog, with the bytes of each. A binlog holds a transaction
/// before a replica has acknowledged it: what is not executed is not stored, and nothing behind it (decision A8).
pub fn cut<'a>(waiting: impl IntoIterator<Item = (&'a Gtid, u64)>, executed: &GtidSet) -> Cut {
    let (mut transactions, mut bytes) = (0, 0_u64);
    for (gtid, length) in waiting {
        if !executed.contains_gtid(gtid) {
            break;
        }
        let larger = bytes.saturating_add(length);
        if transactions > 0 && larger > SEGMENT_BYTES {
            return Cut {
                transactions,
                full: true,
            };
        }
        transactions += 1;
        bytes = larger;
        if transactions == SEGMENT_TRANSACTIONS || bytes >= SEGMENT_BYTES {
            return Cut {
                transactions,
                full: true,
            };
        }
    }
    Cut {
        transactions,
        full: false,
    }
}

/// Up to when everything is stored: until the server was asked what it had executed, or until before the first
/// transaction that is not stored, which may be one that is not acknowledged yet.
#[must_use]
pub fn through(asked: Timestamp, first_waiting: Option<i64>) -> Timestamp {
    let before = first_waiting.and_then(|at| Timestamp::from_microsecond(at.saturating_sub(1)).ok());
    before.map_or(asked, |before| before.min(asked))
}

/// How long to wait after so many failures in a row, from 1.
#[must_use]
pub fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    Duration::from_millis(500)
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE)
}

/// An index in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Index {
    /// The first segment that it describes.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Indexes that another one describes, too: what is left of a merger that did not come to its end.
#[must_use]
pub fn superseded(indexes: &[Index]) -> Vec<Index> {
    let within = |index: &Index| {
        indexes.iter().any(|other| {
            let wider = other.last - other.first > index.last - index.first;
            wider && other.first <= index.first && index.last <= other.last
        })
    };
    indexes.iter().copied().filter(within).collect()
}

/// Which indexes, in the order of their segments, are merged next; `None` when there is nothing to merge.
#[must_use]
pub fn merger(indexes: &[Index]) -> Option<Range<usize>> {
    #[derive(PartialEq, Eq)]
    enum Class {
        Single,
        Merged,
        Large,
    }
    let class = |index: &Index| match index {
        index if index.bytes >= LARGE => Class::Large,
        index if index.first == index.last => Class::Single,
        _ => Class::Merged,
    };
    let mut begin = 0;
    for (at, index) in indexes.iter().enumerate() {
        let same = indexes.get(begin).is_some_and(|first| class(first) == class(index));
        if !same || class(index) == Class::Large {
            begin = at;
        }
        if class(index) != Class::Large && at + 1 - begin == MERGED {
            return Some(begin..at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests;
