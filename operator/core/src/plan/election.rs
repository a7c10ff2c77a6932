//! Elections: rule 3 of docs/failover.md, and the parts of rule 8 that differ.

use jiff::Timestamp;

use crate::action::{Verb, VerbKind};
use crate::observed::Mysqld;
use crate::plan::draft::Draft;
use crate::plan::{forced, promotion, recovery, request, text, winner};
use crate::progress::Stage;
use crate::rules::{InstanceName, MemberId, Phase, RequestState, Rules};
use crate::view::{Seen, View};

/// Begins an election: the epoch is raised before any instance is touched (C7), and in the same plan the fences go out.
///
/// With a preferred candidate (rule 8) only the old primary is fenced at first: the others have to catch up with it.
pub(crate) fn begin(
    view: &View<'_>,
    draft: &mut Draft,
    preferred: Option<MemberId>,
    reason: &'static str,
    message: String,
) {
    begin_with(view, draft, view.rules.clone(), preferred, reason, message);
}

/// The same, with a memory in which a request is noted, too.
pub(crate) fn begin_with(
    view: &View<'_>,
    draft: &mut Draft,
    rules: Rules,
    preferred: Option<MemberId>,
    reason: &'static str,
    message: String,
) {
    let planned = preferred.is_some();
    let rules = Rules {
        epoch: view.rules.epoch.saturating_add(1),
        phase: Phase::Electing { preferred },
        phase_since: moment(view.now),
        began: Some(view.rules.began.unwrap_or_else(|| moment(view.now))),
        ..rules
    };
    draft.stage(Stage::Fencing);
    draft.record(view, rules, reason, message);
    for seen in view.heard().filter(|seen| !planned || view.is_primary(*seen)) {
        fence(view, seen, draft);
    }
}

/// One pass of an election.
pub(crate) fn plan(view: &View<'_>, preferred: Option<&MemberId>, draft: &mut Draft) {
    if request::plan(view, draft) || recovery::begin_again(view, draft) || give_way(view, preferred, draft) {
        return;
    }
    draft.stage(stage(view));
    let catching_up = catching_up(view, preferred);
    for seen in view.heard().filter(|seen| needs_fence(view, *seen)) {
        if !catching_up || view.is_primary(seen) || seen.report.writable {
            fence(view, seen, draft);
        }
    }
    if catching_up {
        draft.wait("switchover", text::catching_up(view, preferred));
        draft.look_in(view.timing.switchover.saturating_sub(view.age(view.rules.phase_since)));
        return;
    }
    if view.closed_on_request() {
        draft.wait("election", text::closed_on_request(view));
        return;
    }
    if let Some(candidate) = fence_is_on_its_way(view, preferred) {
        draft.wait_briefly("switchover", format!("{candidate} to be fenced"));
        return;
    }
    let forced = forced::preferred(view);
    let ordinary = enough_fenced(view, draft).and_then(|()| winner::choose(view, preferred.or(forced.as_ref())));
    match ordinary {
        Ok(winner) => promotion::plan(view, winner, None, draft),
        Err(reason) if forced::is_due(view, draft) => match forced::winner(view, &reason) {
            Ok(winner) => promotion::plan(view, winner, forced::loss(view, winner), draft),
            Err(reason) => draft.wait("election", reason),
        },
        Err(reason) => draft.wait("election", reason),
    }
}

/// The old primary's set is final, or it is not.
fn stage(view: &View<'_>) -> Stage {
    let held = view.primary().is_some_and(|seen| view.fenced(seen));
    match (&view.rules.phase, held) {
        (_, false) => Stage::Fencing,
        (Phase::Electing { preferred: Some(_) }, true) => Stage::CatchingUp,
        (Phase::Electing { preferred: None } | Phase::Open, true) => Stage::Attaching,
    }
}

/// The candidate of a switchover has everything and is told so at this moment: nobody is brought behind another one
/// meanwhile.
fn fence_is_on_its_way<'a>(view: &View<'a>, preferred: Option<&MemberId>) -> Option<&'a InstanceName> {
    let candidate = view.find(preferred?)?;
    let told = candidate
        .busy()
        .is_some_and(|busy| busy.verb == VerbKind::Fence && busy.epoch == view.rules.epoch);
    (view.primary().is_some() && candidate.running() && told).then_some(&candidate.instance.name)
}

