//! Fence: stop receiving, become read-only, say what is here.
//!
//! It never waits for a commit (rule 6, decision A1): what cannot be had with SQL within the deadline is had with
//! SIGKILL, for mysqld starts read-only and detached. So it is never refused: while mysqld does not run, it is fenced, and
//! the status stream brings the set when it answers.
//!
//! `super_read_only` is asked for first, and nothing is waited for before it. What follows has a limit as a whole: no
//! statement, look or login of it can hold the answer up for longer than the caller grants.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::observed::Mysqld;
use mainstay_mysql::port::UNREACHABLE_ACKS;
use mainstay_mysql::{AccountLock, ServerState};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Context, Done, Outcome, Refusal, refusal};
use crate::shared::Shared;
use crate::shutdown;

/// Beyond the deadline, for mysqld to come up after it was killed. Less than what the caller grants beyond it.
const AFTERWARDS: Duration = Duration::from_millis(1500);
/// At least this long for each SQL statement, however short the deadline.
const STATEMENT: Duration = Duration::from_millis(100);
/// Beyond the deadline, for what follows on a server that is read-only, and slow.
const REST: Duration = Duration::from_millis(700);
/// How long a server that came up again after it was killed may take to be fenced, too.
const AGAIN: Duration = Duration::from_millis(300);
/// How long sessions of clients may take to be ended: the fence does not depend on it.
const CLIENTS: Duration = Duration::from_secs(2);
/// How much of that the answer waits for; they are ended all the same when this is over.
const CLIENTS_GONE: Duration = Duration::from_millis(100);

pub(super) async fn fence(context: &Context<'_>) -> Outcome {
    let mut killed = false;
    loop {
        if context.server.process().phase != Mysqld::Running && !comes_up(context, killed).await {
            // It will start read-only and detached; the status brings the set when it does.
            return Ok(Done::Applied);
        }
        let limit = (context.deadline + REST).max(Instant::now() + AGAIN);
        let by_sql = timeout_at(limit, fence_by_sql(context)).await;
        match by_sql.unwrap_or_else(|_elapsed| Err(refusal("mysqld does not answer in time"))) {
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

fn limit(context: &Context<'_>) -> Duration {
    context.left().max(STATEMENT)
}

async fn fence_by_sql(context: &Context<'_>) -> Outcome {
    let mysql = context.mysql;
    // The look may see the server as it was before or after.
    let known = context.shared.reading();
    mysql.settle(limit(context)).await?;
    let (before, ()) = tokio::try_join!(look(context), close(context))?;
    let was_writable = !before.super_read_only || known.is_some_and(|known| !known.state.super_read_only);
    let receives = before.receives();
    if receives {
        mysql.stop_receiver(limit(context)).await?;
    }
    if was_writable {
        // Before accounts are unlocked: a client may hold a lock on everything.
        let mut ended = tokio::spawn(end_clients(Arc::clone(context.shared)));
        if timeout(CLIENTS_GONE, &mut ended).await.is_err() {
            context.shared.goes_on(ended);
        }
    }
    let unlocked = unlock_all(context, &before).await?;
    let after = mysql.read_state().await?;
    if !after.super_read_only || after.receives() {
        return Err(refusal("mysqld is writable or receives in spite of everything"));
    }
    apply_rest(context, &after).await;
    Ok(if was_writable || receives || unlocked {
        Done::Applied
    } else {
        Done::Already
    })
}

/// The state of a server on which no commit waits in vain.
async fn look(context: &Context<'_>) -> Result<ServerState, Refusal> {
    let state = context.mysql.read_state().await?;
    if state.commit_cannot_end() {
        return Err(refusal("a commit waits and does not end"));
    }
    Ok(state)
}

async fn close(context: &Context<'_>) -> Result<(), Refusal> {
    let closed = shutdown::close(context.mysql, limit(context)).await;
    closed.ok_or_else(|| refusal("a commit waits and does not end"))
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
    let unlock = mysql.set_account_locks(&locks, limit(context));
    shutdown::let_nobody_hold_up(mysql, limit(context), unlock).await?;
    close(context).await?;
    Ok(true)
}

/// Clients of a demoted primary are sent to the new one by being disconnected (decision A9). Best effort: what is
/// fenced does not depend on it.
async fn end_clients(shared: Arc<Shared>) {
    shutdown::end_clients(shared.mysql.as_ref(), CLIENTS).await;
    if let Err(error) = shared.mysql.set_event_scheduler(false, CLIENTS).await {
        tracing::warn!(%error, "the event scheduler still runs");
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
