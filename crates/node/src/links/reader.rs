//! Reading from a peer: frames within the limit, handed on in batches, with little of them under way at once.

use super::framing::next_frame;
use super::writer::LINGER;
use super::{Queue, tell};
use crate::counters::add;
use crate::owner::{Frames, Input};
use crate::shared::Shared;
use bytes::BytesMut;
use convoke_core::node::LinkId;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const BUFFER_BYTES: usize = 64 * 1024;
/// The first frame says who the peer is and whom it knows.
const FIRST_FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Batches of one link that may wait for the owner task. Beyond, the peer waits: TCP holds it back.
const BATCHES_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Reading {
    pub(super) id: LinkId,
    pub(super) address: SocketAddr,
    pub(super) unidentified: Option<OwnedSemaphorePermit>,
    pub(super) queue: Arc<Queue>,
    pub(super) shared: Arc<Shared>,
}

pub(super) async fn read(mut stream: OwnedReadHalf, mut reading: Reading) {
    let queue = reading.queue.clone();
    let closed_here = tokio::select! {
        biased;
        () = queue.closed() => true,
        () = receive(&mut stream, &mut reading) => false,
    };
    let Reading { id, shared, .. } = reading;
    if closed_here {
        // What the peer still sends is not wanted, but a connection closed with unread bytes would be reset, and the
        // peer might never see what it was sent last.
        let mut sink = vec![0; 4096];
        let drained = async { while stream.read(&mut sink).await.is_ok_and(|count| count > 0) {} };
        let _ = tokio::time::timeout(LINGER, drained).await;
    } else {
        queue.cut();
        tell(&shared, Input::Closed { link: id }).await;
    }
}

/// Hands frames to the owner task until the connection ends or turns out to be no peer's.
async fn receive(stream: &mut OwnedReadHalf, reading: &mut Reading) {
    let shared = reading.shared.clone();
    let room = Arc::new(Semaphore::new(BATCHES_MAX));
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    let mut first = reading.unidentified.is_some();
    loop {
        if buffer.capacity() - buffer.len() < 4096 {
            buffer.reserve(BUFFER_BYTES);
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => add(&shared.counting.received_bytes, count as u64),
        }
        let mut frames = Vec::new();
        loop {
            let limit = shared.frame_bytes.min(if first { FIRST_FRAME_BYTES_MAX } else { usize::MAX });
            match next_frame(&mut buffer, limit) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    shared.garbage(reading.address, &error.to_string());
                    return;
                }
            }
            first = false;
        }
        if frames.is_empty() {
            continue;
        }
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let identified = reading.unidentified.take();
        let frames = Frames { link: reading.id, frames, _room: permit, _unidentified: identified };
        if !tell(&shared, Input::Frames(frames)).await {
            return;
        }
    }
}
