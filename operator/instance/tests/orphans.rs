//! The duty of PID 1: processes that lost their parent are buried, and the status of a known child is still its own.
//!
//! Alone in its program, because whoever waits for every process takes the statuses of all other tests' children.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::process::Command;
use std::time::{Duration, Instant};

use mainstay_instance::process::{Exit, Reaper};
use rustix::process::getpid;

/// Children of this process that have ended and were not waited for.
fn zombies() -> usize {
    let own = getpid().as_raw_nonzero().get().to_string();
    let is_zombie = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name, in parentheses, may hold anything; state and parent follow it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some(fields.next()? == "Z" && fields.next()? == own)
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| is_zombie(entry.unwrap()))
        .filter(|zombie| *zombie)
        .count()
}

#[tokio::test]
async fn orphans_are_buried_and_children_keep_their_status() {
    rustix::process::set_child_subreaper(Some(getpid())).unwrap();
    let reaper = Reaper::start(true).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "for n in 1 2 3 4 5 6 7 8; do sleep 0.2 & done; exit 7"]);
    let mut child = reaper.spawn(&mut shell).unwrap();
    assert_eq!(child.wait().await, Exit::Code(7));
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = false;
    loop {
        let waiting = zombies();
        seen |= waiting > 0;
        let orphans = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", getpid().as_raw_nonzero()));
        let alive = orphans.unwrap_or_default().split_whitespace().count();
        if alive == 0 && waiting == 0 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{alive} orphans, {waiting} of them dead and not buried (seen: {seen})"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
