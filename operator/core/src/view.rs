//! The predicates of docs/failover.md, "States and predicates", each once.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_api::cluster::{Durability, FormerData, Volumes};
use mainstay_api::status::Role;

use crate::GtidSet;
use crate::action::{Endpoint, VerbKind};
use crate::lag;
use crate::layout::PORT_ADMIN;
use crate::observed::{Answer, Busy, InstanceObserved, InstanceReport, Mysqld, Observed, Reach};
use crate::rules::{InstanceName, MemberId, Phase, PrimaryRef, Rules};
use crate::subject::Subject;
use crate::timing::Timing;
use crate::validate::FAILED_STARTS;

/// One pass's observation, read with the rules' memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) observed: &'a Observed,
    pub(crate) rules: &'a Rules,
    pub(crate) now: Timestamp,
    pub(crate) timing: Timing,
}

/// An instance that is heard, with its report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) instance: &'a InstanceObserved,
    pub(crate) report: &'a InstanceReport,
}

impl Seen<'_> {
    /// Identity in this life of its data directory.
    pub(crate) fn id(&self) -> MemberId {
        MemberId {
            instance: self.instance.name.clone(),
            incarnation: self.report.incarnation.clone(),
        }
    }

    /// mysqld answers: only then are its sets and its replication known.
    pub(crate) fn running(&self) -> bool {
        self.report.mysqld == Mysqld::Running
    }

    /// It has no receiver thread.
    pub(crate) fn detached(&self) -> bool {
        self.report.replication.source_host.is_none()
    }

    /// Its pod is being deleted, or it asked to be relieved.
    pub(crate) fn leaving(&self) -> bool {
        self.report.leaving || self.instance.pod.as_ref().is_some_and(|pod| pod.deleting)
    }

    /// It cannot catch up by following `source`, which purged what it lacks.
    pub(crate) fn lacks_purged(&self, source: Seen<'_>) -> bool {
        !self.report.set().contains(&source.report.purged)
    }

    /// A clone into it did not succeed: it has no data directory that was ever a server's, and does not make one by itself. (One
    /// whose volume cannot be read does not know what it has.)
    pub(crate) fn half_cloned(&self) -> bool {
        self.report.mysqld == Mysqld::Failed && self.report.server_uuid.is_empty() && !self.report.unreadable
    }

    /// The command that it is carrying out, as far as this process knows.
    pub(crate) fn busy(&self) -> Option<Busy> {
        self.instance.heard()?.busy
    }

    /// What came of the last command that this process gave it.
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.instance.heard()?.answer.as_ref()
    }

    /// Its last fence came to nothing.
    pub(crate) fn fence_fails(&self) -> bool {
        self.answer()
            .is_some_and(|answer| answer.verb == VerbKind::Fence && answer.failure.is_some())
    }

    /// Why its set says nothing about its data, if that is so.
    pub(crate) fn history_reset(&self) -> Option<String> {
        let name = &self.instance.name;
        self.report
            .history_reset
            .then(|| format!("the binlogs and GTIDs of {name} were reset, so nobody knows what it holds"))
    }

    /// `stuck(i)`: it received what it cannot apply.
    pub(crate) fn stuck(&self) -> bool {
        !self.report.fully_applied() && !self.report.replication.applier_error.is_empty()
    }

    /// For how long it has been stuck.
    fn stuck_for(&self) -> Option<Duration> {
        self.report.replication.applier_failing.filter(|_| self.stuck())
    }

    /// Transactions that are received and not yet applied.
    pub(crate) fn backlog(&self) -> u64 {
        self.report.received.subtract(&self.report.executed).count()
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(subject: &'a Subject<'a>, observed: &'a Observed, rules: &'a Rules, now: Timestamp) -> Self {
        Self {
            subject,
            observed,
            rules,
            now,
            timing: Timing::default(),
        }
    }

    /// This process wrote the epoch, so it may command under it (rule 0).
    pub(crate) fn mine(&self) -> bool {
        self.rules.owner == self.observed.operator
    }

    /// Number of instances that are wanted, the primary included.
    pub(crate) fn replicas(&self) -> u32 {
        self.subject.replicas(self.observed)
    }

    /// Its ordinal is below the declared number of instances.
    pub(crate) fn wanted(&self, instance: &InstanceObserved) -> bool {
        instance.ordinal < self.replicas()
    }

    /// k that the declared number of instances asks for.
    pub(crate) fn wanted_acks(&self) -> u32 {
        self.replicas() / 2
    }

    /// A person keeps it out.
    pub(crate) fn kept_out(&self, instance: &InstanceObserved) -> bool {
        self.rules.keeps_out(&instance.name)
    }

    /// The primary was fenced on request: nobody is elected before it is let in again, or another one is promoted.
    pub(crate) fn closed_on_request(&self) -> bool {
        match (&self.rules.phase, &self.rules.primary) {
            (Phase::Electing { preferred: Some(id) }, Some(primary)) => {
                id == &primary.id && self.rules.keeps_out(&id.instance)
            }
            (Phase::Electing { .. } | Phase::Open, _) => false,
        }
    }

    /// Commits go on with fewer acknowledgements rather than wait (spec.failover.durability).
    pub(crate) fn prefers_writes(&self) -> bool {
        self.subject
            .spec
            .is_ok_and(|spec| spec.durability == Durability::Preferred)
    }

    /// A data directory that is replaced stays on its volume (spec.failover.formerData).
    pub(crate) fn keeps_former_data(&self) -> bool {
        self.subject.spec.is_ok_and(|spec| spec.former_data == FormerData::Keep)
    }

    /// After so many starts that failed because of what is in it, a data directory is broken (spec.healing.failedStarts).
    pub(crate) fn failed_starts(&self) -> u32 {
        self.subject
            .spec
            .map_or(FAILED_STARTS, |spec| spec.healing.failed_starts)
    }

    /// Volumes are replaced by themselves (spec.healing.volumes). Not while nobody can read whether a person forbids it.
    pub(crate) fn replaces_volumes(&self) -> bool {
        self.subject
            .spec
            .is_ok_and(|spec| spec.healing.volumes == Volumes::Replace)
    }

    /// Its volume has been full for longer than a moment.
    pub(crate) fn is_full(&self, report: &InstanceReport) -> bool {
        report.disk.full_for.is_some_and(|full| full >= self.timing.full)
    }

    /// The volume on which it lies was given up: its claim, which the recorded intent names, may be deleted at any time, by an
    /// operator of whom nobody knows any more. Nothing that is on it joins again.
    pub(crate) fn is_given_up(&self, instance: &InstanceObserved) -> bool {
        let rebuild = self.rules.rebuilds.get(&instance.name);
        let given_up = rebuild.and_then(|rebuild| rebuild.healing.as_ref()?.claim.as_ref());
        given_up.is_some_and(|uid| instance.claim.as_ref().is_none_or(|claim| &claim.uid == uid))
    }

    /// The recorded k, as a number of instances.
    pub(crate) fn acks(&self) -> usize {
        usize::try_from(self.rules.acks_required).unwrap_or(usize::MAX)
    }

    /// Nobody else may acknowledge and nobody has to: what the primary holds is all there is.
    pub(crate) fn stands_alone(&self) -> bool {
        self.rules.members.is_empty() && self.rules.acks_required == 0
    }

    /// All instances are heard, and none of them is a member or the primary any more: each is in another life of its data
    /// directory. Only a person can say then whose data counts.
    pub(crate) fn nobody_is_left(&self) -> bool {
        let mut wanted = self.observed.instances.iter().filter(|instance| self.wanted(instance));
        let all = wanted.all(|instance| instance.report().is_some());
        all && !self.heard().any(|seen| self.is_member(seen) || self.is_primary(seen))
    }

    /// Every instance that is heard.
    pub(crate) fn heard(&self) -> impl Iterator<Item = Seen<'a>> + use<'a> {
        self.observed.instances.iter().filter_map(|instance| {
            Some(Seen {
                instance,
                report: instance.report()?,
            })
        })
    }

    /// The instance of that name, if it is heard, whatever its incarnation.
    pub(crate) fn heard_as(&self, id: &MemberId) -> Option<Seen<'a>> {
        self.heard().find(|seen| seen.instance.name == id.instance)
    }

    /// `is(i, id)`: heard, in this incarnation.
    pub(crate) fn find(&self, id: &MemberId) -> Option<Seen<'a>> {
        self.heard_as(id)
            .filter(|seen| seen.report.incarnation == id.incarnation)
    }

    /// The instance named in `id`, heard or not.
    pub(crate) fn instance(&self, id: &MemberId) -> Option<&'a InstanceObserved> {
        self.observed.instance(&id.instance)
    }

    /// The recorded primary's instance, if it is heard in the recorded incarnation.
    pub(crate) fn primary(&self) -> Option<Seen<'a>> {
        self.find(&self.rules.primary.as_ref()?.id)
    }

    /// What status says the instance of that name is, whatever its incarnation; `None` for one that is not compared yet.
    pub(crate) fn role(&self, name: &InstanceName) -> Option<Role> {
        let primary = self.rules.primary.as_ref();
        if primary.is_some_and(|primary| &primary.id.instance == name) {
            return Some(Role::Primary);
        }
        let mut members = self.rules.members.iter();
        members.any(|member| &member.instance == name).then_some(Role::Replica)
    }

    /// It is the recorded primary.
    pub(crate) fn is_primary(&self, seen: Seen<'_>) -> bool {
        self.rules
            .primary
            .as_ref()
            .is_some_and(|primary| primary.id == seen.id())
    }

    /// It is a member.
    pub(crate) fn is_member(&self, seen: Seen<'_>) -> bool {
        self.rules.members.contains(&seen.id())
    }

    /// The members that are heard, in their recorded incarnations.
    pub(crate) fn members(&self) -> impl Iterator<Item = Seen<'a>> + use<'a> {
        let view = *self;
        self.heard().filter(move |seen| view.is_member(*seen))
    }

    /// `confirmed(i)` (docs/failover.md, "Confirmed").
    pub(crate) fn confirmed(&self, seen: Seen<'_>) -> bool {
        seen.instance.confirmed(self.rules, &self.observed.operator).is_some()
    }

    /// Confirmed, read-only, without a receiver: its set is known and cannot grow.
    pub(crate) fn fenced(&self, seen: Seen<'_>) -> bool {
        self.confirmed(seen) && seen.running() && !seen.report.writable && seen.detached()
    }

    /// `held(i)`, "confirmed fenced": it cannot acknowledge for a deposed primary. It may follow somebody who is
    /// read-only, because in an election only that was ordered under this epoch.
    pub(crate) fn held(&self, seen: Seen<'_>) -> bool {
        if !(self.confirmed(seen) && seen.running() && !seen.report.writable) {
            return false;
        }
        let Some(host) = &seen.report.replication.source_host else {
            return true;
        };
        let source = self
            .heard()
            .find(|other| &self.subject.host(&other.instance.name) == host);
        source.is_some_and(|source| !source.report.writable && (!self.is_primary(source) || self.fenced(source)))
    }

    /// Members that nobody confirmed to be fenced (U of rule 3).
    pub(crate) fn unfenced(&self) -> BTreeSet<&'a MemberId> {
        let rules = self.rules;
        rules
            .members
            .iter()
            .filter(|id| !self.find(id).is_some_and(|seen| self.held(seen)))
            .collect()
    }

    /// `open(P)`: the recorded primary accepts writes, and was told so in its present reign.
    pub(crate) fn open_primary(&self) -> Option<Seen<'a>> {
        self.primary().filter(|seen| self.is_open(*seen))
    }

    /// Whether this is `open(P)`.
    pub(crate) fn is_open(&self, seen: Seen<'_>) -> bool {
        let reign = self.rules.primary.as_ref().map_or(u64::MAX, |primary| primary.epoch);
        self.is_primary(seen) && seen.running() && seen.report.writable && seen.report.persisted.epoch >= reign
    }

    /// Its receiver follows that instance, connected or not.
    pub(crate) fn follows(&self, seen: Seen<'_>, source: &MemberId) -> bool {
        seen.running() && seen.report.replication.source_host.as_ref() == Some(&self.subject.host(&source.instance))
    }

    /// `receiving(i)` from that instance: connected, and a heartbeat or event was heard lately.
    pub(crate) fn receives(&self, seen: Seen<'_>, source: &MemberId) -> bool {
        let replication = &seen.report.replication;
        self.follows(seen, source) && replication.receiver_running && replication.heard_within(self.timing.silence)
    }

    /// `receiving(i)` from the recorded primary.
    pub(crate) fn receiving(&self, seen: Seen<'_>) -> bool {
        self.rules
            .primary
            .as_ref()
            .is_some_and(|primary| self.receives(seen, &primary.id))
    }

    /// `broken(i)`: it has been stuck for too long to hope for its applier.
    pub(crate) fn broken(&self, seen: Seen<'_>) -> bool {
        seen.stuck_for().is_some_and(|age| age >= self.timing.broken)
    }

    /// When it will be broken, if its applier does not get further.
    pub(crate) fn breaks_in(&self, seen: Seen<'_>) -> Option<Duration> {
        let left = self.timing.broken.checked_sub(seen.stuck_for()?)?;
        (!left.is_zero()).then_some(left)
    }

    /// How much longer its receiver may take to connect, when it was told to follow somebody a moment ago.
    pub(crate) fn connects_in(&self, seen: Seen<'_>) -> Option<Duration> {
        let attached = |answer: &&Answer| answer.verb == VerbKind::Attach && answer.failure.is_none();
        let answer = seen.answer().filter(attached)?;
        let left = self.timing.connect.checked_sub(self.age(answer.at))?;
        (!left.is_zero()).then_some(left)
    }

    /// Commits can do without this member: k others are receiving.
    pub(crate) fn can_spare(&self, id: &MemberId) -> bool {
        self.others_receiving(id) >= self.acks()
    }

    /// How many members other than that one are receiving.
    pub(crate) fn others_receiving(&self, id: &MemberId) -> usize {
        let others = self.members().filter(|seen| &seen.id() != id);
        others.filter(|seen| self.receiving(*seen)).count()
    }

    /// Receiving, and applied to within the bound: it may take over, and another instance may be restarted.
    pub(crate) fn synced(&self, seen: Seen<'_>) -> bool {
        let replication = &seen.report.replication;
        self.receiving(seen)
            && !seen.report.writable
            && replication.applier_running
            && replication.lag.is_some_and(|lag| lag <= self.timing.lag)
    }

    /// How far it is behind the open primary, as a person is told; `None` while that is no problem. Of one that was not heard
    /// for a moment, what was true before.
    pub(crate) fn behind(&self, instance: &InstanceObserved) -> Option<Duration> {
        let before = self.observed.told.behind.get(&instance.name).copied();
        let Some(report) = instance.report() else {
            return before
                .filter(|_| Self::silent_since(instance).is_some_and(|at| self.age(at) < self.timing.silence));
        };
        let seen = Seen { instance, report };
        let primary = self.rules.primary.as_ref()?;
        self.open_primary()?;
        (self.follows(seen, &primary.id) && !report.writable)
            .then(|| lag::step(report.replication.lag, before, self.timing.lagging))
            .flatten()
    }

    /// `errant(i)` towards that primary, if there is any.
    pub(crate) fn errant(seen: Seen<'_>, primary: Seen<'_>) -> Option<GtidSet> {
        let more = seen.report.set().subtract(&primary.report.set());
        let errant = more.without_source(&primary.report.server_uuid);
        (seen.running() && primary.running() && !errant.is_empty()).then_some(errant)
    }

    /// `legit(i)` towards the recorded primary; all of it for the primary itself.
    pub(crate) fn legit(&self, seen: Seen<'_>) -> GtidSet {
        let set = seen.report.set();
        if self.is_primary(seen) {
            return set;
        }
        let own = self
            .rules
            .primary
            .as_ref()
            .map(|PrimaryRef { server_uuid, .. }| set.of_source(server_uuid));
        set.intersect(&self.rules.baseline).union(&own.unwrap_or_default())
    }

    /// How SQL clients reach an instance.
    pub(crate) fn endpoint(&self, seen: Seen<'_>) -> Endpoint {
        self.endpoint_of(&seen.id())
    }

    /// How SQL clients reach an instance, heard or not.
    pub(crate) fn endpoint_of(&self, id: &MemberId) -> Endpoint {
        Endpoint {
            id: id.clone(),
            host: self.subject.host(&id.instance),
            port: PORT_ADMIN,
        }
    }

    /// Since when an instance is not heard; `None` when it is.
    pub(crate) fn silent_since(instance: &InstanceObserved) -> Option<Timestamp> {
        match &instance.reach {
            Reach::Heard(_) => None,
            Reach::Silent { since, .. } | Reach::Unknown { since, .. } => Some(*since),
        }
    }

    /// How long ago that was; zero when it lies in the future.
    pub(crate) fn age(&self, at: Timestamp) -> Duration {
        age(self.now, at)
    }
}

/// How long ago `at` was; zero when it lies in the future.
pub(crate) fn age(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}
