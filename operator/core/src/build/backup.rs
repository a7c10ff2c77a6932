//! The Job of a backup (docs/backup.md, "The Job"), and what that of a verification shares with it.

use std::collections::BTreeMap;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EphemeralVolumeSource,
    LocalObjectReference, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PodAffinityTerm, PodAntiAffinity,
    PodSpec, PodTemplateSpec, Probe, ResourceRequirements, Volume, VolumeMount, VolumeResourceRequirements,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::config_map::config_hash;
use super::pod::{self, container_security, pod_security, probe, volumes, words};
use super::{map, metadata};
use crate::backup::wire::Task;
use crate::layout;
use crate::names::{ANNOTATION_BACKUP_UID, ANNOTATION_DONOR, LABEL_BACKUP, LABEL_CLUSTER, LABEL_ROLE};
use crate::validate::ValidatedCluster;

/// Container that makes the backup: what it says counts, whatever else runs in the pod (case F24).
pub const BACKUP_CONTAINER: &str = "backup";

/// Time to abort an upload.
const GRACE_SECONDS: i64 = 60;

/// A small mysqld, and the parts of an upload that are in memory.
const REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "512Mi")];
const MEMORY_LIMIT: &str = "1Gi";

const DATA: &str = "data";
const RUN: &str = "run";
const CONFIG: &str = "config";
const CLONE: &str = "clone";
const CA: &str = "ca";
const STORE: &str = "store";

/// A backup that is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupStart {
    /// The `MySQLBackup`.
    pub backup: String,
    /// Its uid.
    pub uid: String,
    /// Name of the Job.
    pub job: String,
    /// What it is to do.
    pub task: Task,
}

/// The Job. It is created and never changed.
#[must_use]
pub fn backup_job(cluster: &ValidatedCluster, operator_image: &str, start: &BackupStart) -> Job {
    let labels = labels(cluster, LABEL_BACKUP, &start.backup);
    let container = container(cluster, &start.task);
    let pod = spec(cluster, operator_image, container, of_pod(cluster, &labels));
    let annotations = map([
        (ANNOTATION_BACKUP_UID, start.uid.as_str()),
        (ANNOTATION_DONOR, start.task.donor.instance.as_str()),
    ]);
    job(cluster, &start.job, labels, annotations, pod)
}

/// A Job of one pod, which is never restarted.
pub(super) fn job(
    cluster: &ValidatedCluster,
    name: &str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    pod: PodSpec,
) -> Job {
    Job {
        metadata: ObjectMeta {
            labels: Some(labels.clone()),
            annotations: Some(annotations),
            // The cluster's, and not the MySQLBackup's, which outlives it: whatever is deleted, no volume is left behind.
            ..metadata(cluster, name.to_owned())
        },
        spec: Some(JobSpec {
            // Half a copy is no beginning: what failed is begun anew, by another Job and from a donor of then.
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            template: template(cluster, labels, pod),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Not those of an instance: no Service, budget or selector of the database may find this pod.
pub(super) fn labels(cluster: &ValidatedCluster, about: &str, backup: &str) -> BTreeMap<String, String> {
    let mut labels = cluster.names().labels_of_backup();
    labels.insert(about.to_owned(), backup.to_owned());
    labels
}

fn template(cluster: &ValidatedCluster, labels: BTreeMap<String, String>, pod: PodSpec) -> PodTemplateSpec {
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            ..Default::default()
        }),
        spec: Some(pod),
    };
    if let Some(overlay) = &cluster.overlay {
        template.merge_from(of_every_pod(overlay));
    }
    if let Some(spec) = &mut template.spec {
        spec.restart_policy = Some("Never".to_owned());
        spec.termination_grace_period_seconds = Some(GRACE_SECONDS);
    }
    template
}

/// The part of `spec.podTemplate` that is about any pod: labels, annotations, scheduling, pod security, pull secrets. Not the containers
/// of an instance and their volumes, and not how instances are kept apart from each other: this is none.
fn of_every_pod(overlay: &PodTemplateSpec) -> PodTemplateSpec {
    let mut overlay = overlay.clone();
    if let Some(spec) = &mut overlay.spec {
        spec.containers = Vec::new();
        spec.init_containers = None;
        spec.volumes = None;
        spec.topology_spread_constraints = None;
        if let Some(affinity) = &mut spec.affinity {
            affinity.pod_affinity = None;
            affinity.pod_anti_affinity = None;
        }
    }
    overlay
}

pub(super) fn spec(
    cluster: &ValidatedCluster,
    operator_image: &str,
    container: Container,
    volumes: Vec<Volume>,
) -> PodSpec {
    let pull_secrets = cluster
        .image_pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    PodSpec {
        init_containers: Some(vec![pod::install(operator_image, Some(resources(cluster)))]),
        containers: vec![container],
        volumes: Some(volumes),
        image_pull_secrets: Some(pull_secrets.collect::<Vec<_>>()).filter(|secrets| !secrets.is_empty()),
        // What the platform grants to the instances (identity: pod) is granted to it. There is no token.
        service_account_name: Some(cluster.names().service_account()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(pod_security()),
        affinity: Some(away_from_the_primary(cluster)),
        ..Default::default()
    }
}

fn container(cluster: &ValidatedCluster, task: &Task) -> Container {
    let mut container = program(cluster, BACKUP_CONTAINER, (layout::env::BACKUP, task.to_text()));
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.push(mount(CLONE, layout::SYSTEM_SECRET_DIR, true));
    container
}

pub(super) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..Default::default()
    }
}

