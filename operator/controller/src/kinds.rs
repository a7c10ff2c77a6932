//! The kinds of objects that Mainstay builds, as the API server knows them.

use kube::core::ApiResource;
use mainstay_core::observed::ObjectKind;

/// Every kind that is built, in the order in which a reader would expect them.
pub(crate) const BUILT: [ObjectKind; 7] = [
    ObjectKind::StatefulSet,
    ObjectKind::Service,
    ObjectKind::EndpointSlice,
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
    ObjectKind::ServiceAccount,
    ObjectKind::PodDisruptionBudget,
];

/// How the API server knows a kind.
pub(crate) fn resource(kind: ObjectKind) -> ApiResource {
    match kind {
        ObjectKind::StatefulSet => ApiResource::erase::<k8s_openapi::api::apps::v1::StatefulSet>(&()),
        ObjectKind::Service => ApiResource::erase::<k8s_openapi::api::core::v1::Service>(&()),
        ObjectKind::EndpointSlice => ApiResource::erase::<k8s_openapi::api::discovery::v1::EndpointSlice>(&()),
        ObjectKind::ConfigMap => ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
        ObjectKind::Secret => ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
        ObjectKind::ServiceAccount => ApiResource::erase::<k8s_openapi::api::core::v1::ServiceAccount>(&()),
        ObjectKind::PodDisruptionBudget => ApiResource::erase::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(&()),
    }
}
