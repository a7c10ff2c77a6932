//! Reads rows.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_core::GtidSet;
use mysql_async::Row;
use mysql_async::prelude::FromValue;

use crate::accounts::{Account, AccountName, CLONE, StoredHash, replication_ordinal};
use crate::error::MysqlError;
use crate::sql;
use crate::state::{Channel, DumpThread, LockHolder, Receiver, ServerState};

const WHAT: &str = "read the state of mysqld";

fn unexpected(reason: impl Into<String>) -> MysqlError {
    MysqlError::Unexpected {
        what: WHAT,
        reason: reason.into(),
    }
}

/// A column that must be there.
pub(crate) fn column<T: FromValue>(row: &Row, index: usize) -> Result<T, MysqlError> {
    match row.get_opt::<T, usize>(index) {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(unexpected(format!("column {index}: {error}"))),
        None => Err(unexpected(format!("column {index} is missing"))),
    }
}

/// Text that may be in any encoding or NULL.
pub(crate) fn text(row: &Row, index: usize) -> Result<String, MysqlError> {
    Ok(column::<Option<Vec<u8>>>(row, index)?
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// A GTID set.
pub(crate) fn gtid_set(row: &Row, index: usize) -> Result<GtidSet, MysqlError> {
    text(row, index)?
        .parse()
        .map_err(|error| unexpected(format!("{error}")))
}

/// Microseconds; negative or absent is unknown.
fn age(row: &Row, index: usize) -> Result<Option<Duration>, MysqlError> {
    let micros: Option<i64> = column(row, index)?;
    Ok(micros
        .and_then(|micros| u64::try_from(micros).ok())
        .map(Duration::from_micros))
}

/// The answer to [`sql::SYSTEM_ACCOUNTS`].
pub(crate) fn accounts(rows: &[Row]) -> Result<BTreeMap<AccountName, Account>, MysqlError> {
    rows.iter().map(read_account).collect()
}

fn read_account(row: &Row) -> Result<(AccountName, Account), MysqlError> {
    let hashes = [text(row, 6)?, text(row, 7)?];
    let account = Account {
        locked: column(row, 2)?,
        expires: column(row, 3)?,
        plugin: text(row, 4)?,
        tls: text(row, 5)?,
        hashes: hashes
            .into_iter()
            .filter(|hash| !hash.is_empty())
            .map(StoredHash)
            .collect(),
        attribute: text(row, 8)?,
        privileges: text(row, 9)?
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    };
    Ok((AccountName::new(&text(row, 0)?, &text(row, 1)?), account))
}

/// The answer to [`sql::READ_STATE`].
pub(crate) fn state(results: &[Vec<Row>]) -> Result<ServerState, MysqlError> {
    let [flags, channel, applier_errors, status, dumps, received, sets] = results else {
        return Err(unexpected(format!(
            "{} result sets instead of {}",
            results.len(),
            sql::READ_STATE_RESULTS
        )));
    };
    let mut state = ServerState::default();
    read_flags(flags.first().ok_or_else(|| unexpected("no variables"))?, &mut state)?;
    state.channel = channel
        .first()
        .map(|row| read_channel(row, applier_errors, received))
        .transpose()?;
    for row in status {
        read_status(&text(row, 0)?, &text(row, 1)?, &mut state);
    }
    for row in dumps {
        let thread = read_dump_thread(row)?;
        if thread.user == CLONE {
            state.clones += 1;
        } else {
            state.dump_threads.push(thread);
        }
    }
    let sets = sets.first().ok_or_else(|| unexpected("no GTID sets"))?;
    state.purged = gtid_set(sets, 0)?;
    state.executed = gtid_set(sets, 1)?;
    Ok(state)
}

fn read_flags(row: &Row, state: &mut ServerState) -> Result<(), MysqlError> {
    state.read_only = column(row, 1)?;
    // While `SET GLOBAL super_read_only=ON` waits for a commit, the variable says ON already; `read_only` follows at the end.
    state.super_read_only = column::<bool>(row, 0)? && state.read_only;
    state.server_uuid = text(row, 2)?;
    state.server_id = column(row, 3)?;
    state.event_scheduler = text(row, 4)?.eq_ignore_ascii_case("ON");
    state.max_connections = column(row, 5)?;
    state.semi_sync.enabled = column(row, 6)?;
    state.semi_sync.wait_for = column(row, 7)?;
    state.offline = column(row, 8)?;
    state.committing = column(row, 9)?;
    state.locked_out = column(row, 10)?;
    state.not_durable = text(row, 11)?;
    Ok(())
}

fn read_channel(row: &Row, applier_errors: &[Row], received: &[Row]) -> Result<Channel, MysqlError> {
    let receiver_state = match text(row, 2)?.as_str() {
        "ON" => Receiver::On,
        "CONNECTING" => Receiver::Connecting,
        "OFF" => Receiver::Off,
        other => return Err(unexpected(format!("the receiver's state is {other:?}"))),
    };
    let applier_error = match applier_errors.first() {
        Some(error) => sql::server_message(column(error, 0)?, text(error, 1)?),
        None => None,
    };
    Ok(Channel {
        host: text(row, 0)?,
        port: column(row, 1)?,
        receiver: receiver_state,
        applier_running: text(row, 3)? == "ON",
        received: received
            .first()
            .map(|row| gtid_set(row, 0))
            .transpose()?
            .unwrap_or_default(),
        last_heard: age(row, 6)?,
        last_noted: age(row, 6)?,
        bytes_received: text(row, 9)?.parse().ok(),
        writing: text(row, 11)? == "1",
        applying_for: age(row, 7)?,
        receiving_for: age(row, 10)?,
        auto_position: text(row, 8)? == "1",
        receiver_error: sql::server_message(column(row, 4)?, text(row, 5)?),
        applier_error,
        failing_for: None,
    })
}

fn read_dump_thread(row: &Row) -> Result<DumpThread, MysqlError> {
    let user = text(row, 1)?;
    Ok(DumpThread {
        connection: column(row, 0)?,
        ordinal: replication_ordinal(&user),
        user,
        semi_sync: column::<u64>(row, 2)? > 0,
    })
}

/// The answer to [`sql::GLOBAL_LOCK_HOLDER`].
pub(crate) fn lock_holder(row: &Row) -> Result<LockHolder, MysqlError> {
    Ok(LockHolder {
        connection: column(row, 0)?,
        user: text(row, 1)?,
        host: text(row, 2)?,
    })
}

/// A status variable that is missing or no number leaves its field at 0.
fn read_status(name: &str, value: &str, state: &mut ServerState) {
    let number = || value.parse::<u64>().unwrap_or_default();
    let small = || u32::try_from(number()).unwrap_or(u32::MAX);
    match name {
        "Rpl_semi_sync_source_status" => state.semi_sync.on = value == "ON",
        "Rpl_semi_sync_source_clients" => state.semi_sync.clients = small(),
        "Rpl_semi_sync_source_wait_sessions" => state.semi_sync.waiters = small(),
        "Rpl_semi_sync_source_yes_tx" => state.counters.acknowledged = number(),
        "Threads_connected" => state.counters.threads_connected = small(),
        "Threads_running" => state.counters.threads_running = small(),
        "Queries" => state.counters.queries = number(),
        "Slow_queries" => state.counters.slow_queries = number(),
        "Uptime" => state.counters.uptime = number(),
        "Aborted_connects" => state.counters.aborted_connects = number(),
        "Bytes_received" => state.counters.bytes_received = number(),
        "Bytes_sent" => state.counters.bytes_sent = number(),
        _ => {}
    }
}
