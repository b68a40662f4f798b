//! The recent changes of keys and locks, as part of the state (H).
//!
//! Owns the events and their bounds. Every replica keeps the same events, so a watch can continue at any replica, and
//! reads at an older revision have the same answer everywhere. A copy is cheap (LH5).

mod event;
mod union;
mod view;
mod watch;

pub use event::{EVENT_BYTES, Event, EventChange, EventPosition, LockChange, LockEvent};
pub use union::WatchUnion;
pub use view::{HistoryView, ReadError};
pub use watch::{WatchEvent, WatchFilter, WatchPage, WatchScope};

use crate::limits::CoordinationLimits;
use crate::mutant::{Mutation, seam};
use crate::time::LogTime;
use crate::tree::{Iter, Tree};
use event::{Deletion, KeyEvent, KeyPlace};
use std::sync::Arc;

/// Events that one entry drops because of their age, so that no entry takes long. The byte limit has no such bound.
const AGED_EVENTS_MAX: usize = 1_024;

/// The events above a revision, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Tree<Event>,
    /// The events of keys, by the hash of the key. Derived from `events`.
    by_key: Tree<KeyEvent>,
    /// The keys that were deleted and do not exist now, in key order. Derived from `events`.
    deleted: Tree<Deletion>,
    bytes: u64,
    hash: u128,
    compacted: u64,
}

/// History no longer contains what was asked for (H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history starts at revision {oldest}; read the current state and continue from its revision")]
pub struct Compacted {
    /// The oldest revision whose events are kept.
    pub oldest: u64,
}

impl History {
    /// Creates an empty history that starts above a revision.
    pub(crate) fn starting_above(compacted: u64) -> Self {
        History { compacted, ..History::default() }
    }

    /// Returns the oldest revision whose events are kept. A watch can start there, and a read one revision below.
    pub fn oldest(&self) -> u64 {
        self.compacted + 1
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.len() == 0
    }

    /// Returns the counted bytes of all events (H2).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Iterates over events at and after a position.
    pub fn events_from(&self, from: EventPosition) -> impl Iterator<Item = &Arc<Event>> {
        self.events.iter_from(&from)
    }

    /// Returns the newest events of a key, newest first, for display.
    pub fn of_key(&self, key: &[u8], limit: usize) -> Vec<Arc<Event>> {
        let mut events: Vec<Arc<Event>> = self.of_key_from(key, EventPosition::default()).cloned().collect();
        events.reverse();
        events.truncate(limit);
        events
    }

