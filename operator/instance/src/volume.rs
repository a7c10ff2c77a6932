//! Whether the data volume is full, or broken, and for how long: decisions about values, without clock or I/O.
//!
//! Both are told and nothing else is done about them here: whoever decides may make room, or give the volume up. One failed
//! look is no broken volume: a path to a network disk that is switched over answers with errors for a moment.

use std::io;
use std::time::Duration;

use mainstay_core::observed::Disk;
use tokio::time::Instant;

use crate::disk::{self, Space};

/// Looks must fail for so long before the volume counts as broken.
const PATIENCE: Duration = Duration::from_secs(2);

/// What lasts.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Since when it is full.
    full: Option<Instant>,
    /// The first and the last of the looks that failed, none of them followed by one that did not.
    failing: Option<(Instant, Instant)>,
}

impl Watch {
    /// Takes note of how much is free. A volume of unknown size is not full.
    pub(crate) fn measured(&mut self, now: Instant, space: Space) {
        let enough = if self.full.is_some() { Disk::ROOM } else { Disk::FULL };
        if space.size > 0 && space.free < enough {
            self.full.get_or_insert(now);
        } else {
            self.full = None;
        }
    }

    /// Takes note of a look at the volume. An error that says something else (a permission) is no news.
    pub(crate) fn looked(&mut self, now: Instant, look: &io::Result<()>) {
        match look {
            Ok(()) => self.failing = None,
            Err(error) if disk::is_broken(error) => {
                let (first, _last) = self.failing.unwrap_or((now, now));
                self.failing = Some((first, now));
            }
            Err(_other) => {}
        }
    }

    /// For how long it has been full.
    #[must_use]
    pub(crate) fn full_for(&self, now: Instant) -> Option<Duration> {
        self.full.map(|since| now.saturating_duration_since(since))
    }

    /// The last look failed: it may be broken.
    #[must_use]
    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// It is broken: looks have failed for a while.
    #[must_use]
    pub(crate) fn is_unreadable(&self) -> bool {
        self.failing
            .is_some_and(|(first, last)| last.saturating_duration_since(first) >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn free(mib: u64) -> Space {
        Space {
            size: 1000 * MIB,
            free: mib * MIB,
        }
    }

    #[test]
    fn a_volume_is_full_below_16_mib_until_32_mib_are_free() {
        let (mut watch, began) = (Watch::default(), Instant::now());
        let mut look = |second, space| {
            let now = began + Duration::from_secs(second);
            watch.measured(now, space);
            watch.full_for(now).map(|age| age.as_secs())
        };
        assert_eq!(look(1, free(16)), None);
        assert_eq!(look(2, free(15)), Some(0));
        assert_eq!(look(4, free(0)), Some(2));
        // A binlog that is purged is no room.
        assert_eq!(look(5, free(31)), Some(3));
        assert_eq!(look(6, free(32)), None);
        assert_eq!(look(7, free(31)), None);
        assert_eq!(look(8, free(1)), Some(0), "it is another time");
        assert_eq!(look(9, Space::default()), None, "nobody knows");
    }

    #[test]
    fn a_volume_is_broken_when_looks_have_failed_for_two_seconds() {
        let (mut watch, began) = (Watch::default(), Instant::now());
        let mut look = |millis, outcome: Result<(), Errno>| {
            watch.looked(began + Duration::from_millis(millis), &outcome.map_err(Into::into));
            (watch.is_failing(), watch.is_unreadable())
        };
        assert_eq!(look(0, Ok(())), (false, false));
        assert_eq!(look(500, Err(Errno::IO)), (true, false));
        assert_eq!(look(2499, Err(Errno::IO)), (true, false));
        assert_eq!(
            look(2500, Err(Errno::ROFS)),
            (true, true),
            "the file system gave up, too"
        );
        // It is there again.
        assert_eq!(look(3000, Ok(())), (false, false));
        assert_eq!(look(9000, Err(Errno::IO)), (true, false));
        // Nobody may look: that says nothing.
        assert_eq!(look(12_000, Err(Errno::ACCESS)), (true, false));
        assert_eq!(look(13_000, Err(Errno::IO)), (true, true));
    }
}
