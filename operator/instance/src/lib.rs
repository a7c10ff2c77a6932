//! The instance manager and its contract with the operator.
//!
//! [`proto`] is the generated code, [`convert`] maps it to the types of `mainstay-core`, [`client`] is what the operator
//! uses to talk to a manager. Everything else is the manager itself, which runs as PID 1 of the mysql container
//! (docs/instance.md).

pub mod client;
pub mod convert;

/// Generated from `proto/instance.proto`.
#[expect(missing_docs, clippy::pedantic, reason = "generated; the comments stand in the proto file")]
pub mod proto {
    tonic::include_proto!("mainstay.instance.v1");
}
