//! Writing to a peer: a queue limited in bytes, and a task that writes all queued frames at once.

use crate::counters::add;
use crate::shared::Shared;
use bytes::{Buf, Bytes};
use convoke_base::framing::{HEADER_BYTES, header};
use convoke_core::node::LinkId;
use convoke_tls::WriteHalf;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

/// Bytes taken from the queue at a time.
const WRITE_BYTES: usize = 256 * 1024;
/// Time limit for a closed link to send its queued frames.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// Queued frames for one peer.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    limit: usize,
    written: Notify,
    closed: Notify,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Bytes>,
    /// Bytes queued or being written.
    bytes: usize,
    closing: bool,
}

/// The peer reads too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Queue { state: Mutex::default(), limit, written: Notify::new(), closed: Notify::new() }
    }

    /// Returns the bytes that are queued or being written.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Queues a frame and returns the number of queued bytes.
    pub(crate) fn push(&self, frame: Bytes) -> Result<usize, Full> {
        let mut state = self.lock();
        let bytes = state.bytes + HEADER_BYTES + frame.len();
        if bytes > self.limit {
            return Err(Full);
        }
        state.bytes = bytes;
        state.frames.push_back(frame);
        let first = state.frames.len() == 1;
        drop(state);
        if first {
            self.written.notify_one();
        }
        Ok(bytes)
    }

    /// Closes the queue: queued frames are still sent, then the connection ends.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.written.notify_one();
        self.closed.notify_one();
    }

    /// Closes the queue and drops the queued frames.
    pub(crate) fn cut(&self) {
        let mut state = self.lock();
        state.frames.clear();
        drop(state);
        self.close();
    }

    /// Waits until this side closes the link.
    pub(super) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits for frames; `None` once closed and empty.
    async fn take(&self) -> Option<Outgoing> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.written.notified().await;
        }
    }

    fn try_take(&self) -> Option<Option<Outgoing>> {
        let mut state = self.lock();
        if state.frames.is_empty() {
            return state.closing.then_some(None);
        }
        let mut outgoing = Outgoing::default();
        while outgoing.remaining() < WRITE_BYTES
            && let Some(frame) = state.frames.pop_front()
        {
            outgoing.push(frame);
        }
        if !state.frames.is_empty() {
            self.written.notify_one();
        }
        Some(Some(outgoing))
    }

    fn sent(&self, bytes: usize) {
        self.lock().bytes -= bytes;
    }

    fn is_closing(&self) -> bool {
        self.lock().closing
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frames with their headers, written without a copy into one buffer.
#[derive(Debug, Default)]
struct Outgoing {
    frames: VecDeque<([u8; HEADER_BYTES], Bytes)>,
    /// Written bytes of the first header.
    header_done: usize,
    remaining: usize,
}

impl Outgoing {
    fn push(&mut self, frame: Bytes) {
        self.remaining += HEADER_BYTES + frame.len();
        self.frames.push_back((header(&[&frame]), frame));
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        match self.frames.front() {
            Some((header, _)) if self.header_done < HEADER_BYTES => &header[self.header_done..],
            Some((_, frame)) => frame,
            None => &[],
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut done = self.header_done;
        for (header, frame) in &self.frames {
            for part in [&header[done..], &frame[..]] {
                if used == slices.len() {
                    return used;
                }
                if !part.is_empty() {
                    slices[used] = IoSlice::new(part);
                    used += 1;
                }
            }
            done = 0;
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "advanced by {count} of {} bytes", self.remaining);
        self.remaining -= count;
        while let Some((_, frame)) = self.frames.front_mut() {
            let of_header = count.min(HEADER_BYTES - self.header_done);
            self.header_done += of_header;
            count -= of_header;
            let of_frame = count.min(frame.len());
            frame.advance(of_frame);
            count -= of_frame;
            if self.header_done < HEADER_BYTES || !frame.is_empty() {
                return;
            }
            self.frames.pop_front();
            self.header_done = 0;
        }
    }
}

/// Writes until the link is closed or fails. The reader detects a failed connection and reports it.
pub(super) async fn write(mut stream: WriteHalf, _id: LinkId, queue: Arc<Queue>, shared: Arc<Shared>) {
    while let Some(mut outgoing) = queue.take().await {
        let bytes = outgoing.remaining();
        let writing = async {
            stream.write_all_buf(&mut outgoing).await?;
            // TLS may hold the end of what was written.
            stream.flush().await
        };
        let result = if queue.is_closing() {
            tokio::time::timeout(LINGER, writing).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        } else {
            tokio::select! {
                biased;
                result = writing => result,
                // A peer that does not read must not keep a closed link open forever.
                () = stuck_after_close(&queue) => Err(std::io::ErrorKind::TimedOut.into()),
            }
        };
        queue.sent(bytes);
        add(&shared.counting.sent_bytes, bytes as u64);
        if result.is_err() {
            return;
        }
    }
    // The reader waits until the peer has read everything before it closes the connection.
    let _ = stream.shutdown().await;
}

async fn stuck_after_close(queue: &Queue) {
    let mut look = tokio::time::interval(LINGER);
    loop {
        look.tick().await;
        if queue.is_closing() {
            tokio::time::sleep(LINGER).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn frames(sizes: &[usize]) -> Vec<Bytes> {
        sizes.iter().enumerate().map(|(i, size)| Bytes::from(vec![i as u8 + 1; *size])).collect()
    }

    #[test]
    fn headers_and_frames_are_written_in_steps_of_any_size() {
        let frames = frames(&[3, 0, 1, 300, 0]);
        let expected: Vec<u8> = frames.iter().flat_map(|f| [&header(&[f])[..], f].concat()).collect();
        for step in [1, 2, 3, 4, 5, 7, 64, 1000] {
            let mut outgoing = Outgoing::default();
            frames.iter().cloned().for_each(|frame| outgoing.push(frame));
            let mut written = Vec::new();
            while outgoing.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 3];
                let used = outgoing.chunks_vectored(&mut slices);
                let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
                assert!(bytes.starts_with(outgoing.chunk()) && !outgoing.chunk().is_empty());
                let count = step.min(bytes.len());
                written.extend_from_slice(&bytes[..count]);
                outgoing.advance(count);
            }
            assert_eq!(written, expected, "in steps of {step}");
            assert_eq!(outgoing.frames.len(), 0);
        }
    }

    #[test]
    fn queued_bytes_count_against_the_limit_until_they_are_written() {
        let queue = Queue::new(100);
        assert_eq!(queue.push(Bytes::from(vec![0; 50])), Ok(50 + HEADER_BYTES));
        assert_eq!(queue.push(Bytes::from(vec![0; 50])), Err(Full));
        let outgoing = queue.try_take().unwrap().unwrap();
        assert_eq!(queue.push(Bytes::from(vec![0; 50])), Err(Full), "still being written");
        assert_eq!(queue.bytes(), 50 + HEADER_BYTES);
        queue.sent(outgoing.remaining());
        assert_eq!(queue.push(Bytes::from(vec![0; 50])), Ok(50 + HEADER_BYTES));
        queue.close();
        assert!(queue.try_take().unwrap().is_some(), "queued frames are sent before the end");
        assert!(queue.try_take().unwrap().is_none());
    }
}
