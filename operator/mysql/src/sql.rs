//! The SQL texts.

use std::fmt;

use secrecy::zeroize::Zeroizing;

use crate::port::{AccountLock, FirstApplication, ReplicationSource, Sessions, SharedPassword};
use crate::state::ServerMessage;
use crate::{accounts, quote};
use secrecy::{ExposeSecret as _, SecretString};

/// A statement, or several that are sent together.
#[derive(Clone)]
pub(crate) struct Statement {
    text: Zeroizing<String>,
    secret: bool,
}

impl Statement {
    /// One that may be seen.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: Zeroizing::new(text.into()),
            secret: false,
        }
    }

    /// One that holds a password: MySQL's messages about it may quote it, so they are withheld.
    pub(crate) fn secret(text: impl Into<String>) -> Self {
        Self {
            text: Zeroizing::new(text.into()),
            secret: true,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn is_secret(&self) -> bool {
        self.secret
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.secret { "Statement(..)" } else { self.text() })
    }
}

/// 10^18 ms: a commit waits for its acknowledgement, however long that takes (decision B22).
const FOR_EVER: &str = "1000000000000000000";

/// Flags, then replication, then dump threads, then sets: the order in which the answers are read is the order in which
/// they were true (see [`crate::state::ServerState`]).
pub(crate) const READ_STATE: &str = "\
SELECT @@GLOBAL.super_read_only, @@GLOBAL.read_only, @@GLOBAL.server_uuid, @@GLOBAL.server_id, \
@@GLOBAL.event_scheduler, @@GLOBAL.max_connections, @@GLOBAL.rpl_semi_sync_source_enabled, \
@@GLOBAL.rpl_semi_sync_source_wait_for_replica_count, @@GLOBAL.offline_mode, \
(SELECT COUNT(*) FROM performance_schema.threads WHERE TYPE='FOREGROUND' AND PROCESSLIST_STATE IN \
('waiting for handler commit','Waiting for semi-sync ACK from replica','Waiting for semi-sync ACK from slave')), \
(SELECT COUNT(*) FROM performance_schema.threads WHERE TYPE='FOREGROUND' AND PROCESSLIST_USER<>'mainstay' \
AND PROCESSLIST_STATE IN ('Waiting for global read lock','Waiting for commit lock')), \
CONCAT_WS(', ', IF(@@GLOBAL.sync_binlog<>1, 'sync_binlog', NULL), \
IF(@@GLOBAL.innodb_flush_log_at_trx_commit<>1, 'innodb_flush_log_at_trx_commit', NULL), \
IF(@@GLOBAL.sync_relay_log<>1, 'sync_relay_log', NULL), \
IF(@@GLOBAL.rpl_semi_sync_replica_enabled<>1, 'rpl_semi_sync_replica_enabled', NULL), \
IF(@@GLOBAL.rpl_semi_sync_source_wait_point<>'AFTER_SYNC', 'rpl_semi_sync_source_wait_point', NULL), \
IF(@@GLOBAL.rpl_semi_sync_source_wait_no_replica<>1, 'rpl_semi_sync_source_wait_no_replica', NULL), \
IF(@@GLOBAL.rpl_semi_sync_source_timeout<>1000000000000000000, 'rpl_semi_sync_source_timeout', NULL)); \
SELECT c.HOST, c.PORT, s.SERVICE_STATE, a.SERVICE_STATE, s.LAST_ERROR_NUMBER, s.LAST_ERROR_MESSAGE, \
TIMESTAMPDIFF(MICROSECOND, NULLIF(GREATEST(s.LAST_HEARTBEAT_TIMESTAMP, s.LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP), \
'0000-00-00 00:00:00.000000'), NOW(6)), \
(SELECT TIMESTAMPDIFF(MICROSECOND, MIN(w.APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP), NOW(6)) \
FROM performance_schema.replication_applier_status_by_worker w \
WHERE w.CHANNEL_NAME='' AND w.APPLYING_TRANSACTION<>''), c.AUTO_POSITION, \
(SELECT b.VARIABLE_VALUE FROM performance_schema.status_by_thread b \
WHERE b.THREAD_ID=s.THREAD_ID AND b.VARIABLE_NAME='Bytes_received'), \
IF(s.LAST_HEARTBEAT_TIMESTAMP > s.LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP, 0, TIMESTAMPDIFF(MICROSECOND, \
NULLIF(s.LAST_QUEUED_TRANSACTION_IMMEDIATE_COMMIT_TIMESTAMP, '0000-00-00 00:00:00.000000'), \
s.LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP)), \
(SELECT r.PROCESSLIST_STATE='Queueing source event to the relay log' FROM performance_schema.threads r \
WHERE r.THREAD_ID=s.THREAD_ID) \
FROM performance_schema.replication_connection_configuration c \
JOIN performance_schema.replication_connection_status s ON s.CHANNEL_NAME=c.CHANNEL_NAME \
JOIN performance_schema.replication_applier_status a ON a.CHANNEL_NAME=c.CHANNEL_NAME WHERE c.CHANNEL_NAME=''; \
SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker \
WHERE CHANNEL_NAME='' AND LAST_ERROR_NUMBER<>0 \
UNION ALL SELECT LAST_ERROR_NUMBER, LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_coordinator \
WHERE CHANNEL_NAME='' AND LAST_ERROR_NUMBER<>0 LIMIT 1; \
SELECT VARIABLE_NAME, VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME IN (\
'Rpl_semi_sync_source_status','Rpl_semi_sync_source_clients','Rpl_semi_sync_source_wait_sessions',\
'Rpl_semi_sync_source_yes_tx','Threads_connected','Threads_running','Queries','Slow_queries','Uptime',\
'Aborted_connects','Bytes_received','Bytes_sent'); \
SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, (SELECT COUNT(*) FROM performance_schema.user_variables_by_thread v \
WHERE v.THREAD_ID=t.THREAD_ID AND v.VARIABLE_NAME='rpl_semi_sync_replica' AND v.VARIABLE_VALUE='1') \
FROM performance_schema.threads t WHERE t.PROCESSLIST_COMMAND IN ('Binlog Dump','Binlog Dump GTID') \
OR t.PROCESSLIST_USER='mainstay_clone'; \
SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME=''; \
SELECT @@GLOBAL.gtid_purged, @@GLOBAL.gtid_executed";

