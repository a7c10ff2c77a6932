//! The rendered my.cnf: what the cluster's ConfigMap says, then what is this instance's own.

use std::path::Path;

use crate::config::Config;

/// It comes first, so the cluster's my.cnf may change it. A container may not set memory policies, and mysqld says so for
/// each chunk of the buffer pool.
const DEFAULTS: &[&str] = &["[mysqld]", "loose_innodb_numa_interleave=OFF"];

/// What the failover rules and the manager rely on beyond what `mainstay_core::mycnf` owns. It comes last, so it wins.
const RULES: &[&str] = &[
    // It begins read-only, and an operator decides about more.
    "super_read_only=ON",
    "read_only=ON",
    "skip_replica_start=ON",
    "event_scheduler=OFF",
    // Crash recovery commits what was not acknowledged: nobody reads it before it was compared (rule 7). Attach and Open
    // let clients come.
    "offline_mode=ON",
    "skip_networking=OFF",
    // What is committed after a marker transaction was in the binlog after it (rule 1 b).
    "binlog_order_commits=ON",
    // What the manager reads. (No log_error: it goes to standard error only while nobody names a file.)
    "log_timestamps=UTC",
];

/// What a server needs that is only there to be cloned into and to be booted once: nobody connects to it, and it shares a small
/// container with an upload. It comes last, so the sizes of the cluster's instances do not count.
const COPY: &[&str] = &[
    "innodb_buffer_pool_size=128M",
    "innodb_buffer_pool_chunk_size=16M",
    "innodb_buffer_pool_instances=1",
    "innodb_buffer_pool_dump_at_shutdown=OFF",
    "innodb_buffer_pool_load_at_startup=OFF",
    "innodb_log_buffer_size=16M",
    "loose_innodb_dedicated_server=OFF",
    "loose_innodb_redo_log_capacity=128M",
    "temptable_max_ram=16M",
    "max_connections=20",
    "table_open_cache=400",
    "table_definition_cache=400",
    "general_log=OFF",
    "slow_query_log=OFF",
    // It has no certificate of its own, and makes none that would be stored.
    "auto_generate_certs=OFF",
    "loose_caching_sha2_password_auto_generate_rsa_keys=OFF",
    "loose_sha256_password_auto_generate_rsa_keys=OFF",
    "ssl_cert=",
    "ssl_key=",
];

/// Arguments of such a server. Without a binlog no transaction can be added to what was copied. A value of a dump is NULL when it
/// is larger than a packet.
pub(crate) const COPY_ARGUMENTS: &[&str] = &["--skip-networking", "--skip-log-bin", "--max-allowed-packet=1G"];

/// For what a server is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// An instance, with the memory that it is declared to have.
    Instance,
    /// A throw-away server in the small container of a Job.
    Small,
}

/// A line that cannot be written into a my.cnf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to render my.cnf: {name} holds a line break")]
pub(crate) struct RenderError {
    /// Which value.
    pub name: &'static str,
}

/// The my.cnf with which mysqld is started.
pub(crate) fn render(config: &Config) -> Result<String, RenderError> {
    let mut text = render_cluster(config);
    push_own(&mut text, config)?;
    Ok(text)
}

/// The my.cnf of a server that is only there to be cloned into and to be booted once.
pub(crate) fn render_copy(config: &Config) -> Result<String, RenderError> {
    let mut text = render(config)?;
    for line in COPY {
        push(&mut text, line);
    }
    Ok(text)
}

fn render_cluster(config: &Config) -> String {
    let mut text = String::from("# Written by the instance manager at each start of mysqld.\n");
    for line in DEFAULTS {
        push(&mut text, line);
    }
    push(&mut text, &format!("!include {}", config.paths.config_file.display()));
    text
}

/// The my.cnf of the run that makes a data directory. It loads no plugin, so it does not know their variables, and would
/// not start with one; what makes data directories differ (`lower_case_table_names`, `innodb_page_size`) it does know. So
/// each option of the cluster may be unknown here. A mistake is found when the server is started.
pub(crate) fn render_initialise(config: &Config, cluster: &str) -> Result<String, RenderError> {
    let mut text = String::from("# Written by the instance manager to make a data directory.\n");
    for line in DEFAULTS {
        push(&mut text, line);
    }
    for line in cluster.lines() {
        let name = line.trim_start();
        let is_option = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.starts_with("loose");
        push(
            &mut text,
            &if is_option {
                format!("loose_{name}")
            } else {
                line.to_owned()
            },
        );
    }
    push_own(&mut text, config)?;
    Ok(text)
}

