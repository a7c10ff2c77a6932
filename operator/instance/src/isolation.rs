//! Whether this instance is cut off from everybody, and what follows: decisions about values, without clock or I/O.
//!
//! How many of the others make a quorum? As many as a commit needs acknowledgements, k. An election elsewhere needs fewer
//! than k members that it does not hold (rule 3), so while at least k members are on this side of a cut, there is none on
//! the other side; and with fewer than k no commit ends here anyway. With 3 instances one other is enough, with 5 two.
//! With k = 0 (one instance) nobody can be elected without this very instance: it never fences itself, for that would
//! only cost availability. A replica counts the same way, and at least one: k others and itself are more than half.

use std::time::Duration;

/// Ages of the last signs of life; `None`: there never was one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contacts {
    /// Of an operator.
    pub(crate) operator: Option<Duration>,
    /// Of the API server.
    pub(crate) api_server: Option<Duration>,
    /// Of each other instance.
    pub(crate) others: Vec<Option<Duration>>,
    /// How many of them make a quorum.
    pub(crate) needed: u32,
}

impl Contacts {
    /// How long ago this side of the network was last known to be the right one.
    #[must_use]
    pub(crate) fn age(&self) -> Option<Duration> {
        [self.operator, self.api_server, self.quorum()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Since when a quorum of the others was heard.
    fn quorum(&self) -> Option<Duration> {
        let mut ages: Vec<Duration> = self.others.iter().copied().flatten().collect();
        ages.sort_unstable();
        let last = usize::try_from(self.needed).ok()?.checked_sub(1)?;
        ages.get(last).copied()
    }
}

/// What the signs of life say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody who counts was heard.
    Connected,
    /// For a while nobody was: time to ask the API server, which is not asked otherwise.
    Doubtful,
    /// Nobody was for the fencing time.
    Isolated,
}

/// A third of the fencing time is time enough for several questions to the API server before it ends.
#[must_use]
pub(crate) fn judge(contacts: &Contacts, fencing: Duration) -> Verdict {
    match contacts.age() {
        Some(age) if age < fencing / 3 => Verdict::Connected,
        Some(age) if age < fencing => Verdict::Doubtful,
        Some(_) | None => Verdict::Isolated,
    }
}

/// What a server is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// It accepts writes.
    pub(crate) writable: bool,
    /// Acknowledgements that a commit needs, as it was told.
    pub(crate) acks_required: u32,
    /// What becomes of clients.
    pub(crate) clients: Clients,
    /// It receives from its source.
    pub(crate) receives: bool,
}

/// Whether clients are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// They are.
    LetIn,
    /// Somebody keeps them out.
    KeptOut,
    /// They are kept out because it was cut off, or it was killed for that.
    SentAway,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// Fence it: kill mysqld. It never waits for a commit.
    Kill,
    /// Keep clients out, and end the sessions of those that cannot be kept out.
    SendAway,
    /// Let clients come again.
    Welcome,
}

