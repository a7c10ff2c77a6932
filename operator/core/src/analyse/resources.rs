//! Problems of the spec and of the Kubernetes objects made from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::analyse::{Analysis, ProblemCode, RECOVERY_SOURCE};
use crate::names::{CLAIM_TEMPLATE, LABEL_CLUSTER, LABEL_MANAGED_BY, MANAGED_BY};
use crate::observed::{InstanceObserved, Mysqld, ObjectKey, ObjectKind, Observed, PodView, Warning};
use crate::subject::Subject;
use crate::view::age;

/// For this long a warning of the kubelet's counts: the longest of its pauses between two tries is two minutes.
const WARNED: Duration = Duration::from_mins(3);

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
            // Events outlive what they tell of: with all pods there, or that one, it is over.
            "FailedCreate" => (
                ProblemCode::PodsNotCreated,
                complete || made(observed, &warning.message),
            ),
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

/// The pod that a StatefulSet could not make, as it says, is there.
fn made(observed: &Observed, message: &str) -> bool {
    let there = observed.instances.iter().filter(|instance| instance.pod.is_some());
    let mut there = there.map(|instance| format!("Pod {} in StatefulSet", instance.name));
    there.any(|pod| message.contains(&pod))
}

/// Refusals of the API server are about objects that are applied; what Kubernetes itself warns of is about pods, claims
/// and the StatefulSet, and is found in what these look like.
fn is_refusal(about: &str, reason: &str) -> bool {
    let event = ["Failed", "Recreating"].iter().any(|word| reason.starts_with(word));
    !about.starts_with("Pod/") && !about.starts_with("PersistentVolumeClaim/") && !event
}

/// What Kubernetes warned of last about an object, for one of these reasons: about that very one, and not about a former one of
/// its name.
fn warned<'a>(observed: &'a Observed, about: &str, uid: &str, reasons: &[&str]) -> Option<&'a Warning> {
    let mut warnings = observed.warnings.iter().rev();
    warnings.find(|warning| {
        let same = warning.uid.as_ref().is_none_or(|warned| warned == uid);
        warning.about == about && same && reasons.contains(&warning.reason.as_str())
    })
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
pub(super) fn pods(subject: &Subject<'_>, observed: &Observed, now: Timestamp, analysis: &mut Analysis) {
    let replicas = subject.replicas(observed);
    shared_nodes(replicas, observed, analysis);
    for instance in observed.instances.iter().filter(|instance| instance.ordinal < replicas) {
        volume(subject, observed, instance, analysis);
        let Some(pod) = &instance.pod else { continue };
        if let Some(trouble) = &pod.trouble {
            troubled(instance, pod, trouble, analysis);
        } else if !pod.ready && instance.report().is_none() {
            not_started(observed, instance, pod, now, analysis);
        }
    }
}

/// What scheduler or kubelet say of a pod that does not run.
fn troubled(instance: &InstanceObserved, pod: &PodView, trouble: &str, analysis: &mut Analysis) {
    let name = &instance.name;
    let code = trouble_code(pod, trouble);
    if code != ProblemCode::PodUnschedulable {
        let message = format!("{name}: {}", shorten(&steady(trouble)));
        analysis.found_on(code, name, message);
        return;
    }
    // The scheduler looks at no node before the claim is bound, which is told as what it is.
    let pending = instance.claim.as_ref().is_some_and(|claim| claim.phase == "Pending");
    if pending && waits_for_claim(trouble) {
        return;
    }
    let message = format!("{name}: {}", shorten(scheduling(trouble)));
    let tied = ["PersistentVolume's node affinity", "volume node affinity"]
        .iter()
        .any(|words| trouble.contains(words));
    if tied && trouble.contains("were unschedulable") {
        let node = instance.claim.as_ref().and_then(|claim| claim.node.as_deref());
        let remedy = match node {
            Some(node) => format!("its volume ties it to {node}; if that is cordoned: kubectl uncordon {node}"),
            None => "its volume ties it to a node; if that is cordoned: kubectl uncordon NODE".to_owned(),
        };
        analysis.found_on_with(code, name, message, remedy);
    } else {
        analysis.found_on(code, name, message);
    }
}

/// The scheduler waits for the pod's claim. Of its own claim first: other ones come with `spec.podTemplate`.
fn waits_for_claim(trouble: &str) -> bool {
    trouble.contains("unbound immediate PersistentVolumeClaims")
}