/// Number of result sets of [`READ_STATE`].
pub(crate) const READ_STATE_RESULTS: usize = 7;

/// `FLUSH TABLES WITH READ LOCK` takes a shared lock on everything, and one on commits; what waits for the first of them keeps
/// all who write waiting behind it. `SET GLOBAL super_read_only` of the manager does the same for a moment.
pub(crate) const GLOBAL_LOCK_HOLDER: &str = "\
SELECT t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_HOST FROM performance_schema.metadata_locks l \
JOIN performance_schema.threads t ON t.THREAD_ID=l.OWNER_THREAD_ID \
WHERE l.OBJECT_TYPE IN ('GLOBAL','COMMIT') AND l.LOCK_TYPE='SHARED' AND l.LOCK_STATUS IN ('GRANTED','PENDING') \
AND t.PROCESSLIST_ID IS NOT NULL AND t.PROCESSLIST_USER<>'mainstay' \
ORDER BY l.LOCK_STATUS='GRANTED' DESC, t.PROCESSLIST_ID LIMIT 1";

/// What every server of a cluster is started with, and an acknowledgement rests on (operator/core/src/mycnf.rs).
pub(crate) const DURABLE: &str = "\
SET GLOBAL sync_binlog=1, GLOBAL innodb_flush_log_at_trx_commit=1, GLOBAL sync_relay_log=1, \
GLOBAL rpl_semi_sync_replica_enabled=ON, GLOBAL rpl_semi_sync_source_wait_point='AFTER_SYNC', \
GLOBAL rpl_semi_sync_source_wait_no_replica=ON, GLOBAL rpl_semi_sync_source_timeout=1000000000000000000";

pub(crate) const SET_SUPER_READ_ONLY: &str = "SET GLOBAL super_read_only=ON";
pub(crate) const LEAVE_SUPER_READ_ONLY: &str = "SET GLOBAL super_read_only=OFF";
/// Switches `super_read_only` off with it; clients may come.
pub(crate) const OPEN_WRITES: &str = "SET GLOBAL offline_mode=OFF, GLOBAL read_only=OFF";

/// Without clients: their sessions end at once, whatever they do.
pub(crate) fn serve_clients(serve: bool) -> Statement {
    Statement::plain(format!("SET GLOBAL offline_mode={}", if serve { "OFF" } else { "ON" }))
}

/// Deletes the binlogs before this one.
pub(crate) fn purge_binlogs(to: &str) -> Statement {
    Statement::plain(format!("PURGE BINARY LOGS TO {}", quote::string(to)))
}

