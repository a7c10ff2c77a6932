//! The EndpointSlices of the primary's and the replicas' Service: who gets writes, who gets reads.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use super::service::MYSQL_PORT;
use super::{desired, owned_by};
use crate::action::Desired;
use crate::layout;
use crate::observed::ObjectKind;
use crate::rules::InstanceName;
use crate::subject::Subject;

/// An instance to which clients are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAddress {
    /// The instance.
    pub instance: InstanceName,
    /// Address of its pod.
    pub address: IpAddr,
    /// uid of its pod.
    pub uid: String,
    /// Node on which it runs.
    pub node: Option<String>,
    /// Zone of the node.
    pub zone: Option<String>,
}

/// The slices of one Service: one for each address family, empty where nobody is to get clients.
///
/// Both always exist, so that a demoted primary is taken out by writing a slice, never by deleting one. They follow from
/// the rules and not from the spec, which may be invalid while clients have to be moved.
#[must_use]
pub fn endpoint_slices(subject: &Subject<'_>, service: &str, pods: &[PodAddress]) -> [Desired; 2] {
    let mut pods = pods.to_vec();
    pods.sort();
    [Family::V4, Family::V6].map(|family| slice(subject, service, family, &pods))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn holds(self, address: IpAddr) -> bool {
        address.is_ipv6() == matches!(self, Self::V6)
    }

    /// Kubernetes' word, and the end of the slice's name.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::V4 => ("IPv4", "ipv4"),
            Self::V6 => ("IPv6", "ipv6"),
        }
    }
}

fn slice(subject: &Subject<'_>, service: &str, family: Family, pods: &[PodAddress]) -> Desired {
    let (address_type, suffix) = family.words();
    let mut metadata = owned_by(&subject.names(), subject.uid, format!("{service}-{suffix}"));
    if let Some(labels) = &mut metadata.labels {
        labels.insert("kubernetes.io/service-name".to_owned(), service.to_owned());
        // Not Kubernetes' own controller, which leaves such slices alone.
        labels.insert(
            "endpointslice.kubernetes.io/managed-by".to_owned(),
            "mainstay".to_owned(),
        );
    }
    let slice = EndpointSlice {
        metadata,
        address_type: address_type.to_owned(),
        endpoints: pods
            .iter()
            .filter(|pod| family.holds(pod.address))
            .map(|pod| endpoint(subject, pod))
            .collect(),
        ports: Some(vec![EndpointPort {
            name: Some(MYSQL_PORT.to_owned()),
            port: Some(i32::from(layout::PORT_MYSQL)),
            protocol: Some("TCP".to_owned()),
            ..Default::default()
        }]),
    };
    desired(ObjectKind::EndpointSlice, &slice)
}

fn endpoint(subject: &Subject<'_>, pod: &PodAddress) -> Endpoint {
    Endpoint {
        addresses: vec![pod.address.to_string()],
        // Whoever stands in a slice serves; who does not is not in it.
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        node_name: pod.node.clone(),
        zone: pod.zone.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: Some(pod.instance.0.clone()),
            namespace: Some(subject.namespace.to_owned()),
            uid: Some(pod.uid.clone()),
            ..Default::default()
        }),
        ..Default::default()
    }
}
