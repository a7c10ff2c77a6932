//! The Services and the instances' ServiceAccount.

use k8s_openapi::api::core::v1::{Service, ServiceAccount, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta;
use crate::layout::{PORT_ADMIN, PORT_GRPC, PORT_HTTP, PORT_MYSQL};
use crate::validate::{ServiceSettings, ValidatedCluster};

/// Gives each instance a DNS name, ready or not: replicas find their source by it while nothing is ready yet.
pub(super) fn instances(cluster: &ValidatedCluster) -> Service {
    Service {
        metadata: meta::owned(cluster, cluster.names().instances_service()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(cluster.names().selector()),
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(vec![
                port("mysql", PORT_MYSQL),
                port("admin", PORT_ADMIN),
                port("grpc", PORT_GRPC),
                port("http", PORT_HTTP),
            ]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// The read-write Service.
pub(super) fn primary(cluster: &ValidatedCluster) -> Service {
    client(cluster, cluster.names().primary_service(), &cluster.primary_service)
}

/// The Service for reads.
pub(super) fn replicas(cluster: &ValidatedCluster) -> Service {
    client(cluster, cluster.names().replicas_service(), &cluster.replicas_service)
}

/// A Service without a selector: the operator writes its EndpointSlices itself, so that no other controller stands
/// between a decision and the clients.
fn client(cluster: &ValidatedCluster, name: String, settings: &ServiceSettings) -> Service {
    let mut metadata = meta::owned(cluster, name);
    metadata.annotations = meta::annotations(&settings.annotations);
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(settings.service_type.as_str().to_owned()),
            ip_family_policy: Some("PreferDualStack".to_owned()),
            ports: Some(vec![port("mysql", PORT_MYSQL)]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// The instances' identity towards the API server, without a token: they ask it for nothing yet.
pub(super) fn service_account(cluster: &ValidatedCluster) -> ServiceAccount {
    ServiceAccount {
        metadata: meta::owned(cluster, cluster.names().service_account()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
