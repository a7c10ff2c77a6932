//! Invariants 2, 5 to 9: what instances may be told.

use std::collections::BTreeSet;

use super::{Checker, Violations, enough};
use crate::GtidSet;
use crate::action::{InstanceCommand, Verb};
use crate::observed::Mysqld;
use crate::rules::{MemberId, Phase, PrimaryRef, Rules};

impl Checker<'_> {
    /// Invariants 2, 7, 8 and 9.
    pub(super) fn command(&self, command: &InstanceCommand, violations: &mut Violations) {
        let name = &command.to.instance;
        let Some(after) = self.after else {
            return violations.unless(false, 2, || format!("commands {name} without an epoch"));
        };
        let own = after.owner == self.observed.operator && after.epoch == command.epoch;
        violations.unless(own, 2, || format!("commands {name} under a foreign epoch"));
        let alive = self.find(&command.to).is_some();
        violations.unless(alive, 2, || {
            format!("commands {name} in an incarnation that is not heard")
        });
        let kept_out = after.keeps_out(name);
        let harmless = matches!(command.verb, Verb::Fence | Verb::Restart);
        violations.unless(harmless || !kept_out, 14, || {
            format!("{name} is kept out and is not only fenced")
        });
        match &command.verb {
            Verb::Fence | Verb::Restart => {}
            Verb::Attach { source } => self.attach(after, &command.to, &source.id, violations),
            Verb::Open {
                members,
                acks_required,
                baseline,
                recorded,
                application: _,
            } => {
                let this = |primary: &PrimaryRef| {
                    primary.id == command.to && (primary.epoch, primary.since) == (recorded.epoch, recorded.since)
                };
                let recorded = after.primary.as_ref().is_some_and(this)
                    && after.phase == Phase::Open
                    && (members, *acks_required, baseline) == (&after.members, after.acks_required, &after.baseline);
                violations.unless(recorded, 7, || format!("{name} is opened as it is not recorded"));
                self.opening(after, &command.to, violations);
            }
            Verb::Allow { members, acks_required } => {
                allow(after, &command.to, members, *acks_required, violations);
            }
            Verb::Mark => {
                let open = after.primary.as_ref().is_some_and(|primary| primary.id == command.to);
                violations.unless(open, 8, || format!("{name} is not the primary and is to write"));
            }
            Verb::Clone { .. } | Verb::Refill { .. } => self.clone_over(after, &command.to, violations),
            Verb::Purge { stored } => self.purge(&command.to, stored, violations),
        }
    }

    /// k listed members are confirmed to contain the primary's set.
    fn opening(&self, after: &Rules, to: &MemberId, violations: &mut Violations) {
        let Some(report) = self.read_only(to) else {
            return violations.unless(false, 7, || format!("{} is opened unseen", to.instance));
        };
        let set = report.set();
        let contain = after.members.iter().filter_map(|id| self.read_only(id));
        let contain = contain.filter(|report| report.set().contains(&set)).count();
        violations.unless(enough(contain, after.acks_required), 7, || {
            format!("{} is alone", to.instance)
        });
    }

    fn attach(&self, after: &Rules, to: &MemberId, source: &MemberId, violations: &mut Violations) {
        match after.phase {
            Phase::Open => {
                let primary = after.primary.as_ref().is_some_and(|primary| &primary.id == source);
                violations.unless(primary, 8, || format!("{} is attached to a replica", to.instance));
                violations.unless(after.members.contains(to), 8, || {
                    format!("{} is no member", to.instance)
                });
            }
            Phase::Electing { .. } => {
                let within = match (self.held(to), self.held(source)) {
                    (Some(report), Some(source)) => source.set().contains(&report.set()),
                    _ => false,
                };
                violations.unless(within, 8, || format!("{} is attached unseen", to.instance));
            }
        }
    }

    /// Invariant 9.
    fn clone_over(&self, after: &Rules, to: &MemberId, violations: &mut Violations) {
        let name = &to.instance;
        for rules in self.before.into_iter().chain([after]) {
            violations.unless(!rules.members.contains(to), 9, || {
                format!("{name} is a member and is replaced")
            });
            let primary = rules.primary.as_ref().is_some_and(|primary| &primary.id == to);
            violations.unless(!primary, 9, || format!("{name} is the primary and is replaced"));
        }
        let intent = after
            .rebuilds
            .get(name)
            .is_some_and(|rebuild| rebuild.incarnation == to.incarnation);
        violations.unless(intent, 9, || format!("{name} is replaced without a recorded intent"));
        let report = self.find(to).map(|(_, report)| report);
        let empty = report.is_some_and(|report| report.mysqld == Mysqld::Failed && report.server_uuid.is_empty());
        // What no mysqld starts on cannot be seen; nobody counts on it, in any life.
        let broken = report.is_some_and(|report| report.mysqld != Mysqld::Running && report.refusals > 0);
        let instance = self.observed.instance(name);
        let alone = instance.is_some_and(|instance| self.nobody_counts_on(instance));
        let seen = empty || (broken && alone) || self.read_only(to).is_some();
        violations.unless(seen, 9, || format!("{name} is replaced unseen"));
    }

    /// Invariant 18: what is purged is in the archive, and every instance that may ask for it has executed it.
    fn purge(&self, to: &MemberId, stored: &GtidSet, violations: &mut Violations) {
        let archive = self
            .open_primary()
            .and_then(|(_, open)| Some((open, open.archive.as_ref()?)));
        let archived = archive.is_some_and(|(open, archive)| {
            let not = archive.behind.union(&archive.missing);
            open.executed.contains(stored) && stored.intersect(&not).is_empty()
        });
        let name = &to.instance;
        violations.unless(archived, 18, || format!("{name} purges what is not archived"));
        let counted = self.before.into_iter().flat_map(|rules| &rules.members);
        let have = counted.map(|id| {
            self.find(id)
                .is_some_and(|(_, report)| report.executed.contains(stored))
        });
        violations.unless(have.into_iter().all(|has| has), 18, || {
            format!("{name} purges what a member lacks")
        });
    }
}

/// Whoever is on the primary's list is a member; a list without a member is the beginning of a drop.
fn allow(after: &Rules, to: &MemberId, list: &BTreeSet<MemberId>, acks: u32, violations: &mut Violations) {
    let primary = after.primary.as_ref().is_some_and(|primary| &primary.id == to) && after.phase == Phase::Open;
    violations.unless(primary, 8, || format!("{} is not the open primary", to.instance));
    violations.unless(list.is_subset(&after.members), 5, || {
        "a stranger may acknowledge".to_owned()
    });
    violations.unless(after.members.difference(list).count() <= 1, 5, || {
        "drops two members at once".to_owned()
    });
    violations.unless(acks >= after.acks_required, 6, || {
        "k in force is below k in status".to_owned()
    });
}
