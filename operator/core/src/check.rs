//! An invariant checker over plans: docs/failover.md, "Invariants", derived anew from the observation.
//!
//! It shares no predicate with the planner, so that a mistake in one of them does not hide itself. Property tests, the
//! seeded world and model checks run it over every plan.

mod commands;
mod records;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::action::{Action, Desired, Verb};
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, ObjectKey, ObjectKind, Observed};
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
            Action::DeleteClaim { instance, uid, .. } => checker.delete_claim(&instance.0, uid, &mut violations),
            Action::GrowClaim {
                instance, uid, bytes, ..
            } => checker.grow_claim(&instance.0, uid, *bytes, &mut violations),
            Action::DeleteObject { key, .. } => {
                let harmless = matches!(
                    key.kind,
                    ObjectKind::ConfigMap | ObjectKind::PodDisruptionBudget | ObjectKind::EndpointSlice
                ) || checker.is_used_recovery(key);
                violations.unless(harmless, 9, || format!("{key:?} is deleted"));
            }
            Action::Apply(desired) => checker.apply(desired, &mut violations),
            Action::GeneratePasswords { .. }
            | Action::OwnSecret { .. }
            | Action::LabelPod { .. }
            | Action::CreateCa { .. }
            | Action::IssueServerCertificate { .. }
            | Action::WriteClientCa
            | Action::WriteStoreAccess { .. }
            | Action::WriteRecovery { .. } => {}
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

    /// The Secret of a recovery that is over, or that nobody asks for.
    fn is_used_recovery(&self, key: &ObjectKey) -> bool {
        let over = self.open_primary().is_some() || self.subject.recovery().is_none();
        key.kind == ObjectKind::Secret && key.name == self.subject.names().recovery_secret() && over
    }

    /// Invariant 13, the first half.
    fn unreadable(&self, plan: &Plan, violations: &mut Violations) {
        if matches!(self.observed.memory, Memory::Unreadable { .. }) {
            violations.unless(plan.actions.is_empty(), 13, || {
                "acts on an unreadable memory".to_owned()
            });
        }
    }

    /// Invariant 10.
    fn risk(&self, plan: &Plan, violations: &mut Violations) {
        let mut risks = 0;
        for action in &plan.actions {
            risks += match action {
                Action::DeletePod { .. } | Action::DeleteClaim { .. } => 1,
                Action::Command(commands) => commands
                    .iter()
                    .filter(|command| matches!(command.verb, Verb::Clone { .. } | Verb::Refill { .. }))
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
        if self.gives_up(instance) && self.nobody_counts_on(instance) {
            return;
        }
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

    /// The recorded intent names the claim that it has, or had.
    fn gives_up(&self, instance: &InstanceObserved) -> bool {
        let rebuild = self.after.and_then(|rules| rules.rebuilds.get(&instance.name));
        let given_up = rebuild.and_then(|rebuild| rebuild.healing.as_ref()?.claim.as_ref());
        given_up.is_some_and(|uid| instance.claim.as_ref().is_none_or(|claim| &claim.uid == uid))
    }

    /// It is neither the recorded primary nor a member, in any life, and a primary is open that has everything.
    fn nobody_counts_on(&self, instance: &InstanceObserved) -> bool {
        let is_it = |id: &MemberId| id.instance == instance.name;
        let counts = |rules: &Rules| {
            rules.members.iter().any(is_it) || rules.primary.as_ref().is_some_and(|primary| is_it(&primary.id))
        };
        self.open_primary().is_some() && !self.before.into_iter().chain(self.after).any(counts)
    }

    /// Invariant 16, the first half.
    fn delete_claim(&self, name: &str, uid: &str, violations: &mut Violations) {
        let instance = self.observed.instances.iter().find(|instance| instance.name.0 == name);
        let Some(instance) = instance else {
            return violations.unless(false, 16, || format!("{name} does not exist"));
        };
        let its = instance.claim.as_ref().is_some_and(|claim| claim.uid == uid);
        violations.unless(its && self.gives_up(instance), 16, || {
            format!("the volume of {name} is deleted without a recorded intent")
        });
        violations.unless(self.nobody_counts_on(instance), 16, || {
            format!("the volume of {name} is deleted, and may be needed")
        });
        let kept_out = self.after.is_some_and(|rules| rules.keeps_out(&instance.name));
        violations.unless(!kept_out, 14, || format!("{name} is kept out, and loses its volume"));
    }

    /// Invariant 17.
    fn grow_claim(&self, name: &str, uid: &str, bytes: u64, violations: &mut Violations) {
        let instance = self.observed.instances.iter().find(|instance| instance.name.0 == name);
        let claim = instance.and_then(|instance| instance.claim.as_ref());
        let larger = claim.is_some_and(|claim| claim.uid == uid && claim.requested.is_some_and(|now| now < bytes));
        violations.unless(larger, 17, || {
            format!("the claim of {name} is asked for no more than it has")
        });
    }

    /// A volume that is given up stays so while its claim is there: somebody may still be about to delete it.
    fn stays_given_up(&self, violations: &mut Violations) {
        let claim_of = |rules: Option<&'a Rules>, instance: &InstanceObserved| {
            rules?.rebuilds.get(&instance.name)?.healing.as_ref()?.claim.clone()
        };
        for instance in &self.observed.instances {
            let before = claim_of(self.before, instance);
            let there = before.is_some() && before == instance.claim.as_ref().map(|claim| claim.uid.clone());
            violations.unless(!there || claim_of(self.after, instance) == before, 16, || {
                format!("the volume of {} is taken back", instance.name)
            });
        }
    }

    /// Invariant 16, the second half: nobody joins with a volume that is given up.
    fn joins_well(&self, member: &MemberId, violations: &mut Violations) {
        let instance = self
            .observed
            .instances
            .iter()
            .find(|instance| instance.name == member.instance);
        let doomed = instance.is_some_and(|instance| self.gives_up(instance));
        violations.unless(!doomed, 16, || {
            format!("{} joins with a volume that is given up", member.instance)
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
