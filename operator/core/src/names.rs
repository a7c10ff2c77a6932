//! Names derived from a cluster's, in one place.
//!
//! Every derived name has to fit where Kubernetes puts it: 63 characters for a label value, a Service or a pod's host
//! name, and the same again for the StatefulSet's revision label (`<set>-<10 characters>`). With a cluster name of at
//! most 40 characters all of them do (case F01). A name is never made from two that users give without a hash, so that
//! `a-b` + `c` and `a` + `b-c` cannot meet (case F28).

use std::collections::BTreeMap;

use crate::rules::InstanceName;

/// Longest cluster name.
pub const MAX_CLUSTER_NAME: usize = 40;

/// Label: the cluster that an object belongs to.
pub const LABEL_CLUSTER: &str = "mysql.mainstay.dev/cluster";
/// Label: the instance that a pod is.
pub const LABEL_INSTANCE: &str = "mysql.mainstay.dev/instance";
/// Label: `primary` or `replica`, for people and disruption budgets; no decision reads it.
pub const LABEL_ROLE: &str = "mysql.mainstay.dev/role";
/// Label: what part of a cluster an object is.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// Label: who made it.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "mainstay";
/// Value of [`LABEL_COMPONENT`] on everything that is part of the database.
pub const COMPONENT: &str = "database";
/// Annotation of a pod: hash of the template that it was made from.
pub const ANNOTATION_TEMPLATE: &str = "mysql.mainstay.dev/template";

/// Name of the claim template; the claim of instance 0 of `shop` is `data-shop-0`.
pub const CLAIM_TEMPLATE: &str = "data";

/// The names of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Names {
    namespace: String,
    cluster: String,
}

