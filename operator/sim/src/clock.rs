//! The one clock of a simulation.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall-clock time that follows tokio's clock: with a paused runtime an hour passes in milliseconds.
///
/// It begins at the real time, because certificates made by the operator are verified against the real clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            base: Timestamp::now(),
            start: Instant::now(),
        }
    }

    /// The simulated wall-clock time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Simulated time since the beginning.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time as Kubernetes writes `metav1.Time`: whole seconds.
    #[must_use]
    pub fn rfc3339(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
