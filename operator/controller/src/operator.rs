//! The process: clients, watches, pool, lease, and the queue of passes while the lease is held.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::runtime::applier;
use kube::runtime::controller::{Config as QueueConfig, Error as QueueError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::backups::{Followers, HttpPages, Pages, Shelves};
use crate::client::{self, ClientError, Clients};
use crate::clusters;
use crate::context::{Context, Leadership};
use crate::error::chain;
use crate::events::Events;
use crate::health::{self, HealthError, Readiness};
use crate::lease::Lease;
use crate::memory::Memories;
use crate::metrics::Metrics;
use crate::operator_ca::{Identity, OperatorCaError};
use crate::platform::Platform;
use crate::pool::{Dialler, GrpcDialler, Pool};
use crate::reconcile::{after_error, reconcile};
use crate::requests::Requests;
use crate::settings::{DEFAULT_NAMESPACE, Settings};
use crate::stores::{S3Stores, Stores};
use crate::trigger::Triggers;
use crate::user_secrets::UserSecrets;
use crate::watch::{self, Listeners, Watches};

/// Where a pod finds its own namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// How long passes may take to finish when the process is asked to stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether the operator's certificate is due.
const CERTIFICATE_CHECK: Duration = Duration::from_hours(1);
/// Pause before the operator's CA is asked for again.
const START_RETRY: Duration = Duration::from_secs(1);

/// Why the operator could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no way to the API server.
    #[error("failed to prepare the access to the API server")]
    Client(#[source] ClientError),
    /// The metrics could not be registered.
    #[error("failed to register the metrics")]
    Metrics(#[source] prometheus::Error),
    /// Health and metrics could not be served.
    #[error("failed to serve health and metrics")]
    Health(#[source] HealthError),
    /// The operator's own certificate could not be made.
    #[error("failed to prepare the operator's certificate")]
    Identity(#[source] OperatorCaError),
}

/// What a test replaces.
#[derive(Clone)]
pub struct Parts {
    /// Clients of the API server.
    pub clients: Clients,
    /// Makes the connections to instance managers; `None`: gRPC with the operator's certificate.
    pub dialler: Option<Arc<dyn Dialler>>,
    /// Clock, randomness and identity.
    pub platform: Platform,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Opens object stores.
    pub stores: Arc<dyn Stores>,
    /// Reads how far backups are.
    pub pages: Arc<dyn Pages>,
}

/// Runs the operator until `stop` is cancelled.
pub async fn run(settings: Settings, stop: CancellationToken) -> Result<(), RunError> {
    let parts = Parts {
        clients: client::connect(&settings.access).await.map_err(RunError::Client)?,
        dialler: None,
        platform: Platform::real(),
        metrics: Arc::new(Metrics::new().map_err(RunError::Metrics)?),
        stores: Arc::new(S3Stores),
        pages: Arc::new(HttpPages),
    };
    run_with(settings, parts, stop).await
}

/// Runs the operator with these parts until `stop` is cancelled.
pub async fn run_with(settings: Settings, parts: Parts, stop: CancellationToken) -> Result<(), RunError> {
    let readiness = Readiness::default();
    let metrics = Arc::clone(&parts.metrics);
    let _endpoints = health::serve(settings.health_addr, settings.metrics_addr, readiness.clone(), metrics)
        .map_err(RunError::Health)?;
    let process = tokio::select! {
        process = Process::start(settings, parts) => process?,
        () = stop.cancelled() => return Ok(()),
    };
    tokio::select! {
        () = process.watches.world.ready() => {}
        () = stop.cancelled() => return Ok(()),
    }
    readiness.set();
    tracing::info!(operator = %process.context.platform.operator, "the operator is ready");
    process.lead(stop).await;
    Ok(())
}

/// Everything that runs whether or not this process leads.
struct Process {
    settings: Settings,
    namespace: String,
    context: Arc<Context>,
    watches: Watches,
    _certificates: AbortOnDropHandle<()>,
}

impl Process {
    async fn start(settings: Settings, parts: Parts) -> Result<Self, RunError> {
        let namespace = operator_namespace(&settings).await;
        let requests = Requests::new(parts.clients.requests.clone(), Arc::clone(&parts.metrics));
        let identity = establish(&requests, &namespace, &parts.platform).await?;
        let dialler = parts
            .dialler
            .unwrap_or_else(|| Arc::new(GrpcDialler::new(identity.clone())));
        let triggers = Triggers::default();
        let pool = Pool::new(dialler, Arc::clone(&parts.platform.clock), triggers.clone());
        let memories = Arc::new(Memories::default());
        let user_secrets = UserSecrets::new(
            parts.clients.watches.clone(),
            triggers.clone(),
            Arc::clone(&parts.metrics),
        );
        let shelves = Shelves::default();
        let followers = Followers::new(parts.pages, Arc::clone(&parts.platform.clock), triggers.clone());
        let (forget, named) = (Arc::clone(&memories), user_secrets.clone());
        let (stored, followed) = (shelves.clone(), followers.clone());
        let listeners = Listeners {
            triggers: triggers.clone(),
            pool: pool.clone(),
            metrics: Arc::clone(&parts.metrics),
            died: Arc::new(move |cluster| {
                forget.forget(cluster);
                named.forget(cluster);
                stored.forget(cluster);
                followed.forget(cluster);
            }),
        };
        let watches = watch::start(&parts.clients.watches, &settings.namespaces, &listeners);
        let context = Arc::new(Context {
            events: Events::new(&requests, parts.platform.operator.to_string()),
            world: watches.world.clone(),
            user_secrets,
            stores: parts.stores,
            shelves,
            followers,
            pool,
            identity,
            platform: parts.platform,
            metrics: parts.metrics,
            memories,
            triggers,
            operator_image: settings.operator_image.clone(),
            leadership: Leadership::default(),
            requests,
        });
        let certificates = AbortOnDropHandle::new(tokio::spawn(renew(Arc::clone(&context), namespace.clone())));
        Ok(Self {
            settings,
            namespace,
            context,
            watches,
            _certificates: certificates,
        })
    }

    /// Waits for the lease, works while it is held, and again, until `stop`.
    async fn lead(&self, stop: CancellationToken) {
        let Some(timings) = self.settings.lease else {
            self.work(&stop).await;
            return;
        };
        let context = &self.context;
        let identity = identity(&context.platform);
        let clock = Arc::clone(&context.platform.clock);
        let mut lease = Lease::new(
            context.requests.clone(),
            self.namespace.clone(),
            identity,
            timings,
            clock,
        );
        while !stop.is_cancelled() {
            tokio::select! {
                () = lease.acquire() => {}
                () = stop.cancelled() => return,
            }
            tracing::info!("this process leads");
            context.metrics.leader(true);
            let lost = tokio::select! {
                reason = lease.hold() => Some(reason),
                () = self.work(&stop) => None,
            };
            context.metrics.leader(false);
            match lost {
                // Whatever was going on was dropped with `work`.
                Some(reason) => tracing::error!(reason, "this process does not lead any more: all work has stopped"),
                None => lease.release().await,
            }
        }
    }

    /// Runs passes until `stop`, then lets those that run finish. Dropping this ends them at once.
    async fn work(&self, stop: &CancellationToken) {
        let context = &self.context;
        context.leadership.begin();
        let _end = EndOnDrop(context);
        // Whatever was missed while another process led is looked at now.
        for cluster in context.world.clusters.names() {
            context.triggers.poke(&cluster);
        }
        let queue = context
            .triggers
            .stream()
            .map(|cluster| Ok::<_, std::convert::Infallible>(clusters::reference(&cluster)));
        let passes = applier(
            |object, context| AbortOnDropHandle::new(tokio::spawn(reconcile(object, context))).map(flatten),
            |object, error, context| after_error(&object, error, &context),
            Arc::clone(context),
            context.world.clusters.store(),
            queue.take_until(stop.clone().cancelled_owned()),
            QueueConfig::default().concurrency(self.settings.concurrency),
        );
        let passes = passes.for_each(|result| {
            if let Err(error @ (QueueError::QueueError(_) | QueueError::RunnerError(_))) = result {
                tracing::error!(error = chain(&error), "the queue failed");
            }
            std::future::ready(())
        });
        let limit = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_LIMIT).await;
        };
        tokio::select! {
            () = passes => {}
            () = limit => tracing::warn!("passes were still running after {STOP_LIMIT:?}"),
        }
    }
}

/// Ends what outlives a pass when the leadership ends, however it does.
struct EndOnDrop<'a>(&'a Context);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.leadership.end();
        self.0.followers.end();
        self.0.shelves.end();
    }
}

