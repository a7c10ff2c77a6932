//! HTTP in, HTTP out: the `tower::Service` behind `kube::Client`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::Server;
use super::delete::{self, DeleteOptions};
use super::failure::Failure;
use super::faults::{Effect, RequestInfo};
use super::query::{Query, Selector};
use super::resource::{Resource, Route};
use super::store::Key;
use super::verbs::{Options, PatchKind};
use super::watching::Watching;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The server as one client sees it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    server: Server,
    client: Arc<str>,
}

impl Endpoint {
    /// The endpoint for a client of that name.
    #[must_use]
    pub fn new(server: Server, client: &str) -> Self {
        Self {
            server,
            client: client.into(),
        }
    }
}

impl tower::Service<Request<Body>> for Endpoint {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { endpoint.answer(request).await })
    }
}

/// What a list shows.
struct Snapshot {
    version: u64,
    objects: Vec<(Key, Arc<Value>)>,
}

/// A request, taken apart.
struct Parsed {
    route: Route,
    query: Query,
    verb: &'static str,
    patch: PatchKind,
    metadata_only: bool,
    agent: String,
    body: Value,
}

impl Parsed {
    fn key(&self) -> Key {
        Key::new(
            self.route.resource,
            &self.route.namespace,
            self.route.name.as_deref().unwrap_or_default(),
        )
    }

    fn options(&self) -> Options {
        Options {
            manager: self.query.get("fieldManager").unwrap_or(&self.agent).to_owned(),
            force: self.query.is_set("force"),
            dry_run: self.query.get("dryRun").is_some(),
            unowned: false,
        }
    }
}

impl Endpoint {
    async fn answer(&self, request: Request<Body>) -> io::Result<Answer> {
        self.server.passable(&self.client).await;
        if self.server.is_down() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "the API server is down",
            ));
        }
        if request.uri().path() == "/version" {
            let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            return Ok(reply(200, &version));
        }
        let parsed = match parse(request).await {
            Ok(parsed) => parsed,
            Err(failure) => return Ok(reply(failure.code, &failure.to_status())),
        };
        let mut info = self.info(&parsed);
        let (effect, latency) = self.server.with(|s| (s.faults.effect(&info), s.faults.latency));
        let delay = if let Some(Effect::Delay(delay)) = effect {
            delay
        } else {
            Duration::ZERO
        };
        pause((latency + delay) / 2).await;
        let before = match effect {
            Some(Effect::Refuse(code)) => Some(Ok(reply(code, &Failure::of_code(code).to_status()))),
            Some(Effect::LoseRequest) => Some(Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "injected: request lost",
            ))),
            Some(Effect::HangBefore) => {
                self.server.log(info.clone());
                std::future::pending().await
            }
            _ => None,
        };
        if let Some(answer) = before {
            info.code = answer.as_ref().map_or(0, |a: &Answer| a.status().as_u16());
            self.server.log(info);
            return answer;
        }
        let answer = if parsed.verb == "watch" {
            self.watch(&parsed)
        } else {
            self.perform(&parsed)
        };
        info.code = answer.status().as_u16();
        self.server.log(info);
        match effect {
            Some(Effect::LoseAnswer) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "injected: answer lost")),
            Some(Effect::HangAfter) => std::future::pending().await,
            _ => {
                pause((latency + delay) / 2).await;
                self.server.passable(&self.client).await;
                Ok(answer)
            }
        }
    }

    fn info(&self, parsed: &Parsed) -> RequestInfo {
        RequestInfo {
            at: Instant::now(),
            client: self.client.to_string(),
            verb: parsed.verb,
            resource: parsed.route.resource.plural,
            subresource: parsed.route.subresource.clone(),
            namespace: parsed.route.namespace.clone(),
            name: parsed.route.name.clone().unwrap_or_default(),
            code: 0,
        }
    }

    fn watch(&self, parsed: &Parsed) -> Answer {
        let guard = self.server.watch_guard(&self.client);
        let watching = Watching::open(
            self.server.clone(),
            parsed.route.resource,
            &parsed.route.namespace,
            &parsed.query,
            parsed.metadata_only,
            guard,
        );
        let frames = stream::unfold(watching, |mut watching| async move {
            let event = watching.next().await?;
            let line = Bytes::from(format!("{event}\n"));
            Some((Ok::<_, Infallible>(http_body::Frame::data(line)), watching))
        });
        let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
        answer.headers_mut().insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
        answer
    }

    fn perform(&self, parsed: &Parsed) -> Answer {
        match self.result(parsed) {
            Ok((code, value)) => reply(code, &value),
            Err(failure) => reply(failure.code, &failure.to_status()),
        }
    }

    fn result(&self, parsed: &Parsed) -> Result<(u16, Value), Failure> {
        let (key, options, route) = (parsed.key(), parsed.options(), &parsed.route);
        if !matches!(route.subresource.as_deref(), None | Some("status" | "eviction")) {
            return Err(Failure::not_found("the server could not find the requested resource"));
        }
        let body = parsed.body.clone();
        let (code, object) = match parsed.verb {
            "list" => return self.list(parsed).map(|list| (200, list)),
            "get" => (200, self.server.verbs(|v| v.get(&key))?),
            "create" if route.subresource.as_deref() == Some("eviction") => {
                let deletion = DeleteOptions::read(body.get("deleteOptions").unwrap_or(&Value::Null));
                (201, self.server.delete(&key, &deletion)?)
            }
            "create" => (201, self.server.verbs(|v| v.create(route, body, &options))?),
            "update" => (200, self.server.verbs(|v| v.replace(route, &key, body, &options))?),
            "patch" | "apply" => {
                let existed = self.server.get(&key).is_some();
                let object = self
                    .server
                    .verbs(|v| v.patch(route, &key, parsed.patch, body, &options))?;
                (if existed { 200 } else { 201 }, object)
            }
            "delete" => (200, self.server.delete(&key, &DeleteOptions::read(&body))?),
            _ => {
                let selector = Selector::of(&parsed.query);
                let deletion = DeleteOptions::read(&body);
                self.server.with(|s| {
                    let selected = s
                        .store
                        .list(route.resource, &route.namespace)
                        .filter(|(_, o)| selector.matches(o));
                    let keys: Vec<Key> = selected.map(|(k, _)| k.clone()).collect();
                    keys.iter()
                        .try_for_each(|k| delete::delete(&mut s.store, k, &deletion).map(|_| ()))
                })?;
                return Ok((
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
                ));
            }
        };
        Ok((
            code,
            if parsed.metadata_only {
                only_metadata(&object)
            } else {
                Value::clone(&object)
            },
        ))
    }

    /// The objects that a list shows, and of which version: the one of a continue token, a stale one, or the newest.
    fn snapshot(
        &self,
        resource: &'static Resource,
        namespace: &str,
        version: Option<u64>,
    ) -> Result<Snapshot, Failure> {
        self.server.with(|s| {
            if version.is_some_and(|v| v < s.store.compacted()) {
                return Err(Failure::expired("The provided continue parameter is too old"));
            }
            let newest = s.store.version();
            let version = version
                .or_else(|| s.faults.stale_version(&self.client))
                .unwrap_or(newest);
            let here = |k: &Key| k.resource == resource && (namespace.is_empty() || k.namespace == namespace);
            let objects = if version == newest {
                s.store
                    .list(resource, namespace)
                    .map(|(k, o)| (k.clone(), Arc::clone(o)))
                    .collect()
            } else {
                s.store
                    .objects_at(version)
                    .into_iter()
                    .filter(|(k, _)| here(k))
                    .collect()
            };
            Ok(Snapshot { version, objects })
        })
    }

    fn list(&self, parsed: &Parsed) -> Result<Value, Failure> {
        let (resource, namespace) = (parsed.route.resource, &parsed.route.namespace);
        let selector = Selector::of(&parsed.query);
        let limit = parsed
            .query
            .get("limit")
            .and_then(|l| l.parse::<usize>().ok())
            .filter(|l| *l > 0);
        let (version, after) = match parsed.query.get("continue") {
            None => (None, String::new()),
            Some(token) => {
                let (version, after) = token
                    .split_once('|')
                    .ok_or_else(|| Failure::bad_request("continue token"))?;
                (version.parse::<u64>().ok(), after.to_owned())
            }
        };
        let Snapshot { version, objects } = self.snapshot(resource, namespace, version)?;
        let mut items: Vec<(String, Arc<Value>)> = objects
            .into_iter()
            .filter(|(_, o)| selector.matches(o))
            .map(|(k, o)| (format!("{}/{}", k.namespace, k.name), o))
            .filter(|(at, _)| at > &after)
            .collect();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(limit) = limit.filter(|l| items.len() > *l) {
            metadata["remainingItemCount"] = json!(items.len() - limit);
            items.truncate(limit);
            let last = items.last().map(|(at, _)| at.clone()).unwrap_or_default();
            metadata["continue"] = json!(format!("{version}|{last}"));
        }
        let shown = |o: &Arc<Value>| {
            if parsed.metadata_only {
                only_metadata(o)
            } else {
                Value::clone(o)
            }
        };
        let (api_version, kind) = if parsed.metadata_only {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned())
        } else {
            (resource.api_version(), format!("{}List", resource.kind))
        };
        let items: Vec<Value> = items.iter().map(|(_, o)| shown(o)).collect();
        Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items}))
    }
}

