//! What a run explores, and how far.

use std::time::Duration;

use super::defect::Defect;

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A primary is open, everybody else is a member and follows it.
    Healthy,
    /// As healthy, but the last instance is no member yet.
    OneOutside,
    /// As one outside, which has a transaction of an earlier life of the primary: it was cut off when somebody was elected
    /// without that one, and the primary of then was rebuilt and is the primary again.
    HeldBack,
    /// Nothing was ever recorded, and every data directory is empty.
    New,
    /// Nothing was ever recorded. The first instance has recovered a transaction, which counts as acknowledged from then on;
    /// the others are empty.
    Recovered,
}

impl Start {
    /// A primary was recorded before.
    pub(super) const fn begun(self) -> bool {
        !matches!(self, Self::New | Self::Recovered)
    }
}

/// What a run explores, and how far. Everything that is not limited here may happen at any time, any number of times:
/// messages, passes of the first operator, restarts, replication, acknowledgements, and whatever depends on a clock.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each lets one kind of thing happen")]
pub struct Bounds {
    /// For people.
    pub name: &'static str,
    /// How it begins.
    pub start: Start,
    /// `spec.replicas` in the beginning.
    pub replicas: u8,
    /// Values that `spec.replicas` takes later, in this order.
    pub scale: &'static [u8],
    /// Transactions that clients write.
    pub transactions: u8,
    /// Crashes of instances and of mysqld, cuts between operator and instance, instances cut from all others.
    pub faults: u8,
    /// Which faults: crashes of an instance (pod or node).
    pub crashes: bool,
    /// mysqld dies, its manager lives.
    pub kills: bool,
    /// The first operator and an instance are cut from each other.
    pub cuts: bool,
    /// An instance is cut from all others.
    pub partitions: bool,
    /// Volumes that are lost.
    pub volumes: u8,
    /// Commands that are given up and may arrive later, and writes of status whose answer is lost.
    pub late: u8,
    /// Primaries that ask to be relieved because their pods end.
    pub departures: u8,
    /// Passes of the second operator.
    pub passes: u8,
    /// Restarts of the first operator.
    pub restarts: u8,
    /// Times that status is lost, or replaced by an older one.
    pub restores: u8,
    /// The first operator hears reports as messages, which may be old, and reads a status that may be old.
    pub streams: bool,
    /// Every state is continued without faults until the cluster serves; also with each instance gone for good.
    pub liveness: bool,
    /// A rule that is broken on purpose.
    pub defect: Option<Defect>,
    /// The run ends after this, exhausted or not.
    pub limit: Duration,
    /// Threads.
    pub threads: usize,
}

impl Bounds {
    /// Nothing happens but one transaction; three instances.
    #[must_use]
    pub const fn quiet(name: &'static str) -> Self {
        Self {
            name,
            start: Start::Healthy,
            replicas: 3,
            scale: &[],
            transactions: 1,
            faults: 0,
            crashes: true,
            kills: false,
            cuts: true,
            partitions: false,
            volumes: 0,
            late: 0,
            departures: 0,
            passes: 0,
            restarts: 0,
            restores: 0,
            streams: false,
            liveness: false,
            defect: None,
            limit: Duration::from_mins(1),
            threads: 2,
        }
    }

    /// Epochs can be renamed only while status holds the highest one.
    pub(super) const fn renames_epochs(&self) -> bool {
        self.restores == 0
    }
}
