//! A memory that was lost, or that is older than what the instances were told: rule 9 of docs/failover.md.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::observed::{InstanceObserved, InstanceReport, Observed};
use crate::plan::bootstrap::{Hindrance, all_instances, delete_claims, fence_all, scale};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::rules::{Incarnation, MemberId, Phase, PrimaryRef, Rules};
use crate::subject::Subject;
use crate::validate;

/// Status was restored from an older copy: an instance was told of a higher epoch than status knows, or was opened after
/// what status says.
pub(crate) fn is_behind(observed: &Observed, rules: &Rules) -> bool {
    highest_epoch(observed) > rules.epoch || was_opened(observed, rules)
}

/// The epoch alone does not tell: the record of a winner does not raise it. But whoever was opened was told so, as a primary
/// that is recorded in that epoch, and not while it is still sought.
fn was_opened(observed: &Observed, rules: &Rules) -> bool {
    let known = |id: &MemberId| match &rules.primary {
        None => 0,
        Some(primary) if primary.id != *id => primary.epoch,
        Some(_) if matches!(rules.phase, Phase::Electing { .. }) => rules.epoch.saturating_sub(1),
        Some(_) => u64::MAX,
    };
    let opened = |instance: &InstanceObserved| {
        let (id, told) = (instance.member_id()?, &instance.report()?.persisted);
        (told.primary.as_ref() == Some(&id)).then(|| told.told_epoch > known(&id))
    };
    observed.instances.iter().filter_map(opened).any(|opened| opened)
}

/// The newest epoch that any instance was told of; 0 when none was.
pub(crate) fn highest_epoch(observed: &Observed) -> u64 {
    observed
        .instances
        .iter()
        .filter_map(|i| i.report())
        .map(|report| report.persisted.epoch)
        .max()
        .unwrap_or(0)
}

/// Resumes from the newest reign that the instances hold, under an epoch above all, once every one of them answered.
pub(crate) fn plan(
    subject: &Subject<'_>,
    observed: &Observed,
    rules: Option<&Rules>,
    now: Timestamp,
    draft: &mut Draft,
) {
    let who = if rules.is_none() { "lost status" } else { "old status" };
    match last_reign(subject, observed) {
        Err(hindrance) => draft.wait(who, hindrance.for_what()),
        Ok((ids, primary, report)) => {
            let highest = highest_epoch(observed).max(rules.map_or(0, |rules| rules.epoch));
            let resumed = resumed(subject, observed, rules, primary, report, highest, now);
            let message = format!(
                "status was lost or older than what the instances hold; the reign of {} in epoch {} is resumed",
                report
                    .persisted
                    .primary
                    .as_ref()
                    .map(|id| id.instance.to_string())
                    .unwrap_or_default(),
                report.persisted.told_epoch
            );
            draft.first_record(resumed, "StatusResumed", message);
            fence_all(&ids, draft);
        }
    }
}

type Reign<'a> = (Vec<MemberId>, MemberId, &'a InstanceReport);

/// What keeps a lost status from being resumed; `None` when it can be.
pub(crate) fn hindrance(subject: &Subject<'_>, observed: &Observed) -> Option<Hindrance> {
    last_reign(subject, observed).err()
}

const RESTORE: &str = "restore the status of the MySQLCluster";

/// All instances, and the one that was told last that it is the primary.
fn last_reign<'a>(subject: &Subject<'_>, observed: &'a Observed) -> Result<Reign<'a>, Hindrance> {
    let instances = all_instances(subject, observed)?;
    if let Some(hindrance) = empty(subject, observed, &instances) {
        return Err(hindrance);
    }
    let ids: Vec<_> = instances.into_iter().map(|(id, _)| id).collect();
    let told = |id: &MemberId| {
        let report = observed.instance(&id.instance)?.report()?;
        let itself = report.persisted.primary.as_ref() == Some(id) && report.persisted.told_epoch > 0;
        itself.then(|| (id.clone(), report))
    };
    let last = ids
        .iter()
        .filter_map(told)
        .max_by_key(|(_, report)| report.persisted.told_epoch);
    let person = |what| Hindrance::Person {
        what,
        remedy: RESTORE.to_owned(),
    };
    let Some((primary, report)) = last else {
        let what = "status is lost, and no instance was ever told that it is the primary";
        return Err(person(what.to_owned()));
    };
    match report.persisted.members.iter().find(|member| !ids.contains(member)) {
        Some(missing) => Err(person(format!(
            "status is lost, and {} does not hold the data with which it followed {} any more",
            missing.instance, primary.instance
        ))),
        None => Ok((ids, primary, report)),
    }
}

