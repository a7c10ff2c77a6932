//! Mutating webhooks of other people: sidecar injectors, image pull secrets, policy engines (F30).

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::failure::Failure;
use super::resource::Resource;

type Hook = Arc<dyn Fn(&Resource, Option<&Value>, &mut Value) -> Result<(), Failure> + Send + Sync>;

/// The hooks, in order.
#[derive(Clone, Default)]
pub struct Admission(Vec<Hook>);

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hooks", self.0.len())
    }
}

impl Admission {
    /// Adds a hook: it gets the resource, the stored object (absent on creation) and the object that it may change.
    pub fn add(
        &mut self,
        hook: impl Fn(&Resource, Option<&Value>, &mut Value) -> Result<(), Failure> + Send + Sync + 'static,
    ) {
        self.0.push(Arc::new(hook));
    }

    /// Runs all hooks over an object on its way in.
    ///
    /// # Errors
    /// The refusal of a hook.
    pub fn run(&self, resource: &Resource, old: Option<&Value>, object: &mut Value) -> Result<(), Failure> {
        self.0.iter().try_for_each(|hook| hook(resource, old, object))
    }
}
