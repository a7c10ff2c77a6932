//! A fake Kubernetes API server, in memory, behind `kube::Client`.
//!
//! It serves the resources of [`resource::RESOURCES`] with the semantics that an operator depends on: optimistic
//! concurrency, generations, the status subresource, watches with bookmarks and expiry, server-side apply with field
//! ownership, deletion with preconditions, owners and finalizers, defaulting and mutating admission. Faults are
//! injected by rule. What is approximated stands in `docs/simulation.md`.

pub mod admission;
pub mod api;
pub mod defaults;
pub mod delete;
pub mod failure;
pub mod faults;
pub mod fields;
pub mod managed;
pub mod query;
pub mod resource;
pub mod service;
pub mod store;
pub mod validate;
pub mod verbs;
pub mod watching;

pub use api::Server;
pub use delete::DeleteOptions;
pub use faults::{Effect, Rule, WatchFault};
pub use resource::Resource;
pub use store::Key;
