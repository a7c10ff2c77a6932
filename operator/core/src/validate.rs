//! From the declared spec to a value without contradictions.
//!
//! The API server has checked the schema and its CEL rules; here is what they cannot say: which variables are Mainstay's,
//! whether the memory is enough for what is configured, whether the overlay leaves the pod intact. All problems are
//! reported at once, each with its field and what to do about it. Everything behind this step is infallible.

mod backup;
mod metadata;
mod overlay;
mod variables;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use mainstay_api::MySQLCluster;
use mainstay_api::cluster::{
    DeletionPolicy, Durability, FormerData, Healing, ImagePullPolicy, InitDb, Resources, ServiceType, Services,
    Storage, Volumes,
};
use mainstay_api::recovery::Recovery;

use crate::action::Application;
use crate::backup::restore::Target;
use crate::names::{self, Names};
use crate::quantity::Amount;
use crate::sizing::{self, Memory, Sizes};
pub use backup::{Backup, Destination};
pub use variables::Setting;

/// The largest volume that can be declared: InnoDB's largest table four times over. What is larger is a unit that slipped.
const LARGEST_VOLUME: u64 = 256 << 40;
/// The largest memory of a container that can be declared.
const LARGEST_MEMORY: u64 = 64 << 40;
/// Kubernetes takes everything above for this.
const LARGEST_QUANTITY: u64 = i64::MAX.unsigned_abs();
/// Starts that have to fail before a data directory is broken, unless the spec says otherwise.
pub(crate) const FAILED_STARTS: u32 = 3;
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
        Self {
            field: field.into(),
            message: message.into(),
        }
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
    /// What comes first when too few replicas can acknowledge.
    pub durability: Durability,
    /// What becomes of a data directory that is replaced.
    pub former_data: FormerData,
    /// What is replaced by itself.
    pub healing: HealingPolicy,
    /// Merged over the pod template.
    pub overlay: Option<PodTemplateSpec>,
    /// What happens to the claims when the cluster is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Backups and the archive; `None`: there are none.
    pub backup: Option<Box<Backup>>,
    /// The data with which the cluster begins; `None`: it begins empty.
    pub recovery: Option<RecoveryWish>,
}

/// The data with which a cluster begins (`spec.bootstrap.recovery`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryWish {
    /// As it was declared: the source and its keys.
    pub declared: Recovery,
    /// Up to which point.
    pub target: Target,
    /// Digest of what was declared. An instance reports it with its data, so that data that were recovered for another
    /// wish, and kept, are told from those that are wanted.
    pub request: String,
}

/// What is replaced by itself (`spec.healing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealingPolicy {
    /// After so many starts that failed because of what is in it, a data directory is broken.
    pub failed_starts: u32,
    /// Whether volumes are replaced.
    pub volumes: Volumes,
}

impl HealingPolicy {
    fn new(declared: Option<&Healing>) -> Self {
        let starts = declared.and_then(|healing| healing.failed_starts);
        Self {
            failed_starts: starts
                .and_then(|starts| u32::try_from(starts).ok())
                .unwrap_or(FAILED_STARTS),
            volumes: declared.and_then(|healing| healing.volumes).unwrap_or_default(),
        }
    }
}

