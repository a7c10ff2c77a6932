//! A history that was reset (`RESET BINARY LOGS AND GTIDS`), or a volume that is an older copy of itself.
//!
//! Everything that others conclude of an instance rests on its GTID set: what was executed once is there. Where that ends,
//! the instance gives its identity up by itself, before anybody compares by the set that is left: another incarnation, which
//! is nobody's member, a report that says why, and a server that is started again, read-only and detached.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::server::Server;
use crate::shared::{ListEnded, Shared};

/// Between two looks at how much of the history is remembered.
const LOOK: Duration = Duration::from_secs(10);
/// How old the remembered history may be; each time costs a write of the state file.
const AGE: Duration = Duration::from_mins(10);
/// What is said until the server answers again.
const WHY: &str = "its binlogs and GTIDs were reset: it begins another life";

/// Until the end of the process.
pub(crate) async fn give_up_lost_history(shared: Arc<Shared>, server: Arc<dyn Server>) {
    let mut lost = shared.watch_history();
    let mut remembered = Instant::now();
    loop {
        match timeout(LOOK, lost.changed()).await {
            Ok(Ok(())) => {
                let incarnation = lost.borrow_and_update().clone();
                if let Some(incarnation) = incarnation {
                    give_up(&shared, server.as_ref(), incarnation).await;
                }
            }
            Ok(Err(_ended)) => return,
            Err(_elapsed) => remember(&shared, &mut remembered).await,
        }
    }
}

/// The state file first: whoever dies in between comes back in the other life, or compares again.
async fn give_up(shared: &Arc<Shared>, server: &dyn Server, incarnation: String) {
    let write = shared.write_state(move |state| {
        let same = state.incarnation == incarnation;
        if same {
            state.lose_history();
        }
        same
    });
    match write.await {
        Ok(false) => return,
        Ok(true) => shared.command_ended(ListEnded::InForce),
        // It compares again after the restart.
        Err(error) => tracing::error!(%error, "failed to give the identity of the data directory up"),
    }
    server.kill(WHY).await;
}

/// For a manager that is not there when it happens: a part of the history is enough to see that it is gone.
async fn remember(shared: &Arc<Shared>, remembered: &mut Instant) {
    let Some(reading) = shared.reading() else { return };
    let (state, executed) = (shared.state(), reading.state.executed.clone());
    let first = state.executed.is_empty() && !executed.is_empty();
    let reset = !executed.contains(&state.executed);
    let due = remembered.elapsed() >= AGE && state.executed != executed;
    if !first && !reset && !due {
        return;
    }
    let incarnation = state.incarnation;
    let write = shared.write_state(move |state| {
        if state.incarnation == incarnation {
            state.note_executed(&executed);
        }
    });
    match write.await {
        Ok(()) => *remembered = Instant::now(),
        Err(error) => tracing::warn!(%error, "failed to remember what was executed"),
    }
}
