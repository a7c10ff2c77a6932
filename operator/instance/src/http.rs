//! Probes, metrics and the status as JSON; on the manager's own socket also the pre-stop hook's request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::local;
use crate::metrics;
use crate::proto;
use crate::shared::Shared;

/// The manager's loop turns at least every few seconds; one that did not for this long is stuck.
const STUCK: Duration = Duration::from_mins(1);

/// The pages that anybody in the cluster's network may see.
pub(crate) fn public(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/startup", get(startup))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics_page))
        .route("/status", get(status))
        .with_state(shared)
}

/// The same, and what only the container itself may ask.
pub(crate) fn private(shared: Arc<Shared>) -> Router {
    let own = Router::new()
        .route("/leave", post(leave))
        .with_state(Arc::clone(&shared));
    public(shared).merge(own)
}

/// An initialisation, a recovery or a clone may take as long as it takes.
async fn startup() -> &'static str {
    "the manager runs\n"
}

/// Nothing about mysqld: a probe must never kill a recovery.
async fn live(State(shared): State<Arc<Shared>>) -> Response {
    if shared.turned().elapsed() < STUCK {
        return "the manager runs\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "the manager is stuck\n").into_response()
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let status = Arc::clone(&shared.watch_status().borrow());
    let offline = shared.last_state().is_some_and(|state| state.offline);
    match unready(&status, offline) {
        None => "reads may be served\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// Why reads may not be served; that is not whether it may be promoted (case F03).
fn unready(status: &proto::Status, offline: bool) -> Option<String> {
    if status.mysqld != i32::from(proto::status::Mysqld::Running) {
        return Some(format!("mysqld is not running: {}", status.message));
    }
    if offline {
        return Some("clients are kept out: it is not attached yet, or hears nobody".to_owned());
    }
    if status.writable {
        return None;
    }
    let replication = status.replication.clone().unwrap_or_default();
    if replication.source_host.is_empty() {
        return Some("it is neither an open primary nor an attached replica".to_owned());
    }
    if !replication.receiver_running {
        return Some(format!("it does not receive: {}", replication.receiver_error));
    }
    if !replication.applier_running {
        return Some(format!("it does not apply: {}", replication.applier_error));
    }
    None
}

async fn metrics_page(State(shared): State<Arc<Shared>>) -> Response {
    match metrics::page(&shared) {
        Ok(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response(),
        Err(error) => {
            tracing::warn!(%error, "failed to render metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    let status = Arc::clone(&shared.watch_status().borrow());
    (
        [(header::CONTENT_TYPE, "application/json")],
        local::to_json(&status).to_string(),
    )
        .into_response()
}

async fn leave(State(shared): State<Arc<Shared>>) -> &'static str {
    tracing::info!("the pod is being stopped and asks to be relieved");
    shared.leave();
    "noted\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> proto::Status {
        proto::Status {
            mysqld: proto::status::Mysqld::Running.into(),
            ..proto::Status::default()
        }
    }

    fn replica(receiver: bool, applier: bool) -> proto::Status {
        let replication = proto::Replication {
            source_host: "shop-0".to_owned(),
            receiver_running: receiver,
            applier_running: applier,
            ..proto::Replication::default()
        };
        proto::Status {
            replication: Some(replication),
            ..running()
        }
    }

    #[test]
    fn f03_ready_means_that_reads_may_be_served() {
        let writable = proto::Status {
            writable: true,
            ..running()
        };
        let starting = proto::Status {
            writable: true,
            ..proto::Status::default()
        };
        assert!(unready(&writable, true).is_some());
        assert!(unready(&replica(true, true), true).is_some());
        assert_eq!(unready(&writable, false), None);
        assert_eq!(unready(&replica(true, true), false), None);
        assert!(unready(&replica(false, true), false).is_some());
        assert!(unready(&replica(true, false), false).is_some());
        assert!(unready(&running(), false).is_some());
        assert!(unready(&starting, false).is_some());
    }

    #[test]
    fn f03_unknown_lag_is_not_unready() {
        let status = replica(true, true);
        assert_eq!(status.replication.as_ref().unwrap().lag_seconds, None);
        assert_eq!(unready(&status, false), None);
    }
}