/// The claim of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// Requested size, as written.
    pub size: Quantity,
    /// The same in bytes.
    pub bytes: u64,
    /// Up to so many bytes it grows by itself; `None`: it does not.
    pub most: Option<u64>,
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
        let checked = Checked::new(cluster, &mut problems);
        match (checked.sizes, problems.is_empty()) {
            (Some(sizes), true) => Ok(Self::assemble(cluster, checked, sizes)),
            (Some(_) | None, _) => Err(problems),
        }
    }

    /// What was checked, and what needs no check because it has a default or goes straight into an object.
    fn assemble(cluster: &MySQLCluster, checked: Checked, sizes: Sizes) -> Self {
        let metadata = cluster.metadata.clone();
        let spec = cluster.spec.clone();
        let services = spec.services.unwrap_or_default();
        let (primary, replicas) = (
            services.primary.unwrap_or_default(),
            services.replicas.unwrap_or_default(),
        );
        let failover = spec.failover.unwrap_or_default();
        let tls = spec.tls.unwrap_or_default();
        let hours = tls.certificate_hours.and_then(|hours| u64::try_from(hours).ok());
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            replicas: checked.replicas,
            image: spec.image,
            image_pull_policy: spec.image_pull_policy,
            image_pull_secrets: spec.image_pull_secrets.into_iter().map(|secret| secret.name).collect(),
            volume: Volume {
                size: spec.storage.size,
                bytes: checked.bytes,
                most: checked.most,
                storage_class: spec.storage.storage_class_name,
            },
            resources: spec.resources.unwrap_or_default(),
            sizes,
            config: checked.config,
            application: spec.bootstrap.and_then(|bootstrap| bootstrap.initdb).map(application),
            extra_dns_names: tls.extra_dns_names,
            certificate_lifetime: Duration::from_hours(hours.unwrap_or(CERTIFICATE_HOURS)),
            primary_service: settings(primary.type_, primary.annotations),
            replicas_service: settings(replicas.type_, replicas.annotations),
            fallback_to_primary: replicas.fallback_to_primary.unwrap_or(true),
            durability: failover.durability.unwrap_or_default(),
            former_data: failover.former_data.unwrap_or_default(),
            healing: HealingPolicy::new(spec.healing.as_ref()),
            overlay: checked.overlay,
            deletion_policy: spec.deletion_policy.unwrap_or_default(),
            backup: checked.backup,
            recovery: checked.recovery,
        }
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

/// What had to be checked.
struct Checked {
    replicas: u32,
    bytes: u64,
    most: Option<u64>,
    config: BTreeMap<String, Setting>,
    sizes: Option<Sizes>,
    overlay: Option<PodTemplateSpec>,
    backup: Option<Box<Backup>>,
    recovery: Option<RecoveryWish>,
}

impl Checked {
    fn new(cluster: &MySQLCluster, problems: &mut Vec<SpecProblem>) -> Self {
        let spec = &cluster.spec;
        let name = cluster.metadata.name.clone().unwrap_or_default();
        check_name(&name, problems);
        let replicas = replicas(spec.replicas, problems);
        let bytes = volume(&spec.storage.size, "spec.storage.size", problems);
        let most = most(&spec.storage, bytes, problems);
        let memory = spec
            .resources
            .as_ref()
            .map_or(Memory::Unlimited(sizing::ASSUMED_MEMORY), |resources| {
                memory(resources, problems)
            });
        let config = variables::check(&spec.config, problems);
        let wishes = variables::wishes(&config, problems);
        let sizes = Sizes::new(memory, bytes, wishes);
        if let Err(contradiction) = &sizes {
            problems.push(SpecProblem::new(contradiction.field(), contradiction.to_string()));
        }
        let volume = Volume {
            size: spec.storage.size.clone(),
            bytes,
            most,
            storage_class: spec.storage.storage_class_name.clone(),
        };
        let backup = spec.backup.as_ref();
        let backup = backup.map(|wish| Box::new(Backup::new(wish, &volume, problems)));
        let recovery = spec
            .bootstrap
            .as_ref()
            .and_then(|bootstrap| bootstrap.recovery.as_deref())
            .map(|declared| backup::recovery(declared, problems));
        services(spec.services.as_ref(), problems);
        let overlay = overlay::check(spec.pod_template.as_ref(), &Names::new("", name), problems);
        Self {
            replicas,
            bytes,
            most,
            config,
            sizes: sizes.ok(),
            overlay,
            backup,
            recovery,
        }
    }
}

/// What admission has refused already, unless the definition on the API server is an older one.
fn check_name(name: &str, problems: &mut Vec<SpecProblem>) {
    problems.extend(names::refusal(name).map(|message| SpecProblem::new("metadata.name", message)));
}

/// Whether a cluster may have that many instances.
pub(crate) const fn is_supported(replicas: u32) -> bool {
    matches!(replicas, 1 | 3 | 5 | 7)
}

