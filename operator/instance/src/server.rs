//! What commands may do to the server process: a port of the supervisor.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::GtidSet;
use mainstay_core::observed::Mysqld;
use mainstay_mysql::CloneDonor;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::shared::Process;
use crate::shutdown::ReadOnly;

/// The server process.
#[async_trait]
pub(crate) trait Server: Send + Sync {
    /// What it does now.
    fn process(&self) -> Process;

    /// Waits until it answers; otherwise says why it does not.
    async fn running(&self, limit: Duration) -> Result<(), String>;

    /// Kills it (SIGKILL), and says why until it answers again. It has ended when this returns, and is started again,
    /// read-only and detached.
    async fn kill(&self, why: &str);

    /// Ends it cleanly. It has ended when this returns, and is started again.
    async fn stop(&self, proof: ReadOnly);

    /// Begins to replace the data directory. The former one counts no more when this returns.
    async fn clone_from(&self, order: CloneOrder) -> Result<(), String>;
}

/// How a data directory is to be replaced.
#[derive(Clone, Debug)]
pub(crate) struct CloneOrder {
    /// From where the new data come.
    pub(crate) origin: Origin,
    /// The former one stays on the volume, if there is room.
    pub(crate) keep_former: bool,
}

/// From where the data of a new data directory come.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Another instance gives them (CLONE).
    Instance(CloneDonor),
    /// The newest backup of this cluster, and the archive behind it.
    Store {
        /// What they must hold.
        at_least: GtidSet,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(donor) => f.write_str(&donor.host),
            Self::Store { .. } => f.write_str("the newest backup"),
        }
    }
}

/// What is asked of the supervisor.
pub(crate) enum Order {
    /// SIGKILL, then start again; why.
    Kill(String),
    /// SIGTERM, then start again.
    Stop(ReadOnly),
    /// End for good: cleanly with a proof, by SIGKILL without.
    Shutdown(Option<ReadOnly>),
    /// Replace the data directory.
    Clone(CloneOrder),
}

/// An order, and how to say that it is carried out.
pub(crate) struct Request {
    pub(crate) order: Order,
    pub(crate) done: oneshot::Sender<Result<(), String>>,
}

/// The supervisor, from outside.
#[derive(Clone)]
pub(crate) struct Handle {
    requests: mpsc::Sender<Request>,
    process: watch::Receiver<Process>,
}

impl Handle {
    pub(crate) const fn new(requests: mpsc::Sender<Request>, process: watch::Receiver<Process>) -> Self {
        Self { requests, process }
    }

    pub(crate) async fn order(&self, order: Order) -> Result<(), String> {
        let gone = |_ended| "the manager is ending".to_owned();
        let (done, answer) = oneshot::channel();
        self.requests
            .send(Request { order, done })
            .await
            .map_err(|_ended| "the manager is ending".to_owned())?;
        answer.await.map_err(gone)?
    }
}

#[async_trait]
impl Server for Handle {
    fn process(&self) -> Process {
        self.process.borrow().clone()
    }

    async fn running(&self, limit: Duration) -> Result<(), String> {
        let mut process = self.process.clone();
        if let Ok(Ok(_running)) = timeout(limit, process.wait_for(|process| process.phase == Mysqld::Running)).await {
            return Ok(());
        }
        let process = self.process();
        let state = match process.phase {
            Mysqld::Initialising => "is making its data directory",
            Mysqld::Starting => "is starting",
            Mysqld::Running => return Ok(()),
            Mysqld::Down => "is down",
            Mysqld::Cloning => "is being cloned",
            Mysqld::Failed => "does not start",
        };
        let colon = if process.message.is_empty() { "" } else { ": " };
        Err(format!("mysqld {state}{colon}{}", process.message))
    }

    async fn kill(&self, why: &str) {
        if let Err(reason) = self.order(Order::Kill(why.to_owned())).await {
            tracing::warn!(reason, "failed to kill mysqld");
        }
    }

    async fn stop(&self, proof: ReadOnly) {
        if let Err(reason) = self.order(Order::Stop(proof)).await {
            tracing::warn!(reason, "failed to stop mysqld");
        }
    }

    async fn clone_from(&self, order: CloneOrder) -> Result<(), String> {
        self.order(Order::Clone(order)).await
    }
}
