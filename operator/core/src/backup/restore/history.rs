//! The archive as one history: the transactions that happened, in order, and those that never did.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Archive, Reign, Segment, Step, Transaction};
use crate::GtidSet;
use crate::gtid::Gtid;

/// The index of an archive contradicts itself: what it says cannot be relied upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Faulty {
    /// Reigns are not in the order of their epochs.
    #[error("failed to read the archive: the reign of epoch {0} does not follow the one before it")]
    Order(u64),
    /// A reign that is not the newest has no end.
    #[error("failed to read the archive: where the reign of epoch {0} ended is not known, and a later one exists")]
    NoEnd(u64),
}

/// What happened, in the order of the archive.
pub(super) struct History<'a> {
    reigns: &'a [Reign],
    /// Each transaction once, where it was first archived.
    valid: Vec<&'a Transaction>,
    places: BTreeMap<&'a Gtid, usize>,
    discarded: GtidSet,
    start: GtidSet,
}

/// What a replay comes to.
pub(super) struct Replay {
    /// What is there at the end.
    pub(super) executed: GtidSet,
    /// What is missing before the next segment can be replayed.
    pub(super) missing: Option<GtidSet>,
    /// When the last of it was committed.
    pub(super) last: Option<Timestamp>,
    /// What is replayed.
    pub(super) steps: Vec<Step>,
}

impl<'a> History<'a> {
    pub(super) fn new(archive: &'a Archive) -> Result<Self, Faulty> {
        let reigns = archive.reigns.as_slice();
        for (reign, next) in reigns.iter().zip(reigns.iter().skip(1)) {
            if reign.epoch >= next.epoch {
                return Err(Faulty::Order(next.epoch));
            }
            if reign.until.is_none() {
                return Err(Faulty::NoEnd(reign.epoch));
            }
        }
        let mut valid = Vec::new();
        let mut places = BTreeMap::new();
        let mut discarded = Vec::new();
        for reign in reigns {
            for transaction in reign.segments.iter().flat_map(|segment| &segment.transactions) {
                if !reign.counts(&transaction.gtid) {
                    discarded.push(transaction.gtid.clone());
                } else if !places.contains_key(&transaction.gtid) {
                    places.insert(&transaction.gtid, valid.len());
                    valid.push(transaction);
                }
            }
        }
        let happened: GtidSet = valid.iter().map(|transaction| transaction.gtid.clone()).collect();
        let first = reigns
            .iter()
            .find_map(|reign| reign.segments.first().map(|segment| reign.valid(&segment.before)));
        Ok(Self {
            reigns,
            valid,
            places,
            discarded: discarded.into_iter().collect::<GtidSet>().subtract(&happened),
            start: first.unwrap_or_default(),
        })
    }

    /// Number of transactions.
    pub(super) fn len(&self) -> usize {
        self.valid.len()
    }

    /// Transactions that were archived and never acknowledged.
    pub(super) const fn discarded(&self) -> &GtidSet {
        &self.discarded
    }

    /// What was there before the archive began.
    pub(super) const fn start(&self) -> &GtidSet {
        &self.start
    }

    /// Place of the first transaction that was committed later than this.
    pub(super) fn first_after(&self, time: Timestamp) -> Option<usize> {
        self.valid
            .iter()
            .position(|transaction| transaction.committed_at > time)
    }

    /// Place of this transaction.
    pub(super) fn place_of(&self, gtid: &Gtid) -> Option<usize> {
        self.places.get(gtid).copied()
    }

    /// The transaction at `end` and all behind it.
    pub(super) fn set_from(&self, end: usize) -> GtidSet {
        self.valid
            .iter()
            .skip(end)
            .map(|transaction| transaction.gtid.clone())
            .collect()
    }

    /// Everything that is known to have happened before `end`.
    pub(super) fn known_before(&self, end: usize) -> GtidSet {
        let before = self.valid.iter().take(end).map(|transaction| transaction.gtid.clone());
        before.collect::<GtidSet>().union(&self.start)
    }

    /// What would be there after a replay on `base` of everything before `end`. With `complete`, it is also proved that
    /// nothing is missing directly before `end`: what is not stored may belong to the target.
    pub(super) fn replay(&self, base: &GtidSet, end: usize, complete: bool) -> Replay {
        let mut replay = Replay {
            executed: base.clone(),
            missing: None,
            last: None,
            steps: Vec::new(),
        };
        for reign in self.reigns {
            replay.missing = self.replay_reign(reign, end, complete, &mut replay.executed, &mut replay.steps);
            if replay.missing.is_some() {
                break;
            }
        }
        let executed = &replay.executed;
        let reached = self.valid.iter().take(end).rev();
        replay.last = reached
            .map(|transaction| (&transaction.gtid, transaction.committed_at))
            .find(|(gtid, _)| executed.contains_gtid(gtid))
            .map(|(_, at)| at);
        replay
    }

    /// Replays one reign; returns what is missing for it.
    fn replay_reign(
        &self,
        reign: &Reign,
        end: usize,
        complete: bool,
        executed: &mut GtidSet,
        steps: &mut Vec<Step>,
    ) -> Option<GtidSet> {
        let mut part = Step {
            epoch: reign.epoch,
            segments: Vec::new(),
            before: None,
        };
        let mut missing = None;
        for segment in &reign.segments {
            let (wanted, stop) = self.wanted(segment, end);
            let new: GtidSet = wanted.cloned().collect::<GtidSet>().subtract(executed);
            let holds_end = complete && self.valid.get(end).is_some_and(|first| stop == Some(&first.gtid));
            if !new.is_empty() || holds_end {
                let before = reign.valid(&segment.before).subtract(executed);
                if !before.is_empty() {
                    missing = Some(before);
                    break;
                }
            }
            if !new.is_empty() {
                *executed = executed.union(&new);
                part.segments.push(segment.key.clone());
                part.before = stop.cloned();
            }
            // The applier would stop here, and what follows in this reign is not wanted either: it was written later.
            if stop.is_some() {
                break;
            }
        }
        if !part.segments.is_empty() {
            steps.push(part);
        }
        missing
    }

    /// The transactions of a segment up to the first that is not wanted, and that one.
    fn wanted(&self, segment: &'a Segment, end: usize) -> (impl Iterator<Item = &'a Gtid> + use<'a>, Option<&'a Gtid>) {
        let is_wanted =
            |transaction: &&Transaction| self.places.get(&transaction.gtid).is_some_and(|place| *place < end);
        let count = segment.transactions.iter().take_while(is_wanted).count();
        let stop = segment.transactions.get(count).map(|transaction| &transaction.gtid);
        let wanted = segment
            .transactions
            .iter()
            .take(count)
            .map(|transaction| &transaction.gtid);
        (wanted, stop)
    }
}

impl Reign {
    fn counts(&self, gtid: &Gtid) -> bool {
        self.until.as_ref().is_none_or(|until| until.contains_gtid(gtid))
    }

    /// Of a set that its primary had, what counts.
    fn valid(&self, set: &GtidSet) -> GtidSet {
        self.until
            .as_ref()
            .map_or_else(|| set.clone(), |until| set.intersect(until))
    }
}
