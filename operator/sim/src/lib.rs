//! Development only: a simulated Kubernetes and a simulated MySQL, in which the real operator runs.
//!
//! Everything happens in one process, in memory and on tokio's paused clock, so that hours pass in seconds. Identities,
//! schedules and faults come from one seed; what is left to chance is the order in which tokio polls what is ready.

#![expect(
    clippy::indexing_slicing,
    reason = "development only, where JSON objects grow by being indexed"
)]

pub mod client;
pub mod clock;
pub mod history;
pub mod kubernetes;
pub mod model;
pub mod random;
pub mod simulation;
pub mod world;

use cap::Cap;
use mimalloc::MiMalloc;

/// Simulations allocate and free all the time; musl's own allocator asks the kernel for every second piece. What is allocated
/// is counted, which shows leaks; what is resident says more of the allocator.
#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

/// Allocated by this process and not freed, in bytes.
#[must_use]
pub fn allocated() -> usize {
    ALLOCATOR.allocated()
}

pub use clock::Clock;
pub use random::Random;
pub use simulation::{Operator, Simulation};
pub use world::World;
