//! Backups, as they are seen and as far as work on them takes longer than a request (docs/controller.md, "Backups").

mod listing;
mod progress;
mod seen;
mod shelf;

pub(crate) use progress::Followers;
pub use progress::{HttpPages, Pages};
pub(crate) use seen::see;
pub(crate) use shelf::{Shelves, Work};
