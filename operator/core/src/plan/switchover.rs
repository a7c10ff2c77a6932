//! Moving the primary on purpose: rule 8 of docs/failover.md.

use crate::observed::InstanceObserved;
use crate::plan::draft::Draft;
use crate::plan::{election, text};
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
    begin_among(view, why, |_| true, draft)
}

/// The same, to one of those that are `well` besides.
pub(crate) fn begin_among(view: &View<'_>, why: &str, well: impl Fn(&Seen<'_>) -> bool, draft: &mut Draft) -> bool {
    if draft.records() {
        return false;
    }
    let Some(candidate) = candidate(view, well) else {
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

/// The best of those that pass the pre-checks.
fn candidate(view: &View<'_>, well: impl Fn(&Seen<'_>) -> bool) -> Option<MemberId> {
    let best = view
        .members()
        .filter(|seen| fit(view, seen.instance).is_ok() && well(seen))
        .min_by_key(|seen| (seen.backlog(), seen.report.replication.lag, seen.instance.ordinal));
    best.map(|seen| seen.id())
}

/// Pre-checks of rule 8: a member that receives, is applied to within the bound, and stays; or what is missing.
pub(crate) fn fit(view: &View<'_>, instance: &InstanceObserved) -> Result<MemberId, String> {
    let name = &instance.name;
    let Some(report) = instance.report() else {
        return Err(text::unreachable(instance));
    };
    let seen = Seen { instance, report };
    let refuse = |why: &str| Err(format!("{name} {why}"));
    if !view.wanted(instance) {
        return refuse("is not wanted any more: its number is beyond spec.replicas");
    }
    if view.kept_out(instance) {
        return refuse("is fenced on request");
    }
    if !seen.running() {
        return Err(text::mysqld_not_running(seen));
    }
    if !view.is_member(seen) {
        return refuse("is no member: it was not compared with the primary yet, or lacks what it has");
    }
    if seen.leaving() {
        return refuse("is about to stop itself");
    }
    if let Some(open) = view.open_primary()
        && let Some(errant) = View::errant(seen, open)
    {
        return Err(text::errant(seen, open, &errant));
    }
    let replication = &report.replication;
    if !view.receiving(seen) {
        return Err(text::not_receiving(view, seen));
    }
    if !replication.applier_running {
        return Err(text::with_error(
            format!("{name} does not apply what it receives"),
            &replication.applier_error,
        ));
    }
    match replication.lag {
        Some(lag) if lag <= view.timing.lag => Ok(seen.id()),
        Some(lag) => refuse(&format!(
            "is {:.1} s behind; it can take over when that is at most {:.1} s",
            lag.as_secs_f64(),
            view.timing.lag.as_secs_f64()
        )),
        None => refuse("does not know how far it is behind"),
    }
}
