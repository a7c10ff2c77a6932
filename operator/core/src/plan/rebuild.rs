//! Data directories that are replaced by a clone: rule 7 of docs/failover.md.

use std::time::Duration;

use crate::action::Verb;
use crate::observed::Mysqld;
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::join::Unfit;
use crate::plan::{heal, requested};
use crate::rules::{DataLoss, MemberId, Rebuild, Rules};
use crate::view::{Seen, View};

/// Rebuilds one of the instances that cannot join as they are.
pub(crate) fn returning(view: &View<'_>, open: Seen<'_>, candidates: &[Unfit<'_>], draft: &mut Draft) {
    let mut donors: Vec<_> = view
        .members()
        .filter(|seen| view.synced(*seen) && !seen.leaving())
        .collect();
    donors.push(open);
    for unfit in candidates {
        rebuild(view, unfit, &donors, draft);
    }
}

/// Too few instances can follow the winner of an election: others, that are neither members nor the recorded primary,
/// are cloned from it (L6).
pub(crate) fn for_election(view: &View<'_>, winner: Seen<'_>, draft: &mut Draft) {
    if draft.commands_or_records() {
        return;
    }
    let outside = |seen: &Seen<'_>| !view.is_member(*seen) && !view.is_primary(*seen) && seen.id() != winner.id();
    let attached = |seen: &Seen<'_>| view.held(*seen) && view.follows(*seen, &winner.id());
    let mut donors: Vec<_> = view.heard().filter(attached).collect();
    donors.push(winner);
    let judged = |seen: &Seen<'_>| view.fenced(*seen) || seen.half_cloned();
    let wanted = |seen: &Seen<'_>| judged(seen) && !view.kept_out(seen.instance) && !view.is_given_up(seen.instance);
    for seen in view.heard().filter(outside).filter(wanted) {
        let why = format!(
            "{} cannot follow {}, and too few others can",
            seen.instance.name, winner.instance.name
        );
        let trouble = None;
        rebuild(view, &Unfit { seen, why, trouble }, &donors, draft);
    }
}

/// The intent with the incarnation is recorded first, then the command names it: it can hit no other data directory.
fn rebuild(view: &View<'_>, unfit: &Unfit<'_>, donors: &[Seen<'_>], draft: &mut Draft) {
    let Unfit { seen, why, trouble } = unfit;
    let (seen, name) = (*seen, &seen.instance.name);
    let asked = requested::rebuild(view, seen.instance);
    // Healing has limits of its own.
    let early = too_early(view, seen).filter(|_| !asked && trouble.is_none());
    if let Some((reason, after)) = early {
        draft.wait(name.0.clone(), format!("{reason} ({why})"));
        draft.look_in(after);
        return;
    }
    let Some(donor) = donors.iter().copied().find(|donor| may_give(view, *donor, seen)) else {
        draft.wait(name.0.clone(), format!("a donor that can be cloned ({why})"));
        return;
    };
    if draft.records() || !draft.take_risk() {
        draft.wait(name.0.clone(), format!("its turn to be rebuilt ({why})"));
        return;
    }
    if !draft.command(
        view,
        seen,
        Verb::Clone {
            donor: view.endpoint(donor),
            keep_former: view.keeps_former_data(),
        },
        why.as_str(),
    ) {
        return;
    }
    // Not before it was asked for, whosever clock is slow: a request asks for one rebuild.
    let asked_at = view.rules.request.as_ref().filter(|_| asked).map(|request| request.at);
    let decided = asked_at.map_or_else(|| moment(view.now), |at| at.max(moment(view.now)));
    let intent = Rebuild {
        incarnation: seen.report.incarnation.clone(),
        donor: donor.id(),
        at: decided,
        reason: why.clone(),
        ended: None,
        healing: match trouble {
            Some(trouble) => Some(heal::healing(view, seen.instance, *trouble, None)),
            None => heal::continued(view, name),
        },
    };
    let mut rebuilds = view.rules.rebuilds.clone();
    rebuilds.insert(name.clone(), intent);
    let rules = Rules {
        rebuilds,
        data_loss: found_missing(view, seen),
        ..view.rules.clone()
    };
    draft.record(
        view,
        rules,
        "Rebuild",
        format!("{why}; it is cloned from {}", donor.instance.name),
    );
}

/// A clone that did not succeed is tried again soon; a new data directory that has to be replaced again is not.
fn too_early(view: &View<'_>, seen: Seen<'_>) -> Option<(&'static str, Duration)> {
    let last = view.rules.rebuilds.get(&seen.instance.name)?;
    let age = view.age(last.at);
    let (pause, reason) = if last.incarnation == seen.report.incarnation || seen.half_cloned() {
        (view.timing.clone_retry, "a pause after a clone that did not succeed")
    } else if seen.report.set().is_empty() {
        // A new volume, not a rebuilt one that went wrong again.
        return None;
    } else {
        (view.timing.rebuild, "a pause: it was rebuilt a moment ago")
    };
    (age < pause).then(|| (reason, pause.saturating_sub(age)))
}

/// After a loss that a person accepted: what comes back and is given up now was lost, and is known only now.
fn found_missing(view: &View<'_>, seen: Seen<'_>) -> Option<DataLoss> {
    let mut loss = view.rules.data_loss.clone()?;
    if let (Some(open), Some(uuid)) = (view.open_primary(), &loss.server_uuid)
        && let Some(errant) = View::errant(seen, open)
    {
        loss.missing = loss.missing.union(&errant.of_source(uuid));
    }
    Some(loss)
}

/// It has what was recorded, and gives to nobody else (MySQL allows one clone of a donor at a time).
fn may_give(view: &View<'_>, donor: Seen<'_>, recipient: Seen<'_>) -> bool {
    let id: MemberId = donor.id();
    let giving = view.heard().any(|seen| {
        seen.report.mysqld == Mysqld::Cloning
            && view
                .rules
                .rebuilds
                .get(&seen.instance.name)
                .is_some_and(|rebuild| rebuild.donor == id)
    });
    donor.running() && id != recipient.id() && !giving && donor.report.set().contains(&view.rules.baseline)
}
