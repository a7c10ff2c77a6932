//! The failover rules, model-checked: every interleaving within bounds, with the real `analyse` and `plan` as the operator.
//!
//! A [`State`](state::State) is the whole world in a few hundred bytes: what status holds, each instance's data directory
//! and server, each operator's commands on their way, the network, the clients' acknowledged transactions. A
//! [`Step`](steps::Step) is one thing that can happen next; time is nobody's: whatever a clock decides may happen at any
//! moment. What an operator decides comes from `mainstay_core`, which is shown the state as an `Observed`, and is remembered
//! for each view, because a decision is a function of it.
//!
//! docs/simulation.md, "The model", says what a state is, what was explored and what is not modelled. The world's laws
//! (what an instance does with a command, what replication and a crash do) are those of docs/failover.md, "Commands", and
//! are tested against a real mysqld elsewhere.

#![expect(
    clippy::indexing_slicing,
    reason = "small fixed arrays, indexed by ordinals that are below their length"
)]

mod bounds;
mod canonical;
mod check;
mod cluster;
mod decide;
mod defect;
mod ids;
mod instance;
mod liveness;
mod operator;
mod properties;
mod show;
mod state;
mod steps;
mod view;

pub use bounds::{Bounds, Start};
pub use check::{Outcome, check};
pub use defect::Defect;
pub use properties::Milestone;
