//! From objects of the API server to what is kept of them: pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use mainstay_api::MySQLBackup;
use mainstay_core::build::{BACKUP_CONTAINER, MYSQL_CONTAINER, VERIFY_CONTAINER};
use mainstay_core::names::{
    self, ANNOTATION_BACKUP_UID, ANNOTATION_DONOR, ANNOTATION_DUE, ANNOTATION_TEMPLATE, CLAIM_TEMPLATE, LABEL_BACKUP,
    LABEL_CLUSTER, LABEL_ROLE, LABEL_VERIFIES,
};
use mainstay_core::observed::{ClaimView, PodView, Warning};

use crate::index::{ClusterName, Entry, Version};
use crate::secret_data::{self, Redacted};

/// Label by which everything of Mainstay is watched.
pub(crate) const MANAGED: &str = "app.kubernetes.io/managed-by=mainstay";
/// Labels by which the Jobs and pods of backups are watched.
pub(crate) const BACKUPS: &str = "app.kubernetes.io/managed-by=mainstay,app.kubernetes.io/component=backup";
/// Label that nodes, and since Kubernetes 1.35 pods, carry.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Annotation on a claim: the node for which the scheduler had its volume made.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Who writes an `EndpointSlice`.
const SLICE_MANAGER: &str = "endpointslice.kubernetes.io/managed-by";

/// The cluster to which an object belongs by its label.
pub(crate) fn cluster_of(metadata: &ObjectMeta) -> Option<ClusterName> {
    let name = metadata.labels.as_ref()?.get(LABEL_CLUSTER)?;
    Some(ClusterName::new(metadata.namespace.as_deref()?, name))
}

/// uid of the object that controls this one, if any does.
pub(crate) fn owner(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_ref()?;
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
}

/// Ordinal of an instance of a cluster by its name; `None` for any other name.
pub(crate) fn ordinal(cluster: &str, instance: &str) -> Option<u32> {
    let digits = instance.strip_prefix(cluster)?.strip_prefix('-')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// An object that Mainstay builds, as it is kept. Slices that Kubernetes writes for our headless Service carry our
/// labels, too: they are not ours.
pub(crate) fn object(mut object: DynamicObject) -> Option<Entry<DynamicObject>> {
    let writer = object
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SLICE_MANAGER));
    if writer.is_some_and(|writer| writer.ends_with(".k8s.io")) {
        return None;
    }
    object.metadata.managed_fields = None;
    let cluster = cluster_of(&object.metadata)?;
    let (name, version) = (object.metadata.name.clone()?, Version::of(&object.metadata));
    Some(Entry {
        cluster,
        name,
        version,
        value: object,
    })
}

/// A pod of an instance, as it is kept.
pub(crate) fn pod(pod: &Pod) -> Option<Entry<PodView>> {
    let cluster = cluster_of(&pod.metadata)?;
    let name = pod.metadata.name.clone()?;
    ordinal(&cluster.name, &name)?;
    let spec = pod.spec.as_ref();
    let status = pod.status.as_ref();
    let annotations = pod.metadata.annotations.as_ref();
    let labels = pod.metadata.labels.as_ref();
    let container = status
        .and_then(|s| s.container_statuses.as_ref())
        .and_then(|all| named(all));
    let config_maps = spec
        .and_then(|s| s.volumes.as_ref())
        .into_iter()
        .flatten()
        .filter_map(|v| v.config_map.as_ref());
    let config_prefix = format!("{}-config-", cluster.name);
    let value = PodView {
        uid: pod.metadata.uid.clone()?,
        ip: status.and_then(|s| s.pod_ip.clone()).filter(|ip| !ip.is_empty()),
        node: spec.and_then(|s| s.node_name.clone()).filter(|node| !node.is_empty()),
        zone: labels.and_then(|l| l.get(ZONE_LABEL)).cloned(),
        phase: status
            .and_then(|s| s.phase.clone())
            .unwrap_or_else(|| "Pending".to_owned()),
        ready: is_ready(pod),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        evicted: is_evicted(pod),
        template: annotations.and_then(|a| a.get(ANNOTATION_TEMPLATE)).cloned(),
        config_map: config_maps
            .map(|c| c.name.clone())
            .find(|name| name.starts_with(&config_prefix)),
        image: spec
            .and_then(|s| s.containers.iter().find(|c| c.name == MYSQL_CONTAINER))
            .and_then(|c| c.image.clone()),
        trouble: trouble(pod),
        restarts: container.map_or(0, |c| c.restart_count),
        role: labels.and_then(|l| l.get(LABEL_ROLE)).cloned(),
    };
    Some(Entry {
        cluster,
        name,
        version: Version::of(&pod.metadata),
        value,
    })
}

