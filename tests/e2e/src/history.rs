//! What a client did and what the database must therefore hold: the history checker.
//!
//! An acknowledged write must be there, a write that was never attempted must not, and one whose outcome the client does
//! not know may be either.

use std::collections::BTreeSet;
use std::time::Duration;

/// What one writer did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Ids of the writes that were acknowledged, in order.
    pub acknowledged: Vec<u64>,
    /// Ids of the writes that were attempted without a known outcome.
    pub unknown: Vec<u64>,
    /// What the client saw, in order: the first 20 errors, with the time since the last acknowledgement before.
    pub errors: Vec<String>,
    /// How many errors the client saw.
    pub error_count: usize,
    /// Longest time between two acknowledgements, the end of the run included.
    pub gap: Duration,
}

/// What is wrong with a table that a writer filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Acknowledged and missing.
    pub lost: Vec<u64>,
    /// Present and never attempted.
    pub foreign: Vec<u64>,
}

impl Verdict {
    /// Nothing is wrong.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.foreign.is_empty()
    }
}

impl History {
    /// Records an error as the client saw it, `after` the last acknowledgement.
    pub fn error(&mut self, after: Duration, error: &anyhow::Error) {
        const KEPT: usize = 20;
        const LONGEST: usize = 160;
        self.error_count += 1;
        if self.errors.len() < KEPT {
            // The client library says each cause several times.
            let said: String = format!("{error:#}").chars().take(LONGEST).collect();
            self.errors.push(format!("after {} ms: {said}", after.as_millis()));
        }
    }

    /// The longest time without an acknowledged write, in milliseconds.
    #[must_use]
    pub fn gap_ms(&self) -> u64 {
        u64::try_from(self.gap.as_millis()).unwrap_or(u64::MAX)
    }

    /// What the client saw in a gap that is longer than a person would like, for a note.
    #[must_use]
    pub fn long_gap(&self) -> Option<String> {
        const LONG: Duration = Duration::from_secs(1);
        (self.gap > LONG).then(|| self.errors.join("\n             "))
    }

    /// Compares with the ids that an instance holds.
    #[must_use]
    pub fn check(&self, rows: &BTreeSet<u64>) -> Verdict {
        let attempted: BTreeSet<u64> = self.acknowledged.iter().chain(&self.unknown).copied().collect();
        Verdict {
            lost: self
                .acknowledged
                .iter()
                .filter(|id| !rows.contains(id))
                .copied()
                .collect(),
            foreign: rows.difference(&attempted).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        History {
            acknowledged: vec![1, 2, 4],
            unknown: vec![3, 5],
            ..History::default()
        }
    }

    #[test]
    fn unknown_writes_may_be_there_or_not() {
        assert!(history().check(&BTreeSet::from([1, 2, 4])).is_clean());
        assert!(history().check(&BTreeSet::from([1, 2, 3, 4, 5])).is_clean());
    }

    #[test]
    fn acknowledged_writes_must_be_there() {
        assert_eq!(history().check(&BTreeSet::from([1, 2, 3])).lost, [4]);
    }

    #[test]
    fn rows_that_nobody_wrote_must_not() {
        assert_eq!(history().check(&BTreeSet::from([1, 2, 4, 9])).foreign, [9]);
    }
}
