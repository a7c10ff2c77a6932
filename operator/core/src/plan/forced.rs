//! A promotion for which a person accepts that acknowledged writes may be lost: rule 10 of docs/failover.md.
//!
//! It changes nothing while the rules can go on by themselves. Only when they have to wait, for members that are not fenced,
//! for a candidate that contains everything, or for followers, the person's word stands for what cannot be known.

use crate::GtidSet;
use crate::observed::{InstanceObserved, Reach};
use crate::plan::draft::Draft;
use crate::plan::election::{self, moment};
use crate::plan::{request, text};
use crate::rules::{DataLoss, MemberId, Phase, Request, Rules};
use crate::view::{Seen, View};

/// The instance that a person wants at this price. Before the first primary there is no price that a person could know: what
/// was recovered is waited for.
pub(crate) fn wanted<'a>(view: &View<'a>) -> Option<&'a Request> {
    view.rules.primary.as_ref()?;
    request::running(view).filter(|request| request.accept_data_loss)
}

/// The instance that a person wants, if it takes part.
pub(crate) fn preferred(view: &View<'_>) -> Option<MemberId> {
    let name = wanted(view)?.instance.as_ref()?;
    let seen = view.heard().find(|seen| &seen.instance.name == name)?;
    takes_part(view, seen).then(|| seen.id())
}

/// Everybody who can answer had the time to: what is missing now is what the person accepted.
pub(crate) fn is_due(view: &View<'_>, draft: &mut Draft) -> bool {
    if wanted(view).is_none() {
        return false;
    }
    let age = view.age(view.rules.phase_since);
    if age < view.timing.opening {
        draft.look_in(view.timing.opening.saturating_sub(age));
    }
    age >= view.timing.opening
}

/// Whether an instance can be promoted by the word of a person.
pub(crate) fn able(view: &View<'_>, instance: &InstanceObserved) -> Result<MemberId, String> {
    let name = &instance.name;
    let Some(report) = instance.report() else {
        return Err(text::unreachable(instance));
    };
    let seen = Seen { instance, report };
    if !takes_part(view, seen) {
        return Err(format!(
            "{name} is neither a member nor the recorded primary, so nobody knows what it holds"
        ));
    }
    if !seen.running() {
        return Err(text::mysqld_not_running(seen));
    }
    if seen.stuck() {
        return Err(text::broken(seen));
    }
    match better(view, seen) {
        Some(reason) => Err(reason),
        None => Ok(seen.id()),
    }
}

/// Another instance that can be reached has everything that this one has, and more.
fn better(view: &View<'_>, seen: Seen<'_>) -> Option<String> {
    if seen.report.history_reset {
        // Then nobody is left whose set could be compared with anything.
        return None;
    }
    let set = seen.report.set();
    // What one has that cannot apply it is out of reach.
    let able = |other: &Seen<'_>| other.running() && !other.stuck() && !view.kept_out(other.instance);
    let fit = |other: &Seen<'_>| takes_part(view, *other) && able(other) && other.id() != seen.id();
    let mut others = view.heard().filter(fit);
    let more = others.find(|other| {
        let legit = view.legit(*other);
        legit.contains(&view.legit(seen)) && !set.contains(&legit)
    })?;
    Some(format!(
        "{} has everything that {} has, and {} more: promote it instead",
        more.instance.name,
        seen.instance.name,
        view.legit(more).subtract(&set)
    ))
}

fn takes_part(view: &View<'_>, seen: Seen<'_>) -> bool {
    view.is_member(seen) || view.is_primary(seen) || (seen.report.history_reset && view.nobody_is_left())
}

/// Records the person's word; an election is begun if none is going on.
pub(crate) fn begin(view: &View<'_>, request: Request, draft: &mut Draft) {
    let name = request.instance.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!("{name} is to be promoted on request, though acknowledged writes may be lost");
    let rules = Rules {
        request: Some(request),
        ..view.rules.clone()
    };
    match view.rules.phase {
        Phase::Open => election::begin_with(view, draft, rules, None, "PromotionForced", message),
        Phase::Electing { .. } => draft.record(view, rules, "PromotionForced", message),
    }
}

/// The winner by the word of a person, where the rules have to wait for `reason`.
pub(crate) fn winner<'a>(view: &View<'a>, reason: &str) -> Result<Seen<'a>, String> {
    let id = preferred(view).ok_or_else(|| reason.to_owned())?;
    let Some(seen) = view.find(&id).filter(|seen| view.held(*seen)) else {
        return Err(format!("{} to be fenced, so that it can be promoted", id.instance));
    };
    if view.kept_out(seen.instance) {
        return Err(format!("{} to be let in again: it is fenced on request", id.instance));
    }
    better(view, seen).map_or(Ok(seen), Err)
}

/// What is lost when this one wins, as far as it is known; `None` when the rules would have let it win.
pub(crate) fn loss(view: &View<'_>, winner: Seen<'_>) -> Option<DataLoss> {
    let primary = view.rules.primary.as_ref()?;
    let acks = view.acks();
    let (set, unfenced) = (winner.report.set(), view.unfenced());
    let old_is_held = view.primary().is_some_and(|seen| view.held(seen));
    let missing = known(view).subtract(&set);
    if (unfenced.len() < acks || old_is_held) && missing.is_empty() {
        return None;
    }
    let silent = unfenced.into_iter().chain((!old_is_held).then_some(&primary.id));
    Some(DataLoss {
        at: moment(view.now),
        epoch: view.rules.epoch,
        instance: winner.instance.name.clone(),
        server_uuid: Some(primary.server_uuid.clone()),
        missing,
        unheard: silent
            .map(|id| id.instance.clone())
            .filter(|name| name != &winner.instance.name)
            .collect(),
    })
}

/// Everything that is known to have been in the cluster: the baseline, what those hold that are fenced, and what the others
/// said last.
fn known(view: &View<'_>) -> GtidSet {
    let held = view.heard().filter(|seen| takes_part(view, *seen) && view.held(*seen));
    let sets = held.map(|seen| view.legit(seen));
    let hints = view.observed.instances.iter().filter_map(|instance| {
        let Reach::Silent { last: Some(last), .. } = &instance.reach else {
            return None;
        };
        let seen = Seen { instance, report: last };
        takes_part(view, seen).then(|| view.legit(seen))
    });
    sets.chain(hints)
        .fold(view.rules.baseline.clone(), |all, set| all.union(&set))
}
