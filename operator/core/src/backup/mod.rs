//! Backups, as decisions and as what is stored: when one is due, who gives it, what is kept, and how a recovery is put together
//! (docs/backup.md); how the stored objects are called and what their manifests say (docs/backup-format.md).
//!
//! Who reads and writes the objects is `mainstay-store`.

pub mod archive;
mod cron;
pub mod keys;
pub mod manifest;
pub mod plan;
pub mod restore;
pub mod retention;
pub mod schedule;
pub mod summary;
pub mod verify;
pub mod wire;

pub use keys::{BackupId, ClusterIdentity, Folder, InvalidKey, Key};
pub use manifest::{BackupManifest, ReignManifest, SegmentIndex};
