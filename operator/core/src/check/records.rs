//! Invariants 3 to 6: what a write of the rules' memory may say.

use std::collections::BTreeSet;

use super::{Checker, Violations, enough};
use crate::GtidSet;
use crate::action::Record;
use crate::observed::{InstanceReport, Mysqld};
use crate::rules::{MemberId, Phase, RequestState, Rules};

impl Checker<'_> {
    /// Invariants 3 to 6.
    pub(super) fn record(&self, record: &Record, violations: &mut Violations) {
        let after = &record.rules;
        violations.unless(after.owner == self.observed.operator, 3, || {
            "records for another process".to_owned()
        });
        if let Some(primary) = &after.primary {
            violations.unless(!after.members.contains(&primary.id), 4, || {
                "the primary is a member".to_owned()
            });
        }
        let Some(before) = self.before else {
            return self.first_record(after, violations);
        };
        if self.is_behind(before) {
            return self.first_record(after, violations);
        }
        violations.unless(after.epoch >= before.epoch, 3, || "the epoch is lowered".to_owned());
        let raised = after.epoch > before.epoch;
        violations.unless(raised || before.owner == after.owner, 3, || {
            "changes the owner within an epoch".to_owned()
        });
        self.stays_given_up(violations);
        match (&before.phase, &after.phase) {
            (Phase::Electing { .. }, Phase::Open) => self.promotion(before, after, violations),
            (_, Phase::Electing { .. }) => {
                let same = before.phase == after.phase;
                violations.unless(raised || same, 3, || "begins an election within an epoch".to_owned());
                let kept = (&before.primary, &before.members, before.acks_required, &before.baseline)
                    == (&after.primary, &after.members, after.acks_required, &after.baseline);
                // Before the first primary there is nothing that could be lost.
                let again = before.primary.is_none() && before.acks_required == after.acks_required && raised;
                let kept = kept || (again && self.is_about_recovered_data(after));
                violations.unless(kept, 3, || "an election changes what it is about".to_owned());
            }
            (Phase::Open, Phase::Open) => self.membership(before, after, raised, violations),
        }
    }

    fn is_behind(&self, before: &Rules) -> bool {
        self.heard().any(|(instance, report)| {
            let told = &report.persisted;
            let of = |id: &MemberId| id.instance == instance.name && id.incarnation == report.incarnation;
            let opened = told.primary.as_ref().is_some_and(of);
            let since = match (&before.phase, &before.primary) {
                (_, Some(primary)) if !of(&primary.id) => primary.epoch,
                (Phase::Electing { .. }, Some(_)) => before.epoch.saturating_sub(1),
                (Phase::Open, Some(_)) => u64::MAX,
                (_, None) => 0,
            };
            told.epoch > before.epoch || (opened && told.told_epoch > since)
        })
    }

    /// A first election about recovered data: it names one data directory, which was recovered for the present wish and was
    /// never opened, as the only member, and what that one holds as the baseline.
    fn is_about_recovered_data(&self, after: &Rules) -> bool {
        let Some(wish) = self.subject.recovery() else {
            return false;
        };
        let mut members = after.members.iter();
        let (Some(id), None) = (members.next(), members.next()) else {
            return false;
        };
        let Some((instance, report)) = self.find(id) else {
            return false;
        };
        let recovered = report.recovered.as_ref();
        let recovered = recovered.is_some_and(|it| it.request == wish.request && it.reached == after.baseline);
        let opened = report.persisted.told_epoch > 0 || report.persisted.primary.is_some();
        let preferred = after.phase
            == Phase::Electing {
                preferred: Some(id.clone()),
            };
        instance.ordinal == 0
            && report.mysqld == Mysqld::Running
            && preferred
            && recovered
            && !opened
            && after.primary.is_none()
            && report.set() == after.baseline
    }

    /// Bootstrap and resumption: all wanted instances are heard, and either nobody was ever opened and nobody has a
    /// transaction that was not recovered, or nobody has an empty volume.
    fn first_record(&self, after: &Rules, violations: &mut Violations) {
        let replicas = self.subject.replicas(self.observed);
        let reports: Vec<_> = self
            .heard()
            .filter(|(instance, _)| instance.ordinal < replicas)
            .collect();
        violations.unless(u32::try_from(reports.len()) == Ok(replicas), 3, || {
            "decides without a memory and without all instances".to_owned()
        });
        let highest = reports.iter().map(|(_, report)| report.persisted.epoch).max();
        violations.unless(after.epoch > highest.unwrap_or_default(), 3, || {
            "begins under an old epoch".to_owned()
        });
        violations.unless(matches!(after.phase, Phase::Electing { .. }), 3, || {
            "opens without an election".to_owned()
        });
        if after.primary.is_none() {
            let opened =
                |report: &InstanceReport| report.persisted.told_epoch > 0 || report.persisted.primary.is_some();
            // What was recovered is nobody's write; of anything else nobody knows whether it was acknowledged.
            let known = if self.is_about_recovered_data(after) {
                after.baseline.clone()
            } else {
                GtidSet::new()
            };
            let data = reports
                .iter()
                .any(|(_, report)| opened(report) || !known.contains(&report.set()));
            violations.unless(!data, 3, || "bootstraps over data".to_owned());
            violations.unless(after.baseline == known, 3, || {
                "demands what nobody recovered".to_owned()
            });
            let empty = known.is_empty() && self.subject.recovery().is_some();
            violations.unless(!empty, 3, || "bootstraps empty what is to be recovered".to_owned());
        } else {
            let empty = reports.iter().any(|(_, report)| report.pristine);
            violations.unless(!empty, 3, || "resumes without all data".to_owned());
        }
    }

    /// Invariant 4.
    fn promotion(&self, before: &Rules, after: &Rules, violations: &mut Violations) {
        let Some(primary) = &after.primary else {
            return violations.unless(false, 4, || "opens nobody".to_owned());
        };
        violations.unless(after.epoch == before.epoch && primary.epoch == after.epoch, 4, || {
            "promotes in another epoch than it fenced in".to_owned()
        });
        let accepted = accepted(before, &primary.id);
        let k = after.acks_required == before.acks_required || (accepted && after.acks_required < before.acks_required);
        violations.unless(k, 6, || "changes k in an election".to_owned());
        violations.unless(accepted || before.data_loss == after.data_loss, 15, || {
            "loses data without being asked".to_owned()
        });
        violations.unless(!after.keeps_out(&primary.id.instance), 14, || {
            format!("{} is kept out and wins", primary.id.instance)
        });
        let Some(winner) = self.held(&primary.id) else {
            return violations.unless(false, 4, || format!("{} is not fenced", primary.id.instance));
        };
        let set = winner.set();
        violations.unless(winner.fully_applied(), 4, || {
            "the winner has a relay log to apply".to_owned()
        });
        violations.unless(winner.replication.source_host.is_none(), 4, || {
            "the winner follows somebody".to_owned()
        });
        violations.unless(accepted || set.contains(&before.baseline), 4, || {
            "the winner lacks the baseline".to_owned()
        });
        violations.unless(after.baseline == set, 4, || {
            "the baseline is not the winner's set".to_owned()
        });
        violations.unless(winner.server_uuid == primary.server_uuid, 4, || {
            "another server_uuid".to_owned()
        });
        let host = self.subject.host(&primary.id.instance);
        for member in &after.members {
            self.joins_well(member, violations);
            let follows = self.held(member).is_some_and(|report| {
                report.set().contains(&set)
                    && report.replication.source_host.as_ref() == Some(&host)
                    && report.replication.receiver_running
            });
            violations.unless(follows, 4, || {
                format!("{} does not follow with everything", member.instance)
            });
        }
        violations.unless(enough(after.members.len(), after.acks_required), 4, || {
            "too few followers".to_owned()
        });
        if accepted {
            self.accepted_loss(before, after, &primary.id, &set, violations);
        } else {
            self.election(before, &primary.id, &set, violations);
        }
    }

    /// Rules 3 and 4, from the definitions.
    fn election(&self, before: &Rules, winner: &MemberId, set: &GtidSet, violations: &mut Violations) {
        let Some(old) = &before.primary else { return };
        let unfenced = before
            .members
            .iter()
            .filter(|member| self.held(member).is_none())
            .count();
        let few = !enough(unfenced, before.acks_required);
        let old_report = self.held(&old.id);
        violations.unless(few || old_report.is_some(), 4, || {
            format!("{unfenced} members are not fenced")
        });
        let part = winner == &old.id || before.members.contains(winner);
        violations.unless(part, 4, || {
            "the winner is neither a member nor the old primary".to_owned()
        });
        for member in &before.members {
            let Some(report) = self.held(member) else { continue };
            let theirs = report.set();
            let legit = theirs
                .intersect(&before.baseline)
                .union(&theirs.of_source(&old.server_uuid));
            violations.unless(set.contains(&legit), 4, || format!("{} has more", member.instance));
        }
        if let (false, Some(report)) = (few, old_report) {
            violations.unless(set.contains(&report.set()), 4, || "the old primary has more".to_owned());
        }
        if winner != &old.id {
            let more = set.subtract(&before.baseline).without_source(&old.server_uuid);
            violations.unless(more.is_empty(), 4, || format!("the winner is errant: {more}"));
        }
    }

    /// Invariants 5 and 6.
    fn membership(&self, before: &Rules, after: &Rules, raised: bool, violations: &mut Violations) {
        let same_reign =
            before.primary == after.primary && (before.baseline == after.baseline || self.rebases(before, after));
        violations.unless(same_reign, 4, || "changes the reign without an election".to_owned());
        let changed = before.members != after.members || before.acks_required != after.acks_required;
        violations.unless(raised || !changed, 3, || {
            "changes members or k within an epoch".to_owned()
        });
        let Some(primary) = &before.primary else { return };
        let confirmed = self.confirmed(&primary.id).filter(|report| report.writable);
        for member in after.members.difference(&before.members) {
            self.joins_well(member, violations);
            let joins = match (self.read_only(member), confirmed) {
                (Some(report), Some(open)) => {
                    let known = open.set().union(&report.set().of_source(&primary.server_uuid));
                    report.replication.source_host.is_none() && report.fully_applied() && known.contains(&report.set())
                }
                _ => false,
            };
            violations.unless(joins, 5, || format!("{} joins unseen", member.instance));
        }
        for member in before.members.difference(&after.members) {
            self.dropped(before, after, member, confirmed, violations);
        }
        if after.acks_required > before.acks_required {
            let told = confirmed.map(|open| (open.persisted.acks_required, open.marker.is_some(), open.list_uncertain));
            violations.unless(told == Some((after.acks_required, true, false)), 6, || {
                "k is raised unseen".to_owned()
            });
        }
    }

    /// A primary that stands alone and is open has all there is, whatever the baseline said.
    fn rebases(&self, before: &Rules, after: &Rules) -> bool {
        let alone = |rules: &Rules| rules.members.is_empty() && rules.acks_required == 0;
        let open = before.primary.as_ref().and_then(|primary| self.find(&primary.id));
        alone(before)
            && alone(after)
            && after.epoch > before.epoch
            && open.is_some_and(|(_, open)| open.writable && open.set() == after.baseline)
    }

    fn dropped(
        &self,
        before: &Rules,
        after: &Rules,
        member: &MemberId,
        open: Option<&InstanceReport>,
        violations: &mut Violations,
    ) {
        let told = open.is_some_and(|open| {
            !open.list_uncertain
                && open.persisted.members.iter().cloned().collect::<BTreeSet<_>>() == after.members
                && open.persisted.acks_required >= before.acks_required
        });
        violations.unless(told, 5, || format!("{} may still acknowledge", member.instance));
        if before.acks_required == 0 {
            return;
        }
        let Some(marker) = open.and_then(|open| open.marker.as_ref()) else {
            return violations.unless(false, 5, || "drops without a marker".to_owned());
        };
        let contain = after.members.iter().filter_map(|id| self.confirmed(id));
        let contain = contain
            .filter(|r| r.mysqld == Mysqld::Running && r.set().contains(marker))
            .count();
        let least = before
            .acks_required
            .min(u32::try_from(after.members.len()).unwrap_or(u32::MAX))
            .max(1);
        violations.unless(enough(contain, least), 5, || {
            format!("{} may hold the only copy", member.instance)
        });
    }

    /// Invariant 15: what a person gives up is a member's or the old primary's, or nobody is left who is either; and what is
    /// known of it is written down.
    fn accepted_loss(
        &self,
        before: &Rules,
        after: &Rules,
        winner: &MemberId,
        set: &GtidSet,
        violations: &mut Violations,
    ) {
        let old = before.primary.as_ref().map(|primary| &primary.id);
        let part = old == Some(winner) || before.members.contains(winner) || self.nobody_is_left(before, winner);
        violations.unless(part, 15, || {
            format!("{} takes no part and is promoted", winner.instance)
        });
        let told = after.data_loss.as_ref().filter(|loss| loss.epoch == after.epoch);
        let missing = before.baseline.subtract(set);
        let written = missing.is_empty() || told.is_some_and(|loss| loss.missing.contains(&missing));
        violations.unless(written, 15, || "hides what is lost".to_owned());
    }

    fn nobody_is_left(&self, before: &Rules, winner: &MemberId) -> bool {
        let part = |id: &MemberId| self.find(id).is_some();
        let old = before.primary.as_ref().is_some_and(|primary| part(&primary.id));
        let reset = self.find(winner).is_some_and(|(_, report)| report.history_reset);
        reset && !old && !before.members.iter().any(part)
    }
}

/// A person accepted, in the memory that was read, that data is lost when this one is promoted.
fn accepted(before: &Rules, winner: &MemberId) -> bool {
    before.request.as_ref().is_some_and(|request| {
        request.state == RequestState::Running
            && request.verb == "promote"
            && request.accept_data_loss
            && request.instance.as_ref() == Some(&winner.instance)
    })
}
