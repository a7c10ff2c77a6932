//! Who was heard when, and what is known of the present reign.
//!
//! A sign of life is what arrives: bytes from an operator, a ping of another instance or the answer to one, an answer of
//! the API server. A connection that is merely up is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_core::observed::Persisted;
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use tokio::time::Instant;

use crate::isolation::Contacts;
use crate::proto;

/// What a primary was told by the newest Open or Allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    /// Epoch of that command.
    pub(crate) told_epoch: u64,
    /// The primary.
    pub(crate) primary: MemberId,
    /// Who may acknowledge.
    pub(crate) members: Vec<MemberId>,
    /// k.
    pub(crate) acks_required: u32,
}

impl Reign {
    /// The reign that an instance was told of; `None` when it never was a primary.
    #[must_use]
    pub(crate) fn told(told: &Persisted) -> Option<Self> {
        let primary = told.primary.clone().filter(|_| told.told_epoch > 0)?;
        Some(Self {
            told_epoch: told.told_epoch,
            primary,
            members: told.members.clone(),
            acks_required: told.acks_required,
        })
    }

    fn instances(&self) -> impl Iterator<Item = &InstanceName> {
        self.members
            .iter()
            .chain(std::iter::once(&self.primary))
            .map(|id| &id.instance)
    }
}

impl From<&Reign> for proto::Reign {
    fn from(reign: &Reign) -> Self {
        Self {
            told_epoch: reign.told_epoch,
            primary: Some((&reign.primary).into()),
            members: reign.members.iter().map(Into::into).collect(),
            acks_required: reign.acks_required,
        }
    }
}

/// What was received; one without a primary says nothing.
pub(crate) fn reign(received: Option<&proto::Reign>) -> Option<Reign> {
    let received = received.filter(|reign| reign.told_epoch > 0)?;
    Some(Reign {
        told_epoch: received.told_epoch,
        primary: received.primary.as_ref()?.into(),
        members: received.members.iter().map(Into::into).collect(),
        acks_required: received.acks_required,
    })
}

#[derive(Clone, Copy, Default)]
struct Peer {
    heard: Option<Instant>,
    /// When it last said that it receives from its source.
    received: Option<Instant>,
}

#[derive(Default)]
struct Heard {
    operator: Option<Instant>,
    api_server: Option<Instant>,
    peers: BTreeMap<InstanceName, Peer>,
    /// The newest reign that others told of.
    reign: Option<Reign>,
}

/// See the module.
pub(crate) struct Hearing {
    own: InstanceName,
    /// Prefix of the names of this cluster's instances.
    prefix: String,
    heard: Mutex<Heard>,
}

