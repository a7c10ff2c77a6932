//! The list of who may acknowledge, in force on the primary (rule 1, "Reconcile").

use std::collections::BTreeSet;

use crate::action::Verb;
use crate::plan::draft::Draft;
use crate::plan::goal::Goal;
use crate::rules::MemberId;
use crate::view::{Seen, View};

/// The primary was told exactly this list and k, whoever told it, and enforces them.
fn told(open: Seen<'_>, members: &BTreeSet<MemberId>, acks_required: u32) -> bool {
    let persisted = &open.report.persisted;
    !open.report.list_uncertain
        && persisted.acks_required == acks_required
        && persisted.members.len() == members.len()
        && persisted.members.iter().all(|member| members.contains(member))
}

/// It is confirmed that this list and k are in force.
pub(crate) fn in_force(view: &View<'_>, open: Seen<'_>, goal: &Goal) -> bool {
    view.confirmed(open) && told(open, &goal.members, goal.acks_required)
}

/// Tells the primary, if it was told something else, or if a change needs its word under this epoch.
pub(crate) fn put_in_force(view: &View<'_>, open: Seen<'_>, goal: &Goal, facts_needed: bool, draft: &mut Draft) {
    let same = told(open, &goal.members, goal.acks_required);
    if !same || (facts_needed && !view.confirmed(open)) {
        draft.command(view, open, allow(&goal.members, goal.acks_required), "");
    }
}

/// The command for that list and k.
pub(crate) fn allow(members: &BTreeSet<MemberId>, acks_required: u32) -> Verb {
    Verb::Allow {
        members: members.clone(),
        acks_required,
    }
}
