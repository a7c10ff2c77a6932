//! Restart: end mysqld by the shutdown rule and start it again, read-only.

use mainstay_core::observed::Mysqld;

use super::{Context, Done, Outcome};
use crate::shutdown;

pub(super) async fn restart(context: &Context<'_>) -> Outcome {
    // One that does not serve yet begins read-only anyway, and its recovery is not begun anew.
    if context.server.process().phase != Mysqld::Running {
        return Ok(Done::Already);
    }
    if let Some(proof) = shutdown::make_read_only(context.mysql, context.left()).await {
        shutdown::end_sessions(context.mysql).await;
        context.server.stop(proof).await;
    } else {
        let why = "it was killed, for it was to be restarted and a commit waits";
        context.server.kill(why).await;
    }
    Ok(Done::Applied)
}
