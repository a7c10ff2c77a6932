//! Allow: who may acknowledge, and k, on an open primary (rule 1).

use mainstay_mysql::port::UNREACHABLE_ACKS;
use mainstay_mysql::{AccountLock, ServerState};

use super::{Context, Done, Listed, Outcome, Refusal, accounts, refusal};

pub(super) async fn allow(context: &Context<'_>, list: &Listed) -> Outcome {
    let mysql = context.mysql;
    let state = mysql.read_state().await?;
    if state.super_read_only {
        return Err(refusal("it is not open"));
    }
    let mut changed = enforce_list(context, list, false).await?;
    if list.acks == 0 {
        if state.semi_sync.enabled {
            mysql.semi_sync_off(context.left()).await?;
            changed = true;
        }
    } else if !state.semi_sync.enabled {
        // Nobody gets an acknowledgement before the number is the right one.
        mysql.semi_sync_on(UNREACHABLE_ACKS, context.left()).await?;
        mysql.set_acks(list.acks, context.left()).await?;
        changed = true;
    } else if state.semi_sync.wait_for != list.acks {
        mysql.set_acks(list.acks, context.left()).await?;
        changed = true;
    }
    Ok(if changed { Done::Applied } else { Done::Already })
}

/// Locks out who is not listed and ends what they have open; whether anything had to be done. `closed`: the server is in
/// `super_read_only`, which has to be left for changing accounts.
pub(super) async fn enforce_list(context: &Context<'_>, list: &Listed, closed: bool) -> Result<bool, Refusal> {
    let mysql = context.mysql;
    let wanted = |lock: &AccountLock| AccountLock {
        locked: !list.ordinals.contains(&lock.ordinal),
        ..*lock
    };
    let mut locks = mysql.account_locks(context.left()).await?;
    let missing = missing(list, &locks);
    if !missing.is_empty() {
        if closed {
            mysql.leave_super_read_only(context.left()).await?;
        }
        accounts::make_replication_accounts(context, &missing).await?;
        locks = mysql.account_locks(context.left()).await?;
    }
    let changes: Vec<AccountLock> = locks.iter().filter(|lock| wanted(lock) != **lock).map(wanted).collect();
    if !changes.is_empty() {
        if closed {
            mysql.leave_super_read_only(context.left()).await?;
        }
        mysql.set_account_locks(&changes, context.left()).await?;
    }
    // Read after the locks: nobody unlisted can come any more.
    let state = mysql.read_state().await?;
    let connections = unlisted(&state, list);
    if !connections.is_empty() {
        tracing::info!(sessions = connections.len(), "ending sessions of unlisted replicas");
        mysql.end_sessions(&connections, context.left()).await?;
    }
    Ok(!changes.is_empty() || !connections.is_empty())
}

/// Those of the list that have no account to log in with.
fn missing(list: &Listed, locks: &[AccountLock]) -> Vec<u32> {
    let has_none = |ordinal: &u32| locks.iter().all(|lock| lock.ordinal != *ordinal);
    list.ordinals.iter().copied().filter(has_none).collect()
}

/// Sessions that might acknowledge without being listed: other instances, and foreign clients with semi-sync on (C14).
/// A foreign client without it (change data capture) only reads.
fn unlisted(state: &ServerState, list: &Listed) -> Vec<u64> {
    let unlisted =
        |ordinal: Option<u32>, semi_sync: bool| ordinal.map_or(semi_sync, |ordinal| !list.ordinals.contains(&ordinal));
    let threads = state
        .dump_threads
        .iter()
        .filter(|thread| unlisted(thread.ordinal, thread.semi_sync));
    threads.map(|thread| thread.connection).collect()
}
