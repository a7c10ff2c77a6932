//! Who is behind the Services (docs/failover.md, "Routing").

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::action::Action;
use crate::build::{PodAddress, endpoint_slices};
use crate::diff;
use crate::observed::{InstanceObserved, Mysqld, ObjectKey, ObjectKind, ObjectView};
use crate::plan::draft::Draft;
use crate::rules::{ChangeKind, InstanceName, Phase};
use crate::view::{Seen, View};

/// Writes the slices that differ from what they should be.
pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) {
    let names = view.subject.names();
    let (read_write, reads) = (names.primary_service(), names.replicas_service());
    let primary = primary(view, &read_write, draft);
    let replicas = replicas(view, &reads, draft);
    for (service, addresses) in [(read_write, primary), (reads, replicas)] {
        // A Service that was never routed gets an empty slice: "nobody serves" is written, not only missing.
        let addresses = addresses.or_else(|| slices(view, &service).next().is_none().then(Vec::new));
        if let Some(addresses) = addresses {
            write(view, &service, &addresses, draft);
        }
    }
}

/// What the read-write Service should hold; `None`: what it holds.
fn primary(view: &View<'_>, service: &str, draft: &mut Draft) -> Option<Vec<PodAddress>> {
    if let Some(open) = view.open_primary() {
        return address(open.instance).map(|address| vec![address]);
    }
    let (began, planned) = match (&view.rules.phase, &view.rules.last_change) {
        (Phase::Electing { preferred }, _) => (view.rules.phase_since, preferred.is_some()),
        (Phase::Open, Some(change)) if change.opened.is_none() => (change.began, change.kind == ChangeKind::Switchover),
        // A single instance that restarts: it will be the same one again.
        (Phase::Open, _) => return None,
    };
    let routed: Vec<_> = slices(view, service).flat_map(uids).collect();
    let returns = |seen: Seen<'_>| match seen.report.mysqld {
        Mysqld::Starting | Mysqld::Initialising | Mysqld::Cloning | Mysqld::Failed => true,
        Mysqld::Running => !planned,
        Mysqld::Down => false,
    };
    let restarted = view
        .heard()
        .any(|seen| returns(seen) && uid(seen.instance).is_some_and(|u| routed.contains(&u)));
    let limit = if restarted {
        view.timing.unroute_restarted
    } else {
        view.timing.unroute_primary
    };
    let left = limit.saturating_sub(view.age(began));
    if left.is_zero() {
        return Some(Vec::new());
    }
    if !routed.is_empty() {
        draft.look_in(left);
    }
    None
}

/// It may serve reads: it was compared with the primary, which is what members are, and follows it. One that follows nobody, or
/// cannot apply what it receives, would serve what it had for ever; while it is being told something, that is about to end.
fn serves_reads(view: &View<'_>, seen: Seen<'_>) -> bool {
    let kept_out = view.kept_out(seen.instance);
    let follows = || match view.open_primary() {
        Some(open) => view.follows(seen, &open.id()) || seen.busy().is_some(),
        // Nobody can be followed: what was compared last is the best that there is.
        None => true,
    };
    let reads = view.is_member(seen) && seen.running() && !seen.report.writable;
    reads && !seen.leaving() && !kept_out && !view.broken(seen) && follows()
}

/// It accepts writes or may serve reads; of one that is not heard for a moment, what was true before.
pub(crate) fn serves(view: &View<'_>, instance: &InstanceObserved) -> bool {
    if let Some(report) = instance.report() {
        let seen = Seen { instance, report };
        return view.is_open(seen) || serves_reads(view, seen);
    }
    let silent = View::silent_since(instance);
    let moment = silent.is_some_and(|since| view.age(since) < view.timing.unroute);
    moment && view.observed.told.ready.contains(&instance.name)
}

