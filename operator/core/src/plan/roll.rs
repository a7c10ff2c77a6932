//! Rolling restart: pods that were made from an older template are replaced one at a time, replicas first.

use serde_json::Value;

use crate::action::Action;
use crate::names::ANNOTATION_TEMPLATE;
use crate::observed::{InstanceObserved, Mysqld, ObjectKey, ObjectKind, Observed, PodView};
use crate::plan::draft::Draft;
use crate::plan::{resume, switchover};
use crate::rules::Phase;
use crate::subject::Subject;
use crate::view::{Seen, View};

/// Hash of the template that the StatefulSet makes pods from now.
fn template(subject: &Subject<'_>, observed: &Observed) -> Option<String> {
    let key = ObjectKey {
        kind: ObjectKind::StatefulSet,
        name: subject.name.to_owned(),
    };
    let annotations = observed
        .objects
        .get(&key)?
        .value
        .pointer("/spec/template/metadata/annotations")?;
    annotations
        .get(ANNOTATION_TEMPLATE)
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// Instances with a pod of another template, that nobody deletes yet.
fn outdated<'a>(subject: &Subject<'_>, observed: &'a Observed) -> Vec<(&'a InstanceObserved, &'a PodView)> {
    let Some(template) = template(subject, observed) else {
        return Vec::new();
    };
    let pods = observed
        .instances
        .iter()
        .filter_map(|instance| Some((instance, instance.pod.as_ref()?)));
    pods.filter(|(_, pod)| !pod.deleting && pod.template.as_ref() != Some(&template))
        .collect()
}

/// Whether pods of an older template exist.
pub(crate) fn is_rolling(subject: &Subject<'_>, observed: &Observed) -> bool {
    !outdated(subject, observed).is_empty()
}

/// A pod that cannot run is replaced as soon as there is another template, without waiting for anything: nobody would
/// miss it, and its own readiness would never come (F12).
pub(crate) fn replace_stuck(subject: &Subject<'_>, observed: &Observed, draft: &mut Draft) {
    let stuck = outdated(subject, observed)
        .into_iter()
        .find(|(instance, pod)| is_stuck(instance, pod));
    if let Some((instance, pod)) = stuck
        && draft.take_risk()
    {
        delete(
            instance,
            pod,
            "it does not run, and its template is an older one",
            draft,
        );
    }
}

fn is_stuck(instance: &InstanceObserved, pod: &PodView) -> bool {
    match instance.report().map(|report| report.mysqld) {
        Some(Mysqld::Failed) => true,
        // It runs, or may be on its way: a recovery takes as long as it takes.
        Some(Mysqld::Running | Mysqld::Starting | Mysqld::Initialising | Mysqld::Cloning | Mysqld::Down) => false,
        None => !pod.ready && (pod.trouble.is_some() || pod.node.is_none()),
    }
}

/// One step of a rolling restart.
pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) {
    // What is fenced on request is left as it is, and waited for.
    let (kept, outdated): (Vec<_>, Vec<_>) = outdated(view.subject, view.observed)
        .into_iter()
        .partition(|(instance, _)| view.kept_out(instance));
    let quiet = view.rules.phase == Phase::Open
        && !draft.commands_or_records()
        && !resume::is_behind(view.observed, view.rules);
    if let (Some((instance, _)), true) = (kept.first(), outdated.is_empty()) {
        draft.wait(
            "rolling restart",
            format!("{} to be let in again: it is fenced on request", instance.name),
        );
    }
    if outdated.is_empty() || !quiet {
        return;
    }
    if view.open_primary().is_none() {
        draft.wait("rolling restart", "an open primary");
        return;
    }
    let wanted: Vec<_> = view
        .observed
        .instances
        .iter()
        .filter(|instance| view.wanted(instance))
        .collect();
    let unfit: Vec<_> = wanted.iter().filter(|instance| !is_fit(view, instance)).collect();
    let Some((instance, pod)) = next(view, &outdated, &unfit) else {
        let names: Vec<_> = unfit.iter().map(|instance| instance.name.to_string()).collect();
        draft.wait(
            "rolling restart",
            format!("{} to be in place and synced", names.join(", ")),
        );
        return;
    };
    let alone = wanted.iter().all(|other| other.name == instance.name) && view.wanted(instance);
    if is_recorded_primary(view, instance) && !alone {
        switchover::begin(view, &format!("{} takes a new configuration", instance.name), draft);
    } else if draft.take_risk() {
        delete(instance, pod, "its template is an older one", draft);
    }
}

/// The next instance: nobody else may be impaired; replicas first, the highest ordinal first.
fn next<'a>(
    view: &View<'_>,
    outdated: &[(&'a InstanceObserved, &'a PodView)],
    unfit: &[&&InstanceObserved],
) -> Option<(&'a InstanceObserved, &'a PodView)> {
    let alone = |instance: &InstanceObserved| unfit.iter().all(|other| other.name == instance.name);
    let candidates = outdated.iter().copied().filter(|(instance, _)| alone(instance));
    candidates.max_by_key(|(instance, _)| {
        let impaired = unfit.iter().any(|other| other.name == instance.name);
        (impaired, !is_recorded_primary(view, instance), instance.ordinal)
    })
}

fn is_recorded_primary(view: &View<'_>, instance: &InstanceObserved) -> bool {
    view.rules
        .primary
        .as_ref()
        .is_some_and(|primary| primary.id.instance == instance.name)
}

/// In place: the open primary, or a synced member, and ready.
fn is_fit(view: &View<'_>, instance: &InstanceObserved) -> bool {
    let Some(report) = instance.report() else { return false };
    let seen = Seen { instance, report };
    let serves = view.is_open(seen) || (view.is_member(seen) && view.synced(seen));
    serves && instance.pod.as_ref().is_some_and(|pod| pod.ready && !pod.deleting)
}

fn delete(instance: &InstanceObserved, pod: &PodView, reason: &str, draft: &mut Draft) {
    draft.push(Action::DeletePod {
        instance: instance.name.clone(),
        uid: pod.uid.clone(),
        at_once: false,
        reason: reason.to_owned(),
    });
}
