//! Mainstay's Kubernetes I/O: watches, observe, execute, apply, status, events, lease and metrics (docs/controller.md).
//!
//! What is done is decided by `mainstay-core`; this crate sees, carries out and reports.

mod backups;
mod ca_secret;
mod class;
mod client;
mod clusters;
mod context;
mod error;
mod events;
mod execute;
mod health;
mod index;
mod kinds;
mod lease;
mod memory;
mod metrics;
mod observe;
mod operator;
mod operator_ca;
mod pki;
pub mod platform;
pub mod pool;
mod reconcile;
mod recovery_source;
mod requests;
mod secret_data;
mod settings;
mod store_access;
pub mod stores;
#[cfg(test)]
mod testing;
mod trace;
mod trigger;
mod unreadable;
mod user_secrets;
mod views;
mod watch;

pub use backups::{HttpPages, Pages};
pub use client::{ClientError, Clients, connect};
pub use health::HealthError;
pub use index::ClusterName;
pub use metrics::Metrics;
pub use operator::{Parts, RunError, run, run_with};
pub use operator_ca::{Credentials, Identity, OperatorCaError};
pub use requests::FIELD_MANAGER;
pub use settings::{Access, DEFAULT_CONCURRENCY, DEFAULT_NAMESPACE, LeaseTimings, Settings};
pub use trigger::Triggers;
