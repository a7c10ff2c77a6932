//! What every pass shares.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backups::{Followers, Shelves};
use crate::events::Events;
use crate::memory::Memories;
use crate::metrics::Metrics;
use crate::operator_ca::Identity;
use crate::platform::Platform;
use crate::pool::Pool;
use crate::requests::Requests;
use crate::stores::Stores;
use crate::trigger::Triggers;
use crate::user_secrets::UserSecrets;
use crate::watch::World;

/// What every pass shares. Lives as long as the process.
pub(crate) struct Context {
    pub(crate) requests: Requests,
    pub(crate) world: World,
    pub(crate) user_secrets: UserSecrets,
    pub(crate) stores: Arc<dyn Stores>,
    pub(crate) shelves: Shelves,
    pub(crate) followers: Followers,
    pub(crate) pool: Pool,
    pub(crate) identity: Identity,
    pub(crate) platform: Platform,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    pub(crate) memories: Arc<Memories>,
    pub(crate) triggers: Triggers,
    /// Image of the init container.
    pub(crate) operator_image: String,
    pub(crate) leadership: Leadership,
}

/// Work that outlives a pass but not the leadership: commands that wait for their answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leadership {
    current: Arc<std::sync::Mutex<CancellationToken>>,
    tasks: TaskTracker,
}

impl Leadership {
    /// The lease is ours.
    pub(crate) fn begin(&self) {
        *self.lock() = CancellationToken::new();
    }

    /// The lease is not ours any more: nothing that was begun goes on.
    pub(crate) fn end(&self) {
        self.lock().cancel();
    }

    /// Runs something until it ends or the leadership does.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.lock().clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = work => {}
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CancellationToken> {
        self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