/// What the Service for reads should hold; `None`: what it holds.
fn replicas(view: &View<'_>, service: &str, draft: &mut Draft) -> Option<Vec<PodAddress>> {
    if let Some(rest) = quiet(view) {
        draft.look_in(rest);
        return None;
    }
    let routed: Vec<_> = slices(view, service).flat_map(uids).collect();
    let mut addresses: Vec<_> = view
        .heard()
        .filter(|seen| serves_reads(view, *seen))
        .collect::<Vec<_>>()
        .into_iter()
        .filter_map(|seen| address(seen.instance))
        .collect();
    for instance in view
        .observed
        .instances
        .iter()
        .filter(|instance| !view.kept_out(instance))
    {
        let Some(since) = View::silent_since(instance) else {
            continue;
        };
        let age = view.age(since);
        let served = uid(instance).is_some_and(|uid| routed.contains(&uid));
        if served && age < view.timing.unroute {
            addresses.extend(address(instance));
            draft.look_in(view.timing.unroute.saturating_sub(age));
        }
    }
    addresses.sort();
    let fallback = view.subject.spec.map_or(true, |spec| spec.fallback_to_primary);
    if addresses.is_empty() && fallback {
        addresses.extend(view.open_primary().and_then(|open| address(open.instance)));
    }
    Some(addresses)
}

/// How much longer the slice for reads is left alone, because a change of it would delay the primary's (decision A9).
fn quiet(view: &View<'_>) -> Option<Duration> {
    let left = |limit: Duration, at| Some(limit.saturating_sub(view.age(at))).filter(|left| !left.is_zero());
    match (&view.rules.phase, &view.rules.last_change) {
        (Phase::Electing { .. }, _) if view.rules.primary.is_none() => None,
        (Phase::Electing { .. }, _) => left(view.timing.open, view.rules.phase_since),
        (Phase::Open, None) => None,
        (Phase::Open, Some(change)) => match (change.kind, change.opened) {
            (ChangeKind::Bootstrap, _) => None,
            (ChangeKind::Failover | ChangeKind::Switchover, Some(opened)) => left(view.timing.routing, opened),
            (ChangeKind::Failover | ChangeKind::Switchover, None) => left(view.timing.open, change.began),
        },
    }
}

fn write(view: &View<'_>, service: &str, addresses: &[PodAddress], draft: &mut Draft) {
    for desired in endpoint_slices(view.subject, service, addresses) {
        let apply = match view.observed.objects.get(&desired.key) {
            None => true,
            Some(seen) => seen.ours && !seen.contested && diff::needs_apply(&desired.value, &seen.value).is_some(),
        };
        if apply {
            draft.push(Action::Apply(Box::new(desired)));
        }
    }
}

fn slices<'a>(view: &View<'a>, service: &str) -> impl Iterator<Item = &'a ObjectView> + use<'a> {
    let service = service.to_owned();
    let of = move |(key, slice): &(&'a ObjectKey, &'a ObjectView)| {
        let label = slice.value.pointer("/metadata/labels/kubernetes.io~1service-name");
        key.kind == ObjectKind::EndpointSlice && label.and_then(Value::as_str) == Some(service.as_str())
    };
    view.observed.objects.iter().filter(of).map(|(_, slice)| slice)
}

/// uids of the pods that a slice routes to.
fn uids(slice: &ObjectView) -> Vec<String> {
    let endpoints = slice.value.get("endpoints").and_then(Value::as_array);
    let uid = |endpoint: &Value| {
        endpoint
            .pointer("/targetRef/uid")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    endpoints.into_iter().flatten().filter_map(uid).collect()
}

/// uid of the pod of that instance to which the read-write Service routes, if it does.
pub(crate) fn routed_pod(view: &View<'_>, instance: &InstanceName) -> Option<String> {
    let service = view.subject.names().primary_service();
    let endpoints = slices(view, &service).filter_map(|slice| slice.value.get("endpoints")?.as_array());
    let pods = endpoints.flatten().filter_map(|endpoint| endpoint.get("targetRef"));
    let text = |pod: &Value, key| pod.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut routed = pods.filter(|pod| text(pod, "name").as_deref() == Some(&instance.0));
    routed.find_map(|pod| text(pod, "uid"))
}

fn uid(instance: &InstanceObserved) -> Option<String> {
    instance.pod.as_ref().map(|pod| pod.uid.clone())
}

fn address(instance: &InstanceObserved) -> Option<PodAddress> {
    let pod = instance.pod.as_ref()?;
    let instance: InstanceName = instance.name.clone();
    let address: IpAddr = pod.ip.as_ref()?.parse().ok()?;
    Some(PodAddress {
        instance,
        address,
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        zone: pod.zone.clone(),
    })
}
