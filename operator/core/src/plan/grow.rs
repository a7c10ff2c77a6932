//! Volumes that grow: as declared, and by themselves up to a limit (docs/healing.md, "Making room"). A claim only ever asks for
//! more.

use crate::action::Action;
use crate::names;
use crate::observed::{ClaimView, InstanceObserved, Observed, Warning};
use crate::plan::draft::Draft;
use crate::rules::{InstanceName, Phase};
use crate::subject::Subject;
use crate::validate::ValidatedCluster;

/// Reason of the warning with which the executor tells that the API server refused a larger request.
pub const GROWTH_REFUSED: &str = "GrowthRefused";

/// Used space from which on a volume grows, in percent.
const USED: u64 = 80;
/// The same of what the claim has: while a file system does not show yet that it grew, it looks fuller than it is.
const USED_OF_CLAIM: u64 = 75;
/// By this part a volume grows at least …
const STEP: u64 = 5;
/// … and by this many bytes.
const LEAST_STEP: u64 = 1 << 30;
/// A request is a multiple of this.
const WHOLE: u64 = 1 << 20;

/// Asks for what each volume should have.
pub(crate) fn plan(observed: &Observed, spec: &ValidatedCluster, draft: &mut Draft) {
    for instance in observed
        .instances
        .iter()
        .filter(|instance| instance.ordinal < spec.replicas)
    {
        let Some(claim) = instance.claim.as_ref().filter(|claim| is_usable(claim)) else {
            continue;
        };
        if let Some((bytes, reason)) = wanted(spec, observed, instance, claim) {
            draft.push(Action::GrowClaim {
                instance: instance.name.clone(),
                uid: claim.uid.clone(),
                bytes,
                reason,
            });
        } else if is_growing(claim) && refusal(observed, instance, claim).is_none() {
            draft.wait_briefly(instance.name.0.clone(), "its volume to grow");
        }
    }
}

/// Growth is due or under way, and nobody refused it: nothing is given up before it was tried.
pub(crate) fn may_help(subject: &Subject<'_>, observed: &Observed, instance: &InstanceObserved) -> bool {
    let Ok(spec) = subject.spec else { return false };
    let Some(claim) = instance.claim.as_ref().filter(|claim| is_usable(claim)) else {
        return false;
    };
    let possible = is_growing(claim) || wanted(spec, observed, instance, claim).is_some();
    possible && refusal(observed, instance, claim).is_none()
}

/// Why a volume cannot grow, in the words of Kubernetes.
pub(crate) fn refusal<'a>(
    observed: &'a Observed,
    instance: &InstanceObserved,
    claim: &ClaimView,
) -> Option<&'a Warning> {
    const REASONS: [&str; 4] = [
        GROWTH_REFUSED,
        "VolumeResizeFailed",
        "FileSystemResizeFailed",
        "ExternalExpandingFailed",
    ];
    let about = format!("PersistentVolumeClaim/{}", names::claim(&instance.name));
    let mut warnings = observed.warnings.iter().rev();
    let told = warnings.find(|warning| {
        let same = warning.uid.as_ref().is_none_or(|uid| uid == &claim.uid);
        warning.about == about && same && REASONS.contains(&warning.reason.as_str())
    })?;
    // Events outlive what they tell of: a volume that has what was asked for was not refused.
    (told.reason == GROWTH_REFUSED || is_growing(claim)).then_some(told)
}

fn is_usable(claim: &ClaimView) -> bool {
    claim.is_bound() && !claim.deleting
}

/// More was asked for than there is yet.
fn is_growing(claim: &ClaimView) -> bool {
    matches!((claim.requested, claim.capacity), (Some(requested), Some(capacity)) if capacity < requested)
}

/// What a claim should ask for, if that is more than it does.
fn wanted(
    spec: &ValidatedCluster,
    observed: &Observed,
    instance: &InstanceObserved,
    claim: &ClaimView,
) -> Option<(u64, String)> {
    let requested = claim.requested?;
    let name = &instance.name;
    if requested < spec.volume.bytes {
        return Some((spec.volume.bytes, "spec.storage.size".to_owned()));
    }
    // A new claim begins with the size of the template, which nobody can change.
    let primary = claim_of_primary(observed, name);
    if let Some(bytes) = primary.filter(|bytes| *bytes > requested) {
        return Some((bytes, "the volume of the primary is as large".to_owned()));
    }
    let most = spec
        .volume
        .most
        .filter(|most| *most > requested && !is_growing(claim))?;
    let disk = instance.report()?.disk;
    let above = |size: u64, percent: u64| size > 0 && disk.used.saturating_mul(100) >= size.saturating_mul(percent);
    if !above(disk.size, USED) || !above(claim.capacity.unwrap_or(requested), USED_OF_CLAIM) {
        return None;
    }
    let step = (requested / STEP).max(LEAST_STEP);
    let bytes = requested
        .saturating_add(step)
        .div_ceil(WHOLE)
        .saturating_mul(WHOLE)
        .min(most);
    Some((
        bytes,
        format!("it is used to {USED} %, and spec.storage.maxSize allows it"),
    ))
}

/// What the claim of the primary asks for, for an instance that is on its way to become a member.
fn claim_of_primary(observed: &Observed, name: &InstanceName) -> Option<u64> {
    let rules = observed.rules().filter(|rules| rules.phase == Phase::Open)?;
    if rules.members.iter().any(|member| &member.instance == name) {
        return None;
    }
    let primary = &rules.primary.as_ref()?.id.instance;
    observed.instance(primary)?.claim.as_ref()?.requested
}
