//! Times on which decisions depend, in one place: no rule of safety rests on any of them.

use std::time::Duration;

/// How long the planner waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Without a message for this long an instance is silent, and without a heartbeat for this long a member no longer
    /// receives (rule 2b, decision B14).
    pub silence: Duration,
    /// A primary that was opened less than this ago is not given up because its replicas do not receive (rule 2d): they
    /// may still be connecting.
    pub settle: Duration,
    /// How long a recorded primary may take to open before another election is held.
    pub open: Duration,
    /// How long a switchover waits for its candidate before it goes back to the old primary (rule 8).
    pub switchover: Duration,
    /// With durability `preferred`: commits wait this long for the acknowledgements of k members before k is lowered.
    pub relax: Duration,
    /// How long a requested promotion may run before it counts as failed; the election goes on.
    pub request: Duration,
    /// The same for one that accepts a loss of data.
    pub forced: Duration,
    /// A primary that is lost this soon after it was recorded is the last choice of the next election (anti-flap).
    pub flap: Duration,
    /// How long the first election of a cluster waits for all instances, when fewer would do.
    pub first_election: Duration,
    /// How far behind a replica may be to count as synced (rolling restart, switchover). What a candidate lacks is a part of
    /// the time without writes.
    pub lag: Duration,
    /// From here on the lag of a replica is a problem: what reads it gives is old, and a primary that is lost takes so much
    /// longer to replace. Told in steps.
    pub lagging: Duration,
    /// How long a receiver that was told to follow somebody may take to connect before its error is told: the first tries may
    /// come before the source lets it in.
    pub connect: Duration,
    /// A command that did not help is repeated after this.
    pub retry: Duration,
    /// A clone that did not succeed is repeated after this.
    pub clone_retry: Duration,
    /// An instance is rebuilt because of errant transactions at most once in this time.
    pub rebuild: Duration,
    /// A replica that could not apply what it received for this long is rebuilt, if it is not needed. Its manager starts its
    /// applier again meanwhile.
    pub broken: Duration,
    /// Without a pod for this long an instance is one that its StatefulSet has to be reminded of.
    pub missing: Duration,
    /// In a planned move the replicas' EndpointSlice is written this long after the primary's (decision A9).
    pub routing: Duration,
    /// A replica that is silent or not ready for this long is taken out of the replicas' EndpointSlice.
    pub unroute: Duration,
    /// An old primary's address is taken out of the primary's EndpointSlice this long after its end, if no other one has
    /// replaced it.
    pub unroute_primary: Duration,
    /// The same, when its mysqld is seen starting again: after crash recovery it may show what nobody acknowledged. Not at
    /// once, because that write would hold the new primary's up by a second (decision A9).
    pub unroute_restarted: Duration,
    /// An election is told in detail when it lasts longer than this: a write of status would delay it.
    pub tell: Duration,
    /// An open cluster is looked at this often although nothing was heard that calls for it: transactions that came from
    /// nowhere show in nothing but positions, and these call no pass.
    pub patrol: Duration,
    /// A volume that is full for this long is seen to: what fills it for a moment, a sort or a large transaction, has gone by
    /// then.
    pub full: Duration,
    /// Binlogs that are archived are purged at most this often, while nothing changes.
    pub purge: Duration,
    /// An instance that was a member for this long was healed: if the same comes again, it is not "again and again".
    pub healed: Duration,
    /// Deadline of a fence; when it passes the manager kills mysqld.
    pub fence: Duration,
    /// Deadline of the other short commands.
    pub command: Duration,
    /// Deadline of an opening: the k members have to connect within it.
    pub opening: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(2),
            settle: Duration::from_secs(10),
            open: Duration::from_secs(10),
            switchover: Duration::from_secs(5),
            relax: Duration::from_secs(10),
            request: Duration::from_secs(30),
            forced: Duration::from_mins(2),
            flap: Duration::from_mins(1),
            first_election: Duration::from_secs(5),
            lag: Duration::from_millis(500),
            lagging: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            clone_retry: Duration::from_secs(10),
            rebuild: Duration::from_mins(1),
            broken: Duration::from_secs(30),
            missing: Duration::from_secs(2),
            routing: Duration::from_secs(1),
            unroute: Duration::from_secs(2),
            unroute_primary: Duration::from_secs(3),
            unroute_restarted: Duration::from_secs(1),
            tell: Duration::from_secs(1),
            patrol: Duration::from_secs(15),
            full: Duration::from_secs(3),
            purge: Duration::from_mins(1),
            healed: Duration::from_hours(1),
            fence: Duration::from_millis(500),
            command: Duration::from_secs(5),
            opening: Duration::from_secs(5),
        }
    }
}

/// Healing of the same trouble is as frequent as other rebuilds this often; then each pause is twice as long …
const PATIENT: u32 = 3;
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

impl Timing {
    /// How long an instance that was healed so often in a row is left alone, counted from the last decision.
    #[must_use]
    pub fn pause_after(&self, times: u32) -> Duration {
        let doublings = times.saturating_sub(PATIENT).min(10);
        self.rebuild.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_two_healings_doubles_up_to_an_hour() {
        let minutes = |times| Timing::default().pause_after(times).as_secs() / 60;
        assert_eq!([1, 3, 4, 5, 8, 9, u32::MAX].map(minutes), [1, 1, 2, 4, 32, 60, 60]);
    }
}
