//! The status that the operator is told, from what the server says.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::observed::Persisted;
use mainstay_core::timing::Timing;
use mainstay_mysql::{Channel, Receiver, ServerMessage, ServerState};

use crate::archive::Report;
use crate::proto;

/// Fills in what is valid while mysqld answers.
pub(crate) fn fill(status: &mut proto::Status, cluster: &str, server: &ServerState) {
    status.mysqld = proto::status::Mysqld::Running.into();
    status.server_uuid.clone_from(&server.server_uuid);
    status.server_id = server.server_id;
    status.writable = !server.super_read_only;
    status.executed = server.executed.to_string();
    status.received = server.received().to_string();
    status.purged = server.purged.to_string();
    status.replication = Some(
        server
            .channel
            .as_ref()
            .map(|channel| replication(server, channel))
            .unwrap_or_default(),
    );
    status.semi_sync = Some(semi_sync(cluster, server));
    status.connections = server.counters.threads_connected;
    status.max_connections = server.max_connections;
}

/// How far the archive is, as of a look at the server that was begun at `asked`.
///
/// While all that is executed is stored, and no commit is on its way, it reaches to that look: an idle primary writes
/// nothing into the store, and loses nothing with it.
#[must_use]
pub(crate) fn archive(report: &Report, server: &ServerState, asked: Timestamp) -> proto::Archive {
    let stored = report.through.clone().unwrap_or_default();
    let behind = server.executed.subtract(&stored).subtract(&report.missing);
    let whole = report.through.is_some() && report.missing.is_empty();
    let quiet = behind.is_empty() && server.committing == 0 && server.semi_sync.waiters == 0;
    let through = if whole && quiet { Some(asked) } else { report.time };
    proto::Archive {
        behind: behind.to_string(),
        missing: report.missing.to_string(),
        through_us: through.map(Timestamp::as_microsecond),
        error: report.error.clone(),
    }
}

/// No set, and never told anything.
#[must_use]
pub(crate) fn is_pristine(told: &Persisted, server: &ServerState) -> bool {
    *told == Persisted::default() && server.executed.is_empty() && server.received().is_empty()
}

fn replication(server: &ServerState, channel: &Channel) -> proto::Replication {
    // Detached: there is no receiver thread. A channel stays behind after a fence, for its relay log.
    let detached = channel.receiver == Receiver::Off;
    proto::Replication {
        source_host: if detached { String::new() } else { channel.host.clone() },
        receiver_running: channel.receiver == Receiver::On,
        applier_running: channel.applier_running,
        applier_behind: !server.fully_applied(),
        last_heard_ms: channel.last_heard.filter(|_| !detached).map(millis),
        lag_seconds: server.lag().map(|lag| lag.as_secs_f64()),
        receiver_error: message(channel.receiver_error.as_ref()),
        applier_error: message(channel.applier_error.as_ref()),
        applier_failing_ms: channel.failing_for.map(millis),
    }
}

fn semi_sync(cluster: &str, server: &ServerState) -> proto::SemiSync {
    let mut acknowledgers: Vec<_> = server
        .dump_threads
        .iter()
        .filter(|thread| thread.semi_sync)
        .filter_map(|thread| thread.ordinal)
        .collect();
    acknowledgers.sort_unstable();
    acknowledgers.dedup();
    proto::SemiSync {
        source_enabled: server.semi_sync.enabled,
        source_on: server.semi_sync.on,
        clients: server.semi_sync.clients,
        wait_for: server.semi_sync.wait_for,
        waiters: server.semi_sync.waiters,
        acknowledgers: acknowledgers
            .iter()
            .map(|ordinal| format!("{cluster}-{ordinal}"))
            .collect(),
    }
}