fn named(statuses: &[ContainerStatus]) -> Option<&ContainerStatus> {
    statuses.iter().find(|status| status.name == MYSQL_CONTAINER)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Kubernetes deletes it because its node has a taint that it does not tolerate: a node that does not answer gets one.
fn is_evicted(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let evicted = conditions.into_iter().flatten().any(|c| {
        c.type_ == "DisruptionTarget" && c.status == "True" && c.reason.as_deref() == Some("DeletionByTaintManager")
    });
    evicted && pod.metadata.deletion_timestamp.is_some()
}

/// Why a pod does not run, in the kubelet's or the scheduler's words.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled {
        return Some(sentence(condition.reason.as_deref(), condition.message.as_deref()));
    }
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref()?;
            if matches!(reason, "PodInitializing" | "ContainerCreating") {
                return None;
            }
            let mut text = format!(
                "{}: {}",
                container.name,
                sentence(Some(reason), waiting.message.as_deref())
            );
            if let Some(ended) = container
                .last_state
                .as_ref()
                .and_then(|state| state.terminated.as_ref())
            {
                let message = ended.message.as_deref().map(str::trim).filter(|m| !m.is_empty());
                let message = message.map(|m| format!(": {m}")).unwrap_or_default();
                // Writing to a String cannot fail.
                let _ = write!(text, " (exit code {}{message})", ended.exit_code);
            }
            Some(text)
        })
}

fn sentence(reason: Option<&str>, message: Option<&str>) -> String {
    match (reason, message.filter(|m| !m.is_empty())) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.to_owned(),
        (None, None) => String::new(),
    }
}

/// A claim of an instance, as it is kept; by the name of its instance.
pub(crate) fn claim(claim: &PersistentVolumeClaim) -> Option<Entry<ClaimView>> {
    let cluster = cluster_of(&claim.metadata)?;
    let name = claim
        .metadata
        .name
        .as_deref()?
        .strip_prefix(CLAIM_TEMPLATE)?
        .strip_prefix('-')?
        .to_owned();
    ordinal(&cluster.name, &name)?;
    let requests = claim
        .spec
        .as_ref()
        .and_then(|s| s.resources.as_ref())
        .and_then(|r| r.requests.as_ref());
    let status = claim.status.as_ref();
    let annotations = claim.metadata.annotations.as_ref();
    let value = ClaimView {
        uid: claim.metadata.uid.clone()?,
        resource_version: claim.metadata.resource_version.clone().unwrap_or_default(),
        phase: status
            .and_then(|s| s.phase.clone())
            .unwrap_or_else(|| "Pending".to_owned()),
        requested: requests.and_then(storage),
        capacity: status.and_then(|s| s.capacity.as_ref()).and_then(storage),
        class: claim.spec.as_ref().and_then(|s| s.storage_class_name.clone()),
        node: annotations.and_then(|a| a.get(SELECTED_NODE)).cloned(),
        deleting: claim.metadata.deletion_timestamp.is_some(),
    };
    Some(Entry {
        cluster,
        name,
        version: Version::of(&claim.metadata),
        value,
    })
}

/// A `MySQLBackup`, by the cluster that it names.
pub(crate) fn backup(mut backup: MySQLBackup) -> Option<Entry<MySQLBackup>> {
    backup.metadata.managed_fields = None;
    Some(Entry {
        cluster: ClusterName::new(backup.metadata.namespace.as_deref()?, &backup.spec.cluster),
        name: backup.metadata.name.clone()?,
        version: Version::of(&backup.metadata),
        value: backup,
    })
}

