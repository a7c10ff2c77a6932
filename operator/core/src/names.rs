//! Names derived from a cluster's, in one place.
//!
//! Every derived name has to fit where Kubernetes puts it: 63 characters for a label value, a Service or a pod's host
//! name, and the same again for the StatefulSet's revision label (`<set>-<10 characters>`). With a cluster name of at
//! most 40 characters all of them do (case F01). A name is never made from two that users give without a hash, so that
//! `a-b` + `c` and `a` + `b-c` cannot meet (case F28).

use std::collections::BTreeMap;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::rules::InstanceName;

/// Longest cluster name.
pub const MAX_CLUSTER_NAME: usize = 40;

/// Longest name of a backup: its Job's is [`BACKUP_END`] longer, and becomes the value of a label.
pub const MAX_BACKUP_NAME: usize = 56;

/// End of the name of a backup's Job.
pub const BACKUP_END: &str = "-backup";

/// Name of the Job of a backup.
#[must_use]
pub fn backup_job(backup: &str) -> String {
    format!("{backup}{BACKUP_END}")
}

/// End of the name of the Job that verifies a cluster's backups: no backup's Job ends like this.
const VERIFY_END: &str = "-verify";

/// End of a name that no cluster has: its Secret `<name>-ca` would be the `<cluster>-client-ca` of another one (F28).
const RESERVED_END: &str = "-client";