fn message(error: Option<&ServerMessage>) -> String {
    error.map_or_else(String::new, |error| {
        format!("{} (MySQL error {})", error.text, error.code)
    })
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a status says something that the operator has to know at once: all but what always moves.
#[must_use]
pub(crate) fn differs(before: &proto::Status, after: &proto::Status) -> bool {
    steady(before) != steady(after)
}

fn steady(status: &proto::Status) -> proto::Status {
    let mut status = status.clone();
    status.seq = 0;
    // Only whether it is full.
    status.disk = status.disk.map(|disk| proto::Disk {
        full_for_ms: disk.full_for_ms.map(|_age| 0),
        ..proto::Disk::default()
    });
    status.connections = 0;
    if let Some(replication) = &mut status.replication {
        // Only whether its source was heard lately: the end of that makes it a witness (rule 2b of docs/failover.md).
        replication.last_heard_ms = replication
            .last_heard_ms
            .map(|age| u64::from(Duration::from_millis(age) > Timing::default().silence));
        replication.lag_seconds = replication.lag_seconds.map(|_lag| 0.0);
        replication.applier_failing_ms = replication.applier_failing_ms.map(|_age| 0);
    }
    if let Some(archive) = &mut status.archive {
        // It comes and goes with each commit.
        archive.behind.clear();
        archive.through_us = None;
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_fenced_replica_is_detached_although_its_channel_is_there() {
        let mut server = testing::replica();
        let channel = server.channel.as_mut().unwrap();
        channel.receiver = Receiver::Off;
        channel.received = testing::set("1-9");
        let mut status = proto::Status::default();
        fill(&mut status, "shop", &server);
        let replication = status.replication.unwrap();
        assert_eq!(replication.source_host, "");
        assert!(replication.applier_behind && replication.last_heard_ms.is_none());
        assert_eq!(status.received, testing::set("1-9").to_string());
    }

    #[test]
    fn a_receiver_that_failed_is_detached_and_says_why() {
        let mut server = testing::replica();
        let channel = server.channel.as_mut().unwrap();
        channel.receiver = Receiver::Off;
        channel.receiver_error = Some(ServerMessage {
            code: 13114,
            text: "purged".to_owned(),
        });
        let mut status = proto::Status::default();
        fill(&mut status, "shop", &server);
        let replication = status.replication.unwrap();
        assert_eq!(
            (replication.source_host.as_str(), replication.receiver_running),
            ("", false)
        );
        assert_eq!(replication.receiver_error, "purged (MySQL error 13114)");
    }

    #[test]
    fn what_always_moves_is_no_news() {
        let mut before = proto::Status::default();
        fill(&mut before, "shop", &testing::replica());
        let mut after = before.clone();
        after.seq = 7;
        after.replication.as_mut().unwrap().last_heard_ms = Some(77);
        assert!(!differs(&before, &after));
        after.replication.as_mut().unwrap().applier_failing_ms = Some(1);
        assert!(differs(&before, &after));
        before.replication.as_mut().unwrap().applier_failing_ms = Some(500);
        assert!(!differs(&before, &after));
        after.replication.as_mut().unwrap().last_heard_ms = Some(2001);
        assert!(differs(&before, &after), "its source is silent");
        after.replication.as_mut().unwrap().last_heard_ms = Some(77);
        after.writable = true;
        assert!(differs(&before, &after));
    }

    #[test]
    fn of_the_volume_only_that_it_is_full_or_broken_is_news() {
        let disk = |used_bytes, full_for_ms| proto::Status {
            disk: Some(proto::Disk {
                used_bytes,
                size_bytes: 100,
                full_for_ms,
            }),
            ..proto::Status::default()
        };
        assert!(!differs(&disk(10, None), &disk(20, None)));
        assert!(differs(&disk(10, None), &disk(10, Some(0))));
        assert!(!differs(&disk(10, Some(0)), &disk(20, Some(500))));
        assert!(differs(&disk(10, Some(500)), &disk(10, None)));
        let broken = proto::Status {
            unreadable: true,
            ..disk(10, None)
        };
        assert!(differs(&disk(10, None), &broken));
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn report() -> Report {
        Report {
            through: Some(testing::set("1-9")),
            time: Some(at(5)),
            ..Report::default()
        }
    }

    #[test]
    fn an_idle_archive_reaches_to_the_last_look() {
        let mut server = testing::primary(1);
        let reaches = |report: &Report, server: &ServerState| {
            let archive = archive(report, server, at(9));
            (archive.behind, archive.through_us)
        };
        let whole = (String::new(), Some(9_000_000));
        assert_eq!(reaches(&report(), &server), whole);
        server.semi_sync.waiters = 1;
        let stale = (String::new(), Some(5_000_000));
        assert_eq!(
            reaches(&report(), &server),
            stale,
            "it was written before, and not acknowledged"
        );
        server.semi_sync.waiters = 0;
        server.executed = testing::set("1-11");
        assert_eq!(
            reaches(&report(), &server),
            (testing::set("10-11").to_string(), Some(5_000_000))
        );
        let hole = Report {
            missing: testing::set("10-11"),
            ..report()
        };
        assert_eq!(reaches(&hole, &server), stale, "beyond a hole nothing counts");
        let unknown = Report {
            through: None,
            time: None,
            ..report()
        };
        assert_eq!(reaches(&unknown, &server), (testing::set("1-11").to_string(), None));
    }

    #[test]
    fn only_errors_and_holes_of_the_archive_are_news() {
        let archived = |report: Report| proto::Status {
            archive: Some(archive(&report, &testing::primary(1), at(9))),
            ..proto::Status::default()
        };
        let before = archived(report());
        let later = archived(Report {
            through: Some(testing::set("1-8")),
            ..report()
        });
        assert!(!differs(&before, &later));
        let failing = archived(Report {
            error: "denied".to_owned(),
            ..report()
        });
        assert!(differs(&before, &failing));
    }

    #[test]
    fn pristine_means_never_told_and_empty() {
        let empty = ServerState::default();
        assert!(is_pristine(&Persisted::default(), &empty));
        assert!(!is_pristine(
            &Persisted {
                epoch: 1,
                ..Persisted::default()
            },
            &empty
        ));
        let used = ServerState {
            executed: testing::set("1-2"),
            ..ServerState::default()
        };
        assert!(!is_pristine(&Persisted::default(), &used));
    }
}
