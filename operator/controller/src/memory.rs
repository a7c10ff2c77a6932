//! What a process remembers of a cluster between passes. All of it can be lost at any time: it only saves requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::observed::{ObjectKey, ObjectView, StoreSecret, Warning};
use mainstay_core::progress::Progress;
use tokio::time::Instant;

use crate::index::ClusterName;
use crate::observe::StoreStamp;

/// An object that was applied this often in vain, with the same content, within [`FIGHT_MEMORY`], is contested.
const ROUNDS: u32 = 3;
/// How long a lost round is remembered, and how long a contested object is left alone at first; then it is tried once
/// more, and left alone for twice as long, …
const FIGHT_MEMORY: Duration = Duration::from_mins(10);
/// … up to this.
const LONGEST_TRUCE: Duration = Duration::from_hours(1);
/// A foreign object is looked at again after this.
const FOREIGN_MEMORY: Duration = Duration::from_secs(30);
/// A refused object is tried again after this, then after twice as long, …
const FIRST_REFUSAL: Duration = Duration::from_secs(1);
/// … up to this.
const LONGEST_REFUSAL: Duration = Duration::from_mins(5);

/// Memory of all clusters.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    clusters: Mutex<HashMap<ClusterName, Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    foreign: BTreeMap<ObjectKey, (ObjectView, Instant)>,
    /// Jobs with the names of backups' that somebody else made.
    foreign_jobs: BTreeMap<String, Instant>,
    fights: BTreeMap<ObjectKey, Fight>,
    refusals: BTreeMap<ObjectKey, Refusal>,
    /// Claims that the API server does not let grow.
    growths: BTreeMap<String, Refusal>,
    failures: u32,
    failure: String,
    progress: Progress,
    /// For which versions the access to the store was compared, and what was found.
    store: Option<(StoreStamp, StoreSecret)>,
    /// uid of the cluster in this name whose namespace is being deleted.
    ends: Option<String>,
}

#[derive(Debug)]
struct Fight {
    wish: u64,
    rounds: u32,
    last: Instant,
    truce: Duration,
}

impl Fight {
    fn new(wish: u64, now: Instant) -> Self {
        Self {
            wish,
            rounds: 0,
            last: now,
            truce: FIGHT_MEMORY,
        }
    }

    /// Whether one round more may be fought now; it counts as fought.
    fn may_go_on(&mut self, wish: u64, now: Instant) -> bool {
        let quiet = now.duration_since(self.last);
        // Nobody wanted to change it for that long: what comes now is another matter.
        let forgotten = quiet >= self.truce.saturating_mul(2) || (self.rounds < ROUNDS && quiet >= FIGHT_MEMORY);
        if self.wish != wish || forgotten {
            *self = Self::new(wish, now);
        }
        if self.rounds >= ROUNDS {
            if quiet < self.truce {
                return false;
            }
            self.truce = self.truce.saturating_mul(2).min(LONGEST_TRUCE);
        }
        self.rounds = self.rounds.saturating_add(1);
        self.last = now;
        true
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.rounds >= ROUNDS && now.duration_since(self.last) < self.truce
    }
}

#[derive(Debug)]
struct Refusal {
    wish: u64,
    pause: Duration,
    last: Instant,
    warning: Warning,
}

impl Refusal {
    /// One more refusal of a wish, after another one.
    fn after(before: Option<&Self>, wish: u64, warning: Warning) -> Self {
        let before = before.filter(|refusal| refusal.wish == wish);
        let pause = before.map_or(FIRST_REFUSAL, |r| r.pause.saturating_mul(2).min(LONGEST_REFUSAL));
        // The time of the first one, so that a status that shows it does not change with each try.
        let at = before.map_or(warning.at, |r| r.warning.at);
        Self {
            wish,
            pause,
            last: Instant::now(),
            warning: Warning { at, ..warning },
        }
    }
}

/// Whether an object may be applied now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum May {
    Apply,
    /// The API server refused the same wish a short time ago.
    NotYet,
    /// Somebody changes it back.
    Contested,
}

impl Memories {
    fn with<T>(&self, cluster: &ClusterName, act: impl FnOnce(&mut Memory) -> T) -> T {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        act(clusters.entry(cluster.clone()).or_default())
    }

