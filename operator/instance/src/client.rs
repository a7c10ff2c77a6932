//! What the operator uses to talk to an instance manager.
//!
//! It dials the pod's address and expects the certificate of the pod's name (decision A10: nothing of Mainstay resolves
//! names), so a wrong pod at a reused address is refused by TLS.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use mainstay_core::action::InstanceCommand;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::convert::{ConvertError, Message, Reply, Request};
use crate::proto;
use crate::proto::instance_client::InstanceClient as Generated;

/// How long a connection may take to be made, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a connection is asked whether it lives.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answer to that may take.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// What is granted beyond a command's deadline before the call is given up: the manager answers within its deadline.
pub const COMMAND_MARGIN: Duration = Duration::from_secs(2);
/// How long a ping may take.
pub const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// Why talking to a manager failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The TLS files or the address could not be used.
    #[error("failed to prepare a connection to {addr}")]
    Prepare {
        /// Address.
        addr: SocketAddr,
        /// Why.
        source: tonic::transport::Error,
    },
    /// No connection.
    #[error("failed to connect to {addr}")]
    Connect {
        /// Address.
        addr: SocketAddr,
        /// Why.
        source: tonic::transport::Error,
    },
    /// The call failed or its stream ended with an error.
    #[error("failed to call the instance manager: {} ({})", .0.message(), .0.code())]
    Call(#[source] Box<tonic::Status>),
    /// The call took longer than its deadline and the margin.
    #[error("failed to get an answer within {0:?}")]
    Timeout(Duration),
    /// The answer could not be understood.
    #[error("failed to understand the instance manager")]
    Convert(#[source] ConvertError),
}

/// Who the caller is, and whom it trusts; all PEM.
#[derive(Clone)]
pub struct ClientTls {
    /// Client certificate, with the URI that tells the role.
    pub certificate: String,
    /// Its key.
    pub key: secrecy::SecretString,
    /// CA of the cluster, which signed the managers' certificate.
    pub ca: String,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls")
            .field("certificate", &self.certificate)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

/// A connection to one instance manager. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct InstanceClient {
    inner: Generated<Channel>,
}

/// Connects to the manager at `addr`, which must show a certificate for `server_name`
/// (`<pod>.<cluster>-instances.<namespace>.svc`).
///
/// Dropped calls and dead connections are told by HTTP/2 pings within [`KEEPALIVE_INTERVAL`] + [`KEEPALIVE_TIMEOUT`].
pub async fn connect(addr: SocketAddr, server_name: &str, tls: &ClientTls) -> Result<InstanceClient, ClientError> {
    use secrecy::ExposeSecret as _;

    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.ca))
        .identity(Identity::from_pem(&tls.certificate, tls.key.expose_secret()))
        .domain_name(server_name);
    // SocketAddr writes the brackets of an IPv6 address itself.
    let channel = Endpoint::from_shared(format!("https://{addr}"))
        .and_then(|endpoint| endpoint.tls_config(config))
        .map_err(|source| ClientError::Prepare { addr, source })?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect()
        .await
        .map_err(|source| ClientError::Connect { addr, source })?;
    Ok(InstanceClient {
        inner: Generated::new(channel),
    })
}

impl InstanceClient {
    /// The manager's reports: the present one at once, then each change and at least one every heartbeat (500 ms).
    ///
    /// The stream ends with an error when the connection is lost; a report that cannot be understood is an error item
    /// and does not end it.
    pub async fn watch(
        &mut self,
    ) -> Result<impl Stream<Item = Result<Message, ClientError>> + Send + Unpin + use<>, ClientError> {
        let stream = self
            .inner
            .watch(proto::WatchRequest {})
            .await
            .map_err(call)?
            .into_inner();
        Ok(stream.map(|item| match item {
            Ok(status) => Message::try_from(&status).map_err(ClientError::Convert),
            Err(status) => Err(call(status)),
        }))
    }

    /// Gives a command as number `seq` of this process under the command's epoch.
    ///
    /// An error means that nobody knows whether it was or will be carried out: it counts as sent and unanswered.
    pub async fn command(&mut self, command: &InstanceCommand, seq: u64) -> Result<Reply, ClientError> {
        let limit = command.deadline.saturating_add(COMMAND_MARGIN);
        let reply = tokio::time::timeout(limit, self.send(Request::new(command, seq)))
            .await
            .map_err(|_elapsed| ClientError::Timeout(limit))?
            .map_err(call)?
            .into_inner();
        Reply::try_from(&reply).map_err(ClientError::Convert)
    }

    async fn send(&mut self, request: Request) -> Result<tonic::Response<proto::CommandReply>, tonic::Status> {
        match request {
            Request::Fence(request) => self.inner.fence(request).await,
            Request::Attach(request) => self.inner.attach(request).await,
            Request::Open(request) => self.inner.open(request).await,
            Request::Allow(request) => self.inner.allow(request).await,
            Request::Mark(request) => self.inner.mark(request).await,
            Request::Clone(request) => self.inner.clone_from(request).await,
            Request::Refill(request) => self.inner.refill(request).await,
            Request::Restart(request) => self.inner.restart(request).await,
            Request::Purge(request) => self.inner.purge(request).await,
        }
    }

    /// Asks for nothing but an answer; gives the epoch that is persisted there.
    pub async fn ping(&mut self, from: &str) -> Result<u64, ClientError> {
        let request = proto::PingRequest {
            instance: from.to_owned(),
            ..proto::PingRequest::default()
        };
        Ok(self.exchange(request).await?.epoch)
    }

    /// A ping between instances, with what both know.
    pub(crate) async fn exchange(&mut self, request: proto::PingRequest) -> Result<proto::PingReply, ClientError> {
        let reply = tokio::time::timeout(PING_TIMEOUT, self.inner.ping(request))
            .await
            .map_err(|_elapsed| ClientError::Timeout(PING_TIMEOUT))?
            .map_err(call)?;
        Ok(reply.into_inner())
    }
}

fn call(status: tonic::Status) -> ClientError {
    ClientError::Call(Box::new(status))
}