impl Hearing {
    pub(crate) fn new(cluster: &str, own: InstanceName) -> Self {
        Self {
            own,
            prefix: format!("{cluster}-"),
            heard: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // Nothing panics while it is held, and what it holds is whole at any time.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something of an operator arrived.
    pub(crate) fn operator(&self) {
        self.lock().operator = Some(Instant::now());
    }

    /// The API server answered.
    pub(crate) fn api_server(&self) {
        self.lock().api_server = Some(Instant::now());
    }

    /// Another instance pinged, or answered a ping.
    pub(crate) fn peer(&self, instance: &str, reign: Option<Reign>, receives: bool) {
        let ordinal = instance.strip_prefix(&self.prefix).unwrap_or_default();
        if instance == self.own.0 || ordinal.parse::<u32>().is_err() {
            return;
        }
        let now = Instant::now();
        let mut heard = self.lock();
        let peer = heard.peers.entry(InstanceName(instance.to_owned())).or_default();
        peer.heard = Some(now);
        if receives {
            peer.received = Some(now);
        }
        let newest = heard.reign.as_ref().map_or(0, |known| known.told_epoch);
        if let Some(reign) = reign.filter(|reign| reign.told_epoch > newest) {
            heard.reign = Some(reign);
        }
    }

    /// The newest reign that is known here, from the own state file or from others.
    pub(crate) fn reign(&self, told: &Persisted) -> Option<Reign> {
        let own = Reign::told(told);
        let others = self.lock().reign.clone();
        match (own, others) {
            (Some(own), Some(others)) if others.told_epoch > own.told_epoch => Some(others),
            (None, others) => others,
            (own, _) => own,
        }
    }

    /// Who was made primary after this instance was: its own reign is over, for whoever is opened was recorded before.
    pub(crate) fn deposed_by(&self, told: &Persisted, incarnation: &Incarnation) -> Option<Reign> {
        self.reign(told)
            .filter(|reign| reign.told_epoch > told.told_epoch && reign.primary.incarnation != *incarnation)
    }

    /// The instances to be in touch with: those of the newest reign, and while none is known, those that pinged.
    pub(crate) fn others(&self, told: &Persisted) -> BTreeSet<InstanceName> {
        let known: BTreeSet<InstanceName> = match self.reign(told) {
            Some(reign) => reign.instances().cloned().collect(),
            None => self.lock().peers.keys().cloned().collect(),
        };
        known.into_iter().filter(|name| *name != self.own).collect()
    }

    /// Age of the last sign of life of another instance.
    pub(crate) fn age(&self, instance: &InstanceName) -> Option<Duration> {
        let heard = self.lock();
        heard.peers.get(instance)?.heard.map(|at| at.elapsed())
    }

    /// Ages of all signs of life. `acks`: what a primary needs; others need as many, and at least one.
    pub(crate) fn contacts(&self, told: &Persisted) -> Contacts {
        let reign = self.reign(told);
        let others = self.others(told);
        let heard = self.lock();
        let age = |at: Option<Instant>| at.map(|at| at.elapsed());
        Contacts {
            operator: age(heard.operator),
            api_server: age(heard.api_server),
            others: others
                .iter()
                .map(|name| age(heard.peers.get(name).and_then(|peer| peer.heard)))
                .collect(),
            needed: reign.map_or(1, |reign| reign.acks_required.max(1)),
        }
    }

    /// How many of the members of its own reign said within `age` that they receive.
    pub(crate) fn receivers(&self, told: &Persisted, age: Duration) -> u32 {
        let heard = self.lock();
        let receives = |id: &&MemberId| {
            let peer = heard.peers.get(&id.instance);
            peer.and_then(|peer| peer.received)
                .is_some_and(|at| at.elapsed() <= age)
        };
        u32::try_from(told.members.iter().filter(receives).count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> MemberId {
        MemberId {
            instance: InstanceName(name.to_owned()),
            incarnation: Incarnation(format!("life of {name}")),
        }
    }

    fn reign_of(primary: &str, members: &[&str], told_epoch: u64, acks_required: u32) -> Reign {
        Reign {
            told_epoch,
            primary: member(primary),
            members: members.iter().map(|name| member(name)).collect(),
            acks_required,
        }
    }

    fn told(reign: &Reign) -> Persisted {
        Persisted {
            told_epoch: reign.told_epoch,
            primary: Some(reign.primary.clone()),
            members: reign.members.clone(),
            acks_required: reign.acks_required,
            ..Persisted::default()
        }
    }

    fn hearing(own: &str) -> Hearing {
        Hearing::new("shop", InstanceName(own.to_owned()))
    }

    fn names(set: &BTreeSet<InstanceName>) -> Vec<&str> {
        set.iter().map(|name| name.0.as_str()).collect()
    }

    #[test]
    fn a_primary_knows_its_members_from_what_it_was_told() {
        let hearing = hearing("shop-0");
        let told = told(&reign_of("shop-0", &["shop-1", "shop-2"], 4, 1));
        assert_eq!(names(&hearing.others(&told)), ["shop-1", "shop-2"]);
        assert_eq!(hearing.contacts(&told).needed, 1);
    }

    #[test]
    fn a_replica_learns_who_the_others_are_from_a_ping_of_its_primary() {
        let hearing = hearing("shop-2");
        let never = Persisted::default();
        assert_eq!(names(&hearing.others(&never)), Vec::<&str>::new());
        hearing.peer("shop-0", None, false);
        assert_eq!(names(&hearing.others(&never)), ["shop-0"]);
        let reign = reign_of("shop-0", &["shop-1", "shop-2", "shop-3", "shop-4"], 4, 2);
        hearing.peer("shop-0", Some(reign), false);
        assert_eq!(names(&hearing.others(&never)), ["shop-0", "shop-1", "shop-3", "shop-4"]);
        assert_eq!(hearing.contacts(&never).needed, 2);
    }

    #[test]
    fn an_older_reign_changes_nothing() {
        let hearing = hearing("shop-0");
        let own = told(&reign_of("shop-0", &["shop-1", "shop-2"], 4, 1));
        hearing.peer("shop-1", Some(reign_of("shop-2", &["shop-1"], 3, 1)), true);
        assert_eq!(hearing.deposed_by(&own, &member("shop-0").incarnation), None);
        assert_eq!(names(&hearing.others(&own)), ["shop-1", "shop-2"]);
    }

    #[test]
    fn f20_a_later_reign_of_somebody_else_ends_ones_own() {
        let hearing = hearing("shop-0");
        let own = told(&reign_of("shop-0", &["shop-1", "shop-2"], 4, 1));
        let later = reign_of("shop-1", &["shop-2"], 5, 1);
        hearing.peer("shop-2", Some(later.clone()), true);
        let incarnation = member("shop-0").incarnation;
        assert_eq!(hearing.deposed_by(&own, &incarnation), Some(later.clone()));
        // Somebody who has not heard of it yet changes nothing.
        hearing.peer("shop-1", Some(reign_of("shop-2", &["shop-1"], 3, 1)), true);
        assert_eq!(hearing.deposed_by(&own, &incarnation), Some(later));
        // Opened again, it is told of a later one.
        let own = told(&reign_of("shop-0", &["shop-2"], 6, 1));
        assert_eq!(hearing.deposed_by(&own, &incarnation), None);
    }

    #[test]
    fn a_later_list_of_ones_own_reign_is_no_other_reign() {
        let hearing = hearing("shop-0");
        let own = told(&reign_of("shop-0", &["shop-1"], 4, 1));
        // Heard from somebody who was told by this instance, before it was restarted with an older state file.
        hearing.peer("shop-1", Some(reign_of("shop-0", &["shop-1", "shop-2"], 5, 1)), true);
        assert_eq!(hearing.deposed_by(&own, &member("shop-0").incarnation), None);
    }

    #[test]
    fn what_is_no_instance_of_this_cluster_is_nobody() {
        let hearing = hearing("shop-0");
        for name in ["shop-0", "shop-x", "other-1", "shop2-1", ""] {
            hearing.peer(name, None, true);
        }
        assert_eq!(names(&hearing.others(&Persisted::default())), Vec::<&str>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn ages_and_receivers() {
        let hearing = hearing("shop-0");
        let own = told(&reign_of("shop-0", &["shop-1", "shop-2"], 4, 1));
        hearing.operator();
        hearing.peer("shop-1", None, true);
        tokio::time::advance(Duration::from_secs(3)).await;
        hearing.api_server();
        hearing.peer("shop-1", None, false);
        let contacts = hearing.contacts(&own);
        assert_eq!(contacts.operator, Some(Duration::from_secs(3)));
        assert_eq!(contacts.api_server, Some(Duration::ZERO));
        assert_eq!(contacts.others, [Some(Duration::ZERO), None]);
        assert_eq!(hearing.receivers(&own, Duration::from_secs(3)), 1);
        assert_eq!(hearing.receivers(&own, Duration::from_secs(2)), 0);
    }

    #[test]
    fn a_reign_is_read_as_it_was_sent() {
        let sent = reign_of("shop-0", &["shop-1", "shop-2"], 4, 1);
        assert_eq!(reign(Some(&(&sent).into())), Some(sent));
        assert_eq!(reign(Some(&proto::Reign::default())), None);
        assert_eq!(reign(None), None);
    }
}
