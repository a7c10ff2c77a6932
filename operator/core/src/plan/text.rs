//! Sentences of the planner, so that each is worded once.

use std::collections::BTreeSet;

use crate::GtidSet;
use crate::observed::{Mysqld, Reach};
use crate::rules::{MemberId, Rules};
use crate::view::{Seen, View};

/// "mysqld of shop-1 is starting: …"
pub(crate) fn mysqld_not_running(seen: Seen<'_>) -> String {
    let state = match seen.report.mysqld {
        Mysqld::Initialising => "is being initialised",
        Mysqld::Starting => "is starting",
        Mysqld::Running => "runs",
        Mysqld::Down => "is down",
        Mysqld::Cloning => "is being cloned",
        Mysqld::Failed => "does not start",
    };
    let name = &seen.instance.name;
    if seen.report.message.is_empty() {
        format!("mysqld of {name} {state}")
    } else {
        format!("mysqld of {name} {state}: {}", seen.report.message)
    }
}

/// Why an instance does not count as fenced.
fn why_not_fenced(view: &View<'_>, id: &MemberId) -> String {
    let name = &id.instance;
    if let Some(seen) = view.find(id) {
        return if seen.running() {
            format!("{name} is being fenced")
        } else {
            mysqld_not_running(seen)
        };
    }
    if view.heard_as(id).is_some() {
        return format!("{name} came back with another data directory");
    }
    match view.instance(id).map(|instance| &instance.reach) {
        Some(Reach::Silent { reason, .. } | Reach::Unknown { reason, .. }) if !reason.is_empty() => {
            format!("{name} cannot be reached: {reason}")
        }
        Some(_) => format!("{name} cannot be reached"),
        None => format!("{name} does not exist"),
    }
}

/// "1 of 2 members is not fenced; it must be fewer than 1 (…)".
pub(crate) fn not_fenced(view: &View<'_>, unfenced: &BTreeSet<&MemberId>, primary: &MemberId) -> String {
    let (missing, of) = (unfenced.len(), view.rules.members.len());
    let are = if missing == 1 { "is" } else { "are" };
    let why: Vec<_> = unfenced.iter().map(|id| why_not_fenced(view, id)).collect();
    format!(
        "{missing} of {of} members {are} not fenced; it must be fewer than {}, or the old primary must answer ({}; {})",
        view.rules.acks_required,
        why.join("; "),
        why_not_fenced(view, primary),
    )
}

/// Why nobody may win, with the sets.
pub(crate) fn no_candidate(view: &View<'_>, held: &[Seen<'_>]) -> String {
    if held.is_empty() {
        return "an instance that could win: none is fenced".to_owned();
    }
    let baseline = &view.rules.baseline;
    let sets: Vec<_> = held
        .iter()
        .map(|seen| {
            let set = seen.report.set();
            let errant = set.subtract(&view.legit(*seen));
            let mut said = vec![format!("{} has {}", seen.instance.name, show(&set))];
            if !set.contains(baseline) {
                said.push(format!("lacks {} of the baseline", show(&baseline.subtract(&set))));
            }
            if !errant.is_empty() {
                said.push(format!("of which {} came from no primary", show(&errant)));
            }
            said.join(", ")
        })
        .collect();
    format!("an instance that contains everything: {}", sets.join("; "))
}

fn show(set: &GtidSet) -> String {
    if set.is_empty() {
        "nothing".to_owned()
    } else {
        set.to_string()
    }
}

/// Where a promotion is.
pub(crate) fn promotion(winner: Seen<'_>, have: u32, wanted: u32) -> String {
    let name = &winner.instance.name;
    if !winner.report.fully_applied() {
        let error = &winner.report.replication.applier_error;
        let error = if error.is_empty() {
            String::new()
        } else {
            format!(": {error}")
        };
        return format!("{name} to apply its relay log{error}");
    }
    format!("{wanted} instances to follow {name} and contain what it has; {have} do")
}

/// Who is recorded, and from where.
pub(crate) fn elected(winner: Seen<'_>, rules: &Rules) -> String {
    let names: Vec<_> = rules.members.iter().map(|member| member.instance.to_string()).collect();
    let from = match rules.last_change.as_ref().and_then(|change| change.from.as_ref()) {
        Some(from) if from == &winner.instance.name => " (as before)".to_owned(),
        Some(from) => format!(" after {from}"),
        None => String::new(),
    };
    let members = if names.is_empty() {
        "nobody".to_owned()
    } else {
        names.join(", ")
    };
    format!(
        "{} is the primary of epoch {}{from}; {members} may acknowledge",
        winner.instance.name, rules.epoch
    )
}

/// What an opening waits for.
pub(crate) fn opening(view: &View<'_>, primary: Seen<'_>) -> String {
    match view.rules.acks_required {
        0 => format!("{} to open", primary.instance.name),
        acks => format!("{} to open with {acks} members connected", primary.instance.name),
    }
}

/// What a switchover's candidate lacks.
pub(crate) fn catching_up(view: &View<'_>, preferred: Option<&MemberId>) -> String {
    match (view.primary(), preferred) {
        (Some(primary), _) if !view.fenced(primary) => format!("{} to become read-only", primary.instance.name),
        (Some(primary), Some(preferred)) => {
            format!(
                "{} to receive everything that {} has",
                preferred.instance, primary.instance.name
            )
        }
        (None, _) | (_, None) => "the old primary".to_owned(),
    }
}

/// Errant transactions, with the exact set.
pub(crate) fn errant(seen: Seen<'_>, open: Seen<'_>, errant: &GtidSet) -> String {
    format!(
        "{} has transactions that {} does not have: {errant}",
        seen.instance.name, open.instance.name
    )
}
