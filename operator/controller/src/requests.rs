//! Every request to the API server but the watches: one deadline, one retry policy, one count.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::class::{Failure, failure, is_not_found};
use crate::metrics::Metrics;

/// Field manager of everything that is applied.
pub const FIELD_MANAGER: &str = "mainstay";

/// How long a request may take, all tries together.
const DEADLINE: Duration = Duration::from_secs(10);

/// What kind of request it is; tells whether it may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Create,
    Apply,
    Patch,
    Update,
    Delete,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// A second arrival does no harm: it changes nothing, or its precondition refuses it.
    const fn repeatable(self) -> bool {
        match self {
            Self::Get | Self::Apply | Self::Patch | Self::Update | Self::Delete => true,
            Self::Create => false,
        }
    }
}

/// How often and after what delays a failed request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retry {
    tries: u32,
    first: Duration,
    most: Duration,
}

const THROTTLED: Retry = Retry {
    tries: 5,
    first: Duration::from_millis(200),
    most: Duration::from_secs(2),
};
const NETWORK: Retry = Retry {
    tries: 3,
    first: Duration::from_millis(100),
    most: Duration::from_secs(1),
};

/// Delay before try number `next` (the second is 2), or `None` when it was the last.
fn delay(verb: Verb, failure: Failure, next: u32) -> Option<Duration> {
    let (retry, asked) = match failure {
        Failure::Throttled(asked) => (THROTTLED, asked),
        Failure::Network if verb.repeatable() => (NETWORK, None),
        Failure::Network | Failure::Answered => return None,
    };
    (next <= retry.tries).then(|| {
        let doubled = retry
            .first
            .saturating_mul(1_u32.checked_shl(next.saturating_sub(2)).unwrap_or(u32::MAX));
        asked.unwrap_or(doubled).min(retry.most)
    })
}

/// The API server, for requests.
#[derive(Clone)]
pub(crate) struct Requests {
    client: Client,
    metrics: Arc<Metrics>,
}

impl Requests {
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics }
    }

    /// The client itself, for parts of kube that want one.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Objects of a built-in kind.
    pub(crate) fn typed<K>(&self, namespace: &str) -> Objects<'_, K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Objects {
            api: Api::namespaced(self.client.clone(), namespace),
            kind: K::kind(&()).into_owned(),
            requests: self,
        }
    }

    /// Objects of a kind that is known by name.
    pub(crate) fn dynamic(&self, namespace: &str, resource: &ApiResource) -> Objects<'_, DynamicObject> {
        Objects {
            api: Api::namespaced_with(self.client.clone(), namespace, resource),
            kind: resource.kind.clone(),
            requests: self,
        }
    }

    async fn call<T, F>(&self, verb: Verb, kind: &str, send: impl Fn() -> F) -> Result<T, kube::Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        let mut next = 2;
        loop {
            let result = match tokio::time::timeout_at(deadline, send()).await {
                Ok(result) => result,
                Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
            };
            self.metrics.api_request(verb.as_str(), kind, &outcome(&result));
            let Err(error) = result else { return result };
            match delay(verb, failure(&error), next) {
                Some(pause) if tokio::time::Instant::now() + pause < deadline => tokio::time::sleep(pause).await,
                Some(_) | None => return Err(error),
            }
            next += 1;
        }
    }
}

/// The result as a label: the status code, or that there was none.
fn outcome<T>(result: &Result<T, kube::Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(_) => "error".to_owned(),
    }
}

/// Objects of one kind in one namespace.
pub(crate) struct Objects<'a, K> {
    api: Api<K>,
    kind: String,
    requests: &'a Requests,
}

impl<K> Objects<'_, K>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    /// The object as the API server has it now, or `None`.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<K>, kube::Error> {
        match self.requests.call(Verb::Get, &self.kind, || self.api.get(name)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Server-side apply. Without `force`, fields of another manager with other values are a conflict.
    pub(crate) async fn apply(&self, name: &str, object: &impl Serialize, force: bool) -> Result<K, kube::Error> {
        let mut params = PatchParams::apply(FIELD_MANAGER);
        params.force = force;
        let patch = Patch::Apply(serde_json::to_value(object).map_err(kube::Error::SerdeError)?);
        self.requests
            .call(Verb::Apply, &self.kind, || self.api.patch(name, &params, &patch))
            .await
    }

    /// Merge patch; a conflict if it names a uid or resourceVersion that is another one now.
    pub(crate) async fn merge(&self, name: &str, patch: &Value) -> Result<K, kube::Error> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        self.requests
            .call(Verb::Patch, &self.kind, || self.api.patch(name, &params, &patch))
            .await
    }

    /// Deletes the object if it is still the one that was seen; a pod with that many seconds to end, if they are not its own.
    /// `false`: it was gone before.
    pub(crate) async fn delete(
        &self,
        name: &str,
        seen: Preconditions,
        grace: Option<u32>,
    ) -> Result<bool, kube::Error> {
        let mut params = DeleteParams::background().preconditions(seen);
        params.grace_period_seconds = grace;
        match self
            .requests
            .call(Verb::Delete, &self.kind, || self.api.delete(name, &params))
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl<K> Objects<'_, K>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    /// Creates the object; a conflict if the name is taken.
    pub(crate) async fn create(&self, object: &K) -> Result<K, kube::Error> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.requests
            .call(Verb::Create, &self.kind, || self.api.create(&params, object))
            .await
    }

    /// Replaces the object; a conflict if its resourceVersion is not the newest.
    pub(crate) async fn replace(&self, name: &str, object: &K) -> Result<K, kube::Error> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.requests
            .call(Verb::Update, &self.kind, || self.api.replace(name, &params, object))
            .await
    }

    /// Replaces the status; a conflict if the resourceVersion is not the newest.
    pub(crate) async fn replace_status(&self, name: &str, object: &K) -> Result<K, kube::Error> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        self.requests
            .call(Verb::Update, &self.kind, || {
                self.api.replace_status(name, &params, object)
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::network_first(Verb::Get, Failure::Network, 2, Some(100))]
    #[case::network_second(Verb::Update, Failure::Network, 3, Some(200))]
    #[case::network_no_fourth(Verb::Delete, Failure::Network, 4, None)]
    #[case::a_create_may_have_arrived(Verb::Create, Failure::Network, 2, None)]
    #[case::throttled_first(Verb::Create, Failure::Throttled(None), 2, Some(200))]
    #[case::throttled_last(Verb::Create, Failure::Throttled(None), 5, Some(1600))]
    #[case::throttled_no_sixth(Verb::Create, Failure::Throttled(None), 6, None)]
    #[case::as_asked(Verb::Get, Failure::Throttled(Some(Duration::from_secs(1))), 2, Some(1000))]
    #[case::but_not_for_ever(Verb::Get, Failure::Throttled(Some(Duration::from_mins(1))), 2, Some(2000))]
    #[case::an_answer_is_an_answer(Verb::Get, Failure::Answered, 2, None)]
    fn delays(#[case] verb: Verb, #[case] failure: Failure, #[case] next: u32, #[case] expected: Option<u64>) {
        assert_eq!(delay(verb, failure, next), expected.map(Duration::from_millis));
    }
}
