//! Problems of the rules' memory, and of the cluster as a whole.

use crate::analyse::{Analysis, ProblemCode};
use crate::observed::{InstanceReport, Mysqld, Observed};
use crate::rules::{Phase, PrimaryRef};
use crate::view::View;

/// No memory: a new cluster, or a lost status.
pub(super) fn absent(observed: &Observed, analysis: &mut Analysis) {
    let used = observed
        .instances
        .iter()
        .filter(|instance| instance.report().is_some_and(holds_data));
    let names: Vec<_> = used.map(|instance| instance.name.to_string()).collect();
    if names.is_empty() {
        analysis.found(ProblemCode::FirstPrimaryPending, "the first instances are being made");
    } else {
        let message = format!(
            "{} hold data, but status does not say who the primary was",
            names.join(", ")
        );
        analysis.found(ProblemCode::StatusLost, message);
    }
}

/// It was told something, or has transactions; while mysqld does not answer nobody knows whether it has.
fn holds_data(report: &InstanceReport) -> bool {
    report.persisted.epoch > 0 || (report.mysqld == Mysqld::Running && !report.pristine)
}

/// What the memory says, compared with what was seen.
pub(super) fn known(view: &View<'_>, analysis: &mut Analysis) {
    behind(view, analysis);
    match (&view.rules.primary, &view.rules.phase) {
        (None, _) => {
            analysis.found(ProblemCode::FirstPrimaryPending, "the first primary is being elected");
        }
        (Some(primary), Phase::Electing { preferred }) => {
            let why = match preferred {
                Some(preferred) => format!(
                    "the primary is being moved from {} to {}",
                    primary.id.instance, preferred.instance
                ),
                None => format!("a primary is being elected in place of {}", primary.id.instance),
            };
            analysis.found(ProblemCode::ElectionInProgress, why);
        }
        (Some(primary), Phase::Open) => open(view, primary, analysis),
    }
}

fn behind(view: &View<'_>, analysis: &mut Analysis) {
    let told = view
        .heard()
        .map(|seen| seen.report.persisted.epoch)
        .max()
        .unwrap_or_default();
    if told > view.rules.epoch {
        let message = format!(
            "status is of epoch {}, but an instance was told of epoch {told}",
            view.rules.epoch
        );
        analysis.found(ProblemCode::StatusBehind, message);
    }
}

fn open(view: &View<'_>, primary: &PrimaryRef, analysis: &mut Analysis) {
    let name = &primary.id.instance;
    let Some(open) = view.open_primary() else {
        let silent = view.instance(&primary.id).and_then(View::silent_since);
        if silent.is_some_and(|since| view.age(since) < view.timing.silence) {
            return;
        }
        let message = format!("the primary {name} does not accept writes");
        analysis.found_on(ProblemCode::PrimaryLost, name, message);
        return;
    };
    let connected = |seen: &crate::view::Seen<'_>| {
        view.receiving(*seen) || open.report.semi_sync.acknowledgers.contains(&seen.instance.name)
    };
    let receiving = view.members().filter(connected).count();
    let unknown = view
        .rules
        .members
        .iter()
        .filter_map(|id| View::silent_since(view.instance(id)?));
    let unknown = unknown.filter(|since| view.age(*since) < view.timing.silence).count();
    let receiving = receiving.saturating_add(unknown);
    if u32::try_from(receiving).is_ok_and(|receiving| receiving < view.rules.acks_required) {
        let message = format!(
            "a commit waits for {} acknowledgements, and {receiving} of {} members receive from {name}",
            view.rules.acks_required,
            view.rules.members.len()
        );
        analysis.found(ProblemCode::WritesBlocked, message);
    }
    if view.rules.acks_required == 0 && view.replicas() > 1 {
        let message = format!("nobody but {name} has to have a commit before it returns, so nobody can replace it yet");
        analysis.found(ProblemCode::NoFailover, message);
    }
    let foreign = open
        .report
        .executed
        .subtract(&view.rules.baseline)
        .without_source(&primary.server_uuid);
    if !foreign.is_empty() {
        let message = format!("{name} has {foreign}, which it did not write itself");
        analysis.found_on(ProblemCode::ForeignTransactions, name, message);
    }
}
