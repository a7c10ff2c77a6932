//! A cluster whose primary is recorded: the states of phase Open, in the order of docs/failover.md.

use crate::action::PRIMARY_LOST;
use crate::plan::detect::{self, State};
use crate::plan::draft::Draft;
use crate::plan::{attach, election, promotion, request, steady};
use crate::progress::Stage;
use crate::view::{Seen, View};

/// One pass of a cluster in phase Open.
pub(crate) fn plan(view: &View<'_>, draft: &mut Draft) {
    let Some(primary) = &view.rules.primary else {
        draft.wait(
            "cluster",
            "a person: status says that a primary is open, and names none",
        );
        return;
    };
    if fence_strangers(view, draft) || request::plan(view, draft) {
        return;
    }
    if view.rules.keeps_out(&primary.id.instance) {
        // A fence of the primary is an election that waits (rule 10); a memory that says otherwise is put right.
        let message = format!("{}, the primary, is fenced on request", primary.id.instance);
        election::begin(view, draft, Some(primary.id.clone()), "PrimaryFenced", message);
        return;
    }
    match detect::state(view, primary) {
        State::Open(seen) => {
            if view
                .rules
                .last_change
                .as_ref()
                .is_some_and(|change| change.opened.is_none())
            {
                draft.stage(Stage::Routing);
            }
            steady::plan(view, primary, seen, draft);
        }
        State::Opening(seen) => {
            draft.stage(Stage::Opening);
            promotion::reopen(view, primary, seen, draft);
        }
        State::Lost(reason) => election::begin(view, draft, None, PRIMARY_LOST, reason),
        State::Hearing { reason, look_in } => {
            draft.wait_briefly("primary", reason);
            draft.look_in(look_in);
        }
        State::Waiting(reason) => {
            draft.wait("primary", reason);
            draft.look_in(view.timing.silence);
            attach::witnesses(view, primary, draft);
        }
    }
}

/// Rule 6: whoever is writable and is not the open primary is fenced in this pass, and judged in a later one.
fn fence_strangers(view: &View<'_>, draft: &mut Draft) -> bool {
    let strangers: Vec<Seen<'_>> = view
        .heard()
        .filter(|seen| seen.report.writable && !view.is_open(*seen))
        .collect();
    for seen in &strangers {
        draft.wait(
            "fencing",
            format!("{}: it accepts writes and is not the open primary", seen.instance.name),
        );
        election::fence(view, *seen, draft);
    }
    !strangers.is_empty()
}
