//! A bounded pipe whose writer has to say that it is done.
//!
//! An ordinary pipe ends when its writer is dropped, so content that was cut short by an error or a cancelled task would
//! be stored as if it were whole. Here only a writer that was shut down ends the content; one that is dropped is an error
//! for the reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

/// Bytes that are passed on at once.
const CHUNK: usize = 128 * 1024;

/// Chunks on the way.
const DEPTH: usize = 8;

enum Item {
    Chunk(Bytes),
    End,
}

/// Where content goes in. Shut it down at the end ([`tokio::io::AsyncWriteExt::shutdown`]).
pub struct PipeWriter {
    sender: PollSender<Item>,
    chunk: BytesMut,
}

/// Where content comes out.
pub struct PipeReader {
    receiver: mpsc::Receiver<Item>,
    chunk: Bytes,
    ended: bool,
}

/// A pipe that holds about 1 MiB: a writer that is faster than the reader waits.
#[must_use]
pub fn pipe() -> (PipeWriter, PipeReader) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    let writer = PipeWriter {
        sender: PollSender::new(sender),
        chunk: BytesMut::new(),
    };
    let reader = PipeReader {
        receiver,
        chunk: Bytes::new(),
        ended: false,
    };
    (writer, reader)
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads the content any more")
}

impl PipeWriter {
    fn poll_send(&mut self, cx: &mut Context<'_>, item: impl FnOnce(&mut Self) -> Item) -> Poll<io::Result<()>> {
        ready!(self.sender.poll_reserve(cx)).map_err(|_| gone())?;
        let item = item(self);
        Poll::Ready(self.sender.send_item(item).map_err(|_| gone()))
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.chunk.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.poll_send(cx, |writer| Item::Chunk(writer.chunk.split().freeze()))
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.chunk.len() >= CHUNK {
            ready!(this.poll_drain(cx))?;
        }
        if this.chunk.capacity() == 0 {
            this.chunk.reserve(CHUNK);
        }
        let taken = data.len().min(CHUNK - this.chunk.len());
        this.chunk.extend_from_slice(data.get(..taken).unwrap_or_default());
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_drain(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.sender.is_closed() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_drain(cx))?;
        ready!(this.poll_send(cx, |_| Item::End))?;
        this.sender.close();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.chunk.is_empty() {
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            match ready!(this.receiver.poll_recv(cx)) {
                Some(Item::Chunk(chunk)) => this.chunk = chunk,
                Some(Item::End) => this.ended = true,
                None => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "whoever made the content failed or was stopped before its end",
                    )));
                }
            }
        }
        let taken = this.chunk.len().min(buffer.remaining());
        buffer.put_slice(this.chunk.get(..taken).unwrap_or_default());
        this.chunk.advance(taken);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_goes_in_comes_out() {
        let (mut writer, mut reader) = pipe();
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        let sent = content.clone();
        let task = tokio::spawn(async move {
            for piece in sent.chunks(77_777) {
                writer.write_all(piece).await?;
            }
            writer.shutdown().await
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        task.await.unwrap().unwrap();
        assert!(received == content);
    }

    #[tokio::test]
    async fn a_writer_that_dies_is_an_error() {
        let (mut writer, mut reader) = pipe();
        writer.write_all(b"half").await.unwrap();
        writer.flush().await.unwrap();
        drop(writer);
        let mut received = Vec::new();
        let error = reader.read_to_end(&mut received).await.unwrap_err();
        assert_eq!(
            (error.kind(), received.as_slice()),
            (io::ErrorKind::UnexpectedEof, &b"half"[..])
        );
    }

    #[tokio::test]
    async fn a_writer_learns_that_nobody_reads() {
        let (mut writer, reader) = pipe();
        drop(reader);
        let error = async {
            writer.write_all(b"content").await?;
            writer.flush().await
        }
        .await
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_writer_waits_for_its_reader() {
        let (mut writer, _reader) = pipe();
        let block = vec![0; CHUNK];
        let mut written = 0;
        while let Ok(done) = tokio::time::timeout(std::time::Duration::from_millis(50), writer.write_all(&block)).await
        {
            done.unwrap();
            written += CHUNK;
        }
        assert!(written <= (DEPTH + 2) * CHUNK, "{written} bytes went in");
    }
}
