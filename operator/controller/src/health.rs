//! `/healthz`, `/readyz` and `/metrics`, on a thread and a runtime of their own.
//!
//! A reconciler that is busy cannot make a probe late. One that hangs is noticed all the same: `/healthz` asks the main
//! runtime to run a task.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// How long the main runtime may take to run an empty task before the process counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(5);

/// Why the endpoints could not be served.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The address is taken or not allowed.
    #[error("failed to listen on {addr}")]
    Listen {
        /// Address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The thread could not be started.
    #[error("failed to start the thread for health and metrics")]
    Thread(#[source] std::io::Error),
}

/// Whether the process is ready: its indexes were filled once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Says that it is.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The endpoints; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Endpoints {
    stop: CancellationToken,
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves the endpoints on the given addresses until the result is dropped. Must be called on the main runtime.
pub(crate) fn serve(
    health: Option<SocketAddr>,
    metrics_addr: Option<SocketAddr>,
    readiness: Readiness,
    metrics: Arc<Metrics>,
) -> Result<Endpoints, HealthError> {
    let stop = CancellationToken::new();
    let mut servers = Vec::new();
    if let Some(addr) = health {
        servers.push((listen(addr)?, health_routes(Handle::current(), readiness)));
    }
    if let Some(addr) = metrics_addr {
        servers.push((listen(addr)?, metrics_routes(metrics)));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(HealthError::Thread)?;
    let ended = stop.clone();
    std::thread::Builder::new()
        .name("health".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let serving = servers
                    .into_iter()
                    .map(|(listener, routes)| serve_one(listener, routes, ended.clone()));
                futures::future::join_all(serving).await;
            });
        })
        .map_err(HealthError::Thread)?;
    Ok(Endpoints { stop })
}

fn listen(addr: SocketAddr) -> Result<TcpListener, HealthError> {
    let bound = TcpListener::bind(addr).or_else(|error| match addr.ip() {
        // A machine without IPv6 has no address that means both families.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, addr.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => Err(error),
    });
    let listener = bound.map_err(|source| HealthError::Listen { addr, source })?;
    listener
        .set_nonblocking(true)
        .map_err(|source| HealthError::Listen { addr, source })?;
    Ok(listener)
}

async fn serve_one(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let served = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, routes)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
    };
    if let Err(error) = served.await {
        tracing::error!(%error, "failed to serve health or metrics");
    }
}

fn health_routes(main: Handle, readiness: Readiness) -> Router {
    let healthz = move || {
        let main = main.clone();
        async move {
            match tokio::time::timeout(HUNG_AFTER, main.spawn(async {})).await {
                Ok(Ok(())) => (StatusCode::OK, "ok\n"),
                Ok(Err(_)) | Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the main runtime does not answer\n"),
            }
        }
    };
    let readyz = move || async move {
        if readiness.is_set() {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the first lists are not complete\n")
        }
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
}

fn metrics_routes(metrics: Arc<Metrics>) -> Router {
    let render = move || async move {
        match metrics.render() {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    };
    Router::new().route("/metrics", get(render))
}
