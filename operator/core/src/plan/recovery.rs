//! A cluster that begins with recovered data (docs/backup.md, "Recovery"): its first election (rule 9 of docs/failover.md),
//! and the Secret that its first instance recovers with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::GtidSet;
use crate::action::Action;
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, ObjectKey, ObjectKind, Observed};
use crate::plan::bootstrap::Hindrance;
use crate::plan::draft::Draft;
use crate::plan::election::{self, moment};
use crate::plan::{bootstrap, resume};
use crate::rules::{MemberId, Phase, Rules};
use crate::subject::Subject;
use crate::validate::RecoveryWish;
use crate::view::View;

/// The instance that recovers the data; the others are cloned from it.
pub(crate) const ORDINAL: u32 = 0;

/// How often the source is looked up while it cannot be had, or the recovery fails: somebody may have corrected a Secret.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What comes next in a cluster without a memory, all of whose instances answer.
enum Next {
    /// The first election, about what was recovered.
    Begin(GtidSet),
    /// Volumes were kept: nothing is ever recovered over them.
    Resume,
    /// Nobody knows which data are wanted.
    Nothing(Hindrance),
}

fn next(wish: &RecoveryWish, instances: &[(MemberId, &InstanceReport)]) -> Option<Next> {
    let ((first, report), others) = instances.split_first()?;
    let first = &first.instance;
    let person = |what: String, remedy: String| Some(Next::Nothing(Hindrance::Person { what, remedy }));
    if report.is_recovered(&wish.request) {
        let set = report.set();
        // A clone that an earlier first election made has the same, and whatever else there is belongs to somebody.
        let foreign = |report: &&InstanceReport| !report.never_opened() || !set.contains(&report.set());
        match others.iter().find(|(_, report)| foreign(report)) {
            Some((MemberId { instance: other, .. }, _)) => person(
                format!("{first} was recovered, and {other} holds data of its own"),
                format!(
                    "delete the claim of {other} if that is not needed, or create the cluster without \
                     spec.bootstrap.recovery to have it back"
                ),
            ),
            None => Some(Next::Begin(set)),
        }
    } else if report.is_blank() && others.iter().all(|(_, report)| report.is_blank()) {
        person(
            format!("{first} is empty, and its data was to be recovered"),
            "delete its claim and its pod".to_owned(),
        )
    } else if let Some(former) = report.recovered.as_ref().filter(|_| report.never_opened()) {
        person(
            format!(
                "{first} was recovered up to {} for another spec.bootstrap.recovery than the present one",
                former.reached
            ),
            "delete its claim and its pod".to_owned(),
        )
    } else {
        Some(Next::Resume)
    }
}

/// What keeps the first record from being made, although all instances answer.
pub(crate) fn hindrance(wish: &RecoveryWish, instances: &[(MemberId, &InstanceReport)]) -> Option<Hindrance> {
    match next(wish, instances)? {
        Next::Nothing(hindrance) => Some(hindrance),
        Next::Begin(_) | Next::Resume => None,
    }
}

/// The first record of a cluster without a memory, all of whose instances answer.
///
/// Its first election is about one data directory: the one that was recovered. What it holds is the baseline, so nobody else
/// can win who does not hold it, too; and it is the only member, so the empty directories of the others are no members' and
/// are replaced by clones of it (rule 5).
pub(crate) fn plan(
    subject: &Subject<'_>,
    observed: &Observed,
    wish: &RecoveryWish,
    instances: &[(MemberId, &InstanceReport)],
    now: Timestamp,
    draft: &mut Draft,
) {
    match next(wish, instances) {
        Some(Next::Begin(baseline)) => begin(subject, observed, instances, baseline, now, draft),
        Some(Next::Resume) => resume::plan(subject, observed, None, now, draft),
        Some(Next::Nothing(hindrance)) => draft.wait("first election", hindrance.for_what()),
        None => {}
    }
}

fn begin(
    subject: &Subject<'_>,
    observed: &Observed,
    instances: &[(MemberId, &InstanceReport)],
    baseline: GtidSet,
    now: Timestamp,
    draft: &mut Draft,
) {
    let ids: Vec<_> = instances.iter().map(|(id, _)| id.clone()).collect();
    let Some(first) = ids.first().cloned() else { return };
    let message = format!(
        "{} holds the recovered data; the first primary is elected",
        first.instance
    );
    let rules = Rules {
        epoch: resume::highest_epoch(observed).saturating_add(1),
        owner: observed.operator.clone(),
        phase: Phase::Electing {
            preferred: Some(first.clone()),
        },
        phase_since: moment(now),
        primary: None,
        baseline,
        members: BTreeSet::from([first]),
        acks_required: u32::try_from(ids.len() / 2).unwrap_or_default(),
        server_id_base: subject.server_id_base(observed),
        rebuilds: BTreeMap::new(),
        began: Some(moment(now)),
        fences: BTreeMap::new(),
        request: None,
        data_loss: None,
        last_change: None,
    };
    draft.first_record(rules, "Bootstrap", message);
    bootstrap::fence_all(&ids, draft);
}

