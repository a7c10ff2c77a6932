//! The user's variables: names and values as MySQL will read them, and which of them are Mainstay's.
//!
//! MySQL reads `Loose-Log_Bin` and `log_bin` as one name and the last of two lines as the valid one. So names are brought
//! to one form before anything is compared; and my.cnf has Mainstay's own lines behind the user's (see `mycnf`), so that
//! a spelling that slips through here still changes nothing.

use std::collections::BTreeMap;

use mainstay_api::cluster::Variable;

use super::SpecProblem;
use crate::sizing::Wishes;

/// A variable of the user, as it stands in my.cnf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// A server that does not know the variable ignores it (prefix `loose_`).
    pub loose: bool,
    /// Value, not yet quoted.
    pub value: String,
}

/// Variables that are Mainstay's, by what they would break. A `*` at the end stands for any ending.
const OWNED: &[(&str, &[&str])] = &[
    (
        "Mainstay sets it: files, sockets and ports are where the instance manager expects them",
        &[
            "datadir",
            "basedir",
            "socket",
            "port",
            "extra_port",
            "bind_address",
            "admin_*",
            "create_admin_listener_thread",
            "pid_file",
            "tmpdir",
            "replica_load_tmpdir",
            "slave_load_tmpdir",
            "plugin_dir",
            "plugin_load",
            "lc_messages_dir",
            "character_sets_dir",
            "chroot",
            "user",
            "log_error",
            "log_error_services",
            "secure_file_priv",
            "skip_networking",
            "mysqlx*",
            "innodb_data_home_dir",
            "innodb_log_group_home_dir",
            "innodb_undo_directory",
            "innodb_directories",
            "innodb_doublewrite_dir",
            "innodb_tmpdir",
            "innodb_temp_tablespaces_dir",
        ],
    ),
    (
        "Mainstay sets it: certificates come from the cluster's own CA; see spec.tls",
        &["ssl", "skip_ssl", "ssl_*", "auto_generate_certs"],
    ),
    (
        "Mainstay sets it: it is a part of the cluster's identity",
        &["server_id", "server_id_bits", "server_uuid", "report_*"],
    ),
    (
        "Mainstay sets it: replication that loses no acknowledged write depends on it",
        &[
            "gtid_mode",
            "enforce_gtid_consistency",
            "binlog_gtid_simple_recovery",
            "log_bin",
            "log_bin_index",
            "log_bin_basename",
            "sql_log_bin",
            "binlog_format",
            "binlog_do_db",
            "binlog_ignore_db",
            "binlog_error_action",
            "sync_binlog",
            "innodb_flush_log_at_trx_commit",
            "innodb_doublewrite",
            "innodb_read_only",
            "log_replica_updates",
            "log_slave_updates",
            "relay_log",
            "relay_log_*",
            "sync_relay_log*",
            "sync_master_info",
            "sync_source_info",
            "master_info_*",
            "master_verify_checksum",
            "replicate_*",
            "replica_preserve_commit_order",
            "slave_preserve_commit_order",
            "replica_parallel_type",
            "slave_parallel_type",
            "replica_skip_errors",
            "slave_skip_errors",
            "replica_exec_mode",
            "slave_exec_mode",
            "replica_net_timeout",
            "slave_net_timeout",
            "skip_replica_start",
            "skip_slave_start",
            "rpl_semi_sync_*",
            "super_read_only",
            "read_only",
            "offline_mode",
            "group_replication*",
        ],
    ),
    (
        "Mainstay switches it: events run on the primary and nowhere else",
        &["event_scheduler"],
    ),
    (
        "Mainstay sets it: the cluster's spec is the only configuration",
        &[
            "persisted_globals_load",
            "persist_*",
            "defaults_file",
            "defaults_extra_file",
            "defaults_group_suffix",
            "no_defaults",
            "print_defaults",
            "login_path",
        ],
    ),
    (
        "Mainstay needs it: the state of replication is read from performance_schema",
        &["performance_schema"],
    ),
    (
        "Mainstay sets it: a clone copies from the donor that it chose",
        &["clone_valid_donor_list"],
    ),
    (
        "Mainstay derives the sizes from resources.limits.memory; set single variables instead",
        &["innodb_dedicated_server"],
    ),
    (
        "it is not a setting of a running server",
        &[
            "init_file",
            "initialize",
            "initialize_insecure",
            "bootstrap",
            "daemonize",
            "skip_grant_tables",
            "upgrade",
            "validate_config",
            "help",
            "verbose",
            "version",
            "version_suffix",
            "gdb",
            "console",
            "standalone",
            "innodb_force_recovery",
        ],
    ),
];

/// Variables whose own name begins with `skip_`.
const REAL_SKIPS: [&str; 6] = [
    "skip_name_resolve",
    "skip_external_locking",
    "skip_show_database",
    "skip_character_set_client_handshake",
    "skip_stack_trace",
    "skip_host_cache",
];

