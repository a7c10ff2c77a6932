//! When a schedule is due: cron in a time zone, with clocks that jump.
//!
//! A schedule that names single hours means times of the day: what falls into a gap of the clock happens once, at the first
//! moment after the gap, and what falls into a repeated hour happens in the first of the two. A schedule that names every
//! hour means an interval: it follows elapsed time, so that a repeated hour opens no hole of two hours.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use super::cron::Cron;
pub use super::cron::CronError;

/// A schedule that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text of the schedule.
    #[error(transparent)]
    Cron(CronError),
    /// The time zone.
    #[error("\"{0}\" is not a time zone of the IANA database; write for example Europe/Berlin or UTC")]
    Zone(String),
}

/// A schedule in a time zone.
#[derive(Clone, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule; without a zone it is in UTC.
    ///
    /// Zones are those that are compiled in: neither the environment nor a file of the node has a say.
    ///
    /// # Errors
    /// The text cannot be read, or never fires, or the zone does not exist.
    pub fn new(text: &str, zone: Option<&str>) -> Result<Self, ScheduleError> {
        let zone = match zone {
            None => TimeZone::UTC,
            Some(name) => TimeZoneDatabase::bundled()
                .get(name)
                .map_err(|_| ScheduleError::Zone(name.to_owned()))?,
        };
        Ok(Self {
            text: text.trim().to_owned(),
            cron: Cron::read(text).map_err(ScheduleError::Cron)?,
            zone,
        })
    }

    /// The first due time after this moment. `None`: not before the end of the calendar.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        if self.cron.every_hour() {
            self.next_elapsed(after)
        } else {
            self.next_of_day(after)
        }
    }

    /// The newest due time after `since` that is not later than `until`.
    #[must_use]
    pub fn newest(&self, since: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut newest = self.next(since).filter(|first| *first <= until)?;
        // Halves the time in which a newer one may be: a year of missed minutes costs thirty looks.
        let mut end = until;
        while end.duration_since(newest) > SignedDuration::from_secs(1) {
            let Ok(middle) = newest.checked_add(end.duration_since(newest) / 2) else {
                break;
            };
            match self.next(middle) {
                Some(later) if later <= end => newest = later,
                Some(_) | None => end = middle,
            }
        }
        // What is left is at most a second wide.
        self.next(newest).filter(|last| *last <= until).or(Some(newest))
    }

    /// Times of the day. Times of the wall map to moments without ever going back, so the first that lies later is the one.
    fn next_of_day(&self, after: Timestamp) -> Option<Timestamp> {
        let mut wall = whole(self.zone.to_datetime(after));
        loop {
            wall = self.cron.next(wall)?;
            let moment = self.moment(wall)?;
            if moment > after {
                return Some(moment);
            }
        }
    }

    /// When a time of the wall happens: the first of two, or the end of a gap.
    fn moment(&self, wall: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(wall);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
            // Read with the offset from before the gap it lies behind it, and the jump is the last one until then.
            AmbiguousOffset::Gap { before, .. } => {
                let behind = before.to_timestamp(wall).ok()?;
                let jump = self
                    .zone
                    .preceding(behind.checked_add(SignedDuration::from_nanos(1)).ok()?)
                    .next();
                Some(jump.map_or(behind, |jump| jump.timestamp()))
            }
        }
    }

    /// Intervals: between two changes of the offset the wall runs as time does.
    fn next_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = after;
        loop {
            let offset = self.zone.to_offset(from);
            let wall = self.cron.next(whole(offset.to_datetime(from)))?;
            let candidate = offset.to_timestamp(wall).ok();
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            match (candidate, change) {
                (Some(candidate), None) => return Some(candidate),
                (Some(candidate), Some(change)) if candidate < change => return Some(candidate),
                (_, Some(change)) => {
                    let new = self.zone.to_offset(change);
                    // The moment of the change itself counts, so look from a second before it, on the new wall.
                    let before = new.to_datetime(change).checked_sub(SignedDuration::from_secs(1)).ok()?;
                    let first = new.to_timestamp(self.cron.next(before)?).ok()?;
                    let following = self.zone.following(change).next().map(|next| next.timestamp());
                    if following.is_none_or(|following| first < following) {
                        return Some(first);
                    }
                    from = change;
                }
                (None, None) => return None,
            }
        }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        write!(f, "Schedule({} {zone})", self.text)
    }
}

/// Without the part of a second.
fn whole(wall: DateTime) -> DateTime {
    wall.with().subsec_nanosecond(0).build().unwrap_or(wall)
}

/// What is known of the runs of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Since when the schedule is known: what was due before is not made up.
    pub since: Timestamp,
    /// Due time of the newest run, whatever became of it.
    pub last: Option<Timestamp>,
}

/// Settings of a schedule besides its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Nothing begins.
    pub suspended: bool,
    /// The first run is at once.
    pub immediate: bool,
}

/// Whether a run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is, for this due time: the newest of all that were missed, so one run makes up for all of them.
    Now(Timestamp),
    /// It will be.
    Later(Timestamp),
    /// Not before a person changes something, or the calendar ends.
    Never,
}

/// Whether a run of the schedule is due. Nothing of it is remembered here: the newest run is found among the backups that
/// exist, and in status when they were deleted.
#[must_use]
pub fn due(schedule: &Schedule, switches: Switches, runs: Runs, now: Timestamp) -> Due {
    if switches.suspended {
        return Due::Never;
    }
    if switches.immediate && runs.last.is_none() {
        return Due::Now(runs.since);
    }
    let from = runs.last.unwrap_or(runs.since);
    match schedule.newest(from, now) {
        Some(at) => Due::Now(at),
        None => schedule.next(from.max(now)).map_or(Due::Never, Due::Later),
    }
}
