//! Stores, the one in memory and a real S3 server, against the same expectations; and archives over both.
//!
//! The server is versitygw, which the testbed builds. Its tests are run like this:
//!
//! ```text
//! cargo test --workspace --test store --test bounded -- --ignored
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as it must be"
)]

mod archives;
mod conformance;
mod memory;
mod proxy;
mod s3;
#[path = "../support/mod.rs"]
mod support;