/// A pass that panicked is a bug; the process and the other clusters go on, and the cluster is tried again.
fn flatten<T>(
    joined: Result<Result<T, crate::reconcile::PassError>, tokio::task::JoinError>,
) -> Result<T, crate::reconcile::PassError> {
    joined.unwrap_or_else(|error| Err(crate::reconcile::PassError::Panicked(error.to_string())))
}

/// Name of this process in the lease: who it is, and that it is this start of it.
fn identity(platform: &Platform) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "mainstay".to_owned());
    format!("{host}_{}", platform.operator)
}

async fn operator_namespace(settings: &Settings) -> String {
    if let Some(namespace) = &settings.operator_namespace {
        return namespace.clone();
    }
    let own = tokio::fs::read_to_string(Path::new(NAMESPACE_FILE)).await;
    own.map_or_else(
        |_| DEFAULT_NAMESPACE.to_owned(),
        |namespace| namespace.trim().to_owned(),
    )
}

/// The operator's certificate; waits for an API server that is not there yet.
async fn establish(requests: &Requests, namespace: &str, platform: &Platform) -> Result<Identity, RunError> {
    loop {
        match Identity::establish(requests, namespace, platform.now()).await {
            Ok(identity) => return Ok(identity),
            Err(error @ (OperatorCaError::Read(_) | OperatorCaError::Write(_))) => {
                tracing::warn!(namespace, error = chain(&error), "no certificate yet");
                tokio::time::sleep(START_RETRY).await;
            }
            Err(error @ (OperatorCaError::Incomplete(_) | OperatorCaError::Pki(_))) => {
                return Err(RunError::Identity(error));
            }
        }
    }
}

/// Keeps the operator's certificate and CA from ending.
async fn renew(context: Arc<Context>, namespace: String) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK).await;
        let now = context.platform.now();
        if !context.identity.due(now) {
            continue;
        }
        match context.identity.renew(&context.requests, &namespace, now).await {
            Ok(()) => context
                .world
                .clusters
                .names()
                .iter()
                .for_each(|cluster| context.triggers.poke(cluster)),
            Err(error) => tracing::error!(error = chain(&error), "failed to renew the operator's certificate"),
        }
    }
}
