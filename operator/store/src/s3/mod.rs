//! [`Store`] over the S3 protocol.

mod download;
mod fault;
mod listing;
mod settings;
mod upload;

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{ChecksumAlgorithm, Delete, ObjectIdentifier};
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::base64;
use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use mainstay_core::backup::{Folder, Key};

pub use settings::{Identity, Keys, Settings, SettingsError};

use crate::error::{Place, StoreError};
use crate::port::{
    Body, Download, Entry, Existing, Incomplete, Listing, ObjectInfo, Span, Store, Stored, StreamOptions,
};

/// Objects that one request deletes.
const DELETED_AT_ONCE: usize = 1000;

/// With what everything is sent that can be sent with a checksum.
const CHECKSUM: ChecksumAlgorithm = ChecksumAlgorithm::Crc32C;

/// [`CHECKSUM`] of content, as the header wants it. The client would compute it, too, but sends it over TLS in a trailer,
/// which many stores do not know.
fn checksum(content: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, content);
    // 32 bits of it are used.
    base64::encode(sum.to_be_bytes().get(4..).unwrap_or_default())
}

/// A bucket of an S3 store, and a prefix in it. Clones share connections.
#[derive(Clone)]
pub struct S3 {
    client: Client,
    endpoint: Arc<str>,
    bucket: Arc<str>,
    prefix: Folder,
}

impl S3 {
    /// Makes the client; the store is not asked yet.
    pub async fn new(settings: Settings) -> Result<Self, SettingsError> {
        let settings::Connected {
            client,
            endpoint,
            bucket,
            prefix,
        } = settings::connect(settings).await?;
        Ok(Self {
            client,
            endpoint,
            bucket,
            prefix,
        })
    }

    /// Whole name of an object.
    fn full(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Whole name of a folder.
    fn full_folder(&self, folder: &Folder) -> String {
        format!("{}{folder}", self.prefix)
    }

    /// The part of a whole name that is relative to the prefix; `None` for what is not Mainstay's.
    fn relative(&self, full: &str) -> Option<Key> {
        Key::parse(full.strip_prefix(self.prefix.as_str())?).ok()
    }

    fn place(&self, full_key: &str) -> Place {
        Place {
            endpoint: Arc::clone(&self.endpoint),
            bucket: Arc::clone(&self.bucket),
            key: full_key.to_owned(),
        }
    }

    fn fault<E>(&self, what: &'static str, full_key: &str, error: &SdkError<E, Response>) -> StoreError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        fault::fault(what, self.place(full_key), error)
    }

    /// The answer to HEAD has no body that could say what is missing: the bucket is asked.
    async fn explain(&self, what: &'static str, full_key: &str, short: StoreError) -> StoreError {
        if !matches!(short, StoreError::NotFound { .. } | StoreError::Denied { .. }) {
            return short;
        }
        let request = self.client.list_objects_v2().bucket(&*self.bucket).prefix(full_key);
        match request.max_keys(1).send().await {
            Ok(_) => short,
            Err(error) => match self.fault(what, full_key, &error) {
                // Credentials that may not list still tell nothing about the object.
                StoreError::Denied { .. } => short,
                long => long,
            },
        }
    }

    async fn put_bytes(&self, full_key: &str, content: Bytes, existing: Existing) -> Result<(), StoreError> {
        let size = content.len() as u64;
        self.client
            .put_object()
            .bucket(&*self.bucket)
            .key(full_key)
            .checksum_crc32_c(checksum(&content))
            .set_if_none_match(if_none_match(existing))
            .body(ByteStream::from(content))
            .customize()
            .config_override(settings::transfer(size))
            .send()
            .await
            .map_err(|error| self.fault("store", full_key, &error))?;
        Ok(())
    }

    async fn head_full(&self, full_key: &str) -> Result<(u64, Timestamp), StoreError> {
        let request = self.client.head_object().bucket(&*self.bucket).key(full_key);
        match request.send().await {
            Ok(head) => Ok((size(head.content_length()), time(head.last_modified()))),
            Err(error) => {
                let short = self.fault("look at", full_key, &error);
                Err(self.explain("look at", full_key, short).await)
            }
        }
    }

    async fn delete_some(&self, keys: &[Key]) -> Result<(), StoreError> {
        const WHAT: &str = "delete";
        let full: Vec<String> = keys.iter().map(|key| self.full(key)).collect();
        let first = full.first().map_or("", String::as_str);
        let other = |reason: String| StoreError::Other {
            what: WHAT,
            place: self.place(first),
            reason,
        };
        let objects: Result<Vec<_>, _> = full
            .iter()
            .map(|key| ObjectIdentifier::builder().key(key).build())
            .collect();
        let delete = objects
            .and_then(|objects| Delete::builder().set_objects(Some(objects)).quiet(true).build())
            .map_err(|error| other(error.to_string()))?;
        let answer = self
            .client
            .delete_objects()
            .bucket(&*self.bucket)
            .delete(delete)
            .send()
            .await
            .map_err(|error| self.fault(WHAT, first, &error))?;
        let refused = answer.errors().iter().find(|error| error.code() != Some("NoSuchKey"));
        refused.map_or(Ok(()), |error| {
            let key = error.key().unwrap_or(first);
            let (code, message) = (error.code().unwrap_or_default(), error.message().unwrap_or_default());
            Err(fault::answered(
                WHAT,
                self.place(key),
                0,
                code,
                format!("{code}: {message}"),
            ))
        })
    }
}

#[async_trait]
impl Store for S3 {
    async fn put(&self, key: &Key, content: Bytes, existing: Existing) -> Result<(), StoreError> {
        self.put_bytes(&self.full(key), content, existing).await
    }

