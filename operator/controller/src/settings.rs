//! What an operator process is told at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of an operator process; the binary makes them from flags and environment variables.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the API server is reached.
    pub access: Access,
    /// Namespaces that are watched; empty: all.
    pub namespaces: Vec<String>,
    /// Namespace of the operator's own CA and lease. `None`: the pod's namespace, or [`DEFAULT_NAMESPACE`] outside of
    /// Kubernetes.
    pub operator_namespace: Option<String>,
    /// Image from which the init container of a MySQL pod copies the `mainstay` binary.
    pub operator_image: String,
    /// Leader lease; `None` for a test with a single operator.
    pub lease: Option<LeaseTimings>,
    /// Where `/healthz` and `/readyz` are served; `None`: nowhere.
    pub health_addr: Option<SocketAddr>,
    /// Where `/metrics` is served; `None`: nowhere.
    pub metrics_addr: Option<SocketAddr>,
    /// How many clusters are looked at at the same time.
    pub concurrency: u16,
}

/// Namespace of the operator when it runs outside of Kubernetes and none was named.
pub const DEFAULT_NAMESPACE: &str = "mainstay-system";
/// How many clusters are looked at at the same time, by default: a pass mostly waits.
pub const DEFAULT_CONCURRENCY: u16 = 64;

impl Settings {
    /// Defaults for everything but the operator's image.
    #[must_use]
    pub fn new(operator_image: impl Into<String>) -> Self {
        Self {
            access: Access::default(),
            namespaces: Vec::new(),
            operator_namespace: None,
            operator_image: operator_image.into(),
            lease: Some(LeaseTimings::default()),
            health_addr: Some(SocketAddr::from(([0; 8], 8080))),
            metrics_addr: Some(SocketAddr::from(([0; 8], 9090))),
            concurrency: DEFAULT_CONCURRENCY,
        }
    }
}

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// kubeconfig file; `None` inside of Kubernetes: the service account, outside: `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None`: its current one.
    pub context: Option<String>,
}

/// Timing of the leader lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimings {
    /// How long the lease counts after it was last renewed.
    pub duration: Duration,
    /// How long the holder tries to renew it before it stops all work; shorter than `duration`.
    pub renew_deadline: Duration,
    /// How often it is renewed, or looked at by a standby.
    pub period: Duration,
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(6),
            renew_deadline: Duration::from_secs(4),
            period: Duration::from_secs(1),
        }
    }
}
