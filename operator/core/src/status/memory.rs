//! The rules' memory as fields of status, both ways (docs/failover.md, "Status").
//!
//! Reading is strict: a memory that is half read is worse than none. What is written is read back unchanged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status as api;

use super::{people, problems};
use crate::analyse::ProblemCode;
use crate::rules::{
    Donor, Healing, Incarnation, InstanceName, MemberId, Memory, OperatorId, Phase, PrimaryRef, Rebuild, Rules, Trouble,
};

/// Why the memory cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// A field is not there.
    #[error("failed to read status.{0}: it is missing, though other fields of the rules' memory are there")]
    Missing(&'static str),
    /// A field has a value that it cannot have.
    #[error("failed to read status.{field}: {reason}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads the rules' memory.
#[must_use]
pub fn memory(status: Option<&MySQLClusterStatus>) -> Memory {
    let Some(status) = status.filter(|status| !is_absent(status)) else {
        return Memory::Absent;
    };
    match read(status) {
        Ok(rules) => Memory::Known(Box::new(rules)),
        Err(error) => Memory::Unreadable {
            reason: error.to_string(),
        },
    }
}

/// No field of the memory is there. One of them alone would be a memory that somebody damaged.
fn is_absent(status: &MySQLClusterStatus) -> bool {
    status.epoch.is_none()
        && status.owner.is_none()
        && status.election.is_none()
        && status.primary.is_none()
        && status.members.is_empty()
        && status.acks_required.is_none()
        && status.baseline.is_none()
        && status.server_id_base.is_none()
        && status.rebuilds.is_empty()
        && status.fences.is_empty()
}

fn read(status: &MySQLClusterStatus) -> Result<Rules, ReadError> {
    let election = status.election.as_ref().ok_or(ReadError::Missing("election"))?;
    let baseline = status.baseline.as_deref().ok_or(ReadError::Missing("baseline"))?;
    let primary = status.primary.as_ref().map(read_primary).transpose()?;
    let phase = match election.phase {
        api::ElectionPhase::Open if primary.is_none() => return Err(ReadError::Missing("primary")),
        api::ElectionPhase::Open => Phase::Open,
        api::ElectionPhase::Electing => Phase::Electing {
            preferred: election.preferred.as_ref().map(member_id),
        },
    };
    let members = status.members.iter().map(member_id).collect();
    check_members(&members, primary.as_ref())?;
    Ok(Rules {
        epoch: number("epoch", status.epoch)?,
        owner: OperatorId(status.owner.clone().ok_or(ReadError::Missing("owner"))?),
        phase,
        phase_since: time("election.since", election.since.as_ref())?,
        primary,
        baseline: baseline.parse().map_err(|error| invalid("baseline", &error))?,
        members,
        acks_required: number("acksRequired", status.acks_required)?,
        server_id_base: number("serverIdBase", status.server_id_base)?,
        rebuilds: status.rebuilds.iter().map(read_rebuild).collect(),
        began: election.began.as_ref().map(|began| began.0),
        fences: status.fences.iter().map(people::read_fence).collect(),
        request: status.request.as_ref().map(people::read_request),
        data_loss: status.data_loss.as_ref().map(people::read_loss),
        last_change: status.last_change.as_ref().map(people::read_change),
    })
}

/// The primary is never a member: a list that says so was not written by these rules.
fn check_members(
    members: &std::collections::BTreeSet<MemberId>,
    primary: Option<&PrimaryRef>,
) -> Result<(), ReadError> {
    match primary.filter(|primary| members.contains(&primary.id)) {
        Some(primary) => Err(ReadError::Invalid {
            field: "members",
            reason: format!("{} is the primary and a member", primary.id.instance),
        }),
        None => Ok(()),
    }
}

fn read_primary(primary: &api::Primary) -> Result<PrimaryRef, ReadError> {
    Ok(PrimaryRef {
        id: MemberId {
            instance: InstanceName(primary.instance.clone()),
            incarnation: Incarnation(primary.incarnation.clone()),
        },
        server_uuid: primary.server_uuid.clone(),
        epoch: number("primary.epoch", Some(primary.epoch))?,
        since: time("primary.since", primary.since.as_ref())?,
    })
}

fn read_rebuild(rebuild: &api::Rebuild) -> (InstanceName, Rebuild) {
    let value = Rebuild {
        incarnation: Incarnation(rebuild.incarnation.clone()),
        donor: rebuild
            .donor
            .as_ref()
            .map_or(Donor::Store, |donor| Donor::Instance(member_id(donor))),
        failures: rebuild
            .failures
            .map_or(0, |failures| u32::try_from(failures).unwrap_or(0)),
        at: rebuild.at.0,
        reason: rebuild.reason.clone(),
        ended: rebuild.ended.as_ref().map(|ended| ended.0),
        healing: rebuild.healing.as_ref().map(read_healing),
    };
    (InstanceName(rebuild.instance.clone()), value)
}

fn read_healing(healing: &api::Healing) -> Healing {
    Healing {
        trouble: match healing.trouble {
            api::Trouble::DataBroken => Trouble::Data,
            api::Trouble::VolumeLost => Trouble::Lost,
            api::Trouble::VolumeUnreadable => Trouble::Unreadable,
            api::Trouble::VolumeFull => Trouble::Full,
        },
        claim: healing.claim.clone(),
        times: u32::try_from(healing.times).unwrap_or(1),
    }
}

fn healing(healing: &Healing) -> api::Healing {
    api::Healing {
        trouble: match healing.trouble {
            Trouble::Data => api::Trouble::DataBroken,
            Trouble::Lost => api::Trouble::VolumeLost,
            Trouble::Unreadable => api::Trouble::VolumeUnreadable,
            Trouble::Full => api::Trouble::VolumeFull,
        },
        claim: healing.claim.clone(),
        times: i32::try_from(healing.times).unwrap_or(i32::MAX),
    }
}

fn member_id(member: &api::Member) -> MemberId {
    MemberId {
        instance: InstanceName(member.instance.clone()),
        incarnation: Incarnation(member.incarnation.clone()),
    }
}

fn number<T, U>(field: &'static str, value: Option<T>) -> Result<U, ReadError>
where
    U: TryFrom<T>,
    U::Error: std::fmt::Display,
{
    U::try_from(value.ok_or(ReadError::Missing(field))?).map_err(|error| invalid(field, &error))
}

fn time(field: &'static str, value: Option<&MicroTime>) -> Result<Timestamp, ReadError> {
    value.map(|time| time.0).ok_or(ReadError::Missing(field))
}

fn invalid(field: &'static str, error: &impl std::fmt::Display) -> ReadError {
    ReadError::Invalid {
        field,
        reason: error.to_string(),
    }
}

/// The status that a `Record` writes: `previous` with the rules' memory replaced. While a primary is elected it also says
/// that writes are not accepted; nothing else is changed.
#[must_use]
pub fn record(previous: &MySQLClusterStatus, rules: &Rules) -> MySQLClusterStatus {
    let (phase, health) = match (&rules.phase, &rules.primary) {
        (Phase::Open, _) => (previous.phase, previous.health),
        (Phase::Electing { preferred: Some(id) }, Some(primary))
            if id == &primary.id && rules.keeps_out(&id.instance) =>
        {
            (Some(api::Phase::Blocked), Some(api::Health::Unavailable))
        }
        (Phase::Electing { .. }, None) => (Some(api::Phase::Creating), Some(api::Health::Unavailable)),
        (Phase::Electing { preferred: Some(_) }, Some(_)) => {
            (Some(api::Phase::SwitchingOver), Some(api::Health::Unavailable))
        }
        (Phase::Electing { preferred: None }, Some(_)) => {
            (Some(api::Phase::FailingOver), Some(api::Health::Unavailable))
        }
    };
    MySQLClusterStatus {
        phase,
        health,
        problems: problems(previous, rules),
        epoch: Some(signed(rules.epoch)),
        owner: Some(rules.owner.0.clone()),
        election: Some(election(rules)),
        primary: rules.primary.as_ref().map(primary),
        members: rules.members.iter().map(member).collect(),
        acks_required: Some(i32::try_from(rules.acks_required).unwrap_or(i32::MAX)),
        baseline: Some(rules.baseline.to_string()),
        server_id_base: Some(i64::from(rules.server_id_base)),
        rebuilds: rebuilds(&rules.rebuilds),
        fences: people::fences(&rules.fences),
        // A request that was answered before there was a memory stays.
        request: rules
            .request
            .as_ref()
            .map(people::request)
            .or_else(|| previous.request.clone()),
        data_loss: rules.data_loss.as_ref().map(people::loss),
        last_change: rules.last_change.as_ref().map(people::change),
        ..previous.clone()
    }
}

/// What an election is told as until it is looked at: the others stay.
fn problems(previous: &MySQLClusterStatus, rules: &Rules) -> Vec<api::ProblemStatus> {
    match (&rules.phase, &rules.primary) {
        (Phase::Electing { preferred: Some(id) }, Some(primary))
            if id == &primary.id && rules.keeps_out(&id.instance) =>
        {
            problems::with(previous, ProblemCode::PrimaryFenced, Some(id.instance.0.clone()))
        }
        (Phase::Electing { .. }, Some(_)) => problems::with(previous, ProblemCode::ElectionInProgress, None),
        (Phase::Open, _) | (Phase::Electing { .. }, None) => previous.problems.clone(),
    }
}

fn election(rules: &Rules) -> api::Election {
    let (phase, preferred) = match &rules.phase {
        Phase::Open => (api::ElectionPhase::Open, None),
        Phase::Electing { preferred } => (api::ElectionPhase::Electing, preferred.as_ref().map(member)),
    };
    api::Election {
        phase,
        preferred,
        since: Some(MicroTime(rules.phase_since)),
        began: rules.began.map(MicroTime),
    }
}

fn primary(primary: &PrimaryRef) -> api::Primary {
    api::Primary {
        instance: primary.id.instance.0.clone(),
        incarnation: primary.id.incarnation.0.clone(),
        server_uuid: primary.server_uuid.clone(),
        epoch: signed(primary.epoch),
        since: Some(MicroTime(primary.since)),
    }
}

fn member(id: &MemberId) -> api::Member {
    api::Member {
        instance: id.instance.0.clone(),
        incarnation: id.incarnation.0.clone(),
    }
}

fn rebuilds(rebuilds: &BTreeMap<InstanceName, Rebuild>) -> Vec<api::Rebuild> {
    let write = |(instance, rebuild): (&InstanceName, &Rebuild)| api::Rebuild {
        instance: instance.0.clone(),
        incarnation: rebuild.incarnation.0.clone(),
        donor: match &rebuild.donor {
            Donor::Instance(id) => Some(member(id)),
            Donor::Store => None,
        },
        failures: (rebuild.failures > 0).then(|| i32::try_from(rebuild.failures).unwrap_or(i32::MAX)),
        at: MicroTime(rebuild.at),
        reason: rebuild.reason.clone(),
        ended: rebuild.ended.map(MicroTime),
        healing: rebuild.healing.as_ref().map(healing),
    };
    rebuilds.iter().map(write).collect()
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
