//! The StatefulSet.

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use mainstay_api::cluster::DeletionPolicy;

use super::config::Config;
use super::{Inputs, meta, pod};
use crate::names::CLAIM_TEMPLATE;
use crate::validate::ValidatedCluster;

/// All instances at once (`Parallel`), and no restart that Mainstay did not decide (`OnDelete`).
pub(super) fn stateful_set(cluster: &ValidatedCluster, inputs: &Inputs, config: &Config) -> StatefulSet {
    StatefulSet {
        metadata: meta::owned(cluster, cluster.names().cluster().to_owned()),
        spec: Some(StatefulSetSpec {
            replicas: i32::try_from(cluster.replicas).ok(),
            service_name: Some(cluster.names().instances_service()),
            selector: LabelSelector { match_labels: Some(cluster.names().selector()), ..LabelSelector::default() },
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some(when_deleted(cluster.deletion_policy).to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            // Old templates are in the ConfigMaps and in git; two revisions are enough to look at.
            revision_history_limit: Some(2),
            template: pod::template(cluster, inputs, config),
            volume_claim_templates: Some(vec![claim(cluster)]),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

const fn when_deleted(policy: DeletionPolicy) -> &'static str {
    match policy {
        DeletionPolicy::Retain => "Retain",
        DeletionPolicy::Delete => "Delete",
    }
}

fn claim(cluster: &ValidatedCluster) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(CLAIM_TEMPLATE.to_owned()),
            labels: Some(cluster.names().labels()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: cluster.volume.storage_class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), cluster.volume.size.clone())].into()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