/// What the scheduler says of the nodes, without what it says of making room by force, which is no help to anybody.
fn scheduling(trouble: &str) -> &str {
    let ends = ["no new claims to deallocate", "preemption:"];
    let end = ends.iter().filter_map(|words| trouble.find(words)).min();
    let said = end.and_then(|end| trouble.get(..end)).unwrap_or(trouble);
    said.trim_end_matches([' ', ',', '.'])
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
fn not_started(
    observed: &Observed,
    instance: &InstanceObserved,
    pod: &PodView,
    now: Timestamp,
    analysis: &mut Analysis,
) {
    const REASONS: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"];
    let why = warned(observed, &format!("Pod/{}", instance.name), &pod.uid, &REASONS);
    if let Some(why) = why.filter(|why| age(now, why.at) < WARNED) {
        let message = format!("{}: {}", instance.name, shorten(&why.message));
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

fn volume(subject: &Subject<'_>, observed: &Observed, instance: &InstanceObserved, analysis: &mut Analysis) {
    let Some(claim) = &instance.claim else { return };
    let name = &instance.name;
    if claim.is_lost() {
        // With a memory it is an instance's trouble, which is healed.
        if observed.rules().is_none() {
            analysis.found_on_with(
                ProblemCode::VolumeLost,
                name,
                format!("the volume of {name} does not exist any more"),
                "if the cluster is new, replace it: kubectl delete pvc data-INSTANCE -n NAMESPACE --wait=false && kubectl delete pod \
                 INSTANCE -n NAMESPACE",
            );
        }
        return;
    }
    let about = format!("PersistentVolumeClaim/{CLAIM_TEMPLATE}-{name}");
    let why = warned(observed, &about, &claim.uid, &["ProvisioningFailed", "FailedBinding"]);
    // A claim may wait for its pod to be scheduled: that is no problem of its own.
    let pod = instance.pod.as_ref();
    let scheduled = pod.is_some_and(|pod| pod.node.is_some());
    let waited_for = pod.and_then(|pod| pod.trouble.as_deref()).is_some_and(waits_for_claim);
    if claim.phase != "Pending" || !(scheduled || waited_for || why.is_some()) {
        return;
    }
    let why = why
        .map(|why| format!(": {}", shorten(&why.message)))
        .unwrap_or_default();
    let message = format!("the claim of {name} is not bound{why}");
    let declared = subject.spec.ok().and_then(|spec| spec.volume.storage_class.as_ref());
    match (&claim.class, declared) {
        (Some(kept), Some(declared)) if kept != declared => analysis.found_on_with(
            ProblemCode::VolumeNotBound,
            name,
            format!("{message}; it was kept, is of the StorageClass {kept}, and spec.storage names {declared}"),
            "it never held data; delete it, and it is made anew as declared: kubectl delete pvc data-INSTANCE -n NAMESPACE",
        ),
        _ => analysis.found_on(ProblemCode::VolumeNotBound, name, message),
    }
}

/// Secrets that lack what data directories were made with, and certificates that have ended.
pub(super) fn secrets(subject: &Subject<'_>, observed: &Observed, now: Timestamp, analysis: &mut Analysis) {
    for (secret, missing) in crate::plan::incomplete_secrets(subject, observed) {
        let message = format!("the Secret {secret} lacks {}", missing.join(", "));
        if is_found(observed, &secret) {
            analysis.found(ProblemCode::SecretIncomplete, message);
        } else {
            let remedy = unlabelled(subject, &secret);
            analysis.found_with(ProblemCode::SecretIncomplete, message, &remedy);
        }
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

/// A Secret of that name is known, whatever it holds.
fn is_found(observed: &Observed, secret: &str) -> bool {
    let key = ObjectKey {
        kind: ObjectKind::Secret,
        name: secret.to_owned(),
    };
    observed.secrets.keys.contains_key(secret) || observed.objects.contains_key(&key)
}

/// It is not there, or a person made it anew without the labels by which it is found.
fn unlabelled(subject: &Subject<'_>, secret: &str) -> String {
    let (cluster, namespace) = (subject.name, subject.namespace);
    format!(
        "{}; one that is there is not seen without its labels: kubectl label secret {secret} -n {namespace} \
         {LABEL_MANAGED_BY}={MANAGED_BY} {LABEL_CLUSTER}={cluster}",
        ProblemCode::SecretIncomplete.kind().remedy
    )
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
