//! Whether writes stand although mysqld answers and replicas acknowledge: decisions about values, without clock or I/O. It is
//! told, and nothing is done about it; what is killed for commits that do not end is [`crate::stall`]'s business.
//!
//! A full volume: InnoDB cannot extend a table (error 1114), and a commit whose binlog does not fit waits, looks again once a
//! minute, and says so in nothing but the error log. A lock on everything (`FLUSH TABLES WITH READ LOCK`): who writes waits for
//! it, as if nothing were on its way.

use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::observed::Standstill;
use mainstay_mysql::LockHolder;
use tokio::time::Instant;

/// What one reading of the server says.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one observation, and any may come with any"
)]
pub(crate) struct Sight<'a> {
    /// Number of the server process.
    pub(crate) run: u64,
    /// It accepts writes.
    pub(crate) writable: bool,
    /// The data volume is full.
    pub(crate) full: bool,
    /// Commits are on their way.
    pub(crate) committing: bool,
    /// gtid_executed.
    pub(crate) executed: &'a GtidSet,
    /// Sessions wait for a lock on everything.
    pub(crate) locked_out: bool,
}

/// What lasts.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    run: u64,
    executed: GtidSet,
    full: bool,
    /// Since when sessions wait, or somebody holds the lock for which they did.
    locked: Option<Instant>,
    holder: Option<LockHolder>,
}

impl Watch {
    /// Takes note of a reading.
    pub(crate) fn look(&mut self, now: Instant, sight: Sight<'_>) {
        if sight.run != self.run {
            *self = Self {
                run: sight.run,
                ..Self::default()
            };
        }
        let moved = self.executed != *sight.executed;
        self.executed.clone_from(sight.executed);
        // mysqld may have found the volume full, and not have looked again yet.
        let waits = sight.committing && !moved;
        self.full = sight.full || self.full && waits;
        if !sight.writable {
            (self.locked, self.holder) = (None, None);
        } else if sight.locked_out {
            self.locked.get_or_insert(now);
        } else if self.holder.is_none() {
            self.locked = None;
        }
    }

    /// It is worth while to know who holds a lock on everything.
    #[must_use]
    pub(crate) const fn suspects(&self) -> bool {
        self.locked.is_some()
    }

    /// Takes note of who holds the lock.
    pub(crate) fn held_by(&mut self, holder: Option<LockHolder>) {
        self.holder = holder;
    }

    /// What stands in the way of writes; of a lock when it has lasted for `patience`, because every backup takes one for a
    /// moment.
    #[must_use]
    pub(crate) fn finding(&self, now: Instant, patience: Duration) -> Option<Standstill> {
        if self.full {
            return Some(Standstill::DiskFull);
        }
        let lasts = self.locked.is_some_and(|since| now.duration_since(since) >= patience);
        lasts.then(|| Standstill::GlobalLock {
            holder: self.holder.as_ref().map(session).unwrap_or_default(),
        })
    }
}

fn session(holder: &LockHolder) -> String {
    let LockHolder { connection, user, host } = holder;
    format!("session {connection} of {user}@{host}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set;

    const PATIENCE: Duration = Duration::from_secs(2);

    /// A watch, its clock, and what a healthy primary shows.
    struct Bench {
        watch: Watch,
        now: Instant,
        executed: GtidSet,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                watch: Watch::default(),
                now: Instant::now(),
                executed: set("1-9"),
            }
        }

        /// Half a second later, on a volume that is full or not.
        fn look(&mut self, full: bool, change: impl FnOnce(&mut Sight<'_>)) -> Option<Standstill> {
            self.now += Duration::from_millis(500);
            let mut sight = Sight {
                run: 1,
                writable: true,
                full,
                committing: false,
                executed: &self.executed,
                locked_out: false,
            };
            change(&mut sight);
            self.watch.look(self.now, sight);
            self.watch.finding(self.now, PATIENCE)
        }
    }

    fn dba() -> LockHolder {
        LockHolder {
            connection: 73,
            user: "root".to_owned(),
            host: "10.0.0.7".to_owned(),
        }
    }

    #[test]
    fn a_full_volume_is_told_while_it_is_full() {
        let mut bench = Bench::new();
        assert_eq!(bench.look(false, |_| {}), None);
        assert_eq!(bench.look(true, |_| {}), Some(Standstill::DiskFull));
        assert_eq!(bench.look(false, |_| {}), None);
    }

    /// mysqld looks again once a minute: until then its commits wait although there is room.
    #[test]
    fn commits_that_wait_for_room_wait_until_one_ends() {
        let mut bench = Bench::new();
        assert_eq!(
            bench.look(true, |sight| sight.committing = true),
            Some(Standstill::DiskFull)
        );
        for _ in 0..100 {
            assert_eq!(
                bench.look(false, |sight| sight.committing = true),
                Some(Standstill::DiskFull)
            );
        }
        bench.executed = set("1-10");
        assert_eq!(bench.look(false, |sight| sight.committing = true), None);
    }

    #[test]
    fn a_lock_is_told_when_it_lasts_and_with_whoever_holds_it() {
        let mut bench = Bench::new();
        for _ in 0..4 {
            assert_eq!(bench.look(false, |sight| sight.locked_out = true), None);
            bench.watch.held_by(Some(dba()));
        }
        let held = Some(Standstill::GlobalLock {
            holder: "session 73 of root@10.0.0.7".to_owned(),
        });
        assert_eq!(bench.look(false, |sight| sight.locked_out = true), held);
        // Clients that gave up come again.
        assert_eq!(bench.look(false, |_| {}), held);
        bench.watch.held_by(None);
        assert_eq!(bench.look(false, |_| {}), None);
    }

    #[test]
    fn a_lock_whose_holder_is_not_known_lasts_as_long_as_somebody_waits() {
        let mut bench = Bench::new();
        for _ in 0..4 {
            assert_eq!(bench.look(false, |sight| sight.locked_out = true), None);
        }
        let held = Some(Standstill::GlobalLock { holder: String::new() });
        assert_eq!(bench.look(false, |sight| sight.locked_out = true), held);
        assert_eq!(bench.look(false, |_| {}), None);
    }

    #[test]
    fn a_moment_a_replica_and_another_process_are_no_standstill() {
        let mut bench = Bench::new();
        for tick in 0..20 {
            assert_eq!(bench.look(false, |sight| sight.locked_out = tick % 2 == 0), None);
            let closed = |sight: &mut Sight<'_>| (sight.locked_out, sight.writable) = (true, false);
            assert_eq!(bench.look(false, closed), None);
        }
        for _ in 0..5 {
            bench.look(true, |sight| sight.locked_out = true);
        }
        let another = |sight: &mut Sight<'_>| (sight.locked_out, sight.run) = (true, 2);
        assert_eq!(bench.look(false, another), None);
    }
}
