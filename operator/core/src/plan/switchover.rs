//! Moving the primary on purpose: rule 8 of docs/failover.md.

use crate::plan::draft::Draft;
use crate::plan::election;
use crate::rules::MemberId;
use crate::view::{Seen, View};

/// A primary that is about to stop, or is not wanted any more, is relieved first.
pub(crate) fn due(view: &View<'_>, open: Seen<'_>, draft: &mut Draft) -> bool {
    let name = &open.instance.name;
    let why = if open.leaving() {
        format!("{name} is about to stop")
    } else if !view.wanted(open.instance) {
        format!("{name} is not wanted any more")
    } else {
        return false;
    };
    begin(view, &why, draft)
}

/// Begins a switchover to the best candidate, if the pre-checks allow it; otherwise nothing is touched.
pub(crate) fn begin(view: &View<'_>, why: &str, draft: &mut Draft) -> bool {
    if draft.records() {
        return false;
    }
    let Some(candidate) = candidate(view) else {
        draft.wait(
            "switchover",
            format!("a replica that could take over and has caught up ({why})"),
        );
        return false;
    };
    let message = format!("{why}; {} is to take over", candidate.instance);
    election::begin(view, draft, Some(candidate), "Switchover", message);
    true
}

/// Pre-checks: synced, wanted, not about to stop itself.
fn candidate(view: &View<'_>) -> Option<MemberId> {
    let fit = |seen: &Seen<'_>| view.synced(*seen) && view.wanted(seen.instance) && !seen.leaving();
    let best = view
        .members()
        .filter(fit)
        .min_by_key(|seen| (seen.backlog(), seen.instance.ordinal));
    best.map(|seen| seen.id())
}
