//! What `kubectl mainstay status` knows of a cluster, as a value: `-o json` and `-o yaml` print it, the table lays it out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use mainstay_api::backup_status::{BackupReference, VerificationStatus};
use mainstay_api::status::{ChangeKind, ElectionPhase, InstanceStatus, LastChange, Phases, RecoveryStatus, Role};
use mainstay_api::{MySQLCluster, MySQLClusterStatus};
use serde::Serialize;

use super::live::{Answers, Disk, Live};
use super::request::pending;

/// A cluster, from its status and from what its instances said when they were asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// What it is doing; `Pending` before the operator looked at it.
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<i64>,
    /// Name of the recorded primary; absent while one is elected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) primary: Option<String>,
    /// Epoch in which it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) primary_epoch: Option<i64>,
    pub(crate) acknowledgements: Acknowledgements,
    pub(crate) instances: Vec<Row>,
    /// Backups; unknown where none are declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backups: Option<Backups>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_change: Option<Change>,
    /// The recovery of the data with which the cluster began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery: Option<RecoveryStatus>,
    /// What is not as it should be, with what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<Problem>,
    /// What could not be found out, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) remarks: Vec<String>,
}

/// Who can acknowledge a commit of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acknowledgements {
    /// Members that are connected; unknown when the primary was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connected: Option<usize>,
    /// Members in all; the primary is none.
    pub(crate) members: usize,
    /// Acknowledgements that a commit waits for.
    pub(crate) needed: i32,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) instance: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// A person keeps it out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fenced: bool,
    pub(crate) ready: bool,
    pub(crate) lag: Lag,
    pub(crate) acknowledges: Acknowledges,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<Disk>,
}

/// How far a recovery could go: everything that was committed until then is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Recoverable {
    /// To so many milliseconds ago, as the primary says now.
    AgeMs(u64),
    /// To this time at least, as was written into status when there was a reason.
    Through(Timestamp),
}

/// How far an instance is behind its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "seconds")]
pub(crate) enum Lag {
    /// It is the primary.
    None,
    /// It follows, this many seconds behind.
    Following(f64),
    /// It follows nobody.
    Detached,
    /// Its receiver or applier does not run.
    Stopped,
    /// mysqld does not answer.
    Down,
    /// The instance was not asked, or does not know.
    Unknown,
}

/// Whether an instance acknowledges the primary's commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Acknowledges {
    /// It is the primary.
    None,
    Yes,
    No,
    /// It is a member, and the primary was not asked whether it is connected.
    Unknown,
}

/// What is known of backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Backups {
    /// The newest that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_successful: Option<BackupReference>,
    /// The newest that failed, while none succeeded since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failed: Option<BackupReference>,
    /// The newest that was restored and checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_verified: Option<BackupReference>,
    /// The newest run of the verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verification: Option<VerificationStatus>,
    /// How far a recovery could go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recoverable: Option<Recoverable>,
}

/// The last change of primary.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writes_blocked_ms: Option<i64>,
    /// How that time was spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phases: Option<Phases>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// What: a condition's type and reason.
    pub(crate) what: String,
    /// Why, as a sentence.
    pub(crate) why: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// What a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl View {
    /// Puts together what is known. `nodes` are the nodes of the pods, by name, for instances without one in status.
    pub(crate) fn new(cluster: &MySQLCluster, answers: &Answers, nodes: &BTreeMap<String, String>) -> Self {
        let empty = MySQLClusterStatus::default();
        let status = cluster.status.as_ref().unwrap_or(&empty);
        let lives: BTreeMap<&str, &Live> = answers
            .iter()
            .filter_map(|(name, answer)| Some((name.as_str(), answer.as_ref().ok()?)))
            .collect();
        let primary = open_primary(status);
        let connected = primary
            .and_then(|name| lives.get(name))
            .map(|live| live.semi_sync.acknowledgers.as_slice());
        let mut problems = fenced_out(status, &lives);
        problems.extend(self::problems(&status.conditions));
        Self {
            name: cluster.name_any(),
            namespace: cluster.namespace().unwrap_or_default(),
            phase: status
                .phase
                .map_or_else(|| "Pending".to_owned(), |phase| format!("{phase:?}")),
            health: status.health.map(|health| format!("{health:?}")),
            version: status.version.clone(),
            epoch: status.epoch,
            primary: primary.map(ToOwned::to_owned),
            primary_epoch: status
                .primary
                .as_ref()
                .filter(|_| primary.is_some())
                .map(|primary| primary.epoch),
            acknowledgements: acknowledgements(status, connected, &lives),
            instances: rows(status, primary, connected, &lives, nodes),
            backups: backups(cluster, status, primary.and_then(|name| lives.get(name)).copied()),
            last_change: status.last_change.as_ref().map(change),
            recovery: status.recovery.as_deref().cloned(),
            problems,
            remarks: remarks(cluster, status, answers),
        }
    }
}