/// The first election is begun again when the recovered data directory was lost, and recovered once more: what was stored may
/// have grown meanwhile, so the new one can hold more than the baseline. Nothing was ever acknowledged, as no primary was
/// ever recorded.
pub(crate) fn begin_again(view: &View<'_>, draft: &mut Draft) -> bool {
    let Some(wish) = view.subject.recovery().filter(|_| view.rules.primary.is_none()) else {
        return false;
    };
    let again = view.heard().find(|seen| {
        let recovered = seen.running() && seen.report.is_recovered(&wish.request);
        recovered && seen.instance.ordinal == ORDINAL && !view.is_member(*seen)
    });
    let Some(seen) = again else { return false };
    let rules = Rules {
        epoch: view.rules.epoch.saturating_add(1),
        phase: Phase::Electing {
            preferred: Some(seen.id()),
        },
        phase_since: moment(view.now),
        baseline: seen.report.set(),
        members: BTreeSet::from([seen.id()]),
        ..view.rules.clone()
    };
    let message = format!(
        "{} has recovered its data once more; the first election begins again",
        seen.instance.name
    );
    draft.record(view, rules, "Bootstrap", message);
    for seen in view.heard() {
        election::fence(view, seen, draft);
    }
    true
}

/// Why the first instance is waited for, as the end of "… waits for ".
pub(crate) fn awaited(subject: &Subject<'_>, instance: &InstanceObserved, report: &InstanceReport) -> Option<String> {
    let recovers = subject.recovery().is_some() && instance.ordinal == ORDINAL && report.recovered.is_none();
    let name = &instance.name;
    match report.mysqld {
        Mysqld::Initialising if recovers => Some(format!("{name} to recover its data")),
        Mysqld::Failed if recovers => Some(format!("{name} to recover its data ({})", report.message)),
        _ => None,
    }
}

/// Whether the first data is still to come: no primary was ever recorded.
pub(crate) fn is_due(subject: &Subject<'_>, observed: &Observed) -> bool {
    subject.recovery().is_some() && observed.rules().is_none_or(|rules| rules.primary.is_none())
}

/// The key of the Secret with the access to the source.
fn secret_key(subject: &Subject<'_>) -> ObjectKey {
    ObjectKey {
        kind: ObjectKind::Secret,
        name: subject.names().recovery_secret(),
    }
}

/// The first instance has what it recovers with, or needs it no more: only then the instances are made.
pub(crate) fn may_build(subject: &Subject<'_>, observed: &Observed) -> bool {
    let there = |key| observed.objects.get(key).is_some_and(|secret| secret.ours);
    !is_due(subject, observed) || there(&secret_key(subject))
}

/// Writes the Secret before the first instance needs it, and deletes it as soon as a primary is open: the private keys in it
/// do not lie around.
pub(crate) fn secret(subject: &Subject<'_>, observed: &Observed, now: Timestamp, draft: &mut Draft) {
    let key = secret_key(subject);
    let secret = observed.objects.get(&key);
    if secret.is_some_and(|secret| !secret.ours) {
        // A conflict of names is told elsewhere.
        return;
    }
    if let Some(wish) = subject.recovery().filter(|_| is_due(subject, observed)) {
        if secret.is_none() || failing(observed).is_some() {
            draft.look_in(LOOK_AGAIN);
            draft.push(Action::WriteRecovery {
                secret: key.name,
                wish: Box::new(wish.clone()),
            });
        }
        return;
    }
    let open = || {
        let rules = observed.rules()?;
        View::new(subject, observed, rules, now).open_primary()
    };
    let needless = subject.spec.is_ok_and(|spec| spec.recovery.is_none()) || open().is_some();
    if let Some(secret) = secret.filter(|_| needless) {
        draft.push(Action::DeleteObject {
            key,
            uid: secret.uid.clone(),
            resource_version: secret.resource_version.clone(),
        });
    }
}

/// What the first instance says of a recovery that does not succeed.
pub(crate) fn failing(observed: &Observed) -> Option<(&InstanceObserved, &InstanceReport)> {
    let first = observed.instances.iter().find(|instance| instance.ordinal == ORDINAL)?;
    let report = first.report()?;
    // There is no data directory of which anything else could be said.
    let without_data = report.server_uuid.is_empty() && report.recovered.is_none();
    (report.mysqld == Mysqld::Failed && without_data).then_some((first, report))
}
