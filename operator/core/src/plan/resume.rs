//! A memory that was lost, or that is older than what the instances were told: rule 9 of docs/failover.md.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::observed::{InstanceObserved, InstanceReport, Observed};
use crate::plan::bootstrap::{all_instances, fence_all};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::rules::{Incarnation, MemberId, Phase, PrimaryRef, Rules};
use crate::subject::Subject;

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
        Err(reason) => draft.wait(who, reason),
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

/// All instances, and the one that was told last that it is the primary.
fn last_reign<'a>(subject: &Subject<'_>, observed: &'a Observed) -> Result<Reign<'a>, String> {
    let instances = all_instances(subject, observed)?;
    if let Some((id, _)) = instances.iter().find(|(_, report)| report.pristine) {
        return Err(format!(
            "a person: {} has an empty volume while others hold data, and status that said who had been the primary is \
             lost",
            id.instance
        ));
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
    let Some((primary, report)) = last else {
        return Err("a person: status is lost, and no instance was ever told that it is the primary".to_owned());
    };
    match report.persisted.members.iter().find(|member| !ids.contains(member)) {
        Some(missing) => Err(format!(
            "a person: status is lost, and {} does not hold the data with which it followed {} any more",
            missing.instance, primary.instance
        )),
        None => Ok((ids, primary, report)),
    }
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
