//! The object store: where backups and the binlog archive are kept.
//!
//! [`Store`] is the port; [`S3`] is its adapter for everything that speaks the S3 protocol, and [`Memory`] the one for
//! tests, with faults by command. [`archive`] turns a directory into a stream and back: tar, zstd, and age encryption if
//! a key is given, all with bounded memory. How objects are called, and what their manifests say, are decisions without
//! I/O: they are in [`mainstay_core::backup`]. The format is described in `docs/backup-format.md`, so that somebody can
//! restore without Mainstay.

mod access;
pub mod archive;
pub mod catalog;
mod error;
mod faults;
mod memory;
pub mod parts;
pub mod pipe;
mod port;
mod recovery;
mod s3;

pub use access::{ACCESS_FILE, Access, AccessError};
pub use error::{Place, StoreError};
pub use faults::{Failure, Fault, Operation};
pub use mainstay_core::backup;
pub use memory::Memory;
pub use port::{
    Body, Depth, Download, Entry, Existing, Incomplete, Listing, ObjectInfo, Span, Store, Stored, StreamOptions,
};
pub use recovery::{RECOVERY_FILE, RecoveryOrder, RecoverySource};
pub use s3::{Identity, Keys, S3, Settings, SettingsError};
