//! An invariant checker over plans: docs/failover.md, "Invariants", derived anew from the observation.
//!
//! It shares no predicate with the planner, so that a mistake in one of them does not hide itself. Property tests, the
//! seeded world and model checks run it over every plan.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::GtidSet;
use crate::action::{Action, Desired, InstanceCommand, Record, Verb};
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, ObjectKind, Observed};
use crate::plan::Plan;
use crate::rules::{MemberId, Memory, Phase, Rules};
use crate::subject::Subject;

/// An invariant that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in docs/failover.md.
    pub invariant: u8,
    /// How.
    pub what: String,
}

/// Every invariant that `plan` breaks.
#[must_use]
pub fn check(subject: &Subject<'_>, observed: &Observed, plan: &Plan, now: Timestamp) -> Vec<Violation> {
    let before = observed.rules();
    let after = plan.actions.iter().find_map(|action| match action {
        Action::Record(record) => Some(&record.rules),
        _ => None,
    });
    let checker = Checker {
        subject,
        observed,
        before,
        after: after.or(before),
        now,
    };
    let mut violations = Violations::default();
    order(plan, &mut violations);
    checker.unreadable(plan, &mut violations);
    for action in &plan.actions {
        match action {
            Action::Record(record) => checker.record(record, &mut violations),
            Action::Command(commands) => {
                for command in commands {
                    checker.command(command, &mut violations);
                }
            }
            Action::DeletePod { instance, .. } => checker.delete_pod(&instance.0, &mut violations),
            Action::DeleteObject { key, .. } => {
                let harmless = matches!(
                    key.kind,
                    ObjectKind::ConfigMap | ObjectKind::PodDisruptionBudget | ObjectKind::EndpointSlice
                );
                violations.unless(harmless, 9, || format!("{key:?} is deleted"));
            }
            Action::Apply(desired) => checker.apply(desired, &mut violations),
            Action::GeneratePasswords { .. }
            | Action::CreateCa { .. }
            | Action::IssueServerCertificate { .. }
            | Action::WriteClientCa => {}
        }
    }
    checker.risk(plan, &mut violations);
    violations.0
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn unless(&mut self, holds: bool, invariant: u8, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation {
                invariant,
                what: what(),
            });
        }
    }
}

struct Checker<'a> {
    subject: &'a Subject<'a>,
    observed: &'a Observed,
    before: Option<&'a Rules>,
    after: Option<&'a Rules>,
    now: Timestamp,
}

/// An instance in the incarnation in which it is heard.
type Heard<'a> = (&'a InstanceObserved, &'a InstanceReport);

impl<'a> Checker<'a> {
    fn heard(&self) -> impl Iterator<Item = Heard<'a>> + use<'a> {
        self.observed
            .instances
            .iter()
            .filter_map(|instance| Some((instance, instance.report()?)))
    }

