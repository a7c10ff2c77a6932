//! A cluster without a memory: a new one, or one whose status was lost (rule 9 of docs/failover.md).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::GtidSet;
use crate::action::{InstanceCommand, Verb};
use crate::names;
use crate::observed::{InstanceObserved, InstanceReport, Mysqld, Observed};
use crate::plan::draft::Draft;
use crate::plan::election::moment;
use crate::plan::{recovery, resume};
use crate::rules::{MemberId, Phase, Rules};
use crate::subject::Subject;
use crate::timing::Timing;
use crate::validate;

/// The first record of a new cluster, which begins an ordinary election among all its instances.
pub(crate) fn plan(subject: &Subject<'_>, observed: &Observed, now: Timestamp, draft: &mut Draft) {
    match (all_instances(subject, observed), subject.recovery()) {
        (Err(hindrance), _) => draft.wait("first election", hindrance.for_what()),
        (Ok(instances), Some(wish)) => recovery::plan(subject, observed, wish, &instances, now, draft),
        (Ok(instances), None) if instances.iter().all(|(_, report)| report.is_blank()) => {
            let ids: Vec<_> = instances.into_iter().map(|(id, _)| id).collect();
            first_election(subject, observed, &ids, now, draft);
        }
        (Ok(_), None) => resume::plan(subject, observed, None, now, draft),
    }
}

/// What keeps a cluster without a memory from its first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// Instances that answer sooner or later, as the end of "… waits for ".
    Instances(String),
    /// It ends only when a person does something.
    Person {
        /// What is so, as a sentence.
        what: String,
        /// What can be done, with commands that can be typed as they are.
        remedy: String,
    },
}

impl Hindrance {
    /// The end of "… waits for ".
    pub(crate) fn for_what(&self) -> String {
        match self {
            Self::Instances(what) => what.clone(),
            Self::Person { what, remedy } => format!("a person: {what}; {remedy}"),
        }
    }
}

/// What keeps the first election from beginning; `None` when it can begin.
pub(crate) fn hindrance(subject: &Subject<'_>, observed: &Observed) -> Option<Hindrance> {
    match (all_instances(subject, observed), subject.recovery()) {
        (Err(hindrance), _) => Some(hindrance),
        (Ok(instances), Some(wish)) => recovery::hindrance(wish, &instances),
        (Ok(_), None) => None,
    }
}

/// Each wanted instance, in order, with what it reports; or who is missing, or in the way.
///
/// All of them, because a data directory that cannot be looked at may hold data (L7): one of a volume that was kept, or
/// of an ordinal beyond the declared ones.
pub(crate) fn all_instances<'a>(
    subject: &Subject<'_>,
    observed: &'a Observed,
) -> Result<Vec<(MemberId, &'a InstanceReport)>, Hindrance> {
    let replicas = subject.replicas(observed);
    if let Some(hindrance) = beyond(subject, observed, replicas) {
        return Err(hindrance);
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
        return Err(Hindrance::Instances(format!("{replicas} instances to be declared")));
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(Hindrance::Instances(missing.join("; ")))
    }
}

/// Claims and pods of further ordinals than the declared ones.
fn beyond(subject: &Subject<'_>, observed: &Observed, replicas: u32) -> Option<Hindrance> {
    let further = observed
        .instances
        .iter()
        .filter(|instance| instance.ordinal >= replicas);
    let (mut claimed, mut pods) = (Vec::new(), Vec::new());
    for instance in further {
        if instance.claim.is_some() {
            claimed.push(instance);
        } else if instance.pod.is_some() {
            pods.push(instance.name.to_string());
        }
    }
    if claimed.is_empty() {
        return (!pods.is_empty()).then(|| Hindrance::Instances(format!("{} to end", pods.join(", "))));
    }
    let named = claims(claimed.iter().copied(), ", ");
    let exist = match claimed.as_slice() {
        [_] => format!("the claim {named} exists"),
        _ => format!("the claims {named} exist"),
    };
    let what = format!("{exist} beyond the {replicas} declared instances and may hold data");
    let delete = format!(
        "delete what is not needed: {}",
        delete_claims(subject, claimed.iter().copied())
    );
    // As many as there are claims, if none is missing between them.
    let all = claimed.last().map_or(replicas, |last| last.ordinal.saturating_add(1));
    let gapless = u32::try_from(claimed.len()) == Ok(all.saturating_sub(replicas));
    let remedy = if gapless && validate::is_supported(all) {
        format!("declare them, too: {}; or {delete}", scale(subject, all))
    } else {
        delete
    };
    Some(Hindrance::Person { what, remedy })
}

/// The names of the claims of these instances.
fn claims<'a>(instances: impl IntoIterator<Item = &'a InstanceObserved>, between: &str) -> String {
    let names = instances.into_iter().map(|instance| names::claim(&instance.name));
    names.collect::<Vec<_>>().join(between)
}

/// The command that deletes the claims of these instances.
pub(crate) fn delete_claims<'a>(
    subject: &Subject<'_>,
    instances: impl IntoIterator<Item = &'a InstanceObserved>,
) -> String {
    format!("kubectl delete pvc {} -n {}", claims(instances, " "), subject.namespace)
}

/// The command that declares that many instances.
pub(crate) fn scale(subject: &Subject<'_>, replicas: u32) -> String {
    format!(
        "kubectl scale mysqlcluster {} --replicas={replicas} -n {}",
        subject.name, subject.namespace
    )
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
