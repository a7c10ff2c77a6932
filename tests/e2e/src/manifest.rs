//! `MySQLCluster` manifests as a user writes them.

use serde_json::{Value, json};

/// A manifest under construction.
#[derive(Clone, Debug)]
pub struct Manifest(Value);

impl Manifest {
    /// A small cluster: `replicas` instances on volumes of 1Gi.
    #[must_use]
    pub fn new(name: &str, replicas: i32, image: &str) -> Self {
        Self(json!({
            "apiVersion": "mysql.mainstay.dev/v1",
            "kind": "MySQLCluster",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "storage": {"size": "1Gi"},
                "resources": {"requests": {"cpu": "20m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            }
        }))
    }

    /// Sets a field of the spec, replacing what was there.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        if let Some(spec) = self.0.pointer_mut("/spec").and_then(Value::as_object_mut) {
            spec.insert(field.to_owned(), value);
        }
        self
    }

    /// Asks for a first database and its user, both called `app`.
    #[must_use]
    pub fn with_app(self) -> Self {
        self.with("bootstrap", json!({"initdb": {"database": "app"}}))
    }

    /// The manifest.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.0
    }
}
