//! Problems of the spec and of the Kubernetes objects made from it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::analyse::{Analysis, ProblemCode, RECOVERY_SOURCE};
use crate::names::CLAIM_TEMPLATE;
use crate::observed::{InstanceObserved, Mysqld, ObjectKind, Observed, PodView};
use crate::subject::Subject;

/// Fields that cannot be accepted, or that have no effect.
pub(super) fn spec(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    let built = subject.built_replicas(observed).is_some();
    for problem in subject.spec.err().unwrap_or_default() {
        let remedy = if built {
            "correct the field; the database goes on as it was last built"
        } else {
            "correct the field; nothing is made before"
        };
        let message = format!("{}: {}", problem.field, problem.message);
        analysis.found_with(ProblemCode::SpecInvalid, message, remedy);
    }
}

/// Objects that are somebody else's, contested or refused.
pub(super) fn objects(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    for (key, view) in &observed.objects {
        let object = format!("{} {}", kind(key.kind), key.name);
        if !view.ours {
            let message = format!("{object} exists and is not part of {}", subject.name);
            analysis.found(ProblemCode::NameConflict, message);
        } else if view.contested {
            analysis.found(
                ProblemCode::ObjectContested,
                format!("{object} is changed back by another writer"),
            );
        }
    }
    let complete = observed.instances.iter().all(|instance| instance.pod.is_some());
    for warning in &observed.warnings {
        let (code, skip) = match warning.reason.as_str() {
            // Events outlive what they tell of: with all pods there it is over.
            "FailedCreate" => (ProblemCode::PodsNotCreated, complete),
            // Told as what it hinders.
            RECOVERY_SOURCE => continue,
            reason if is_refusal(&warning.about, reason) => (ProblemCode::ObjectRefused, false),
            _ => continue,
        };
        if !skip {
            let message = format!("{}: {}: {}", warning.about, warning.reason, shorten(&warning.message));
            analysis.found(code, message);
        }
    }
    analysis.problems.dedup();
}

/// Refusals of the API server are about objects that are applied; what Kubernetes itself warns of is about pods, claims
/// and the StatefulSet, and is found in what these look like.
fn is_refusal(about: &str, reason: &str) -> bool {
    let event = ["Failed", "Recreating"].iter().any(|word| reason.starts_with(word));
    !about.starts_with("Pod/") && !about.starts_with("PersistentVolumeClaim/") && !event
}

/// What Kubernetes warned of last about an object, for one of these reasons.
fn warned<'a>(observed: &'a Observed, about: &str, reasons: &[&str]) -> Option<&'a str> {
    let warnings = observed.warnings.iter().rev();
    let mut about = warnings.filter(|warning| warning.about == about && reasons.contains(&warning.reason.as_str()));
    about.next().map(|warning| warning.message.as_str())
}

const fn kind(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::StatefulSet => "StatefulSet",
        ObjectKind::Service => "Service",
        ObjectKind::EndpointSlice => "EndpointSlice",
        ObjectKind::ConfigMap => "ConfigMap",
        ObjectKind::Secret => "Secret",
        ObjectKind::ServiceAccount => "ServiceAccount",
        ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
    }
}

/// Pods that cannot run, in the words of scheduler and kubelet.
pub(super) fn pods(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    let replicas = subject.replicas(observed);
    shared_nodes(replicas, observed, analysis);
    for instance in observed.instances.iter().filter(|instance| instance.ordinal < replicas) {
        volume(observed, instance, analysis);
        let Some(pod) = &instance.pod else { continue };
        if let Some(trouble) = &pod.trouble {
            let message = format!("{}: {}", instance.name, shorten(&steady(trouble)));
            analysis.found_on(trouble_code(pod, trouble), &instance.name, message);
        } else if !pod.ready && instance.report().is_none() {
            not_started(observed, instance, analysis);
        }
    }
}

/// Nodes with more than one instance: the scheduler keeps them apart where it can, and node-local volumes keep them where
/// they are.
fn shared_nodes(replicas: u32, observed: &Observed, analysis: &mut Analysis) {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for instance in observed.instances.iter().filter(|instance| instance.ordinal < replicas) {
        if let Some(node) = instance.pod.as_ref().and_then(|pod| pod.node.as_deref()) {
            nodes.entry(node).or_default().push(&instance.name.0);
        }
    }
    for (node, names) in nodes.into_iter().filter(|(_, names)| names.len() > 1) {
        analysis.found(
            ProblemCode::NodeShared,
            format!("{} run on {node}", names.join(" and ")),
        );
    }
}

