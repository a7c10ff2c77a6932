//! A client that appends to lists and reads them, and the checker of what it saw.
//!
//! A list is one row, so the database puts its appends into one order, and every read shows a beginning of it. That makes
//! the histories strong: beside a lost write the checker finds one that happened twice, one that happened although it was
//! refused, two orders of the same list (two primaries), and a read that had forgotten what its own client was told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::Cluster;
use crate::sql::{Client, Login, PATIENCE};

/// Time between two operations of one client.
const PERIOD: Duration = Duration::from_millis(25);
/// Appends to one list before the next one is begun: rows stay small.
const LONGEST: u64 = 200;
/// Every so many operations is a read.
const READ_EVERY: u64 = 4;

/// What one append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client was told that it is committed.
    Acknowledged,
    /// It was not told; it may have happened.
    Unknown,
}

/// One operation, in the order in which its client did them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A value was appended to a list.
    Append {
        /// The list.
        key: u64,
        /// The value, unique in the whole run.
        value: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// A list was read on the primary.
    Read {
        /// The list.
        key: u64,
        /// What was in it.
        seen: Vec<u64>,
    },
}

/// What one client did, in order.
pub type Log = Vec<Operation>;

/// Compares what clients did with the lists as they are at the end; what is wrong, in words.
#[must_use]
pub fn check(logs: &[Log], lists: &BTreeMap<u64, Vec<u64>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut attempted = BTreeSet::new();
    for operation in logs.iter().flatten() {
        if let Operation::Append { key, value, outcome } = operation {
            attempted.insert((*key, *value));
            let there = lists.get(key).is_some_and(|list| list.contains(value));
            if *outcome == Outcome::Acknowledged && !there {
                wrong.push(format!("list {key}: {value} was acknowledged and is lost"));
            }
        }
    }
    for (key, list) in lists {
        let mut met = BTreeSet::new();
        for value in list {
            if !met.insert(value) {
                wrong.push(format!("list {key}: {value} is in it twice"));
            }
            if !attempted.contains(&(*key, *value)) {
                wrong.push(format!("list {key}: {value} was never appended"));
            }
        }
    }
    for log in logs {
        reads(log, lists, &mut wrong);
    }
    wrong
}

/// Every read shows a beginning of the list, with everything of which its client had been told before.
fn reads(log: &Log, lists: &BTreeMap<u64, Vec<u64>>, wrong: &mut Vec<String>) {
    let mut told: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for operation in log {
        match operation {
            Operation::Append { key, value, outcome } => {
                if *outcome == Outcome::Acknowledged {
                    told.entry(*key).or_default().push(*value);
                }
            }
            Operation::Read { key, seen } => {
                let list = lists.get(key).map_or(&[][..], Vec::as_slice);
                if !list.starts_with(seen) {
                    wrong.push(format!(
                        "list {key}: {seen:?} was read, which is no beginning of {list:?}"
                    ));
                }
                let forgotten = told.get(key).into_iter().flatten().find(|value| !seen.contains(value));
                if let Some(value) = forgotten {
                    wrong.push(format!(
                        "list {key}: a read did not show {value}, which its client had been told of"
                    ));
                }
            }
        }
    }
}

/// Clients that append and read.
#[derive(Debug)]
pub struct Lists {
    stop: watch::Sender<bool>,
    clients: Vec<JoinHandle<Log>>,
    table: String,
}

impl Lists {
    /// Makes the table and begins with `clients` clients, which share the lists.
    pub async fn start(login: &Login, table: &str, clients: u64) -> Result<Self> {
        let mut client = login.connect().await?;
        client
            .execute(&format!(
                "CREATE TABLE {table} (k BIGINT UNSIGNED PRIMARY KEY, v MEDIUMTEXT NOT NULL)"
            ))
            .await?;
        let (stop, stopped) = watch::channel(false);
        let one = |number| tokio::spawn(run(login.clone(), table.to_owned(), number, clients, stopped.clone()));
        Ok(Self {
            clients: (0..clients).map(one).collect(),
            stop,
            table: table.to_owned(),
        })
    }

    /// Ends the clients and compares with what every instance holds; how many operations there were.
    pub async fn finish(self, cluster: &Cluster) -> Result<usize> {
        self.stop
            .send(true)
            .context("the clients of lists ended before they were told to")?;
        let mut logs = Vec::new();
        for client in self.clients {
            logs.push(client.await.context("a client of lists panicked")?);
        }
        let login = cluster.app().await?;
        let executed = login
            .connect()
            .await?
            .variable("gtid_executed")
            .await?
            .replace('\n', "");
        for ordinal in 0..cluster.get().await?.spec.replicas {
            let pod = cluster.instance(ordinal);
            let mut client = login.at(cluster.pod_address(&pod).await?).connect().await?;
            client.wait_for_gtids(&executed, 30).await?;
            let wrong = check(&logs, &all(&mut client, &self.table).await?);
            let shown: Vec<_> = wrong.iter().take(5).collect();
            ensure!(
                wrong.is_empty(),
                "{pod}: {} things are wrong with the lists: {shown:#?}",
                wrong.len()
            );
        }
        Ok(logs.iter().map(Vec::len).sum())
    }
}