/// The coordinator of a stopped receiver's relay log that waits for the rest of a transaction.
pub(crate) const WAITING_FOR_THE_REST: &str = "\
SELECT t.PROCESSLIST_ID FROM performance_schema.replication_applier_status_by_coordinator c \
JOIN performance_schema.replication_connection_status s ON s.CHANNEL_NAME=c.CHANNEL_NAME \
JOIN performance_schema.threads t ON t.THREAD_ID=c.THREAD_ID \
WHERE c.CHANNEL_NAME='' AND c.PROCESSING_TRANSACTION<>'' AND s.SERVICE_STATE='OFF'";
pub(crate) const STOP_REPLICA: &str = "STOP REPLICA FOR CHANNEL ''";
pub(crate) const STOP_RECEIVER: &str = "STOP REPLICA IO_THREAD FOR CHANNEL ''";
pub(crate) const START_APPLIER: &str = "START REPLICA SQL_THREAD FOR CHANNEL ''";
pub(crate) const FORGET_SOURCE: &str = "RESET REPLICA ALL FOR CHANNEL ''";

/// For a channel that is new, or whose applier is stopped.
pub(crate) fn set_source(source: &ReplicationSource) -> Statement {
    change_replication_source(source, "SOURCE_AUTO_POSITION=1, ")
}

/// For a channel whose applier runs: auto-positioning stays as it is, MySQL refuses to hear of it then.
pub(crate) fn change_source(source: &ReplicationSource) -> Statement {
    change_replication_source(source, "")
}

fn change_replication_source(source: &ReplicationSource, positioning: &str) -> Statement {
    Statement::plain(format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST={}, SOURCE_PORT={}, SOURCE_USER='', SOURCE_PASSWORD='', \
         {positioning}SOURCE_SSL=1, SOURCE_SSL_CA={}, SOURCE_SSL_VERIFY_SERVER_CERT=1, \
         SOURCE_RETRY_COUNT=86400, SOURCE_CONNECT_RETRY=1, SOURCE_HEARTBEAT_PERIOD=0.5 FOR CHANNEL ''",
        quote::string(&source.host),
        source.port,
        quote::string(&source.ca),
    ))
}

pub(crate) fn start_receiver(ordinal: u32, password: &SecretString) -> Statement {
    Statement::secret(format!(
        "START REPLICA IO_THREAD USER={} PASSWORD={} FOR CHANNEL ''",
        quote::string(&accounts::replication_user(ordinal)),
        quote::string(password.expose_secret()),
    ))
}

/// From off to on with `wait_no_replica` the waiting begins at once (mysql-facts), whoever is connected.
pub(crate) fn semi_sync_on(acks: u32) -> Vec<Statement> {
    vec![
        set_acks(acks),
        Statement::plain(format!("SET GLOBAL rpl_semi_sync_source_timeout={FOR_EVER}")),
        Statement::plain("SET GLOBAL rpl_semi_sync_source_wait_no_replica=ON"),
        Statement::plain("SET GLOBAL rpl_semi_sync_source_enabled=ON"),
    ]
}

pub(crate) const SEMI_SYNC_OFF: &str = "SET GLOBAL rpl_semi_sync_source_enabled=OFF";

pub(crate) fn set_acks(acks: u32) -> Statement {
    Statement::plain(format!("SET GLOBAL rpl_semi_sync_source_wait_for_replica_count={acks}"))
}

pub(crate) const ACCOUNT_LOCKS: &str =
    "SELECT User, account_locked FROM mysql.user WHERE User LIKE 'mainstay\\_repl\\_%' AND Host='%'";

/// Outside of the binlog, so it waits for no acknowledgement (measured: 21 ms for two, while commits wait).
pub(crate) fn set_account_locks(locks: &[AccountLock]) -> Vec<Statement> {
    unlogged(
        [(true, "LOCK"), (false, "UNLOCK")]
            .into_iter()
            .filter_map(|(locked, word)| {
                let names = |lock: &&AccountLock| lock.locked == locked;
                let account = |lock: &AccountLock| quote::account(&accounts::replication_user(lock.ordinal), "%");
                let list = locks.iter().filter(names).map(account).collect::<Vec<_>>().join(", ");
                (!list.is_empty()).then(|| Statement::plain(format!("ALTER USER IF EXISTS {list} ACCOUNT {word}")))
            }),
    )
}

