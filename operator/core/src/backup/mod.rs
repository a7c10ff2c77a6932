//! Backups, as decisions: when one is due, who gives it, what is kept, and how a recovery is put together (docs/backup.md).

mod cron;
pub mod plan;
pub mod restore;
pub mod retention;
pub mod schedule;
pub mod summary;
