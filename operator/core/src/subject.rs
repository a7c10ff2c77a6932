//! Whom a pass is about: the cluster's identity, and what was declared, if it is valid.

use sha2::{Digest as _, Sha256};

use crate::action::Application;
use crate::names::Names;
use crate::observed::{ObjectKey, ObjectKind, Observed};
use crate::rules::InstanceName;
use crate::validate::{RecoveryWish, SpecProblem, ValidatedCluster};

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
    /// Image of the operator, from which the instance manager is copied into the pods.
    pub operator_image: &'a str,
    /// The spec, or what is wrong with it.
    pub spec: Result<&'a ValidatedCluster, &'a [SpecProblem]>,
}

impl Subject<'_> {
    /// Number of instances, the primary included: declared, or as last built while the spec is not valid.
    #[must_use]
    pub fn replicas(&self, observed: &Observed) -> u32 {
        match self.spec {
            Ok(spec) => spec.replicas,
            Err(_) => self
                .built_replicas(observed)
                .unwrap_or_else(|| count(&observed.instances)),
        }
    }

    /// Number of instances of the StatefulSet that exists.
    #[must_use]
    pub fn built_replicas(&self, observed: &Observed) -> Option<u32> {
        let key = ObjectKey {
            kind: ObjectKind::StatefulSet,
            name: self.name.to_owned(),
        };
        let set = observed.objects.get(&key)?;
        set.value
            .pointer("/spec/replicas")?
            .as_u64()
            .and_then(|n| u32::try_from(n).ok())
    }

    /// Names derived from the cluster's.
    #[must_use]
    pub fn names(&self) -> Names {
        Names::new(self.namespace, self.name)
    }

    /// DNS name of an instance for SQL clients, without a full domain.
    #[must_use]
    pub fn host(&self, instance: &InstanceName) -> String {
        self.names().instance_host(instance)
    }

    /// Whether the primary is to archive its binlog; `None` while the spec is not valid.
    #[must_use]
    pub fn archives(&self) -> Option<bool> {
        let spec = self.spec.ok()?;
        Some(spec.backup.as_ref().is_some_and(|backup| backup.destination.archive))
    }

    /// First application database and user, if declared.
    #[must_use]
    pub fn application(&self) -> Option<Application> {
        self.spec.ok().and_then(|spec| spec.application.clone())
    }

    /// The data with which the cluster begins, if that is declared.
    #[must_use]
    pub fn recovery(&self) -> Option<&RecoveryWish> {
        self.spec.ok()?.recovery.as_ref()
    }

    /// First server_id of the cluster: recorded, or drawn from the uid (decision B13: 1 to 2^31, rounded to 100), so
    /// that it is the same in every pass before the first record.
    #[must_use]
    pub fn server_id_base(&self, observed: &Observed) -> u32 {
        if let Some(rules) = observed.rules() {
            return rules.server_id_base;
        }
        let digest = Sha256::digest(self.uid.as_bytes());
        let drawn = digest
            .iter()
            .take(4)
            .fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
        (drawn % 21_474_835 + 1) * 100
    }
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
