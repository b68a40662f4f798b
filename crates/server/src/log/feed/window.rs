//! The recent events of the feed of a node without a replica (H8). No I/O.

use super::Page;
use super::wanted::{WantedWatch, event_position};
use crate::log::coordination::lock_name;
use bytes::Bytes;
use convoke_log::command::LockSpace;
use convoke_log::history::{EventPosition, WatchFilter, WatchScope};
use convoke_proto::v1;
use convoke_proto::v1::key_event::Change;
use std::collections::VecDeque;

/// Bytes counted per event in addition to its keys and values.
const EVENT_BYTES: usize = 256;

/// The events that the stream of the node carried from `start` to before `next`, in order.
#[derive(Debug)]
pub(super) struct Window {
    start: EventPosition,
    next: EventPosition,
    /// The highest revision of which no further event follows.
    complete: u64,
    events: VecDeque<v1::KeyEvent>,
    bytes: usize,
    bytes_max: usize,
}

/// Why a window has no page for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind;

impl Window {
    /// Creates an empty window at a position.
    pub(super) fn new(next: EventPosition, bytes_max: usize) -> Window {
        let complete = next.revision.saturating_sub(1);
        Window { start: next, next, complete, events: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Returns the last revision that is in the window completely, or before it.
    pub(super) fn revision(&self) -> u64 {
        self.next.revision.saturating_sub(1)
    }

    /// Returns the position that the window has reached.
    pub(super) fn next(&self) -> EventPosition {
        self.next
    }

    /// Another stream continues at a position, and may carry further events of its revision.
    pub(super) fn continued(&mut self, at: EventPosition) {
        self.complete = self.complete.min(at.revision.saturating_sub(1));
    }

    /// Appends the next events. All events before `next` are known then. Events that are in the window are ignored.
    pub(super) fn extend(&mut self, events: Vec<v1::KeyEvent>, next: EventPosition) {
        for event in events {
            let position = event_position(event.position);
            if position < self.next {
                continue;
            }
            if event.last {
                self.complete = self.complete.max(position.revision);
            }
            self.next = position.next();
            self.bytes += bytes(&event);
            self.events.push_back(event);
        }
        self.next = self.next.max(next);
        self.complete = self.complete.max(self.revision());
        while self.bytes > self.bytes_max
            && let Some(dropped) = self.events.pop_front()
        {
            self.bytes -= bytes(&dropped);
            self.start = event_position(dropped.position).next();
        }
    }

    /// Returns the next events of a watch, at most `limit` and about `bytes_max` bytes.
    ///
    /// Whether an event is the last one of its revision for the watch is known only when the next one of the watch is,
    /// or when the revision is complete. Until then the event is kept back.
    pub(super) fn page(
        &self,
        watch: &WantedWatch,
        from: EventPosition,
        (limit, bytes_max): (usize, usize),
    ) -> Result<Page, Behind> {
        if from < self.start {
            return Err(Behind);
        }
        let mut page = Page { events: Vec::new(), next: from.max(self.next), more: false };
        let mut taken = 0;
        let first = self.events.partition_point(|event| event_position(event.position) < from);
        for event in self.events.range(first..).filter(|event| matches(&watch.filter, event)) {
            let position = event_position(event.position);
            if let Some(before) = page.events.last_mut() {
                before.last = event_position(before.position).revision != position.revision;
            }
            taken += bytes(event);
            if page.events.len() >= limit || (taken > bytes_max && !page.events.is_empty()) {
                (page.next, page.more) = (position, true);
                return Ok(page);
            }
            page.events.push(served(watch, event));
        }
        if let Some(kept) = page.events.pop_if(|event| event_position(event.position).revision > self.complete) {
            page.next = event_position(kept.position);
        }
        Ok(page)
    }
}

/// Returns an event as a replica sends it to a watch.
fn served(watch: &WantedWatch, event: &v1::KeyEvent) -> v1::KeyEvent {
    let mut change = event.change.clone();
    if let (Some(Change::Lock(lock)), WatchScope::Lock(_)) = (&mut change, &watch.filter.scope) {
        (lock.name, lock.election) = (Bytes::new(), false);
    }
    let previous = if watch.previous { event.previous.clone() } else { None };
    v1::KeyEvent { position: event.position, last: true, change, previous }
}

fn matches(filter: &WatchFilter, event: &v1::KeyEvent) -> bool {
    let contains = |key: &[u8]| match &filter.scope {
        WatchScope::Keys(selection) => selection.contains(key),
        WatchScope::Union(union) => union.contains_key(key),
        WatchScope::Lock(_) => false,
    };
    match &event.change {
        Some(Change::Put(record)) => filter.puts && contains(&record.key),
        Some(Change::Delete(key)) => filter.deletes && contains(key),
        Some(Change::Lock(lock)) => match &filter.scope {
            WatchScope::Keys(_) => false,
            WatchScope::Lock(name) => name.name == lock.name && (name.space == LockSpace::Election) == lock.election,
            WatchScope::Union(union) => union.contains_lock(&lock_name(lock.name.clone(), lock.election)),
        },
        None => false,
    }
}

fn bytes(event: &v1::KeyEvent) -> usize {
    let record = |record: &v1::KeyValue| record.key.len() + record.value.len();
    let changed = match &event.change {
        Some(Change::Put(put)) => record(put),
        Some(Change::Delete(key)) => key.len(),
        Some(Change::Lock(lock)) => lock.name.len() + lock.value.len(),
        None => 0,
    };
    EVENT_BYTES + changed + event.previous.as_ref().map_or(0, record)
}

#[cfg(test)]
mod tests;
