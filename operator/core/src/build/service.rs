//! The three Services. Two have no selector: the operator writes their EndpointSlices, so that a change of primary is one
//! write with no other controller in its path.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{desired, metadata};
use crate::action::Desired;
use crate::layout;
use crate::observed::ObjectKind;
use crate::validate::{ServiceSettings, ValidatedCluster};

/// Name of the port of MySQL's clients, in Services, EndpointSlices and the pod.
pub(super) const MYSQL_PORT: &str = "mysql";

pub(super) fn build(cluster: &ValidatedCluster) -> [Desired; 3] {
    let names = cluster.names();
    [
        headless(cluster),
        routed(cluster, names.primary_service(), &cluster.primary_service),
        routed(cluster, names.replicas_service(), &cluster.replicas_service),
    ]
}

/// Gives each instance a DNS name from its first moment: replication and clones use them before anything is ready.
fn headless(cluster: &ValidatedCluster) -> Desired {
    let names = cluster.names();
    let service = Service {
        metadata: metadata(cluster, names.instances_service()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(names.selector()),
            ports: Some(vec![
                port(MYSQL_PORT, layout::PORT_MYSQL),
                port("admin", layout::PORT_ADMIN),
                port("grpc", layout::PORT_GRPC),
            ]),
            ..dual_stack()
        }),
        ..Default::default()
    };
    desired(ObjectKind::Service, &service)
}

/// A Service whose endpoints the operator writes.
fn routed(cluster: &ValidatedCluster, name: String, settings: &ServiceSettings) -> Desired {
    let mut metadata = metadata(cluster, name);
    metadata.annotations = Some(settings.annotations.clone()).filter(|annotations| !annotations.is_empty());
    let service = Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(settings.service_type.as_str().to_owned()),
            ports: Some(vec![port(MYSQL_PORT, layout::PORT_MYSQL)]),
            ..dual_stack()
        }),
        ..Default::default()
    };
    desired(ObjectKind::Service, &service)
}

fn dual_stack() -> ServiceSpec {
    ServiceSpec {
        ip_family_policy: Some("PreferDualStack".to_owned()),
        ..Default::default()
    }
}

fn port(name: &str, number: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(number))),
        ..Default::default()
    }
}
