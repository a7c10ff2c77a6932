//! The operator's connections to instance managers: the controller's `Dialler`, on the model.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use mainstay_controller::pool::{Dialler, Link, Messages, Target};
use mainstay_core::action::InstanceCommand;
use mainstay_instance::client::{COMMAND_MARGIN, ClientError};
use mainstay_instance::convert::{Message, Reply, status};
use tokio::time::Instant;

use super::{Inner, World};

/// Time between two messages when nothing changes.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Time between two looks at positions while a change is expected: a manager reads them, nobody tells it.
const BUSY_SAMPLE: Duration = Duration::from_millis(50);
/// For so long after a command a change is expected.
const BUSY: Duration = Duration::from_secs(3);
/// After this time a connection that carries nothing is given up (HTTP/2 keep-alive).
const KEEPALIVE: Duration = Duration::from_secs(3);
/// One way over the network.
const TRIP: Duration = Duration::from_micros(200);

/// Dials instance managers for one operator process.
#[derive(Clone, Debug)]
pub struct SimDialler {
    world: World,
    operator: String,
}

impl SimDialler {
    /// A dialler for the operator of that name: cuts refer to it.
    #[must_use]
    pub fn new(world: World, operator: &str) -> Self {
        Self {
            world,
            operator: operator.to_owned(),
        }
    }
}

fn broken(reason: &str) -> ClientError {
    ClientError::Call(Box::new(tonic::Status::unavailable(reason)))
}

impl Dialler for SimDialler {
    fn dial(&self, target: Target) -> BoxFuture<'static, Result<Arc<dyn Link>, ClientError>> {
        let Self { world, operator } = self.clone();
        async move {
            let deadline = Instant::now() + mainstay_instance::client::CONNECT_TIMEOUT;
            tokio::time::sleep(TRIP).await;
            // A host that is away drops packets; one that is there and has no listener refuses.
            let found = |w: &mut Inner| match w.processes.values().find(|p| p.ip == target.addr.ip()) {
                Some(p) if w.network.connected(&operator, &p.node) && w.is_up(&p.node) => {
                    let right = p.instance == target.instance.0 && p.namespace == target.cluster.namespace;
                    Some(if right {
                        Ok(p.id)
                    } else {
                        Err(broken("certificate of another instance"))
                    })
                }
                None if w.refuses(&target.pod_uid) => Some(Err(broken("connection refused"))),
                Some(_) | None => None,
            };
            match world.until(deadline, found).await {
                Some(Ok(process)) => Ok(Arc::new(SimLink {
                    world,
                    operator,
                    process,
                }) as Arc<dyn Link>),
                Some(Err(error)) => Err(error),
                None => Err(broken("connection timed out")),
            }
        }
        .boxed()
    }
}

impl Inner {
    /// Whether the node of a pod that has no process is up: then the kernel answers with a reset.
    fn refuses(&self, pod_uid: &str) -> bool {
        self.in_dns.contains(pod_uid) && self.nodes.values().all(|n| n.up)
    }
}

/// A connection to one process: another process at the same address is another connection.
#[derive(Clone, Debug)]
struct SimLink {
    world: World,
    operator: String,
    process: u64,
}

/// What passes on a connection now.
enum Passage {
    Open,
    Silent,
    Reset,
}

impl SimLink {
    fn passage(&self, w: &Inner) -> Passage {
        match w.processes.get(&self.process) {
            Some(p) if w.network.connected(&self.operator, &p.node) => Passage::Open,
            Some(_) => Passage::Silent,
            // The other side is gone; whether it says so depends on its node, and either way nothing comes any more.
            None => Passage::Reset,
        }
    }
}

/// Counts a stream as long as it lives.
struct Counted(World);

