//! Which commands were sent and what became of them: the process's side of *settled* (docs/failover.md, "Confirmed").

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_core::observed::{Answer, Busy};
use mainstay_core::rules::InstanceName;

use crate::index::ClusterName;
use crate::platform::Clock;

/// (epoch, seq) of a command.
pub(super) type Pair = (u64, u64);

/// A life of a cluster object and an instance of it. The uid is part of it: epochs of a new cluster begin anew.
type Key = (ClusterName, String, InstanceName);

/// What was sent to all instances. seq rises within the process, over all instances.
pub(super) struct Ledgers {
    clock: Arc<dyn Clock>,
    seq: AtomicU64,
    instances: Mutex<HashMap<Key, Arc<Mutex<Ledger>>>>,
}

#[derive(Debug, Default)]
struct Ledger {
    newest: Pair,
    /// Commands in flight, oldest first.
    open: Vec<(Pair, Busy)>,
    /// Newest command that was given up: it may still be carried out while an older pair is reported.
    lost: Option<Pair>,
    /// Newest command that is not in flight any more.
    answer: Option<(Pair, Answer)>,
}

/// How an instance stands to the commands of this process.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) settled: bool,
    pub(super) busy: Option<Busy>,
    pub(super) answer: Option<Answer>,
}

impl Ledgers {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            seq: AtomicU64::new(0),
            instances: Mutex::default(),
        }
    }

    /// Counts a command as sent, before it is. Unless [`Sent::answered`] is called, it ends as given up.
    pub(super) fn send(&self, cluster: &ClusterName, uid: &str, instance: &InstanceName, command: Busy) -> Sent {
        let key = (cluster.clone(), uid.to_owned(), instance.clone());
        let ledger = Arc::clone(lock(&self.instances).entry(key).or_default());
        let pair = (command.epoch, self.seq.fetch_add(1, Ordering::Relaxed) + 1);
        let mut entry = lock(&ledger);
        entry.newest = entry.newest.max(pair);
        entry.open.push((pair, command));
        drop(entry);
        Sent {
            ledger,
            clock: Arc::clone(&self.clock),
            pair,
            command,
            end: None,
        }
    }

    /// How an instance stands whose report carries this pair, which is that of the newest command that has ended there.
    pub(super) fn standing(
        &self,
        cluster: &ClusterName,
        uid: &str,
        instance: &InstanceName,
        reported: Pair,
    ) -> Standing {
        let key = (cluster.clone(), uid.to_owned(), instance.clone());
        let ledger = lock(&self.instances).get(&key).cloned();
        ledger.map_or(
            Standing {
                settled: true,
                busy: None,
                answer: None,
            },
            |ledger| {
                let ledger = lock(&ledger);
                let lost = ledger.lost.is_some_and(|lost| reported < lost);
                let all_answered = ledger.open.is_empty() && !lost;
                Standing {
                    settled: all_answered || reported >= ledger.newest,
                    busy: ledger.open.last().map(|(_, command)| *command),
                    answer: ledger.answer.as_ref().map(|(_, answer)| answer.clone()),
                }
            },
        )
    }

    /// Forgets what was sent to a cluster that was deleted.
    pub(super) fn forget(&self, cluster: &ClusterName) {
        lock(&self.instances).retain(|(name, _, _), _| name != cluster);
    }
}

/// A command on its way.
pub(super) struct Sent {
    ledger: Arc<Mutex<Ledger>>,
    clock: Arc<dyn Clock>,
    pair: Pair,
    command: Busy,
    end: Option<End>,
}

enum End {
    Answered { refusal: Option<String> },
    GivenUp { reason: String },
}

impl Sent {
    pub(super) fn seq(&self) -> u64 {
        self.pair.1
    }

    /// The manager answered. That alone says nothing of an older one that was given up: what is refused before it is made
    /// durable does not keep an older one from being carried out later. The pair that is reported says it.
    pub(super) fn answered(mut self, refusal: Option<String>) {
        self.end = Some(End::Answered { refusal });
    }

