//! Watches in the event loop: which of them have events to read and room for a batch.

use super::{EventLoop, Numbered, Reply, WatchRequest};
use crate::watch::{Slot, StreamId, WatchHandle};
use convoke_core::node::WatcherId;
use convoke_core::{Node, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events in one batch.
const BATCH: usize = 256;
/// Batches in one turn. Snapshots of many new watchers are spread over several turns, so that other inputs do not wait.
const TURN_BATCHES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Streams {
    entries: Numbered<StreamId, Entry>,
    by_watcher: Numbered<WatcherId, StreamId>,
    /// Watches to be served next, each once.
    waiting: VecDeque<StreamId>,
}

#[derive(Debug)]
struct Entry {
    watcher: WatcherId,
    slot: Arc<Slot>,
    /// The core has events for it.
    readable: bool,
    waiting: bool,
}

impl Streams {
    fn insert(&mut self, stream: StreamId, watcher: WatcherId, slot: Arc<Slot>) {
        self.entries.insert(stream, Entry { watcher, slot, readable: false, waiting: false });
        self.by_watcher.insert(watcher, stream);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<WatcherId> {
        let entry = self.entries.remove(&stream)?;
        self.by_watcher.remove(&entry.watcher);
        Some(entry.watcher)
    }

    /// Records that the core has events for a watcher.
    pub(super) fn readable(&mut self, watcher: WatcherId) {
        let Some(stream) = self.by_watcher.get(&watcher) else { return };
        if let Some(entry) = self.entries.get_mut(stream) {
            entry.readable = true;
        }
        self.requested(*stream);
    }

    /// Records that the reader has room.
    pub(super) fn requested(&mut self, stream: StreamId) {
        if let Some(entry) = self.entries.get_mut(&stream)
            && entry.readable
            && !entry.waiting
        {
            entry.waiting = true;
            self.waiting.push_back(stream);
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes batches from the core for the watches that have room.
    pub(super) fn serve(&mut self, core: &mut Node, now: Time) {
        for _ in 0..self.waiting.len().min(TURN_BATCHES) {
            let Some(stream) = self.waiting.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&stream) else { continue };
            entry.waiting = false;
            let mut empty = false;
            let more = entry.slot.offer(|events| {
                let more = core.take(now, entry.watcher, BATCH, events);
                empty = events.is_empty();
                more
            });
            // Without room, the watch stays readable until its reader requests more.
            if let Some(more) = more {
                entry.readable = more;
                if more && empty {
                    entry.waiting = true;
                    self.waiting.push_back(stream);
                }
            }
        }
    }

    /// Ends all watches, because the core has dropped them.
    pub(super) fn end_all(&mut self) {
        for (_, entry) in self.entries.drain() {
            entry.slot.end();
        }
        self.by_watcher.clear();
        self.waiting.clear();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl EventLoop {
    pub(super) fn watch(&mut self, request: WatchRequest, now: Time) {
        let WatchRequest { interest, resume, eager_marks, reply } = request;
        let result = self.core.watch(now, interest, resume, &mut self.out).map(|watcher| {
            if eager_marks {
                self.core.mark_eagerly(watcher);
            }
            let stream = StreamId(self.shared.number());
            let slot = Arc::<Slot>::default();
            self.streams.insert(stream, watcher, slot.clone());
            WatchHandle::new(stream, slot, self.shared.clone())
        });
        // If the caller no longer waits, the watch is dropped here and sends its signal.
        self.replies.push(Reply::Call(Box::new(move || drop(reply.send(result)))));
    }
}