/// Volumes that were never told anything, while others hold data: each may stand in the place of one that was lost, and nobody
/// knows what that one held. A person knows, if more instances are declared than there were before.
fn empty(subject: &Subject<'_>, observed: &Observed, instances: &[(MemberId, &InstanceReport)]) -> Option<Hindrance> {
    let pristine = instances.iter().filter(|(_, report)| report.pristine);
    let empty: Vec<_> = pristine.filter_map(|(id, _)| observed.instance(&id.instance)).collect();
    let first = empty.first()?.ordinal;
    let names: Vec<_> = empty.iter().map(|instance| instance.name.to_string()).collect();
    let have = match names.as_slice() {
        [one] => format!("{one} has an empty volume"),
        all => format!("{} have empty volumes", all.join(", ")),
    };
    let what = format!("{have} while others hold data, and status that said who had been the primary is lost");
    // The last ones, without a gap.
    let last = usize::try_from(first).is_ok_and(|first| first + empty.len() == instances.len());
    let remedy = if last && observed.rules().is_none() && validate::is_supported(first) {
        format!(
            "if there were {first} instances before: {}, and then: {}; if volumes were lost, {RESTORE}",
            scale(subject, first),
            delete_claims(subject, empty)
        )
    } else {
        RESTORE.to_owned()
    };
    Some(Hindrance::Person { what, remedy })
}

/// A member in a life that nobody knows any more, of each instance that the list does not name as it is now: it may have
/// acknowledged, because a list without a member is in force before its copies were shown to be elsewhere (rule 1). Nobody can
/// confirm these, so that the election goes on only with the old primary itself, which has everything.
fn unknown(observed: &Observed, primary: &MemberId, listed: &[MemberId]) -> impl Iterator<Item = MemberId> {
    let unlisted = |instance: &&InstanceObserved| {
        instance.name != primary.instance && !instance.member_id().is_some_and(|id| listed.contains(&id))
    };
    observed.instances.iter().filter(unlisted).map(|instance| MemberId {
        instance: instance.name.clone(),
        incarnation: Incarnation("unknown".to_owned()),
    })
}

fn resumed(
    subject: &Subject<'_>,
    observed: &Observed,
    rules: Option<&Rules>,
    id: MemberId,
    report: &InstanceReport,
    highest: u64,
    now: Timestamp,
) -> Rules {
    let told = &report.persisted;
    // Who may have acknowledged under a list that is in force in parts is not known at all.
    let certain: &[MemberId] = if report.list_uncertain { &[] } else { &told.members };
    let now = moment(now);
    let server_uuid = report.server_uuid.clone();
    Rules {
        epoch: highest.saturating_add(1),
        owner: observed.operator.clone(),
        phase: Phase::Electing { preferred: None },
        phase_since: now,
        baseline: told.baseline.clone(),
        members: told
            .members
            .iter()
            .filter(|member| *member != &id)
            .cloned()
            .chain(unknown(observed, &id, certain))
            .collect(),
        primary: Some(PrimaryRef {
            id,
            server_uuid,
            epoch: told.told_epoch,
            since: now,
        }),
        acks_required: told.acks_required,
        server_id_base: subject.server_id_base(observed),
        rebuilds: rules.map_or_else(BTreeMap::new, |rules| rules.rebuilds.clone()),
        began: Some(now),
        fences: rules.map_or_else(BTreeMap::new, |rules| rules.fences.clone()),
        request: rules.and_then(|rules| rules.request.clone()),
        data_loss: rules.and_then(|rules| rules.data_loss.clone()),
        last_change: None,
    }
}
