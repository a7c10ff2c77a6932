//! Where a change of primary is, and how long each part of it took.
//!
//! Durations are for people. They are remembered by the operator process and not in status, because a write of status in
//! the middle of an election would make it longer: what a process did not see itself is not told.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::rules::{Phase, Phases, Rules};

/// The parts of a change of primary, in order. Each ends when a later one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The old primary is fenced, in a failover everybody.
    Fencing,
    /// The candidate of a switchover receives what the old primary has.
    CatchingUp,
    /// Enough others are brought behind the winner.
    Attaching,
    /// The winner is written to status.
    Recording,
    /// It is opened for writes.
    Opening,
    /// The Service is pointed to it.
    Routing,
    /// Nothing is left to do.
    Over,
}

impl Stage {
    /// The stage that begins when the actions of a plan in this one are carried out.
    #[must_use]
    pub const fn after_actions(self) -> Option<Self> {
        match self {
            Self::Recording => Some(Self::Opening),
            Self::Routing => Some(Self::Over),
            Self::Fencing | Self::CatchingUp | Self::Attaching | Self::Opening | Self::Over => None,
        }
    }
}

/// What one process saw of the present change of primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// When the change began: another one is another change.
    began: Option<Timestamp>,
    /// When each stage was first seen.
    stages: BTreeMap<Stage, Timestamp>,
}

impl Progress {
    /// Notes that the change of primary of `rules` is in this stage.
    pub fn enter(&mut self, rules: &Rules, stage: Stage, at: Timestamp) {
        let began = began(rules);
        if self.began != began {
            *self = Self {
                began,
                stages: BTreeMap::new(),
            };
        }
        // Back in an earlier one: an election that was lost, or a switchover that was undone. What it took counts there.
        self.stages.retain(|seen, _| *seen <= stage);
        self.stages.entry(stage).or_insert(at);
    }

    /// When a stage began, if this process saw it.
    #[must_use]
    pub fn since(&self, rules: &Rules, stage: Stage) -> Option<Timestamp> {
        (self.began == began(rules))
            .then(|| self.stages.get(&stage).copied())
            .flatten()
    }

    /// What each part took. A stage that was skipped took nothing, and one that was not seen is not told.
    #[must_use]
    pub fn phases(&self, rules: &Rules) -> Phases {
        if self.began != began(rules) {
            return Phases::default();
        }
        let took = |stage: Stage| {
            let from = self.stages.get(&stage)?;
            let to = self.stages.iter().find(|(seen, _)| **seen > stage)?.1;
            Some(to.duration_since(*from).unsigned_abs())
        };
        let first = self
            .began
            .zip(self.stages.values().next())
            .map(|(began, first)| Duration::try_from(first.duration_since(began)).unwrap_or_default());
        let fence = match (first, took(Stage::Fencing)) {
            (Some(before), Some(fencing)) => Some(before.saturating_add(fencing)),
            (_, fencing) => fencing,
        };
        Phases {
            fence,
            catch_up: took(Stage::CatchingUp),
            attach: took(Stage::Attaching),
            record: took(Stage::Recording),
            open: took(Stage::Opening),
            route: took(Stage::Routing),
        }
    }
}

/// Since when no writes are accepted, or when the last change began: what tells one change from another.
fn began(rules: &Rules) -> Option<Timestamp> {
    match &rules.phase {
        Phase::Electing { .. } => Some(rules.began.unwrap_or(rules.phase_since)),
        Phase::Open => rules.last_change.as_ref().map(|change| change.began),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use mainstay_api::MySQLClusterStatus;

    use super::*;
    use crate::rules::Memory;
    use crate::status;

    fn at(ms: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms)
    }

    /// An election that began at that time.
    fn electing(began: i64) -> Rules {
        let status: MySQLClusterStatus = serde_json::from_value(serde_json::json!({
            "epoch": 6, "owner": "me", "election": {"phase": "Electing", "since": at(began), "began": at(began)},
            "baseline": "", "acksRequired": 1, "serverIdBase": 100
        }))
        .unwrap();
        match status::memory(Some(&status)) {
            Memory::Known(rules) => *rules,
            memory @ (Memory::Absent | Memory::Unreadable { .. }) => panic!("{memory:?}"),
        }
    }

    fn ms(time: Option<Duration>) -> Option<u128> {
        time.map(|time| time.as_millis())
    }

    #[test]
    fn each_part_lasts_until_the_next_one_begins() {
        let (rules, mut progress) = (electing(1000), Progress::default());
        for (stage, time) in [
            (Stage::Fencing, 1005),
            (Stage::Fencing, 1010),
            (Stage::CatchingUp, 1020),
            (Stage::Attaching, 1070),
            (Stage::Recording, 1130),
            (Stage::Opening, 1140),
            (Stage::Routing, 1160),
            (Stage::Over, 1195),
        ] {
            progress.enter(&rules, stage, at(time));
        }
        let phases = progress.phases(&rules);
        assert_eq!(ms(phases.fence), Some(20), "from the beginning of the election");
        assert_eq!(ms(phases.catch_up), Some(50));
        assert_eq!(ms(phases.attach), Some(60));
        assert_eq!(ms(phases.record), Some(10));
        assert_eq!(ms(phases.open), Some(20));
        assert_eq!(ms(phases.route), Some(35));
        assert_eq!(progress.since(&rules, Stage::Over), Some(at(1195)));
    }

    #[test]
    fn what_was_skipped_or_not_seen_is_not_told() {
        let (rules, mut progress) = (electing(1000), Progress::default());
        // A failover has nothing to catch up with.
        progress.enter(&rules, Stage::Fencing, at(1010));
        progress.enter(&rules, Stage::Attaching, at(1100));
        assert_eq!(ms(progress.phases(&rules).fence), Some(100));
        assert_eq!(ms(progress.phases(&rules).catch_up), None);
        assert_eq!(ms(progress.phases(&rules).attach), None, "it is not over");
        // A process that comes in the middle does not know when it began.
        let mut late = Progress::default();
        late.enter(&rules, Stage::Opening, at(5000));
        late.enter(&rules, Stage::Routing, at(5020));
        assert_eq!(ms(late.phases(&rules).fence), None);
        assert_eq!(ms(late.phases(&rules).open), Some(20));
    }

    #[test]
    fn a_switchover_that_goes_back_begins_its_later_parts_anew() {
        let (rules, mut progress) = (electing(1000), Progress::default());
        progress.enter(&rules, Stage::Fencing, at(1010));
        progress.enter(&rules, Stage::CatchingUp, at(1020));
        progress.enter(&rules, Stage::Fencing, at(6000));
        progress.enter(&rules, Stage::Attaching, at(6100));
        assert_eq!(ms(progress.phases(&rules).fence), Some(5100));
        assert_eq!(ms(progress.phases(&rules).catch_up), None);
    }

    #[test]
    fn another_election_is_another_change() {
        let mut progress = Progress::default();
        progress.enter(&electing(1000), Stage::Fencing, at(1010));
        let next = electing(9000);
        assert_eq!(progress.since(&next, Stage::Fencing), None);
        assert_eq!(progress.phases(&next), Phases::default());
        progress.enter(&next, Stage::Fencing, at(9010));
        assert_eq!(progress.since(&next, Stage::Fencing), Some(at(9010)));
    }
}
