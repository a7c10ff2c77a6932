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
    /// Nothing fits any more, or hardly anything.
    full: bool,
    /// Since when it is full, also while what is free is nothing but the reserve, which was given up for that.
    since: Option<Instant>,
    /// The first and the last of the looks that failed, none of them followed by one that did not.
    failing: Option<(Instant, Instant)>,
}

impl Watch {
    /// Takes note of how much is free, and how many bytes of it are the reserve that was given up. A volume of unknown size is
    /// not full.
    pub(crate) fn measured(&mut self, now: Instant, space: Space, lent: u64) {
        let less_than = |bytes: u64| space.size > 0 && space.free < bytes;
        self.full = less_than(if self.full { Disk::ROOM } else { Disk::FULL });
        // Else a restart, for which the reserve is given up, would pass for room that was made.
        if self.full || self.since.is_some() && less_than(Disk::ROOM.saturating_add(lent)) {
            self.since.get_or_insert(now);
        } else {
            self.since = None;
        }
    }

    /// Nothing fits any more, or hardly anything.
    #[must_use]
    pub(crate) const fn is_full(&self) -> bool {
        self.full
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
        self.since.map(|since| now.saturating_duration_since(since))
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
            watch.measured(now, space, 0);
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
    fn the_reserve_that_was_given_up_is_no_room() {
        let (mut watch, began) = (Watch::default(), Instant::now());
        let mut look = |second, space, lent: u64| {
            let now = began + Duration::from_secs(second);
            watch.measured(now, space, lent * MIB);
            (watch.is_full(), watch.full_for(now).map(|age| age.as_secs()))
        };
        // One that was never full is not for want of a reserve.
        assert_eq!(look(0, free(70), 64), (false, None));
        assert_eq!(look(1, free(2), 0), (true, Some(0)));
        // mysqld was killed, and begins with the reserve: writes have room, and it is as full as before.
        assert_eq!(look(5, free(66), 64), (false, Some(4)));
        assert_eq!(look(6, free(95), 64), (false, Some(5)));
        // Room was made, and the reserve is there again.
        assert_eq!(look(7, free(40), 0), (false, None));
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
