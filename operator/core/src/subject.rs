//! Whom a pass is about: the cluster's identity, and what was declared, if it is valid.

use crate::observed::{ObjectKey, ObjectKind, Observed};
use crate::validate::{SpecProblem, ValidatedCluster};

/// The cluster of a pass.
///
/// A spec that is not valid stops no rule of failover: what exists is kept safe as it was last built, and only nothing
/// is built from the spec.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Namespace of the cluster.
    pub namespace: &'a str,
    /// Name of the cluster.
    pub name: &'a str,
    /// uid of the `MySQLCluster`.
    pub uid: &'a str,
    /// metadata.generation of the spec.
    pub generation: i64,
    /// The spec, or what is wrong with it.
    pub spec: Result<&'a ValidatedCluster, &'a [SpecProblem]>,
}

impl Subject<'_> {
    /// Number of instances, the primary included: declared, or as last built while the spec is not valid.
    #[must_use]
    pub fn replicas(&self, observed: &Observed) -> u32 {
        match self.spec {
            Ok(spec) => spec.replicas,
            Err(_) => self.built_replicas(observed).unwrap_or_else(|| count(&observed.instances)),
        }
    }

    /// Number of instances of the StatefulSet that exists.
    #[must_use]
    pub fn built_replicas(&self, observed: &Observed) -> Option<u32> {
        let key = ObjectKey { kind: ObjectKind::StatefulSet, name: self.name.to_owned() };
        let set = observed.objects.get(&key)?;
        set.value.pointer("/spec/replicas")?.as_u64().and_then(|n| u32::try_from(n).ok())
    }

    /// DNS name of an instance for SQL clients, without a full domain.
    #[must_use]
    pub fn host(&self, instance: &crate::rules::InstanceName) -> String {
        format!("{instance}.{}-instances.{}.svc", self.name, self.namespace)
    }
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
