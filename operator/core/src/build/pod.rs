//! The pod of an instance: the user's stock MySQL image with Mainstay's instance manager as PID 1.

use std::collections::BTreeMap;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler,
    LocalObjectReference, ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecurityContext, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};
use k8s_openapi::api::core::v1::Capabilities;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Inputs;
use super::config::Config;
use crate::diff;
use crate::layout::{BIN_DIR, BINARY, PORT_ADMIN, PORT_GRPC, PORT_HTTP, PORT_MYSQL, env};
use crate::names::ANNOTATION_TEMPLATE;
use crate::validate::ValidatedCluster;

mod volumes;

/// Container with MySQL and the instance manager; overlays are merged into it by this name.
pub(crate) const CONTAINER: &str = "mysql";
/// Init container that copies the instance manager into the pod.
pub(crate) const INIT_CONTAINER: &str = "install";

/// User and group of MySQL in the stock images; the pod's volumes belong to it.
const MYSQL_USER: i64 = 999;
/// Above pre-stop (20 s) and a clean shutdown of a large buffer pool; the kubelet subtracts pre-stop (decision A13).
const GRACE_SECONDS: i64 = 300;
/// The kubelet may only end a startup that is stuck for a week: a recovery that makes progress is never killed.
const STARTUP_FAILURES: i32 = 604_800;

/// The pod template with the user's overlay over it and the hash of both among its annotations.
pub(super) fn template(cluster: &ValidatedCluster, inputs: &Inputs, config: &Config) -> PodTemplateSpec {
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(cluster.names().labels()), ..ObjectMeta::default() }),
        spec: Some(spec(cluster, inputs, config)),
    };
    if let Some(overlay) = &cluster.overlay {
        template.merge_from(overlay.clone());
    }
    let hash = template_hash(&template);
    let metadata = template.metadata.get_or_insert_default();
    metadata.annotations.get_or_insert_default().insert(ANNOTATION_TEMPLATE.to_owned(), hash);
    template
}

/// Hash by which a pod is known to be made from this template.
#[must_use]
pub fn template_hash(template: &PodTemplateSpec) -> String {
    diff::hash(&serde_json::to_value(template).unwrap_or_default())
}

fn spec(cluster: &ValidatedCluster, inputs: &Inputs, config: &Config) -> PodSpec {
    let secrets = cluster.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
    let secrets: Vec<LocalObjectReference> = secrets.collect();
    PodSpec {
        service_account_name: Some(cluster.names().service_account()),
        automount_service_account_token: Some(false),
        // Environment variables of every Service of the namespace help nobody and make large pods slow to start.
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(MYSQL_USER),
            run_as_group: Some(MYSQL_USER),
            fs_group: Some(MYSQL_USER),
            // Changing the owner of every file of a large volume at each start would take minutes.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        affinity: Some(affinity(cluster)),
        topology_spread_constraints: Some(vec![spread(cluster)]),
        init_containers: Some(vec![install(inputs)]),
        containers: vec![mysql(cluster, inputs, config)],
        volumes: Some(volumes::volumes(cluster, &config.name)),
        ..PodSpec::default()
    }
}

/// Two instances on one node die together: avoided, but not at the price of an instance that is not scheduled.
fn affinity(cluster: &ValidatedCluster) -> Affinity {
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    label_selector: Some(selector(cluster)),
                    ..PodAffinityTerm::default()
                },
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn spread(cluster: &ValidatedCluster) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "topology.kubernetes.io/zone".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(selector(cluster)),
        ..TopologySpreadConstraint::default()
    }
}

fn selector(cluster: &ValidatedCluster) -> LabelSelector {
    LabelSelector { match_labels: Some(cluster.names().selector()), ..LabelSelector::default() }
}

/// Copies the operator's own static binary to where the mysql container finds it.
fn install(inputs: &Inputs) -> Container {
    Container {
        name: INIT_CONTAINER.to_owned(),
        image: Some(inputs.operator_image.clone()),
        args: Some(["instance", "install", "--to", BINARY].map(str::to_owned).to_vec()),
        security_context: Some(restricted()),
        resources: Some(quantities(&[("cpu", "10m"), ("memory", "32Mi")], &[("memory", "128Mi")])),
        volume_mounts: Some(vec![volumes::mount("bin", BIN_DIR, false)]),
        ..Container::default()
    }
}

fn mysql(cluster: &ValidatedCluster, inputs: &Inputs, config: &Config) -> Container {
    Container {
        name: CONTAINER.to_owned(),
        image: Some(cluster.image.clone()),
        image_pull_policy: cluster.image_pull_policy.map(|policy| policy.as_str().to_owned()),
        command: Some([BINARY, "instance", "run"].map(str::to_owned).to_vec()),
        env: Some(environment(cluster, inputs, config)),
        ports: Some(vec![
            port("mysql", PORT_MYSQL),
            port("admin", PORT_ADMIN),
            port("grpc", PORT_GRPC),
            port("http", PORT_HTTP),
        ]),
        resources: Some(ResourceRequirements {
            requests: present(&cluster.resources.requests),
            limits: present(&cluster.resources.limits),
            ..ResourceRequirements::default()
        }),
        startup_probe: Some(probe("/startup", STARTUP_FAILURES)),
        readiness_probe: Some(probe("/ready", 2)),
        // Only a manager that is stuck is restarted by the kubelet; it supervises mysqld itself.
        liveness_probe: Some(Probe { period_seconds: Some(10), ..probe("/live", 6) }),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some([BINARY, "instance", "pre-stop"].map(str::to_owned).to_vec()),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        security_context: Some(restricted()),
        volume_mounts: Some(volumes::mounts(cluster)),
        ..Container::default()
    }
}

fn environment(cluster: &ValidatedCluster, inputs: &Inputs, config: &Config) -> Vec<EnvVar> {
    let value = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    };
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() }),
            ..EnvVarSource::default()
        }),
    };
    vec![
        value(env::NAMESPACE, cluster.names().namespace()),
        value(env::CLUSTER, cluster.names().cluster()),
        field(env::INSTANCE, "metadata.name"),
        field(env::POD_IP, "status.podIP"),
        value(env::SERVER_ID_BASE, &inputs.server_id_base.to_string()),
        value(env::CONFIG_HASH, &config.hash),
    ]
}

fn port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(PORT_HTTP)),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(1),
        timeout_seconds: Some(2),
        success_threshold: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// What the Pod Security level "restricted" asks of a container, and a read-only root besides.
fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        ..SecurityContext::default()
    }
}

fn present(quantities: &BTreeMap<String, Quantity>) -> Option<BTreeMap<String, Quantity>> {
    (!quantities.is_empty()).then(|| quantities.clone())
}

fn quantities(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned()))).collect()
    };
    ResourceRequirements {
        requests: Some(map(requests)),
        limits: Some(map(limits)),
        ..ResourceRequirements::default()
    }
}
