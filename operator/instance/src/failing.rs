//! For how long an applier has not got beyond an error.
//!
//! MySQL forgets the error when the applier is started again, which fences and attachments do. As long as nothing was applied
//! since, the error is the same one: it stays in the reports, and its age counts from its first sight.

use mainstay_core::GtidSet;
use mainstay_mysql::{ServerMessage, ServerState};
use tokio::time::Instant;

/// What two looks at an applier show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failing {
    first: Option<First>,
}

/// The first sight of an error.
#[derive(Clone, Debug)]
struct First {
    at: Instant,
    /// What was executed then: the applier has got further when this grows.
    executed: GtidSet,
    error: ServerMessage,
}

impl Failing {
    /// Takes note of what a server says of its applier, and adds what is remembered.
    pub(crate) fn look(&mut self, now: Instant, state: &mut ServerState) {
        let behind = !state.fully_applied();
        self.first = self
            .first
            .take()
            .filter(|first| behind && first.executed == state.executed);
        let Some(channel) = &mut state.channel else { return };
        if let (true, false, Some(error)) = (behind, channel.applier_running, &channel.applier_error) {
            let first = self.first.get_or_insert_with(|| First {
                at: now,
                executed: state.executed.clone(),
                error: error.clone(),
            });
            first.error.clone_from(error);
        }
        if let Some(first) = &self.first {
            channel.failing_for = Some(now.saturating_duration_since(first.at));
            channel.applier_error.get_or_insert_with(|| first.error.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing;

    /// A replica whose applier stopped at the tenth transaction.
    fn failed() -> ServerState {
        let mut state = testing::replica();
        state.executed = testing::set("1-9");
        let channel = state.channel.as_mut().unwrap();
        channel.received = testing::set("5-12");
        channel.applier_running = false;
        channel.applier_error = Some(ServerMessage {
            code: 1062,
            text: "duplicate key".to_owned(),
        });
        state
    }

    /// Its applier was started again, and MySQL says nothing of the error any more.
    fn restarted() -> ServerState {
        let mut state = failed();
        let channel = state.channel.as_mut().unwrap();
        channel.applier_running = true;
        channel.applier_error = None;
        state
    }

    struct Seen {
        failing: Failing,
        now: Instant,
    }

    impl Seen {
        fn new() -> Self {
            Self {
                failing: Failing::default(),
                now: Instant::now(),
            }
        }

        /// For how long it has been failing when it is looked at a second later, and whether its error is told.
        fn look(&mut self, mut state: ServerState) -> (Option<u64>, bool) {
            self.now += Duration::from_secs(1);
            self.failing.look(self.now, &mut state);
            let channel = state.channel.unwrap_or_default();
            (
                channel.failing_for.map(|age| age.as_secs()),
                channel.applier_error.is_some(),
            )
        }
    }

    #[test]
    fn an_applier_that_is_started_again_and_gets_nowhere_has_failed_since_the_first_time() {
        let mut seen = Seen::new();
        assert_eq!(seen.look(failed()), (Some(0), true));
        assert_eq!(seen.look(restarted()), (Some(1), true), "MySQL has forgotten the error");
        assert_eq!(seen.look(failed()), (Some(2), true));
        // What is received meanwhile is no progress.
        let mut more = failed();
        more.channel.as_mut().unwrap().received = testing::set("5-20");
        assert_eq!(seen.look(more), (Some(3), true));
    }

    #[test]
    fn an_applier_that_got_further_has_not_failed() {
        let mut seen = Seen::new();
        seen.look(failed());
        let mut further = restarted();
        further.executed = testing::set("1-10");
        assert_eq!(seen.look(further), (None, false));
        // The next error is another one.
        let mut next = failed();
        next.executed = testing::set("1-11");
        assert_eq!(seen.look(next), (Some(0), true));
    }

    #[test]
    fn an_applier_with_nothing_to_apply_has_not_failed() {
        let mut seen = Seen::new();
        seen.look(failed());
        // A relay log that was torn: everything whole is applied (decision A7).
        let mut torn = failed();
        torn.executed = testing::set("1-12");
        assert_eq!(seen.look(torn), (None, true), "what the server says stays");
        seen.look(failed());
        let mut forgotten = failed();
        forgotten.channel = None;
        assert_eq!(seen.look(forgotten), (None, false));
        assert_eq!(seen.look(restarted()), (None, false));
    }
}