/// A program of the instance manager with its task; what is judged in the end is the container of its name.
pub(super) fn program(cluster: &ValidatedCluster, name: &str, (variable, task): (&str, String)) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(cluster.image.clone()),
        image_pull_policy: cluster.image_pull_policy.map(|policy| policy.as_str().to_owned()),
        command: Some(words(&[layout::BINARY, "instance", name])),
        env: Some(vec![EnvVar {
            name: variable.to_owned(),
            value: Some(task),
            ..Default::default()
        }]),
        ports: Some(vec![pod::port("http", layout::PORT_HTTP)]),
        resources: Some(resources(cluster)),
        security_context: Some(container_security()),
        volume_mounts: Some(vec![
            mount(DATA, layout::VOLUME, false),
            mount(RUN, layout::RUN_DIR, false),
            mount(volumes::BIN, layout::BIN_DIR, true),
            mount(CONFIG, layout::CONFIG_DIR, true),
            mount(CA, layout::SERVER_TLS_DIR, true),
            mount(STORE, layout::STORE_DIR, true),
        ]),
        // A program that hangs notices nothing itself. That nothing moves it does notice.
        liveness_probe: Some(Probe {
            failure_threshold: Some(10),
            timeout_seconds: Some(5),
            ..probe("/live", 30)
        }),
        ..Default::default()
    }
}

/// Bounded, whatever the instances have: the server is small, and data is streamed. A quota that counts processors finds the limit
/// of the instances.
fn resources(cluster: &ValidatedCluster) -> ResourceRequirements {
    let quantity = |(name, value): (&str, &str)| (name.to_owned(), Quantity(value.to_owned()));
    let mut limits = BTreeMap::from([quantity(("memory", MEMORY_LIMIT))]);
    let cpu = cluster.resources.limits.get("cpu");
    limits.extend(cpu.map(|cpu| ("cpu".to_owned(), cpu.clone())));
    let mut requests: BTreeMap<_, _> = REQUESTS.map(quantity).into();
    // A request above the limit would be refused.
    requests.extend(cpu.map(|cpu| ("cpu".to_owned(), cpu.clone())));
    ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        ..Default::default()
    }
}

/// On another node than the primary's where that is possible. The role label is for people; a preference may read it.
fn away_from_the_primary(cluster: &ValidatedCluster) -> Affinity {
    let primary = map([(LABEL_CLUSTER, cluster.name.as_str()), (LABEL_ROLE, "primary")]);
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    label_selector: Some(LabelSelector {
                        match_labels: Some(primary),
                        ..Default::default()
                    }),
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    ..Default::default()
                },
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn of_pod(cluster: &ValidatedCluster, labels: &BTreeMap<String, String>) -> Vec<Volume> {
    let mut volumes = of_every_program(cluster, labels);
    // Of Mainstay's passwords the one that copies.
    volumes.push(volumes::secret(CLONE, cluster.names().system_secret(), &["clone"]));
    volumes
}

/// What a program with a server of its own needs.
pub(super) fn of_every_program(cluster: &ValidatedCluster, labels: &BTreeMap<String, String>) -> Vec<Volume> {
    let names = cluster.names();
    vec![
        copy(cluster, labels),
        volumes::empty(
            RUN,
            EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(Quantity("32Mi".to_owned())),
            },
        ),
        volumes::empty(volumes::BIN, EmptyDirVolumeSource::default()),
        Volume {
            name: CONFIG.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: names.config_map(&config_hash(cluster)),
                ..Default::default()
            }),
            ..Default::default()
        },
        // Of the certificates none with a key.
        volumes::secret(CA, names.server_tls_secret(), &["ca.crt"]),
        volumes::secret(STORE, names.store_secret(), &[]),
    ]
}

/// The volume on which the data is copied. It comes and goes with the pod, so that nobody needs a right over claims for it
/// (ADR 0011).
fn copy(cluster: &ValidatedCluster, labels: &BTreeMap<String, String>) -> Volume {
    let volume = cluster.backup.as_ref().map_or(&cluster.volume, |backup| &backup.volume);
    Volume {
        name: DATA.to_owned(),
        ephemeral: Some(EphemeralVolumeSource {
            volume_claim_template: Some(PersistentVolumeClaimTemplate {
                metadata: Some(ObjectMeta {
                    labels: Some(labels.clone()),
                    ..Default::default()
                }),
                spec: PersistentVolumeClaimSpec {
                    access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                    storage_class_name: volume.storage_class.clone(),
                    resources: Some(VolumeResourceRequirements {
                        requests: Some([("storage".to_owned(), volume.size.clone())].into()),
                        ..Default::default()
                    }),
                    ..Default::default()
                },
            }),
        }),
        ..Default::default()
    }
}
