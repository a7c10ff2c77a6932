//! Whether mysqld is frozen, or its commits are (rule 2 c): decisions about values, without clock or I/O.
//!
//! Frozen: it gives no answer, neither to a statement nor to a new connection, for the stall time. Stuck: a commit is on
//! its way, no transaction ends, and the probe commit that is made then does not end either. An idle server is not
//! probed: every probe is a transaction that is synced on all instances.
//!
//! What only looks like it: a disk that writes without pause (one transaction of gigabytes), which counts as progress for
//! a minute; a lock that a person holds (`FLUSH TABLES WITH READ LOCK`), behind which commits are not on their way;
//! replicas that do not acknowledge, of which killing the primary is no cure unless they say that they receive, which
//! they do not in the middle of a large transaction; a machine that has too few processors for all that it runs ([`Pace`]).

use std::time::Duration;

/// How long what may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Without an answer.
    pub(crate) silent: Duration,
    /// Without a commit that ends; `None`: nobody could take over, so it is not looked at.
    pub(crate) stuck: Option<Duration>,
    /// So long what the disk writes counts as progress, without a commit that ends.
    pub(crate) busy_disk: Duration,
}

/// What a reading of the server says about commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one observation, and any may come with any"
)]
pub(crate) struct Commits {
    /// Some are on their way.
    pub(crate) under_way: bool,
    /// A transaction has ended since the reading before.
    pub(crate) ended: bool,
    /// They wait for acknowledgements, although enough replicas are connected.
    pub(crate) wait_for_replicas: bool,
    /// As many members as are needed say that they receive.
    pub(crate) replicas_receive: bool,
    /// Enough replicas are connected.
    pub(crate) replicas_connected: bool,
}

/// How fast time passed between two looks, for a server that shares its processors with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time between the looks as it was meant to be.
    pub(crate) tick: Duration,
    /// As it was.
    pub(crate) elapsed: Duration,
    /// For how long the server's threads, taken together, could have run and had no processor; `None`: it was not measured.
    pub(crate) queued: Option<Duration>,
}

impl Pace {
    /// What counts of it against the server. Never more than was meant: what comes on top is this process's own delay. Where
    /// this process was late by more than that, or the server waited for processors half of the time, it is the machine
    /// that is slow. Then a quarter counts, and not nothing, so that a server that is frozen on a slow machine does not
    /// remain so.
    #[must_use]
    pub(crate) fn counts(self) -> Duration {
        let meant = self.elapsed.min(self.tick);
        let late = self.elapsed > self.tick * 2;
        let starved = self.queued.is_some_and(|queued| queued >= self.elapsed / 2);
        if late || starved { meant / 4 } else { meant }
    }
}

/// What was seen since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    /// Time between the looks, as far as it counts ([`Pace::counts`]).
    pub(crate) awake: Duration,
    /// It gave an answer.
    pub(crate) answered: bool,
    /// A reading, if there was a new one.
    pub(crate) commits: Option<Commits>,
    /// The disk or the process wrote something.
    pub(crate) wrote: bool,
    /// The probe commit ended, well or not.
    pub(crate) probe_ended: bool,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing.
    Fine,
    /// It gives no answer: try a new connection.
    Greet,
    /// Commits do not end: make one.
    Probe,
    /// It is frozen: kill it.
    Frozen,
    /// Its commits are stuck: kill it.
    Stuck,
    /// Replicas that receive do not acknowledge its commits: kill it.
    Unacknowledged,
}

/// Readings in a row without a transaction that ended, before anything is killed for it.
const READINGS: u32 = 3;

/// Counts what lasts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    silent: Duration,
    /// Since the last reading with a transaction that ended, or none on its way.
    stuck: Duration,
    /// The same, without counting what the disk wrote.
    stuck_in_all: Duration,
    /// Since the first reading from which on they wait for replicas that receive.
    unacknowledged: Duration,
    /// Readings in a row that say that nothing ends.
    still: u32,
    /// How long the probe has been on its way.
    probing: Option<Duration>,
    last: Commits,
}

impl Stall {
    /// Takes note, and says what follows.
    pub(crate) fn look(&mut self, sight: Sight, limits: Limits) -> Finding {
        self.silent = if sight.answered {
            Duration::ZERO
        } else {
            self.silent.saturating_add(sight.awake)
        };
        self.count(sight, limits.busy_disk);
        if self.silent >= limits.silent {
            return Finding::Frozen;
        }
        if let Some(finding) = limits.stuck.and_then(|limit| self.commits(sight, limit)) {
            return finding;
        }
        if self.silent >= limits.silent / 2 {
            return Finding::Greet;
        }
        Finding::Fine
    }

    /// The probe commit was begun.
    pub(crate) fn probe_begins(&mut self) {
        self.probing = Some(Duration::ZERO);
    }

    /// Something may be wrong: it is worth while to measure for what the server waits.
    #[must_use]
    pub(crate) fn suspects(&self, limits: Limits) -> bool {
        self.still > 0 || self.silent >= limits.silent / 2
    }

