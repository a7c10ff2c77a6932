//! k: how many acknowledgements a commit waits for (rule 1, "k", and rule 9).

use crate::action::Verb;
use crate::plan::draft::Draft;
use crate::plan::{list, text};
use crate::rules::Rules;
use crate::view::{Seen, View};

/// Lowers k in status first, then on the primary: it is never above the k in force (C9).
pub(crate) fn lower(view: &View<'_>, draft: &mut Draft) -> bool {
    let wanted = relaxed(view, draft).unwrap_or_else(|| view.wanted_acks());
    if view.rules.acks_required <= wanted {
        return false;
    }
    record(view, wanted, draft);
    if let Some(open) = view.open_primary() {
        draft.command(view, open, list::allow(&view.rules.members, wanted), "");
    }
    true
}

/// With durability `preferred`: commits waited long enough, and go on with the members that are left.
fn relaxed(view: &View<'_>, draft: &mut Draft) -> Option<u32> {
    let since = view.observed.told.blocked_since.filter(|_| view.prefers_writes())?;
    let receiving = view.members().filter(|seen| view.receiving(*seen)).count();
    let left = u32::try_from(receiving).unwrap_or(u32::MAX);
    if left >= view.rules.acks_required {
        return None;
    }
    let age = view.age(since);
    draft.look_in(view.timing.relax.saturating_sub(age));
    (age >= view.timing.relax).then_some(left)
}

/// The k to which it can be raised now: so many members are synced. With durability `preferred` also one on the way there.
pub(crate) fn raise_to(view: &View<'_>) -> Option<u32> {
    let wanted = view.wanted_acks();
    let synced = view.members().filter(|seen| view.synced(*seen)).count();
    let synced = u32::try_from(synced).unwrap_or(u32::MAX);
    let reachable = if view.prefers_writes() {
        wanted.min(synced)
    } else {
        wanted
    };
    (reachable > view.rules.acks_required && synced >= reachable).then_some(reachable)
}

/// Raises k in status, after a marker was acknowledged under it.
pub(crate) fn raise(view: &View<'_>, open: Seen<'_>, in_force: bool, to: u32, draft: &mut Draft) {
    if !in_force {
        draft.wait(
            "durability",
            format!("{} to wait for {}", open.instance.name, text::acknowledgements(to)),
        );
    } else if open.report.marker.is_none() {
        draft.command(view, open, Verb::Mark, "");
        draft.wait("durability", format!("a marker to be acknowledged {to} times"));
    } else {
        record(view, to, draft);
    }
}

fn record(view: &View<'_>, acks_required: u32, draft: &mut Draft) {
    let rules = Rules {
        epoch: view.rules.epoch.saturating_add(1),
        acks_required,
        ..view.rules.clone()
    };
    let message = format!(
        "a commit waits for {} instead of {}",
        text::acknowledgements(acks_required),
        view.rules.acks_required
    );
    draft.record(view, rules, "AcksRequiredChanged", message);
}