/// Statements outside of the binlog.
pub(crate) fn unlogged(statements: impl IntoIterator<Item = Statement>) -> Vec<Statement> {
    let off = Statement::plain("SET SESSION sql_log_bin=0");
    let on = Statement::plain("SET SESSION sql_log_bin=1");
    std::iter::once(off)
        .chain(statements)
        .chain(std::iter::once(on))
        .collect()
}

/// Mainstay's accounts, whatever their state: name, locked, expires, plugin, demand on TLS, the two hashes, attribute, and
/// privileges with their level (of the manager's account see [`OWN_GRANTS`]).
pub(crate) const SYSTEM_ACCOUNTS: &str = "\
SELECT u.User, u.Host, u.account_locked='Y', u.password_expired='Y' OR COALESCE(u.password_lifetime,1)<>0, u.plugin, \
u.ssl_type, u.authentication_string, u.User_attributes->>'$.additional_password', u.User_attributes->>'$.metadata', \
CONCAT_WS(',', IF(u.Repl_slave_priv='Y','REPLICATION SLAVE ON *.*',NULL), \
IF(u.Repl_client_priv='Y','REPLICATION CLIENT ON *.*',NULL), IF(u.Process_priv='Y','PROCESS ON *.*',NULL), \
IF(d.Select_priv='Y','SELECT ON performance_schema.*',NULL), (SELECT GROUP_CONCAT(CONCAT(g.PRIV,' ON *.*')) \
FROM mysql.global_grants g WHERE g.USER=u.User AND g.HOST=u.Host AND g.USER<>'mainstay')) \
FROM mysql.user u LEFT JOIN mysql.db d ON d.User=u.User AND d.Host=u.Host AND d.Db='performance_schema' \
WHERE u.User='mainstay' OR u.User LIKE 'mainstay\\_%'";

/// The account has no grants, or does not exist.
pub(crate) const ER_NONEXISTING_GRANT: u16 = 1141;

pub(crate) fn kill(connection: u64) -> Statement {
    Statement::plain(format!("KILL {connection}"))
}

/// KILL of a session that is gone already.
pub(crate) const ER_NO_SUCH_THREAD: u16 = 1094;

pub(crate) fn sessions_among(connections: &[u64]) -> Statement {
    let list = connections.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    Statement::plain(format!(
        "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_ID IN ({list})"
    ))
}

/// Sessions that are not the manager's own.
pub(crate) fn client_sessions(which: Sessions) -> Statement {
    const DUMPS: &str = "PROCESSLIST_COMMAND IN ('Binlog Dump','Binlog Dump GTID')";
    let clients = format!(
        "PROCESSLIST_USER<>'mainstay' AND PROCESSLIST_USER NOT LIKE 'mainstay\\_%' \
         AND PROCESSLIST_USER NOT IN ('event_scheduler','system user') AND PROCESSLIST_COMMAND<>'Daemon' AND NOT {DUMPS}"
    );
    let which = match which {
        Sessions::Clients => clients,
        Sessions::Remote => format!("{clients} AND CONNECTION_TYPE IN ('TCP/IP','SSL/TLS')"),
        Sessions::ClientsAndReplicas => format!("(({clients}) OR {DUMPS})"),
    };
    Statement::plain(format!(
        "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE TYPE='FOREGROUND' AND PROCESSLIST_ID IS NOT NULL \
         AND PROCESSLIST_ID<>CONNECTION_ID() AND {which}"
    ))
}

/// An empty transaction with a GTID of its own tag: it can be told from the users' transactions, takes no lock, and goes
/// through the binlog and the acknowledgement like any other.
pub(crate) fn mark_tagged(server_uuid: &str, tag: &str, number: u64) -> Vec<Statement> {
    vec![
        Statement::plain(format!(
            "SET SESSION gtid_next={}",
            quote::string(&format!("{server_uuid}:{tag}:{number}"))
        )),
        Statement::plain("BEGIN"),
        Statement::plain("COMMIT"),
        Statement::plain("SET SESSION gtid_next='AUTOMATIC'"),
    ]
}

/// Before 8.3: a statement that changes nothing and is in the binlog nevertheless.
pub(crate) const MARK_UNTAGGED: &str = "DROP TABLE IF EXISTS mysql.mainstay_marker";

pub(crate) const READ_EXECUTED: &str = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid";

pub(crate) fn clone_donor_list(host: &str, port: u16) -> Statement {
    Statement::plain(format!(
        "SET GLOBAL clone_valid_donor_list={}",
        quote::string(&format!("{host}:{port}"))
    ))
}

