//! Fence: stop receiving, become read-only, say what is here.
//!
//! It never waits for a commit (rule 6, decision A1): what cannot be had with SQL within the deadline is had with
//! SIGKILL, for mysqld starts read-only and detached. So it is never refused: while mysqld does not run, it is fenced, and
//! the status stream brings the set when it answers.

use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_mysql::port::UNREACHABLE_ACKS;
use mainstay_mysql::{AccountLock, ServerState, Sessions};
use tokio::time::{Instant, timeout};

use super::{Context, Done, Outcome, Refusal, refusal};
use crate::shutdown;

/// Beyond the deadline, for mysqld to come up after it was killed. Less than what the caller grants beyond it.
const AFTERWARDS: Duration = Duration::from_millis(1500);
/// At least this long for each SQL statement, however short the deadline.
const STATEMENT: Duration = Duration::from_millis(100);
/// Beyond the deadline, for a look at a server that is slow but not frozen.
const LOOK: Duration = Duration::from_millis(700);
/// How long sessions of clients may take to be ended: the fence does not depend on it.
const CLIENTS: Duration = Duration::from_millis(500);

pub(super) async fn fence(context: &Context<'_>) -> Outcome {
    let mut killed = false;
    loop {
        if context.server.process().phase != Mysqld::Running && !comes_up(context, killed).await {
            // It will start read-only and detached; the status brings the set when it does.
            return Ok(Done::Applied);
        }
        match fence_by_sql(context).await {
            Ok(done) => return Ok(if killed { Done::Applied } else { done }),
            Err(Refusal(reason)) => {
                tracing::warn!(reason, "mysqld is killed: it cannot be fenced otherwise");
                kill(context, &reason).await?;
                if killed {
                    return Ok(Done::Applied);
                }
                killed = true;
            }
        }
    }
}

/// A process that waits for a broken disk does not end, however often it is killed. It does nothing any more, but its end is
/// what a fence promises.
async fn kill(context: &Context<'_>, reason: &str) -> Result<(), Refusal> {
    let why = format!("it was killed, for it could not be fenced otherwise: {reason}");
    timeout(context.left() + AFTERWARDS, context.server.kill(&why))
        .await
        .map_err(|_elapsed| refusal("mysqld was killed and does not end: its disk does not answer"))
}

/// Whether mysqld answers soon, so that the reply can bring the set. Nobody waits for one that was down before.
async fn comes_up(context: &Context<'_>, killed: bool) -> bool {
    let until = context.deadline + AFTERWARDS;
    killed
        && context
            .server
            .running(until.saturating_duration_since(Instant::now()))
            .await
            .is_ok()
}

/// A look at the server that does not take for ever when mysqld is frozen.
async fn look(context: &Context<'_>) -> Result<ServerState, Refusal> {
    match timeout(context.left() + LOOK, context.mysql.read_state()).await {
        Ok(state) => Ok(state?),
        Err(_elapsed) => Err(refusal("mysqld does not answer")),
    }
}

fn limit(context: &Context<'_>) -> Duration {
    context.left().max(STATEMENT)
}

async fn fence_by_sql(context: &Context<'_>) -> Outcome {
    let mysql = context.mysql;
    mysql.settle(limit(context)).await?;
    let before = look(context).await?;
    let was_writable = !before.super_read_only;
    if shutdown::make_read_only(mysql, limit(context)).await.is_none() {
        return Err(refusal("a commit waits and does not end"));
    }
    let receives = before.receives();
    if receives {
        mysql.stop_receiver(limit(context)).await?;
    }
    let unlocked = unlock_all(context, &before).await?;
    let after = mysql.read_state().await?;
    if !after.super_read_only || after.receives() {
        return Err(refusal("mysqld is writable or receives in spite of everything"));
    }
    if was_writable {
        end_clients(context).await;
    }
    apply_rest(context, &after).await;
    Ok(if was_writable || receives || unlocked {
        Done::Applied
    } else {
        Done::Already
    })
}

/// Whoever wins may have to be followed by anybody, so every account may log in again. Accounts cannot be changed under
/// `super_read_only`. While it is left nobody can get an acknowledgement; what a privileged client writes then is in the
/// set that is read after it.
async fn unlock_all(context: &Context<'_>, before: &ServerState) -> Result<bool, Refusal> {
    let mysql = context.mysql;
    if before.semi_sync.enabled && before.semi_sync.wait_for != UNREACHABLE_ACKS {
        mysql.set_acks(UNREACHABLE_ACKS, limit(context)).await?;
    }
    let locked = |lock: &AccountLock| lock.locked;
    let open = |lock: AccountLock| AccountLock { locked: false, ..lock };
    let locks: Vec<AccountLock> = mysql
        .account_locks(limit(context))
        .await?
        .into_iter()
        .filter(locked)
        .map(open)
        .collect();
    if locks.is_empty() {
        return Ok(false);
    }
    mysql.leave_super_read_only(limit(context)).await?;
    mysql.set_account_locks(&locks, limit(context)).await?;
    if shutdown::make_read_only(mysql, limit(context)).await.is_none() {
        return Err(refusal("a commit waits and does not end"));
    }
    Ok(true)
}

/// Clients of a demoted primary are sent to the new one by being disconnected (decision A9). Best effort: what is
/// fenced does not depend on it.
async fn end_clients(context: &Context<'_>) {
    if let Err(error) = context.mysql.set_event_scheduler(false, CLIENTS).await {
        tracing::warn!(%error, "the event scheduler still runs");
    }
    match context.mysql.end_client_sessions(Sessions::Clients, CLIENTS).await {
        Ok(0) => {}
        Ok(sessions) => tracing::info!(sessions, "ended the clients' sessions"),
        Err(error) => tracing::warn!(%error, "clients may still be connected"),
    }
}

/// What was received is applied, fenced or not: the winner has to (rule 5). An applier that does not start is seen in the
/// status, and does not undo the fence.
async fn apply_rest(context: &Context<'_>, state: &ServerState) {
    let stopped = state.channel.as_ref().is_some_and(|channel| !channel.applier_running);
    if stopped
        && !state.fully_applied()
        && let Err(error) = context.mysql.start_applier(limit(context)).await
    {
        tracing::warn!(%error, "the relay log is not being applied");
    }
}
