//! Downloads that survive broken connections.

use std::io;
use std::time::Duration;

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ChecksumMode;
use bytes::{Bytes, BytesMut};
use futures::stream;
use tokio_util::io::StreamReader;
use tracing::debug;

use super::fault::is_damage;
use super::{S3, settings, size};
use crate::error::{StoreError, chain};
use crate::port::{Download, Span};

const WHAT: &str = "read";

/// How long the next bytes may take.
const STALL: Duration = Duration::from_secs(30);

/// Connections in a row that may break without having brought a byte.
const BREAKS: u32 = 5;

/// Attempts at a small object.
const TRIES: u32 = 3;

/// Pause before a connection is made again; doubled each time.
const PAUSE: Duration = Duration::from_millis(200);

/// A whole small object, verified.
pub(super) async fn whole(store: &S3, full_key: &str, limit: u64) -> Result<Bytes, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let answer = store
            .client
            .get_object()
            .bucket(&*store.bucket)
            .key(full_key)
            .checksum_mode(ChecksumMode::Enabled)
            .send()
            .await
            .map_err(|error| store.fault(WHAT, full_key, &error))?;
        let expected = size(answer.content_length());
        if expected > limit {
            return Err(StoreError::TooLarge {
                what: WHAT,
                place: store.place(full_key),
                limit,
            });
        }
        let place = || store.place(full_key);
        let reason = match collect(answer.body, expected).await {
            Ok(content) => return Ok(content),
            Err(reason) if is_damage(&reason) => {
                return Err(StoreError::Corrupt {
                    what: WHAT,
                    place: place(),
                    reason,
                });
            }
            Err(reason) => reason,
        };
        if tries == TRIES {
            return Err(StoreError::Unreachable {
                what: WHAT,
                place: place(),
                reason,
            });
        }
        tokio::time::sleep(PAUSE * tries).await;
    }
}

async fn collect(mut body: ByteStream, expected: u64) -> Result<Bytes, String> {
    let mut content = BytesMut::with_capacity(usize::try_from(expected).unwrap_or(0));
    while let Some(chunk) = next(&mut body).await? {
        if (content.len() + chunk.len()) as u64 > expected {
            return Err("more bytes came than were announced".to_owned());
        }
        content.extend_from_slice(&chunk);
    }
    if (content.len() as u64) < expected {
        return Err(format!("{} of {expected} bytes came", content.len()));
    }
    Ok(content.freeze())
}

/// The next bytes; `None` at the end.
async fn next(body: &mut ByteStream) -> Result<Option<Bytes>, String> {
    match tokio::time::timeout(STALL, body.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(error))) => Err(chain(&error)),
        Err(_) => Err(format!("nothing came for {STALL:?}")),
    }
}

pub(super) async fn stream(store: &S3, full_key: String, span: Span) -> Result<Download, StoreError> {
    if span.length == Some(0) {
        let (total, _) = store.head_full(&full_key).await?;
        return Ok(nothing(total));
    }
    let range = (span != Span::ALL).then(|| match span.length {
        None => format!("bytes={}-", span.from),
        Some(length) => format!("bytes={}-{}", span.from, span.from.saturating_add(length - 1)),
    });
    let opened = match open(store, &full_key, range.clone(), None).await {
        Ok(opened) => opened,
        Err(Refused::BehindTheEnd) => {
            let (total, _) = store.head_full(&full_key).await?;
            return Ok(nothing(total));
        }
        Err(Refused::Failed(error)) => return Err(error),
    };
    let length = size(opened.content_length());
    let total = match range {
        None => length,
        Some(_) => total_of(opened.content_range()).ok_or_else(|| StoreError::Other {
            what: WHAT,
            place: store.place(&full_key),
            reason: "the store gave another part of the object than was asked for".to_owned(),
        })?,
    };
    let reader = Reader {
        store: store.clone(),
        full_key,
        etag: opened.e_tag().map(str::to_owned),
        at: span.from,
        end: span.from.saturating_add(length),
        body: Some(opened.body),
        breaks: 0,
    };
    let chunks = stream::try_unfold(reader, |mut reader| async move {
        let chunk = reader.chunk().await?;
        Ok::<_, io::Error>(chunk.map(|chunk| (chunk, reader)))
    });
    Ok(Download {
        size: total,
        body: Box::pin(StreamReader::new(Box::pin(chunks))),
    })
}

fn nothing(total: u64) -> Download {
    Download {
        size: total,
        body: Box::pin(tokio::io::empty()),
    }
}

/// Size of the object of `bytes 5-9/20`.
fn total_of(content_range: Option<&str>) -> Option<u64> {
    content_range?.rsplit_once('/')?.1.parse().ok()
}

enum Refused {
    BehindTheEnd,
    Failed(StoreError),
}

async fn open(
    store: &S3,
    full_key: &str,
    range: Option<String>,
    etag: Option<String>,
) -> Result<GetObjectOutput, Refused> {
    let request = store.client.get_object().bucket(&*store.bucket).key(full_key);
    let request = request.set_range(range).set_if_match(etag);
    let answer = request
        .customize()
        .config_override(settings::patient_transfer(0))
        .send()
        .await;
    answer.map_err(|error| {
        if error.raw_response().is_some_and(|raw| raw.status().as_u16() == 416) {
            return Refused::BehindTheEnd;
        }
        Refused::Failed(match store.fault(WHAT, full_key, &error) {
            // Only a request that goes on has a condition.
            StoreError::AlreadyExists { what, place } => StoreError::Corrupt {
                what,
                place,
                reason: "it was replaced while it was read".to_owned(),
            },
            other => other,
        })
    })
}

/// An object on its way.
struct Reader {
    store: S3,
    full_key: String,
    /// Of the object that was begun with: another one has other bytes.
    etag: Option<String>,
    /// Next byte.
    at: u64,
    /// Byte behind the last one.
    end: u64,
    body: Option<ByteStream>,
    /// Connections that broke since the last byte.
    breaks: u32,
}

impl Reader {
    async fn chunk(&mut self) -> Result<Option<Bytes>, StoreError> {
        while self.at < self.end {
            let mut body = match self.body.take() {
                Some(body) => body,
                None => self.again().await?,
            };
            let reason = match next(&mut body).await {
                Ok(Some(mut chunk)) => {
                    chunk.truncate(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
                    self.at += chunk.len() as u64;
                    self.body = Some(body);
                    self.breaks = 0;
                    return Ok(Some(chunk));
                }
                Ok(None) => "the connection ended too early".to_owned(),
                Err(reason) => reason,
            };
            self.breaks += 1;
            debug!(key = self.full_key, at = self.at, reason, "a download is begun again");
            if self.breaks > BREAKS {
                return Err(StoreError::Unreachable {
                    what: WHAT,
                    place: self.store.place(&self.full_key),
                    reason,
                });
            }
            tokio::time::sleep(PAUSE * 2_u32.pow(self.breaks)).await;
        }
        Ok(None)
    }

    /// Goes on where the connection broke.
    async fn again(&self) -> Result<ByteStream, StoreError> {
        let range = format!("bytes={}-{}", self.at, self.end - 1);
        match open(&self.store, &self.full_key, Some(range), self.etag.clone()).await {
            Ok(opened) => Ok(opened.body),
            Err(Refused::Failed(error)) => Err(error),
            Err(Refused::BehindTheEnd) => Err(StoreError::Corrupt {
                what: WHAT,
                place: self.store.place(&self.full_key),
                reason: "it became shorter while it was read".to_owned(),
            }),
        }
    }
}
