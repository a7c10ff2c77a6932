//! The instance manager and its contract with the operator.
//!
//! [`proto`] is the generated code, [`convert`] maps it to the types of `mainstay-core`, [`client`] is what the operator
//! uses to talk to a manager. Everything else is the manager itself, which runs as PID 1 of the mysql container
//! (docs/instance.md). The program calls [`install`], [`run`], [`pre_stop`] and [`status_json`].

mod apiserver;
mod archive;
pub mod backup;
mod caretaker;
pub mod client;
mod cnf;
mod commands;
pub mod config;
pub mod convert;
mod copy;
mod disk;
mod duties;
mod errorlog;
mod failing;
mod grpc;
mod guard;
mod hearing;
mod http;
mod isolation;
pub mod local;
pub mod manager;
mod metrics;
mod mysqld;
mod peers;
pub mod process;
mod receipt;
mod resolve;
mod restore;
mod secrets;
mod server;
mod shared;
mod shutdown;
mod stall;
mod standstill;
mod state;
mod status;
mod supervise;
#[cfg(test)]
mod testing;
mod tls;
mod verdict;
pub mod verify;
mod volume;

pub use config::{Config, ConfigError};
pub use local::LocalError;
pub use manager::{Manager, ManagerError, install, run};

/// Generated from `proto/instance.proto`.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::allow_attributes,
    reason = "generated; the comments stand in the proto file"
)]
pub mod proto {
    tonic::include_proto!("mainstay.instance.v1");
}

/// The pre-stop hook: asks the manager of this container to be relieved, and waits for it.
pub async fn pre_stop() -> Result<(), LocalError> {
    local::pre_stop(&manager_socket(), local::PATIENCE).await
}

/// The status of the manager of this container, as JSON.
pub async fn status_json() -> Result<serde_json::Value, LocalError> {
    local::status(&manager_socket()).await
}

fn manager_socket() -> std::path::PathBuf {
    std::path::Path::new(mainstay_core::layout::RUN_DIR).join("manager.sock")
}
