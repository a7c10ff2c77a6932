//! my.cnf of a cluster, the same for all its instances.
//!
//! Three parts, each of which MySQL reads as overriding the one before: Mainstay's defaults, the user's `spec.config`, and
//! what Mainstay owns. So a default can be changed, and no spelling of an owned variable in `spec.config` has an effect.
//! The instance manager includes this file and adds what differs between instances (server_id, addresses, host names) and
//! between versions of the server. Every name here is known to 8.0.26, 8.4 and 9.x, or carries `loose_`.

use std::fmt::Write as _;

use crate::layout;
use crate::sizing::Sizes;
use crate::validate::ValidatedCluster;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// One line: name, value, and the comment above it (empty for none).
struct Line {
    name: &'static str,
    value: String,
    why: &'static str,
}

/// Renders the file: the same text for the same cluster.
#[must_use]
pub fn render(cluster: &ValidatedCluster) -> String {
    let mut text = String::from("# Written by Mainstay from the MySQLCluster; edits are lost.\n[mysqld]\n");
    section(
        &mut text,
        "Defaults, which spec.config may change",
        &defaults(&cluster.sizes),
    );
    text.push_str("\n## spec.config\n");
    for (name, setting) in &cluster.config {
        let loose = if setting.loose { "loose_" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{loose}{name} = {}", quoted(&setting.value));
    }
    section(&mut text, "Owned by Mainstay: files, sockets, ports", &files());
    section(
        &mut text,
        "Owned by Mainstay: no acknowledged write is lost",
        &replication(),
    );
    section(
        &mut text,
        "Owned by Mainstay: semi-synchronous replication",
        &semi_sync(),
    );
    text
}

fn section(text: &mut String, title: &str, lines: &[Line]) {
    let _ = writeln!(text, "\n## {title}");
    for Line { name, value, why } in lines {
        if !why.is_empty() {
            let _ = writeln!(text, "# {why}");
        }
        let _ = writeln!(text, "{name} = {value}");
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "tables of numbers and words are read better without references"
)]
fn line(name: &'static str, value: impl ToString, why: &'static str) -> Line {
    Line {
        name,
        value: value.to_string(),
        why,
    }
}

/// Derived sizes, and what a careful DBA sets.
fn defaults(sizes: &Sizes) -> Vec<Line> {
    let mut lines = vec![
        line("character_set_server", "utf8mb4", ""),
        line(
            "max_connections",
            sizes.max_connections,
            "Sizes follow from resources.limits.memory and storage.size.",
        ),
        line("innodb_buffer_pool_size", bytes(sizes.buffer_pool), ""),
        line("innodb_buffer_pool_chunk_size", bytes(sizes.buffer_pool_chunk), ""),
        line("innodb_buffer_pool_instances", sizes.buffer_pool_instances, ""),
        line("innodb_log_buffer_size", bytes(sizes.log_buffer), ""),
        line("temptable_max_ram", bytes(sizes.temporary_tables), ""),
        line("table_open_cache", sizes.table_cache, ""),
        line("table_definition_cache", sizes.table_cache.max(400), ""),
        line("replica_pending_jobs_size_max", bytes(sizes.pending_jobs), ""),
        line("loose_innodb_redo_log_capacity", bytes(sizes.redo_log), "Since 8.0.30."),
        line("max_binlog_size", bytes(sizes.binlog_file), ""),
        line("binlog_expire_logs_seconds", sizes.binlog_expiry, ""),
        line(
            "innodb_flush_method",
            "O_DIRECT",
            "Pages are cached once, in the buffer pool.",
        ),
        line("replica_parallel_workers", 4, ""),
        line(
            "binlog_transaction_compression",
            "ON",
            "A relay log that is synced for each event is synced twice a transaction instead of five times.",
        ),
        line(
            "skip_name_resolve",
            "ON",
            "Accounts are by '%'; a slow DNS must not delay logins.",
        ),
        line(
            "max_connect_errors",
            1_000_000,
            "A port scanner or load balancer must not lock its host out.",
        ),
        line("local_infile", "OFF", ""),
    ];
    if sizes.small_instruments {
        let why = "Less than 1 GiB of memory: the instruments that nobody reads on a small server are small.";
        lines.extend([
            line("performance_schema_error_size", 1, why),
            line("performance_schema_digests_size", 1000, ""),
            line("performance_schema_accounts_size", 16, ""),
            line("performance_schema_users_size", 16, ""),
            line("performance_schema_hosts_size", 16, ""),
        ]);
    }
    lines
}

fn files() -> Vec<Line> {
    let tls = |file: &str| format!("{}/{file}", layout::SERVER_TLS_DIR);
    vec![
        line("datadir", layout::DATA_DIR, ""),
        line("tmpdir", layout::TMP_DIR, ""),
        line("socket", layout::SOCKET, ""),
        line("pid_file", format!("{}/mysqld.pid", layout::RUN_DIR), ""),
        line(
            "secure_file_priv",
            "NULL",
            "No files of the server through SQL; the root filesystem is read-only.",
        ),
        line("port", layout::PORT_MYSQL, ""),
        line("bind_address", "*", ""),
        line(
            "admin_port",
            layout::PORT_ADMIN,
            "Replication, clones and the manager get in when max_connections are used up.",
        ),
        line("create_admin_listener_thread", "ON", ""),
        line("loose_mysqlx", "OFF", ""),
        line("ssl_ca", tls("ca.crt"), ""),
        line("ssl_cert", tls("tls.crt"), ""),
        line("ssl_key", tls("tls.key"), ""),
        line("auto_generate_certs", "OFF", ""),
        line(
            "persisted_globals_load",
            "OFF",
            "The cluster's spec is the only configuration.",
        ),
        line("performance_schema", "ON", "The state of replication is read from it."),
        line(
            "plugin_load_add",
            "semisync_source.so;semisync_replica.so;mysql_clone.so",
            "",
        ),
    ]
}

fn replication() -> Vec<Line> {
    vec![
        line("gtid_mode", "ON", ""),
        line("enforce_gtid_consistency", "ON", ""),
        line("log_bin", "binlog", ""),
        line("log_replica_updates", "ON", ""),
        line("relay_log", "relay", ""),
        line("sync_binlog", 1, ""),
        line("innodb_flush_log_at_trx_commit", 1, ""),
        line("innodb_doublewrite", "ON", ""),
        line(
            "relay_log_recovery",
            "OFF",
            "A relay log may hold the only copy of an acknowledged transaction: it is never dropped.",
        ),
        line("sync_relay_log", 1, ""),
        line("replica_preserve_commit_order", "ON", ""),
        line(
            "replica_net_timeout",
            3,
            "Longer than the 2 s of silence that begin an election: a receiver that reads stops at once when it is fenced, one \
             that connects to a dead host not before this time has passed.",
        ),
        line(
            "skip_replica_start",
            "ON",
            "An instance starts detached and read-only, until the operator has compared it.",
        ),
        line("super_read_only", "ON", ""),
        line(
            "event_scheduler",
            "OFF",
            "The manager switches it on where writes are open.",
        ),
    ]
}

fn semi_sync() -> Vec<Line> {
    vec![
        line(
            "loose_rpl_semi_sync_replica_enabled",
            "ON",
            "Loose, because a server that initialises its data directory loads no plugins.",
        ),
        line(
            "loose_rpl_semi_sync_source_enabled",
            "OFF",
            "The manager switches it on before writes are opened.",
        ),
        line("loose_rpl_semi_sync_source_wait_point", "AFTER_SYNC", ""),
        line("loose_rpl_semi_sync_source_wait_no_replica", "ON", ""),
        line(
            "loose_rpl_semi_sync_source_wait_for_replica_count",
            65_535,
            "Nothing is acknowledged before the manager has set the real count.",
        ),
        line(
            "loose_rpl_semi_sync_source_timeout",
            1_000_000_000_000_000_000_u64,
            "Never falls back to asynchronous replication.",
        ),
    ]
}

/// A size with the largest unit that divides it.
fn bytes(size: u64) -> String {
    if size.is_multiple_of(MIB) {
        format!("{}M", size / MIB)
    } else if size.is_multiple_of(KIB) {
        format!("{}K", size / KIB)
    } else {
        size.to_string()
    }
}

/// A value as an option file holds it: quoted unless it is plain, because `#` begins a comment and blanks are cut off.
/// Values with both kinds of quotes or with control characters were refused.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.,:/+*=@%-".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    let quote = if value.contains('"') { '\'' } else { '"' };
    format!("{quote}{}{quote}", value.replace('\\', "\\\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_when_an_option_file_would_read_them_otherwise() {
        for (value, written) in [
            ("500", "500"),
            ("STRICT_TRANS_TABLES,NO_ZERO_DATE", "STRICT_TRANS_TABLES,NO_ZERO_DATE"),
            ("", "\"\""),
            ("a # b", "\"a # b\""),
            (" padded ", "\" padded \""),
            (r"back\slash", r#""back\\slash""#),
            (r#"say "hi""#, r#"'say "hi"'"#),
            ("it's", "\"it's\""),
        ] {
            assert_eq!(quoted(value), written);
        }
    }

    #[test]
    fn sizes_have_the_largest_unit() {
        assert_eq!(bytes(128 * MIB), "128M");
        assert_eq!(bytes(3 * KIB), "3K");
        assert_eq!(bytes(1_500_000_001), "1500000001");
    }
}