impl Counted {
    fn new(world: &World) -> Self {
        world.with(|w| w.streams += 1);
        Self(world.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.with(|w| w.streams -= 1);
    }
}

/// A status stream that is up.
struct Watching {
    link: SimLink,
    changes: tokio::sync::watch::Receiver<u64>,
    last: Option<mainstay_core::observed::InstanceReport>,
    shape: Option<u64>,
    sample: Instant,
    busy_until: Instant,
    /// Something changed that the next sample may show.
    pending: bool,
    beat: Instant,
    heard: Instant,
    ended: bool,
    _counted: Counted,
}

impl Watching {
    async fn next(&mut self) -> Option<Result<Message, ClientError>> {
        if self.ended {
            return None;
        }
        loop {
            self.changes.borrow_and_update();
            let now = Instant::now();
            match self.link.world.with(|w| self.link.passage(w)) {
                Passage::Reset => {
                    self.ended = true;
                    return Some(Err(broken("connection reset")));
                }
                Passage::Open => {
                    self.heard = now;
                    if let Some(message) = self.message(now) {
                        return Some(message);
                    }
                }
                Passage::Silent if now >= self.heard + KEEPALIVE => {
                    self.ended = true;
                    return Some(Err(broken("keep-alive timed out")));
                }
                Passage::Silent => {}
            }
            // Between two samples nothing but a change of shape is told.
            let wake = if self.pending {
                self.sample.min(self.beat)
            } else {
                self.beat
            };
            let wake = wake.max(now + Duration::from_millis(1));
            tokio::select! {
                biased;
                changed = self.changes.changed() => if changed.is_err() { return None },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// The present report, when it differs from the last one or a heartbeat is due.
    fn message(&mut self, now: Instant) -> Option<Result<Message, ClientError>> {
        let due = now >= self.beat;
        let shape = self.link.world.with(|w| w.shape(self.link.process));
        if !due && shape == self.shape && now < self.sample {
            self.pending = true;
            return None;
        }
        if shape != self.shape {
            self.busy_until = now + BUSY;
        }
        self.shape = shape;
        self.pending = false;
        self.sample = now + if now < self.busy_until { BUSY_SAMPLE } else { HEARTBEAT };
        let (sequence, report) = self.link.world.with(|w| w.message(self.link.process, now))?;
        let mut ageless = report.clone();
        ageless.replication.last_heard = None;
        ageless.replication.applier_failing = report.replication.applier_failing.map(|_| Duration::ZERO);
        if !due && self.last.as_ref() == Some(&ageless) {
            return None;
        }
        self.last = Some(ageless);
        self.beat = now + HEARTBEAT;
        let instance = self
            .link
            .world
            .with(|w| w.processes.get(&self.link.process).map(super::process::Process::name))?;
        // Through the wire format and back, so that the conversion is part of what is tested.
        let wire = status(&instance, sequence, &report);
        Some(Message::try_from(&wire).map_err(ClientError::Convert))
    }
}

impl Link for SimLink {
    fn watch(&self) -> BoxFuture<'static, Result<Messages, ClientError>> {
        let link = self.clone();
        async move {
            let now = Instant::now();
            let watching = Watching {
                changes: link.world.changes(),
                last: None,
                shape: None,
                sample: now,
                busy_until: now,
                pending: false,
                beat: now,
                heard: now,
                ended: false,
                _counted: Counted::new(&link.world),
                link,
            };
            let messages = stream::unfold(watching, |mut watching| async move {
                let message = watching.next().await?;
                Some((message, watching))
            });
            Ok(messages.boxed())
        }
        .boxed()
    }

    fn command(&self, command: InstanceCommand, seq: u64) -> BoxFuture<'static, Result<Reply, ClientError>> {
        let link = self.clone();
        let limit = command.deadline + COMMAND_MARGIN;
        async move {
            // A task of its own: once sent, a command arrives whether or not its sender still waits, or lives.
            let delivery = tokio::spawn(async move {
                tokio::time::sleep(TRIP).await;
                // Retransmitted for a while over a cut; then the connection is given up.
                let arrives = |w: &mut Inner| match link.passage(w) {
                    Passage::Open => Some(true),
                    Passage::Reset => Some(false),
                    Passage::Silent => None,
                };
                if link
                    .world
                    .until(Instant::now() + Duration::from_secs(15), arrives)
                    .await
                    != Some(true)
                {
                    return Err(broken("connection lost"));
                }
                let answer = link.world.command(link.process, &command, seq).await;
                tokio::time::sleep(TRIP).await;
                link.world
                    .until(Instant::now() + Duration::from_secs(15), arrives)
                    .await;
                answer.map_err(|_dead| broken("connection reset"))
            });
            match tokio::time::timeout(limit, delivery).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(broken("delivery failed")),
                Err(_) => Err(ClientError::Timeout(limit)),
            }
        }
        .boxed()
    }
}
