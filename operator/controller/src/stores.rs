//! Object stores, as the operator reaches them: behind a trait, so that a simulation has one in memory.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_store::{S3, Settings, Store};

/// Opens object stores.
#[async_trait]
pub trait Stores: Send + Sync + 'static {
    /// A client of this store; the store is not asked yet.
    ///
    /// # Errors
    /// Why the settings cannot be used, as a sentence without secrets.
    async fn open(&self, settings: Settings) -> Result<Arc<dyn Store>, String>;
}

/// Stores that speak S3.
#[derive(Clone, Copy, Debug)]
pub struct S3Stores;

#[async_trait]
impl Stores for S3Stores {
    async fn open(&self, settings: Settings) -> Result<Arc<dyn Store>, String> {
        let opened = S3::new(settings).await.map_err(|error| error.to_string())?;
        Ok(Arc::new(opened))
    }
}
