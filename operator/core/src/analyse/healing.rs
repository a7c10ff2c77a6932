//! Problems of instances that do not come back by themselves, and of volumes that do not grow (docs/healing.md).

use crate::analyse::{Analysis, ProblemCode};
use crate::observed::{InstanceObserved, Observed};
use crate::plan::{self, HealingHindrance as Hindrance};
use crate::rules::Trouble;
use crate::subject::Subject;
use crate::view::View;

use super::resources::shorten;

/// What is wrong with the data of a wanted instance, and what becomes of it.
pub(super) fn one(view: &View<'_>, instance: &InstanceObserved, analysis: &mut Analysis) {
    let name = &instance.name;
    let Some(trouble) = plan::trouble(view, instance) else {
        return;
    };
    // A full primary is told as what it comes to: commits wait.
    if trouble == Trouble::Full && view.open_primary().is_some_and(|open| &open.instance.name == name) {
        return;
    }
    let code = match trouble {
        Trouble::Data => ProblemCode::DataBroken,
        Trouble::Lost => ProblemCode::VolumeLost,
        Trouble::Unreadable => ProblemCode::VolumeUnreadable,
        Trouble::Full => ProblemCode::VolumeFull,
    };
    let message = shorten(&plan::why_troubled(instance, trouble));
    let hindrance = view
        .open_primary()
        .and_then(|open| plan::hinders_healing(view, open, instance, trouble));
    if let Some(Hindrance::Paused { times, until, .. }) = &hindrance {
        let often = if *times > 1 {
            format!("{times} times in a row")
        } else {
            "a short time ago".to_owned()
        };
        let message = format!("{name} was healed of that {often}, and is left alone until {until:.0}: {message}");
        analysis.found_on(ProblemCode::HealingPaused, name, message);
    }
    match remedy(view, instance, trouble, hindrance.as_ref()) {
        Some(remedy) => analysis.found_on_with(code, name, message, remedy),
        None => analysis.found_on(code, name, message),
    }
}

/// What a person has to do, where it is not healed by itself; `None`: what the table says.
fn remedy(
    view: &View<'_>,
    instance: &InstanceObserved,
    trouble: Trouble,
    hindrance: Option<&Hindrance>,
) -> Option<&'static str> {
    let primary = view.rules.primary.as_ref();
    let is_primary = primary.is_some_and(|primary| primary.id.instance == instance.name);
    if is_primary && (view.rules.acks_required == 0 || view.rules.members.is_empty()) {
        return Some(match trouble {
            Trouble::Full => ProblemCode::DiskFull.kind().remedy,
            Trouble::Data | Trouble::Lost | Trouble::Unreadable => {
                "nobody else is known to hold what it held, so nothing is touched: bring its volume back, or create a cluster from \
                 the newest backup (spec.bootstrap.recovery)"
            }
        });
    }
    match hindrance? {
        Hindrance::Kept => Some(
            "spec.healing.volumes is Keep; when the others are in place, replace it: kubectl delete pvc data-INSTANCE -n NAMESPACE \
             --wait=false && kubectl delete pod INSTANCE -n NAMESPACE",
        ),
        Hindrance::TooSmall => Some(
            "a new volume of this size would not hold what the others have, so nothing is deleted: raise spec.storage.size, or allow \
             spec.storage.maxSize, if its StorageClass can expand volumes; or drop what is not needed",
        ),
        Hindrance::Excluded | Hindrance::Room(_) | Hindrance::Paused { .. } | Hindrance::Another(_) => None,
    }
}

/// Claims that ask for more than Kubernetes gives them.
pub(super) fn growth(subject: &Subject<'_>, observed: &Observed, analysis: &mut Analysis) {
    let wanted = subject.replicas(observed);
    for instance in observed.instances.iter().filter(|instance| instance.ordinal < wanted) {
        let Some(claim) = &instance.claim else { continue };
        if let Some(refused) = plan::growth_refused(observed, instance, claim) {
            let message = format!(
                "the volume of {} cannot grow: {}",
                instance.name,
                shorten(&refused.message)
            );
            analysis.found_on(ProblemCode::VolumeNotGrown, &instance.name, message);
        }
    }
}