/// The Job of a backup or a verification, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobView {
    pub(crate) uid: String,
    /// uid of its cluster.
    pub(crate) owner: Option<String>,
    /// uid of its `MySQLBackup`.
    pub(crate) backup: Option<String>,
    pub(crate) created_at: Timestamp,
    /// The instance that it copies.
    pub(crate) donor: Option<String>,
    /// Of a verification: which `MySQLBackup` it verifies, by name, and for which due time.
    pub(crate) verifies: Option<String>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) end: JobEnd,
}

/// What Kubernetes says of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// It goes on.
    Not,
    Complete,
    Failed {
        reason: String,
        message: String,
    },
}

pub(crate) fn job(job: &Job) -> Option<Entry<JobView>> {
    let cluster = cluster_of(&job.metadata)?;
    let annotations = job.metadata.annotations.as_ref();
    let value = JobView {
        uid: job.metadata.uid.clone()?,
        owner: owner(&job.metadata).map(str::to_owned),
        backup: annotations.and_then(|all| all.get(ANNOTATION_BACKUP_UID)).cloned(),
        created_at: created(&job.metadata),
        donor: annotations.and_then(|all| all.get(ANNOTATION_DONOR)).cloned(),
        verifies: job
            .metadata
            .labels
            .as_ref()
            .and_then(|all| all.get(LABEL_VERIFIES))
            .cloned(),
        due: annotations.and_then(|all| all.get(ANNOTATION_DUE)?.parse().ok()),
        end: job_end(job),
    };
    Some(Entry {
        cluster,
        name: job.metadata.name.clone()?,
        version: Version::of(&job.metadata),
        value,
    })
}

fn job_end(job: &Job) -> JobEnd {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten().filter(|c| c.status == "True");
    let ended = conditions.find_map(|condition| match condition.type_.as_str() {
        "Complete" | "SuccessCriteriaMet" => Some(JobEnd::Complete),
        "Failed" | "FailureTarget" => Some(JobEnd::Failed {
            reason: condition.reason.clone().unwrap_or_else(|| "JobFailed".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        }),
        _ => None,
    });
    ended.unwrap_or(JobEnd::Not)
}

/// The pod of a backup or a verification, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupPodView {
    pub(crate) uid: String,
    /// Name of its Job.
    pub(crate) job: String,
    pub(crate) ip: Option<IpAddr>,
    pub(crate) created_at: Timestamp,
    /// When it should have ended at the latest, once its deletion was asked for: only the kubelet of its node can say that it has.
    pub(crate) ends_by: Option<Timestamp>,
    /// Why a container does not run, in the kubelet's or the scheduler's words.
    pub(crate) trouble: Option<String>,
    pub(crate) main: Main,
}

/// The container that makes the backup, or verifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Main {
    /// It does not run yet.
    Waiting,
    Running {
        since: Timestamp,
    },
    Ended {
        code: i32,
        /// Its termination message.
        message: String,
        at: Timestamp,
    },
    /// Its pod ended without it.
    Never {
        reason: String,
        message: String,
    },
}

pub(crate) fn backup_pod(pod: &Pod) -> Option<Entry<BackupPodView>> {
    let cluster = cluster_of(&pod.metadata)?;
    let labels = pod.metadata.labels.as_ref()?;
    let (job, container) = if let Some(backup) = labels.get(LABEL_BACKUP) {
        (names::backup_job(backup), BACKUP_CONTAINER)
    } else {
        labels.get(LABEL_VERIFIES)?;
        let names = names::Names::new(&cluster.namespace, &cluster.name);
        (names.verify_job(), VERIFY_CONTAINER)
    };
    let status = pod.status.as_ref();
    let value = BackupPodView {
        uid: pod.metadata.uid.clone()?,
        job,
        ip: status.and_then(|s| s.pod_ip.as_ref()).and_then(|ip| ip.parse().ok()),
        created_at: created(&pod.metadata),
        ends_by: pod.metadata.deletion_timestamp.as_ref().map(|at| at.0),
        trouble: trouble(pod),
        main: main_container(pod, container),
    };
    Some(Entry {
        cluster,
        name: pod.metadata.name.clone()?,
        version: Version::of(&pod.metadata),
        value,
    })
}

