//! Purge: delete the binlogs whose transactions are all stored, and no other one.
//!
//! The server writes before it deletes, so on a volume on which nothing is free it would wait for what it is about to make
//! (docs/instance.md, "Answers of a real server"). The reserve is there for that, and is made again from what was deleted.

use std::path::Path;
use std::time::Duration;

use mainstay_core::GtidSet;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Context, Done, Outcome, Refusal, refusal};
use crate::archive::{SourceError, purge};
use crate::disk;

/// What a purge needs: the list of the binlogs, twice, and what the file system writes of itself.
const NEEDED: u64 = 1 << 20;
/// How long the reserve may take to be made again before nobody waits for it.
const RESERVE: Duration = Duration::from_secs(1);

pub(super) async fn purge(context: &Context<'_>, stored: &GtidSet) -> Outcome {
    let purged = context.mysql.read_state().await?.purged;
    let stored = stored.clone();
    let found = on_volume(context, move |data| {
        let bound = purge::first_to_stay(data, &purged, &stored)?;
        Ok((bound, purge::oldest(data)?))
    });
    let (bound, oldest) = found.await?;
    let Some(bound) = bound.filter(|bound| oldest.as_ref() != Some(bound)) else {
        return Ok(Done::Already);
    };
    make_room(context).await?;
    let done = context.mysql.purge_binlogs(&bound, context.left()).await;
    make_reserve_again(context).await;
    done?;
    let left = on_volume(context, purge::oldest).await?;
    if left == oldest {
        return Err(refusal(
            "the oldest binlog is still being read: a replica that is far behind, or a backup, needs it",
        ));
    }
    tracing::info!(from = oldest, to = bound, "binlogs were deleted");
    Ok(Done::Applied)
}

/// A question about the binlogs, which takes as long as the disk does.
async fn on_volume<T: Send + 'static>(
    context: &Context<'_>,
    question: impl FnOnce(&Path) -> Result<T, SourceError> + Send + 'static,
) -> Result<T, Refusal> {
    let data = context.shared.config.paths.data();
    let answer = timeout(context.left(), spawn_blocking(move || question(&data))).await;
    answer
        .map_err(|_elapsed| refusal("its disk does not answer"))?
        .map_err(|error| Refusal(error.to_string()))?
        .map_err(|error| Refusal(error.to_string()))
}

async fn make_room(context: &Context<'_>) -> Result<(), Refusal> {
    let paths = context.shared.config.paths.clone();
    let released = spawn_blocking(move || {
        if disk::release_reserve(&paths.volume, &paths.reserve())? {
            tracing::warn!("the disk is full: the reserve was given up, to delete binlogs");
        }
        disk::space(&paths.volume)
    });
    let space = released.await.map_err(|error| Refusal(error.to_string()))?;
    let space = space.map_err(|error| Refusal(format!("failed to make room for a purge: {error}")))?;
    if space.free < NEEDED {
        return Err(refusal(
            "nothing is free on the data volume, and the reserve was given up before: a purge would wait for room; make \
             the volume larger",
        ));
    }
    Ok(())
}

async fn make_reserve_again(context: &Context<'_>) {
    let paths = context.shared.config.paths.clone();
    let made = spawn_blocking(move || disk::keep_reserve(&paths.volume, &paths.reserve()));
    if let Ok(Ok(Err(error))) = timeout(RESERVE, made).await {
        tracing::warn!(%error, "the reserve is missing");
    }
}
