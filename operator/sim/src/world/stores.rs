//! The object store of a world, in memory: whatever is declared, it is this one.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use mainstay_controller::stores::Stores;
use mainstay_store::{Memory, Settings, Store};

use crate::clock::Clock;

/// The store. Clones are the same one.
#[derive(Clone)]
pub struct SimStores(pub Memory);

impl SimStores {
    /// An empty one.
    pub(super) fn new(clock: Clock) -> Self {
        Self(Memory::with_clock(move || clock.now()))
    }

    /// Another one with the same content.
    pub(super) fn copy(&self) -> Self {
        Self(self.0.copy())
    }
}

impl fmt::Debug for SimStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStores")
    }
}

#[async_trait]
impl Stores for SimStores {
    async fn open(&self, _settings: Settings) -> Result<Arc<dyn Store>, String> {
        Ok(Arc::new(self.0.clone()))
    }
}
