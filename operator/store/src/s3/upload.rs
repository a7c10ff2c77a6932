//! Uploads in parts, several at a time.

use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tracing::warn;

use super::{CHECKSUM, S3, checksum, if_none_match, settings};
use crate::error::{StoreError, chain};
use crate::parts::{MAX_OBJECT, Schedule};
use crate::port::{Body, Existing, Stored, StreamOptions};

const WHAT: &str = "store";

/// How long the store may take to make one object of thousands of parts.
const COMPLETION: Duration = Duration::from_mins(5);

pub(super) async fn stream(
    store: &S3,
    full_key: &str,
    mut body: Body,
    options: StreamOptions,
) -> Result<Stored, StoreError> {
    let schedule = Schedule::new(options.expected);
    let too_large = || StoreError::TooLarge {
        what: WHAT,
        place: store.place(full_key),
        limit: MAX_OBJECT,
    };
    let wanted = schedule.size(0).ok_or_else(too_large)?;
    let first = fill(store, full_key, &mut body, wanted).await?;
    let mut size = first.len() as u64;
    if size < wanted {
        store.put_bytes(full_key, first, options.existing).await?;
        return Ok(Stored { size, parts: 1 });
    }
    let mut upload = Upload::begin(store, full_key).await?;
    let sent = async {
        upload.send(0, first);
        for index in 1.. {
            let wanted = schedule.size(index).ok_or_else(too_large)?;
            upload.make_room(wanted).await?;
            let part = fill(store, full_key, &mut body, wanted).await?;
            let filled = part.len() as u64;
            size += filled;
            if size > MAX_OBJECT {
                return Err(too_large());
            }
            if filled > 0 {
                upload.send(index, part);
            }
            if filled < wanted {
                break;
            }
        }
        upload.complete(size, options.existing).await
    }
    .await;
    match sent {
        Ok(parts) => Ok(Stored { size, parts }),
        Err(error) => {
            upload.abort().await;
            Err(error)
        }
    }
}

/// Reads a part: less than `wanted` only at the end.
async fn fill(store: &S3, full_key: &str, body: &mut Body, wanted: u64) -> Result<Bytes, StoreError> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut part = BytesMut::with_capacity(wanted);
    while part.len() < wanted {
        let mut rest = body.as_mut().take((wanted - part.len()) as u64);
        let read = rest.read_buf(&mut part).await.map_err(|error| StoreError::Content {
            what: WHAT,
            place: store.place(full_key),
            reason: chain(&error),
        })?;
        if read == 0 {
            break;
        }
    }
    Ok(part.freeze())
}

/// An upload that is aborted unless it was completed.
struct Upload {
    store: S3,
    full_key: String,
    id: String,
    tasks: JoinSet<Result<(u64, CompletedPart), StoreError>>,
    done: Vec<CompletedPart>,
    /// Bytes of the parts in memory.
    held: u64,
    open: bool,
}

impl Upload {
    async fn begin(store: &S3, full_key: &str) -> Result<Self, StoreError> {
        let answer = store
            .client
            .create_multipart_upload()
            .bucket(&*store.bucket)
            .key(full_key)
            .checksum_algorithm(CHECKSUM)
            .send()
            .await
            .map_err(|error| store.fault(WHAT, full_key, &error))?;
        let id = answer.upload_id().ok_or_else(|| StoreError::Other {
            what: WHAT,
            place: store.place(full_key),
            reason: "the store gave no identifier for the upload".to_owned(),
        })?;
        Ok(Self {
            store: store.clone(),
            full_key: full_key.to_owned(),
            id: id.to_owned(),
            tasks: JoinSet::new(),
            done: Vec::new(),
            held: 0,
            open: true,
        })
    }

    /// Waits until a part of this size may be read into memory.
    async fn make_room(&mut self, size: u64) -> Result<(), StoreError> {
        let limit = size.saturating_mul(Schedule::in_memory(size));
        while self.held > 0 && self.held + size > limit {
            self.take_one().await?;
        }
        Ok(())
    }

    /// Waits until a part was stored; false when there is none on the way.
    async fn take_one(&mut self) -> Result<bool, StoreError> {
        let Some(joined) = self.tasks.join_next().await else {
            return Ok(false);
        };
        let (size, part) = joined.map_err(|error| StoreError::Other {
            what: WHAT,
            place: self.store.place(&self.full_key),
            reason: chain(&error),
        })??;
        self.held = self.held.saturating_sub(size);
        self.done.push(part);
        Ok(true)
    }

    /// Begins to send a part, by its index from 0.
    fn send(&mut self, index: u32, content: Bytes) {
        self.held += content.len() as u64;
        let (store, full_key, id) = (self.store.clone(), self.full_key.clone(), self.id.clone());
        self.tasks.spawn(async move {
            let size = content.len() as u64;
            let checksum = checksum(&content);
            // At most 10,000.
            let number = i32::try_from(index).unwrap_or(i32::MAX).saturating_add(1);
            let answer = store
                .client
                .upload_part()
                .bucket(&*store.bucket)
                .key(&full_key)
                .upload_id(id)
                .part_number(number)
                .checksum_crc32_c(&checksum)
                .body(ByteStream::from(content))
                .customize()
                .config_override(settings::patient_transfer(size))
                .send()
                .await
                .map_err(|error| store.fault(WHAT, &full_key, &error))?;
            let part = CompletedPart::builder()
                .part_number(number)
                .set_e_tag(answer.e_tag().map(str::to_owned))
                .checksum_crc32_c(checksum)
                .build();
            Ok((size, part))
        });
    }

    /// Makes an object of the parts, and returns how many there were.
    async fn complete(&mut self, size: u64, existing: Existing) -> Result<u32, StoreError> {
        while self.take_one().await? {}
        let mut parts = std::mem::take(&mut self.done);
        parts.sort_by_key(CompletedPart::part_number);
        let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let result = self
            .store
            .client
            .complete_multipart_upload()
            .bucket(&*self.store.bucket)
            .key(&self.full_key)
            .upload_id(&self.id)
            .set_if_none_match(if_none_match(existing))
            .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build())
            .customize()
            .config_override(settings::slow_answer(COMPLETION))
            .send()
            .await;
        if let Err(error) = result {
            // An earlier attempt may have been carried out, and its answer lost.
            let lost = error.code() == Some("NoSuchUpload");
            let stored = lost && matches!(self.store.head_full(&self.full_key).await, Ok((found, _)) if found == size);
            if !stored {
                return Err(self.store.fault(WHAT, &self.full_key, &error));
            }
        }
        self.open = false;
        Ok(count)
    }

    /// Ends the upload without an object. What cannot be aborted now is found by `Store::incomplete` later.
    async fn abort(mut self) {
        self.tasks.shutdown().await;
        give_up(&self.store, &self.full_key, &self.id).await;
        self.open = false;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        let (store, full_key, id) = (self.store.clone(), self.full_key.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A part that arrives after the abort would stay.
                tasks.shutdown().await;
                give_up(&store, &full_key, &id).await;
            });
        }
    }
}

async fn give_up(store: &S3, full_key: &str, id: &str) {
    if let Err(error) = abort(store, full_key, id).await {
        warn!(error = %error, "an upload was not completed, and its parts are still stored");
    }
}

pub(super) async fn abort(store: &S3, full_key: &str, id: &str) -> Result<(), StoreError> {
    let request = store.client.abort_multipart_upload().bucket(&*store.bucket);
    match request.key(full_key).upload_id(id).send().await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("NoSuchUpload") => Ok(()),
        Err(error) => Err(store.fault("abort the upload of", full_key, &error)),
    }
}