/// Self-fencing. A primary is killed: a commit that waits for an acknowledgement cannot be waited for. A replica has
/// nothing to lose and everything to keep, so it only ends reads, which would be older and older.
#[must_use]
pub(crate) fn step(verdict: Verdict, standing: Standing) -> Step {
    match verdict {
        Verdict::Isolated if standing.writable && standing.acks_required > 0 => Step::Kill,
        Verdict::Isolated if standing.writable => Step::Stay,
        // One that nobody used is kept as it is: a person may have come to look at it.
        Verdict::Isolated if standing.clients == Clients::KeptOut => Step::Stay,
        Verdict::Isolated => Step::SendAway,
        Verdict::Connected if standing.clients == Clients::SentAway && (standing.writable || standing.receives) => {
            Step::Welcome
        }
        Verdict::Connected | Verdict::Doubtful => Step::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCING: Duration = Duration::from_secs(10);

    /// Ages in tenths of a second; -1: never.
    fn contacts(operator: i64, api_server: i64, others: &[i64], needed: u32) -> Contacts {
        let age = |tenths: i64| {
            u64::try_from(tenths)
                .ok()
                .map(|tenths| Duration::from_millis(tenths * 100))
        };
        Contacts {
            operator: age(operator),
            api_server: age(api_server),
            others: others.iter().copied().map(age).collect(),
            needed,
        }
    }

    #[test]
    fn f19_f21_each_witness_alone_is_enough() {
        use Verdict::{Connected, Doubtful, Isolated};
        // operator, API server, others, needed, verdict
        let table: [(i64, i64, &[i64], u32, Verdict); 16] = [
            (5, -1, &[5, 5], 1, Connected),
            // N = 3, k = 1: one other is a quorum.
            (36_000, 36_000, &[5, 36_000], 1, Connected),
            (36_000, 36_000, &[36_000, 11], 1, Connected),
            (36_000, 36_000, &[34, 36_000], 1, Doubtful),
            (36_000, 36_000, &[100, 36_000], 1, Isolated),
            // N = 5, k = 2: one is not, two are; the second youngest age counts.
            (-1, -1, &[5, 5, -1, -1], 2, Connected),
            (-1, -1, &[5, 99, 200, 300], 2, Doubtful),
            (-1, -1, &[5, 100, 200, 300], 2, Isolated),
            (-1, -1, &[5, -1, -1, -1], 2, Isolated),
            // The operator alone, the API server alone.
            (33, 400, &[400, 400], 1, Connected),
            (34, 400, &[400, 400], 1, Doubtful),
            (99, 400, &[400, 400], 1, Doubtful),
            (100, 400, &[400, 400], 1, Isolated),
            (400, 20, &[400, 400], 1, Connected),
            (400, 60, &[400, 400], 1, Doubtful),
            // Never anybody.
            (-1, -1, &[-1, -1], 1, Isolated),
        ];
        for (operator, api_server, others, needed, wanted) in table {
            let contacts = contacts(operator, api_server, others, needed);
            assert_eq!(judge(&contacts, FENCING), wanted, "{contacts:?}");
        }
    }

    fn standing(writable: bool, acks_required: u32) -> Standing {
        Standing {
            writable,
            acks_required,
            clients: if writable { Clients::LetIn } else { Clients::KeptOut },
            receives: false,
        }
    }

    #[test]
    fn f21_an_isolated_primary_kills_mysqld() {
        assert_eq!(step(Verdict::Isolated, standing(true, 1)), Step::Kill);
        assert_eq!(step(Verdict::Isolated, standing(true, 2)), Step::Kill);
        assert_eq!(step(Verdict::Doubtful, standing(true, 1)), Step::Stay);
        assert_eq!(step(Verdict::Connected, standing(true, 1)), Step::Stay);
    }

    #[test]
    fn a_single_instance_never_fences_itself() {
        assert_eq!(step(Verdict::Isolated, standing(true, 0)), Step::Stay);
    }

    #[test]
    fn f21_an_isolated_replica_serves_nobody_until_it_receives_again() {
        let replica = Standing {
            clients: Clients::LetIn,
            receives: true,
            ..standing(false, 0)
        };
        assert_eq!(step(Verdict::Doubtful, replica), Step::Stay);
        assert_eq!(step(Verdict::Isolated, replica), Step::SendAway);
        let away = Standing {
            clients: Clients::SentAway,
            receives: false,
            ..replica
        };
        assert_eq!(step(Verdict::Isolated, away), Step::SendAway);
        assert_eq!(step(Verdict::Connected, away), Step::Stay);
        let back = Standing { receives: true, ..away };
        assert_eq!(step(Verdict::Doubtful, back), Step::Stay);
        assert_eq!(step(Verdict::Connected, back), Step::Welcome);
    }

    #[test]
    fn clients_that_somebody_else_keeps_out_stay_out() {
        let kept_out = Standing {
            clients: Clients::KeptOut,
            receives: true,
            ..standing(false, 0)
        };
        assert_eq!(step(Verdict::Connected, kept_out), Step::Stay);
        assert_eq!(step(Verdict::Isolated, kept_out), Step::Stay);
    }
}
