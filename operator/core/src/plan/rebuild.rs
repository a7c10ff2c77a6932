//! Data directories that are replaced: by a clone, or by what is stored where clones come to nothing (rule 7 of docs/failover.md).

use std::time::Duration;

use crate::action::Verb;
use crate::observed::{Mysqld, StoreSecret};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::join::Unfit;
use crate::plan::{heal, requested};
use crate::rules::{DataLoss, Donor, MemberId, Rebuild, Rules};
use crate::view::{Seen, View};

/// So many clones in a row may come to nothing before the store is tried, which costs hours where a clone costs minutes.
const CLONES: u32 = 2;

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
    let failures = failures(view, seen);
    let Some((donor, verb)) = origin(view, seen, donors, failures) else {
        draft.wait(name.0.clone(), format!("a donor that can be cloned ({why})"));
        return;
    };
    if draft.records() || !draft.take_risk() {
        draft.wait(name.0.clone(), format!("its turn to be rebuilt ({why})"));
        return;
    }
    if !draft.command(view, seen, verb, why.as_str()) {
        return;
    }
    let message = match &donor {
        Donor::Instance(id) => format!("{why}; it is cloned from {}", id.instance),
        Donor::Store => {
            format!("{why}; {failures} attempts to clone it came to nothing, and it is restored from {donor}")
        }
    };
    // Not before it was asked for, whosever clock is slow: a request asks for one rebuild.
    let asked_at = view.rules.request.as_ref().filter(|_| asked).map(|request| request.at);
    let decided = asked_at.map_or_else(|| moment(view.now), |at| at.max(moment(view.now)));
    let intent = Rebuild {
        incarnation: seen.report.incarnation.clone(),
        donor,
        failures,
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
    draft.record(view, rules, "Rebuild", message);
}

/// How many attempts in a row came to nothing: the data directory that was to be replaced is still there, or half of another one.
fn failures(view: &View<'_>, seen: Seen<'_>) -> u32 {
    let last = view.rules.rebuilds.get(&seen.instance.name);
    let last = last.filter(|last| last.ended.is_none());
    let failed = |last: &&Rebuild| last.incarnation == seen.report.incarnation || seen.half_cloned();
    last.filter(failed).map_or(0, |last| last.failures.saturating_add(1))
}

/// From where its data come: from one donor after the other, and in between from the store.
fn origin(view: &View<'_>, seen: Seen<'_>, donors: &[Seen<'_>], failures: u32) -> Option<(Donor, Verb)> {
    let keep_former = view.keeps_former_data();
    // The last one is the one that it will follow.
    let source = donors.last()?;
    if failures % (CLONES + 1) == CLONES && can_restore(view) {
        let at_least = source.report.purged.clone();
        return Some((Donor::Store, Verb::Refill { at_least, keep_former }));
    }
    let able: Vec<_> = donors
        .iter()
        .copied()
        .filter(|donor| may_give(view, *donor, seen))
        .collect();
    let turn = usize::try_from(failures).unwrap_or_default().checked_rem(able.len())?;
    let donor = able.get(turn)?;
    let endpoint = view.endpoint(*donor);
    Some((
        Donor::Instance(donor.id()),
        Verb::Clone {
            donor: endpoint,
            keep_former,
        },
    ))
}

/// The instances have the access to a store in which there is a backup that they can read: a private key is not given to them.
fn can_restore(view: &View<'_>) -> bool {
    let backup = view.subject.spec.ok().and_then(|spec| spec.backup.as_ref());
    backup.is_some_and(|backup| backup.destination.key.is_none())
        && view.observed.secrets.store == StoreSecret::Current
        && view.observed.backups.told.last_successful.is_some()
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
                .is_some_and(|rebuild| rebuild.donor == Donor::Instance(id.clone()))
    });
    donor.running() && id != recipient.id() && !giving && donor.report.set().contains(&view.rules.baseline)
}