    /// Forgets a cluster that was deleted.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(cluster);
    }

    /// Asks whether an object with this wish (a hash) may be applied; `exists`: it was seen to exist and to differ.
    pub(crate) fn may_apply(&self, cluster: &ClusterName, key: &ObjectKey, wish: u64, exists: bool) -> May {
        self.with(cluster, |memory| {
            let now = Instant::now();
            if let Some(refusal) = memory.refusals.get(key)
                && refusal.wish == wish
                && now.duration_since(refusal.last) < refusal.pause
            {
                return May::NotYet;
            }
            if !exists {
                return May::Apply;
            }
            let fight = memory
                .fights
                .entry(key.clone())
                .or_insert_with(|| Fight::new(wish, now));
            if fight.may_go_on(wish, now) {
                May::Apply
            } else {
                May::Contested
            }
        })
    }

    /// Whether a claim may be asked to grow to that many bytes: the same was not refused a short time ago.
    pub(crate) fn may_grow(&self, cluster: &ClusterName, claim: &str, bytes: u64) -> bool {
        self.with(cluster, |memory| {
            let refusal = memory.growths.get(claim).filter(|refusal| refusal.wish == bytes);
            refusal.is_none_or(|refusal| refusal.last.elapsed() >= refusal.pause)
        })
    }

    /// The API server does not let a claim grow to that many bytes.
    pub(crate) fn refused_growth(&self, cluster: &ClusterName, claim: &str, bytes: u64, warning: Warning) {
        self.with(cluster, |memory| {
            let before = memory.growths.remove(claim);
            let refusal = Refusal::after(before.as_ref(), bytes, warning);
            memory.growths.insert(claim.to_owned(), refusal);
        });
    }

    /// It does now.
    pub(crate) fn grew(&self, cluster: &ClusterName, claim: &str) {
        self.with(cluster, |memory| memory.growths.remove(claim));
    }

    /// Whether an object is left alone because somebody changes it back.
    pub(crate) fn contested(&self, cluster: &ClusterName, key: &ObjectKey) -> bool {
        self.with(cluster, |memory| {
            let now = Instant::now();
            memory.fights.get(key).is_some_and(|fight| fight.is_lost(now))
        })
    }

    /// The API server refused this wish.
    pub(crate) fn refused(&self, cluster: &ClusterName, key: &ObjectKey, wish: u64, warning: Warning) {
        self.with(cluster, |memory| {
            let before = memory.refusals.remove(key);
            let refusal = Refusal::after(before.as_ref(), wish, warning);
            memory.refusals.insert(key.clone(), refusal);
        });
    }

    /// The API server accepted the object.
    pub(crate) fn accepted(&self, cluster: &ClusterName, key: &ObjectKey) {
        self.with(cluster, |memory| {
            memory.refusals.remove(key);
            memory.foreign.remove(key);
        });
    }

    /// What the API server refuses at present.
    pub(crate) fn refusals(&self, cluster: &ClusterName) -> Vec<Warning> {
        self.with(cluster, |memory| {
            memory
                .refusals
                .values()
                .chain(memory.growths.values())
                .map(|refusal| refusal.warning.clone())
                .collect()
        })
    }

    /// Somebody else's object has a name that we need.
    pub(crate) fn foreign(&self, cluster: &ClusterName, key: &ObjectKey, view: ObjectView) {
        self.with(cluster, |memory| {
            memory.foreign.insert(key.clone(), (view, Instant::now()))
        });
    }

    /// That object is gone.
    pub(crate) fn not_foreign(&self, cluster: &ClusterName, key: &ObjectKey) {
        self.with(cluster, |memory| memory.foreign.remove(key));
    }

    /// Foreign objects as they were seen, and whether each has to be looked at again.
    pub(crate) fn foreigners(&self, cluster: &ClusterName) -> Vec<(ObjectKey, ObjectView, bool)> {
        self.with(cluster, |memory| {
            let now = Instant::now();
            let due = |seen: &Instant| now.duration_since(*seen) >= FOREIGN_MEMORY;
            memory
                .foreign
                .iter()
                .map(|(key, (view, seen))| (key.clone(), view.clone(), due(seen)))
                .collect()
        })
    }

    /// Somebody else's Job has the name of a backup's.
    pub(crate) fn foreign_job(&self, cluster: &ClusterName, name: &str) {
        self.with(cluster, |memory| {
            memory.foreign_jobs.insert(name.to_owned(), Instant::now())
        });
    }

    /// Such Jobs, as long as they were seen a short time ago: then it is tried again.
    pub(crate) fn foreign_jobs(&self, cluster: &ClusterName) -> Vec<String> {
        self.with(cluster, |memory| {
            let now = Instant::now();
            memory
                .foreign_jobs
                .retain(|_, seen| now.duration_since(*seen) < FOREIGN_MEMORY);
            memory.foreign_jobs.keys().cloned().collect()
        })
    }

    /// The namespace of the cluster with this uid is being deleted.
    pub(crate) fn end(&self, cluster: &ClusterName, uid: &str) {
        self.with(cluster, |memory| memory.ends = Some(uid.to_owned()));
    }

    /// Whether the namespace of the cluster with this uid is being deleted.
    pub(crate) fn ends(&self, cluster: &ClusterName, uid: &str) -> bool {
        self.with(cluster, |memory| memory.ends.as_deref() == Some(uid))
    }

    /// What was seen of the present change of primary.
    pub(crate) fn progress(&self, cluster: &ClusterName) -> Progress {
        self.with(cluster, |memory| memory.progress.clone())
    }

    /// Remembers what was seen of it.
    pub(crate) fn keep_progress(&self, cluster: &ClusterName, progress: &Progress) {
        self.with(cluster, |memory| memory.progress.clone_from(progress));
    }

    /// What was found of the access to the store, if it was compared for these versions.
    pub(crate) fn store(&self, cluster: &ClusterName, stamp: &StoreStamp) -> Option<StoreSecret> {
        self.with(cluster, |memory| {
            let (compared, found) = memory.store.as_ref()?;
            (compared == stamp).then(|| found.clone())
        })
    }

    /// Remembers what was found of it.
    pub(crate) fn keep_store(&self, cluster: &ClusterName, stamp: StoreStamp, found: StoreSecret) {
        self.with(cluster, |memory| memory.store = Some((stamp, found)));
    }

    /// A pass succeeded.
    pub(crate) fn succeeded(&self, cluster: &ClusterName) {
        self.with(cluster, |memory| memory.failures = 0);
    }

    /// A pass failed: how many did so in a row, for the same reason.
    pub(crate) fn failed(&self, cluster: &ClusterName, why: &str) -> u32 {
        self.with(cluster, |memory| {
            if memory.failure != why {
                why.clone_into(&mut memory.failure);
                memory.failures = 0;
            }
            memory.failures = memory.failures.saturating_add(1);
            memory.failures
        })
    }
}

