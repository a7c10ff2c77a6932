//! Managers with a real mysqld: what only a server can show.
//!
//! `MAINSTAY_TEST_MYSQL=ROOTFS cargo test --workspace --test mysqld -- --ignored`

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as it must be"
)]

mod accounts;
mod archive;
mod backups;
mod by_hand;
mod clones;
mod commands;
mod conformance;
mod cut;
mod facts;
mod fences;
mod frozen;
mod healing;
mod life;
mod logical;
mod points;
mod questions;
mod refills;
mod refusals;
mod replication;
mod restores;
mod stops;
mod support;
mod verifications;
