//! The two clients: one for requests, which must end, and one for watches, which must not (decision A16).

use std::time::Duration;

use http::{HeaderValue, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::settings::Access;

/// How long the API server may be silent while it owes an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("failed to read the kubeconfig")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// Neither a service account nor a kubeconfig.
    #[error("failed to find out how to reach the API server")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The client could not be made of it.
    #[error("failed to make a client of the API server")]
    Build(#[source] Box<kube::Error>),
}

/// Clients of one API server. Injected by tests.
#[derive(Clone)]
pub struct Clients {
    /// For requests: silence is an error after 5 s.
    pub requests: Client,
    /// For watches: silence is normal.
    pub watches: Client,
}

/// Makes the clients. Nothing is asked of the API server yet.
pub async fn connect(access: &Access) -> Result<Clients, ClientError> {
    let mut config = config(access).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Up to 15 tries and 1000 s by default: what is tried again, and when, is decided in requests.rs alone.
    config.default_retry = false;
    config
        .headers
        .push((header::USER_AGENT, HeaderValue::from_static(USER_AGENT)));
    let build = |config: Config| Client::try_from(config).map_err(|error| ClientError::Build(Box::new(error)));
    let watches = build(config.clone())?;
    config.read_timeout = Some(READ_TIMEOUT);
    // Otherwise the time for which a connection lay idle in the pool counts as silence.
    config.reset_reader_on_write = true;
    Ok(Clients {
        requests: build(config)?,
        watches,
    })
}

const USER_AGENT: &str = concat!("mainstay/", env!("CARGO_PKG_VERSION"));

async fn config(access: &Access) -> Result<Config, ClientError> {
    let failed = |error| ClientError::Kubeconfig(Box::new(error));
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    match &access.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(failed)
        }
        None if access.context.is_some() => Config::from_kubeconfig(&options).await.map_err(failed),
        // Inside of Kubernetes the service account wins: an image has no business with a kubeconfig.
        None => match Config::incluster() {
            Ok(config) => Ok(config),
            Err(_) => Config::infer()
                .await
                .map_err(|error| ClientError::Infer(Box::new(error))),
        },
    }
}
