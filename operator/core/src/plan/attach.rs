//! Members that lost their source are attached again; errant ones are isolated (rules 1 and 7).

use crate::action::Verb;
use crate::observed::Reach;
use crate::plan::detect::failover_possible;
use crate::plan::draft::Draft;
use crate::plan::goal::Goal;
use crate::plan::promotion::needs_threads;
use crate::plan::{election, requested, text};
use crate::rules::{MemberId, PrimaryRef};
use crate::view::{Seen, View};

/// Looks at each member that runs.
pub(crate) fn members(view: &View<'_>, primary: &PrimaryRef, open: Seen<'_>, goal: &Goal, draft: &mut Draft) {
    let leaves = |seen: Seen<'_>| !goal.members.contains(&seen.id());
    let next = next_given_up(view, open);
    for seen in view.members().filter(|seen| seen.running() && !seen.report.writable) {
        if let Some(after) = view.breaks_in(seen) {
            draft.look_in(after);
        }
        if let Some(after) = view.connects_in(seen)
            && !seen.report.replication.receiver_error.is_empty()
        {
            draft.look_in(after);
        }
        if view.kept_out(seen.instance) {
            if !view.fenced(seen) {
                election::fence(view, seen, draft);
            }
        } else if View::errant(seen, open).is_some() {
            isolate(view, seen, draft);
        } else if next.as_ref() == Some(&seen.id()) {
            if !view.fenced(seen) {
                election::fence(view, seen, draft);
            }
        } else if leaves(seen) {
            // What it still receives nobody counts.
        } else if !view.follows(seen, &primary.id) {
            attach(view, seen, open, draft);
        } else if needs_threads(seen) {
            draft.attach(view, seen, open);
        }
    }
}

/// An errant member is fenced before its rows can spread, if enough others can acknowledge meanwhile.
fn isolate(view: &View<'_>, seen: Seen<'_>, draft: &mut Draft) {
    if view.fenced(seen) {
        return;
    }
    if view.can_spare(&seen.id()) || !view.receiving(seen) {
        election::fence(view, seen, draft);
    } else {
        draft.wait(
            seen.instance.name.0.clone(),
            "another member that can acknowledge, before it is isolated",
        );
    }
}

/// Why a member's data directory is going to be replaced, if others can acknowledge meanwhile: it cannot apply what it
/// received, or a person asked for it.
pub(crate) fn given_up(view: &View<'_>, seen: Seen<'_>) -> Option<String> {
    if requested::rebuild(view, seen.instance) {
        return Some(text::on_request(seen));
    }
    view.broken(seen).then(|| text::broken(seen))
}

/// The one of them that is fenced next. One at a time, because those that are fenced together would count on each other; and
/// an errant one, which is about to be isolated, is nobody's replacement.
fn next_given_up(view: &View<'_>, open: Seen<'_>) -> Option<MemberId> {
    let errant = |seen: &Seen<'_>| View::errant(*seen, open).is_some();
    let spare = |of: &Seen<'_>| {
        let others = view.members().filter(|seen| seen.id() != of.id());
        others.filter(|seen| view.receiving(*seen) && !errant(seen)).count() >= view.acks()
    };
    let mut given_up: Vec<_> = view
        .members()
        .filter(|seen| seen.running() && !errant(seen) && !view.kept_out(seen.instance))
        .filter(|seen| given_up(view, *seen).is_some() && spare(seen))
        .collect();
    given_up.sort_by_key(|seen| !view.fenced(*seen));
    given_up.first().map(Seen::id)
}

/// A member without a source, or with a wrong one.
fn attach(view: &View<'_>, seen: Seen<'_>, open: Seen<'_>, draft: &mut Draft) {
    let lost = seen.lacks_purged(open);
    // Acknowledging takes no applier. An instance refuses any source but the one that its relay log came from.
    let needed = seen.stuck() && !view.can_spare(&seen.id());
    if lost || !(seen.report.fully_applied() || needed) {
        // What it received is applied first (C3). What the primary purged it cannot get: it leaves, and is rebuilt.
        if !view.fenced(seen) || election::stands_still(seen) {
            election::fence(view, seen, draft);
        }
        let what = if lost {
            "to be dropped: the primary purged what it lacks"
        } else {
            "its relay log to be applied"
        };
        draft.wait(seen.instance.name.0.clone(), what);
        return;
    }
    draft.attach(view, seen, open);
}

/// Members that this process fenced say nothing of a primary that is silent (rule 2b). They are attached to it, as they
/// would be if it were heard, and what comes of that is what they say.
pub(crate) fn witnesses(view: &View<'_>, primary: &PrimaryRef, draft: &mut Draft) {
    if view.primary().is_some() || !failover_possible(view) {
        return;
    }
    let detached = |seen: &Seen<'_>| seen.running() && !seen.report.writable && seen.detached();
    for seen in view
        .members()
        .filter(detached)
        .filter(|seen| !view.kept_out(seen.instance) && !is_strange(view, *seen, primary))
    {
        if seen.report.fully_applied() || seen.stuck() {
            let source = view.endpoint_of(&primary.id);
            draft.command(view, seen, Verb::Attach { source }, "");
        } else if election::stands_still(seen) {
            election::fence(view, seen, draft);
        }
    }
}

/// It has what the primary did not have when it was heard last, and is about to be dropped: its source lets it in no more,
/// which says nothing of that one.
fn is_strange(view: &View<'_>, seen: Seen<'_>, primary: &PrimaryRef) -> bool {
    let Some(Reach::Silent { last: Some(last), .. }) = view.instance(&primary.id).map(|instance| &instance.reach)
    else {
        return false;
    };
    let more = seen.report.set().subtract(&last.set());
    !more.without_source(&primary.server_uuid).is_empty()
}