fn main_container(pod: &Pod, name: &str) -> Main {
    let Some(status) = &pod.status else {
        return Main::Waiting;
    };
    let containers = status.container_statuses.iter().flatten();
    let state = containers
        .filter(|container| container.name == name)
        .find_map(|container| container.state.as_ref());
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        let said = ended.message.clone().filter(|message| !message.trim().is_empty());
        return Main::Ended {
            code: ended.exit_code,
            message: said.or_else(|| ended.reason.clone()).unwrap_or_default(),
            at: ended
                .finished_at
                .as_ref()
                .map_or_else(|| created(&pod.metadata), |at| at.0),
        };
    }
    if status.phase.as_deref() == Some("Failed") {
        return Main::Never {
            reason: status.reason.clone().unwrap_or_else(|| "PodFailed".to_owned()),
            message: never(pod),
        };
    }
    match state.and_then(|state| state.running.as_ref()) {
        Some(running) => Main::Running {
            since: running
                .started_at
                .as_ref()
                .map_or_else(|| created(&pod.metadata), |at| at.0),
        },
        None => Main::Waiting,
    }
}

/// Why a pod ended before the container of the backup ran: an eviction, or the init container.
fn never(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let said = status
        .and_then(|status| status.message.clone())
        .filter(|m| !m.is_empty());
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    let ended = init.into_iter().flatten().find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let message = ended.message.as_deref().or(ended.reason.as_deref()).unwrap_or_default();
        (ended.exit_code != 0)
            .then(|| format!("{} ended with exit code {}: {message}", container.name, ended.exit_code))
    });
    let why = said
        .or(ended)
        .unwrap_or_else(|| "Kubernetes does not say why".to_owned());
    format!("its pod failed: {why}")
}

fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |at| at.0)
}

type Quantities = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn storage(quantities: &Quantities) -> Option<u64> {
    quantities.get("storage").and_then(|quantity| bytes(&quantity.0))
}