/// The object as a client that asks for `PartialObjectMetadata` gets it.
#[must_use]
pub fn only_metadata(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object.get("metadata")})
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

fn reply(code: u16, value: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    if code == 429 {
        answer
            .headers_mut()
            .insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    }
    answer
}

async fn parse(request: Request<Body>) -> Result<Parsed, Failure> {
    let (parts, body) = request.into_parts();
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let route = Route::parse(parts.uri.path())
        .ok_or_else(|| Failure::not_found(format!("the server could not find {}", parts.uri.path())))?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let content_type = header(http::header::CONTENT_TYPE);
    let patch = match content_type.split(';').next().unwrap_or_default() {
        "application/apply-patch+yaml" => PatchKind::Apply,
        "application/json-patch+json" => PatchKind::Json,
        _ => PatchKind::Merge,
    };
    let one = route.name.is_some();
    let verb = match &parts.method {
        &Method::GET if query.is_set("watch") => "watch",
        &Method::GET if one => "get",
        &Method::GET => "list",
        &Method::POST => "create",
        &Method::PUT if one => "update",
        &Method::PATCH if one && patch == PatchKind::Apply => "apply",
        &Method::PATCH if one => "patch",
        &Method::DELETE if one => "delete",
        &Method::DELETE => "deletecollection",
        other => {
            return Err(Failure::bad_request(format!(
                "{other} is not served at {}",
                parts.uri.path()
            )));
        }
    };
    let bytes = body
        .collect_bytes()
        .await
        .map_err(|e| Failure::bad_request(e.to_string()))?;
    let body = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes).map_err(|e| Failure::bad_request(format!("the body is not JSON: {e}")))?
    };
    Ok(Parsed {
        metadata_only: header(http::header::ACCEPT).contains("as=PartialObjectMetadata"),
        agent: header(http::header::USER_AGENT)
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        route,
        query,
        verb,
        patch,
        body,
    })
}
