//! Reading from a peer: frames within the size limit, passed to the event loop in batches, a few at a time.

use super::writer::LINGER;
use super::{Queue, send_input};
use crate::counters::add;
use crate::event_loop::{Frames, Input};
use crate::shared::Shared;
use bytes::BytesMut;
use convoke_base::framing::next_frame;
use convoke_core::node::{LinkId, SeedFailure};
use convoke_tls::ReadHalf;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const BUFFER_BYTES: usize = 64 * 1024;
/// Largest first frame. It identifies the peer and lists the nodes that the peer knows.
const FIRST_FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Batches of one link that may wait for the event loop. At this number, the link is not read and TCP slows the peer
/// down.
const BATCHES_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) id: LinkId,
    pub(super) address: SocketAddr,
    pub(super) unidentified: Option<OwnedSemaphorePermit>,
    pub(super) queue: Arc<Queue>,
    pub(super) shared: Arc<Shared>,
}

pub(super) async fn read(mut stream: ReadHalf, mut reading: Reading) {
    let queue = reading.queue.clone();
    let ended = tokio::select! {
        biased;
        () = queue.closed() => None,
        failure = receive(&mut stream, &mut reading) => Some(failure),
    };
    let Reading { id, shared, .. } = reading;
    let Some(failure) = ended else {
        // The remaining bytes of the peer are discarded. A connection closed with unread bytes would be reset, and the
        // peer might lose the last frames sent to it.
        let mut sink = vec![0; 4096];
        let drained = async { while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {} };
        let _ = tokio::time::timeout(LINGER, drained).await;
        return;
    };
    queue.cut();
    send_input(&shared, Input::Closed { link: id, failure }).await;
}

/// Passes frames to the event loop until the connection ends or proves not to be a peer's. Returns what that means for
/// the dial of a seed.
async fn receive(stream: &mut ReadHalf, reading: &mut Reading) -> SeedFailure {
    let shared = reading.shared.clone();
    let room = Arc::new(Semaphore::new(BATCHES_MAX));
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    let mut first = reading.unidentified.is_some();
    loop {
        if buffer.capacity() - buffer.len() < 4096 {
            buffer.reserve(BUFFER_BYTES);
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) => return SeedFailure::Closed,
            // TLS 1.3: a peer that refuses this node's certificate says so after the handshake.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                shared.refused(reading.address, &error.to_string());
                return SeedFailure::Certificate;
            }
            Err(_) => return SeedFailure::Closed,
            Ok(count) => add(&shared.counting.received_bytes, count as u64),
        }
        let mut frames = Vec::new();
        loop {
            let limit = shared.frame_bytes.min(if first { FIRST_FRAME_BYTES_MAX } else { usize::MAX });
            match next_frame(&mut buffer, limit) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    let (failure, what) = if is_http(&buffer) {
                        (SeedFailure::SpeaksHttp, SeedFailure::SpeaksHttp.as_str().to_owned())
                    } else {
                        (SeedFailure::NotAPeer, error.to_string())
                    };
                    shared.malformed(reading.address, &what);
                    return failure;
                }
            }
            first = false;
        }
        if frames.is_empty() {
            continue;
        }
        let Ok(permit) = room.clone().acquire_owned().await else { return SeedFailure::Closed };
        let identified = reading.unidentified.take();
        let frames = Frames { link: reading.id, frames, _room: permit, _unidentified: identified };
        if !send_input(&shared, Input::Frames(frames)).await {
            return SeedFailure::Closed;
        }
    }
}

/// Whether these are the first bytes of an HTTP response, or of an HTTP/2 connection: a settings frame.
fn is_http(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/") || (bytes.first() == Some(&0) && bytes.get(3..5) == Some(&[4, 0]))
}
