//! The connection to one instance manager, behind a trait so that a test can be the instance.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use mainstay_core::action::InstanceCommand;
use mainstay_core::names::Names;
use mainstay_core::rules::InstanceName;
use mainstay_instance::client::{self, ClientError, ClientTls, InstanceClient};
use mainstay_instance::convert::{Message, Reply};
use tokio::sync::Semaphore;

use crate::index::ClusterName;
use crate::operator_ca::Identity;

/// Whom to dial.
#[derive(Clone, Debug)]
pub struct Target {
    /// Cluster.
    pub cluster: ClusterName,
    /// Instance.
    pub instance: InstanceName,
    /// uid of the pod.
    pub pod_uid: String,
    /// Address of the manager.
    pub addr: SocketAddr,
    /// CA of the cluster, PEM: who may answer.
    pub ca: Arc<str>,
}

impl Target {
    /// Name that the manager's certificate must carry (decision B11).
    #[must_use]
    pub fn server_name(&self) -> String {
        Names::new(&self.cluster.namespace, &self.cluster.name).instance_host(&self.instance)
    }
}

/// Stream of a manager's messages.
pub type Messages = BoxStream<'static, Result<Message, ClientError>>;

/// Makes connections.
pub trait Dialler: Send + Sync + 'static {
    /// Connects to a manager. Ends by itself within seconds.
    fn dial(&self, target: Target) -> BoxFuture<'static, Result<Arc<dyn Link>, ClientError>>;
}

/// A connection.
pub trait Link: Send + Sync + 'static {
    /// The manager's messages: the present state at once, then each change and every heartbeat.
    fn watch(&self) -> BoxFuture<'static, Result<Messages, ClientError>>;

    /// Gives a command as number `seq` of this process.
    fn command(&self, command: InstanceCommand, seq: u64) -> BoxFuture<'static, Result<Reply, ClientError>>;
}

/// Dials with gRPC over mutual TLS.
pub struct GrpcDialler {
    identity: Identity,
    /// Bounds the handshakes after a start with many instances; black-holed ones hold a permit for 2 s at most.
    permits: Arc<Semaphore>,
}

/// Connections that are made at the same time.
const DIALS: usize = 256;

impl GrpcDialler {
    /// A dialler that shows this identity.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            permits: Arc::new(Semaphore::new(DIALS)),
        }
    }
}

impl fmt::Debug for GrpcDialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcDialler").finish_non_exhaustive()
    }
}

impl Dialler for GrpcDialler {
    fn dial(&self, target: Target) -> BoxFuture<'static, Result<Arc<dyn Link>, ClientError>> {
        let identity = self.identity.current();
        let permits = Arc::clone(&self.permits);
        async move {
            // The semaphore is never closed; without a permit the dial is merely not bounded.
            let _permit = permits.acquire().await;
            let tls = ClientTls {
                certificate: identity.certificate.clone(),
                key: identity.key.clone(),
                ca: target.ca.to_string(),
            };
            let client = client::connect(target.addr, &target.server_name(), &tls).await?;
            Ok(Arc::new(GrpcLink(client)) as Arc<dyn Link>)
        }
        .boxed()
    }
}

struct GrpcLink(InstanceClient);

impl Link for GrpcLink {
    fn watch(&self) -> BoxFuture<'static, Result<Messages, ClientError>> {
        let mut client = self.0.clone();
        async move { Ok(client.watch().await?.boxed()) }.boxed()
    }

    fn command(&self, command: InstanceCommand, seq: u64) -> BoxFuture<'static, Result<Reply, ClientError>> {
        let mut client = self.0.clone();
        async move { client.command(&command, seq).await }.boxed()
    }
}