/// A container that waits for its volumes or its network says nothing itself; the kubelet's events do.
fn not_started(observed: &Observed, instance: &InstanceObserved, analysis: &mut Analysis) {
    const REASONS: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"];
    if let Some(why) = warned(observed, &format!("Pod/{}", instance.name), &REASONS) {
        let message = format!("{}: {}", instance.name, shorten(why));
        analysis.found_on(ProblemCode::PodFailing, &instance.name, message);
    }
}

fn trouble_code(pod: &PodView, trouble: &str) -> ProblemCode {
    if pod.node.is_none() {
        ProblemCode::PodUnschedulable
    } else if ["ErrImage", "ImagePull", "InvalidImageName", "ErrImageNeverPull"]
        .iter()
        .any(|w| trouble.contains(w))
    {
        ProblemCode::ImageNotPulled
    } else {
        ProblemCode::PodFailing
    }
}

/// The kubelet's own pause grows with each try ("back-off 20s restarting …"): without it the sentence stays the same.
/// A pull's two states alternate, too.
fn steady(trouble: &str) -> String {
    let words = trouble.split(' ').filter(|word| !is_duration(word));
    words
        .collect::<Vec<_>>()
        .join(" ")
        .replace("ErrImagePull", "ImagePullBackOff")
}

fn is_duration(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h'])
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, 'h' | 'm' | 's' | '.'))
}

fn volume(observed: &Observed, instance: &InstanceObserved, analysis: &mut Analysis) {
    let Some(claim) = &instance.claim else { return };
    let name = &instance.name;
    if claim.phase == "Lost" {
        analysis.found_on(
            ProblemCode::VolumeNotBound,
            name,
            format!("the volume of {name} is lost"),
        );
        return;
    }
    let about = format!("PersistentVolumeClaim/{CLAIM_TEMPLATE}-{name}");
    let why = warned(observed, &about, &["ProvisioningFailed", "FailedBinding"]);
    // A claim may wait for its pod to be scheduled: that is no problem of its own.
    let scheduled = instance.pod.as_ref().is_some_and(|pod| pod.node.is_some());
    if claim.phase == "Pending" && (scheduled || why.is_some()) {
        let why = why.map(|why| format!(": {}", shorten(why))).unwrap_or_default();
        analysis.found_on(
            ProblemCode::VolumeNotBound,
            name,
            format!("the claim of {name} is not bound{why}"),
        );
    }
}

/// Secrets that lack what data directories were made with, and certificates that have ended.
pub(super) fn secrets(subject: &Subject<'_>, observed: &Observed, now: Timestamp, analysis: &mut Analysis) {
    for (secret, missing) in crate::plan::incomplete_secrets(subject, observed) {
        let message = format!("the Secret {secret} lacks {}", missing.join(", "));
        analysis.found(ProblemCode::SecretIncomplete, message);
    }
    unusable_passwords(observed, analysis);
    if observed
        .secrets
        .server
        .as_ref()
        .is_some_and(|server| server.not_after <= now)
    {
        analysis.found(
            ProblemCode::CertificateExpired,
            format!("the server certificate of {} has ended", subject.name),
        );
    }
}

/// What instances say of the passwords that are mounted into them. All say the same, some a moment later.
fn unusable_passwords(observed: &Observed, analysis: &mut Analysis) {
    let running = observed.instances.iter().filter_map(InstanceObserved::report);
    let said = running
        .filter(|report| report.mysqld == Mysqld::Running && !report.message.is_empty())
        .flat_map(|report| report.message.split("; "));
    for message in said.collect::<BTreeSet<_>>() {
        analysis.found(ProblemCode::SecretUnusable, shorten(message));
    }
}

/// A condition's message has a limit of 32768 characters, and a person's patience a lower one.
pub(super) fn shorten(text: &str) -> String {
    const LIMIT: usize = 400;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(LIMIT).collect();
    short.push('…');
    short
}
