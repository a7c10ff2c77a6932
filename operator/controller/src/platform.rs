//! What the outside world gives to a process and a test wants to give itself: time and randomness.

use std::sync::Arc;

use jiff::Timestamp;
use mainstay_core::rules::OperatorId;
use rand::Rng as _;

/// Wall clock. Timers use tokio's clock, which a test can pause.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Source of random bytes that nobody can guess.
pub trait Entropy: Send + Sync + 'static {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// Time, randomness and the identity of this process.
#[derive(Clone)]
pub struct Platform {
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Identity of this process: new at each start (rule 0).
    pub operator: OperatorId,
}

impl Platform {
    /// The machine's clock and randomness, and a new identity.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemEntropy))
    }

    /// A platform with a new identity drawn from `entropy`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        let operator = OperatorId(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string());
        Self {
            clock,
            entropy,
            operator,
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The machine's randomness.
#[derive(Clone, Copy, Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        rand::rng().fill_bytes(buffer);
    }
}