    fn count(&mut self, sight: Sight, busy_disk: Duration) {
        self.stuck = self.stuck.saturating_add(sight.awake);
        self.stuck_in_all = self.stuck_in_all.saturating_add(sight.awake);
        self.unacknowledged = self.unacknowledged.saturating_add(sight.awake);
        if let Some(probing) = &mut self.probing {
            *probing = probing.saturating_add(sight.awake);
        }
        let before = self.last;
        if let Some(commits) = sight.commits {
            self.last = commits;
            self.still = self.still.saturating_add(1);
        }
        let in_vain = |commits: Commits| commits.wait_for_replicas && commits.replicas_receive;
        if !in_vain(before) || !in_vain(self.last) {
            self.unacknowledged = Duration::ZERO;
        }
        let moves = sight.commits.is_some_and(|commits| !commits.under_way || commits.ended);
        if moves || sight.probe_ended {
            *self = Self {
                silent: self.silent,
                last: self.last,
                ..Self::default()
            };
        } else if sight.wrote && self.stuck_in_all < busy_disk {
            self.stuck = Duration::ZERO;
        }
    }

    fn commits(&self, sight: Sight, limit: Duration) -> Option<Finding> {
        if self.still == 0 || !self.last.replicas_connected {
            return None;
        }
        let Some(probing) = self.probing else {
            // Not at once: each one is synced on all instances, and a slow machine has enough to do.
            return (self.stuck_in_all >= limit / 2).then_some(Finding::Probe);
        };
        // Nothing is killed for what was seen a while ago.
        if sight.commits.is_none() || self.still < READINGS || probing < limit / 2 {
            return None;
        }
        if !self.last.wait_for_replicas {
            return (self.stuck >= limit).then_some(Finding::Stuck);
        }
        // A cut is told from a fault only when the replicas have had the time to notice it.
        (self.unacknowledged >= limit * 2).then_some(Finding::Unacknowledged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const LIMITS: Limits = Limits {
        silent: Duration::from_secs(2),
        stuck: Some(Duration::from_secs(2)),
        busy_disk: Duration::from_mins(1),
    };
    const MOVING: Commits = Commits {
        under_way: true,
        ended: true,
        wait_for_replicas: false,
        replicas_receive: true,
        replicas_connected: true,
    };
    const STILL: Commits = Commits { ended: false, ..MOVING };

    /// Looks each tick, with a reading every fifth, until something but the usual follows; after how many ticks.
    fn run(stall: &mut Stall, sight: Sight, limits: Limits, most: u32) -> (u32, Finding) {
        for tick in 1..=most {
            let commits = sight.commits.filter(|_| tick % 5 == 0);
            match stall.look(Sight { commits, ..sight }, limits) {
                Finding::Fine | Finding::Greet => {}
                Finding::Probe if stall.probing.is_none() => stall.probe_begins(),
                found => return (tick, found),
            }
        }
        (most, Finding::Fine)
    }

    fn sight(answered: bool, commits: Commits) -> Sight {
        Sight {
            awake: TICK,
            answered,
            commits: Some(commits),
            ..Sight::default()
        }
    }

    #[test]
    fn rule_2c_a_server_that_answers_nothing_is_frozen_after_the_stall_time() {
        let mut stall = Stall::default();
        assert_eq!(stall.look(sight(true, MOVING), LIMITS), Finding::Fine);
        let silent = Sight {
            awake: TICK,
            ..Sight::default()
        };
        for _ in 0..9 {
            assert_eq!(stall.look(silent, LIMITS), Finding::Fine);
        }
        for _ in 9..19 {
            assert_eq!(stall.look(silent, LIMITS), Finding::Greet);
        }
        assert_eq!(stall.look(silent, LIMITS), Finding::Frozen);
    }

    #[test]
    fn one_answer_begins_it_anew() {
        let mut stall = Stall::default();
        let silent = Sight {
            awake: TICK,
            ..Sight::default()
        };
        for _ in 0..19 {
            stall.look(silent, LIMITS);
        }
        let answer = Sight {
            answered: true,
            ..silent
        };
        assert_eq!(stall.look(answer, LIMITS), Finding::Fine);
        assert_eq!(run(&mut stall, silent, LIMITS, 19), (19, Finding::Fine));
    }

    #[test]
    fn rule_2c_commits_that_do_not_end_are_stuck_after_the_stall_time() {
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, sight(true, MOVING), LIMITS, 50), (50, Finding::Fine));
        assert_eq!(run(&mut stall, sight(true, STILL), LIMITS, 50), (20, Finding::Stuck));
    }

    #[test]
    fn what_is_not_stuck() {
        let idle = Commits {
            under_way: false,
            ..STILL
        };
        let alone = Commits {
            replicas_connected: false,
            ..STILL
        };
        let unacknowledged = Commits {
            wait_for_replicas: true,
            replicas_receive: false,
            ..STILL
        };
        for commits in [MOVING, idle, alone, unacknowledged] {
            let mut stall = Stall::default();
            assert_eq!(
                run(&mut stall, sight(true, commits), LIMITS, 600),
                (600, Finding::Fine),
                "{commits:?}"
            );
        }
        let nobody_could_take_over = Limits { stuck: None, ..LIMITS };
        let mut stall = Stall::default();
        assert_eq!(
            run(&mut stall, sight(true, STILL), nobody_could_take_over, 600).1,
            Finding::Fine
        );
    }

