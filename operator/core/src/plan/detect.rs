//! In which of its states an open cluster is: rule 2 of docs/failover.md. A hint only: safety never rests on it.

use std::time::Duration;

use crate::action::VerbKind;
use crate::observed::{Disk, InstanceObserved, Mysqld};
use crate::plan::{promotion, routing, text};
use crate::rules::PrimaryRef;
use crate::view::{Seen, View};

/// State of a cluster in phase Open.
#[derive(Debug)]
pub(crate) enum State<'a> {
    /// The recorded primary accepts writes.
    Open(Seen<'a>),
    /// It can be opened, or is being opened.
    Opening(Seen<'a>),
    /// Another one has to be found.
    Lost(String),
    /// It was not heard for a moment.
    Hearing {
        /// Who.
        reason: String,
        /// When the moment is over.
        look_in: Duration,
    },
    /// Nothing can be said, or nothing can be done.
    Waiting(String),
}

/// The state of the recorded primary.
pub(crate) fn state<'a>(view: &View<'a>, primary: &'a PrimaryRef) -> State<'a> {
    let Some(seen) = view.primary() else {
        return not_heard(view, primary);
    };
    if view.is_open(seen) {
        return cut_off(view, primary, seen).map_or(State::Open(seen), State::Lost);
    }
    if !failover_possible(view) {
        // Without acknowledgements nobody else is known to have what was committed: it is opened where it is.
        return if seen.running() {
            State::Opening(seen)
        } else {
            State::Waiting(text::mysqld_not_running(seen))
        };
    }
    match seen.report.mysqld {
        Mysqld::Running if opening(view, primary, seen) => State::Opening(seen),
        Mysqld::Running => State::Lost(format!("{} runs and is not open", seen.instance.name)),
        Mysqld::Initialising | Mysqld::Starting | Mysqld::Down | Mysqld::Cloning | Mysqld::Failed => {
            State::Lost(text::mysqld_not_running(seen))
        }
    }
}

/// With k = 0 no election can go on without the old primary (rule 1), so none is begun.
pub(crate) fn failover_possible(view: &View<'_>) -> bool {
    view.rules.acks_required > 0 && !view.rules.members.is_empty()
}

/// Rule 2a, and the last paragraph of rule 5: an Open is under way, or confirmed facts allow it.
fn opening(view: &View<'_>, primary: &PrimaryRef, seen: Seen<'_>) -> bool {
    let under_way = seen
        .busy()
        .is_some_and(|busy| busy.verb == VerbKind::Open && busy.epoch == view.rules.epoch);
    let failed = seen.answer().is_some_and(|answer| {
        answer.verb == VerbKind::Open && answer.epoch == view.rules.epoch && answer.failure.is_some()
    });
    if failed && view.age(primary.since) > view.timing.open {
        return false;
    }
    (view.mine() && under_way) || promotion::may_open(view, seen)
}

/// Rules 2a and 2b for a primary that is not heard in its recorded incarnation.
fn not_heard<'a>(view: &View<'_>, primary: &PrimaryRef) -> State<'a> {
    let name = &primary.id.instance;
    if !failover_possible(view) {
        let reason = format!("{name} to be heard in its recorded incarnation: without it nothing is safe");
        return State::Waiting(reason);
    }
    if view.heard_as(&primary.id).is_some() {
        return State::Lost(format!("the data directory of {name} was replaced"));
    }
    let Some(instance) = view.instance(&primary.id) else {
        return State::Lost(format!("{name} does not exist"));
    };
    if let Some(reason) = pod_gone(view, instance) {
        return State::Lost(reason);
    }
    silent(view, instance)
}

/// Its pod is gone or has ended. Nothing that is safe follows from it (C13), but it is time to begin. After a forced deletion
/// there is another pod of that name at once, which is not the one that was routed to when it was open.
fn pod_gone(view: &View<'_>, instance: &InstanceObserved) -> Option<String> {
    let replaced = |uid: &str| routing::routed_pod(view, &instance.name).is_some_and(|routed| routed != uid);
    match &instance.pod {
        None => Some(format!("the pod {} is gone", instance.name)),
        Some(pod) if replaced(&pod.uid) => Some(format!("the pod {} was replaced", instance.name)),
        Some(pod) if matches!(pod.phase.as_str(), "Succeeded" | "Failed") => {
            Some(format!("the pod {} has ended ({})", instance.name, pod.phase))
        }
        Some(_) => None,
    }
}