    fn find(&self, id: &MemberId) -> Option<Heard<'a>> {
        self.heard()
            .find(|(instance, report)| instance.name == id.instance && report.incarnation == id.incarnation)
    }

    /// Confirmed under the epoch of status before this plan.
    fn confirmed(&self, id: &MemberId) -> Option<&'a InstanceReport> {
        let before = self.before?;
        let (instance, report) = self.find(id)?;
        let settled = instance.heard().is_some_and(|heard| heard.settled);
        (settled && before.owner == self.observed.operator && report.persisted.epoch == before.epoch).then_some(report)
    }

    fn read_only(&self, id: &MemberId) -> Option<&'a InstanceReport> {
        self.confirmed(id)
            .filter(|report| report.mysqld == Mysqld::Running && !report.writable)
    }

    /// Confirmed, read-only, and following nobody who accepts writes or could still be the old primary.
    fn held(&self, id: &MemberId) -> Option<&'a InstanceReport> {
        let report = self.read_only(id)?;
        let Some(host) = &report.replication.source_host else {
            return Some(report);
        };
        let (source, other) = self
            .heard()
            .find(|(instance, _)| &self.subject.host(&instance.name) == host)?;
        let source = MemberId {
            instance: source.name.clone(),
            incarnation: other.incarnation.clone(),
        };
        let old = self
            .before
            .and_then(|rules| rules.primary.as_ref())
            .is_some_and(|primary| primary.id == source);
        let detached = |report: &InstanceReport| report.replication.source_host.is_none();
        let safe = !other.writable && (!old || self.read_only(&source).is_some_and(detached));
        safe.then_some(report)
    }

    fn open_primary(&self) -> Option<Heard<'a>> {
        let primary = self.before?.primary.as_ref()?;
        self.find(&primary.id).filter(|(_, report)| {
            report.writable && report.mysqld == Mysqld::Running && report.persisted.epoch >= primary.epoch
        })
    }

    /// Invariant 13, the first half.
    fn unreadable(&self, plan: &Plan, violations: &mut Violations) {
        if matches!(self.observed.memory, Memory::Unreadable { .. }) {
            violations.unless(plan.actions.is_empty(), 13, || {
                "acts on an unreadable memory".to_owned()
            });
        }
    }

    /// Invariants 3 to 6.
    fn record(&self, record: &Record, violations: &mut Violations) {
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
        match (&before.phase, &after.phase) {
            (Phase::Electing { .. }, Phase::Open) => self.promotion(before, after, violations),
            (_, Phase::Electing { .. }) => {
                let same = before.phase == after.phase;
                violations.unless(raised || same, 3, || "begins an election within an epoch".to_owned());
                let kept = (&before.primary, &before.members, before.acks_required, &before.baseline)
                    == (&after.primary, &after.members, after.acks_required, &after.baseline);
                violations.unless(kept, 3, || "an election changes what it is about".to_owned());
            }
            (Phase::Open, Phase::Open) => self.membership(before, after, raised, violations),
        }
    }

    fn is_behind(&self, before: &Rules) -> bool {
        self.heard().any(|(_, report)| report.persisted.epoch > before.epoch)
    }

    /// Bootstrap and resumption: all wanted instances are heard, and either all or none of them is pristine.
    fn first_record(&self, after: &Rules, violations: &mut Violations) {
        let replicas = self.subject.replicas(self.observed);
        let reports: Vec<_> = self
            .heard()
            .filter(|(instance, _)| instance.ordinal < replicas)
            .collect();
        violations.unless(u32::try_from(reports.len()) == Ok(replicas), 3, || {
            "decides without a memory and without all instances".to_owned()
        });
        let new = reports.iter().filter(|(_, report)| report.pristine).count();
        violations.unless(matches!(after.phase, Phase::Electing { .. }), 3, || {
            "opens without an election".to_owned()
        });
        if after.primary.is_none() {
            violations.unless(new == reports.len(), 3, || "bootstraps over data".to_owned());
        } else {
            violations.unless(new == 0, 3, || "resumes without all data".to_owned());
            let highest = reports
                .iter()
                .map(|(_, report)| report.persisted.epoch)
                .max()
                .unwrap_or_default();
            violations.unless(after.epoch > highest, 3, || "resumes under an old epoch".to_owned());
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
        violations.unless(after.acks_required == before.acks_required, 6, || {
            "changes k in an election".to_owned()
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
        violations.unless(set.contains(&before.baseline), 4, || {
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
        self.election(before, &primary.id, &set, violations);
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
        let same_reign = before.primary == after.primary && before.baseline == after.baseline;
        violations.unless(same_reign, 4, || "changes the reign without an election".to_owned());
        let changed = before.members != after.members || before.acks_required != after.acks_required;
        violations.unless(raised || !changed, 3, || {
            "changes members or k within an epoch".to_owned()
        });
        let Some(primary) = &before.primary else { return };
        let confirmed = self.confirmed(&primary.id).filter(|report| report.writable);
        for member in after.members.difference(&before.members) {
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
            let told = confirmed.map(|open| (open.persisted.acks_required, open.marker.is_some()));
            violations.unless(told == Some((after.acks_required, true)), 6, || {
                "k is raised unseen".to_owned()
            });
        }
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
            open.persisted.members.iter().cloned().collect::<BTreeSet<_>>() == after.members
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

    /// Invariants 2, 7, 8 and 9.
    fn command(&self, command: &InstanceCommand, violations: &mut Violations) {
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
        match &command.verb {
            Verb::Fence | Verb::Restart => {}
            Verb::Attach { source } => self.attach(after, &command.to, &source.id, violations),
            Verb::Open {
                members,
                acks_required,
                baseline,
                ..
            } => {
                let recorded = after.primary.as_ref().is_some_and(|primary| primary.id == command.to)
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
            Verb::Clone { .. } => self.clone_over(after, &command.to, violations),
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
        violations.unless(self.read_only(to).is_some(), 9, || format!("{name} is replaced unseen"));
    }

    /// Invariant 10.
    fn risk(&self, plan: &Plan, violations: &mut Violations) {
        let mut risks = 0;
        for action in &plan.actions {
            risks += match action {
                Action::DeletePod { .. } => 1,
                Action::Command(commands) => commands
                    .iter()
                    .filter(|command| matches!(command.verb, Verb::Clone { .. }))
                    .count(),
                Action::Record(record) => usize::from(self.before.is_some_and(|before| {
                    before.phase == Phase::Open
                        && (before.members != record.rules.members
                            || before.acks_required != record.rules.acks_required)
                })),
                _ => 0,
            };
        }
        violations.unless(risks <= 1, 10, || format!("{risks} risky actions in one pass"));
    }

    /// Invariant 11.
    fn delete_pod(&self, name: &str, violations: &mut Violations) {
        let Some(instance) = self.observed.instances.iter().find(|instance| instance.name.0 == name) else {
            return violations.unless(false, 11, || format!("{name} does not exist"));
        };
        let mysqld = instance.report().map(|report| report.mysqld);
        let idle = matches!(mysqld, None | Some(Mysqld::Failed));
        if idle {
            return;
        }
        let open = self.open_primary().is_some_and(|(open, _)| open.name == instance.name);
        let replicas = self.subject.replicas(self.observed);
        violations.unless(!open || replicas == 1, 11, || format!("{name} is the open primary"));
        let impaired = |other: &&InstanceObserved| {
            let runs = other.report().is_some_and(|report| report.mysqld == Mysqld::Running);
            let pod = other.pod.as_ref().is_some_and(|pod| !pod.deleting);
            other.name != instance.name && other.ordinal < replicas && !(runs && pod)
        };
        let others = self.observed.instances.iter().filter(impaired).count();
        violations.unless(others == 0, 11, || {
            format!("{name} is restarted while {others} others are impaired")
        });
    }

    /// Invariant 12.
    fn apply(&self, desired: &Desired, violations: &mut Violations) {
        let service = desired
            .value
            .pointer("/metadata/labels/kubernetes.io~1service-name")
            .and_then(Value::as_str);
        if desired.key.kind != ObjectKind::EndpointSlice
            || service != Some(self.subject.names().primary_service().as_str())
        {
            return;
        }
        let uids = endpoints(&desired.value);
        violations.unless(uids.len() <= 1, 12, || format!("{} primaries are routed", uids.len()));
        let open = self
            .open_primary()
            .and_then(|(instance, _)| instance.pod.as_ref())
            .map(|pod| pod.uid.as_str());
        let before = self
            .observed
            .objects
            .get(&desired.key)
            .map(|object| endpoints(&object.value))
            .unwrap_or_default();
        let known = uids.iter().all(|uid| Some(*uid) == open || before.contains(uid));
        violations.unless(known, 12, || {
            format!("{uids:?} is routed at {} and is not open", self.now)
        });
    }
}

/// Invariant 1.
fn order(plan: &Plan, violations: &mut Violations) {
    let place = |wanted: fn(&Action) -> bool| {
        plan.actions
            .iter()
            .enumerate()
            .filter(|(_, action)| wanted(action))
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
    };
    let records = place(|action| matches!(action, Action::Record(_)));
    violations.unless(records.is_empty() || records == [0], 1, || {
        format!("records at {records:?}")
    });
    let commands = place(|action| matches!(action, Action::Command(_)));
    let behind_the_record = commands.is_empty() || commands == [records.len()];
    violations.unless(behind_the_record, 1, || format!("commands at {commands:?}"));
    for action in &plan.actions {
        let Action::Command(commands) = action else { continue };
        let to: BTreeSet<_> = commands.iter().map(|command| &command.to.instance).collect();
        violations.unless(to.len() == commands.len(), 1, || {
            "two commands for one instance".to_owned()
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

fn endpoints(slice: &Value) -> Vec<&str> {
    let endpoints = slice.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    endpoints
        .filter_map(|endpoint| endpoint.pointer("/targetRef/uid").and_then(Value::as_str))
        .collect()
}

/// At least `wanted`.
fn enough(count: usize, wanted: u32) -> bool {
    usize::try_from(wanted).is_ok_and(|wanted| count >= wanted)
}
