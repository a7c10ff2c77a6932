//! Backups: schedules against a clock that jumps, retention, and recoveries against a naive model of an archive.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod restore;
mod retention;
mod schedules;

use jiff::Timestamp;
use mainstay_core::GtidSet;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// `a:1-5 b:7` is transactions 1 to 5 of one server and 7 of another one.
fn set(text: &str) -> GtidSet {
    text.split_whitespace().fold(GtidSet::new(), |all, part| {
        let (server, numbers) = part.split_once(':').unwrap();
        let server = u32::from(server.as_bytes()[0] - b'a');
        let text = format!("{server:08x}-0000-4000-8000-000000000000:{numbers}");
        all.union(&text.parse().unwrap())
    })
}
