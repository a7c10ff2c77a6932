//! From the declared spec to a value without contradictions.
//!
//! The API server has checked the schema and its CEL rules; here is what they cannot say: which variables are Mainstay's,
//! whether the memory is enough for what is configured, whether the overlay leaves the pod intact. All problems are
//! reported at once, each with its field and what to do about it. Everything behind this step is infallible.

mod overlay;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mainstay_api::MySQLCluster;
use mainstay_api::cluster::{DeletionPolicy, ImagePullPolicy, Resources, ServiceType};

use crate::action::Application;
use crate::names::{MAX_CLUSTER_NAME, Names};
use crate::quantity::Amount;
use crate::sizing::{self, Memory, Sizes};
pub use variables::Setting;

/// Lifetime of the server certificate unless the spec says otherwise: 90 days.
const CERTIFICATE_HOURS: u64 = 2160;

/// A field of the spec that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    /// Path of the field, for example `spec.config.server_id`.
    pub field: String,
    /// Why, and what to do.
    pub message: String,
}

impl SpecProblem {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// A cluster whose spec was checked, with every default resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedCluster {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the `MySQLCluster`.
    pub uid: String,
    /// metadata.generation of the spec.
    pub generation: i64,
    /// Number of instances, the primary included.
    pub replicas: u32,
    /// Image of the server.
    pub image: String,
    /// When it is pulled; `None`: Kubernetes' default.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets with which images are pulled.
    pub image_pull_secrets: Vec<String>,
    /// Volume of each instance.
    pub volume: Volume,
    /// Requests and limits of the mysql container.
    pub resources: Resources,
    /// Sizes that follow from memory and volume.
    pub sizes: Sizes,
    /// The user's variables by their normal name, in order.
    pub config: BTreeMap<String, Setting>,
    /// First application database and its owner.
    pub application: Option<Application>,
    /// Further DNS names of the server certificate.
    pub extra_dns_names: Vec<String>,
    /// Lifetime of the server certificate.
    pub certificate_lifetime: Duration,
    /// Read-write Service.
    pub primary_service: ServiceSettings,
    /// Service for reads.
    pub replicas_service: ServiceSettings,
    /// Reads go to the primary while no replica can serve them.
    pub fallback_to_primary: bool,
    /// Merged over the pod template.
    pub overlay: Option<PodTemplateSpec>,
    /// What happens to the claims when the cluster is deleted.
    pub deletion_policy: DeletionPolicy,
}

/// The claim of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Requested size, as written.
    pub size: Quantity,
    /// The same in bytes.
    pub bytes: u64,
    /// StorageClass; `None`: the default class.
    pub storage_class: Option<String>,
}

/// Type and annotations of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Type.
    pub service_type: ServiceType,
    /// Annotations that the user wants on it.
    pub annotations: BTreeMap<String, String>,
}

