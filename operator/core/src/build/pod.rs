//! The pod of an instance: the user's image with the instance manager as its first process.

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, HTTPGetAction, Lifecycle,
    LifecycleHandler, LocalObjectReference, ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext,
    PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, TopologySpreadConstraint,
    VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Inputs;
use super::config_map::config_hash;
use crate::diff;
use crate::layout::{self, env};
use crate::names::ANNOTATION_TEMPLATE;
use crate::validate::ValidatedCluster;

pub(super) mod volumes;

pub(super) use volumes::NAMES as VOLUMES;

/// Container with the server and its manager.
pub const MYSQL_CONTAINER: &str = "mysql";
/// Init container that copies the instance manager into the pod.
pub const INSTALL_CONTAINER: &str = "install";

/// Ports of the mysql container.
pub(super) const PORTS: [(&str, u16); 4] = [
    ("mysql", layout::PORT_MYSQL),
    ("admin", layout::PORT_ADMIN),
    ("grpc", layout::PORT_GRPC),
    ("http", layout::PORT_HTTP),
];

/// User and group of MySQL's official images.
const MYSQL_USER: i64 = 999;
/// Time for the pre-stop hook (20 s at most) and a clean end of a large server.
const GRACE_SECONDS: i64 = 300;
/// A startup probe may fail as often as this, once a second: a year. A recovery or a clone is never killed by a probe.
const STARTUP_FAILURES: i32 = 31_536_000;

/// The pod template, the overlay merged into it and its hash among its annotations.
pub(super) fn template(cluster: &ValidatedCluster, inputs: &Inputs) -> PodTemplateSpec {
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(cluster.names().labels()),
            ..Default::default()
        }),
        spec: Some(spec(cluster, inputs)),
    };
    if let Some(overlay) = cluster.overlay.clone() {
        template.merge_from(overlay);
    }
    let hash = template_hash(&template);
    if let Some(metadata) = &mut template.metadata {
        metadata
            .annotations
            .get_or_insert_default()
            .insert(ANNOTATION_TEMPLATE.to_owned(), hash);
    }
    template
}

/// Hash of a template, without the annotation that holds it: a pod with another one is outdated.
#[must_use]
pub fn template_hash(template: &PodTemplateSpec) -> String {
    let mut plain = template.clone();
    if let Some(annotations) = plain
        .metadata
        .as_mut()
        .and_then(|metadata| metadata.annotations.as_mut())
    {
        annotations.remove(ANNOTATION_TEMPLATE);
    }
    if let Some(metadata) = plain.metadata.as_mut() {
        metadata.annotations = metadata
            .annotations
            .take()
            .filter(|annotations| !annotations.is_empty());
    }
    diff::hash(&serde_json::to_value(plain).unwrap_or_default())
}

fn spec(cluster: &ValidatedCluster, inputs: &Inputs) -> PodSpec {
    let pull_secrets = cluster
        .image_pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    let selector = LabelSelector {
        match_labels: Some(cluster.names().selector()),
        ..Default::default()
    };
    PodSpec {
        init_containers: Some(vec![install(&inputs.operator_image, resources(cluster))]),
        containers: vec![mysql(cluster, inputs)],
        volumes: Some(volumes::of_pod(cluster)),
        image_pull_secrets: Some(pull_secrets.collect::<Vec<_>>()).filter(|secrets| !secrets.is_empty()),
        service_account_name: Some(cluster.names().service_account()),
        automount_service_account_token: Some(false),
        // Variables such as MYSQL_PORT of other Services would reach the server's tools.
        enable_service_links: Some(false),
        security_context: Some(pod_security()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        affinity: Some(apart(&selector)),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "topology.kubernetes.io/zone".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(selector),
            ..Default::default()
        }]),
        ..Default::default()
    }
}

/// Copies the manager out of the operator's image: the server's image needs no preparation.
pub(super) fn install(operator_image: &str, resources: Option<ResourceRequirements>) -> Container {
    Container {
        name: INSTALL_CONTAINER.to_owned(),
        image: Some(operator_image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(words(&["instance", "install"])),
        // A quota may demand resources of every container; a pod is not larger for it, because it ends before MySQL starts.
        resources,
        security_context: Some(container_security()),
        volume_mounts: Some(vec![VolumeMount {
            name: volumes::BIN.to_owned(),
            mount_path: layout::BIN_DIR.to_owned(),
            ..Default::default()
        }]),
        ..Default::default()
    }
}

fn mysql(cluster: &ValidatedCluster, inputs: &Inputs) -> Container {
    Container {
        name: MYSQL_CONTAINER.to_owned(),
        image: Some(cluster.image.clone()),
        image_pull_policy: cluster.image_pull_policy.map(|policy| policy.as_str().to_owned()),
        command: Some(words(&[layout::BINARY, "instance", "run"])),
        env: Some(environment(cluster, inputs)),
        ports: Some(PORTS.iter().map(|(name, number)| port(name, *number)).collect()),
        resources: resources(cluster),
        security_context: Some(container_security()),
        volume_mounts: Some(volumes::of_mysql(cluster)),
        startup_probe: Some(Probe {
            failure_threshold: Some(STARTUP_FAILURES),
            ..probe("/startup", 1)
        }),
        readiness_probe: Some(Probe {
            failure_threshold: Some(2),
            ..probe("/ready", 1)
        }),
        // The manager itself hangs: rare, and a restart costs a crash recovery. It is not asked often.
        liveness_probe: Some(Probe {
            failure_threshold: Some(6),
            timeout_seconds: Some(5),
            ..probe("/live", 10)
        }),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(words(&[layout::BINARY, "instance", "pre-stop"])),
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn environment(cluster: &ValidatedCluster, inputs: &Inputs) -> Vec<EnvVar> {
    let value = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..Default::default()
    };
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut environment = vec![
        value(env::NAMESPACE, &cluster.namespace),
        value(env::CLUSTER, &cluster.name),
        field(env::INSTANCE, "metadata.name"),
        field(env::POD_IP, "status.podIP"),
        value(env::SERVER_ID_BASE, &inputs.server_id_base.to_string()),
        value(env::CONFIG_HASH, &config_hash(cluster)),
    ];
    // It never changes in the life of a cluster, so that the end of a recovery restarts no server.
    environment.extend(cluster.recovery.iter().map(|wish| value(env::RECOVERY, &wish.request)));
    environment
}

fn resources(cluster: &ValidatedCluster) -> Option<ResourceRequirements> {
    let declared = &cluster.resources;
    let some = |map: &std::collections::BTreeMap<_, _>| Some(map.clone()).filter(|map| !map.is_empty());
    let resources = ResourceRequirements {
        requests: some(&declared.requests),
        limits: some(&declared.limits),
        ..Default::default()
    };
    Some(resources).filter(|resources| resources.requests.is_some() || resources.limits.is_some())
}

pub(super) fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    }
}

pub(super) fn probe(path: &str, period: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(layout::PORT_HTTP)),
            ..Default::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(1),
        ..Default::default()
    }
}

/// Pod security standard "restricted".
pub(super) fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(MYSQL_USER),
        run_as_group: Some(MYSQL_USER),
        fs_group: Some(MYSQL_USER),
        // Not file by file at each start: that takes minutes on a large volume.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(words(&["ALL"])),
            ..Default::default()
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Instances on different nodes where that is possible; a cluster larger than the set of nodes still starts.
fn apart(selector: &LabelSelector) -> Affinity {
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    label_selector: Some(selector.clone()),
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    ..Default::default()
                },
            }]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