/// Bytes of a Kubernetes quantity; fractions are rounded up.
fn bytes(quantity: &str) -> Option<u64> {
    let split = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(split);
    let (factor, divisor): (u128, u128) = match suffix {
        "" => (1, 1),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        _ => (10_u128.checked_pow(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)?, 1),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    u64::try_from(digits.checked_mul(factor)?.div_ceil(divisor.checked_mul(scale)?)).ok()
}

/// A Secret of a cluster, as it is kept: without its private values.
pub(crate) fn secret(secret: Secret) -> Option<Entry<Redacted>> {
    let cluster = cluster_of(&secret.metadata)?;
    let (name, version) = (secret.metadata.name.clone()?, Version::of(&secret.metadata));
    Some(Entry {
        cluster,
        name,
        version,
        value: secret_data::redact(secret),
    })
}

/// A warning of Kubernetes about something of a cluster that is known; `known` tells whether it is.
pub(crate) fn warning(event: &Event, known: impl Fn(&ClusterName) -> bool) -> Option<Entry<Warning>> {
    let about = &event.involved_object;
    let (kind, name) = (about.kind.as_deref()?, about.name.as_deref()?);
    let namespace = about.namespace.as_deref()?;
    let owner = match kind {
        "StatefulSet" => name,
        "Pod" => name.rsplit_once('-')?.0,
        "PersistentVolumeClaim" => {
            name.strip_prefix(CLAIM_TEMPLATE)?
                .strip_prefix('-')?
                .rsplit_once('-')?
                .0
        }
        _ => return None,
    };
    let cluster = ClusterName::new(namespace, owner);
    if !known(&cluster) {
        return None;
    }
    let value = Warning {
        about: format!("{kind}/{name}"),
        uid: about.uid.clone(),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        at: seen_at(event),
    };
    Some(Entry {
        cluster,
        name: event.metadata.name.clone()?,
        version: Version::of(&event.metadata),
        value,
    })
}

fn seen_at(event: &Event) -> Timestamp {
    let series = event
        .series
        .as_ref()
        .and_then(|s| s.last_observed_time.as_ref())
        .map(|t| t.0);
    let last = event.last_timestamp.as_ref().map(|t| t.0);
    let first = event.event_time.as_ref().map(|t| t.0);
    series.or(last).or(first).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("shop", "shop-0", Some(0))]
    #[case("shop", "shop-12", Some(12))]
    #[case("shop", "shop-02", None)]
    #[case("shop", "shop-x", None)]
    #[case("shop", "shop-a-0", None)]
    #[case("shop", "shop-", None)]
    #[case("shop-a", "shop-0", None)]
    fn ordinals(#[case] cluster: &str, #[case] instance: &str, #[case] expected: Option<u32>) {
        assert_eq!(ordinal(cluster, instance), expected);
    }

    #[rstest]
    #[case("1Gi", Some(1 << 30))]
    #[case("1.5Gi", Some(3 << 29))]
    #[case("2e9", Some(2_000_000_000))]
    #[case("1500M", Some(1_500_000_000))]
    #[case("1500m", Some(2))]
    #[case("10737418240", Some(10_737_418_240))]
    #[case("much", None)]
    fn quantities(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(bytes(text), expected);
    }

    fn labels() -> serde_json::Value {
        json!({"mysql.mainstay.dev/cluster": "shop", "app.kubernetes.io/managed-by": "mainstay"})
    }

    #[test]
    fn a_pod_that_crashes_tells_why() {
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": "shop-0", "namespace": "db", "uid": "u", "labels": labels()},
            "spec": {"nodeName": "node-1", "containers": [{"name": "mysql", "image": "mysql:9.7.4"}],
                "volumes": [{"name": "config", "configMap": {"name": "shop-config-1a2b3c4d"}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.7",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [{"name": "mysql", "restartCount": 3, "ready": false, "image": "", "imageID": "",
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"exitCode": 1, "message": "unknown variable\n"}}}]}
        }))
        .unwrap();
        let entry = pod(&object).unwrap();
        assert_eq!(
            (entry.cluster, entry.name.as_str()),
            (ClusterName::new("db", "shop"), "shop-0")
        );
        let view = entry.value;
        assert_eq!(
            view.trouble.as_deref(),
            Some("mysql: CrashLoopBackOff: back-off (exit code 1: unknown variable)")
        );
        assert_eq!(view.config_map.as_deref(), Some("shop-config-1a2b3c4d"));
        assert_eq!(
            (view.restarts, view.ready, view.ip.as_deref()),
            (3, false, Some("10.0.0.7"))
        );
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is a literal")]
    fn backup_pod_with(status: serde_json::Value) -> BackupPodView {
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": "b-backup-x1", "namespace": "db", "uid": "u", "creationTimestamp": "2026-11-29T12:00:00Z",
                "labels": {"mysql.mainstay.dev/cluster": "shop", "mysql.mainstay.dev/backup": "b"}},
            "status": status
        }))
        .unwrap();
        assert!(pod(&object).is_none(), "it is no instance");
        backup_pod(&object).unwrap().value
    }

    #[test]
    fn the_pod_of_a_backup_tells_what_its_main_container_says() {
        let container = |name: &str, state: serde_json::Value| json!({"name": name, "restartCount": 0, "ready": false, "image": "", "imageID": "", "state": state});
        let running = backup_pod_with(json!({"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [
            container("sidecar", json!({"terminated": {"exitCode": 1}})),
            container("backup", json!({"running": {"startedAt": "2026-11-29T12:00:05Z"}}))]}));
        assert!(
            matches!(running.main, Main::Running { .. }) && running.job == "b-backup",
            "{running:?}"
        );
        let ended = backup_pod_with(json!({"phase": "Failed", "containerStatuses": [
            container("backup", json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "{}",
                "finishedAt": "2026-11-29T12:01:00Z"}}))]}));
        assert!(
            matches!(&ended.main, Main::Ended { code: 1, message, .. } if message == "{}"),
            "{ended:?}"
        );
        let killed = backup_pod_with(json!({"phase": "Failed", "containerStatuses": [
            container("backup", json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}))]}));
        assert!(
            matches!(&killed.main, Main::Ended { message, .. } if message == "OOMKilled"),
            "{killed:?}"
        );
        let evicted =
            backup_pod_with(json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}));
        assert!(
            matches!(&evicted.main, Main::Never { message, .. } if message.contains("low on memory")),
            "{evicted:?}"
        );
        assert_eq!(backup_pod_with(json!({"phase": "Pending"})).main, Main::Waiting);
    }

    #[test]
    fn a_job_tells_how_it_ended() {
        let end = |conditions: serde_json::Value| {
            let object: Job = serde_json::from_value(json!({
                "metadata": {"name": "b-backup", "namespace": "db", "uid": "u", "labels": labels()},
                "status": {"conditions": conditions}
            }))
            .unwrap();
            job(&object).unwrap().value.end
        };
        assert_eq!(end(json!([{"type": "Suspended", "status": "True"}])), JobEnd::Not);
        assert_eq!(end(json!([{"type": "Complete", "status": "True"}])), JobEnd::Complete);
        let failed =
            end(json!([{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "limit"}]));
        assert!(matches!(failed, JobEnd::Failed { message, .. } if message == "limit"));
    }

    #[test]
    fn a_pod_that_cannot_be_placed_tells_why() {
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": "shop-0", "namespace": "db", "uid": "u", "labels": labels()},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}
        }))
        .unwrap();
        assert_eq!(
            pod(&object).unwrap().value.trouble.as_deref(),
            Some("Unschedulable: 0/3 nodes")
        );
    }

    #[test]
    fn a_pod_that_its_node_does_not_answer_for_is_evicted() {
        let object = |deleted: bool, reason: &str| -> Pod {
            let mut object = json!({
                "metadata": {"name": "shop-0", "namespace": "db", "uid": "u", "labels": labels()},
                "status": {"phase": "Running", "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": reason}]}
            });
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
            }
            serde_json::from_value(object).unwrap()
        };
        let evicted = |deleted, reason| pod(&object(deleted, reason)).unwrap().value.evicted;
        assert!(evicted(true, "DeletionByTaintManager"));
        assert!(!evicted(false, "DeletionByTaintManager"));
        assert!(!evicted(true, "EvictionByEvictionAPI"));
    }

    #[test]
    fn a_claim_tells_its_class_and_the_node_of_its_volume() {
        let object: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "data-shop-0", "namespace": "db", "uid": "u", "labels": labels(),
                "annotations": {"volume.kubernetes.io/selected-node": "node-3"}},
            "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"}
        }))
        .unwrap();
        let view = claim(&object).unwrap().value;
        assert_eq!(
            (view.class.as_deref(), view.node.as_deref(), view.requested),
            (Some("fast"), Some("node-3"), Some(1 << 30))
        );
    }

    #[test]
    fn slices_that_kubernetes_writes_are_not_ours() {
        let slice = |manager: &str| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "s", "namespace": "db", "labels": {
                    "mysql.mainstay.dev/cluster": "shop", "endpointslice.kubernetes.io/managed-by": manager}}
            }))
            .unwrap()
        };
        assert!(object(slice("endpointslice-controller.k8s.io")).is_none());
        assert!(object(slice("mysql.mainstay.dev")).is_some());
    }

    #[test]
    fn warnings_are_kept_for_known_clusters_only() {
        let event: Event = serde_json::from_value(json!({
            "metadata": {"name": "e", "namespace": "db"},
            "involvedObject": {"kind": "PersistentVolumeClaim", "name": "data-shop-1", "namespace": "db", "uid": "u"},
            "reason": "ProvisioningFailed", "message": "no such class", "lastTimestamp": "2026-11-29T12:00:00Z"
        }))
        .unwrap();
        let shop = ClusterName::new("db", "shop");
        let entry = warning(&event, |cluster| *cluster == shop).unwrap();
        assert_eq!(entry.value.about, "PersistentVolumeClaim/data-shop-1");
        assert_eq!(entry.value.uid.as_deref(), Some("u"));
        assert!(warning(&event, |_| false).is_none());
    }
}
