//! End-to-end tests and benches against a real Kubernetes and a real MySQL.
//!
//! One run shares one testbed and one operator; every scenario has a namespace of its own, waits by watching, and leaves
//! evidence in a folder when it fails. docs/testing.md says how to run one and how to read a failure.

pub mod audit;
pub mod bench;
pub mod cluster;
pub mod env;
pub mod evidence;
pub mod history;
pub mod lists;
pub mod manifest;
pub mod operator;
pub mod placement;
pub mod pods;
pub mod process;
pub mod promote;
pub mod runner;
pub mod s3;
pub mod scenarios;
pub mod sql;
pub mod testbed;
pub mod volumes;
pub mod wait;
pub mod writer;
