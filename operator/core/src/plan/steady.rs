//! A cluster whose primary is open: rules 1, 7, 8 and 9 of docs/failover.md, as a table of contents.

use crate::plan::draft::Draft;
use crate::plan::goal::{Change, Goal};
use crate::plan::{acks, attach, heal, join, leave, list, purge, rebuild, switchover};
use crate::rules::{PrimaryRef, Rules};
use crate::view::{Seen, View};

/// One pass of a cluster whose primary is open.
///
/// Of the changes of members and k at most one is recorded a pass, because each begins an epoch in which nothing is
/// confirmed yet. Joining comes first: it is what makes the others possible.
pub(crate) fn plan(view: &View<'_>, primary: &PrimaryRef, open: Seen<'_>, draft: &mut Draft) {
    draft.look_in(view.timing.patrol);
    if switchover::due(view, open, draft) || heal::relieve(view, open, draft) {
        return;
    }
    if rebase(view, open, draft) {
        return;
    }
    let goal = Goal::of(view, open);
    let in_force = list::in_force(view, open, &goal);

    attach::members(view, primary, open, &goal, draft);
    let returning = join::judge(view, open, draft);

    let joins = in_force && join::record(view, open, &goal, &returning, draft);
    if !joins && !acks::lower(view, draft) {
        match &goal.change {
            Change::Leave { who, why } => leave::step(view, open, &goal, in_force, who, why, draft),
            Change::Raise { to } => acks::raise(view, open, in_force, *to, draft),
            Change::None => {}
        }
    }
    rebuild::returning(view, open, &returning.rebuild, draft);
    heal::plan(view, open, draft);

    let facts_needed = goal.change != Change::None || !returning.ready.is_empty();
    list::put_in_force(view, open, &goal, facts_needed, draft);
    purge::plan(view, open, draft);
}

/// The binlogs and GTIDs of a primary that stands alone were reset. It has all there is, so the baseline, by which others will
/// be compared, is what it says now (rule 9).
fn rebase(view: &View<'_>, open: Seen<'_>, draft: &mut Draft) -> bool {
    let set = open.report.set();
    if !view.stands_alone() || set.contains(&view.rules.baseline) {
        return false;
    }
    let name = &open.instance.name;
    let rules = Rules {
        epoch: view.rules.epoch.saturating_add(1),
        owner: view.observed.operator.clone(),
        baseline: set,
        ..view.rules.clone()
    };
    let message = format!("the binlogs and GTIDs of {name} were reset; it stands alone, so its data is what counts");
    draft.record(view, rules, "HistoryReset", message);
    true
}
