//! One task per pod that holds the status stream of its instance manager, and the way to command it.
//!
//! An instance that cannot be reached costs a sleeping task and nothing else: nobody waits for a stream here, passes
//! read what was heard last.

mod ledger;
mod link;
mod session;
mod slot;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::action::InstanceCommand;
use mainstay_core::layout;
use mainstay_core::observed::{Busy, Reach};
use mainstay_core::rules::InstanceName;
use mainstay_instance::client::{COMMAND_MARGIN, ClientError};
use mainstay_instance::convert::{Outcome, Reply};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub use link::{Dialler, GrpcDialler, Link, Messages, Target};

use crate::error::chain;
use crate::index::ClusterName;
use crate::platform::Clock;
use crate::pool::ledger::{Ledgers, Sent};
use crate::pool::session::Session;
use crate::pool::slot::{Connected, Slot};
use crate::trigger::Triggers;

/// Without a message for this long an instance is silent (decision B14: four heartbeats).
pub const SILENT_AFTER: Duration = Duration::from_secs(2);

/// Why a command was not answered.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no stream to the instance now: nothing was sent.
    #[error("failed to command {instance}: it cannot be heard")]
    NotConnected {
        /// The instance.
        instance: InstanceName,
    },
    /// Nobody knows whether it was or will be carried out.
    #[error("failed to get an answer of {instance} to a command")]
    Unanswered {
        /// The instance.
        instance: InstanceName,
        /// Why.
        source: ClientError,
    },
}

/// Streams to all instance managers. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    dialler: Arc<dyn Dialler>,
    clock: Arc<dyn Clock>,
    triggers: Triggers,
    started: Timestamp,
    ledgers: Ledgers,
    clusters: Mutex<HashMap<ClusterName, Cluster>>,
}

/// What is kept for a cluster while it has pods or a CA.
struct Cluster {
    /// CA of its managers' certificates, PEM; tasks wait for it.
    ca: watch::Sender<Option<Arc<str>>>,
    /// Whether a growing GTID set alone calls a pass: only while the cluster waits for something.
    attentive: watch::Sender<bool>,
    members: HashMap<InstanceName, Member>,
    /// When the pods that went were last there.
    gone: HashMap<InstanceName, Timestamp>,
}

struct Member {
    pod: PodAddress,
    slot: Arc<Slot>,
    _task: AbortOnDropHandle<()>,
}

