//! What is told of each instance.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status::InstanceStatus;

use crate::observed::{InstanceObserved, Observed};
use crate::plan::{self, moment};
use crate::rules::Phase;
use crate::subject::Subject;
use crate::view::{Seen, View};

/// The wanted instances and those that still exist, in order.
pub(super) fn all(
    subject: &Subject<'_>,
    observed: &Observed,
    view: Option<&View<'_>>,
    previous: &MySQLClusterStatus,
) -> Vec<InstanceStatus> {
    let wanted = subject.replicas(observed);
    let told = observed
        .instances
        .iter()
        .filter(|i| i.ordinal < wanted || i.pod.is_some());
    told.map(|instance| one(instance, view, previous)).collect()
}

fn one(instance: &InstanceObserved, view: Option<&View<'_>>, previous: &MySQLClusterStatus) -> InstanceStatus {
    let before = previous.instances.iter().find(|before| before.name == instance.name.0);
    let report = instance.report();
    let said = |now: Option<&String>, then: Option<&Option<String>>| {
        now.filter(|text| !text.is_empty())
            .cloned()
            .or_else(|| then.cloned().flatten())
    };
    InstanceStatus {
        name: instance.name.0.clone(),
        role: view.and_then(|view| view.role(&instance.name)),
        incarnation: said(report.map(|r| &r.incarnation.0), before.map(|b| &b.incarnation)),
        version: said(report.map(|r| &r.version), before.map(|b| &b.version)),
        node: instance.pod.as_ref().and_then(|pod| pod.node.clone()),
        ready: view.is_some_and(|view| plan::serves(view, instance)),
        unreachable_since: unreachable_since(view, instance, before),
        errant: view.and_then(|view| errant(view, instance)),
        behind_seconds: view
            .and_then(|view| view.behind(instance))
            .and_then(|behind| i64::try_from(behind.as_secs()).ok()),
        holds: view.and_then(|view| holds(view, instance)),
    }
}

/// Since when it is not heard, if that is no moment; what a former process found stays.
fn unreachable_since(
    view: Option<&View<'_>>,
    instance: &InstanceObserved,
    before: Option<&InstanceStatus>,
) -> Option<MicroTime> {
    let since = View::silent_since(instance)?;
    let told = before.and_then(|before| before.unreachable_since.clone());
    let long = view.is_some_and(|view| view.age(since) >= view.timing.silence);
    told.or_else(|| long.then(|| MicroTime(moment(since))))
}

fn errant(view: &View<'_>, instance: &InstanceObserved) -> Option<String> {
    let report = instance.report()?;
    let seen = Seen { instance, report };
    let open = view.open_primary().filter(|_| !view.is_primary(seen))?;
    View::errant(seen, open).map(|errant| errant.to_string())
}

/// Its set, while it is fenced in an election: with these a person can judge what a promotion would lose.
fn holds(view: &View<'_>, instance: &InstanceObserved) -> Option<String> {
    let report = instance.report()?;
    let seen = Seen { instance, report };
    let electing = matches!(view.rules.phase, Phase::Electing { .. }) && view.rules.primary.is_some();
    (electing && view.held(seen)).then(|| report.set().to_string())
}
