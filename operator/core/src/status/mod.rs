//! `MySQLCluster.status`: the rules' memory, and what a DBA reads.
//!
//! Everything in it is a function of what was seen, of the plan and of the former status, and nothing in it changes while
//! the cluster is idle: no ages, no positions, no figures that move by themselves.

mod archive;
mod conditions;
mod instances;
mod memory;
mod news;
mod people;
mod problems;
mod recovery;

use jiff::Timestamp;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::backup_status::BackupSummary;
use mainstay_api::status::{Health, Phase as ApiPhase};

use crate::action::Action;
use crate::analyse::{Analysis, ConditionType, ProblemCode};
use crate::backup::plan::Settings;
use crate::backup::summary::{self, ArchivePoint};
use crate::observed::{ObjectKind, Observed};
use crate::plan::{self, Plan};
use crate::progress::Stage;
use crate::rules::{Change, Phase, Rules};
use crate::subject::Subject;
use crate::view::{Seen, View};

pub use memory::{memory, record};
pub use news::{News, described, found, lasted, named, news, parts, seconds};
pub use people::told;

/// Whether writes are accepted, as far as this pass can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    /// The recorded primary is open.
    Open,
    /// It is not.
    Closed,
    /// It was not heard, and not for long: what was true before is kept, so that a restart of the operator shows nothing.
    Unknown,
}

/// The status at the end of a pass. `observed.memory` must be what status holds then: after a `Record` of this pass, the
/// recorded rules.
#[must_use]
pub fn status(
    subject: &Subject<'_>,
    observed: &Observed,
    analysis: &Analysis,
    plan: &Plan,
    previous: &MySQLClusterStatus,
    now: Timestamp,
) -> MySQLClusterStatus {
    let view = observed.rules().map(|rules| View::new(subject, observed, rules, now));
    if let Some(view) = view.filter(in_haste) {
        return record(previous, view.rules);
    }
    let serving = serving(view.as_ref());
    let instances = instances::all(subject, observed, view.as_ref(), previous);
    let ready = instances.iter().filter(|instance| instance.ready).count();
    let wanted = subject.replicas(observed);
    let complete = view.as_ref().is_some_and(|view| is_complete(view, wanted));
    let outdated = plan::is_rolling(subject, observed) || changes_template(plan);
    // The last one of a roll has no pod of the older template any more, and is not back yet.
    let rolling = outdated || (previous.phase == Some(ApiPhase::Updating) && !complete);
    let never_built = subject.built_replicas(observed).is_none();
    let phase = phase(view.as_ref(), analysis, serving, rolling, never_built);
    let mut status = match &view {
        Some(view) => record(previous, &seen_open(view, serving)),
        None => previous.clone(),
    };
    if let Some(answer) = &plan.answer {
        status.request = Some(people::request(answer));
    }
    if !acts_on_instances(plan) {
        status.observed_generation = Some(subject.generation);
    }
    status.phase = Some(phase);
    status.selector = Some(subject.names().selector_text());
    status.replicas = Some(signed(
        observed
            .instances
            .iter()
            .filter(|instance| instance.pod.is_some())
            .count(),
    ));
    status.ready_replicas = Some(signed(ready));
    status.ready = Some(format!("{ready}/{wanted}"));
    status.version = version(view.as_ref(), previous);
    status.conditions = conditions::all(subject, analysis, plan, phase, serving, previous, now);
    let changes = conditions::archive_changes(&previous.conditions, &status.conditions);
    let archive = view.as_ref().and_then(|view| archive::point(view, changes));
    status.health = health(analysis, serving, complete, previous);
    status.problems = problems::all(view.as_ref(), analysis, serving, previous);
    status.instances = instances;
    status.backup = backup(subject, observed, archive.as_ref(), previous, now);
    conditions::verification(subject, analysis, &mut status, now);
    status.recovery = recovery::recovery(subject, observed, analysis, previous);
    status
}

/// Backups, as long as there is something to say of them; unchanged while the spec cannot be read.
fn backup(
    subject: &Subject<'_>,
    observed: &Observed,
    archive: Option<&ArchivePoint>,
    previous: &MySQLClusterStatus,
    now: Timestamp,
) -> Option<Box<BackupSummary>> {
    let Ok(spec) = subject.spec else {
        return previous.backup.clone();
    };
    let none = Settings::default();
    let settings = spec.backup.as_ref().map_or(&none, |backup| &backup.settings);
    let summary = summary::summary(previous.backup.as_deref(), settings, &observed.backups, archive, now);
    (summary != BackupSummary::default()).then(|| Box::new(summary))
}

/// Every wanted instance serves.
fn is_complete(view: &View<'_>, wanted: u32) -> bool {
    let instances = view.observed.instances.iter().filter(|instance| view.wanted(instance));
    let serving = instances.filter(|instance| plan::serves(view, instance)).count();
    usize::try_from(wanted) == Ok(serving)
}

