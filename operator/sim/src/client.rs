//! SQL clients: they follow the primary Service and write down what they were told.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::history::Writes;
use crate::kubernetes::Resource;
use crate::world::{Inner, World};

/// How long a client waits for the answer to a commit.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server said that it is committed.
    Acknowledged,
    /// The server said no, or could not be reached: it did not happen.
    Refused,
    /// The connection was lost, or patience was: nobody knows.
    Unknown,
}

impl World {
    /// Address behind the Service `<cluster>-primary`.
    #[must_use]
    pub fn primary_address(&self, namespace: &str, cluster: &str) -> Option<IpAddr> {
        let slices = Resource::find("discovery.k8s.io", "endpointslices")?;
        let service = format!("{cluster}-primary");
        let found = self.objects().list(slices, namespace).into_iter().find(|slice| {
            slice
                .pointer("/metadata/labels/kubernetes.io~1service-name")
                .and_then(Value::as_str)
                == Some(&service)
        })?;
        found
            .pointer("/endpoints/0/addresses/0")
            .and_then(Value::as_str)?
            .parse()
            .ok()
    }

    /// Commits one row through the primary Service.
    pub async fn write(&self, namespace: &str, cluster: &str) -> Outcome {
        match self.primary_address(namespace, cluster) {
            Some(address) => self.write_at(address, namespace, cluster).await,
            None => Outcome::Refused,
        }
    }

    /// Commits one row on whoever has an address, as a client with an old connection or a stale route does.
    pub async fn write_at(&self, address: IpAddr, namespace: &str, cluster: &str) -> Outcome {
        let Some((row, committed)) = self.begin_at(address) else {
            return Outcome::Refused;
        };
        let outcome = match tokio::time::timeout(PATIENCE, committed).await {
            Ok(Ok(())) => Outcome::Acknowledged,
            Ok(Err(_)) | Err(_) => Outcome::Unknown,
        };
        self.with(|w| {
            let writes = w.history.of(namespace, cluster);
            match outcome {
                Outcome::Acknowledged => writes.acknowledged.insert(row),
                Outcome::Unknown | Outcome::Refused => writes.unknown.insert(row),
            }
        });
        outcome
    }

    /// Begins to commit a row on whoever has an address, if it takes it. The receiver is told when it is committed.
    #[must_use]
    pub fn begin_at(&self, address: IpAddr) -> Option<(u64, tokio::sync::oneshot::Receiver<()>)> {
        self.change(|w| w.begin_write(address))
    }

    /// Writes in a loop until the task is aborted.
    #[must_use]
    pub fn write_in_a_loop(&self, namespace: &str, cluster: &str, every: Duration) -> JoinHandle<()> {
        let (world, namespace, cluster) = (self.clone(), namespace.to_owned(), cluster.to_owned());
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            loop {
                if world.write(&namespace, &cluster).await == Outcome::Acknowledged {
                    let now = Instant::now();
                    let gap = last.map_or(Duration::ZERO, |l| now - l);
                    last = Some(now);
                    world.with(|w| {
                        let longest = &mut w.history.of(&namespace, &cluster).longest_gap;
                        *longest = gap.max(*longest);
                    });
                    tokio::time::sleep(every).await;
                } else {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        })
    }

    /// What is wrong with a cluster's data now: acknowledged rows that its open primary does not have, more than one
    /// open primary, none, or what was violated on the way.
    #[must_use]
    pub fn judge(&self, namespace: &str, cluster: &str) -> Vec<String> {
        self.with(|w| {
            let mut wrong = w.history.violations.clone();
            let open: Vec<_> = w
                .processes
                .values()
                .filter(|p| p.namespace == namespace && p.cluster == cluster && p.writable)
                .map(|p| (p.instance.clone(), p.claim.clone()))
                .collect();
            let [(instance, claim)] = open.as_slice() else {
                wrong.push(format!("open primaries of {namespace}/{cluster}: {open:?}"));
                return wrong;
            };
            let rows = w
                .volumes
                .get(claim)
                .and_then(|v| v.data.as_ref())
                .map(|d| d.rows.clone())
                .unwrap_or_default();
            let Writes { acknowledged, .. } = w.history.of(namespace, cluster);
            let lost: Vec<_> = acknowledged.difference(&rows).copied().collect();
            if !lost.is_empty() {
                wrong.push(format!("acknowledged rows that {instance} does not have: {lost:?}"));
            }
            wrong
        })
    }

    /// Number of acknowledged rows of a cluster.
    #[must_use]
    pub fn acknowledged(&self, namespace: &str, cluster: &str) -> usize {
        self.with(|w| w.history.of(namespace, cluster).acknowledged.len())
    }
}

impl Inner {
    /// Lets a client's commit in, if the server behind the address takes it.
    fn begin_write(&mut self, address: IpAddr) -> Option<(u64, tokio::sync::oneshot::Receiver<()>)> {
        let row = self.random.bits();
        let process = self.processes.values_mut().find(|p| p.ip == address)?;
        if !process.running() || !process.writable || process.closing {
            return None;
        }
        let data = self.volumes.get_mut(&process.claim)?.data.as_mut()?;
        let (entry, committed) = crate::world::waiting(data.append(Some(row))?);
        process.waiting.push(entry);
        Some((row, committed))
    }

    /// Commits a row on an instance past all rules, as somebody does who logs in there: an errant transaction.
    pub fn write_errant(&mut self, namespace: &str, instance: &str, row: u64) {
        let claim = self.process(namespace, instance).map(|p| p.claim.clone());
        let volume = claim.and_then(|claim| self.volumes.get_mut(&claim));
        if let Some(data) = volume.and_then(|v| v.data.as_mut()) {
            data.append(Some(row));
            data.recover();
        }
    }

    /// Nobody may be opened who lacks an acknowledged row.
    pub(crate) fn check_history_at_opening(&mut self, id: u64) {
        let Some(process) = self.processes.get(&id) else { return };
        let (namespace, cluster, instance) = (
            process.namespace.clone(),
            process.cluster.clone(),
            process.instance.clone(),
        );
        let rows = self
            .volumes
            .get(&process.claim)
            .and_then(|v| v.data.as_ref())
            .map(|d| d.rows.clone());
        let rows = rows.unwrap_or_default();
        let lost = self
            .history
            .of(&namespace, &cluster)
            .acknowledged
            .difference(&rows)
            .count();
        if lost > 0 {
            self.history.violations.push(format!(
                "{namespace}/{instance} was opened without {lost} acknowledged rows"
            ));
        }
    }
}
