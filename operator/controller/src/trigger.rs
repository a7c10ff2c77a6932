//! Which clusters are to be looked at: a set, so that any number of triggers of one cluster is one pass.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use tokio::sync::Notify;

use crate::index::ClusterName;

/// Collects triggers from watches and status streams and gives each cluster once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<BTreeSet<ClusterName>>,
    changed: Notify,
}

impl Triggers {
    /// Asks for a pass of this cluster.
    pub fn poke(&self, cluster: &ClusterName) {
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Heartbeats of many instances come here: no allocation for a cluster that waits already.
        if !waiting.contains(cluster) {
            waiting.insert(cluster.clone());
            drop(waiting);
            self.inner.changed.notify_one();
        }
    }

    /// The next cluster; waits for one.
    pub async fn next(&self) -> ClusterName {
        loop {
            let next = self
                .inner
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_first();
            if let Some(cluster) = next {
                return cluster;
            }
            // notify_one leaves a permit when nobody waits, so a trigger between the look and the wait is not lost.
            self.inner.changed.notified().await;
        }
    }

    /// The triggers as a stream that never ends.
    pub fn stream(&self) -> impl Stream<Item = ClusterName> + Send + use<> {
        futures::stream::unfold(self.clone(), |triggers| async move {
            Some((triggers.next().await, triggers))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new("db", name)
    }

    #[tokio::test]
    async fn many_triggers_of_one_cluster_are_one() {
        let triggers = Triggers::default();
        for _ in 0..100 {
            triggers.poke(&cluster("shop"));
        }
        triggers.poke(&cluster("blog"));
        let mut stream = Box::pin(triggers.stream());
        assert_eq!(stream.next().await, Some(cluster("blog")));
        assert_eq!(stream.next().await, Some(cluster("shop")));
        assert!(futures::poll!(stream.next()).is_pending());
    }

    #[tokio::test]
    async fn a_trigger_that_comes_while_waiting_wakes() {
        let triggers = Triggers::default();
        let mut stream = Box::pin(triggers.stream());
        assert!(futures::poll!(stream.next()).is_pending());
        triggers.poke(&cluster("shop"));
        assert_eq!(stream.next().await, Some(cluster("shop")));
    }
}
