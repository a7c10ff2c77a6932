//! The StatefulSet: pods and claims with names that last.

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use mainstay_api::cluster::DeletionPolicy;
use serde_json::Value;

use super::{Inputs, desired, metadata, pod, template_hash};
use crate::action::Desired;
use crate::names::{ANNOTATION_TEMPLATE, CLAIM_TEMPLATE};
use crate::observed::ObjectKind;
use crate::validate::ValidatedCluster;

pub(super) fn build(cluster: &ValidatedCluster, inputs: &Inputs, observed: Option<&Value>) -> Desired {
    let names = cluster.names();
    let set = StatefulSet {
        metadata: metadata(cluster, cluster.name.clone()),
        spec: Some(StatefulSetSpec {
            replicas: i32::try_from(cluster.replicas).ok(),
            service_name: Some(names.instances_service()),
            selector: LabelSelector {
                match_labels: Some(names.selector()),
                ..Default::default()
            },
            template: template(cluster, inputs, observed),
            volume_claim_templates: Some(vec![claim(cluster, observed)]),
            // All instances start at once; which one is restarted, and when, is the operator's decision.
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..Default::default()
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some(retention(cluster.deletion_policy).to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            revision_history_limit: Some(3),
            ..Default::default()
        }),
        ..Default::default()
    };
    desired(ObjectKind::StatefulSet, &set)
}

const fn retention(policy: DeletionPolicy) -> &'static str {
    match policy {
        DeletionPolicy::Retain => "Retain",
        DeletionPolicy::Delete => "Delete",
    }
}

/// The template with the instance manager that the pods have, if nothing else in it changes; else with this operator's.
fn template(cluster: &ValidatedCluster, inputs: &Inputs, observed: Option<&Value>) -> PodTemplateSpec {
    let current = observed
        .and_then(installed_image)
        .filter(|image| *image != inputs.operator_image);
    let unchanged = current.and_then(|image| {
        let template = pod::template(
            cluster,
            &Inputs {
                operator_image: image.to_owned(),
                ..inputs.clone()
            },
        );
        (observed.and_then(observed_hash) == Some(template_hash(&template).as_str())).then_some(template)
    });
    unchanged.unwrap_or_else(|| pod::template(cluster, inputs))
}

/// Image of the init container that brings the instance manager.
fn installed_image(stateful_set: &Value) -> Option<&str> {
    let containers = stateful_set.pointer("/spec/template/spec/initContainers")?.as_array()?;
    let install = containers
        .iter()
        .find(|c| c.get("name").and_then(Value::as_str) == Some(pod::INSTALL_CONTAINER))?;
    install.get("image")?.as_str()
}

/// What the claims of a set that exists are made with.
fn size_of_claims(stateful_set: &Value) -> Option<&str> {
    let templates = stateful_set.pointer("/spec/volumeClaimTemplates")?.as_array()?;
    let is_data =
        |template: &&Value| template.pointer("/metadata/name").and_then(Value::as_str) == Some(CLAIM_TEMPLATE);
    let template = templates.iter().find(is_data)?;
    template.pointer("/spec/resources/requests/storage")?.as_str()
}

fn observed_hash(stateful_set: &Value) -> Option<&str> {
    stateful_set
        .pointer("/spec/template/metadata/annotations")?
        .get(ANNOTATION_TEMPLATE)?
        .as_str()
}

/// The claim of an instance. Kubernetes refuses every later change of it, so it keeps the size with which the set was made: a
/// claim that is made of it later is asked to grow at once (plan/grow.rs).
fn claim(cluster: &ValidatedCluster, observed: Option<&Value>) -> PersistentVolumeClaim {
    let size = observed.and_then(size_of_claims).map(|size| Quantity(size.to_owned()));
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(CLAIM_TEMPLATE.to_owned()),
            labels: Some(cluster.names().labels()),
            ..Default::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: cluster.volume.storage_class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(
                    [(
                        "storage".to_owned(),
                        size.unwrap_or_else(|| cluster.volume.size.clone()),
                    )]
                    .into(),
                ),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}
