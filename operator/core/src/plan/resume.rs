//! A memory that was lost, or that is older than what the instances were told: rule 9 of docs/failover.md.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::observed::{InstanceReport, Observed};
use crate::plan::bootstrap::{all_instances, fence_all};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::rules::{MemberId, Phase, PrimaryRef, Rules};
use crate::subject::Subject;

/// An instance was told of a higher epoch than status knows: status was restored from an older copy.
pub(crate) fn is_behind(observed: &Observed, rules: &Rules) -> bool {
    highest_epoch(observed) > rules.epoch
}

fn highest_epoch(observed: &Observed) -> u64 {
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
    if let Some((id, _)) = instances.iter().find(|(_, pristine)| *pristine) {
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
    let now = moment(now);
    let server_uuid = report.server_uuid.clone();
    Rules {
        epoch: highest.saturating_add(1),
        owner: observed.operator.clone(),
        phase: Phase::Electing { preferred: None },
        phase_since: now,
        baseline: told.baseline.clone(),
        members: told.members.iter().filter(|member| *member != &id).cloned().collect(),
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
