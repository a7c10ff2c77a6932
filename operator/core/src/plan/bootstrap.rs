//! A cluster without a memory: a new one, or one whose status was lost (rule 9 of docs/failover.md).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::GtidSet;
use crate::action::{InstanceCommand, Verb};
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, Observed};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::{recovery, resume};
use crate::rules::{MemberId, Phase, Rules};
use crate::subject::Subject;
use crate::timing::Timing;

/// The first record of a new cluster, which begins an ordinary election among all its instances.
pub(crate) fn plan(subject: &Subject<'_>, observed: &Observed, now: Timestamp, draft: &mut Draft) {
    match (all_instances(subject, observed), subject.recovery()) {
        (Err(reason), _) => draft.wait("first election", reason),
        (Ok(instances), Some(wish)) => recovery::plan(subject, observed, wish, &instances, now, draft),
        (Ok(instances), None) if instances.iter().all(|(_, report)| report.is_blank()) => {
            let ids: Vec<_> = instances.into_iter().map(|(id, _)| id).collect();
            first_election(subject, observed, &ids, now, draft);
        }
        (Ok(_), None) => resume::plan(subject, observed, None, now, draft),
    }
}

/// Each wanted instance, in order, with what it reports; or who is missing, or in the way.
///
/// All of them, because a data directory that cannot be looked at may hold data (L7): one of a volume that was kept, or
/// of an ordinal beyond the declared ones.
pub(crate) fn all_instances<'a>(
    subject: &Subject<'_>,
    observed: &'a Observed,
) -> Result<Vec<(MemberId, &'a InstanceReport)>, String> {
    let replicas = subject.replicas(observed);
    if let Some(further) = observed.instances.iter().find(|i| i.ordinal >= replicas && exists(i)) {
        return Err(format!(
            "a person: the claim of {} exists beyond the {replicas} declared instances and may hold data; declare more \
             replicas, or delete the claim if it is not needed",
            further.name
        ));
    }
    let wanted: Vec<_> = observed
        .instances
        .iter()
        .filter(|instance| instance.ordinal < replicas)
        .collect();
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for instance in &wanted {
        match ready(subject, instance) {
            Ok(identity) => found.push(identity),
            Err(reason) => missing.push(reason),
        }
    }
    if replicas == 0 || u32::try_from(wanted.len()) != Ok(replicas) {
        return Err(format!("{replicas} instances to be declared"));
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(missing.join("; "))
    }
}

fn exists(instance: &InstanceObserved) -> bool {
    instance.pod.is_some() || instance.claim.is_some()
}

fn ready<'a>(subject: &Subject<'_>, instance: &'a InstanceObserved) -> Result<(MemberId, &'a InstanceReport), String> {
    let name = &instance.name;
    let Some(report) = instance.report() else {
        return Err(format!("{name} to answer"));
    };
    if let Some(awaited) = recovery::awaited(subject, instance, report) {
        return Err(awaited);
    }
    match report.mysqld {
        Mysqld::Running => Ok((
            MemberId {
                instance: name.clone(),
                incarnation: report.incarnation.clone(),
            },
            report,
        )),
        // Between two tries that fail, too: what is waited for is the same.
        Mysqld::Initialising | Mysqld::Starting if report.failures > 0 => {
            Err(format!("mysqld of {name} to start ({})", report.message))
        }
        Mysqld::Initialising => Err(format!("{name} to be initialised")),
        Mysqld::Starting => Err(format!("mysqld of {name} to start")),
        Mysqld::Down | Mysqld::Failed => Err(format!("mysqld of {name} to start ({})", report.message)),
        Mysqld::Cloning => Err(format!("{name} to be cloned")),
    }
}

/// Rules 3 to 5 do the rest. Nobody is the primary yet, so everybody is a member.
fn first_election(subject: &Subject<'_>, observed: &Observed, ids: &[MemberId], now: Timestamp, draft: &mut Draft) {
    let acks_required = u32::try_from(ids.len() / 2).unwrap_or_default();
    let rules = Rules {
        epoch: resume::highest_epoch(observed) + 1,
        owner: observed.operator.clone(),
        phase: Phase::Electing {
            preferred: ids.first().cloned(),
        },
        phase_since: moment(now),
        primary: None,
        baseline: GtidSet::new(),
        members: ids.iter().cloned().collect::<BTreeSet<_>>(),
        acks_required,
        server_id_base: subject.server_id_base(observed),
        rebuilds: BTreeMap::new(),
        began: Some(moment(now)),
        fences: BTreeMap::new(),
        request: None,
        data_loss: None,
        last_change: None,
    };
    let message = format!("all {} instances are new; the first primary is elected", ids.len());
    draft.first_record(rules, "Bootstrap", message);
    fence_all(ids, draft);
}

/// The fences of a pass that writes the first memory.
pub(crate) fn fence_all(ids: &[MemberId], draft: &mut Draft) {
    let deadline = Timing::default().fence;
    for to in ids {
        let (to, verb, why) = (to.clone(), Verb::Fence, String::new());
        // The epoch is that of the record in front of it.
        draft.first_command(InstanceCommand {
            to,
            epoch: 0,
            deadline,
            verb,
            why,
        });
    }
}