/// Which pod is dialled: another uid or address is another task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// uid of the pod.
    pub uid: String,
    /// Its address.
    pub ip: IpAddr,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(dialler: Arc<dyn Dialler>, clock: Arc<dyn Clock>, triggers: Triggers) -> Self {
        let started = clock.now();
        let ledgers = Ledgers::new(Arc::clone(&clock));
        Self {
            inner: Arc::new(Inner {
                dialler,
                clock,
                triggers,
                started,
                ledgers,
                clusters: Mutex::default(),
            }),
        }
    }

    /// Tells the CA by which the managers of a cluster are known; streams that exist stay.
    pub fn trust(&self, cluster: &ClusterName, ca: Option<&str>) {
        let mut clusters = self.lock();
        let entry = clusters.entry(cluster.clone()).or_default();
        entry.ca.send_if_modified(|current| {
            let changed = current.as_deref() != ca;
            if changed {
                *current = ca.map(Arc::from);
            }
            changed
        });
    }

    /// Makes the tasks those of these pods: must be called whenever a pod came, went or changed its address.
    pub fn set_pods(&self, cluster: &ClusterName, pods: &HashMap<InstanceName, PodAddress>) {
        let now = self.inner.clock.now();
        let mut clusters = self.lock();
        if pods.is_empty() && !clusters.contains_key(cluster) {
            return;
        }
        let entry = clusters.entry(cluster.clone()).or_default();
        let went: Vec<InstanceName> = entry
            .members
            .iter()
            .filter(|(name, m)| pods.get(name) != Some(&m.pod))
            .map(|(n, _)| n.clone())
            .collect();
        for name in went {
            entry.members.remove(&name);
            entry.gone.insert(name, now);
        }
        for (name, pod) in pods {
            if !entry.members.contains_key(name) {
                let member = self.start(cluster, entry, name, pod);
                entry.members.insert(name.clone(), member);
                entry.gone.remove(name);
            }
        }
    }

    /// Forgets a cluster that was deleted: its CA, its tasks, and the commands that were sent to it.
    pub fn forget(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
        self.inner.ledgers.forget(cluster);
    }

    /// Whether a growing GTID set alone shall call a pass of this cluster.
    pub fn attend(&self, cluster: &ClusterName, attentive: bool) {
        if let Some(entry) = self.lock().get(cluster) {
            entry
                .attentive
                .send_if_modified(|current| std::mem::replace(current, attentive) != attentive);
        }
    }

    /// What is known of an instance of the cluster with this uid.
    #[must_use]
    pub fn reach(&self, cluster: &ClusterName, uid: &str, instance: &InstanceName) -> Reach {
        let clusters = self.lock();
        let Some(entry) = clusters.get(cluster) else {
            return Reach::Unknown {
                since: self.inner.started,
                reason: "it has no pod".to_owned(),
            };
        };
        let Some(member) = entry.members.get(instance) else {
            let since = entry.gone.get(instance).copied().unwrap_or(self.inner.started);
            return Reach::Unknown {
                since,
                reason: "it has no pod with an address".to_owned(),
            };
        };
        let mut reach = member.slot.reach();
        if let Reach::Heard(heard) = &mut reach {
            let reported = (heard.report.persisted.epoch, heard.report.persisted.seq);
            let standing = self.inner.ledgers.standing(cluster, uid, instance, reported);
            heard.settled = standing.settled;
            heard.busy = standing.busy;
            heard.answer = standing.answer;
        }
        reach
    }

    /// Gives a command to an instance of the cluster with this uid, takes its reply into account and calls a pass.
    ///
    /// The command counts as sent when this returns, before anything is awaited: the next pass must not plan as if it
    /// were not. Dropping the future leaves the command given up.
    pub fn command(
        &self,
        cluster: &ClusterName,
        uid: &str,
        command: InstanceCommand,
    ) -> impl Future<Output = Result<Reply, CommandError>> + Send + use<> {
        let instance = &command.to.instance;
        let slot = self
            .lock()
            .get(cluster)
            .and_then(|entry| entry.members.get(instance))
            .map(|m| Arc::clone(&m.slot));
        let connected = slot.and_then(|slot| slot.link().map(|link| (slot, link)));
        let busy = Busy {
            verb: command.verb.kind(),
            epoch: command.epoch,
        };
        let way = connected.map(|to| (to, self.inner.ledgers.send(cluster, uid, instance, busy)));
        let (pool, cluster) = (self.clone(), cluster.clone());
        async move {
            match way {
                Some(((slot, link), sent)) => pool.exchange(&cluster, &slot, &link, sent, command).await,
                None => Err(CommandError::NotConnected {
                    instance: command.to.instance,
                }),
            }
        }
    }

    async fn exchange(
        &self,
        cluster: &ClusterName,
        slot: &Slot,
        link: &Connected,
        sent: Sent,
        command: InstanceCommand,
    ) -> Result<Reply, CommandError> {
        let instance = command.to.instance.clone();
        let limit = command.deadline.saturating_add(COMMAND_MARGIN);
        let answer = tokio::time::timeout(limit, link.link.command(command, sent.seq())).await;
        let result = match answer.unwrap_or(Err(ClientError::Timeout(limit))) {
            Ok(reply) => {
                if let Some(report) = &reply.report {
                    slot.replied(link.session, reply.sequence, report, self.inner.clock.now());
                }
                sent.answered(match &reply.outcome {
                    Outcome::Applied | Outcome::Already => None,
                    Outcome::Refused { reason } => Some(reason.clone()),
                });
                Ok(reply)
            }
            Err(source) => {
                sent.given_up(chain(&source));
                Err(CommandError::Unanswered { instance, source })
            }
        };
        self.inner.triggers.poke(cluster);
        result
    }

    fn start(&self, cluster: &ClusterName, entry: &Cluster, name: &InstanceName, pod: &PodAddress) -> Member {
        let slot = Arc::new(Slot::new(self.inner.clock.now()));
        let session = Session {
            dialler: Arc::clone(&self.inner.dialler),
            clock: Arc::clone(&self.inner.clock),
            triggers: self.inner.triggers.clone(),
            slot: Arc::clone(&slot),
            cluster: cluster.clone(),
            instance: name.clone(),
            pod_uid: pod.uid.clone(),
            addr: SocketAddr::new(pod.ip, layout::PORT_GRPC),
            ca: entry.ca.subscribe(),
            attentive: entry.attentive.subscribe(),
        };
        Member {
            pod: pod.clone(),
            slot,
            _task: AbortOnDropHandle::new(tokio::spawn(session.run())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Cluster>> {
        self.inner.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            ca: watch::Sender::new(None),
            attentive: watch::Sender::new(true),
            members: HashMap::new(),
            gone: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests;