impl Names {
    /// The names of a cluster.
    #[must_use]
    pub fn new(namespace: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), cluster: cluster.into() }
    }

    /// Namespace of the cluster and all its objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the cluster, which is the StatefulSet's and the disruption budget's.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Instance of that ordinal, which is its pod.
    #[must_use]
    pub fn instance(&self, ordinal: u32) -> InstanceName {
        InstanceName(format!("{}-{ordinal}", self.cluster))
    }

    /// Claim of the instance of that ordinal.
    #[must_use]
    pub fn claim(&self, ordinal: u32) -> String {
        format!("{CLAIM_TEMPLATE}-{}-{ordinal}", self.cluster)
    }

    /// Read-write Service.
    #[must_use]
    pub fn primary_service(&self) -> String {
        format!("{}-primary", self.cluster)
    }

    /// Service for reads.
    #[must_use]
    pub fn replicas_service(&self) -> String {
        format!("{}-replicas", self.cluster)
    }

    /// Headless Service, which gives each instance a DNS name.
    #[must_use]
    pub fn instances_service(&self) -> String {
        format!("{}-instances", self.cluster)
    }

    /// ConfigMap with my.cnf, by the hash of its content: a pod keeps the one that it was made with.
    #[must_use]
    pub fn config_map(&self, hash: &str) -> String {
        format!("{}-config-{}", self.cluster, hash.get(..8).unwrap_or(hash))
    }

    /// ServiceAccount of the instances.
    #[must_use]
    pub fn service_account(&self) -> String {
        format!("{}-instance", self.cluster)
    }

    /// Secret with the passwords of Mainstay's own accounts.
    #[must_use]
    pub fn system_secret(&self) -> String {
        format!("{}-system", self.cluster)
    }

    /// Secret with the password of `root@'%'`.
    #[must_use]
    pub fn root_secret(&self) -> String {
        format!("{}-root", self.cluster)
    }

    /// Secret with the application's connection.
    #[must_use]
    pub fn app_secret(&self) -> String {
        format!("{}-app", self.cluster)
    }

    /// Secret with the cluster's CA and its key; mounted nowhere.
    #[must_use]
    pub fn ca_secret(&self) -> String {
        format!("{}-ca", self.cluster)
    }

    /// Secret with the server certificate.
    #[must_use]
    pub fn server_tls_secret(&self) -> String {
        format!("{}-server-tls", self.cluster)
    }

    /// Secret with the CAs of gRPC clients.
    #[must_use]
    pub fn client_ca_secret(&self) -> String {
        format!("{}-client-ca", self.cluster)
    }

    /// DNS name of a Service, never with the cluster's domain, which is not always `cluster.local` (case F04).
    #[must_use]
    pub fn service_host(&self, service: &str) -> String {
        format!("{service}.{}.svc", self.namespace)
    }

    /// DNS name of an instance.
    #[must_use]
    pub fn instance_host(&self, instance: &InstanceName) -> String {
        format!("{instance}.{}", self.service_host(&self.instances_service()))
    }

    /// DNS names of the server certificate (decision B11), sorted: the Services, short and long, each instance by
    /// wildcard, `localhost`, and what the user asked for.
    #[must_use]
    pub fn certificate_names(&self, extra: &[String]) -> Vec<String> {
        let namespace = &self.namespace;
        let services = [self.primary_service(), self.replicas_service()];
        let mut names: Vec<String> = services
            .iter()
            .flat_map(|service| [service.clone(), format!("{service}.{namespace}"), self.service_host(service)])
            .collect();
        let instances = self.instances_service();
        names.push(format!("*.{instances}.{namespace}"));
        names.push(format!("*.{}", self.service_host(&instances)));
        names.push("localhost".to_owned());
        names.extend(extra.iter().cloned());
        names.sort();
        names.dedup();
        names
    }

    /// Labels by which the instances' pods are selected; never change, because a selector cannot.
    #[must_use]
    pub fn selector(&self) -> BTreeMap<String, String> {
        [(LABEL_CLUSTER, self.cluster.as_str()), (LABEL_COMPONENT, COMPONENT)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// The same as text, for the scale subresource.
    #[must_use]
    pub fn selector_text(&self) -> String {
        let pairs: Vec<String> = self.selector().iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(",")
    }

    /// Labels of every object (decision B9).
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert("app.kubernetes.io/name".to_owned(), "mysql".to_owned());
        labels.insert("app.kubernetes.io/instance".to_owned(), self.cluster.clone());
        labels.insert(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f01_every_derived_name_of_the_longest_cluster_name_fits() {
        let names = Names::new("n".repeat(63), "c".repeat(MAX_CLUSTER_NAME));
        let objects = [
            names.instance(6).0,
            names.claim(6),
            names.primary_service(),
            names.replicas_service(),
            names.instances_service(),
            names.config_map("0123456789abcdef"),
            names.service_account(),
            names.system_secret(),
            names.root_secret(),
            names.app_secret(),
            names.ca_secret(),
            names.server_tls_secret(),
            names.client_ca_secret(),
            // The label controller-revision-hash that Kubernetes adds to each pod of a StatefulSet.
            format!("{}-{}", names.cluster(), "x".repeat(10)),
        ];
        for name in objects {
            assert!(name.len() <= 63, "{name} has {} characters", name.len());
        }
        // The longest host that CHANGE REPLICATION SOURCE takes.
        assert!(names.instance_host(&names.instance(6)).len() <= 255);
    }

    #[test]
    fn f28_two_clusters_share_no_name() {
        let all = |cluster: &str| {
            let names = Names::new("default", cluster);
            [
                names.primary_service(),
                names.replicas_service(),
                names.instances_service(),
                names.system_secret(),
                names.root_secret(),
                names.app_secret(),
                names.ca_secret(),
                names.server_tls_secret(),
                names.client_ca_secret(),
                names.service_account(),
                names.claim(0),
                names.instance(0).0,
                cluster.to_owned(),
            ]
        };
        for (one, other) in [("a", "a-b"), ("shop", "shop-0"), ("shop", "shop-primary"), ("a", "b")] {
            for name in all(one) {
                assert!(!all(other).contains(&name) || name == other, "{one} and {other} share {name}");
            }
        }
    }

    #[test]
    fn f04_no_name_holds_the_domain_of_the_cluster() {
        let names = Names::new("prod", "shop");
        let names = names.certificate_names(&["db.example.com".to_owned()]);
        assert_eq!(
            names,
            [
                "*.shop-instances.prod",
                "*.shop-instances.prod.svc",
                "db.example.com",
                "localhost",
                "shop-primary",
                "shop-primary.prod",
                "shop-primary.prod.svc",
                "shop-replicas",
                "shop-replicas.prod",
                "shop-replicas.prod.svc",
            ]
        );
    }
}
