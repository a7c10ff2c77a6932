//! Problems of single instances.

use crate::analyse::{Analysis, Problem, ProblemCode};
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
        match instance.report() {
            Some(report) => heard(view, Seen { instance, report }, analysis),
            None => not_heard(view, instance, analysis),
        }
        lagging(view, instance, analysis);
    }
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
            mysqld(&instance.name, report, analysis);
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
    mysqld(name, report, analysis);
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

fn mysqld(name: &InstanceName, report: &InstanceReport, analysis: &mut Analysis) {
    let told = |problem: &Problem| problem.instance.as_ref() == Some(name);
    if analysis.of(ProblemCode::RecoveryFailed).any(told) {
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
    analysis.found_on(
        ProblemCode::MysqldFailing,
        name,
        format!("mysqld of {name} {state}{said}"),
    );
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
    if missed && !replication.receiver_error.is_empty() {
        let message = format!("the receiver of {name} says: {}", replication.receiver_error);
        analysis.found_on(ProblemCode::ReplicationBroken, name, message);
    }
    if !replication.applier_error.is_empty() {
        analysis.found_on(ProblemCode::ApplierBroken, name, plan::cannot_apply(seen));
    }
}

fn disk(name: &InstanceName, report: &InstanceReport, analysis: &mut Analysis) {
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
