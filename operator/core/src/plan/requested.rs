//! A rebuild that a person asks for: rule 10 of docs/failover.md. What is recorded is only that it was asked for; the
//! instance is given up, dropped and cloned by the rules that hold for a broken one.

use std::time::Duration;

use crate::observed::InstanceObserved;
use crate::plan::{request, text};
use crate::request::Verb;
use crate::rules::{Donor, InstanceName, Rebuild, Request, RequestState};
use crate::view::{Seen, View};

/// A person asked for a rebuild of this instance, and it has not begun.
pub(crate) fn rebuild(view: &View<'_>, instance: &InstanceObserved) -> bool {
    let asked = request::running(view).filter(|request| request.verb == Verb::Rebuild.as_str());
    let asked = asked.filter(|request| request.instance.as_ref() == Some(&instance.name));
    asked.is_some_and(|request| begun(view, request, &instance.name).is_none())
}

/// The rebuild that a request led to.
fn begun<'a>(view: &View<'a>, request: &Request, name: &InstanceName) -> Option<&'a Rebuild> {
    let rebuild = view.rules.rebuilds.get(name)?;
    (rebuild.at >= request.at).then_some(rebuild)
}

/// Whether the rules let the data directory of this instance be replaced; or what is in the way.
pub(crate) fn may_be_rebuilt(view: &View<'_>, instance: &InstanceObserved) -> Result<(), String> {
    let name = &instance.name;
    if view
        .rules
        .primary
        .as_ref()
        .is_some_and(|primary| &primary.id.instance == name)
    {
        let another = |i: &InstanceObserved| &i.name != name && view.wanted(i);
        return Err(if view.observed.instances.iter().any(another) {
            format!("{name} is the primary: promote another instance first")
        } else {
            format!("{name} is the only instance: there is nobody to clone it from")
        });
    }
    if view.open_primary().is_none() {
        return Err(format!(
            "no primary is open: before one is, what {name} has may be needed"
        ));
    }
    if view.kept_out(instance) {
        return Err(text::kept_out(view, name));
    }
    if !view.wanted(instance) {
        return Err(format!(
            "{name} is not wanted any more: its number is beyond spec.replicas"
        ));
    }
    let Some(report) = instance.report() else {
        return Err(text::unreachable(instance));
    };
    let seen = Seen { instance, report };
    if !seen.running() {
        return Err(format!(
            "{}; an instance that does not run is replaced by deleting its claim and then its pod",
            text::mysqld_not_running(seen)
        ));
    }
    if view.is_member(seen) && !view.can_spare(&seen.id()) {
        return Err(format!(
            "{name} is needed: a commit waits for {}, and {} other members receive",
            text::acknowledgements(view.rules.acks_required),
            view.others_receiving(&seen.id())
        ));
    }
    Ok(())
}

/// What a requested rebuild came to: done when the instance is a member in another life.
pub(crate) fn rebuilt(
    view: &View<'_>,
    request: &Request,
    name: &InstanceName,
    limit: Duration,
) -> Option<(RequestState, String)> {
    if let Some(rebuild) = begun(view, request, name) {
        let seen = view.heard().find(|seen| &seen.instance.name == name)?;
        if !view.is_member(seen) {
            return None;
        }
        let made = match &rebuild.donor {
            Donor::Instance(donor) => format!("is a clone of {}", donor.instance),
            Donor::Store => format!("was restored from {}", rebuild.donor),
        };
        return Some(if seen.report.incarnation == rebuild.incarnation {
            // It ended before the clone began, and came back as it was.
            let message = format!("{name} ended before its clone began, and is a member as it was: ask again");
            (RequestState::Failed, message)
        } else {
            let message = format!("{name} {made} and may acknowledge again");
            (RequestState::Done, message)
        });
    }
    let why = match view.observed.instance(name) {
        Some(instance) => may_be_rebuilt(view, instance).err(),
        None => Some(format!("{name} does not exist any more")),
    };
    (view.age(request.at) >= limit).then(|| {
        let why = why.unwrap_or_else(|| format!("the others have not shown that they can do without {name}"));
        (
            RequestState::Failed,
            format!("nothing was done within {} s: {why}", limit.as_secs()),
        )
    })
}