impl ValidatedCluster {
    /// Checks a declared cluster.
    ///
    /// # Errors
    /// Every field that cannot be accepted.
    pub fn new(cluster: &MySQLCluster) -> Result<Self, Vec<SpecProblem>> {
        let mut problems = Vec::new();
        let metadata = &cluster.metadata;
        let spec = &cluster.spec;
        let name = metadata.name.clone().unwrap_or_default();
        check_name(&name, &mut problems);
        let replicas = replicas(spec.replicas, &mut problems);
        let bytes = bytes(&spec.storage.size, "spec.storage.size", &mut problems).unwrap_or(sizing::SMALLEST_VOLUME);
        if bytes < sizing::SMALLEST_VOLUME {
            problems.push(SpecProblem::new("spec.storage.size", "at least 1Gi"));
        }
        let resources = spec.resources.clone().unwrap_or_default();
        let memory = memory(&resources, &mut problems);
        let config = variables::check(&spec.config, &mut problems);
        let wishes = variables::wishes(&config, &mut problems);
        let sizes = Sizes::new(memory, bytes, wishes);
        if let Err(contradiction) = &sizes {
            problems.push(SpecProblem::new(contradiction.field(), contradiction.to_string()));
        }
        let services = spec.services.clone().unwrap_or_default();
        let replicas_settings = services.replicas.unwrap_or_default();
        let primary_settings = services.primary.unwrap_or_default();
        let overlay = overlay::check(spec.pod_template.as_ref(), &Names::new("", name.as_str()), &mut problems);
        let tls = spec.tls.clone().unwrap_or_default();
        let initdb = spec.bootstrap.as_ref().and_then(|bootstrap| bootstrap.initdb.as_ref());
        let (Ok(sizes), true) = (sizes, problems.is_empty()) else { return Err(problems) };
        Ok(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name,
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            replicas,
            image: spec.image.clone(),
            image_pull_policy: spec.image_pull_policy,
            image_pull_secrets: spec.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect(),
            volume: Volume {
                size: spec.storage.size.clone(),
                bytes,
                storage_class: spec.storage.storage_class_name.clone(),
            },
            resources,
            sizes,
            config,
            application: initdb.map(|initdb| Application {
                database: initdb.database.clone(),
                user: initdb.user.clone().unwrap_or_else(|| initdb.database.clone()),
            }),
            extra_dns_names: tls.extra_dns_names.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
            certificate_lifetime: Duration::from_secs(
                tls.certificate_hours.and_then(|hours| u64::try_from(hours).ok()).unwrap_or(CERTIFICATE_HOURS) * 3600,
            ),
            primary_service: settings(primary_settings.type_, primary_settings.annotations),
            replicas_service: settings(replicas_settings.type_, replicas_settings.annotations),
            fallback_to_primary: replicas_settings.fallback_to_primary.unwrap_or(true),
            overlay,
            deletion_policy: spec.deletion_policy.unwrap_or_default(),
        })
    }

    /// The names of its objects.
    #[must_use]
    pub fn names(&self) -> Names {
        Names::new(self.namespace.as_str(), self.name.as_str())
    }

    /// DNS names of the server certificate, sorted.
    #[must_use]
    pub fn certificate_names(&self) -> Vec<String> {
        self.names().certificate_names(&self.extra_dns_names)
    }

    /// Whether passwords and CA go with the cluster: only when its claims do.
    #[must_use]
    pub fn deletes_data(&self) -> bool {
        self.deletion_policy == DeletionPolicy::Delete
    }
}

/// What admission has refused already, unless the definition on the API server is an older one.
fn check_name(name: &str, problems: &mut Vec<SpecProblem>) {
    if name.len() > MAX_CLUSTER_NAME {
        problems.push(SpecProblem::new("metadata.name", format!("at most {MAX_CLUSTER_NAME} characters")));
    }
}

fn replicas(wanted: i32, problems: &mut Vec<SpecProblem>) -> u32 {
    match u32::try_from(wanted) {
        Ok(count @ (1 | 3 | 5 | 7)) => count,
        Ok(_) | Err(_) => {
            problems.push(SpecProblem::new("spec.replicas", format!("{wanted} is not supported; use 1, 3, 5 or 7")));
            1
        }
    }
}

fn bytes(quantity: &Quantity, field: &str, problems: &mut Vec<SpecProblem>) -> Option<u64> {
    match quantity.0.parse::<Amount>() {
        Ok(amount) => Some(amount.units()),
        Err(error) => {
            problems.push(SpecProblem::new(field, error.to_string()));
            None
        }
    }
}

/// The memory of the mysql container, and whether the kernel enforces it.
fn memory(resources: &Resources, problems: &mut Vec<SpecProblem>) -> Memory {
    let mut read = |map: &BTreeMap<String, Quantity>, kind: &str| {
        for (resource, quantity) in map.iter().filter(|(resource, _)| *resource != "memory") {
            bytes(quantity, &format!("spec.resources.{kind}.{resource}"), problems);
        }
        map.get("memory").and_then(|quantity| bytes(quantity, &format!("spec.resources.{kind}.memory"), problems))
    };
    let (request, limit) = (read(&resources.requests, "requests"), read(&resources.limits, "limits"));
    match (limit, request) {
        (Some(limit), Some(request)) if request > limit => {
            problems.push(SpecProblem::new("spec.resources.requests.memory", "must not be larger than limits.memory"));
            Memory::Limited(limit)
        }
        (Some(limit), _) => Memory::Limited(limit),
        (None, Some(request)) => Memory::Unlimited(request),
        (None, None) => Memory::Unlimited(sizing::ASSUMED_MEMORY),
    }
}

fn settings(service_type: Option<ServiceType>, annotations: BTreeMap<String, String>) -> ServiceSettings {
    ServiceSettings { service_type: service_type.unwrap_or_default(), annotations }
}
