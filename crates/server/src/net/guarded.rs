//! A client's socket. It replays the bytes that were read to detect the protocol, and it fails if the client does not
//! read what the server writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Slices with at most this many bytes in total are written as one: a head with its small body, or an event with the
/// marks of its chunk.
const FLAT: usize = 2048;

pub(super) struct Guarded<S> {
    stream: S,
    first: Vec<u8>,
    stall: Duration,
    /// Expires when the client has read nothing for too long. Created at the first stall, then reused.
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, first: &[u8], stall: Duration) -> Self {
        Guarded { stream, first: first.to_vec(), stall, timer: None, stalled: false }
    }

    /// Returns the result of a write, or an error if the client has read nothing for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = false;
            return outcome;
        }
        let stall = self.stall;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        if !self.stalled {
            self.stalled = true;
            timer.as_mut().reset(Instant::now() + stall);
        }
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, into);
        }
        let count = this.first.len().min(into.remaining());
        into.put_slice(&this.first[..count]);
        this.first.drain(..count);
        if this.first.is_empty() {
            this.first = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        // Most writes have one slice or several small ones, for which a plain write is faster than a vectored one.
        let outcome = match (filled.next(), filled.next()) {
            (Some(only), None) => Pin::new(&mut this.stream).poll_write(context, only),
            _ if slices.iter().map(|slice| slice.len()).sum::<usize>() <= FLAT => {
                let (mut flat, mut length) = ([0; FLAT], 0);
                for slice in slices {
                    flat[length..length + slice.len()].copy_from_slice(slice);
                    length += slice.len();
                }
                Pin::new(&mut this.stream).poll_write(context, &flat[..length])
            }
            _ => Pin::new(&mut this.stream).poll_write_vectored(context, slices),
        };
        this.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_first_bytes_are_replayed() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b" world").await.unwrap();
        drop(far);
        let mut guarded = Guarded::new(near, b"hello", Duration::from_secs(60));
        let mut text = String::new();
        guarded.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello world");
    }

    #[tokio::test]
    async fn slices_of_any_size_arrive_in_order() {
        for size in [1, 100, FLAT] {
            let (near, mut far) = tokio::io::duplex(8 * FLAT);
            let mut guarded = Guarded::new(near, b"", Duration::from_secs(60));
            let pieces = [vec![b'a'; size], Vec::new(), vec![b'b'; size], vec![b'c'; 1]];
            let slices: Vec<io::IoSlice<'_>> = pieces.iter().map(|piece| io::IoSlice::new(piece)).collect();
            let wrote = guarded.write_vectored(&slices).await.unwrap();
            drop(guarded);
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            let all = pieces.concat();
            assert!(wrote >= size);
            assert_eq!(read, all[..wrote]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut guarded = Guarded::new(near, b"", Duration::from_secs(5));
        let mut taken = [0; 4];
        for _ in 0..3 {
            // A slow client that still reads is kept.
            let (wrote, read) = tokio::join!(guarded.write_all(b"abcd"), async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                far.read_exact(&mut taken).await
            });
            wrote.unwrap();
            read.unwrap();
        }
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