/// Longest name that MySQL has is below this.
const MAX_NAME: usize = 64;

/// Checks all variables and gives back those that can be accepted.
pub(super) fn check(config: &BTreeMap<String, Variable>, problems: &mut Vec<SpecProblem>) -> BTreeMap<String, Setting> {
    let mut settings = BTreeMap::new();
    let mut spelled: BTreeMap<String, &String> = BTreeMap::new();
    for (written, value) in config {
        let accepted = name(written).and_then(|(name, loose)| {
            if let Some(before) = spelled.insert(name.clone(), written) {
                return Err(format!("is the same variable as {before}; keep one of them"));
            }
            Ok((
                name,
                Setting {
                    loose,
                    value: text(value)?,
                },
            ))
        });
        match accepted {
            Ok((name, setting)) => {
                settings.insert(name, setting);
            }
            Err(message) => problems.push(SpecProblem::new(format!("spec.config.{written}"), message)),
        }
    }
    settings
}

/// What the user decides of the sizes.
pub(super) fn wishes(config: &BTreeMap<String, Setting>, problems: &mut Vec<SpecProblem>) -> Wishes {
    let mut number = |name: &str, least: u64| {
        let setting = config.get(name)?;
        match number(&setting.value) {
            Some(value) if value >= least => Some(value),
            Some(_) | None => {
                let message = format!("{} is not a number of at least {least}", setting.value);
                problems.push(SpecProblem::new(format!("spec.config.{name}"), message));
                None
            }
        }
    };
    Wishes {
        max_connections: number("max_connections", 10),
        buffer_pool: number("innodb_buffer_pool_size", 5 << 20),
    }
}

/// The normal form of a name, and whether an unknown variable is to be ignored.
fn name(written: &str) -> Result<(String, bool), String> {
    let lower = written.to_ascii_lowercase().replace('-', "_");
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    if lower.is_empty()
        || lower.len() > MAX_NAME
        || !lower.starts_with(|c: char| c.is_ascii_lowercase())
        || !lower.chars().all(valid)
    {
        return Err("is not the name of a MySQL variable; write it as SHOW VARIABLES does".to_owned());
    }
    let (name, loose) = lower
        .strip_prefix("loose_")
        .map_or((lower.as_str(), false), |name| (name, true));
    if let Some(reason) = owner(name) {
        return Err(format!("{reason}; remove it"));
    }
    for (prefix, value) in [("skip_", "0"), ("disable_", "0"), ("enable_", "1"), ("maximum_", "")] {
        let Some(rest) = name.strip_prefix(prefix).filter(|_| !REAL_SKIPS.contains(&name)) else {
            continue;
        };
        return Err(match (owner(rest), value) {
            (Some(reason), _) => format!("{reason}; remove it"),
            (None, "") => format!("the prefix {prefix} is not supported; set {rest}"),
            (None, value) => format!("write {rest}: {value} instead"),
        });
    }
    Ok((name.to_owned(), loose))
}

/// Why a variable is Mainstay's, if it is.
fn owner(name: &str) -> Option<&'static str> {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    };
    let (reason, _) = OWNED
        .iter()
        .find(|(_, patterns)| patterns.iter().any(|pattern| matches(pattern)))?;
    Some(reason)
}

/// The value as MySQL will read it.
fn text(value: &Variable) -> Result<String, String> {
    let text = match value {
        Variable::Integer(number) => return Ok(number.to_string()),
        Variable::Text(text) => text,
    };
    if text.chars().any(char::is_control) {
        return Err("must be one line without control characters".to_owned());
    }
    if text.contains('"') && text.contains('\'') {
        return Err("cannot hold both kinds of quotes, which my.cnf has no way to write".to_owned());
    }
    if ["yes", "no", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word))
    {
        return Err(format!(
            "MySQL takes \"{text}\" for OFF without a word; write \"ON\" or \"OFF\""
        ));
    }
    size(text)?;
    Ok(text.clone())
}

/// Refuses sizes that Kubernetes would understand and MySQL would not.
fn size(text: &str) -> Result<(), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = suffix.chars().next().map(|unit| unit.to_ascii_uppercase());
    let Some(unit) = unit.filter(|unit| "KMGTPE".contains(*unit) && number.starts_with(|c: char| c.is_ascii_digit()))
    else {
        return Ok(());
    };
    let rest = suffix.get(1..).unwrap_or_default().to_ascii_lowercase();
    if matches!(rest.as_str(), "i" | "b" | "ib") {
        return Err(format!(
            "MySQL does not know the unit {suffix}; write {number}{unit}, which counts in steps of 1024"
        ));
    }
    if rest.is_empty() && number.contains('.') {
        return Err(format!(
            "MySQL reads no fractions of {unit}; write a whole number of a smaller unit"
        ));
    }
    Ok(())
}

/// A number as MySQL reads it, with its suffix.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests;
