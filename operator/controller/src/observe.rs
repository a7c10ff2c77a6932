//! Observe: what is known of a cluster, as a value. No decision, and no request but for names that others hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use mainstay_api::{MySQLCluster, REQUEST_ANNOTATION};
use mainstay_core::names::Names;
use mainstay_core::observed::{
    InstanceObserved, ObjectKey, ObjectKind, ObjectView, Observed, Reach, SecretsView, StoreSecret, Warning,
};
use mainstay_core::rules::InstanceName;
use mainstay_core::status;
use mainstay_core::validate::Destination;

use crate::backups;
use crate::context::Context;
use crate::index::ClusterName;
use crate::kinds;
use crate::pki;
use crate::secret_data::{CA_CRT, Redacted, TLS_CRT};
use crate::user_secrets::Version;
use crate::views;

/// Looks again at the objects that hold our names and are not ours, when that is due.
pub(crate) async fn look_at_foreign(context: &Context, cluster: &ClusterName, uid: &str) -> Result<(), kube::Error> {
    for (key, _, due) in context.memories.foreigners(cluster) {
        if !due {
            continue;
        }
        let objects = context.requests.dynamic(&cluster.namespace, &kinds::resource(key.kind));
        match objects.get(&key.name).await? {
            Some(object) if !is_ours(&object.metadata, cluster, uid) => {
                context.memories.foreign(cluster, &key, view(&object, false, false));
            }
            Some(_) | None => context.memories.not_foreign(cluster, &key),
        }
    }
    Ok(())
}

/// What is known of a cluster now.
pub(crate) fn observe(context: &Context, cluster: &ClusterName, object: &MySQLCluster) -> Observed {
    let uid = object.uid().unwrap_or_default();
    let secrets = context.world.secrets.of(cluster);
    Observed {
        operator: context.platform.operator.clone(),
        memory: status::memory(object.status.as_ref()),
        instances: instances(context, cluster, object, &uid),
        objects: objects(context, cluster, &uid, &secrets),
        secrets: secrets_view(context, cluster, object, &secrets),
        warnings: warnings(context, cluster),
        request: object.annotations().get(REQUEST_ANNOTATION).cloned(),
        told: status::told(object.status.as_ref()),
        progress: context.memories.progress(cluster),
        backups: backups::see(context, cluster, object, &uid),
    }
}

fn instances(context: &Context, cluster: &ClusterName, object: &MySQLCluster, uid: &str) -> Vec<InstanceObserved> {
    let pods = context.world.pods.of(cluster);
    let claims = context.world.claims.of(cluster);
    let declared = u32::try_from(object.spec.replicas).unwrap_or_default();
    let existing = pods
        .keys()
        .chain(claims.keys())
        .filter_map(|name| views::ordinal(&cluster.name, name));
    let ordinals: BTreeSet<u32> = existing.chain(0..declared).collect();
    let observed = ordinals.into_iter().map(|ordinal| {
        let name = format!("{}-{ordinal}", cluster.name);
        let pod = pods.get(&name).map(|pod| pod.as_ref().clone());
        let claim = claims.get(&name).map(|claim| claim.as_ref().clone());
        let instance = InstanceName(name);
        let reach: Reach = context.pool.reach(cluster, uid, &instance);
        InstanceObserved {
            name: instance,
            ordinal,
            pod,
            claim,
            reach,
        }
    });
    observed.collect()
}

type Secrets = BTreeMap<String, std::sync::Arc<Redacted>>;

fn objects(context: &Context, cluster: &ClusterName, uid: &str, secrets: &Secrets) -> BTreeMap<ObjectKey, ObjectView> {
    let mut objects = BTreeMap::new();
    for (key, view, _) in context.memories.foreigners(cluster) {
        objects.insert(key, view);
    }
    for (kind, index) in &context.world.objects {
        for (name, object) in index.of(cluster) {
            let key = ObjectKey { kind: *kind, name };
            let contested = context.memories.contested(cluster, &key);
            objects.insert(key, view(&object, is_ours(&object.metadata, cluster, uid), contested));
        }
    }
    for (name, secret) in secrets {
        let key = ObjectKey {
            kind: ObjectKind::Secret,
            name: name.clone(),
        };
        let ours = secret.owner.as_deref().is_none_or(|owner| owner == uid);
        let contested = context.memories.contested(cluster, &key);
        objects.insert(key, secret_view(secret, ours, contested));
    }
    objects
}

/// Whether an object belongs to this cluster: by its label and, where it has a controlling owner, by that one's uid.
pub(crate) fn is_ours(metadata: &ObjectMeta, cluster: &ClusterName, uid: &str) -> bool {
    let labelled = views::cluster_of(metadata).is_some_and(|owner| owner == *cluster);
    labelled && views::owner(metadata).is_none_or(|owner| owner == uid)
}

