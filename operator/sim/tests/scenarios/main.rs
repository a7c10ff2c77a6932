//! The real operator in the simulated world. Every test prints its seed; `SIM_SEED` sets another one.

mod bootstrap;
mod chaos;
mod crash;
mod deletion;
mod faults;
mod flaws;
mod idle;
mod names;
mod support;
mod watches;
