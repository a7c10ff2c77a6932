//! Open: become the primary and accept writes (rule 5).
//!
//! The order keeps an unlisted replica from acknowledging anything: semi-sync waits for more acknowledgements than there
//! can be until the unlisted are locked out and gone. k listed replicas are connected before writes are accepted, so the
//! first commit does not wait for them.

use std::time::Duration;

use mainstay_core::GtidSet;
use mainstay_core::action::Application;
use mainstay_mysql::ServerState;
use mainstay_mysql::port::UNREACHABLE_ACKS;
use tokio::time::sleep;

use super::allow::{self, enforce_list};
use super::{Context, Done, Listed, Outcome, Refusal, refusal};
use crate::shutdown;

/// Between two looks at who is connected.
const POLL: Duration = Duration::from_millis(10);
/// How long closing again may take, when the replicas did not come, before mysqld is killed.
const CLOSE: Duration = Duration::from_millis(500);

pub(super) async fn open(
    context: &Context<'_>,
    list: &Listed,
    baseline: &GtidSet,
    application: Option<&Application>,
) -> Outcome {
    let state = context.mysql.read_state().await?;
    let missing = baseline.subtract(&state.executed);
    if !missing.is_empty() {
        return Err(Refusal(format!("it lacks {missing} of the baseline")));
    }
    let done = if state.super_read_only {
        open_closed(context, list, &state).await?;
        Done::Applied
    } else {
        allow::allow(context, list).await?
    };
    context.duties.start(application.cloned());
    Ok(done)
}

async fn open_closed(context: &Context<'_>, list: &Listed, state: &ServerState) -> Result<(), Refusal> {
    if state.receives() {
        return Err(refusal("it still receives: it must be fenced first"));
    }
    if !state.fully_applied() {
        return Err(refusal("received transactions are not applied yet"));
    }
    let opened = open_or_fail(context, list, state).await;
    if opened.is_err() && shutdown::make_read_only(context.mysql, CLOSE).await.is_none() {
        context
            .server
            .kill("it was killed, for it could not be closed again after it was not opened")
            .await;
    }
    opened
}

async fn open_or_fail(context: &Context<'_>, list: &Listed, state: &ServerState) -> Result<(), Refusal> {
    let mysql = context.mysql;
    if list.acks > 0 {
        mysql.semi_sync_on(UNREACHABLE_ACKS, context.left()).await?;
    }
    enforce_list(context, list, state.super_read_only).await?;
    if list.acks > 0 {
        mysql.set_acks(list.acks, context.left()).await?;
        wait_for_members(context, list).await?;
    } else if state.semi_sync.enabled {
        mysql.semi_sync_off(context.left()).await?;
    }
    mysql.open_writes(context.left()).await?;
    Ok(())
}

/// Waits until k of the listed are connected as semi-synchronous clients.
async fn wait_for_members(context: &Context<'_>, list: &Listed) -> Result<(), Refusal> {
    loop {
        let state = context.mysql.read_state().await?;
        let connected = listed_clients(&state, list);
        if connected >= list.acks && state.semi_sync.clients >= list.acks {
            return Ok(());
        }
        if context.left() <= POLL {
            return Err(Refusal(format!(
                "{connected} of the members are connected, and a commit needs the acknowledgement of {}",
                list.acks
            )));
        }
        sleep(POLL).await;
    }
}

fn listed_clients(state: &ServerState, list: &Listed) -> u32 {
    let connected: std::collections::BTreeSet<u32> = state
        .dump_threads
        .iter()
        .filter(|thread| thread.semi_sync)
        .filter_map(|thread| thread.ordinal)
        .filter(|ordinal| list.ordinals.contains(ordinal))
        .collect();
    u32::try_from(connected.len()).unwrap_or(u32::MAX)
}