    #[test]
    fn acknowledgements_that_do_not_come_take_twice_as_long() {
        let waiting = Commits {
            wait_for_replicas: true,
            ..STILL
        };
        let mut stall = Stall::default();
        // From the first reading on, which the fifth look brings.
        assert_eq!(
            run(&mut stall, sight(true, waiting), LIMITS, 100),
            (45, Finding::Unacknowledged)
        );
    }

    #[test]
    fn replicas_that_are_receiving_a_large_transaction_have_the_time_that_it_takes() {
        let sending = Commits {
            wait_for_replicas: true,
            replicas_receive: false,
            ..STILL
        };
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, sight(true, sending), LIMITS, 6000).1, Finding::Fine);
        // From when they have it on.
        let silent = Commits {
            replicas_receive: true,
            ..sending
        };
        assert_eq!(
            run(&mut stall, sight(true, silent), LIMITS, 100),
            (45, Finding::Unacknowledged)
        );
    }

    #[test]
    fn nothing_is_killed_for_what_was_seen_a_while_ago() {
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, sight(true, STILL), LIMITS, 15).1, Finding::Fine);
        let greeted = Sight {
            commits: None,
            ..sight(true, STILL)
        };
        assert_eq!(run(&mut stall, greeted, LIMITS, 100).1, Finding::Fine);
        // Nor for a single reading after a long pause.
        let moved = sight(true, MOVING);
        assert_eq!(stall.look(moved, LIMITS), Finding::Fine);
        assert_eq!(run(&mut stall, greeted, LIMITS, 30).1, Finding::Fine);
        assert!(matches!(
            stall.look(sight(true, STILL), LIMITS),
            Finding::Fine | Finding::Probe
        ));
    }

    #[test]
    fn an_idle_server_is_not_probed_and_one_that_is_slow_for_a_moment_neither() {
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, sight(true, STILL), LIMITS, 9).1, Finding::Fine);
        assert!(stall.probing.is_none() && stall.suspects(LIMITS));
        assert_eq!(run(&mut stall, sight(true, MOVING), LIMITS, 5).1, Finding::Fine);
        assert!(!stall.suspects(LIMITS));
    }

    fn pace(elapsed: u64, queued: Option<u64>) -> Duration {
        let pace = Pace {
            tick: TICK,
            elapsed: Duration::from_millis(elapsed),
            queued: queued.map(Duration::from_millis),
        };
        pace.counts()
    }

    #[test]
    fn no_look_counts_for_more_than_a_tick() {
        assert_eq!(pace(100, None), TICK);
        assert_eq!(pace(104, Some(3)), TICK);
        assert_eq!(pace(180, Some(20)), TICK);
        assert_eq!(pace(20, Some(1)), Duration::from_millis(20));
    }

    #[test]
    fn a_look_that_came_late_counts_for_little() {
        assert_eq!(pace(201, None), TICK / 4);
        assert_eq!(pace(60_000, None), TICK / 4);
    }

    #[test]
    fn a_server_that_waits_for_processors_is_not_frozen() {
        assert_eq!(pace(100, Some(50)), TICK / 4);
        assert_eq!(pace(100, Some(400)), TICK / 4);
        assert_eq!(pace(100, Some(49)), TICK);
        // It takes four times as long, and not for ever.
        let mut stall = Stall::default();
        let starved = Sight {
            awake: pace(100, Some(400)),
            ..Sight::default()
        };
        assert_eq!(run(&mut stall, starved, LIMITS, 1000), (80, Finding::Frozen));
    }

    #[test]
    fn a_probe_that_ends_shows_that_the_rest_will() {
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, sight(true, STILL), LIMITS, 19).1, Finding::Fine);
        let ended = Sight {
            probe_ended: true,
            commits: None,
            ..sight(true, STILL)
        };
        assert_eq!(stall.look(ended, LIMITS), Finding::Fine);
        assert_eq!(run(&mut stall, sight(true, STILL), LIMITS, 19).1, Finding::Fine);
    }

    #[test]
    fn a_disk_that_writes_has_a_minute() {
        let writing = Sight {
            wrote: true,
            ..sight(true, STILL)
        };
        let mut stall = Stall::default();
        assert_eq!(run(&mut stall, writing, LIMITS, 1200), (620, Finding::Stuck));
    }

    #[test]
    fn time_that_this_process_slept_does_not_count() {
        let mut stall = Stall::default();
        let starved = Sight {
            awake: Duration::ZERO,
            ..Sight::default()
        };
        assert_eq!(run(&mut stall, starved, LIMITS, 1000), (1000, Finding::Fine));
    }
}