    /// Iterates over the events of a key at and after a position.
    fn of_key_from<'a>(&'a self, key: &'a [u8], from: EventPosition) -> impl Iterator<Item = &'a Arc<Event>> {
        let from = KeyPlace::new(key, from);
        let same_hash = self.by_key.iter_from(&from).take_while(move |event| event.place.hash == from.hash);
        same_hash.map(|event| &event.event).filter(move |event| event.change.key() == Some(key))
    }

    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn iter(&self) -> Iter<'_, Event> {
        self.events.iter()
    }

    pub(crate) fn push(&mut self, event: Event) {
        let event = Arc::new(event);
        self.bytes += event.bytes();
        self.hash = self.hash.wrapping_add(event.hash());
        if let Some(key) = event.change.key() {
            let place = KeyPlace::new(key, event.position);
            self.by_key.insert(Arc::new(KeyEvent { place, event: event.clone() }));
        }
        match &event.change {
            EventChange::Put { record, previous: None } => drop(self.deleted.remove(record.key())),
            EventChange::Delete { previous } => {
                let deletion = Deletion { previous: previous.clone(), position: event.position };
                self.deleted.insert(Arc::new(deletion));
            }
            EventChange::Put { .. } | EventChange::Lock(_) => {}
        }
        self.events.insert(event);
    }

    /// Drops the oldest revisions until history is within its bounds (H2).
    pub(crate) fn trim(&mut self, limits: &CoordinationLimits, now: LogTime, mutation: Mutation) {
        let mut aged = 0;
        while let Some(oldest) = self.events.iter().next() {
            let is_old = aged < AGED_EVENTS_MAX && self.is_old(oldest, limits, now, mutation);
            if !is_old && !self.is_large(limits, mutation) {
                return;
            }
            let revision = oldest.position.revision;
            aged += self.drop_revision(revision, mutation);
            self.compacted = revision;
        }
    }

    fn is_old(&self, oldest: &Event, limits: &CoordinationLimits, now: LogTime, mutation: Mutation) -> bool {
        seam!(in mutation, HistoryAgeIgnored => return false);
        now.since(oldest.time) > limits.history_age
    }

    fn is_large(&self, limits: &CoordinationLimits, mutation: Mutation) -> bool {
        seam!(in mutation, HistoryBytesIgnored => return false);
        self.bytes > limits.history_bytes
    }

    /// Drops all events of the oldest revision and returns their number. A revision is never kept in part (H2).
    fn drop_revision(&mut self, revision: u64, mutation: Mutation) -> usize {
        let mut dropped = 0;
        while let Some(event) = self.events.iter().next().filter(|event| event.position.revision == revision).cloned() {
            self.events.remove_held(&event.position);
            self.bytes -= event.bytes();
            self.hash = self.hash.wrapping_sub(event.hash());
            if let Some(key) = event.change.key() {
                self.by_key.remove_held(&KeyPlace::new(key, event.position));
                if self.deleted.get(key).is_some_and(|deletion| deletion.position == event.position) {
                    self.deleted.remove_held(key);
                }
            }
            dropped += 1;
            seam!(in mutation, RevisionDroppedInPart => return dropped);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyRecord;

    fn event(revision: u64, change: EventChange) -> Event {
        Event { position: EventPosition::start_of(revision), time: LogTime::default(), change }
    }

    /// The two indexes are derived, so no state hash would show an entry that stays in one of them for ever.
    #[test]
    fn indexes_hold_no_more_than_history() {
        let record = |revision| Arc::new(KeyRecord::new(b"key", b"value", [revision, revision, 1]));
        let put = |revision| event(revision, EventChange::Put { record: record(revision), previous: None });
        let delete = |revision| event(revision, EventChange::Delete { previous: record(revision - 1) });
        let mut history = History::default();
        for event in [put(1), delete(2)] {
            history.push(event);
        }
        assert_eq!((history.by_key.len(), history.deleted.len()), (2, 1));
        history.push(put(3));
        assert_eq!((history.by_key.len(), history.deleted.len()), (3, 0), "the key exists again");
        history.push(delete(4));
        let limits = CoordinationLimits { history_bytes: 0, ..CoordinationLimits::default() };
        history.trim(&limits, LogTime::default(), Mutation::none());
        assert_eq!((history.len(), history.by_key.len(), history.deleted.len()), (0, 0, 0));
    }
    /// Returns a key of 32 bytes whose hash does not depend on `varied`. xxh3 multiplies the first eight bytes with the next
    /// eight, each xor its secret; the first factor is zero here, because these bytes are the secret.
    fn colliding(varied: u8) -> Vec<u8> {
        let secret = [0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
        [&secret[..], &[varied; 8], b"the same in both"].concat()
    }

    #[test]
    fn h4_keys_with_the_same_hash_have_their_own_events() {
        let (a, b) = (&colliding(b'a')[..], &colliding(b'b')[..]);
        assert_ne!(a, b);
        assert_eq!(KeyPlace::new(a, EventPosition::default()), KeyPlace::new(b, EventPosition::default()));

        let record = |key, value: &[u8], revisions| Arc::new(KeyRecord::new(key, value, revisions));
        let (a1, b2, a3) = (record(a, b"1", [1, 1, 1]), record(b, b"2", [2, 2, 1]), record(a, b"3", [1, 3, 2]));
        let put = |record: &Arc<KeyRecord>, previous: Option<&Arc<KeyRecord>>| {
            let change = EventChange::Put { record: record.clone(), previous: previous.cloned() };
            event(record.modify_revision, change)
        };
        let mut history = History::default();
        for event in [put(&a1, None), put(&b2, None), put(&a3, Some(&a1))] {
            history.push(event);
        }
        history.push(event(4, EventChange::Delete { previous: b2.clone() }));
        // Events of one revision have different positions too.
        let a5 = record(a, b"5", [1, 5, 3]);
        let b5 = record(b, b"5", [5, 5, 1]);
        history.push(put(&a5, Some(&a3)));
        history.push(Event { position: EventPosition::start_of(5).next(), ..put(&b5, None) });
        let mut keys = crate::keys::Keys::restored(5);
        for record in [&a5, &b5] {
            keys.restore(KeyRecord::clone(record));
        }

        let revisions = |history: &History, key| -> Vec<u64> {
            history.of_key(key, 9).iter().map(|event| event.position.revision).collect()
        };
        assert_eq!((revisions(&history, a), revisions(&history, b)), (vec![5, 3, 1], vec![5, 4, 2]));
        let view = |history: &History, revision: u64| {
            let before = EventPosition::start_of(revision + 1);
            let view = HistoryView::before(&keys, history, before, Mutation::none()).unwrap();
            let all: Vec<_> = view.records(&crate::keys::Selection::Range(crate::keys::KeyRange::all())).collect();
            assert_eq!(all, view.get(a).into_iter().chain(view.get(b)).collect::<Vec<_>>());
            (view.get(a), view.get(b))
        };
        let [a1, b2, a3, a5, b5] = [a1, b2, a3, a5, b5].map(Some);
        assert_eq!(view(&history, 0), (None, None));
        assert_eq!(view(&history, 1), (a1.clone(), None));
        assert_eq!(view(&history, 2), (a1, b2.clone()));
        assert_eq!(view(&history, 3), (a3.clone(), b2));
        assert_eq!(view(&history, 4), (a3, None));
        assert_eq!(view(&history, 5), (a5, b5));

        // Dropping the events of one key keeps those of the other.
        for revision in 1..=3 {
            history.drop_revision(revision, Mutation::none());
        }
        assert_eq!((revisions(&history, a), revisions(&history, b)), (vec![5], vec![5, 4]));
        assert_eq!((history.len(), history.by_key.len()), (3, 3));
    }
}
