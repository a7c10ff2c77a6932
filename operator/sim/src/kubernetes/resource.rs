//! The resources that the fake API server serves, and how request paths name them.

use std::cmp::Ordering;

/// One resource of the API: an element of [`RESOURCES`], so that identity and order are those of its address.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural name in paths.
    pub plural: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Has a `status` subresource.
    pub status: bool,
    /// Counts changes of its specification in `metadata.generation`.
    pub generation: bool,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Resource {}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        std::ptr::from_ref(self).cmp(&std::ptr::from_ref(other))
    }
}

const fn namespaced(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
        namespaced: true,
        status: false,
        generation: false,
    }
}

const fn with_status(mut resource: Resource, generation: bool) -> Resource {
    resource.status = true;
    resource.generation = generation;
    resource
}

const fn cluster_wide(mut resource: Resource) -> Resource {
    resource.namespaced = false;
    resource
}

/// Everything that the fake API server knows; other paths are answered with 404 as by a real one.
pub static RESOURCES: &[Resource] = &[
    cluster_wide(with_status(namespaced("", "namespaces", "Namespace"), false)),
    cluster_wide(with_status(namespaced("", "nodes", "Node"), false)),
    with_status(namespaced("", "pods", "Pod"), true),
    with_status(namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim"), false),
    with_status(namespaced("", "services", "Service"), false),
    namespaced("", "configmaps", "ConfigMap"),
    namespaced("", "secrets", "Secret"),
    namespaced("", "serviceaccounts", "ServiceAccount"),
    namespaced("", "events", "Event"),
    namespaced("events.k8s.io", "events", "Event"),
    with_status(namespaced("apps", "statefulsets", "StatefulSet"), true),
    with_status(namespaced("batch", "jobs", "Job"), true),
    namespaced("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    with_status(
        namespaced("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
        true,
    ),
    namespaced("coordination.k8s.io", "leases", "Lease"),
    with_status(namespaced("mysql.mainstay.dev", "mysqlclusters", "MySQLCluster"), true),
    with_status(namespaced("mysql.mainstay.dev", "mysqlbackups", "MySQLBackup"), true),
];

impl Resource {
    /// The resource of that group and plural name.
    #[must_use]
    pub fn find(group: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|r| r.group == group && r.plural == plural)
    }

    /// The resource of that `apiVersion` and kind.
    #[must_use]
    pub fn of_kind(api_version: &str, kind: &str) -> Option<&'static Self> {
        RESOURCES
            .iter()
            .find(|r| r.api_version() == api_version && r.kind == kind)
    }

    /// `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// What a request path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The resource.
    pub resource: &'static Resource,
    /// Namespace; empty for all namespaces and for cluster-wide resources.
    pub namespace: String,
    /// Name of one object; absent for a collection.
    pub name: Option<String>,
    /// Subresource, for example `status`.
    pub subresource: Option<String>,
}

impl Route {
    /// Parses a path; `None` when nothing is served there.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..]
                if rest
                    .first()
                    .is_some_and(|p| Resource::find(group, p).is_some_and(|r| r.namespaced)) =>
            {
                (*namespace, rest)
            }
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(*name), None),
            [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        let resource = Resource::find(group, plural).filter(|r| r.version == version)?;
        Some(Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.map(ToOwned::to_owned),
            subresource: subresource.map(ToOwned::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Route;

    fn parsed(path: &str) -> Option<(&'static str, String, Option<String>, Option<String>)> {
        Route::parse(path).map(|r| (r.resource.kind, r.namespace, r.name, r.subresource))
    }

    #[test]
    fn paths_name_resources() {
        let table = [
            ("/api/v1/namespaces/a/pods", Some(("Pod", "a", None, None))),
            ("/api/v1/namespaces/a/pods/p", Some(("Pod", "a", Some("p"), None))),
            ("/api/v1/namespaces/a", Some(("Namespace", "", Some("a"), None))),
            (
                "/api/v1/namespaces/a/status",
                Some(("Namespace", "", Some("a"), Some("status"))),
            ),
            ("/api/v1/pods", Some(("Pod", "", None, None))),
            (
                "/apis/mysql.mainstay.dev/v1/namespaces/a/mysqlclusters/shop/status",
                Some(("MySQLCluster", "a", Some("shop"), Some("status"))),
            ),
            ("/apis/apps/v1beta1/namespaces/a/statefulsets", None),
            ("/apis/apps/v1/namespaces/a/deployments", None),
            ("/version", None),
        ];
        for (path, want) in table {
            let want = want.map(|(kind, ns, name, sub): (_, &str, Option<&str>, Option<&str>)| {
                (kind, ns.to_owned(), name.map(str::to_owned), sub.map(str::to_owned))
            });
            assert_eq!(parsed(path), want, "{path}");
        }
    }
}