pub(crate) fn clone_instance(host: &str, port: u16, password: &SecretString) -> Statement {
    Statement::secret(format!(
        "CLONE INSTANCE FROM {}:{port} IDENTIFIED BY {} REQUIRE SSL",
        quote::account(accounts::CLONE, host),
        quote::string(password.expose_secret()),
    ))
}

pub(crate) const CLONE_PROGRESS: &str =
    "SELECT CAST(SUM(ESTIMATE) AS UNSIGNED), CAST(SUM(DATA) AS UNSIGNED) FROM performance_schema.clone_progress";

pub(crate) fn set_event_scheduler(on: bool) -> Statement {
    Statement::plain(format!("SET GLOBAL event_scheduler={}", if on { "ON" } else { "OFF" }))
}

/// Events that are disabled because another server created them. `SLAVESIDE_DISABLED` is the word of 8.0.
pub(crate) const EVENTS_FROM_ELSEWHERE: &str = "SELECT EVENT_SCHEMA, EVENT_NAME, DEFINER FROM information_schema.EVENTS \
WHERE STATUS IN ('REPLICA_SIDE_DISABLED','SLAVESIDE_DISABLED')";

/// The same, of these servers.
pub(crate) fn events_of(server_ids: &[u32]) -> Statement {
    let list = server_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    Statement::plain(format!("{EVENTS_FROM_ELSEWHERE} AND ORIGINATOR IN ({list})"))
}

/// Whoever alters an event becomes its definer, with whose rights it runs, unless the statement says who is.
pub(crate) fn enable_event(schema: &str, name: &str, definer: &str) -> Statement {
    let (user, host) = definer.rsplit_once('@').unwrap_or((definer, "%"));
    Statement::plain(format!(
        "ALTER DEFINER={} EVENT {}.{} ENABLE",
        quote::account(user, host),
        quote::identifier(schema),
        quote::identifier(name)
    ))
}

pub(crate) const DISABLED_EVENTS: &str = "SELECT JSON_ARRAYAGG(JSON_ARRAY(EVENT_SCHEMA, EVENT_NAME)) FROM \
(SELECT EVENT_SCHEMA, EVENT_NAME FROM information_schema.EVENTS WHERE STATUS='DISABLED' \
ORDER BY EVENT_SCHEMA, EVENT_NAME) e";

/// What Mainstay remembers in the data, beside the account of the monitor, so that it is replicated, cloned and backed up
/// with them: whether the first accounts were made, and which events are disabled on purpose.
pub(crate) const READ_NOTES: &str = "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES \
WHERE USER='mainstay_monitor' AND HOST='localhost'";

/// Merges into the notes; through the binlog. IF EXISTS: a replica without the account goes on.
pub(crate) fn note(json: &str) -> Statement {
    Statement::plain(format!(
        "ALTER USER IF EXISTS {} ATTRIBUTE {}",
        quote::account(accounts::MONITOR, "localhost"),
        quote::string(json)
    ))
}

pub(crate) const PARTIAL_REVOKES: &str = "SELECT @@GLOBAL.partial_revokes";

/// The grants of this session's account, one a row.
pub(crate) const OWN_GRANTS: &str = "SHOW GRANTS FOR CURRENT_USER()";

/// The DBA's account gets what the manager has, `own_grants`: everything but SHUTDOWN, which nobody has, because a clean
/// stop acknowledges what no replica has (decision A1). (`GRANT ALL` takes a grantor who has all.)
pub(crate) fn create_root(password: &SecretString, own_grants: &[String]) -> Vec<Statement> {
    let root = quote::account(accounts::ROOT, "%");
    let mut statements = vec![Statement::secret(format!(
        "CREATE USER IF NOT EXISTS {root} IDENTIFIED BY {}",
        quote::string(password.expose_secret())
    ))];
    let own = format!(
        "{}@{}",
        quote::identifier(accounts::MANAGER),
        quote::identifier("localhost")
    );
    statements.extend(
        own_grants
            .iter()
            .map(|grant| Statement::plain(grant.replace(&own, &root))),
    );
    statements
}

