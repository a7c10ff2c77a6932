//! Whether a receiver hears its source while it receives one large transaction.
//!
//! MySQL notes heartbeats and the ends of transactions. During a transaction there are none, however fast it comes, so a
//! replica that receives one for longer than the time of silence would look deaf. What its receiver thread has received
//! grows meanwhile.
//!
//! While it writes to the relay log it cannot hear anything. A disk that takes seconds for that is no reason to think that
//! the source is gone: for [`WRITING`] what it heard last counts as heard just now.

use std::time::Duration;

use mainstay_mysql::Channel;
use tokio::time::Instant;

/// How long a receiver may write to the relay log without being taken for deaf.
const WRITING: Duration = Duration::from_secs(10);

/// What two looks at a receiver show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipt {
    /// Number of the server process.
    run: u64,
    /// What the receiver had received at the look before.
    bytes: Option<u64>,
    /// When that look was.
    looked: Option<Instant>,
    /// When something came, at the earliest.
    heard: Option<Instant>,
    /// When this receiver thread was seen first.
    since: Option<Instant>,
}

impl Receipt {
    /// Takes note of what a server process says of its receiver, and makes it younger what was last heard, if it is. What
    /// came since the look before may have come right after that: nothing is ever called younger than it is.
    pub(crate) fn look(&mut self, run: u64, now: Instant, channel: Option<&mut Channel>) {
        if run != self.run {
            *self = Self { run, ..Self::default() };
        }
        let bytes = channel.as_ref().and_then(|channel| channel.bytes_received);
        match (self.bytes, bytes) {
            (Some(before), Some(now)) if now > before => self.heard = self.looked,
            (Some(before), Some(now)) if now == before => {}
            // Another thread, or none: it has heard nobody yet. What MySQL notes is of the one before.
            _ => (self.heard, self.since) = (None, bytes.map(|_| now)),
        }
        (self.bytes, self.looked) = (bytes, Some(now));
        let Some(channel) = channel else { return };
        let own = self.since.map(|since| now.saturating_duration_since(since));
        let noted = channel.last_heard.filter(|age| own.is_some_and(|own| *age <= own));
        let grown = self.heard.map(|heard| now.saturating_duration_since(heard));
        let age = noted.into_iter().chain(grown).min();
        channel.last_heard = match age {
            Some(age) if channel.writing && age < WRITING => Some(Duration::ZERO),
            age => age,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    struct Replica {
        receipt: Receipt,
        now: Instant,
    }

    impl Replica {
        fn new() -> Self {
            Self {
                receipt: Receipt::default(),
                now: Instant::now(),
            }
        }

        /// What is last heard, by a look half a second after the one before.
        fn look(&mut self, run: u64, bytes: Option<u64>, noted: Option<Duration>) -> Option<Duration> {
            self.now += TICK;
            let mut channel = Channel {
                bytes_received: bytes,
                last_heard: noted,
                ..Channel::default()
            };
            self.receipt.look(run, self.now, Some(&mut channel));
            channel.last_heard
        }
    }

    #[test]
    fn a_large_transaction_is_heard_while_it_grows() {
        let mut replica = Replica::new();
        let mut noted = TICK;
        assert_eq!(
            replica.look(1, Some(100), Some(noted)),
            None,
            "of the thread before, perhaps"
        );
        for bytes in 1..20 {
            noted += TICK;
            assert_eq!(replica.look(1, Some(100 + bytes), Some(noted)), Some(TICK));
        }
        // It stands still in the middle.
        for ticks in 2..10 {
            noted += TICK;
            assert_eq!(replica.look(1, Some(119), Some(noted)), Some(TICK * ticks));
        }
    }

    #[test]
    fn what_mysql_knows_better_is_left() {
        let mut replica = Replica::new();
        let exact = Duration::from_millis(20);
        replica.look(1, Some(100), None);
        assert_eq!(replica.look(1, Some(150), Some(exact)), Some(exact));
    }

    #[test]
    fn nothing_is_heard_before_something_has_come() {
        let mut replica = Replica::new();
        assert_eq!(replica.look(1, Some(842), None), None);
        assert_eq!(replica.look(1, Some(842), None), None);
        assert_eq!(replica.look(1, Some(900), None), Some(TICK));
    }

    #[test]
    fn what_the_thread_before_had_heard_is_not_of_this_one() {
        let mut replica = Replica::new();
        let long_ago = Duration::from_mins(5);
        assert_eq!(replica.look(1, Some(100), Some(long_ago)), None);
        assert_eq!(replica.look(1, Some(100), Some(long_ago + TICK)), None);
        assert_eq!(replica.look(1, Some(100), Some(TICK / 5)), Some(TICK / 5));
        // It has been silent ever since.
        assert_eq!(replica.look(1, Some(100), Some(TICK + TICK / 5)), Some(TICK + TICK / 5));
    }

    #[test]
    fn a_receiver_that_is_not_connected_yet_has_not_heard_what_the_one_before_had() {
        let mut replica = Replica::new();
        let long_ago = Duration::from_secs(10);
        assert_eq!(replica.look(1, None, Some(long_ago)), None);
        assert_eq!(replica.look(1, Some(100), Some(long_ago + TICK)), None);
    }

    #[test]
    fn a_receiver_that_waits_for_its_disk_is_not_deaf_for_a_while() {
        let mut replica = Replica::new();
        replica.look(1, Some(100), None);
        assert_eq!(replica.look(1, Some(150), Some(TICK / 5)), Some(TICK / 5));
        let mut channel = |age: u64| {
            let mut channel = Channel {
                bytes_received: Some(150),
                last_heard: Some(Duration::from_secs(age)),
                writing: true,
                ..Channel::default()
            };
            replica.now += Duration::from_secs(3);
            replica.receipt.look(1, replica.now, Some(&mut channel));
            channel.last_heard
        };
        assert_eq!(channel(3), Some(Duration::ZERO));
        assert_eq!(channel(6), Some(Duration::ZERO));
        assert_eq!(channel(9), Some(Duration::ZERO));
        assert_eq!(channel(12), Some(Duration::from_secs(12)), "nobody knows any more");
    }

    #[test]
    fn another_receiver_or_another_process_begins_anew() {
        let mut replica = Replica::new();
        replica.look(1, Some(800), None);
        assert_eq!(replica.look(1, Some(900), None), Some(TICK));
        assert_eq!(replica.look(1, Some(850), None), None, "it was started again");
        assert_eq!(replica.look(1, None, None), None, "it does not run");
        assert_eq!(replica.look(1, Some(860), None), None);
        assert_eq!(replica.look(2, Some(870), None), None, "mysqld was started again");
    }
}
