//! The EndpointSlices of the two Services that clients use: the operator writes them itself, each in one write.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use super::{desired, meta};
use crate::action::Desired;
use crate::layout::PORT_MYSQL;
use crate::names::MANAGED_BY;
use crate::observed::ObjectKind;
use crate::rules::InstanceName;
use crate::validate::ValidatedCluster;

/// Where an instance is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAddress {
    /// The instance, which is its pod's name.
    pub instance: InstanceName,
    /// uid of the pod.
    pub uid: String,
    /// Address, IPv4 or IPv6.
    pub ip: IpAddr,
    /// Node, for routing that stays close.
    pub node: Option<String>,
    /// Zone of the node.
    pub zone: Option<String>,
}

/// The slices of a client Service (`service` is its name): one for each address family that occurs, and the IPv4 one
/// always, so that "nobody serves" is written and not only missing.
#[must_use]
pub fn endpoint_slices(cluster: &ValidatedCluster, service: &str, addresses: &[PodAddress]) -> Vec<Desired> {
    let (v4, v6): (Vec<&PodAddress>, Vec<&PodAddress>) = addresses.iter().partition(|address| address.ip.is_ipv4());
    let mut slices = Vec::new();
    if !v4.is_empty() || v6.is_empty() {
        slices.push(desired(ObjectKind::EndpointSlice, slice(cluster, service, "IPv4", &v4)));
    }
    if !v6.is_empty() {
        slices.push(desired(ObjectKind::EndpointSlice, slice(cluster, service, "IPv6", &v6)));
    }
    slices
}

fn slice(cluster: &ValidatedCluster, service: &str, family: &str, addresses: &[&PodAddress]) -> EndpointSlice {
    let mut metadata = meta::owned(cluster, format!("{service}-{}", family.to_lowercase()));
    let labels = metadata.labels.get_or_insert_default();
    labels.insert("kubernetes.io/service-name".to_owned(), service.to_owned());
    labels.insert("endpointslice.kubernetes.io/managed-by".to_owned(), MANAGED_BY.to_owned());
    EndpointSlice {
        metadata,
        address_type: family.to_owned(),
        ports: Some(vec![EndpointPort {
            name: Some("mysql".to_owned()),
            port: Some(i32::from(PORT_MYSQL)),
            protocol: Some("TCP".to_owned()),
            ..EndpointPort::default()
        }]),
        endpoints: addresses.iter().map(|address| endpoint(cluster, address)).collect(),
    }
}

fn endpoint(cluster: &ValidatedCluster, address: &PodAddress) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        node_name: address.node.clone(),
        zone: address.zone.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: Some(cluster.names().namespace().to_owned()),
            name: Some(address.instance.0.clone()),
            uid: Some(address.uid.clone()),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}
