//! Metrics of the instance, from the last status and the last reading of the server.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::ServerState;
use prometheus::{Encoder as _, Gauge, IntGauge, Opts, Registry, TextEncoder};

use crate::archive::Report;
use crate::proto;
use crate::shared::Shared;

/// The page in Prometheus' text format.
pub(crate) fn page(shared: &Shared) -> Result<Vec<u8>, prometheus::Error> {
    let registry = registry(shared)?;
    let mut page = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut page)?;
    Ok(page)
}

/// Whoever scrapes knows the pod; these say which cluster it belongs to, so that equal names do not mix (case F28).
fn registry(shared: &Shared) -> Result<Registry, prometheus::Error> {
    let config = &shared.config;
    let labels = [
        ("namespace", &config.namespace),
        ("cluster", &config.cluster),
        ("instance", &config.instance.0),
    ];
    let labels = labels
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .into_iter()
        .collect();
    let registry = Registry::new_custom(Some("mainstay_mysql".to_owned()), Some(labels))?;
    let process = shared.process();
    let status = shared.watch_status().borrow().clone();
    let server = shared.last_state();
    let disk = status.disk.unwrap_or_default();
    let epoch = status.persisted.as_ref().map_or(0, |persisted| persisted.epoch);
    integers(
        &registry,
        &[
            ("up", "mysqld answers", u64::from(server.is_some())),
            (
                "failed",
                "mysqld does not start",
                u64::from(process.phase == Mysqld::Failed),
            ),
            (
                "restarts",
                "Restarts of mysqld since its manager began",
                process.restarts.into(),
            ),
            (
                "refusals",
                "Starts of mysqld in a row that failed for a reason that may lie in the data directory",
                process.refusals.into(),
            ),
            (
                "volume_unreadable",
                "The data volume answers with I/O errors, or only reads",
                u64::from(status.unreadable),
            ),
            (
                "disk_full_seconds",
                "For how long less than 16 MiB have been free on the data volume; 0 while there is room",
                disk.full_for_ms.unwrap_or_default().div_ceil(1000),
            ),
            ("disk_used_bytes", "Bytes used on the data volume", disk.used_bytes),
            ("disk_size_bytes", "Bytes of the data volume", disk.size_bytes),
            ("epoch", "Epoch of the newest command", epoch),
        ],
    )?;
    if let Some(archive) = &status.archive {
        of_archive(&registry, archive, &shared.archive().unwrap_or_default())?;
    }
    if let Some(server) = server {
        of_server(&registry, &server)?;
        of_channel(&registry, &server)?;
    }
    Ok(registry)
}

/// What is unknown is missing: there is no lag while a hole is open.
fn of_archive(registry: &Registry, archive: &proto::Archive, report: &Report) -> Result<(), prometheus::Error> {
    let count = |set: &str| set.parse::<GtidSet>().map_or(0, |set| set.count());
    integers(
        registry,
        &[
            (
                "binlog_archive_behind_transactions",
                "Executed transactions that are not stored yet",
                count(&archive.behind),
            ),
            (
                "binlog_archive_missing_transactions",
                "Executed transactions that will never be stored, and that no backup holds",
                count(&archive.missing),
            ),
            (
                "binlog_archive_failing",
                "Nothing can be stored at present",
                u64::from(!archive.error.is_empty()),
            ),
            (
                "binlog_archive_segments",
                "Segments stored since the opening",
                report.segments,
            ),
            ("binlog_archive_bytes", "Bytes stored since the opening", report.bytes),
        ],
    )?;
    // Beyond a hole there is no time until which everything is stored.
    if let Some(through) = archive.through_us.filter(|_| archive.missing.is_empty()) {
        let now = Timestamp::now().as_microsecond();
        let micros = if archive.behind.is_empty() {
            0
        } else {
            now.saturating_sub(through)
        };
        let lag = Gauge::with_opts(Opts::new(
            "binlog_archive_lag_seconds",
            "Age of what is committed and not stored; 0 when everything is",
        ))?;
        lag.set(Duration::from_micros(u64::try_from(micros).unwrap_or_default()).as_secs_f64());
        registry.register(Box::new(lag))?;
    }
    Ok(())
}

fn of_server(registry: &Registry, server: &ServerState) -> Result<(), prometheus::Error> {
    let (counters, semi_sync) = (server.counters, server.semi_sync);
    let (connected, running) = (counters.threads_connected.into(), counters.threads_running.into());
    integers(
        registry,
        &[
            ("read_only", "super_read_only is on", u64::from(server.super_read_only)),
            ("uptime_seconds", "Seconds since mysqld started", counters.uptime),
            ("queries", "Statements since mysqld started", counters.queries),
            (
                "slow_queries",
                "Slow statements since mysqld started",
                counters.slow_queries,
            ),
            ("threads_connected", "Connections", connected),
            ("threads_running", "Connections that work", running),
            ("max_connections", "Connections allowed", server.max_connections.into()),
            (
                "aborted_connects",
                "Failed logins since mysqld started",
                counters.aborted_connects,
            ),
            (
                "bytes_received",
                "Bytes from clients since mysqld started",
                counters.bytes_received,
            ),
            (
                "bytes_sent",
                "Bytes to clients since mysqld started",
                counters.bytes_sent,
            ),
            (
                "semi_sync_on",
                "Commits wait for acknowledgements",
                u64::from(semi_sync.on),
            ),
            (
                "semi_sync_clients",
                "Connected semi-synchronous replicas",
                semi_sync.clients.into(),
            ),
            (
                "semi_sync_wait_for",
                "Acknowledgements that a commit needs",
                semi_sync.wait_for.into(),
            ),
            (
                "semi_sync_waiters",
                "Sessions that wait for an acknowledgement",
                semi_sync.waiters.into(),
            ),
            (
                "semi_sync_acknowledged",
                "Acknowledged commits since mysqld started",
                counters.acknowledged,
            ),
        ],
    )
}

fn of_channel(registry: &Registry, server: &ServerState) -> Result<(), prometheus::Error> {
    let Some(channel) = &server.channel else { return Ok(()) };
    let receiving = channel.receiver == mainstay_mysql::Receiver::On;
    integers(
        registry,
        &[
            ("receiver_running", "The receiver is connected", u64::from(receiving)),
            (
                "applier_running",
                "The applier runs",
                u64::from(channel.applier_running),
            ),
        ],
    )?;
    // Unknown is not zero: the series is missing then.
    let durations = [
        (
            "replication_lag_seconds",
            "From commit on the source to apply here",
            server.lag(),
        ),
        (
            "replication_last_heard_seconds",
            "Since the source was last heard",
            channel.last_heard,
        ),
    ];
    for (name, help, value) in durations {
        if let Some(value) = value {
            let gauge = Gauge::with_opts(Opts::new(name, help))?;
            gauge.set(value.as_secs_f64());
            registry.register(Box::new(gauge))?;
        }
    }
    Ok(())
}

/// Name, help and value.
fn integers(registry: &Registry, gauges: &[(&str, &str, u64)]) -> Result<(), prometheus::Error> {
    for (name, help, value) in gauges {
        let gauge = IntGauge::with_opts(Opts::new(*name, *help))?;
        gauge.set(i64::try_from(*value).unwrap_or(i64::MAX));
        registry.register(Box::new(gauge))?;
    }
    Ok(())
}