async fn all(client: &mut Client, table: &str) -> Result<BTreeMap<u64, Vec<u64>>> {
    let rows: Vec<(u64, String)> = client.rows(&format!("SELECT k, v FROM {table}")).await?;
    rows.into_iter().map(|(key, text)| Ok((key, values(&text)?))).collect()
}

fn values(text: &str) -> Result<Vec<u64>> {
    let value = |value: &str| {
        value
            .parse()
            .with_context(|| format!("{value:?} in a list is no number"))
    };
    text.split(',').filter(|value| !value.is_empty()).map(value).collect()
}

/// One client: its values are congruent to its number, so that no two clients append the same.
async fn run(login: Login, table: String, number: u64, clients: u64, mut stopped: watch::Receiver<bool>) -> Log {
    let mut log = Log::new();
    let mut session: Option<Client> = None;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for step in 0.. {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            _ = ticks.tick() => {}
        }
        let mut client = match session.take() {
            Some(client) => client,
            None => match login.connect_within(PATIENCE).await {
                Ok(client) => client,
                Err(_) => continue,
            },
        };
        let key = step / LONGEST;
        if step % READ_EVERY == 3 {
            let read = tokio::time::timeout(
                PATIENCE,
                client.rows::<String>(&format!("SELECT v FROM {table} WHERE k = {key}")),
            )
            .await;
            // A read that failed showed nothing.
            if let Ok(Ok(rows)) = read
                && let Ok(seen) = rows.first().map_or(Ok(Vec::new()), |text| values(text))
            {
                log.push(Operation::Read { key, seen });
                session = Some(client);
            }
            continue;
        }
        let value = step * clients + number;
        let append =
            format!("INSERT INTO {table} VALUES ({key}, '{value}') ON DUPLICATE KEY UPDATE v = CONCAT(v, ',{value}')");
        let outcome = match client.execute_within(&append, PATIENCE).await {
            Ok(()) => {
                session = Some(client);
                Outcome::Acknowledged
            }
            Err(_) => Outcome::Unknown,
        };
        log.push(Operation::Append { key, value, outcome });
    }
    log
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn append(value: u64, outcome: Outcome) -> Operation {
        Operation::Append { key: 0, value, outcome }
    }

    fn read(seen: &[u64]) -> Operation {
        Operation::Read {
            key: 0,
            seen: seen.to_vec(),
        }
    }

    /// What a cluster that breaks a rule would show, and what is right.
    #[rstest]
    #[case::right(&[1, 2, 3], None)]
    #[case::unknown_and_not_there(&[1, 3], None)]
    #[case::lost(&[1, 2], Some("3 was acknowledged and is lost"))]
    #[case::twice(&[1, 2, 3, 3], Some("3 is in it twice"))]
    #[case::never_appended(&[1, 3, 9], Some("9 was never appended"))]
    fn lists_at_the_end(#[case] list: &[u64], #[case] expected: Option<&str>) {
        let log = vec![
            append(1, Outcome::Acknowledged),
            append(2, Outcome::Unknown),
            append(3, Outcome::Acknowledged),
        ];
        let wrong = check(&[log], &BTreeMap::from([(0, list.to_vec())]));
        match expected {
            Some(expected) => assert!(wrong.iter().any(|wrong| wrong.contains(expected)), "{wrong:?}"),
            None => assert!(wrong.is_empty(), "{wrong:?}"),
        }
    }

    #[rstest]
    #[case::a_beginning(&[1], None)]
    #[case::of_others(&[1, 2], None)]
    #[case::another_order(&[2, 1], Some("no beginning"))]
    #[case::of_another_primary(&[1, 7], Some("no beginning"))]
    #[case::forgotten(&[], Some("did not show 1"))]
    fn what_is_read(#[case] seen: &[u64], #[case] expected: Option<&str>) {
        let mine = vec![append(1, Outcome::Acknowledged), read(seen)];
        let other = vec![append(2, Outcome::Acknowledged), append(7, Outcome::Unknown)];
        let wrong = check(&[mine, other], &BTreeMap::from([(0, vec![1, 2])]));
        match expected {
            Some(expected) => assert!(wrong.iter().any(|wrong| wrong.contains(expected)), "{wrong:?}"),
            None => assert!(wrong.is_empty(), "{wrong:?}"),
        }
    }

    #[test]
    fn lists_as_text() {
        assert_eq!(values("1,22,3").unwrap(), [1, 22, 3]);
        assert!(values("").unwrap().is_empty());
        assert!(values("1,x").is_err());
    }
}
