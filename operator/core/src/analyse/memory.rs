//! Problems of the rules' memory, and of the cluster as a whole.

use std::collections::BTreeSet;

use crate::analyse::{Analysis, ConditionType, Problem, ProblemCode};
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, Observed, Standstill};
use crate::plan::{self, Hindrance};
use crate::rules::{MemberId, Phase, PrimaryRef};
use crate::subject::Subject;
use crate::view::{Seen, View};

/// No memory: a new cluster, or a lost status.
pub(super) fn absent(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    let recovered = |report: &InstanceReport| {
        let wish = subject.recovery();
        wish.is_some_and(|wish| report.is_recovered(&wish.request))
    };
    // Nobody misses a memory of data that were recovered a moment ago, or of clones of them.
    let first = observed.instances.iter().filter_map(InstanceObserved::report);
    let first = first.filter(|report| recovered(report)).map(InstanceReport::set).next();
    let known = |report: &InstanceReport| {
        let set = first.as_ref().filter(|_| report.never_opened());
        set.is_some_and(|set| set.contains(&report.set()))
    };
    let used = observed.instances.iter().filter(|instance| {
        instance
            .report()
            .is_some_and(|report| holds_data(report) && !known(report))
    });
    let names: Vec<_> = used.map(|instance| instance.name.to_string()).collect();
    if names.is_empty() {
        if let Some(Hindrance::Person { what, remedy }) = plan::hinders_bootstrap(subject, observed) {
            analysis.found_with(ProblemCode::FirstPrimaryPending, what, &remedy);
        } else {
            let message = pending(subject, observed, analysis);
            analysis.found(ProblemCode::FirstPrimaryPending, message);
        }
        return;
    }
    let lost = format!(
        "{} hold data, but status does not say who the primary was",
        names.join(", ")
    );
    let hindrance = plan::hinders_bootstrap(subject, observed);
    match hindrance.or_else(|| plan::hinders_resumption(subject, observed)) {
        None => analysis.found(ProblemCode::StatusLost, lost),
        Some(Hindrance::Instances(what)) => {
            analysis.found(ProblemCode::StatusLost, format!("{lost}; it waits for {what}"));
        }
        Some(Hindrance::Person { what, remedy }) => {
            analysis.found_with(ProblemCode::StatusLost, format!("{lost}; {what}"), &remedy);
        }
    }
}

/// Why a new cluster has no primary yet, as far as the other problems say it.
fn pending(subject: &Subject<'_>, observed: &Observed, analysis: &Analysis) -> String {
    let refused = analysis.of(ProblemCode::SpecInvalid).next().is_some();
    if refused && subject.built_replicas(observed).is_none() {
        return "nothing is made before the spec can be accepted".to_owned();
    }
    let hinders = |problem: &&Problem| {
        let kind = problem.code.kind();
        let made = kind.condition == ConditionType::ResourcesReady || problem.code == ProblemCode::MysqldFailing;
        made && problem.code != ProblemCode::SecretUnusable
    };
    let problems: Vec<_> = analysis.problems.iter().filter(hinders).collect();
    let names: BTreeSet<_> = problems
        .iter()
        .filter_map(|problem| problem.instance.as_ref())
        .collect();
    let names: Vec<_> = names.into_iter().map(ToString::to_string).collect();
    match (names.as_slice(), problems.is_empty()) {
        (_, true) if subject.recovery().is_some() => "the first instance recovers the data".to_owned(),
        (_, true) => "the first instances are being made".to_owned(),
        ([], false) => "the first instances cannot be made".to_owned(),
        ([one], false) => {
            format!("the first primary is elected when every instance answers, and {one} does not come up")
        }
        (names, false) => format!(
            "the first primary is elected when every instance answers, and {} do not come up",
            names.join(", ")
        ),
    }
}

/// It was opened once, or has transactions; while mysqld does not answer nobody knows whether it has, if it was told anything.
fn holds_data(report: &InstanceReport) -> bool {
    if report.mysqld == Mysqld::Running {
        !report.is_blank()
    } else {
        report.persisted.epoch > 0
    }
}

/// What the memory says, compared with what was seen.
pub(super) fn known(view: &View<'_>, analysis: &mut Analysis) {
    behind(view, analysis);
    match (&view.rules.primary, &view.rules.phase) {
        (None, _) => {
            analysis.found(ProblemCode::FirstPrimaryPending, "the first primary is being elected");
        }
        (Some(primary), Phase::Electing { .. }) if view.closed_on_request() => {
            let name = &primary.id.instance;
            let message = format!("{name}, the primary, is fenced on request");
            analysis.found_on(ProblemCode::PrimaryFenced, name, message);
        }
        (Some(primary), Phase::Electing { preferred }) => {
            let why = match preferred {
                Some(preferred) => format!(
                    "the primary is being moved from {} to {}",
                    primary.id.instance, preferred.instance
                ),
                None => format!("a primary is being elected in place of {}", primary.id.instance),
            };
            analysis.found(ProblemCode::ElectionInProgress, why);
        }
        (Some(primary), Phase::Open) => open(view, primary, analysis),
    }
}

