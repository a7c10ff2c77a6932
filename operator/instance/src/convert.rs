//! The proto messages as the types of `mainstay-core`, and back.
//!
//! A message that cannot be understood is an error and never a default: an empty set read by mistake could lose data.

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::action::{Application, Endpoint, InstanceCommand, Verb};
use mainstay_core::observed::{
    ArchiveReport, Disk, InstanceReport, Mysqld, Persisted, Recovered, Replication, SemiSync, Standstill,
};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};

use crate::proto;

/// Why a message could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A field does not hold a GTID set.
    #[error("failed to read {field} as a GTID set: {reason}")]
    Gtid {
        /// The field.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// A field is missing.
    #[error("failed to read the message: {0} is missing")]
    Missing(&'static str),
    /// A field holds a value that this version does not know.
    #[error("failed to read the message: {field} has the unknown value {value}")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i32,
    },
}

/// Parses a GTID set that came in a message.
pub fn gtid_set(field: &'static str, text: &str) -> Result<GtidSet, ConvertError> {
    GtidSet::from_str(text).map_err(|error| ConvertError::Gtid {
        field,
        reason: error.to_string(),
    })
}

impl From<&MemberId> for proto::MemberRef {
    fn from(id: &MemberId) -> Self {
        Self {
            instance: id.instance.0.clone(),
            incarnation: id.incarnation.0.clone(),
        }
    }
}

impl From<&proto::MemberRef> for MemberId {
    fn from(member: &proto::MemberRef) -> Self {
        Self {
            instance: InstanceName(member.instance.clone()),
            incarnation: Incarnation(member.incarnation.clone()),
        }
    }
}

impl From<Mysqld> for proto::status::Mysqld {
    fn from(state: Mysqld) -> Self {
        match state {
            Mysqld::Initialising => Self::Initialising,
            Mysqld::Starting => Self::Starting,
            Mysqld::Running => Self::Running,
            Mysqld::Down => Self::Down,
            Mysqld::Cloning => Self::Cloning,
            Mysqld::Failed => Self::Failed,
        }
    }
}

fn mysqld(value: i32) -> Result<Mysqld, ConvertError> {
    match proto::status::Mysqld::try_from(value) {
        Ok(proto::status::Mysqld::Initialising) => Ok(Mysqld::Initialising),
        Ok(proto::status::Mysqld::Starting) => Ok(Mysqld::Starting),
        Ok(proto::status::Mysqld::Running) => Ok(Mysqld::Running),
        Ok(proto::status::Mysqld::Down) => Ok(Mysqld::Down),
        Ok(proto::status::Mysqld::Cloning) => Ok(Mysqld::Cloning),
        Ok(proto::status::Mysqld::Failed) => Ok(Mysqld::Failed),
        Ok(proto::status::Mysqld::Unspecified) | Err(_) => Err(ConvertError::Unknown { field: "mysqld", value }),
    }
}

impl From<&Persisted> for proto::Persisted {
    fn from(persisted: &Persisted) -> Self {
        Self {
            epoch: persisted.epoch,
            seq: persisted.seq,
            told_epoch: persisted.told_epoch,
            primary: persisted.primary.as_ref().map(Into::into),
            baseline: persisted.baseline.to_string(),
            members: persisted.members.iter().map(Into::into).collect(),
            acks_required: persisted.acks_required,
        }
    }
}

impl TryFrom<&proto::Persisted> for Persisted {
    type Error = ConvertError;