/// The recorded primary, unless another one is being elected.
fn open_primary(status: &MySQLClusterStatus) -> Option<&str> {
    let open = status
        .election
        .as_ref()
        .is_none_or(|election| election.phase == ElectionPhase::Open);
    status
        .primary
        .as_ref()
        .filter(|_| open)
        .map(|primary| primary.instance.as_str())
}

fn acknowledgements(
    status: &MySQLClusterStatus,
    connected: Option<&[String]>,
    lives: &BTreeMap<&str, &Live>,
) -> Acknowledgements {
    Acknowledgements {
        connected: connected.map(|names| {
            let members = status.members.iter().filter(|member| names.contains(&member.instance));
            let attached = members.filter(|member| !is_detached(lives.get(member.instance.as_str()).copied()));
            attached.count()
        }),
        members: status.members.len(),
        needed: status.acks_required.unwrap_or(0),
    }
}

/// What the primary says now is newer than what was written down.
fn recoverable(status: &MySQLClusterStatus, primary: Option<&Live>) -> Option<Recoverable> {
    let told = status.backup.as_ref().and_then(|backup| backup.archive.as_ref());
    let now = primary.and_then(|live| live.archive?.through_age_ms);
    now.map(Recoverable::AgeMs)
        .or_else(|| told.map(|archive| Recoverable::Through(archive.through_time.0)))
}

fn rows(
    status: &MySQLClusterStatus,
    primary: Option<&str>,
    connected: Option<&[String]>,
    lives: &BTreeMap<&str, &Live>,
    nodes: &BTreeMap<String, String>,
) -> Vec<Row> {
    let row = |instance: &InstanceStatus| {
        let is_primary = primary == Some(instance.name.as_str());
        let member = status.members.iter().any(|m| m.instance == instance.name);
        let live = lives.get(instance.name.as_str()).copied();
        Row {
            instance: instance.name.clone(),
            role: instance.role,
            node: instance.node.clone().or_else(|| nodes.get(&instance.name).cloned()),
            fenced: status.fences.iter().any(|fence| fence.instance == instance.name),
            ready: instance.ready,
            lag: if is_primary && live.is_none_or(|live| live.mysqld == RUNNING) {
                Lag::None
            } else {
                lag(live)
            },
            acknowledges: match connected {
                _ if is_primary => Acknowledges::None,
                // The primary may list it for a moment longer.
                _ if !member || is_detached(live) => Acknowledges::No,
                None => Acknowledges::Unknown,
                Some(names) if names.contains(&instance.name) => Acknowledges::Yes,
                Some(_) => Acknowledges::No,
            },
            disk: live.and_then(|live| live.disk).filter(|disk| disk.size_bytes > 0),
        }
    };
    status.instances.iter().map(row).collect()
}

/// The word of the instance manager for a mysqld that answers.
const RUNNING: &str = "running";

fn lag(live: Option<&Live>) -> Lag {
    let Some(live) = live else { return Lag::Unknown };
    if live.mysqld != RUNNING {
        return Lag::Down;
    }
    let replication = &live.replication;
    let source = replication.source_host.as_deref().filter(|host| !host.is_empty());
    match (source, replication.lag_seconds) {
        (None, _) => Lag::Detached,
        (Some(_), _) if !(replication.receiver_running && replication.applier_running) => Lag::Stopped,
        (Some(_), Some(seconds)) => Lag::Following(seconds),
        (Some(_), None) => Lag::Unknown,
    }
}

