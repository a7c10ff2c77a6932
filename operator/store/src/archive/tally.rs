//! Counting and hashing of what passes by.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest;
use mainstay_core::backup::manifest::StoredFile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::port::Body;

/// What passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes.
    pub bytes: u64,
    /// SHA-256 of them, in lower-case hexadecimal.
    pub sha256: String,
}

struct Running {
    bytes: u64,
    hash: digest::Context,
}

impl Running {
    fn new() -> Self {
        Self {
            bytes: 0,
            hash: digest::Context::new(&digest::SHA256),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    fn tally(&self) -> Tally {
        let hash = self.hash.clone().finish();
        Tally {
            bytes: self.bytes,
            sha256: hexadecimal(hash.as_ref()),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A sink that counts; the tally is there when it was shut down.
pub(super) struct Counted<W> {
    inner: W,
    running: Running,
    result: Arc<Mutex<Option<Tally>>>,
}

/// Where the tally of a [`Counted`] will be.
#[derive(Clone)]
pub(super) struct Result(Arc<Mutex<Option<Tally>>>);

impl Result {
    /// `None` before the sink was shut down.
    pub(super) fn take(&self) -> Option<Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<W> Counted<W> {
    pub(super) fn new(inner: W) -> (Self, Result) {
        let result = Arc::default();
        let counted = Self {
            inner,
            running: Running::new(),
            result: Arc::clone(&result),
        };
        (counted, Result(result))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, data))?;
        this.running.add(data.get(..written).unwrap_or(data));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        *this.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(this.running.tally());
        Poll::Ready(Ok(()))
    }
}

/// Content that ends only if it is what was stored; else it gives an error.
pub(super) struct Verified {
    inner: Body,
    running: Running,
    expected: Tally,
}

impl Verified {
    pub(super) fn new(inner: Body, file: &StoredFile) -> Self {
        Self {
            inner,
            running: Running::new(),
            expected: Tally {
                bytes: file.size,
                sha256: file.sha256.clone(),
            },
        }
    }

    fn compare(&self) -> io::Result<()> {
        let found = self.running.tally();
        let reason = if found.bytes != self.expected.bytes {
            format!("it has {} bytes instead of {}", found.bytes, self.expected.bytes)
        } else if found.sha256 != self.expected.sha256 {
            format!("its SHA-256 is {} instead of {}", found.sha256, self.expected.sha256)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
    }
}

impl AsyncRead for Verified {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(this.inner.as_mut().poll_read(cx, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        if new.is_empty() {
            return Poll::Ready(this.compare());
        }
        this.running.add(new);
        // What is too long is not read to its end.
        if this.running.bytes > this.expected.bytes {
            return Poll::Ready(this.compare());
        }
        Poll::Ready(Ok(()))
    }
}
