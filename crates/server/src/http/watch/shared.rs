//! Chunks of events that watchers share.
//!
//! Watchers with the same filter that have received the same events hold the same members at the same position. The next batch has the
//! same text for all of them: the first one writes it, and the others send the same bytes. A chunk that is not found
//! costs time and nothing else.

use super::held::Held;
use super::position::{Position, Scope};
use bytes::Bytes;
use convoke_core::node::StreamEvent;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of filters whose last chunk is kept.
const ENTRIES: usize = 256;
/// Larger batches are written by each watcher, which bounds the memory.
const BATCH_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct SharedChunks {
    entries: Box<[Mutex<Option<SharedChunk>>]>,
}

#[derive(Debug)]
pub(super) struct SharedChunk {
    pub(super) scope: Scope,
    pub(super) from: (Position, Held),
    pub(super) batch: Vec<StreamEvent>,
    pub(super) text: Bytes,
    /// The position after the batch, and the members that the reader then holds.
    pub(super) to: (Position, Held),
}

impl SharedChunks {
    pub(crate) fn new() -> Self {
        SharedChunks { entries: (0..ENTRIES).map(|_| Mutex::default()).collect() }
    }

    /// Returns whether the text of a batch depends on nothing but the filter and the position. Snapshots are read at the
    /// pace of each watcher, so they are hardly ever equal.
    pub(super) fn covers(batch: &[StreamEvent]) -> bool {
        let is_change = |event: &StreamEvent| match event {
            StreamEvent::Registered(_)
            | StreamEvent::Updated(_)
            | StreamEvent::StatusChanged(_)
            | StreamEvent::OwnerChanged(_)
            | StreamEvent::Unregistered { .. }
            | StreamEvent::Mark(_) => true,
            StreamEvent::Snapshot(_) | StreamEvent::CaughtUp | StreamEvent::Reset(_) => false,
        };
        batch.len() <= BATCH_MAX && batch.iter().all(is_change)
    }

    /// Returns the text of a batch and the state after it, if a watcher with this filter wrote it last.
    pub(super) fn find(
        &self,
        scope: Scope,
        from: &(Position, Held),
        batch: &[StreamEvent],
    ) -> Option<(Bytes, (Position, Held))> {
        let entry = self.entry(scope);
        // Members are compared by their address first.
        let same = |chunk: &&SharedChunk| chunk.scope == scope && chunk.batch == batch && chunk.from == *from;
        entry.as_ref().filter(same).map(|chunk| (chunk.text.clone(), chunk.to.clone()))
    }

    pub(super) fn store(&self, chunk: SharedChunk) {
        let mut entry = self.entry(chunk.scope);
        *entry = Some(chunk);
    }

    /// Drops all chunks. Called regularly, so that members without watchers do not stay in memory.
    pub(crate) fn clear(&self) {
        for entry in &self.entries {
            *lock(entry) = None;
        }
    }

    fn entry(&self, scope: Scope) -> MutexGuard<'_, Option<SharedChunk>> {
        lock(&self.entries[scope.number() % ENTRIES])
    }
}

fn lock(entry: &Mutex<Option<SharedChunk>>) -> MutexGuard<'_, Option<SharedChunk>> {
    entry.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_core::filter::Filter;

    fn chunk(scope: Scope, from: &(Position, Held), token: &'static [u8]) -> SharedChunk {
        let mut to = from.clone();
        to.0.mark(Bytes::from_static(token));
        let batch = vec![StreamEvent::Mark(Bytes::from_static(token))];
        SharedChunk { scope, from: from.clone(), batch, text: Bytes::from_static(token), to }
    }

    #[test]
    fn a_chunk_is_found_for_the_same_filter_position_and_batch_only() {
        let (chunks, scope) = (SharedChunks::new(), Scope::of(&Filter::service("orders")));
        let start = (Position::Start, Held::default());
        let first = chunk(scope, &start, b"first");
        let (batch, to) = (first.batch.clone(), first.to.clone());
        chunks.store(first);
        let other = chunk(scope, &start, b"other").batch;
        assert_eq!(chunks.find(scope, &start, &batch), Some((Bytes::from_static(b"first"), to.clone())));
        assert_eq!(chunks.find(scope, &start, &other), None);
        assert_eq!(chunks.find(scope, &to, &batch), None);
        let mut held = Held::default();
        held.insert("m");
        assert_eq!(chunks.find(scope, &(Position::Start, held), &batch), None);
        // Filters that share an entry are not confused.
        let mut services = (0..).map(|number| Scope::of(&Filter::service(&format!("s{number}"))));
        let same_entry = services.find(|other| other.number() % ENTRIES == scope.number() % ENTRIES);
        assert_eq!(chunks.find(same_entry.expect("the numbers are endless"), &start, &batch), None);
        chunks.clear();
        assert_eq!(chunks.find(scope, &start, &batch), None);
    }

    #[test]
    fn snapshots_and_large_batches_are_not_shared() {
        let mark = || StreamEvent::Mark(Bytes::new());
        assert!(SharedChunks::covers(&vec![mark(); BATCH_MAX]));
        assert!(!SharedChunks::covers(&vec![mark(); BATCH_MAX + 1]));
        assert!(!SharedChunks::covers(&[mark(), StreamEvent::CaughtUp]));
    }
}