    fn try_from(persisted: &proto::Persisted) -> Result<Self, ConvertError> {
        Ok(Self {
            epoch: persisted.epoch,
            seq: persisted.seq,
            told_epoch: persisted.told_epoch,
            primary: persisted.primary.as_ref().map(Into::into),
            baseline: gtid_set("persisted.baseline", &persisted.baseline)?,
            members: persisted.members.iter().map(Into::into).collect(),
            acks_required: persisted.acks_required,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<&Replication> for proto::Replication {
    fn from(replication: &Replication) -> Self {
        Self {
            source_host: replication.source_host.clone().unwrap_or_default(),
            receiver_running: replication.receiver_running,
            applier_running: replication.applier_running,
            applier_behind: false,
            last_heard_ms: replication.last_heard.map(millis),
            lag_seconds: replication.lag.map(|lag| lag.as_secs_f64()),
            receiver_error: replication.receiver_error.clone(),
            applier_error: replication.applier_error.clone(),
            applier_failing_ms: replication.applier_failing.map(millis),
        }
    }
}

impl From<&proto::Replication> for Replication {
    fn from(replication: &proto::Replication) -> Self {
        Self {
            source_host: Some(replication.source_host.clone()).filter(|host| !host.is_empty()),
            receiver_running: replication.receiver_running,
            applier_running: replication.applier_running,
            last_heard: replication.last_heard_ms.map(Duration::from_millis),
            // A lag that is no number (NaN, negative by a clock that was set back) is unknown, never zero.
            lag: replication
                .lag_seconds
                .and_then(|lag| Duration::try_from_secs_f64(lag).ok()),
            receiver_error: replication.receiver_error.clone(),
            applier_error: replication.applier_error.clone(),
            applier_failing: replication.applier_failing_ms.map(Duration::from_millis),
        }
    }
}

impl From<&SemiSync> for proto::SemiSync {
    fn from(semi_sync: &SemiSync) -> Self {
        Self {
            source_enabled: semi_sync.on,
            source_on: semi_sync.on,
            clients: u32::try_from(semi_sync.acknowledgers.len()).unwrap_or(u32::MAX),
            wait_for: semi_sync.wait_for,
            waiters: semi_sync.waiters,
            acknowledgers: semi_sync.acknowledgers.iter().map(|name| name.0.clone()).collect(),
        }
    }
}

impl From<&proto::SemiSync> for SemiSync {
    fn from(semi_sync: &proto::SemiSync) -> Self {
        Self {
            on: semi_sync.source_on,
            wait_for: semi_sync.wait_for,
            waiters: semi_sync.waiters,
            acknowledgers: semi_sync.acknowledgers.iter().cloned().map(InstanceName).collect(),
        }
    }
}

impl From<&ArchiveReport> for proto::Archive {
    fn from(archive: &ArchiveReport) -> Self {
        Self {
            behind: archive.behind.to_string(),
            missing: archive.missing.to_string(),
            through_us: archive.through.map(Timestamp::as_microsecond),
            error: archive.error.clone(),
        }
    }
}

impl From<&Standstill> for proto::Standstill {
    fn from(standstill: &Standstill) -> Self {
        match standstill {
            Standstill::DiskFull => Self {
                cause: proto::standstill::Cause::DiskFull.into(),
                holder: String::new(),
            },
            Standstill::GlobalLock { holder } => Self {
                cause: proto::standstill::Cause::GlobalLock.into(),
                holder: holder.clone(),
            },
        }
    }
}

impl TryFrom<&proto::Archive> for ArchiveReport {
    type Error = ConvertError;

    fn try_from(archive: &proto::Archive) -> Result<Self, ConvertError> {
        Ok(Self {
            behind: gtid_set("archive.behind", &archive.behind)?,
            missing: gtid_set("archive.missing", &archive.missing)?,
            // A time that no clock shows is not known.
            through: archive
                .through_us
                .and_then(|micros| Timestamp::from_microsecond(micros).ok()),
            error: archive.error.clone(),
        })
    }
}

/// A cause that a newer manager knows is not told: nothing but words depends on it, and an instance that is not understood
/// would count as silent.
fn standstill(standstill: &proto::Standstill) -> Option<Standstill> {
    match proto::standstill::Cause::try_from(standstill.cause) {
        Ok(proto::standstill::Cause::DiskFull) => Some(Standstill::DiskFull),
        Ok(proto::standstill::Cause::GlobalLock) => Some(Standstill::GlobalLock {
            holder: standstill.holder.clone(),
        }),
        Ok(proto::standstill::Cause::Unspecified) | Err(_) => None,
    }
}

impl TryFrom<&proto::Status> for InstanceReport {
    type Error = ConvertError;

    fn try_from(status: &proto::Status) -> Result<Self, ConvertError> {
        let persisted = status.persisted.as_ref().ok_or(ConvertError::Missing("persisted"))?;
        let disk = status.disk.unwrap_or_default();
        Ok(Self {
            incarnation: Incarnation(status.incarnation.clone()),
            persisted: persisted.try_into()?,
            mysqld: mysqld(status.mysqld)?,
            message: status.message.clone(),
            restarts: status.restarts,
            failures: status.failures,
            refusals: status.refusals,
            unreadable: status.unreadable,
            version: status.version.clone(),
            server_uuid: status.server_uuid.clone(),
            writable: status.writable,
            executed: gtid_set("executed", &status.executed)?,
            received: gtid_set("received", &status.received)?,
            purged: gtid_set("purged", &status.purged)?,
            replication: status.replication.as_ref().map(Into::into).unwrap_or_default(),
            semi_sync: status.semi_sync.as_ref().map(Into::into).unwrap_or_default(),
            disk: Disk {
                used: disk.used_bytes,
                size: disk.size_bytes,
                full_for: disk.full_for_ms.map(Duration::from_millis),
            },
            standstill: status.standstill.as_ref().and_then(standstill),
            config_hash: status.config_hash.clone(),
            pristine: status.pristine,
            list_uncertain: status.list_uncertain,
            history_reset: status.history_reset,
            leaving: status.leaving,
            recovered: status
                .recovered
                .as_ref()
                .map(|recovered| recovered.try_into().map(Box::new))
                .transpose()?,
            marker: status
                .marker
                .as_deref()
                .map(|set| gtid_set("marker", set))
                .transpose()?,
            archive: status.archive.as_ref().map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&Recovered> for proto::Recovered {
    fn from(recovered: &Recovered) -> Self {
        Self {
            request: recovered.request.clone(),
            backup: recovered.backup.clone(),
            reached: recovered.reached.to_string(),
            time_us: recovered.time.map(Timestamp::as_microsecond),
            completed_at_us: recovered.completed_at.as_microsecond(),
        }
    }
}

impl TryFrom<&proto::Recovered> for Recovered {
    type Error = ConvertError;

    fn try_from(recovered: &proto::Recovered) -> Result<Self, ConvertError> {
        let time =
            |micros| Timestamp::from_microsecond(micros).map_err(|_range| ConvertError::Missing("recovered: a time"));
        Ok(Self {
            request: recovered.request.clone(),
            backup: recovered.backup.clone(),
            reached: gtid_set("recovered.reached", &recovered.reached)?,
            time: recovered.time_us.map(time).transpose()?,
            completed_at: time(recovered.completed_at_us)?,
        })
    }
}

/// The message that a manager with this report would send; for the simulation and for tests.
#[must_use]
pub fn status(instance: &InstanceName, seq: u64, report: &InstanceReport) -> proto::Status {
    proto::Status {
        seq,
        instance: instance.0.clone(),
        incarnation: report.incarnation.0.clone(),
        persisted: Some((&report.persisted).into()),
        mysqld: proto::status::Mysqld::from(report.mysqld).into(),
        message: report.message.clone(),
        restarts: report.restarts,
        failures: report.failures,
        refusals: report.refusals,
        unreadable: report.unreadable,
        version: report.version.clone(),
        server_uuid: report.server_uuid.clone(),
        server_id: 0,
        writable: report.writable,
        executed: report.executed.to_string(),
        received: report.received.to_string(),
        purged: report.purged.to_string(),
        replication: Some((&report.replication).into()),
        semi_sync: Some((&report.semi_sync).into()),
        disk: Some(proto::Disk {
            used_bytes: report.disk.used,
            size_bytes: report.disk.size,
            full_for_ms: report.disk.full_for.map(millis),
        }),
        standstill: report.standstill.as_ref().map(Into::into),
        config_hash: report.config_hash.clone(),
        pristine: report.pristine,
        list_uncertain: report.list_uncertain,
        history_reset: report.history_reset,
        connections: 0,
        max_connections: 0,
        leaving: report.leaving,
        recovered: report.recovered.as_deref().map(Into::into),
        marker: report.marker.as_ref().map(ToString::to_string),
        archive: report.archive.as_ref().map(Into::into),
    }
}

impl From<&Endpoint> for proto::Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            instance: endpoint.id.instance.0.clone(),
            incarnation: endpoint.id.incarnation.0.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port.into(),
        }
    }
}

impl From<&Application> for proto::Application {
    fn from(application: &Application) -> Self {
        Self {
            database: application.database.clone(),
            user: application.user.clone(),
        }
    }
}

/// A command as the request of its verb.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Fence.
    Fence(proto::FenceRequest),
    /// Attach.
    Attach(proto::AttachRequest),
    /// Open.
    Open(proto::OpenRequest),
    /// Allow.
    Allow(proto::AllowRequest),
    /// Mark.
    Mark(proto::MarkRequest),
    /// Clone.
    Clone(proto::CloneRequest),
    /// Refill.
    Refill(proto::RefillRequest),
    /// Restart.
    Restart(proto::RestartRequest),
    /// Purge.
    Purge(proto::PurgeRequest),
}

impl Request {
    /// The request for `command`, sent as number `seq` of this operator process under the command's epoch (rule 0).
    #[must_use]
    pub fn new(command: &InstanceCommand, seq: u64) -> Self {
        let header = Some(proto::Command {
            epoch: command.epoch,
            seq,
            incarnation: command.to.incarnation.0.clone(),
            deadline_ms: u32::try_from(command.deadline.as_millis()).unwrap_or(u32::MAX),
        });
        match &command.verb {
            Verb::Fence => Self::Fence(proto::FenceRequest { command: header }),
            Verb::Attach { source } => Self::Attach(proto::AttachRequest {
                command: header,
                source: Some(source.into()),
            }),
            Verb::Open {
                members,
                acks_required,
                baseline,
                recorded,
                application,
            } => Self::Open(proto::OpenRequest {
                command: header,
                members: members.iter().map(Into::into).collect(),
                acks_required: *acks_required,
                baseline: baseline.to_string(),
                application: application.as_ref().map(Into::into),
                reign: recorded.epoch,
                reign_since_us: recorded.since.as_microsecond(),
            }),
            Verb::Allow { members, acks_required } => Self::Allow(proto::AllowRequest {
                command: header,
                members: members.iter().map(Into::into).collect(),
                acks_required: *acks_required,
            }),
            Verb::Mark => Self::Mark(proto::MarkRequest { command: header }),
            Verb::Clone { donor, keep_former } => Self::Clone(proto::CloneRequest {
                command: header,
                donor: Some(donor.into()),
                keep_former: *keep_former,
            }),
            Verb::Refill { at_least, keep_former } => Self::Refill(proto::RefillRequest {
                command: header,
                at_least: at_least.to_string(),
                keep_former: *keep_former,
            }),
            Verb::Restart => Self::Restart(proto::RestartRequest { command: header }),
            Verb::Purge { stored } => Self::Purge(proto::PurgeRequest {
                command: header,
                stored: stored.to_string(),
            }),
        }
    }
}

/// Answer of a manager to a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What became of it.
    pub outcome: Outcome,
    /// Epoch that is now persisted.
    pub epoch: u64,
    /// Sequence that is now persisted.
    pub seq: u64,
    /// The state read after the effect; absent only if the manager could not say (an answer of REFUSED to an unknown
    /// caller).
    pub report: Option<InstanceReport>,
    /// Number of that report among the messages of the manager's process; 0 without one.
    pub sequence: u64,
}

/// A report with its place among the messages of a manager's process: a later one has a higher number, so that a
/// message that was overtaken by a reply on another stream is told by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Rises with every message of the process.
    pub sequence: u64,
    /// The report.
    pub report: InstanceReport,
}

impl TryFrom<&proto::Status> for Message {
    type Error = ConvertError;

    fn try_from(status: &proto::Status) -> Result<Self, ConvertError> {
        Ok(Self {
            sequence: status.seq,
            report: InstanceReport::try_from(status)?,
        })
    }
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Applied,
    /// It was so before.
    Already,
    /// Not done.
    Refused {
        /// Why, in a sentence.
        reason: String,
    },
}

impl TryFrom<&proto::CommandReply> for Reply {
    type Error = ConvertError;

    fn try_from(reply: &proto::CommandReply) -> Result<Self, ConvertError> {
        let outcome = match proto::command_reply::Result::try_from(reply.result) {
            Ok(proto::command_reply::Result::Applied) => Outcome::Applied,
            Ok(proto::command_reply::Result::Already) => Outcome::Already,
            Ok(proto::command_reply::Result::Refused) => Outcome::Refused {
                reason: reply.reason.clone(),
            },
            Ok(proto::command_reply::Result::Unspecified) | Err(_) => {
                return Err(ConvertError::Unknown {
                    field: "result",
                    value: reply.result,
                });
            }
        };
        let report = reply.status.as_ref().map(InstanceReport::try_from).transpose()?;
        let sequence = reply.status.as_ref().map_or(0, |status| status.seq);
        Ok(Self {
            outcome,
            epoch: reply.epoch,
            seq: reply.seq,
            report,
            sequence,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SET: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5";

    fn member(name: &str) -> MemberId {
        MemberId {
            instance: InstanceName(name.to_owned()),
            incarnation: Incarnation(format!("{name}-life")),
        }
    }

    fn report() -> InstanceReport {
        InstanceReport {
            incarnation: Incarnation("life".to_owned()),
            persisted: Persisted {
                epoch: 7,
                seq: 3,
                told_epoch: 6,
                primary: Some(member("shop-1")),
                baseline: gtid_set("test", SET).unwrap(),
                members: vec![member("shop-0"), member("shop-2")],
                acks_required: 1,
            },
            mysqld: Mysqld::Running,
            message: String::new(),
            restarts: 2,
            failures: 3,
            refusals: 2,
            unreadable: true,
            version: "9.7.4".to_owned(),
            server_uuid: "3e11fa47-71ca-11e1-9e33-c80aa9429562".to_owned(),
            writable: true,
            executed: gtid_set("test", SET).unwrap(),
            received: GtidSet::default(),
            purged: GtidSet::default(),
            replication: Replication {
                source_host: Some("shop-1.shop-instances.prod.svc".to_owned()),
                receiver_running: true,
                applier_running: false,
                last_heard: Some(Duration::from_millis(250)),
                lag: Some(Duration::from_millis(1500)),
                receiver_error: "cannot connect".to_owned(),
                applier_error: "duplicate key".to_owned(),
                applier_failing: Some(Duration::from_millis(1250)),
            },
            semi_sync: SemiSync {
                on: true,
                wait_for: 1,
                waiters: 4,
                acknowledgers: vec![InstanceName("shop-0".to_owned())],
            },
            disk: Disk {
                used: 10,
                size: 100,
                full_for: Some(Duration::from_millis(1500)),
            },
            standstill: Some(Standstill::GlobalLock {
                holder: "session 73 of root@10.0.0.7".to_owned(),
            }),
            marker: Some(gtid_set("test", SET).unwrap()),
            config_hash: "abc".to_owned(),
            pristine: false,
            list_uncertain: true,
            history_reset: true,
            leaving: true,
            recovered: Some(Box::new(Recovered {
                request: "wish".to_owned(),
                backup: "nightly-1".to_owned(),
                reached: gtid_set("test", SET).unwrap(),
                time: Some("2026-11-30T07:30:00.25Z".parse().unwrap()),
                completed_at: "2026-11-30T08:00:00Z".parse().unwrap(),
            })),
            archive: Some(ArchiveReport {
                behind: gtid_set("test", SET).unwrap(),
                missing: GtidSet::new(),
                through: Some(Timestamp::from_second(7).unwrap()),
                error: "denied".to_owned(),
            }),
        }
    }

    #[test]
    fn a_report_survives_the_way_there_and_back() {
        let before = report();
        let message = status(&InstanceName("shop-0".to_owned()), 9, &before);
        assert_eq!(InstanceReport::try_from(&message).unwrap(), before);
    }

    #[test]
    fn a_standstill_survives_the_way_there_and_one_of_a_newer_manager_costs_nothing() {
        for before in [Some(Standstill::DiskFull), None] {
            let before = InstanceReport {
                standstill: before,
                ..report()
            };
            let message = status(&InstanceName("shop-0".to_owned()), 9, &before);
            assert_eq!(InstanceReport::try_from(&message).unwrap(), before);
        }
        let newer = proto::Standstill {
            cause: 99,
            holder: String::new(),
        };
        let message = proto::Status {
            standstill: Some(newer),
            ..status(&InstanceName("shop-0".to_owned()), 9, &report())
        };
        assert_eq!(InstanceReport::try_from(&message).unwrap().standstill, None);
    }

    #[test]
    fn every_state_of_mysqld_survives_the_way_there_and_back() {
        for state in [
            Mysqld::Initialising,
            Mysqld::Starting,
            Mysqld::Running,
            Mysqld::Down,
            Mysqld::Cloning,
            Mysqld::Failed,
        ] {
            assert_eq!(mysqld(proto::status::Mysqld::from(state).into()), Ok(state));
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_no_default() {
        let good = status(&InstanceName("shop-0".to_owned()), 9, &report());
        let cases = [
            proto::Status {
                persisted: None,
                ..good.clone()
            },
            proto::Status {
                mysqld: 0,
                ..good.clone()
            },
            proto::Status {
                mysqld: 99,
                ..good.clone()
            },
            proto::Status {
                executed: "nonsense".to_owned(),
                ..good.clone()
            },
            proto::Status {
                received: "x:1".to_owned(),
                ..good.clone()
            },
        ];
        for case in cases {
            InstanceReport::try_from(&case).unwrap_err();
        }
    }

    #[test]
    fn an_impossible_lag_is_unknown() {
        let message = proto::Replication {
            lag_seconds: Some(f64::NAN),
            ..Default::default()
        };
        assert_eq!(Replication::from(&message).lag, None);
        let message = proto::Replication {
            lag_seconds: Some(-1.0),
            ..Default::default()
        };
        assert_eq!(Replication::from(&message).lag, None);
    }

    #[test]
    fn a_command_carries_its_header() {
        let command = InstanceCommand {
            to: member("shop-1"),
            epoch: 4,
            deadline: Duration::from_secs(3),
            verb: Verb::Allow {
                members: BTreeSet::from([member("shop-0")]),
                acks_required: 1,
            },
            why: String::new(),
        };
        let Request::Allow(request) = Request::new(&command, 17) else {
            panic!("another verb")
        };
        let header = request.command.unwrap();
        assert_eq!((header.epoch, header.seq, header.deadline_ms), (4, 17, 3000));
        assert_eq!(header.incarnation, "shop-1-life");
        assert_eq!(request.members.len(), 1);
        let purge = InstanceCommand {
            verb: Verb::Purge {
                stored: gtid_set("test", SET).unwrap(),
            },
            ..command
        };
        let Request::Purge(request) = Request::new(&purge, 18) else {
            panic!("another verb")
        };
        assert_eq!((request.command.unwrap().seq, request.stored.as_str()), (18, SET));
    }
}