fn backups(cluster: &MySQLCluster, status: &MySQLClusterStatus, primary: Option<&Live>) -> Option<Backups> {
    let known = status.backup.as_deref();
    if cluster.spec.backup.is_none() && known.is_none() {
        return None;
    }
    Some(Backups {
        last_successful: known.and_then(|backup| backup.last_successful.clone()),
        last_failed: known.and_then(|backup| backup.last_failed.clone()),
        last_verified: known.and_then(|backup| backup.last_verified.clone()),
        verification: known.and_then(|backup| backup.verification.clone()),
        recoverable: recoverable(status, primary),
    })
}

/// It says that it follows nobody.
fn is_detached(live: Option<&Live>) -> bool {
    lag(live) == Lag::Detached
}

pub(crate) fn change(change: &LastChange) -> Change {
    Change {
        kind: change.kind,
        from: change.from.clone(),
        to: change.to.clone(),
        at: change.at.0,
        writes_blocked_ms: change.writes_blocked_ms,
        phases: change.phases,
    }
}

/// Instances that accept writes without being the recorded primary: never normal, and the operator fences them at once.
fn fenced_out(status: &MySQLClusterStatus, lives: &BTreeMap<&str, &Live>) -> Vec<Problem> {
    let primary = open_primary(status);
    let writable = lives
        .iter()
        .filter(|(name, live)| live.writable && Some(**name) != primary);
    writable
        .map(|(name, _)| Problem {
            what: "WritableWithoutPrimary".to_owned(),
            why: format!("{name} accepts writes and is not the recorded primary"),
            since: None,
            remedy: Some(
                "it is fenced as soon as the operator reaches it; look at the operator's log if this stays".to_owned(),
            ),
        })
        .collect()
}

/// Conditions of which `False` is the good state; of all others it is `True`.
const GOOD_WHEN_FALSE: [&str; 6] = [
    "Progressing",
    "Degraded",
    "WritesBlocked",
    "UpgradePaused",
    "Fenced",
    "Paused",
];

/// Whether a condition is as it should be.
fn is_fine(condition: &Condition) -> bool {
    let good_when_false = GOOD_WHEN_FALSE.contains(&condition.type_.as_str());
    condition.status == if good_when_false { "False" } else { "True" }
}

/// The conditions that are not as they should be, each thing once.
pub(crate) fn wrong(conditions: &[Condition]) -> impl Iterator<Item = &Condition> {
    let told = |condition: &Condition| {
        let blocked = |c: &&Condition| c.type_ == "WritesBlocked" && c.reason == condition.reason;
        condition.type_ == "Available" && conditions.iter().find(blocked).is_some_and(|c| !is_fine(c))
    };
    conditions.iter().filter(move |c| !is_fine(c) && !told(c))
}

fn problems(conditions: &[Condition]) -> impl Iterator<Item = Problem> {
    wrong(conditions).map(|c| Problem {
        what: format!("{}={} ({})", c.type_, c.status, c.reason),
        why: c.message.clone(),
        since: Some(c.last_transition_time.0),
        remedy: None,
    })
}

fn remarks(cluster: &MySQLCluster, status: &MySQLClusterStatus, answers: &Answers) -> Vec<String> {
    let mut remarks = Vec::new();
    match (status.observed_generation, cluster.metadata.generation) {
        (None, _) => remarks.push(
            "the operator has not looked at this cluster yet: is it running, and does it watch this namespace?"
                .to_owned(),
        ),
        (Some(seen), Some(now)) if seen < now => {
            remarks.push(format!(
                "the operator has not seen the newest change of the spec yet (generation {now}, seen {seen})"
            ));
        }
        (Some(_), _) => {}
    }
    remarks.extend(pending(cluster));
    let silent = answers
        .iter()
        .filter_map(|(name, answer)| Some((name, answer.as_ref().err()?)));
    remarks.extend(silent.map(|(name, why)| format!("{name} was asked for live figures: {why}")));
    remarks
}
