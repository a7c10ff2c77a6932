//! What must never be, and what has to be seen at least once for a run to mean something.

use super::bounds::Bounds;
use super::state::{Phase, State};

/// Something that a run has to reach: otherwise it proves little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Milestone {
    /// Another primary is open, and something was acknowledged before.
    FailedOver,
    /// A transaction of the second primary is acknowledged.
    SecondReign,
    /// The old primary is a member of its successor.
    Returned,
    /// A member was dropped.
    Dropped,
    /// A data directory was replaced by a clone.
    Cloned,
    /// A commit waits for more acknowledgements than in the beginning.
    Raised,
    /// It waits for fewer.
    Lowered,
    /// A primary of a new cluster is open.
    Founded,
}

/// All of them.
pub(super) const MILESTONES: [Milestone; 8] = [
    Milestone::FailedOver,
    Milestone::SecondReign,
    Milestone::Returned,
    Milestone::Dropped,
    Milestone::Cloned,
    Milestone::Raised,
    Milestone::Lowered,
    Milestone::Founded,
];

impl<const N: usize> State<N> {
    /// No acknowledged transaction is absent from the open primary.
    pub(super) fn nothing_is_lost(&self) -> bool {
        // An old status may call somebody the primary who was one; the properties below hold even so.
        let highest = self.nodes.iter().map(|node| node.accepted.epoch).max();
        let behind = self.status.map(|status| status.epoch) < highest && self.used.restores > 0;
        self.open_primary()
            .filter(|_| !behind)
            .is_none_or(|primary| self.acked & !self.nodes[primary].binlog() == 0)
    }

    /// Clients' commits can be acknowledged there.
    fn can_acknowledge(&self, ordinal: usize, bounds: &Bounds) -> bool {
        let node = &self.nodes[ordinal];
        node.up() && node.writable && self.links(ordinal, bounds) >= u32::from(node.told.acks)
    }

    /// Whoever can have commits acknowledged has every acknowledged one.
    pub(super) fn whoever_can_acknowledge_has_everything(&self, bounds: &Bounds) -> bool {
        (0..N).all(|ordinal| !self.can_acknowledge(ordinal, bounds) || self.acked & !self.nodes[ordinal].binlog() == 0)
    }

    /// At most one can.
    pub(super) fn at_most_one_can_acknowledge(&self, bounds: &Bounds) -> bool {
        (0..N).filter(|ordinal| self.can_acknowledge(*ordinal, bounds)).count() <= 1
    }

    /// The open primary lets nobody acknowledge but members, and waits for no fewer of them than status says (rule 1).
    pub(super) fn the_open_primary_enforces_status(&self) -> bool {
        let (Some(status), Some(primary)) = (self.status, self.open_primary()) else {
            return true;
        };
        // An older status knows nothing of what was told since.
        if self.used.restores > 0 {
            return true;
        }
        let told = self.nodes[primary].told;
        told.acks >= status.acks && told.members.iter().all(|id| status.members.contains(id))
    }

    pub(super) fn milestones(&self, bounds: &Bounds) -> impl Iterator<Item = Milestone> {
        let status = self.status;
        let open = self.open_primary();
        let primary = status
            .and_then(|status| status.primary)
            .map(|primary| primary.id.ordinal());
        let acks = status.map_or(0, |status| status.acks);
        let members = status.map(|status| status.members).unwrap_or_default();
        let begun = bounds.start.begun();
        let second = |number: usize| {
            self.acked >> number & 1 == 1 && self.origin[number].map(super::ids::Id::ordinal) != Some(0)
        };
        let steady = status.is_some_and(|status| status.phase == Phase::Open);
        let cloned = self
            .nodes
            .iter()
            .any(|node| node.up() && node.life > 0 && node.executed != 0 && node.purged != 0);
        let reached = [
            begun && open.is_some_and(|open| open != 0) && self.acked != 0,
            begun && (0..usize::from(self.written)).any(second),
            begun && open.is_some_and(|open| open != 0) && members.names(0),
            begun && steady && primary == Some(0) && (1..usize::from(bounds.replicas)).any(|r| !members.names(r)),
            cloned,
            steady && begun && acks > bounds.replicas / 2,
            steady && begun && acks < bounds.replicas / 2,
            !begun && open.is_some(),
        ];
        MILESTONES
            .into_iter()
            .zip(reached)
            .filter(|(_, reached)| *reached)
            .map(|(milestone, _)| milestone)
    }
}
