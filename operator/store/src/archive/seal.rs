//! Compression and encryption of any stream.

use std::io;
use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::Level;
use async_compression::tokio::bufread::ZstdDecoder;
use async_compression::tokio::write::ZstdEncoder;
use async_compression::zstd::CParameter;
use bytes::Bytes;
use mainstay_core::backup::manifest::{Encryption, Scheme, StoredFile};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::compat::{FuturesAsyncReadCompatExt as _, FuturesAsyncWriteCompatExt as _};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

use super::error::ArchiveError;
use super::key::{PrivateKey, Recipient};
use super::tally::{self, Counted, Tally, Verified};
use crate::port::Body;

/// Bytes that are decompressed at once.
const BUFFER: usize = 128 * 1024;

/// How content is compressed and encrypted.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// Level of zstd, 1 to 19: more is smaller and slower.
    pub level: i32,
    /// For whom it is encrypted; it is not if absent.
    pub recipient: Option<Recipient>,
}

impl Default for Sealing {
    /// Level 1: three times as fast as level 3, whose result is a few percent smaller. Compressing is the slowest part of a backup.
    fn default() -> Self {
        Self {
            level: 1,
            recipient: None,
        }
    }
}

impl Sealing {
    /// What the manifest says of it.
    #[must_use]
    pub fn encryption(&self) -> Option<Encryption> {
        let recipient = self.recipient.as_ref()?;
        Some(Encryption {
            scheme: Scheme::AgeX25519,
            key_id: recipient.key_id(),
        })
    }
}

type Sink = Pin<Box<dyn AsyncWrite + Send>>;

/// A writer that compresses, encrypts and counts. Only [`Sealer::finish`] ends the content: one that is dropped leaves
/// content that cannot be read as whole.
pub struct Sealer {
    encoder: ZstdEncoder<Sink>,
    result: tally::Result,
}

impl Sealer {
    /// Writes to a sink; with encryption it is written to at once.
    pub async fn new(sink: impl AsyncWrite + Send + Unpin + 'static, sealing: &Sealing) -> Result<Self, ArchiveError> {
        let (counted, result) = Counted::new(sink);
        let sink: Sink = match &sealing.recipient {
            None => Box::pin(counted),
            Some(recipient) => {
                let encryptor = age::Encryptor::with_recipients(iter::once(&recipient.0 as &dyn age::Recipient))
                    .map_err(|error| ArchiveError::Key {
                        reason: error.to_string(),
                    })?;
                let encrypted = encryptor.wrap_async_output(counted.compat_write()).await;
                Box::pin(encrypted.map_err(ArchiveError::writing)?.compat_write())
            }
        };
        let checksum = [CParameter::checksum_flag(true)];
        let level = Level::Precise(sealing.level);
        Ok(Self {
            encoder: ZstdEncoder::with_quality_and_params(sink, level, &checksum),
            result,
        })
    }

    /// Ends the content and the sink.
    pub async fn finish(mut self) -> Result<Tally, ArchiveError> {
        self.encoder.shutdown().await.map_err(ArchiveError::writing)?;
        self.result.take().ok_or_else(|| ArchiveError::Sink {
            source: io::Error::other("the sink was not shut down"),
        })
    }
}

impl AsyncWrite for Sealer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.encoder).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.encoder).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.encoder).poll_shutdown(cx)
    }
}

/// Reads what a [`Sealer`] wrote. It is encrypted if its name ends with `.age`. The end comes only after all was verified:
/// read to the end before anything is relied on.
pub async fn open(stored: Body, file: &StoredFile, key: Option<&PrivateKey>) -> Result<Body, ArchiveError> {
    let verified = Verified::new(stored, file);
    let plain: Body = if file.name.strip_suffix(".age").is_some() {
        let key = key.ok_or_else(|| ArchiveError::Key {
            reason: "it is encrypted, and no key was given".to_owned(),
        })?;
        let decryptor = age::Decryptor::new_async(verified.compat()).await.map_err(refused)?;
        let decrypted = decryptor.decrypt_async(iter::once(&key.0 as &dyn age::Identity));
        Box::pin(decrypted.map_err(refused)?.compat())
    } else {
        Box::pin(verified)
    };
    let mut decoder = ZstdDecoder::new(BufReader::with_capacity(BUFFER, plain));
    // It looks whether more follows, and so reads to the end.
    decoder.multiple_members(true);
    Ok(Box::pin(decoder))
}

fn refused(error: age::DecryptError) -> ArchiveError {
    match error {
        age::DecryptError::Io(error) => ArchiveError::reading(error),
        age::DecryptError::NoMatchingKeys => ArchiveError::Key {
            reason: "the key does not fit".to_owned(),
        },
        other => ArchiveError::Damaged {
            reason: other.to_string(),
        },
    }
}

/// Compresses and encrypts bytes in memory.
pub async fn seal_bytes(content: &[u8], sealing: &Sealing) -> Result<(Bytes, Tally), ArchiveError> {
    let (sink, mut source) = crate::pipe::pipe();
    let mut sealer = Sealer::new(sink, sealing).await?;
    let write = async {
        sealer.write_all(content).await.map_err(ArchiveError::writing)?;
        sealer.finish().await
    };
    let mut bytes = Vec::new();
    let (tally, read) = tokio::join!(write, source.read_to_end(&mut bytes));
    let tally = tally?;
    read.map_err(ArchiveError::reading)?;
    Ok((bytes.into(), tally))
}

/// Reads what [`seal_bytes`] made, if it has at most `limit` bytes.
pub async fn open_bytes(
    sealed: Bytes,
    file: &StoredFile,
    key: Option<&PrivateKey>,
    limit: u64,
) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    let opened = open(Box::pin(io::Cursor::new(sealed)), file, key).await?;
    // One byte more than allowed, to see that there is more, and the end, to see that all is well.
    let read = opened.take(limit.saturating_add(1)).read_to_end(&mut content).await;
    read.map_err(ArchiveError::reading)?;
    if content.len() as u64 > limit {
        return Err(ArchiveError::Damaged {
            reason: format!("it has more than {limit} bytes"),
        });
    }
    Ok(content)
}