    /// Nobody knows whether it was or will be carried out.
    pub(super) fn given_up(mut self, reason: String) {
        self.end = Some(End::GivenUp { reason });
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| End::GivenUp {
            reason: "it was not waited for".to_owned(),
        });
        let mut ledger = lock(&self.ledger);
        ledger.open.retain(|(pair, _)| *pair != self.pair);
        let failure = match end {
            End::Answered { refusal } => refusal,
            End::GivenUp { reason } => {
                ledger.lost = ledger.lost.max(Some(self.pair));
                Some(reason)
            }
        };
        if ledger.answer.as_ref().is_none_or(|(pair, _)| *pair < self.pair) {
            let Busy { verb, epoch } = self.command;
            ledger.answer = Some((
                self.pair,
                Answer {
                    verb,
                    epoch,
                    at: self.clock.now(),
                    failure,
                },
            ));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use mainstay_core::action::VerbKind;

    use super::*;
    use crate::testing::FixedClock;

    const FENCE: Busy = Busy {
        verb: VerbKind::Fence,
        epoch: 7,
    };
    const ATTACH: Busy = Busy {
        verb: VerbKind::Attach,
        epoch: 7,
    };

    struct World(Ledgers);

    impl World {
        fn new() -> Self {
            Self(Ledgers::new(Arc::new(FixedClock::default())))
        }

        fn send(&self, command: Busy) -> Sent {
            self.0.send(
                &ClusterName::new("db", "shop"),
                "uid",
                &InstanceName("shop-0".to_owned()),
                command,
            )
        }

        fn at(&self, reported: Pair) -> Standing {
            self.0.standing(
                &ClusterName::new("db", "shop"),
                "uid",
                &InstanceName("shop-0".to_owned()),
                reported,
            )
        }
    }

    #[test]
    fn an_instance_is_settled_when_everything_was_answered() {
        let world = World::new();
        assert_eq!(
            world.at((0, 0)),
            Standing {
                settled: true,
                busy: None,
                answer: None
            }
        );
        let sent = world.send(FENCE);
        assert!(!world.at((6, 9)).settled, "in flight");
        assert_eq!(world.at((6, 9)).busy, Some(FENCE));
        assert!(
            world.at((7, 1)).settled,
            "it has ended, though its answer is still on its way"
        );
        sent.answered(None);
        assert!(world.at((7, 1)).settled);
        assert_eq!(world.at((7, 1)).busy, None);
        assert_eq!(
            world.at((7, 1)).answer.map(|a| (a.verb, a.failure)),
            Some((VerbKind::Fence, None))
        );
    }

    #[test]
    fn a_report_with_the_newest_pair_settles_a_command_that_was_given_up() {
        let world = World::new();
        world.send(FENCE).given_up("no answer".to_owned());
        assert!(!world.at((7, 0)).settled);
        assert!(world.at((7, 1)).settled);
        assert_eq!(
            world.at((7, 0)).answer.and_then(|a| a.failure),
            Some("no answer".to_owned())
        );
    }

    #[test]
    fn a_later_command_settles_an_earlier_one_when_it_was_made_durable_but_not_the_other_way_round() {
        let world = World::new();
        drop(world.send(ATTACH));
        world
            .send(FENCE)
            .answered(Some("failed to write the state file".to_owned()));
        assert!(!world.at((0, 0)).settled, "the first one may still arrive");
        world.send(FENCE).answered(None);
        assert!(world.at((7, 3)).settled);

        let older = world.send(ATTACH);
        drop(world.send(FENCE));
        older.answered(Some("no".to_owned()));
        let standing = world.at((7, 4));
        assert!(!standing.settled);
        assert_eq!(
            standing.answer.map(|a| a.verb),
            Some(VerbKind::Fence),
            "the newest, whichever ended last"
        );
    }

    #[test]
    fn a_fence_that_overtakes_is_what_the_instance_is_busy_with() {
        let world = World::new();
        let attach = world.send(ATTACH);
        let fence = world.send(FENCE);
        assert_eq!(world.at((0, 0)).busy, Some(FENCE));
        fence.answered(None);
        assert_eq!(world.at((0, 0)).busy, Some(ATTACH));
        attach.answered(None);
        assert_eq!(world.at((0, 0)).busy, None);
    }

    #[test]
    fn another_life_of_the_cluster_begins_anew() {
        let world = World::new();
        drop(world.send(FENCE));
        let shop = ClusterName::new("db", "shop");
        let other = world
            .0
            .standing(&shop, "new", &InstanceName("shop-0".to_owned()), (1, 2));
        assert!(other.settled);
        world.0.forget(&shop);
        assert!(world.at((0, 0)).settled);
    }
}