/// A Secret as decisions see it.
pub(crate) fn secret_view(secret: &Redacted, ours: bool, contested: bool) -> ObjectView {
    ObjectView {
        uid: secret.uid.clone(),
        resource_version: secret.resource_version.clone(),
        ours,
        value: serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": secret.metadata}),
        contested,
    }
}

/// An object as decisions see it.
pub(crate) fn view(object: &DynamicObject, ours: bool, contested: bool) -> ObjectView {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    // What others may have put into a Secret is nobody's business.
    if object.types.as_ref().is_some_and(|types| types.kind == "Secret")
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("data");
        fields.remove("stringData");
    }
    ObjectView {
        uid: object.uid().unwrap_or_default(),
        resource_version: object.resource_version().unwrap_or_default(),
        ours,
        value,
        contested,
    }
}

/// What the Secret with the access to the store was made from, by versions: whoever compared them need not do so again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreStamp {
    destination: Destination,
    users: BTreeMap<String, Version>,
    secret: Option<String>,
}

impl StoreStamp {
    /// The same with the Secret itself as it is known now.
    pub(crate) fn with_secret_of(self, context: &Context, cluster: &ClusterName) -> Self {
        let name = Names::new(&cluster.namespace, &cluster.name).store_secret();
        let known = context.world.secrets.get(cluster, &name);
        Self {
            secret: known.map(|secret| format!("{}/{}", secret.uid, secret.resource_version)),
            ..self
        }
    }
}

/// The versions of now.
pub(crate) fn store_stamp(context: &Context, cluster: &ClusterName, destination: &Destination) -> StoreStamp {
    let stamp = StoreStamp {
        destination: destination.clone(),
        users: context.user_secrets.of(cluster, &destination.secrets()),
        secret: None,
    };
    stamp.with_secret_of(context, cluster)
}

/// Whether `<cluster>-store` is what is declared: what was found for these versions, if anybody has looked.
fn store_secret(context: &Context, cluster: &ClusterName, object: &MySQLCluster, secrets: &Secrets) -> StoreSecret {
    let Some(backup) = &object.spec.backup else {
        context.user_secrets.forget(cluster);
        let name = Names::new(&cluster.namespace, &cluster.name).store_secret();
        let left = secrets.get(&name).is_some_and(|secret| !secret.keys.is_empty());
        return if left {
            StoreSecret::Outdated
        } else {
            StoreSecret::Current
        };
    };
    let stamp = store_stamp(context, cluster, &Destination::of(backup));
    if stamp.users.values().any(|version| *version == Version::Unknown) {
        return StoreSecret::Unknown;
    }
    context.memories.store(cluster, &stamp).unwrap_or(StoreSecret::Outdated)
}

fn secrets_view(context: &Context, cluster: &ClusterName, object: &MySQLCluster, secrets: &Secrets) -> SecretsView {
    let now = context.platform.now();
    let names = Names::new(&cluster.namespace, &cluster.name);
    let public = |name: &str, key: &str| secrets.get(name)?.public.get(key).map(String::as_str);
    let ca = public(&names.ca_secret(), TLS_CRT).and_then(|pem| pki::inspect(pem).ok());
    let server = public(&names.server_tls_secret(), TLS_CRT).and_then(|pem| pki::inspect(pem).ok());
    let wanted = public(&names.ca_secret(), CA_CRT).map(|bundle| {
        let operator = &context.identity.current().ca_bundle;
        pki::bundle([operator.as_str(), bundle], now)
    });
    let signers = public(&names.ca_secret(), CA_CRT).map(pki::key_ids).unwrap_or_default();
    SecretsView {
        store: store_secret(context, cluster, object, secrets),
        keys: secrets
            .iter()
            .map(|(name, secret)| (name.clone(), secret.keys.clone()))
            .collect(),
        ca_expires: ca.map(|ca| ca.view.not_after),
        server: server
            .filter(|s| s.signed_by.as_ref().is_some_and(|id| signers.contains(id)))
            .map(|s| s.view),
        client_ca_current: wanted.is_some() && wanted.as_deref() == public(&names.client_ca_secret(), CA_CRT),
    }
}

fn warnings(context: &Context, cluster: &ClusterName) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = context
        .world
        .warnings
        .of(cluster)
        .into_values()
        .map(|warning| warning.as_ref().clone())
        .collect();
    warnings.extend(context.memories.refusals(cluster));
    warnings.sort_by_key(|warning| warning.at);
    warnings
}
