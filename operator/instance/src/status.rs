//! The status that the operator is told, from what the server says.

use std::time::Duration;

use mainstay_core::observed::Persisted;
use mainstay_core::timing::Timing;
use mainstay_mysql::{Channel, Receiver, ServerMessage, ServerState};

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

fn millis(duration: Duration) -> u64 {
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
    status.disk = None;
    status.connections = 0;
    if let Some(replication) = &mut status.replication {
        // Only whether its source was heard lately: the end of that makes it a witness (rule 2b of docs/failover.md).
        replication.last_heard_ms = replication
            .last_heard_ms
            .map(|age| u64::from(Duration::from_millis(age) > Timing::default().silence));
        replication.lag_seconds = replication.lag_seconds.map(|_lag| 0.0);
        replication.applier_failing_ms = replication.applier_failing_ms.map(|_age| 0);
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
