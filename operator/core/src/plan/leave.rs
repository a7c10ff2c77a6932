//! Members that leave: "Drop" of rule 1 of docs/failover.md.

use crate::action::Verb;
use crate::plan::draft::Draft;
use crate::plan::goal::Goal;
use crate::plan::{attach, heal, text};
use crate::rules::{InstanceName, MemberId};
use crate::view::{Seen, View};

/// The member that is to leave now, and why.
///
/// Only while enough others receive: otherwise writes would stop, and what it holds could not be shown to be elsewhere.
pub(crate) fn candidate(view: &View<'_>, open: Seen<'_>) -> Option<(MemberId, String)> {
    // With k = 0 none of the others is needed (docs/failover.md, "Deviations").
    let mut leaving = view
        .rules
        .members
        .iter()
        .filter_map(|id| Some((id.clone(), reason(view, open, id)?)));
    leaving.find(|(id, _)| view.can_spare(id))
}

fn reason(view: &View<'_>, open: Seen<'_>, id: &MemberId) -> Option<String> {
    let name = &id.instance;
    let ordinal = view
        .instance(id)
        .map(|instance| instance.ordinal)
        .or_else(|| ordinal(name));
    if ordinal.is_some_and(|ordinal| ordinal >= view.replicas()) {
        // k is lowered before (rule 9).
        return (view.rules.acks_required <= view.wanted_acks()).then(|| format!("{name} is not wanted any more"));
    }
    // Nothing of it is judged by its set, so it need not be fenced: one that cannot write takes no command, and what cuts it off is
    // the primary.
    if let Some((_, why)) = view.instance(id).and_then(|instance| heal::due(view, open, instance)) {
        return Some(why);
    }
    match view.find(id) {
        None => view
            .heard_as(id)
            .map(|_| format!("the data directory of {name} was replaced")),
        Some(seen) if !view.fenced(seen) => None,
        Some(seen) if view.kept_out(seen.instance) => Some(format!("{name} is fenced on request")),
        Some(seen) => match View::errant(seen, open) {
            Some(errant) => Some(text::errant(seen, open, &errant)),
            None if seen.lacks_purged(open) => Some(text::lacks_purged(name, open)),
            None => attach::given_up(view, seen),
        },
    }
}

/// The ordinal of an instance that does not exist any more.
pub(crate) fn ordinal(name: &InstanceName) -> Option<u32> {
    name.0.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok())
}

/// The next step of dropping a member; the list without it is put in force by the caller.
pub(crate) fn step(
    view: &View<'_>,
    open: Seen<'_>,
    goal: &Goal,
    in_force: bool,
    who: &MemberId,
    why: &str,
    draft: &mut Draft,
) {
    let rest: Vec<_> = view
        .members()
        .filter(|seen| goal.members.contains(&seen.id()))
        .collect();
    if view.rules.acks_required > 0 {
        // Its word under this epoch: a member that follows the primary is told to follow it.
        for seen in rest
            .iter()
            .filter(|seen| view.receiving(**seen) && !view.confirmed(**seen) && !view.kept_out(seen.instance))
        {
            draft.attach(view, *seen, open);
        }
    }
    if !in_force {
        draft.wait(
            who.instance.0.clone(),
            format!("{} to exclude it from acknowledging", open.instance.name),
        );
        return;
    }
    if view.rules.acks_required > 0 && !contained(view, open, goal, &rest, who, draft) {
        return;
    }
    let message = format!("{} may not acknowledge any more: {why}", who.instance);
    draft.record_members(view, goal.members.clone(), "MemberDropped", message);
}

/// Steps 2 and 3: the marker is committed, and enough of the rest contain it.
fn contained(
    view: &View<'_>,
    open: Seen<'_>,
    goal: &Goal,
    rest: &[Seen<'_>],
    who: &MemberId,
    draft: &mut Draft,
) -> bool {
    let Some(marker) = &open.report.marker else {
        draft.command(view, open, Verb::Mark, "");
        draft.wait(
            who.instance.0.clone(),
            format!("{} to commit a marker", open.instance.name),
        );
        return false;
    };
    let contain = |seen: &&Seen<'_>| view.confirmed(**seen) && seen.running() && seen.report.set().contains(marker);
    let have = rest.iter().filter(contain).count();
    let needed = view.acks().min(goal.members.len()).max(1);
    if have < needed {
        draft.wait(
            who.instance.0.clone(),
            format!("{needed} of the other members to contain everything, {have} do"),
        );
    }
    have >= needed
}
