//! Subscriptions at the owner: who has something to read and room for it.

use super::{Numbered, Owner, Reply, SubscribeRequest};
use crate::subscription::{Slot, StreamId, Subscription};
use convoke_core::node::SubscriberId;
use convoke_core::{Node, Time};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events in one batch.
const BATCH: usize = 256;
/// Batches in one turn; snapshots of many new subscribers are spread over several, so that nobody else waits for them.
const TURN_BATCHES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Streams {
    entries: Numbered<StreamId, Entry>,
    by_subscriber: Numbered<SubscriberId, StreamId>,
    /// Those to be served next, each once.
    waiting: VecDeque<StreamId>,
}

#[derive(Debug)]
struct Entry {
    subscriber: SubscriberId,
    slot: Arc<Slot>,
    /// The core has something for it.
    readable: bool,
    waiting: bool,
}

impl Streams {
    fn insert(&mut self, stream: StreamId, subscriber: SubscriberId, slot: Arc<Slot>) {
        self.entries.insert(stream, Entry { subscriber, slot, readable: false, waiting: false });
        self.by_subscriber.insert(subscriber, stream);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<SubscriberId> {
        let entry = self.entries.remove(&stream)?;
        self.by_subscriber.remove(&entry.subscriber);
        Some(entry.subscriber)
    }

    /// The core has something to take.
    pub(super) fn readable(&mut self, subscriber: SubscriberId) {
        let Some(stream) = self.by_subscriber.get(&subscriber) else { return };
        if let Some(entry) = self.entries.get_mut(stream) {
            entry.readable = true;
        }
        self.wanted(*stream);
    }

    /// The reader has room.
    pub(super) fn wanted(&mut self, stream: StreamId) {
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

    /// Takes from the core for those who have room.
    pub(super) fn serve(&mut self, core: &mut Node, now: Time) {
        for _ in 0..self.waiting.len().min(TURN_BATCHES) {
            let Some(stream) = self.waiting.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&stream) else { continue };
            entry.waiting = false;
            let mut empty = false;
            let more = entry.slot.offer(|events| {
                let more = core.take(now, entry.subscriber, BATCH, events);
                empty = events.is_empty();
                more
            });
            // Without room it stays readable until the reader asks.
            if let Some(more) = more {
                entry.readable = more;
                if more && empty {
                    entry.waiting = true;
                    self.waiting.push_back(stream);
                }
            }
        }
    }

    /// The core knows none of them any more.
    pub(super) fn end_all(&mut self) {
        for (_, entry) in self.entries.drain() {
            entry.slot.end();
        }
        self.by_subscriber.clear();
        self.waiting.clear();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Owner {
    pub(super) fn subscribe(&mut self, request: SubscribeRequest, now: Time) {
        let SubscribeRequest { interest, resume, eager_marks, reply } = request;
        let result = self.core.subscribe(now, interest, resume, &mut self.out).map(|subscriber| {
            if eager_marks {
                self.core.mark_eagerly(subscriber);
            }
            let stream = StreamId(self.shared.number());
            let slot = Arc::<Slot>::default();
            self.streams.insert(stream, subscriber, slot.clone());
            Subscription::new(stream, slot, self.shared.clone())
        });
        // If nobody waits any more, the subscription is dropped right here, and says so.
        self.replies.push(Reply::Call(Box::new(move || drop(reply.send(result)))));
    }
}
