//! The gRPC service: who may ask what, and how it reaches the commands.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use jiff::Timestamp;
use mainstay_core::action::{Application, Endpoint, Recorded, Verb};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use crate::commands::{Commands, Head};
use crate::convert::gtid_set;
use crate::hearing;
use crate::peers;
use crate::proto;
use crate::proto::instance_server::{Instance, InstanceServer};
use crate::shared::Shared;
use crate::tls::{Connection, Reloadable, Role, accept};

/// A connection from which nothing comes for this long is asked for a sign of life. An operator that only listens says
/// nothing else, and self-fencing wants to know whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// How long that may take before the connection is closed.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// A command may not keep the others waiting for longer.
const LONGEST_DEADLINE: Duration = Duration::from_mins(1);

/// The service.
pub(crate) struct Service {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Arc<Commands>,
}

/// Serves until the manager ends.
pub(crate) async fn serve(
    listener: tokio::net::TcpListener,
    tls: Reloadable,
    instance_uri: String,
    service: Service,
) -> Result<(), tonic::transport::Error> {
    let incoming: tokio_stream::wrappers::ReceiverStream<Result<Connection, std::io::Error>> =
        accept(listener, tls, instance_uri, Arc::clone(&service.shared.hearing));
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(InstanceServer::new(service))
        .serve_with_incoming(incoming)
        .await
}

fn require_operator<T>(request: &Request<T>) -> Result<(), Status> {
    match request.extensions().get::<Role>() {
        Some(Role::Operator) => Ok(()),
        Some(Role::Instance) | None => Err(Status::permission_denied("only the operator may command")),
    }
}

fn head(command: Option<proto::Command>) -> Result<Head, Status> {
    let command = command.ok_or_else(|| Status::invalid_argument("the command has no head"))?;
    Ok(Head {
        epoch: command.epoch,
        seq: command.seq,
        incarnation: Incarnation(command.incarnation),
        deadline: Duration::from_millis(command.deadline_ms.into()).min(LONGEST_DEADLINE),
    })
}

fn endpoint(endpoint: Option<proto::Endpoint>) -> Result<Endpoint, Status> {
    let endpoint = endpoint.ok_or_else(|| Status::invalid_argument("the command names no other instance"))?;
    let port = u16::try_from(endpoint.port).map_err(|_large| Status::invalid_argument("the port is no port"))?;
    Ok(Endpoint {
        id: MemberId {
            instance: InstanceName(endpoint.instance),
            incarnation: Incarnation(endpoint.incarnation),
        },
        host: endpoint.host,
        port,
    })
}

impl Service {
    async fn execute(&self, head: Head, verb: Verb) -> Result<Response<proto::CommandReply>, Status> {
        Ok(Response::new(Arc::clone(&self.commands).execute(head, verb).await))
    }
}

#[tonic::async_trait]
impl Instance for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::Status, Status>> + Send>>;

    async fn watch(&self, _request: Request<proto::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let heartbeat = self.shared.config.timing.heartbeat;
        Ok(Response::new(Box::pin(statuses(self.shared.watch_status(), heartbeat))))
    }

    async fn ping(&self, request: Request<proto::PingRequest>) -> Result<Response<proto::PingReply>, Status> {
        let is_instance = request.extensions().get::<Role>() == Some(&Role::Instance);
        let request = request.into_inner();
        let hearing = &self.shared.hearing;
        if is_instance {
            let reign = hearing::reign(request.reign.as_ref());
            hearing.peer(&request.instance, reign, request.receives);
        }
        let told = self.shared.state().told;
        Ok(Response::new(proto::PingReply {
            instance: self.shared.config.instance.0.clone(),
            epoch: told.epoch,
            reign: hearing.reign(&told).as_ref().map(Into::into),
            receives: peers::receives(&self.shared),
        }))
    }

    async fn fence(&self, request: Request<proto::FenceRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        self.execute(head(request.into_inner().command)?, Verb::Fence).await
    }

    async fn attach(&self, request: Request<proto::AttachRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let verb = Verb::Attach {
            source: endpoint(request.source)?,
        };
        self.execute(head(request.command)?, verb).await
    }

    async fn open(&self, request: Request<proto::OpenRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let baseline =
            gtid_set("baseline", &request.baseline).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let application = request.application.map(|asked| Application {
            database: asked.database,
            user: asked.user,
        });
        let verb = Verb::Open {
            members: request.members.iter().map(Into::into).collect(),
            acks_required: request.acks_required,
            baseline,
            recorded: Recorded {
                epoch: request.reign,
                since: Timestamp::from_microsecond(request.reign_since_us).unwrap_or_default(),
            },
            application: application.filter(|asked| !asked.database.is_empty() && !asked.user.is_empty()),
        };
        self.execute(head(request.command)?, verb).await
    }

    async fn allow(&self, request: Request<proto::AllowRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let members = request.members.iter().map(Into::into).collect();
        let verb = Verb::Allow {
            members,
            acks_required: request.acks_required,
        };
        self.execute(head(request.command)?, verb).await
    }

    async fn mark(&self, request: Request<proto::MarkRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        self.execute(head(request.into_inner().command)?, Verb::Mark).await
    }

    async fn clone_from(&self, request: Request<proto::CloneRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let verb = Verb::Clone {
            donor: endpoint(request.donor)?,
            keep_former: request.keep_former,
        };
        self.execute(head(request.command)?, verb).await
    }

    async fn restart(&self, request: Request<proto::RestartRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        self.execute(head(request.into_inner().command)?, Verb::Restart).await
    }

    async fn refill(&self, request: Request<proto::RefillRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let at_least =
            gtid_set("at_least", &request.at_least).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let verb = Verb::Refill {
            at_least,
            keep_former: request.keep_former,
        };
        self.execute(head(request.command)?, verb).await
    }

    async fn purge(&self, request: Request<proto::PurgeRequest>) -> Result<Response<proto::CommandReply>, Status> {
        require_operator(&request)?;
        let request = request.into_inner();
        let stored =
            gtid_set("stored", &request.stored).map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.execute(head(request.command)?, Verb::Purge { stored }).await
    }
}

/// The status now, then each that says something new, and the last one again after each heartbeat without.
fn statuses(
    mut changes: watch::Receiver<Arc<proto::Status>>,
    heartbeat: Duration,
) -> impl Stream<Item = Result<proto::Status, Status>> + Send {
    changes.mark_changed();
    futures::stream::unfold(changes, move |mut changes| async move {
        if let Ok(Err(_ended)) = timeout(heartbeat, changes.changed()).await {
            return None;
        }
        let status = proto::Status::clone(&changes.borrow_and_update());
        Some((Ok(status), changes))
    })
}
