//! Problems of single instances.

use crate::action::VerbKind;
use crate::analyse::{Analysis, Problem, ProblemCode, healing};
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, Observed, Reach, Standstill};
use crate::plan;
use crate::rules::{InstanceName, Phase};
use crate::subject::Subject;
use crate::view::{Seen, View};

/// Used space from which on a volume is nearly full, in percent.
const NEARLY_FULL: u64 = 90;

/// Looks at each instance.
pub(super) fn all(view: &View<'_>, analysis: &mut Analysis) {
    for name in view.rules.fences.keys() {
        analysis.found_on(
            ProblemCode::InstanceFenced,
            name,
            format!("{name} is fenced on request"),
        );
    }
    for instance in view.observed.instances.iter().filter(|instance| view.wanted(instance)) {
        healing::one(view, instance, analysis);
        match instance.report() {
            Some(report) => heard(view, Seen { instance, report }, analysis),
            None => not_heard(view, instance, analysis),
        }
        lagging(view, instance, analysis);
    }
    not_ready(view, analysis);
    for seen in view.heard().filter(|seen| seen.report.writable && !view.is_open(*seen)) {
        // In an election everybody is fenced: that is its work, not a problem.
        if view.rules.phase == Phase::Open {
            let message = format!("{} accepts writes and is not the open primary", seen.instance.name);
            analysis.found_on(ProblemCode::StrangerWritable, &seen.instance.name, message);
        }
    }
}

/// Looks at the instances of a cluster without a memory: a new one, of which mysqld may not start, or one whose status was lost.
pub(super) fn made(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    let wanted = subject.replicas(observed);
    for instance in observed.instances.iter().filter(|instance| instance.ordinal < wanted) {
        if let Some(report) = instance.report() {
            mysqld(instance, report, analysis);
            disk(&instance.name, report, analysis);
        }
    }
}

fn not_heard(view: &View<'_>, instance: &InstanceObserved, analysis: &mut Analysis) {
    let name = &instance.name;
    let Some(pod) = &instance.pod else {
        analysis.found_on(ProblemCode::InstanceMissing, name, format!("{name} has no pod"));
        return;
    };
    let long = View::silent_since(instance).is_some_and(|since| view.age(since) >= view.timing.silence);
    if !long || pod.ip.is_none() {
        return;
    }
    let node = pod
        .node
        .as_ref()
        .map(|node| format!(" on node {node}"))
        .unwrap_or_default();
    let why = match &instance.reach {
        Reach::Heard(_) => "",
        Reach::Silent { reason, .. } | Reach::Unknown { reason, .. } => kind_of_silence(reason),
    };
    analysis.found_on(
        ProblemCode::InstanceUnreachable,
        name,
        format!("{name}{node} cannot be reached ({why})"),
    );
}

/// The kind of failure, because the words of single tries differ from each other and status would never rest.
fn kind_of_silence(reason: &str) -> &'static str {
    let reason = reason.to_lowercase();
    if reason.contains("certificate") || reason.contains("tls") || reason.contains("handshake") {
        "the TLS connection to port 8443 fails"
    } else if reason.contains("refused") {
        "port 8443 refuses connections"
    } else {
        "no answer on port 8443"
    }
}

fn heard(view: &View<'_>, seen: Seen<'_>, analysis: &mut Analysis) {
    let name = &seen.instance.name;
    let report = seen.report;
    mysqld(seen.instance, report, analysis);
    if report.mysqld == Mysqld::Running {
        running(view, seen, analysis);
    }
    let member = view.rules.members.iter().find(|id| &id.instance == name);
    let known = view.is_member(seen) || view.is_primary(seen);
    if let Some(reset) = seen.history_reset() {
        analysis.found_on(ProblemCode::HistoryReset, name, reset);
    } else if let Some(member) = member
        && member.incarnation != report.incarnation
    {
        analysis.found_on(
            ProblemCode::VolumeReplaced,
            name,
            format!("{name} came back with another data directory"),
        );
    } else if !known && view.rules.primary.is_some() && view.rules.phase == Phase::Open && !view.kept_out(seen.instance)
    {
        analysis.found_on(
            ProblemCode::InstanceJoining,
            name,
            format!("{name} may not acknowledge yet"),
        );
    }
    disk(name, report, analysis);
}

/// Instances that do not serve while the primary does, when nothing else says why: `health` is `Degraded` because of them.
fn not_ready(view: &View<'_>, analysis: &mut Analysis) {
    if view.open_primary().is_none() {
        return;
    }
    let wanted = view.observed.instances.iter().filter(|instance| view.wanted(instance));
    for instance in wanted.filter(|instance| !plan::serves(view, instance)) {
        let named = |problem: &Problem| problem.instance.as_ref() == Some(&instance.name) && problem.code.hinders();
        if !analysis.problems.iter().any(named) {
            let message = why_not_ready(instance);
            analysis.found_on(ProblemCode::InstanceNotReady, &instance.name, message);
        }
    }
}

