//! Mainstay's decisions, as pure functions.
//!
//! Nothing here reads a clock, the environment, a socket or a random number: everything between *observe* and *execute*
//! is a function of `(ValidatedCluster, Observed, now)`, so that each decision can be tested, model-checked and replayed
//! without a cluster. The rules that these functions implement are those of `docs/failover.md`.

pub mod action;
pub mod analyse;
pub mod backup;
pub mod build;
pub mod check;
pub mod diff;
pub mod gtid;
mod lag;
pub mod layout;
pub mod mycnf;
pub mod names;
pub mod observed;
pub mod plan;
pub mod progress;
pub mod quantity;
pub mod request;
pub mod rules;
pub mod sizing;
pub mod status;
pub mod subject;
pub mod timing;
pub mod validate;
mod view;

pub use gtid::GtidSet;