/// Rule 8: a switchover that misses its deadline goes back to the old primary, by the same election under a new epoch.
fn give_way(view: &View<'_>, preferred: Option<&MemberId>, draft: &mut Draft) -> bool {
    let (Some(preferred), Some(primary)) = (preferred, &view.rules.primary) else {
        return false;
    };
    if preferred == &primary.id || view.primary().is_none() {
        return false;
    }
    let age = view.age(view.rules.phase_since);
    if age < view.timing.switchover {
        draft.look_in(view.timing.switchover.saturating_sub(age));
        return false;
    }
    let failed = format!(
        "{} could not take over within {} s ({})",
        preferred.instance,
        view.timing.switchover.as_secs(),
        text::missed(view, preferred)
    );
    let mut rules = view.rules.clone();
    if let Some(request) = rules
        .request
        .as_mut()
        .filter(|request| request.state == RequestState::Running)
    {
        request.message.clone_from(&failed);
    }
    let message = format!("{failed}; the old primary {} is preferred again", primary.id.instance);
    begin_with(
        view,
        draft,
        rules,
        Some(primary.id.clone()),
        "SwitchoverUndone",
        message,
    );
    true
}

/// Rule 8, step 3: the candidate still receives from the old primary what it lacks of its final set.
///
/// Ends with the deadline, when the old primary stops answering, and when the candidate has everything or no longer
/// receives: then it is an ordinary election.
fn catching_up(view: &View<'_>, preferred: Option<&MemberId>) -> bool {
    let Some(candidate) = preferred.and_then(|id| view.find(id)) else {
        return false;
    };
    let Some(primary) = view.primary() else { return false };
    if view.is_primary(candidate) || !primary.running() || view.held(candidate) {
        return false;
    }
    let complete = view.fenced(primary) && candidate.report.set().contains(&primary.report.set());
    !complete && view.receiving(candidate) && view.age(view.rules.phase_since) < view.timing.switchover
}

/// Whether an instance still has to be told that it is fenced under this epoch. One whose mysqld is down and that was
/// told already starts read-only and detached by itself.
fn needs_fence(view: &View<'_>, seen: Seen<'_>) -> bool {
    !view.confirmed(seen) || (seen.running() && (!view.held(seen) || stands_still(seen)))
}

/// It has a relay log to apply, and its applier neither runs nor says why: a fence starts it.
pub(crate) fn stands_still(seen: Seen<'_>) -> bool {
    let replication = &seen.report.replication;
    !seen.report.fully_applied() && !replication.applier_running && replication.applier_error.is_empty()
}

/// Fences one instance, if it is one that can be.
pub(crate) fn fence(view: &View<'_>, seen: Seen<'_>, draft: &mut Draft) {
    match seen.report.mysqld {
        Mysqld::Running | Mysqld::Starting | Mysqld::Down | Mysqld::Failed => {
            draft.command(view, seen, Verb::Fence, "");
        }
        // There is no data directory yet that could have anything.
        Mysqld::Initialising | Mysqld::Cloning => {}
    }
}

/// Rule 3, the condition to go on.
fn enough_fenced(view: &View<'_>, draft: &mut Draft) -> Result<(), String> {
    let Some(primary) = &view.rules.primary else {
        return first_election(view, draft);
    };
    let unfenced = view.unfenced();
    let acks = view.acks();
    if unfenced.len() < acks || view.primary().is_some_and(|seen| view.held(seen)) {
        return Ok(());
    }
    Err(text::not_fenced(view, &unfenced, &primary.id))
}

/// There never was a primary, so nothing was ever acknowledged and nobody's absence matters. But nothing is written
/// either, so that it costs nobody anything to wait a little for all.
fn first_election(view: &View<'_>, draft: &mut Draft) -> Result<(), String> {
    let missing: Vec<_> = view
        .observed
        .instances
        .iter()
        .filter(|instance| view.wanted(instance))
        .filter(|instance| {
            !view
                .heard()
                .any(|seen| seen.instance.name == instance.name && view.held(seen))
        })
        .map(|instance| instance.name.to_string())
        .collect();
    let age = view.age(view.rules.phase_since);
    if missing.is_empty() || age >= view.timing.first_election {
        return Ok(());
    }
    draft.look_in(view.timing.first_election.saturating_sub(age));
    Err(format!("{} to become ready for the first election", missing.join(", ")))
}

/// A time as status can hold it.
pub(crate) fn moment(now: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
