//! Sentences of the planner, so that each is worded once.

use std::collections::BTreeSet;

use crate::GtidSet;
use crate::observed::{InstanceObserved, Mysqld, Reach, Standstill};
use crate::rules::{InstanceName, MemberId, Rules};
use crate::view::{Seen, View};

/// "mysqld of shop-1 is starting: …"
pub(crate) fn mysqld_not_running(seen: Seen<'_>) -> String {
    let state = state_of(seen.report.mysqld);
    let name = &seen.instance.name;
    if seen.report.message.is_empty() {
        format!("mysqld of {name} {state}")
    } else {
        format!("mysqld of {name} {state}: {}", seen.report.message)
    }
}

/// What is waited for until mysqld of an instance answers, as the end of "… waits for ".
pub(crate) fn to_run(seen: Seen<'_>) -> String {
    let what = match seen.report.mysqld {
        Mysqld::Cloning => "the end of its clone",
        Mysqld::Initialising => "its data directory to be made",
        Mysqld::Starting | Mysqld::Running | Mysqld::Down | Mysqld::Failed => "its mysqld to start",
    };
    if seen.report.message.is_empty() {
        what.to_owned()
    } else {
        format!("{what} ({})", seen.report.message)
    }
}

/// "is starting"
pub(crate) const fn state_of(mysqld: Mysqld) -> &'static str {
    match mysqld {
        Mysqld::Initialising => "is being initialised",
        Mysqld::Starting => "is starting",
        Mysqld::Running => "runs",
        Mysqld::Down => "is down",
        Mysqld::Cloning => "is being cloned",
        Mysqld::Failed => "does not start",
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
    match view.instance(id) {
        Some(instance) => unreachable(instance),
        None => format!("{name} does not exist"),
    }
}

/// "shop-1 cannot be reached: no route"
pub(crate) fn unreachable(instance: &InstanceObserved) -> String {
    let name = &instance.name;
    match &instance.reach {
        Reach::Silent { reason, .. } | Reach::Unknown { reason, .. } => {
            with_error(format!("{name} cannot be reached"), reason)
        }
        Reach::Heard(_) => format!("{name} cannot be reached"),
    }
}

/// "shop-1 lacks what shop-0 purged"
pub(crate) fn lacks_purged(name: &InstanceName, source: Seen<'_>) -> String {
    format!("{name} lacks what {} purged", source.instance.name)
}

/// A sentence, and what the server says of it, if it does.
pub(crate) fn with_error(sentence: String, error: &str) -> String {
    if error.is_empty() {
        sentence
    } else {
        format!("{sentence}: {error}")
    }
}

/// Why a member that runs cannot acknowledge at present.
pub(crate) fn not_receiving(view: &View<'_>, seen: Seen<'_>) -> String {
    let name = &seen.instance.name;
    let primary = view.rules.primary.as_ref().map(|primary| &primary.id);
    let replication = &seen.report.replication;
    match (primary, &replication.source_host) {
        _ if view.kept_out(seen.instance) => format!("{name} is fenced on request"),
        (Some(primary), Some(_)) if view.follows(seen, primary) => with_error(
            format!("{name} hears nothing from {}", primary.instance),
            &replication.receiver_error,
        ),
        (_, Some(host)) => format!("{name} follows {host}, which is not the primary"),
        (_, None) => format!("{name} follows nobody"),
    }
}

/// Why a member does not acknowledge. Without the words of servers and networks, which differ from try to try: it is a part
/// of conditions.
pub(crate) fn cannot_acknowledge(view: &View<'_>, id: &MemberId) -> String {
    let name = &id.instance;
    match view.find(id) {
        Some(seen) if view.kept_out(seen.instance) => format!("{name} is fenced on request"),
        Some(seen) if !seen.running() => format!("mysqld of {name} {}", state_of(seen.report.mysqld)),
        Some(seen) if seen.detached() => format!("{name} follows nobody"),
        Some(seen) if seen.report.standstill == Some(Standstill::DiskFull) => format!("the volume of {name} is full"),
        Some(_) => format!("{name} hears nothing"),
        None if view.heard_as(id).is_some() => format!("{name} came back with another data directory"),
        None => format!("{name} cannot be reached"),
    }
}

/// What an election waits for that was ordered by a fence of the primary.
pub(crate) fn closed_on_request(view: &View<'_>) -> String {
    let name = view
        .rules
        .primary
        .as_ref()
        .map(|primary| primary.id.instance.to_string());
    let name = name.unwrap_or_default();
    format!(
        "a person: {name}, the primary, is fenced on request; let it in again ({}), or make another one the primary ({})",
        command(view, "unfence", &name),
        command(view, "promote", "ANOTHER")
    )
}

