//! The real operator in the simulated world. Every test prints its seed; `SIM_SEED` sets another one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod appliers;
mod backup_cases;
mod backups;
mod bootstrap;
mod chaos;
mod crash;
mod deletion;
mod faults;
mod flaws;
mod healing;
mod idle;
mod interrupted;
mod names;
mod recoveries;
mod starvation;
mod support;
mod verifications;
mod watches;
