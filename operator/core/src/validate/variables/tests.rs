//! Every way to write a variable that is Mainstay's, and every value that MySQL would read as another one.

use rstest::rstest;

use super::*;

fn checked(pairs: &[(&str, Variable)]) -> (BTreeMap<String, Setting>, Vec<String>) {
    let config = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let mut problems = Vec::new();
    let settings = check(&config, &mut problems);
    (
        settings,
        problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.field, problem.message))
            .collect(),
    )
}

fn text(value: &str) -> Variable {
    Variable::Text(value.to_owned())
}

#[rstest]
#[case("server_id")]
#[case("server-id")]
#[case("SERVER_ID")]
#[case("loose_server_id")]
#[case("loose-Server-Id")]
#[case("log_bin")]
#[case("skip_log_bin")]
#[case("disable-log-bin")]
#[case("skip-slave-start")]
#[case("skip_networking")]
#[case("rpl_semi_sync_source_timeout")]
#[case("rpl_semi_sync_master_enabled")]
#[case("innodb_flush_log_at_trx_commit")]
#[case("skip_innodb_doublewrite")]
#[case("relay_log_recovery")]
#[case("relay_log_space_limit")]
#[case("replicate_do_db")]
#[case("admin_address")]
#[case("ssl_ca")]
#[case("skip-ssl")]
#[case("read_only")]
#[case("super-read-only")]
#[case("event_scheduler")]
#[case("mysqlx_port")]
#[case("skip_mysqlx")]
#[case("init_file")]
#[case("skip_grant_tables")]
#[case("persisted_globals_load")]
#[case("performance_schema")]
#[case("skip_performance_schema")]
#[case("plugin_load")]
fn owned_variables_are_refused_in_every_spelling(#[case] name: &str) {
    let (settings, problems) = checked(&[(name, Variable::Integer(1))]);
    assert!(settings.is_empty(), "{settings:?}");
    assert!(
        problems[0].starts_with(&format!("spec.config.{name}: ")),
        "{problems:?}"
    );
    assert!(problems[0].ends_with("; remove it"), "{problems:?}");
}

#[rstest]
#[case("max_connections", "max_connections", false)]
#[case("Innodb-Flush-Neighbors", "innodb_flush_neighbors", false)]
#[case("loose-thread_pool_size", "thread_pool_size", true)]
#[case("skip_name_resolve", "skip_name_resolve", false)]
#[case("plugin_load_add", "plugin_load_add", false)]
#[case("hot_cache.key_buffer_size", "hot_cache.key_buffer_size", false)]
#[case(
    "performance_schema_max_digest_length",
    "performance_schema_max_digest_length",
    false
)]
#[case("log_error_verbosity", "log_error_verbosity", false)]
fn other_variables_are_accepted(#[case] written: &str, #[case] name: &str, #[case] loose: bool) {
    let (settings, problems) = checked(&[(written, Variable::Integer(7))]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        settings.get(name),
        Some(&Setting {
            loose,
            value: "7".to_owned()
        })
    );
}

#[rstest]
#[case("", "is not the name of a MySQL variable")]
#[case("max connections", "is not the name of a MySQL variable")]
#[case("x=1\nserver_id", "is not the name of a MySQL variable")]
#[case("[client]", "is not the name of a MySQL variable")]
#[case("9lives", "is not the name of a MySQL variable")]
#[case("skip_innodb_adaptive_hash_index", "write innodb_adaptive_hash_index: 0 instead")]
#[case("enable_innodb_print_all_deadlocks", "write innodb_print_all_deadlocks: 1 instead")]
#[case("maximum_max_connections", "set max_connections")]
fn unusable_names_are_refused_with_what_to_write(#[case] name: &str, #[case] message: &str) {
    let (_, problems) = checked(&[(name, Variable::Integer(1))]);
    assert!(problems.len() == 1 && problems[0].contains(message), "{problems:?}");
}

#[test]
fn one_variable_in_two_spellings_is_refused() {
    let pairs = [
        ("max_connections", Variable::Integer(1)),
        ("loose-Max-Connections", Variable::Integer(2)),
    ];
    let (_, problems) = checked(&pairs);
    assert_eq!(
        problems,
        ["spec.config.max_connections: is the same variable as loose-Max-Connections; keep one of them"]
    );
}

#[rstest]
#[case("one\ntwo", "must be one line")]
#[case("tab\there", "must be one line")]
#[case("yes", "write \"ON\" or \"OFF\"")]
#[case("No", "write \"ON\" or \"OFF\"")]
#[case("512Mi", "does not know the unit Mi; write 512M")]
#[case("1GB", "does not know the unit GB; write 1G")]
#[case("1.5G", "reads no fractions of G")]
#[case("'\"", "both kinds of quotes")]
fn values_that_mysql_reads_otherwise_are_refused(#[case] value: &str, #[case] message: &str) {
    let (_, problems) = checked(&[("tmp_table_size", text(value))]);
    assert!(problems.len() == 1 && problems[0].contains(message), "{problems:?}");
}

#[rstest]
#[case("ON")]
#[case("true")]
#[case("0.5")]
#[case("512M")]
#[case("2e9")]
#[case("Europe/Berlin")]
#[case("10M:autoextend")]
#[case("1 Kilo")]
#[case("SET NAMES 'utf8mb4'")]
#[case("")]
fn values_that_mysql_reads_as_written_are_accepted(#[case] value: &str) {
    let (settings, problems) = checked(&[("init_connect", text(value))]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(settings["init_connect"].value, value);
}

#[rstest]
#[case("1G", Some(1 << 30))]
#[case("512m", Some(512 << 20))]
#[case("300", Some(300))]
#[case("many", None)]
#[case("-1", None)]
#[case("99999999999999999999", None)]
#[case("99999999999E", None)]
fn numbers_are_read_as_mysql_reads_them(#[case] text: &str, #[case] value: Option<u64>) {
    assert_eq!(number(text), value);
}

#[test]
fn a_size_that_is_no_number_is_a_problem_of_its_own() {
    let (settings, _) = checked(&[
        ("max_connections", text("many")),
        ("innodb_buffer_pool_size", text("1M")),
    ]);
    let mut problems = Vec::new();
    assert_eq!(wishes(&settings, &mut problems), Wishes::default());
    assert_eq!(problems.len(), 2, "{problems:?}");
}