fn behind(view: &View<'_>, analysis: &mut Analysis) {
    let told = view
        .heard()
        .map(|seen| seen.report.persisted.epoch)
        .max()
        .unwrap_or_default();
    if told > view.rules.epoch {
        let message = format!(
            "status is of epoch {}, but an instance was told of epoch {told}",
            view.rules.epoch
        );
        analysis.found(ProblemCode::StatusBehind, message);
    }
}

/// What else commits wait for. It is told and begins no election: a lock is a person's, and where commits of a full volume do
/// not end the manager ends mysqld (rule 2 c).
fn standstill(open: Seen<'_>, enough: bool, analysis: &mut Analysis) {
    let name = &open.instance.name;
    let though = if enough {
        ", though enough replicas acknowledge"
    } else {
        ""
    };
    match &open.report.standstill {
        None => {}
        Some(Standstill::DiskFull) => {
            let message = format!(
                "the data volume of {name}, the primary, is full: statements that need room fail, and commits wait when none is left{though}"
            );
            analysis.found_on(ProblemCode::DiskFull, name, message);
        }
        Some(Standstill::GlobalLock { holder }) => {
            let holder = if holder.is_empty() { "somebody" } else { holder };
            let message = format!(
                "{holder} locked everything on {name}, the primary (FLUSH TABLES WITH READ LOCK): no commit ends{though}"
            );
            analysis.found_on(ProblemCode::GlobalReadLock, name, message);
        }
    }
}

/// Who does not acknowledge, and why.
fn missing(view: &View<'_>, open: Seen<'_>) -> String {
    let connected = |id: &MemberId| {
        let receives = view.find(id).is_some_and(|seen| view.receiving(seen));
        receives || open.report.semi_sync.acknowledgers.contains(&id.instance)
    };
    let away = view.rules.members.iter().filter(|id| !connected(id));
    let mut why: Vec<_> = away.map(|id| plan::cannot_acknowledge(view, id)).collect();
    // A member that was dropped, or one that never joined, is missed as much.
    let outside = view.observed.instances.iter().filter(|instance| {
        let known = view.rules.members.iter().any(|id| id.instance == instance.name);
        view.wanted(instance) && !known && instance.name != open.instance.name
    });
    why.extend(outside.map(|instance| format!("{} is no member", instance.name)));
    if why.is_empty() {
        "there are no others".to_owned()
    } else {
        why.join("; ")
    }
}

fn open(view: &View<'_>, primary: &PrimaryRef, analysis: &mut Analysis) {
    let name = &primary.id.instance;
    let Some(open) = view.open_primary() else {
        let silent = view.instance(&primary.id).and_then(View::silent_since);
        if silent.is_some_and(|since| view.age(since) < view.timing.silence) {
            return;
        }
        let message = format!("the primary {name} does not accept writes");
        analysis.found_on(ProblemCode::PrimaryLost, name, message);
        return;
    };
    let connected =
        |seen: &Seen<'_>| view.receiving(*seen) || open.report.semi_sync.acknowledgers.contains(&seen.instance.name);
    let receiving = view.members().filter(connected).count();
    let unknown = view
        .rules
        .members
        .iter()
        .filter_map(|id| View::silent_since(view.instance(id)?));
    let unknown = unknown.filter(|since| view.age(*since) < view.timing.silence).count();
    let receiving = receiving.saturating_add(unknown);
    let blocked = u32::try_from(receiving).is_ok_and(|receiving| receiving < view.rules.acks_required);
    if blocked {
        let message = format!(
            "a commit waits for {}, and {receiving} of {} members receive from {name} ({})",
            plan::acknowledgements(view.rules.acks_required),
            view.rules.members.len(),
            missing(view, open)
        );
        analysis.found(ProblemCode::WritesBlocked, message);
    }
    standstill(open, !blocked && view.rules.acks_required > 0, analysis);
    if view.prefers_writes() && view.rules.acks_required < view.wanted_acks() {
        let message = format!(
            "a commit waits for {} instead of {} ({})",
            plan::acknowledgements(view.rules.acks_required),
            view.wanted_acks(),
            missing(view, open)
        );
        analysis.found(ProblemCode::DurabilityLowered, message);
    }
    if view.rules.acks_required == 0 && view.replicas() > 1 {
        let message = format!("nobody but {name} has to have a commit before it returns, so nobody can replace it yet");
        analysis.found(ProblemCode::NoFailover, message);
    }
    let foreign = open
        .report
        .executed
        .subtract(&view.rules.baseline)
        .without_source(&primary.server_uuid);
    if !foreign.is_empty() {
        let message = format!("{name} has {foreign}, which it did not write itself");
        analysis.found_on(ProblemCode::ForeignTransactions, name, message);
    }
}
