//! A tiny API server for unit tests: a closure from method, path and body to status and body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::platform::Clock;
use crate::requests::Requests;

type Handler = dyn Fn(&str, &str, Value) -> (u16, Value) + Send + Sync;

#[derive(Clone)]
pub(crate) struct Fake {
    handler: Arc<Handler>,
    broken: Arc<AtomicBool>,
}

impl Fake {
    pub(crate) fn new(handler: impl Fn(&str, &str, Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self {
            handler: Arc::new(handler),
            broken: Arc::default(),
        }
    }

    pub(crate) fn failure(code: u16) -> (u16, Value) {
        (
            code,
            json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code}),
        )
    }

    /// From now on every connection breaks.
    pub(crate) fn break_connections(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move { fake.answer(request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Full<tokio_util::bytes::Bytes>>, std::io::Error> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let (status, value) = (self.handler)(parts.method.as_str(), parts.uri.path(), body);
        Response::builder()
            .status(status)
            .body(Full::from(value.to_string().into_bytes()))
            .map_err(std::io::Error::other)
    }
}

pub(crate) fn requests(fake: &Fake) -> Requests {
    Requests::new(fake.client(), Arc::new(Metrics::new().unwrap()))
}

/// A clock that stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedClock(pub(crate) Timestamp);

impl Default for FixedClock {
    fn default() -> Self {
        Self(Timestamp::from_second(1_800_000_000).unwrap())
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// What passes share, with empty indexes and the given API server.
pub(crate) fn context(fake: &Fake) -> crate::context::Context {
    use crate::operator_ca::Identity;
    use crate::platform::{Platform, SystemEntropy};
    use crate::pool::{GrpcDialler, Pool};

    let requests = requests(fake);
    let platform = Platform::new(Arc::new(FixedClock::default()), Arc::new(SystemEntropy));
    let identity = Identity::for_tests(platform.now());
    let triggers = crate::trigger::Triggers::default();
    let dialler = Arc::new(GrpcDialler::new(identity.clone()));
    crate::context::Context {
        world: crate::watch::World::new(1),
        user_secrets: crate::user_secrets::UserSecrets::new(
            fake.client(),
            triggers.clone(),
            Arc::new(Metrics::new().unwrap()),
        ),
        stores: Arc::new(crate::stores::S3Stores),
        shelves: crate::backups::Shelves::default(),
        followers: crate::backups::Followers::new(
            Arc::new(crate::backups::HttpPages),
            Arc::clone(&platform.clock),
            triggers.clone(),
        ),
        pool: Pool::new(dialler, Arc::clone(&platform.clock), triggers.clone()),
        events: crate::events::Events::new(&requests, "test".to_owned()),
        metrics: Arc::new(Metrics::new().unwrap()),
        memories: Arc::default(),
        operator_image: "mainstay:test".to_owned(),
        leadership: crate::context::Leadership::default(),
        identity,
        platform,
        triggers,
        requests,
    }
}