/// A primary is being replaced, and not for long: a write of status would delay it. What the record of the election says
/// is enough for a moment.
fn in_haste(view: &View<'_>) -> bool {
    let opening = view
        .rules
        .last_change
        .as_ref()
        .is_some_and(|change| change.opened.is_none());
    let busy = match view.rules.phase {
        Phase::Electing { .. } => view.rules.primary.is_some(),
        Phase::Open => opening && view.open_primary().is_none(),
    };
    busy && view.age(view.rules.phase_since) < view.timing.tell
}

/// Notes when the new primary was first seen to accept writes, when a rebuilt instance was first seen as a member again, and
/// what became of a request.
fn seen_open(view: &View<'_>, serving: Serving) -> Rules {
    let mut rules = view.rules.clone();
    rules.request = plan::progressed(view);
    for (name, rebuild) in rules.rebuilds.iter_mut().filter(|(_, rebuild)| rebuild.ended.is_none()) {
        let back = |seen: Seen<'_>| &seen.instance.name == name && (view.is_member(seen) || view.is_primary(seen));
        if view.heard().any(back) {
            rebuild.ended = Some(plan::moment(view.now));
        }
    }
    if let (Some(change), Serving::Open) = (&rules.last_change, serving)
        && change.opened.is_none()
    {
        let progress = &view.observed.progress;
        let routed = progress.since(view.rules, Stage::Over).unwrap_or(view.now);
        rules.last_change = Some(Change {
            opened: Some(plan::moment(routed.max(view.now))),
            phases: progress.phases(view.rules),
            ..change.clone()
        });
    }
    rules
}

fn serving(view: Option<&View<'_>>) -> Serving {
    let Some(view) = view else { return Serving::Closed };
    let Some(primary) = &view.rules.primary else {
        return Serving::Closed;
    };
    if view.rules.phase != Phase::Open {
        return Serving::Closed;
    }
    if view.open_primary().is_some() {
        return Serving::Open;
    }
    let silent = view.instance(&primary.id).and_then(View::silent_since);
    match silent {
        Some(since) if view.age(since) < view.timing.silence => Serving::Unknown,
        Some(_) | None => Serving::Closed,
    }
}

/// In such a pass the objects were not compared with the spec: nothing can be said of its generation yet.
fn acts_on_instances(plan: &Plan) -> bool {
    let acts = |action: &Action| matches!(action, Action::Record(_) | Action::Command(_));
    plan.actions.iter().any(acts)
}

/// The pods will be of an older template when this plan is carried out, though they are not yet.
fn changes_template(plan: &Plan) -> bool {
    let set = |action: &Action| matches!(action, Action::Apply(desired) if desired.key.kind == ObjectKind::StatefulSet);
    plan.actions.iter().any(set)
}

fn phase(view: Option<&View<'_>>, analysis: &Analysis, serving: Serving, rolling: bool, never_built: bool) -> ApiPhase {
    let needs_person = [
        ProblemCode::StatusUnreadable,
        ProblemCode::StatusLost,
        ProblemCode::StatusBehind,
    ];
    if needs_person.iter().any(|code| analysis.of(*code).next().is_some()) {
        return ApiPhase::Blocked;
    }
    // Nothing is being created from a spec that cannot be accepted.
    if never_built && analysis.of(ProblemCode::SpecInvalid).next().is_some() {
        return ApiPhase::Blocked;
    }
    let Some(view) = view.filter(|view| view.rules.primary.is_some()) else {
        return ApiPhase::Creating;
    };
    match &view.rules.phase {
        Phase::Electing { .. } if view.closed_on_request() => ApiPhase::Blocked,
        Phase::Electing { preferred: Some(_) } => ApiPhase::SwitchingOver,
        Phase::Electing { preferred: None } => ApiPhase::FailingOver,
        Phase::Open if serving == Serving::Closed => ApiPhase::FailingOver,
        Phase::Open if rolling => ApiPhase::Updating,
        Phase::Open => ApiPhase::Running,
    }
}

fn health(analysis: &Analysis, serving: Serving, complete: bool, previous: &MySQLClusterStatus) -> Option<Health> {
    let blocked = analysis.told_in(ConditionType::WritesBlocked).next().is_some();
    match serving {
        Serving::Unknown => previous.health,
        Serving::Closed => Some(Health::Unavailable),
        Serving::Open if blocked => Some(Health::Unavailable),
        Serving::Open if complete && !conditions::is_degraded(analysis) => Some(Health::Healthy),
        Serving::Open => Some(Health::Degraded),
    }
}

fn version(view: Option<&View<'_>>, previous: &MySQLClusterStatus) -> Option<String> {
    let primary = view.and_then(View::primary);
    let version = primary
        .map(|seen| seen.report.version.clone())
        .filter(|version| !version.is_empty());
    version.or_else(|| previous.version.clone())
}

fn signed(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
