//! From the declared spec to a value without contradictions.

/// A field of the spec that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    /// Path of the field, for example `spec.config.server_id`.
    pub field: String,
    /// Why, and what to do.
    pub message: String,
}

/// A cluster whose spec was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedCluster {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the `MySQLCluster`.
    pub uid: String,
    /// metadata.generation of the spec.
    pub generation: i64,
    /// Number of instances, the primary included.
    pub replicas: u32,
}
