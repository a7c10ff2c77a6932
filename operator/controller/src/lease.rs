//! The leader lease: at most one operator works at a time, and another waits warm.
//!
//! It is a convenience and not a safety device: a process that was suspended may believe that it leads. What makes a
//! failover safe is that every command carries an epoch and every write of the rules' memory is a compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use crate::class::is_conflict;
use crate::platform::Clock;
use crate::requests::Requests;
use crate::settings::LeaseTimings;

/// Name of the Lease.
const NAME: &str = "mainstay-operator";

/// The lease as one process sees it.
pub(crate) struct Lease {
    requests: Requests,
    namespace: String,
    identity: String,
    timings: LeaseTimings,
    clock: Arc<dyn Clock>,
    /// What was seen last and since when it has not changed, on our own clock: nobody else's clock is trusted.
    seen: Option<(Object, Instant)>,
}

/// What one try to get or renew the lease came to.
#[derive(Debug, PartialEq, Eq)]
enum Try {
    Held,
    /// Somebody else holds it.
    Foreign,
}

impl Lease {
    pub(crate) fn new(
        requests: Requests,
        namespace: String,
        identity: String,
        timings: LeaseTimings,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            requests,
            namespace,
            identity,
            timings,
            clock,
            seen: None,
        }
    }

    /// Waits until the lease is ours.
    pub(crate) async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(Try::Held) => return,
                Ok(Try::Foreign) => {}
                Err(error) => tracing::warn!(%error, "failed to ask for the leader lease"),
            }
            tokio::time::sleep(self.timings.period).await;
        }
    }

    /// Renews the lease; returns why when it is not ours any more.
    pub(crate) async fn hold(&mut self) -> String {
        let mut renewed = Instant::now();
        loop {
            let deadline = renewed + self.timings.renew_deadline;
            tokio::time::sleep_until(deadline.min(Instant::now() + self.timings.period)).await;
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Ok(Try::Held)) => renewed = Instant::now(),
                Ok(Ok(Try::Foreign)) => return "another process holds the leader lease".to_owned(),
                Ok(Err(error)) => tracing::warn!(%error, "failed to renew the leader lease"),
                Err(_) => return format!("the leader lease was not renewed for {:?}", self.timings.renew_deadline),
            }
        }
    }

    /// Gives the lease up, so that another need not wait for its end.
    pub(crate) async fn release(&mut self) {
        let Some((object, _)) = self.seen.take() else { return };
        if !self.is_ours(&object) {
            return;
        }
        let mut released = object;
        if let Some(spec) = &mut released.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.clock.now()));
        }
        let leases = self.requests.typed::<Object>(&self.namespace);
        let patience = Duration::from_secs(2);
        match tokio::time::timeout(patience, leases.replace(NAME, &released)).await {
            Ok(Ok(_)) => tracing::info!("gave the leader lease up"),
            Ok(Err(error)) => tracing::warn!(%error, "failed to give the leader lease up"),
            Err(_) => tracing::warn!("failed to give the leader lease up in {patience:?}"),
        }
    }

    fn is_ours(&self, object: &Object) -> bool {
        object.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(self.identity.as_str())
    }

    async fn attempt(&mut self) -> Result<Try, kube::Error> {
        let requests = self.requests.clone();
        let leases = requests.typed::<Object>(&self.namespace);
        // The holder renews what it wrote last; a conflict says that somebody else wrote, and makes it look.
        let known = self
            .seen
            .as_ref()
            .map(|(object, _)| object)
            .filter(|object| self.is_ours(object))
            .cloned();
        let current = match known {
            Some(object) => Some(object),
            None => leases.get(NAME).await?,
        };
        if let Some(object) = &current
            && !self.may_take(object)
        {
            return Ok(Try::Foreign);
        }
        let wanted = self.claim(current.as_ref());
        let written = match current {
            Some(_) => leases.replace(NAME, &wanted).await,
            None => leases.create(&wanted).await,
        };
        match written {
            Ok(object) => {
                self.seen = Some((object, Instant::now()));
                Ok(Try::Held)
            }
            Err(error) if is_conflict(&error) => {
                self.seen = None;
                let holder = leases.get(NAME).await?;
                Ok(if holder.is_some_and(|object| self.is_ours(&object)) {
                    Try::Held
                } else {
                    Try::Foreign
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Ours, free, or not renewed for its whole duration while we looked.
    fn may_take(&mut self, object: &Object) -> bool {
        let spec = object.spec.clone().unwrap_or_default();
        if self.is_ours(object) || spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return true;
        }
        let since = match &self.seen {
            Some((seen, since)) if seen.spec == object.spec => *since,
            Some(_) | None => {
                let now = Instant::now();
                self.seen = Some((object.clone(), now));
                now
            }
        };
        let seconds = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .unwrap_or_default();
        since.elapsed() >= Duration::from_secs(seconds).max(self.timings.duration)
    }

    /// The lease as it is when we hold it.
    fn claim(&self, current: Option<&Object>) -> Object {
        let now = MicroTime(self.clock.now());
        let old = current.and_then(|object| object.spec.clone()).unwrap_or_default();
        let renewal = old.holder_identity.as_deref() == Some(self.identity.as_str());
        let transitions = old.lease_transitions.unwrap_or_default();
        let metadata = current.map_or_else(
            || ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            |object| object.metadata.clone(),
        );
        let seconds = self.timings.duration.as_secs().max(1);
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(seconds).ok(),
            acquire_time: if renewal {
                old.acquire_time.clone()
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(if renewal {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..old
        };
        Object {
            metadata,
            spec: Some(spec),
        }
    }
}

#[cfg(test)]
mod tests;
