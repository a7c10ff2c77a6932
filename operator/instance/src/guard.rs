//! What a manager does by itself against a network or a server that fails: it fences itself when it is cut off, and kills
//! mysqld when that is frozen or its commits are (rule 2 c), or when its history was reset. What it decides is in [`crate::isolation`] and
//! [`crate::stall`]; the operator hears of it by the status, as of any other end of mysqld.

mod cut;
mod frozen;
mod history;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use cut::fence_oneself;
pub(crate) use frozen::end_what_is_frozen;
pub(crate) use history::give_up_lost_history;

/// A duration for a person: "10 s", "2.5 s".
fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