    async fn put_stream(&self, key: &Key, body: Body, options: StreamOptions) -> Result<Stored, StoreError> {
        upload::stream(self, &self.full(key), body, options).await
    }

    async fn get(&self, key: &Key, limit: u64) -> Result<Bytes, StoreError> {
        download::whole(self, &self.full(key), limit).await
    }

    async fn get_stream(&self, key: &Key, span: Span) -> Result<Download, StoreError> {
        download::stream(self, self.full(key), span).await
    }

    async fn head(&self, key: &Key) -> Result<ObjectInfo, StoreError> {
        let (size, modified) = self.head_full(&self.full(key)).await?;
        Ok(ObjectInfo {
            key: key.clone(),
            size,
            modified,
        })
    }

    fn list(&self, listing: Listing) -> BoxStream<'_, Result<Entry, StoreError>> {
        listing::entries(self, listing)
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        let full = self.full(key);
        let request = self.client.delete_object().bucket(&*self.bucket).key(&full);
        match request
            .send()
            .await
            .map_err(|error| self.fault("delete", &full, &error))
        {
            Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete_all(&self, keys: &[Key]) -> Result<(), StoreError> {
        for some in keys.chunks(DELETED_AT_ONCE) {
            self.delete_some(some).await?;
        }
        Ok(())
    }

    async fn incomplete(&self, folder: &Folder) -> Result<Vec<Incomplete>, StoreError> {
        listing::incomplete(self, folder).await
    }

    async fn abort(&self, upload: &Incomplete) -> Result<(), StoreError> {
        upload::abort(self, &self.full(&upload.key), &upload.id).await
    }
}

fn if_none_match(existing: Existing) -> Option<String> {
    match existing {
        Existing::Replace => None,
        Existing::Keep => Some("*".to_owned()),
    }
}

fn size(length: Option<i64>) -> u64 {
    length.and_then(|length| u64::try_from(length).ok()).unwrap_or(0)
}

/// A time of the store; the beginning of time when it gave none.
fn time(given: Option<&DateTime>) -> Timestamp {
    given
        .and_then(|time| Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).unwrap_or(0)).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of CRC-32C in the catalogue of CRC algorithms, e3069283.
    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(checksum(b"123456789"), "4waSgw==");
    }
}
