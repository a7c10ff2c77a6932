//! Whether mysqld is frozen, or its commits are (rule 2 c): decisions about values, without clock or I/O.
//!
//! Frozen: it gives no answer, neither to a statement nor to a new connection, for the stall time. Stuck: a commit is on
//! its way, no transaction ends, and the probe commit that is made then does not end either. An idle server is not
//! probed: every probe is a transaction that is synced on all instances.
//!
//! What only looks like it: a disk that writes without pause (one transaction of gigabytes), which counts as progress for
//! a minute; a lock that a person holds (`FLUSH TABLES WITH READ LOCK`), behind which commits are not on their way;
//! replicas that do not acknowledge, of which killing the primary is no cure unless they say that they receive.

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

/// What was seen since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sight {
    /// Time between the looks, without what this process itself slept too long.
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
}

/// Counts what lasts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    silent: Duration,
    /// Since the last reading with a transaction that ended, or none on its way.
    stuck: Duration,
    /// The same, without counting what the disk wrote.
    stuck_in_all: Duration,
    /// A reading confirmed that nothing ends.
    confirmed: bool,
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
        if let Some(finding) = limits.stuck.and_then(|limit| self.commits(limit)) {
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

    fn count(&mut self, sight: Sight, busy_disk: Duration) {
        self.stuck = self.stuck.saturating_add(sight.awake);
        self.stuck_in_all = self.stuck_in_all.saturating_add(sight.awake);
        if let Some(probing) = &mut self.probing {
            *probing = probing.saturating_add(sight.awake);
        }
        if let Some(commits) = sight.commits {
            self.last = commits;
            self.confirmed = commits.under_way && !commits.ended;
        }
        let moves = sight.commits.is_some_and(|commits| !commits.under_way || commits.ended);
        if moves || sight.probe_ended {
            self.stuck = Duration::ZERO;
            self.stuck_in_all = Duration::ZERO;
            self.probing = None;
            self.confirmed = false;
        } else if sight.wrote && self.stuck_in_all < busy_disk {
            self.stuck = Duration::ZERO;
        }
    }

    fn commits(&self, limit: Duration) -> Option<Finding> {
        if !self.confirmed || !self.last.replicas_connected {
            return None;
        }
        let Some(probing) = self.probing else {
            return Some(Finding::Probe);
        };
        // A cut is told from a fault only when the replicas have had the time to notice it.
        let limit = match (self.last.wait_for_replicas, self.last.replicas_receive) {
            (false, _) => limit,
            (true, true) => limit * 2,
            (true, false) => return None,
        };
        (self.stuck >= limit && probing >= limit / 2).then_some(Finding::Stuck)
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
        assert_eq!(run(&mut stall, sight(true, waiting), LIMITS, 100), (40, Finding::Stuck));
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
        assert_eq!(run(&mut stall, writing, LIMITS, 1200), (619, Finding::Stuck));
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