/// "1 acknowledgement", "2 acknowledgements"
pub(crate) fn acknowledgements(count: u32) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} acknowledgement{plural}")
}

/// Why nothing is done on request with an instance that a person keeps out.
pub(crate) fn kept_out(view: &View<'_>, name: &InstanceName) -> String {
    format!(
        "{name} is fenced on request: let it in first ({})",
        command(view, "unfence", &name.0)
    )
}

/// A command of the plugin that can be typed as it is.
pub(crate) fn command(view: &View<'_>, verb: &str, instance: &str) -> String {
    let (cluster, namespace) = (view.subject.name, view.subject.namespace);
    format!("kubectl mainstay {verb} {cluster} {instance} -n {namespace}")
}

/// What was still missing when a switchover was given up.
pub(crate) fn missed(view: &View<'_>, preferred: &MemberId) -> String {
    match (view.find(preferred), view.primary()) {
        (None, _) => match view.instance(preferred) {
            Some(instance) => unreachable(instance),
            None => format!("{} does not exist", preferred.instance),
        },
        (Some(candidate), _) if !candidate.running() => mysqld_not_running(candidate),
        (Some(candidate), Some(primary)) => {
            let lacks = primary.report.set().subtract(&candidate.report.set());
            if lacks.is_empty() {
                with_error(
                    format!(
                        "{} has not applied everything, or too few others follow it",
                        preferred.instance
                    ),
                    &candidate.report.replication.applier_error,
                )
            } else {
                with_error(
                    format!("{} has not received {lacks}", preferred.instance),
                    &candidate.report.replication.receiver_error,
                )
            }
        }
        (Some(_), None) => "the old primary does not answer".to_owned(),
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
            if view.kept_out(seen.instance) {
                said.push("is fenced on request".to_owned());
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
    let cost = if rules.data_loss.as_ref().is_some_and(|loss| loss.epoch == rules.epoch) {
        format!(" {}", lost(rules))
    } else {
        String::new()
    };
    format!(
        "{} is the primary of epoch {}{from}; {members} may acknowledge{cost}",
        winner.instance.name, rules.epoch
    )
}

/// "(on request; known to be missing: …; not heard: …)", for a promotion that a person accepted a loss for.
fn lost(rules: &Rules) -> String {
    let Some(loss) = &rules.data_loss else {
        return String::new();
    };
    let unheard: Vec<_> = loss.unheard.iter().map(ToString::to_string).collect();
    let unheard = if unheard.is_empty() {
        String::new()
    } else {
        format!("; what only {} had is missing, too", unheard.join(", "))
    };
    format!("(on request; known to be missing: {}{unheard})", show(&loss.missing))
}

/// What a promotion came to.
pub(crate) fn promoted(rules: &Rules) -> String {
    let Some(primary) = &rules.primary else {
        return String::new();
    };
    let mut said = format!("{} is the primary of epoch {}", primary.id.instance, primary.epoch);
    if rules.data_loss.as_ref().is_some_and(|loss| loss.epoch == primary.epoch) {
        said = format!("{said} {}", lost(rules));
    }
    if rules.acks_required == 0 && !rules.members.is_empty() {
        said.push_str("; a commit waits for nobody until enough replicas have caught up");
    } else if rules.members.is_empty() {
        said.push_str("; nobody follows it yet, so a commit waits for nobody");
    }
    said
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

/// "shop-1 cannot apply what it received: …"
pub(crate) fn broken(seen: Seen<'_>) -> String {
    with_error(
        format!("{} cannot apply what it received", seen.instance.name),
        &seen.report.replication.applier_error,
    )
}

/// Why an instance is rebuilt that a person named.
pub(crate) fn on_request(seen: Seen<'_>) -> String {
    format!("{} is to be rebuilt on request", seen.instance.name)
}

/// Nobody wins, because the one that has everything cannot apply it; and what a person can do.
pub(crate) fn stuck_alone(view: &View<'_>, seen: Seen<'_>) -> String {
    let (name, error) = (&seen.instance.name, &seen.report.replication.applier_error);
    format!(
        "{name} to apply what it received, because nobody else who is fenced has everything: {error}. It goes on by itself \
         when the cause is removed; to give up what only {name} has: {} --accept-data-loss",
        command(view, "promote", "INSTANCE")
    )
}

/// Errant transactions, with the exact set.
pub(crate) fn errant(seen: Seen<'_>, open: Seen<'_>, errant: &GtidSet) -> String {
    format!(
        "{} has transactions that {} does not have: {errant}",
        seen.instance.name, open.instance.name
    )
}
