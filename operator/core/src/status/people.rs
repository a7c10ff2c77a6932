//! What status holds for people, both ways: fences, requests, losses, changes of primary.
//!
//! Reading is lenient, unlike that of the rules' memory: what is not there is filled with what is nearest, and nothing in
//! here keeps a cluster from being looked after. Only the fences decide anything, and they are names and times.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use mainstay_api::MySQLClusterStatus;
use mainstay_api::status as api;

use super::memory::signed;
use crate::analyse::{ConditionType, ProblemCode};
use crate::observed::Told;
use crate::rules::{Change, ChangeKind, DataLoss, InstanceName, Phases, Request, RequestState};

/// What status told people, as far as decisions depend on it.
#[must_use]
pub fn told(status: Option<&MySQLClusterStatus>) -> Told {
    // For what else commits wait, k does not matter.
    let blocked = |condition: &&Condition| {
        condition.type_ == ConditionType::WritesBlocked.as_str()
            && condition.status == "True"
            && condition.reason == ProblemCode::WritesBlocked.kind().name
    };
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    Told {
        answered: status.and_then(|status| Some(status.request.as_ref()?.id.clone())),
        blocked_since: conditions
            .iter()
            .find(blocked)
            .map(|condition| condition.last_transition_time.0),
        behind: status
            .into_iter()
            .flat_map(|status| &status.instances)
            .filter_map(behind)
            .collect(),
        ready: status
            .into_iter()
            .flat_map(|status| &status.instances)
            .filter(|instance| instance.ready)
            .map(|instance| InstanceName(instance.name.clone()))
            .collect(),
    }
}

fn behind(instance: &api::InstanceStatus) -> Option<(InstanceName, Duration)> {
    let seconds = u64::try_from(instance.behind_seconds?).ok()?;
    Some((InstanceName(instance.name.clone()), Duration::from_secs(seconds)))
}

pub(super) fn read_fence(fence: &api::Fence) -> (InstanceName, Timestamp) {
    (InstanceName(fence.instance.clone()), fence.since.0)
}

pub(super) fn fences(fences: &BTreeMap<InstanceName, Timestamp>) -> Vec<api::Fence> {
    let write = |(instance, since): (&InstanceName, &Timestamp)| api::Fence {
        instance: instance.0.clone(),
        since: MicroTime(*since),
    };
    fences.iter().map(write).collect()
}

pub(super) fn read_request(request: &api::Request) -> Request {
    Request {
        id: request.id.clone(),
        verb: request.verb.clone(),
        instance: request.instance.clone().map(InstanceName),
        accept_data_loss: request.accept_data_loss,
        state: match request.result {
            api::RequestResult::Refused => RequestState::Refused,
            api::RequestResult::Running => RequestState::Running,
            api::RequestResult::Done => RequestState::Done,
            api::RequestResult::Failed => RequestState::Failed,
        },
        message: request.message.clone(),
        at: request.at.0,
        deadline: request.deadline.as_ref().map(|deadline| deadline.0),
    }
}

pub(super) fn request(request: &Request) -> api::Request {
    api::Request {
        id: request.id.clone(),
        verb: request.verb.clone(),
        instance: request.instance.as_ref().map(|instance| instance.0.clone()),
        accept_data_loss: request.accept_data_loss,
        result: match request.state {
            RequestState::Refused => api::RequestResult::Refused,
            RequestState::Running => api::RequestResult::Running,
            RequestState::Done => api::RequestResult::Done,
            RequestState::Failed => api::RequestResult::Failed,
        },
        message: request.message.clone(),
        at: MicroTime(request.at),
        deadline: request.deadline.map(MicroTime),
    }
}

pub(super) fn read_loss(loss: &api::DataLoss) -> DataLoss {
    DataLoss {
        at: loss.at.0,
        epoch: u64::try_from(loss.epoch).unwrap_or_default(),
        instance: InstanceName(loss.instance.clone()),
        server_uuid: loss.server_uuid.clone(),
        missing: loss.missing.parse().unwrap_or_default(),
        unheard: loss.unheard.iter().cloned().map(InstanceName).collect(),
    }
}

pub(super) fn loss(loss: &DataLoss) -> api::DataLoss {
    api::DataLoss {
        at: MicroTime(loss.at),
        epoch: signed(loss.epoch),
        instance: loss.instance.0.clone(),
        server_uuid: loss.server_uuid.clone(),
        missing: loss.missing.to_string(),
        unheard: loss.unheard.iter().map(|instance| instance.0.clone()).collect(),
    }
}

pub(super) fn read_change(change: &api::LastChange) -> Change {
    let began = change.began.as_ref().map_or(change.at.0, |began| began.0);
    let blocked = change.writes_blocked_ms.map(SignedDuration::from_millis);
    let phases = change.phases.unwrap_or_default();
    let time = |ms: Option<i64>| ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    Change {
        kind: match change.kind {
            api::ChangeKind::Bootstrap => ChangeKind::Bootstrap,
            api::ChangeKind::Failover => ChangeKind::Failover,
            api::ChangeKind::Switchover => ChangeKind::Switchover,
        },
        from: change.from.clone().map(InstanceName),
        to: InstanceName(change.to.clone()),
        began,
        recorded: change.at.0,
        opened: blocked.and_then(|blocked| began.checked_add(blocked).ok()),
        phases: Phases {
            fence: time(phases.fence_ms),
            catch_up: time(phases.catch_up_ms),
            attach: time(phases.attach_ms),
            record: time(phases.record_ms),
            open: time(phases.open_ms),
            route: time(phases.route_ms),
        },
    }
}

pub(super) fn change(change: &Change) -> api::LastChange {
    let blocked = change.opened.map(|opened| opened.duration_since(change.began));
    let ms = |time: Option<Duration>| time.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    let phases = api::Phases {
        fence_ms: ms(change.phases.fence),
        catch_up_ms: ms(change.phases.catch_up),
        attach_ms: ms(change.phases.attach),
        record_ms: ms(change.phases.record),
        open_ms: ms(change.phases.open),
        route_ms: ms(change.phases.route),
    };
    api::LastChange {
        kind: match change.kind {
            ChangeKind::Bootstrap => api::ChangeKind::Bootstrap,
            ChangeKind::Failover => api::ChangeKind::Failover,
            ChangeKind::Switchover => api::ChangeKind::Switchover,
        },
        from: change.from.as_ref().map(|from| from.0.clone()),
        to: change.to.0.clone(),
        began: Some(MicroTime(change.began)),
        at: MicroTime(change.recorded),
        writes_blocked_ms: blocked.map(|blocked| ms(Duration::try_from(blocked).ok()).unwrap_or_default()),
        phases: (phases != api::Phases::default()).then_some(phases),
    }
}