fn push_own(text: &mut String, config: &Config) -> Result<(), RenderError> {
    let paths = &config.paths;
    let path = |name: &'static str, path: &Path| (name, path.display().to_string());
    let own = [
        path("datadir", &paths.data()),
        path("socket", &paths.socket()),
        path("pid_file", &paths.run.join("mysqld.pid")),
        path("tmpdir", &paths.tmp()),
        path("ssl_ca", &paths.server_tls.join("ca.crt")),
        path("ssl_cert", &paths.server_tls.join("tls.crt")),
        path("ssl_key", &paths.server_tls.join("tls.key")),
        path("loose_clone_ssl_ca", &paths.server_tls.join("ca.crt")),
        ("port", config.ports.mysql.to_string()),
        ("bind_address", config.mysql_bind.clone()),
        ("admin_address", config.pod_ip.to_string()),
        ("admin_port", config.ports.admin.to_string()),
        ("server_id", config.server_id().to_string()),
        ("report_host", config.host.clone()),
        ("report_port", config.ports.mysql.to_string()),
    ];
    push(text, "[mysqld]");
    for line in RULES {
        push(text, line);
    }
    for (name, value) in own {
        if value.contains(['\n', '\r']) {
            return Err(RenderError { name });
        }
        push(text, &format!("{name}={value}"));
    }
    Ok(())
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Options of the run that makes a data directory and is thrown away: no binlog, so that no GTID is used; no sync of its
/// own and no doublewrite, because one sync of the file system follows before the directory counts.
pub(crate) const INITIALISE: &[&str] = &[
    "--initialize-insecure",
    "--skip-log-bin",
    "--gtid-mode=OFF",
    "--enforce-gtid-consistency=OFF",
    "--super-read-only=OFF",
    "--read-only=OFF",
    "--innodb-flush-method=nosync",
    "--skip-innodb-doublewrite",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=128M",
    "--log-error-verbosity=1",
    "--innodb-redo-log-capacity=100M",
    "--caching-sha2-password-auto-generate-rsa-keys=OFF",
    "--loose-sha256-password-auto-generate-rsa-keys=OFF",
];

/// Options of the server on which statements are loaded and binlogs are replayed.
pub(crate) const RECOVER: &[&str] = &[
    "--skip-networking",
    "--skip-log-bin",
    // Only the manager can reach it, and it has to set passwords.
    "--super-read-only=OFF",
    "--read-only=OFF",
    // Whoever wrote the binlogs may have had the server_id that this instance has.
    "--replicate-same-server-id=ON",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-innodb-doublewrite",
    "--sync-relay-log=0",
    "--max-allowed-packet=1G",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn f04_an_ipv6_instance() {
        let mut config = testing::config(Path::new("/t"));
        config.pod_ip = "fd00::7".parse().unwrap();
        let text = render(&config).unwrap();
        assert!(text.contains("\nadmin_address=fd00::7\n"));
        assert!(text.contains("\nserver_id=1201\n"));
    }

    #[test]
    fn what_is_its_own_comes_after_what_the_user_wrote() {
        let text = render(&testing::config(Path::new("/t"))).unwrap();
        let at = |piece: &str| text.find(piece).unwrap();
        assert!(at("innodb_numa_interleave") < at("!include"));
        for line in [
            "super_read_only=ON",
            "skip_replica_start=ON",
            "log_timestamps=UTC",
            "datadir=",
        ] {
            assert!(at("!include") < at(line), "{line}");
        }
    }

    #[test]
    fn a_data_directory_is_made_without_plugins() {
        let cluster = "# why\n[mysqld]\nlower_case_table_names = 1\nrpl_semi_sync_source_enabled = OFF\nloose_x = 1\n";
        let text = render_initialise(&testing::config(Path::new("/t")), cluster).unwrap();
        let wanted = "# why\n[mysqld]\nloose_lower_case_table_names = 1\nloose_rpl_semi_sync_source_enabled = OFF\nloose_x = 1\n";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn a_copy_is_small_and_makes_no_keys_whatever_the_cluster_says() {
        let text = render_copy(&testing::config(Path::new("/t"))).unwrap();
        let at = |piece: &str| text.rfind(piece).unwrap();
        for line in ["innodb_buffer_pool_size=128M", "ssl_key=\n", "auto_generate_certs=OFF"] {
            assert!(at("!include") < at(line) && at("\nssl_key=/") < at(line), "{line}");
        }
    }

    #[test]
    fn a_value_is_one_line() {
        let mut config = testing::config(Path::new("/t"));
        config.host = "a\nskip-grant-tables".to_owned();
        assert_eq!(render(&config), Err(RenderError { name: "report_host" }));
    }
}
