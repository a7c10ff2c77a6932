//! How far running backups are: each one's pod serves it on a page, which is read while the Job runs.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::backup::plan::Progress;
use mainstay_core::layout;
use tokio_util::task::AbortOnDropHandle;

use crate::index::ClusterName;
use crate::platform::Clock;
use crate::trigger::Triggers;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);

/// Reads the pages of backups' pods.
#[async_trait]
pub trait Pages: Send + Sync + 'static {
    /// How far the backup in the pod of this address is.
    ///
    /// # Errors
    /// Why it cannot be read.
    async fn progress(&self, pod: IpAddr) -> Result<Progress, String>;
}

/// Pages over HTTP.
#[derive(Clone, Copy, Debug)]
pub struct HttpPages;

#[async_trait]
impl Pages for HttpPages {
    async fn progress(&self, pod: IpAddr) -> Result<Progress, String> {
        mainstay_instance::backup::read_page(SocketAddr::new(pod, layout::PORT_HTTP)).await
    }
}

/// What is known of the progress in a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Heard {
    /// What it said last.
    pub(crate) progress: Option<Progress>,
    /// When that was something else; `None` when the page cannot be read: then nothing is known.
    pub(crate) moved_at: Option<Timestamp>,
}

/// The pods whose pages are read. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Followers {
    inner: Arc<Inner>,
}

struct Inner {
    pages: Arc<dyn Pages>,
    clock: Arc<dyn Clock>,
    triggers: Triggers,
    /// By cluster, then by uid of the pod.
    followed: Mutex<HashMap<ClusterName, BTreeMap<String, Followed>>>,
}

struct Followed {
    heard: Arc<Mutex<Heard>>,
    _task: AbortOnDropHandle<()>,
}

impl Followers {
    pub(crate) fn new(pages: Arc<dyn Pages>, clock: Arc<dyn Clock>, triggers: Triggers) -> Self {
        Self {
            inner: Arc::new(Inner {
                pages,
                clock,
                triggers,
                followed: Mutex::default(),
            }),
        }
    }

    /// These are the pods of a cluster that run now: pages of others are not read any more. What is known of each.
    pub(crate) fn of(&self, cluster: &ClusterName, pods: &BTreeMap<String, IpAddr>) -> BTreeMap<String, Heard> {
        let mut all = self.lock();
        if pods.is_empty() {
            all.remove(cluster);
            return BTreeMap::new();
        }
        let followed = all.entry(cluster.clone()).or_default();
        followed.retain(|uid, _| pods.contains_key(uid));
        let known = pods.iter().map(|(uid, ip)| {
            let one = followed
                .entry(uid.clone())
                .or_insert_with(|| self.follow(cluster.clone(), *ip));
            (uid.clone(), *one.heard.lock().unwrap_or_else(PoisonError::into_inner))
        });
        known.collect()
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// This process does not lead any more.
    pub(crate) fn end(&self) {
        self.lock().clear();
    }

    fn follow(&self, cluster: ClusterName, ip: IpAddr) -> Followed {
        let inner = Arc::clone(&self.inner);
        let heard = Arc::new(Mutex::new(Heard {
            progress: None,
            moved_at: None,
        }));
        let told = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            loop {
                let answer = tokio::time::timeout(ANSWER, inner.pages.progress(ip)).await;
                let progress = match answer {
                    Ok(Ok(progress)) => Some(progress),
                    Ok(Err(reason)) => {
                        tracing::debug!(%cluster, %ip, reason, "the page of a backup cannot be read");
                        None
                    }
                    Err(_) => None,
                };
                if note(&told, progress, inner.clock.now()) {
                    inner.triggers.poke(&cluster);
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Followed {
            heard,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ClusterName, BTreeMap<String, Followed>>> {
        self.inner.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what was read; whether that is news.
fn note(heard: &Mutex<Heard>, progress: Option<Progress>, now: Timestamp) -> bool {
    let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(progress) = progress else {
        // Not known is not stalled.
        heard.moved_at = None;
        return false;
    };
    let place = |progress: &Progress| (progress.step, progress.bytes);
    let moved = heard.progress.as_ref().map(place) != Some(place(&progress));
    if moved || heard.moved_at.is_none() {
        heard.moved_at = Some(now);
    }
    heard.progress = Some(progress);
    moved
}

#[cfg(test)]
mod tests {
    use mainstay_api::backup::BackupStep;

    use super::*;

    fn progress(bytes: u64) -> Progress {
        Progress {
            step: BackupStep::Copy,
            bytes,
            total: None,
            rate: None,
            rows: None,
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_stalled() {
        let heard = Mutex::new(Heard {
            progress: None,
            moved_at: None,
        });
        let at = |minutes: i64| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_mins(minutes);
        let look = |progress, minutes, news, moved: Option<i64>| {
            assert_eq!(note(&heard, progress, at(minutes)), news, "{minutes}");
            assert_eq!(heard.lock().unwrap().moved_at, moved.map(at), "{minutes}");
        };
        look(None, 0, false, None);
        look(Some(progress(1)), 1, true, Some(1));
        look(Some(progress(1)), 9, false, Some(1));
        look(Some(progress(2)), 10, true, Some(10));
        look(None, 11, false, None);
        // It could be read again: since then it is known not to move.
        look(Some(progress(2)), 12, false, Some(12));
        look(Some(progress(2)), 30, false, Some(12));
    }
}