pub(crate) fn create_application(application: &FirstApplication, partial_revokes: bool) -> Vec<Statement> {
    let user = quote::account(&application.user, "%");
    vec![
        Statement::plain(format!(
            "CREATE DATABASE IF NOT EXISTS {}",
            quote::identifier(&application.database)
        )),
        Statement::secret(format!(
            "CREATE USER IF NOT EXISTS {user} IDENTIFIED BY {}",
            quote::string(application.password.expose_secret())
        )),
        Statement::plain(format!(
            "GRANT ALL ON {}.* TO {user}",
            quote::granted_database(&application.database, partial_revokes)
        )),
    ]
}

pub(crate) fn set_password(account: &SharedPassword) -> Statement {
    Statement::secret(format!(
        "ALTER USER IF EXISTS {} IDENTIFIED BY {}{}",
        quote::account(&account.user, &account.host),
        quote::string(account.password.expose_secret()),
        if account.retain { " RETAIN CURRENT PASSWORD" } else { "" }
    ))
}

pub(crate) const RELOAD_TLS: &str = "ALTER INSTANCE RELOAD TLS NO ROLLBACK ON ERROR";

/// An error of a replication thread, if there is one.
pub(crate) fn server_message(code: u32, text: String) -> Option<ServerMessage> {
    (code != 0).then_some(ServerMessage { code, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f31_a_statement_with_a_password_is_never_shown() {
        let password = SecretString::from("hunter2".to_owned());
        let shown = format!("{:?}", start_receiver(1, &password));
        assert_eq!(shown, "Statement(..)");
        assert!(clone_instance("h", 1, &password).is_secret());
        assert!(create_root(&password, &[])[0].is_secret());
    }

    #[test]
    fn a1_the_dba_gets_what_the_manager_has() {
        let own = ["GRANT SELECT, RELOAD ON *.* TO `mainstay`@`localhost` WITH GRANT OPTION".to_owned()];
        let statements = create_root(&SecretString::from("x".to_owned()), &own);
        assert_eq!(
            statements[1].text(),
            "GRANT SELECT, RELOAD ON *.* TO 'root'@'%' WITH GRANT OPTION"
        );
    }

    #[test]
    fn locks_are_changed_outside_of_the_binlog() {
        let locks = [
            AccountLock {
                ordinal: 1,
                locked: true,
            },
            AccountLock {
                ordinal: 2,
                locked: false,
            },
        ];
        let texts: Vec<_> = set_account_locks(&locks).iter().map(|s| s.text().to_owned()).collect();
        assert_eq!(
            texts,
            [
                "SET SESSION sql_log_bin=0",
                "ALTER USER IF EXISTS 'mainstay_repl_1'@'%' ACCOUNT LOCK",
                "ALTER USER IF EXISTS 'mainstay_repl_2'@'%' ACCOUNT UNLOCK",
                "SET SESSION sql_log_bin=1",
            ]
        );
    }

    #[test]
    fn state_is_read_flags_first_and_sets_last() {
        let at = |piece: &str| READ_STATE.find(piece).unwrap();
        assert_eq!(READ_STATE.matches("; SELECT").count() + 1, READ_STATE_RESULTS);
        assert!(at("super_read_only") < at("SERVICE_STATE"));
        assert!(at("SERVICE_STATE") < at("RECEIVED_TRANSACTION_SET"));
        assert!(at("RECEIVED_TRANSACTION_SET") < at("gtid_executed"));
    }

    #[test]
    fn what_is_looked_at_is_what_is_set() {
        let set = DURABLE.trim_start_matches("SET ").split(", ");
        let names: Vec<_> = set
            .map(|set| set.trim_start_matches("GLOBAL ").split_once('=').unwrap().0)
            .collect();
        let looked_at: Vec<_> = READ_STATE
            .split("IF(@@GLOBAL.")
            .skip(1)
            .map(|check| check.split_once("<>").unwrap().0)
            .collect();
        assert_eq!(names, looked_at);
        assert!(DURABLE.contains(FOR_EVER) && READ_STATE.contains(FOR_EVER));
    }

    #[test]
    fn a_source_keeps_no_password() {
        let source = ReplicationSource {
            host: "a'b".to_owned(),
            port: 33062,
            ca: "/ca".to_owned(),
        };
        let text = set_source(&source).text().to_owned();
        assert!(text.contains("SOURCE_HOST='a''b'") && text.contains("SOURCE_PASSWORD=''"));
        assert!(text.contains("SOURCE_RETRY_COUNT=86400") && text.contains("SOURCE_HEARTBEAT_PERIOD=0.5"));
        assert!(text.contains("SOURCE_AUTO_POSITION=1"));
        assert!(!change_source(&source).text().contains("AUTO_POSITION"));
    }
}