/// Rule 2b: two kinds of witness.
fn silent<'a>(view: &View<'_>, instance: &InstanceObserved) -> State<'a> {
    let name = &instance.name;
    let age = View::silent_since(instance).map_or(Duration::ZERO, |since| view.age(since));
    if age < view.timing.silence {
        return State::Hearing {
            reason: format!("{name} to be heard again"),
            look_in: view.timing.silence.saturating_sub(age),
        };
    }
    let says_something = |seen: &Seen<'_>| !is_ours(view, *seen) && !view.kept_out(seen.instance);
    let witnesses: Vec<_> = view.members().filter(says_something).collect();
    let agree = witnesses.iter().filter(|seen| !view.receiving(**seen)).count();
    if agree > 0 && agree.saturating_mul(2) > witnesses.len() {
        let (agree, of) = (agree, witnesses.len());
        return State::Lost(format!(
            "{name} is silent, and {agree} of {of} members that answer do not receive from it"
        ));
    }
    State::Waiting(match witnesses.len() {
        0 => format!("a member that can be heard: {name} is silent"),
        of => format!("a majority that confirms that {name} is lost: {agree} of {of} members do not receive from it"),
    })
}

/// It does not receive because of what this process told it: it is fenced, or attached and about to connect. That says nothing
/// of the primary.
fn is_ours(view: &View<'_>, seen: Seen<'_>) -> bool {
    let last = seen
        .answer()
        .filter(|answer| answer.failure.is_none())
        .map(|answer| answer.verb);
    let fenced = view.fenced(seen) && last == Some(VerbKind::Fence);
    seen.busy().is_some() || fenced || (last == Some(VerbKind::Attach) && !seen.detached() && !has_tried(seen))
}

/// Its receiver was connected once, or failed to connect.
fn has_tried(seen: Seen<'_>) -> bool {
    let replication = &seen.report.replication;
    replication.last_heard.is_some() || !replication.receiver_error.is_empty()
}

/// Rule 2d: it is heard and open, but too few members receive from it, while enough of them are heard.
fn cut_off(view: &View<'_>, primary: &PrimaryRef, seen: Seen<'_>) -> Option<String> {
    if !failover_possible(view) || view.age(primary.since) < view.timing.settle {
        return None;
    }
    let acks = view.acks();
    let heard: Vec<_> = view.members().filter(Seen::running).collect();
    let receiving = heard.iter().filter(|seen| view.receiving(**seen)).count();
    let missing = view.rules.members.len().saturating_sub(heard.len());
    let mut asked = heard.iter().copied().filter(|seen| !view.kept_out(seen.instance));
    let is_deaf = |seen| is_deaf(view, primary, seen);
    let deaf = asked.clone().any(is_deaf) && asked.all(|seen| view.receiving(seen) || is_deaf(seen));
    (receiving < acks && missing < acks && deaf).then(|| {
        format!(
            "{} is open, but only {receiving} members receive from it and {acks} have to",
            seen.instance.name
        )
    })
}

/// A connection that brings nothing, or cannot be made. Those that are merely detached are attached first, and one that was
/// attached a moment ago has said nothing yet.
fn is_deaf(view: &View<'_>, primary: &PrimaryRef, seen: Seen<'_>) -> bool {
    // Where there is no room for what is received, nothing is: that says nothing of the primary.
    let disk = seen.report.disk;
    let nearly_full = disk.size > 0 && disk.used.saturating_mul(20) >= disk.size.saturating_mul(19);
    let full = nearly_full && disk.size.saturating_sub(disk.used) < Disk::FULL;
    !full && view.follows(seen, &primary.id) && !view.receiving(seen) && has_tried(seen)
}