fn why_not_ready(instance: &InstanceObserved) -> String {
    let name = &instance.name;
    let pod = instance.pod.as_ref();
    let node = pod.and_then(|pod| pod.node.as_ref());
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    match pod {
        Some(pod) if pod.evicted => {
            return format!(
                "the pod of {name}{on} is being deleted: the node does not answer Kubernetes, or has a taint that lets no pod stay"
            );
        }
        Some(pod) if pod.deleting => return format!("the pod of {name}{on} is being deleted"),
        Some(pod) if matches!(pod.phase.as_str(), "Succeeded" | "Failed") => {
            return format!("the pod of {name}{on} has ended");
        }
        Some(_) | None => {}
    }
    let Some(report) = instance.report() else {
        return format!("{name}{on} has not answered yet");
    };
    if report.leaving {
        format!("{name}{on} is being stopped")
    } else if report.mysqld == Mysqld::Running {
        format!("{name} does not follow the primary yet, and is behind no Service")
    } else {
        format!("mysqld of {name} {}", plan::state_of(report.mysqld))
    }
}

fn mysqld(instance: &InstanceObserved, report: &InstanceReport, analysis: &mut Analysis) {
    let name = &instance.name;
    // It is being stopped.
    if instance.pod.as_ref().is_some_and(|pod| pod.deleting) {
        return;
    }
    let told = |problem: &Problem| problem.instance.as_ref() == Some(name);
    let causes = [ProblemCode::RecoveryFailed, ProblemCode::DataBroken];
    if causes.into_iter().any(|code| analysis.of(code).any(told)) {
        return;
    }
    // Between two tries that fail it is starting, and nothing is better than before.
    let trying = matches!(report.mysqld, Mysqld::Starting | Mysqld::Initialising) && !report.message.is_empty();
    let state = match (report.mysqld, report.failures) {
        (Mysqld::Down, 0..=1) => "is down",
        (Mysqld::Down | Mysqld::Failed, _) => "does not start",
        (Mysqld::Starting | Mysqld::Initialising, 1) if trying => "starts again",
        (Mysqld::Starting | Mysqld::Initialising, 2..) if trying => "does not start",
        (Mysqld::Running | Mysqld::Cloning | Mysqld::Starting | Mysqld::Initialising, _) => return,
    };
    let said = if report.message.is_empty() {
        String::new()
    } else {
        format!(": {}", report.message)
    };
    let message = format!("mysqld of {name} {state}{said}");
    let remedy = ProblemCode::MysqldFailing.kind().remedy;
    if is_about_a_variable(&report.message) {
        let remedy = format!("{remedy}; a variable that it refuses stands in spec.config");
        analysis.found_on_with(ProblemCode::MysqldFailing, name, message, remedy);
    } else {
        analysis.found_on(ProblemCode::MysqldFailing, name, message);
    }
}

/// What mysqld says of a name or a value in my.cnf that it does not take.
fn is_about_a_variable(message: &str) -> bool {
    let words = [
        "unknown variable",
        "unknown option",
        "while setting value",
        "system variable",
    ];
    let message = message.to_lowercase();
    words.iter().any(|word| message.contains(word))
}

fn lagging(view: &View<'_>, instance: &InstanceObserved, analysis: &mut Analysis) {
    if let (Some(behind), Some(primary)) = (view.behind(instance), &view.rules.primary) {
        let name = &instance.name;
        let message = format!(
            "{name} is {} s or more behind {}",
            behind.as_secs(),
            primary.id.instance
        );
        analysis.found_on(ProblemCode::ReplicationLagging, name, message);
    }
}

fn running(view: &View<'_>, seen: Seen<'_>, analysis: &mut Analysis) {
    let name = &seen.instance.name;
    if view.is_primary(seen) {
        return;
    }
    if let Some(open) = view.open_primary()
        && let Some(errant) = View::errant(seen, open)
    {
        let message = format!("{name} has {errant}, which {} does not have", open.instance.name);
        analysis.found_on(ProblemCode::ErrantTransactions, name, message);
    }
    let replication = &seen.report.replication;
    // A receiver's error is told while there is somebody to receive from, and who may: an old primary that was attached by
    // the election is locked out until it is a member.
    let missed = view.open_primary().is_some() && view.is_member(seen) && !replication.receiver_running;
    // The first tries of one that was attached a moment ago may come before the source lets it in. A receiver that gave up has
    // no source any more.
    let told = view.connects_in(seen).is_some() || seen.busy().is_some_and(|busy| busy.verb == VerbKind::Attach);
    let connects = told && !seen.detached();
    if missed && !connects && !replication.receiver_error.is_empty() {
        let message = format!("the receiver of {name} says: {}", replication.receiver_error);
        analysis.found_on(ProblemCode::ReplicationBroken, name, message);
    }
    if !replication.applier_error.is_empty() {
        analysis.found_on(ProblemCode::ApplierBroken, name, plan::cannot_apply(seen));
    }
}

fn disk(name: &InstanceName, report: &InstanceReport, analysis: &mut Analysis) {
    if analysis
        .of(ProblemCode::VolumeFull)
        .any(|problem| problem.instance.as_ref() == Some(name))
    {
        return;
    }
    let disk = report.disk;
    let percent = disk.used.saturating_mul(100).checked_div(disk.size).unwrap_or_default();
    if percent >= NEARLY_FULL {
        let nearly = if report.standstill == Some(Standstill::DiskFull) {
            ""
        } else {
            "nearly "
        };
        analysis.found_on(
            ProblemCode::DiskNearlyFull,
            name,
            format!("the volume of {name} is {nearly}full"),
        );
    }
}