/// Why a cluster cannot have this name, if it cannot. The API server refuses it with the same words.
#[must_use]
pub fn refusal(name: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > MAX_CLUSTER_NAME {
        Some(format!(
            "at most {MAX_CLUSTER_NAME} characters, because the names of pods, claims, Services and Jobs are derived from it"
        ))
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(valid) || name.ends_with('-') {
        Some("lower case letters, digits and '-', beginning with a letter and without dots".to_owned())
    } else if name.ends_with(RESERVED_END) {
        Some(format!(
            "must not end with {RESERVED_END}, because the Secret <name>-ca would be that of another cluster"
        ))
    } else {
        None
    }
}

/// With this begin the keys of labels and annotations that are Mainstay's.
pub const DOMAIN_PREFIX: &str = "mysql.mainstay.dev/";
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
/// Value of [`LABEL_COMPONENT`] on the Jobs of backups, their pods and claims: no selector of the database finds them.
pub const BACKUP_COMPONENT: &str = "backup";
/// Label: the `MySQLBackup` for which a Job was made.
pub const LABEL_BACKUP: &str = "mysql.mainstay.dev/backup";
/// Annotation of a Job: uid of its `MySQLBackup`, by which one is told from another of the same name.
pub const ANNOTATION_BACKUP_UID: &str = "mysql.mainstay.dev/backup-uid";
/// Label: the `MySQLBackup` that a Job verifies.
pub const LABEL_VERIFIES: &str = "mysql.mainstay.dev/verifies";
/// Annotation of the Job of a verification: its due time, RFC 3339.
pub const ANNOTATION_DUE: &str = "mysql.mainstay.dev/due";
/// Annotation of a Job: the instance that it copies.
pub const ANNOTATION_DONOR: &str = "mysql.mainstay.dev/donor";
/// Annotation of a pod: hash of the template that it was made from.
pub const ANNOTATION_TEMPLATE: &str = "mysql.mainstay.dev/template";
/// Annotation of a StatefulSet: the instances of whose missing pods it was reminded last.
pub const ANNOTATION_MISSING: &str = "mysql.mainstay.dev/missing";

/// Name of the claim template; the claim of instance 0 of `shop` is `data-shop-0`.
pub const CLAIM_TEMPLATE: &str = "data";

/// Claim of that instance.
#[must_use]
pub fn claim(instance: &InstanceName) -> String {
    format!("{CLAIM_TEMPLATE}-{instance}")
}

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
        Self {
            namespace: namespace.into(),
            cluster: cluster.into(),
        }
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
        claim(&self.instance(ordinal))
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

    /// Secret with the access to the object store; there is none while no store is declared.
    #[must_use]
    pub fn store_secret(&self) -> String {
        format!("{}-store", self.cluster)
    }

    /// Secret with the access to the store that data is recovered from, while it is.
    #[must_use]
    pub fn recovery_secret(&self) -> String {
        format!("{}-recovery", self.cluster)
    }

    /// Job that verifies the newest backup; there is one at a time.
    #[must_use]
    pub fn verify_job(&self) -> String {
        format!("{}{VERIFY_END}", self.cluster)
    }

    /// Backup that a schedule asks for at this time: the same name in every pass, so that no second one is made.
    ///
    /// The hash is of both names that users give; their text is cut to fit, and only for people.
    #[must_use]
    pub fn scheduled_backup(&self, schedule: &str, at: Timestamp) -> String {
        // A slash is in no name, so no two pairs are one text.
        let digest = Sha256::digest(format!("{}/{schedule}", self.cluster));
        let hash = digest
            .iter()
            .take(4)
            .fold(0_u32, |hash, byte| hash << 8 | u32::from(*byte));
        let end = format!("-{hash:08x}-{}", at.as_second().div_euclid(60));
        let text = format!("{}-{schedule}", self.cluster);
        let room = MAX_BACKUP_NAME.saturating_sub(end.len());
        let text = text.get(..room).unwrap_or(&text).trim_end_matches('-');
        format!("{text}{end}")
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
            .flat_map(|service| {
                [
                    service.clone(),
                    format!("{service}.{namespace}"),
                    self.service_host(service),
                ]
            })
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
        let pairs: Vec<String> = self
            .selector()
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.join(",")
    }

    /// Labels of what is made for backups: no selector of the database finds it.
    #[must_use]
    pub fn labels_of_backup(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        labels.insert(LABEL_COMPONENT.to_owned(), BACKUP_COMPONENT.to_owned());
        labels
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

    /// What stands behind the cluster's name in the names of its objects, by kind.
    fn ends() -> [Vec<String>; 5] {
        let names = Names::new("default", "");
        let slices = |service: String| [format!("{service}-ipv4"), format!("{service}-ipv6")];
        let secrets = vec![
            names.system_secret(),
            names.root_secret(),
            names.app_secret(),
            names.ca_secret(),
            names.server_tls_secret(),
            names.client_ca_secret(),
            names.store_secret(),
            names.recovery_secret(),
        ];
        let services = vec![
            names.primary_service(),
            names.replicas_service(),
            names.instances_service(),
        ];
        let routed = [names.primary_service(), names.replicas_service()];
        [
            secrets,
            services,
            routed.into_iter().flat_map(slices).collect(),
            vec![names.config_map("0123456789abcdef")],
            vec![names.service_account()],
        ]
    }

    #[test]
    fn f01_every_derived_name_of_the_longest_cluster_name_fits() {
        let longest = "c".repeat(MAX_CLUSTER_NAME);
        let names = Names::new("n".repeat(63), longest.as_str());
        let mut all: Vec<String> = ends()
            .into_iter()
            .flatten()
            .map(|end| format!("{longest}{end}"))
            .collect();
        // The label controller-revision-hash that Kubernetes adds to each pod of a StatefulSet.
        all.extend([
            names.instance(6).0,
            names.claim(6),
            format!("{longest}-{}", "x".repeat(10)),
        ]);
        for name in all {
            assert!(name.len() <= 63, "{name} has {} characters", name.len());
        }
        // The longest host that CHANGE REPLICATION SOURCE takes.
        assert!(names.instance_host(&names.instance(6)).len() <= 255);
    }

    #[test]
    fn f01_names_of_backups_fit_and_are_of_one_schedule() {
        let at: Timestamp = "2026-11-30T03:00:00Z".parse().unwrap();
        let name = |cluster: &str, schedule: &str| Names::new("n", cluster).scheduled_backup(schedule, at);
        assert_eq!(name("shop", "nightly"), "shop-nightly-57bcae98-29933460");
        for length in [1, 8, 17, 18, 19, MAX_CLUSTER_NAME] {
            let (cluster, schedule) = ("c".repeat(length), "s-".repeat(9) + "s");
            let job = backup_job(&name(&cluster, &schedule));
            assert!(job.len() <= 63, "{job} has {} characters", job.len());
            assert!(job.starts_with('c') && !job.contains("--"), "{job}");
        }
        // F28: two pairs of names that make one text; two long names that are cut to one.
        assert_ne!(name("a-b", "c"), name("a", "b-c"));
        let long = "x".repeat(MAX_CLUSTER_NAME);
        assert_ne!(name(&long, "nightly"), name(&long, "weekly"));
    }

    #[test]
    fn f01_names_that_cannot_be_derived_from_are_refused() {
        for length in [41, 52, 53, 63] {
            assert!(
                refusal(&"x".repeat(length))
                    .unwrap()
                    .starts_with("at most 40 characters")
            );
        }
        for name in [
            "",
            "shop.eu",
            "9lives",
            "ends-",
            "-begins",
            "Upper",
            "under_score",
            "shop-client",
        ] {
            assert!(refusal(name).is_some(), "{name}");
        }
        for name in ["a", "shop-0", "client", &"x".repeat(40)] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }

    /// Cluster `a` + end `x` and cluster `b` + end `y` are one name only if one end is the end of the other, and the rest
    /// is the end of a cluster's name: such a name is refused.
    #[test]
    fn f28_two_clusters_share_no_name() {
        for ends in ends() {
            for (long, short) in ends.iter().flat_map(|long| ends.iter().map(move |short| (long, short))) {
                let Some(rest) = long.strip_suffix(short.as_str()).filter(|rest| !rest.is_empty()) else {
                    continue;
                };
                assert!(
                    refusal(&format!("shop{rest}")).is_some(),
                    "shop{rest} and shop share shop{long}"
                );
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