/// A warning of the API server's about an object of ours.
pub(crate) fn refusal(key: &ObjectKey, reason: &str, message: String, at: Timestamp) -> Warning {
    Warning {
        about: format!("{:?}/{}", key.kind, key.name),
        uid: None,
        reason: reason.to_owned(),
        message,
        at,
    }
}

#[cfg(test)]
mod tests {
    use mainstay_core::observed::ObjectKind;

    use super::*;

    fn shop() -> ClusterName {
        ClusterName::new("db", "shop")
    }

    fn key() -> ObjectKey {
        ObjectKey {
            kind: ObjectKind::Service,
            name: "shop-primary".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_changed_back_is_left_alone_after_three_rounds() {
        let memories = Memories::default();
        for _ in 0..3 {
            assert_eq!(memories.may_apply(&shop(), &key(), 1, true), May::Apply);
        }
        assert_eq!(memories.may_apply(&shop(), &key(), 1, true), May::Contested);
        assert!(memories.contested(&shop(), &key()));
        assert_eq!(memories.may_apply(&shop(), &key(), 2, true), May::Apply, "another wish");
        for _ in 0..3 {
            memories.may_apply(&shop(), &key(), 2, true);
        }
        assert_eq!(memories.may_apply(&shop(), &key(), 2, true), May::Contested);
        tokio::time::advance(FIGHT_MEMORY).await;
        assert!(!memories.contested(&shop(), &key()));
        assert_eq!(
            memories.may_apply(&shop(), &key(), 2, true),
            May::Apply,
            "ten minutes later, once"
        );
        assert!(memories.contested(&shop(), &key()));
        tokio::time::advance(FIGHT_MEMORY).await;
        assert_eq!(memories.may_apply(&shop(), &key(), 2, true), May::Contested);
        tokio::time::advance(FIGHT_MEMORY).await;
        assert_eq!(
            memories.may_apply(&shop(), &key(), 2, true),
            May::Apply,
            "twenty minutes later"
        );
        tokio::time::advance(LONGEST_TRUCE * 3).await;
        for _ in 0..3 {
            assert_eq!(
                memories.may_apply(&shop(), &key(), 2, true),
                May::Apply,
                "another fight"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn making_an_object_anew_is_no_fight() {
        let memories = Memories::default();
        for _ in 0..10 {
            assert_eq!(memories.may_apply(&shop(), &key(), 1, false), May::Apply);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_wish_is_tried_less_and_less_often() {
        let memories = Memories::default();
        let warning = |text: &str| refusal(&key(), "Invalid", text.to_owned(), Timestamp::UNIX_EPOCH);
        memories.refused(&shop(), &key(), 1, warning("no"));
        assert_eq!(memories.may_apply(&shop(), &key(), 1, false), May::NotYet);
        assert_eq!(
            memories.may_apply(&shop(), &key(), 2, false),
            May::Apply,
            "another wish"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memories.may_apply(&shop(), &key(), 1, false), May::Apply);
        memories.refused(&shop(), &key(), 1, warning("still no"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memories.may_apply(&shop(), &key(), 1, false), May::NotYet);
        assert_eq!(memories.refusals(&shop()), [warning("still no")]);
        memories.accepted(&shop(), &key());
        assert!(memories.refusals(&shop()).is_empty());
    }
}
