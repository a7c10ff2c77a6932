//! Development only: a simulated Kubernetes and a simulated MySQL, in which the real operator runs.
//!
//! Everything happens in one process, in memory and on tokio's paused clock, so that hours pass in seconds and a run
//! can be repeated from its seed.

pub mod clock;
pub mod kubernetes;
pub mod random;

pub use clock::Clock;
pub use random::Random;