fn replicas(wanted: i32, problems: &mut Vec<SpecProblem>) -> u32 {
    if let Ok(replicas) = u32::try_from(wanted)
        && is_supported(replicas)
    {
        return replicas;
    }
    let message = format!("{wanted} is not supported; use 1, 3, 5 or 7");
    problems.push(SpecProblem::new("spec.replicas", message));
    1
}

fn volume(size: &Quantity, field: &str, problems: &mut Vec<SpecProblem>) -> u64 {
    match bytes(size, field, problems) {
        Some(bytes) if bytes < sizing::SMALLEST_VOLUME => {
            problems.push(SpecProblem::new(field, "at least 1Gi"));
            sizing::SMALLEST_VOLUME
        }
        Some(bytes) if bytes > LARGEST_VOLUME => {
            let message = format!("{} is more than any volume holds; at most 256Ti", size.0);
            problems.push(SpecProblem::new(field, message));
            sizing::SMALLEST_VOLUME
        }
        Some(bytes) => bytes,
        None => sizing::SMALLEST_VOLUME,
    }
}

/// How far volumes grow by themselves, if they do.
fn most(storage: &Storage, size: u64, problems: &mut Vec<SpecProblem>) -> Option<u64> {
    let (declared, field) = (storage.max_size.as_ref()?, "spec.storage.maxSize");
    let most = volume(declared, field, problems);
    if most < size {
        let message = format!(
            "{} is less than size; raise it, or remove it if volumes shall not grow",
            declared.0
        );
        problems.push(SpecProblem::new(field, message));
        return None;
    }
    Some(most)
}

fn bytes(quantity: &Quantity, field: &str, problems: &mut Vec<SpecProblem>) -> Option<u64> {
    match quantity.0.parse::<Amount>() {
        Ok(amount) if amount.units() > LARGEST_QUANTITY => {
            let message = format!(
                "{} is more than Kubernetes can count; is the unit the right one?",
                quantity.0
            );
            problems.push(SpecProblem::new(field, message));
            None
        }
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
        let (quantity, field) = (map.get("memory")?, format!("spec.resources.{kind}.memory"));
        let memory = bytes(quantity, &field, problems)?;
        if memory > LARGEST_MEMORY {
            let message = format!("{} is more than any node has; at most 64Ti", quantity.0);
            problems.push(SpecProblem::new(field, message));
            return None;
        }
        Some(memory)
    };
    let (request, limit) = (read(&resources.requests, "requests"), read(&resources.limits, "limits"));
    match (limit, request) {
        (Some(limit), Some(request)) if request > limit => {
            problems.push(SpecProblem::new(
                "spec.resources.requests.memory",
                "must not be larger than limits.memory",
            ));
            Memory::Limited(limit)
        }
        (Some(limit), _) => Memory::Limited(limit),
        (None, Some(request)) => Memory::Unlimited(request),
        (None, None) => Memory::Unlimited(sizing::ASSUMED_MEMORY),
    }
}

/// Annotations of the Services.
fn services(services: Option<&Services>, problems: &mut Vec<SpecProblem>) {
    let Some(services) = services else { return };
    let primary = services.primary.as_ref().map(|service| &service.annotations);
    let replicas = services.replicas.as_ref().map(|service| &service.annotations);
    for (name, annotations) in [("primary", primary), ("replicas", replicas)] {
        let Some(annotations) = annotations else { continue };
        let field = format!("spec.services.{name}.annotations");
        metadata::check(&field, metadata::Kind::Annotations, annotations, problems);
        for key in annotations.keys().filter(|key| key.starts_with(names::DOMAIN_PREFIX)) {
            problems.push(SpecProblem::new(
                format!("{field}[{key}]"),
                "is set by Mainstay; remove it",
            ));
        }
    }
}

fn application(initdb: InitDb) -> Application {
    let user = initdb.user.unwrap_or_else(|| initdb.database.clone());
    Application {
        database: initdb.database,
        user,
    }
}

fn settings(service_type: Option<ServiceType>, annotations: BTreeMap<String, String>) -> ServiceSettings {
    ServiceSettings {
        service_type: service_type.unwrap_or_default(),
        annotations,
    }
}
