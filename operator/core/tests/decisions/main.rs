//! Tests of the decisions: rules and counterexamples as tables, any state against the invariant checker, and a small seeded
//! world in which plans are carried out.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

/// The small world allocates and frees all the time; musl's own allocator asks the kernel for every second piece.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod any_state;
mod archive;
mod backups;
mod building;
mod cases;
mod checker;
mod convergence;
mod counterexamples;
mod documentation;
mod faults;
mod healing;
mod modelled;
mod problems;
mod requests;
mod rules;
mod states;
mod status;
mod verifications;
mod world;
