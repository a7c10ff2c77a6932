//! A store that takes every question and answers none.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use mainstay_core::backup::{Folder, Key};
use mainstay_store::{
    Body, Download, Entry, Existing, Incomplete, Listing, ObjectInfo, Span, Store, StoreError, Stored, StreamOptions,
};

/// See the module.
pub(crate) struct Stuck;

async fn never<T>() -> Result<T, StoreError> {
    std::future::pending().await
}

#[async_trait]
impl Store for Stuck {
    async fn put(&self, _: &Key, _: Bytes, _: Existing) -> Result<(), StoreError> {
        never().await
    }

    async fn put_stream(&self, _: &Key, _: Body, _: StreamOptions) -> Result<Stored, StoreError> {
        never().await
    }

    async fn get(&self, _: &Key, _: u64) -> Result<Bytes, StoreError> {
        never().await
    }

    async fn get_stream(&self, _: &Key, _: Span) -> Result<Download, StoreError> {
        never().await
    }

    async fn head(&self, _: &Key) -> Result<ObjectInfo, StoreError> {
        never().await
    }

    fn list(&self, _: Listing) -> BoxStream<'_, Result<Entry, StoreError>> {
        futures::stream::pending().boxed()
    }

    async fn delete(&self, _: &Key) -> Result<(), StoreError> {
        never().await
    }

    async fn delete_all(&self, _: &[Key]) -> Result<(), StoreError> {
        never().await
    }

    async fn incomplete(&self, _: &Folder) -> Result<Vec<Incomplete>, StoreError> {
        never().await
    }

    async fn abort(&self, _: &Incomplete) -> Result<(), StoreError> {
        never().await
    }
}
