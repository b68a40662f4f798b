//! Events of history and their positions (H1).

use crate::command::{LeaseId, LockName};
use crate::keys::{KeyChange, KeyRecord};
use crate::time::LogTime;
use crate::tree::Keyed;
use bytes::Bytes;
use std::sync::Arc;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Bytes counted per event in addition to its key and the previous value. Rounded up from the actual size.
pub const EVENT_BYTES: u64 = 256;

/// The place of an event: its revision, and its index among the events of that revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventPosition {
    pub revision: u64,
    pub index: u64,
}

impl EventPosition {
    /// Returns the first position of a revision.
    pub fn start_of(revision: u64) -> Self {
        EventPosition { revision, index: 0 }
    }

    /// Returns the next position. A watch that continues after an event starts here.
    #[must_use]
    pub fn next(self) -> Self {
        EventPosition { index: self.index + 1, ..self }
    }
}

/// A change at a position of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub position: EventPosition,
    /// Log time of the entry that made the change.
    pub time: LogTime,
    pub change: EventChange,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventChange {
    Put { record: Arc<KeyRecord>, previous: Option<Arc<KeyRecord>> },
    Delete { previous: Arc<KeyRecord> },
    Lock(LockEvent),
}

/// A change of a holder of a lock (LO4, EL1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    pub name: LockName,
    pub fence: u64,
    pub change: LockChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockChange {
    Granted { lease: LeaseId, value: Bytes },
    Proclaimed { value: Bytes },
    Released,
}

impl EventChange {
    pub(crate) fn of(change: KeyChange) -> Option<Self> {
        match (change.record, change.previous) {
            (Some(record), previous) => Some(EventChange::Put { record, previous }),
            (None, Some(previous)) => Some(EventChange::Delete { previous }),
            (None, None) => None,
        }
    }

    /// Returns the key of a put or delete.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            EventChange::Put { record, .. } => Some(record.key()),
            EventChange::Delete { previous } => Some(previous.key()),
            EventChange::Lock(_) => None,
        }
    }

    pub fn previous(&self) -> Option<&Arc<KeyRecord>> {
        match self {
            EventChange::Put { previous, .. } => previous.as_ref(),
            EventChange::Delete { previous } => Some(previous),
            EventChange::Lock(_) => None,
        }
    }

    /// Returns the record after the change.
    pub fn record(&self) -> Option<&Arc<KeyRecord>> {
        if let EventChange::Put { record, .. } = self { Some(record) } else { None }
    }
}

impl Event {
    /// Returns the bytes counted for this event (H2). The new record is counted in the store, or as the previous one of
    /// the next event of its key.
    pub(crate) fn bytes(&self) -> u64 {
        let data = match &self.change {
            EventChange::Lock(event) => event.name.name.len() + event.change.value().map_or(0, Bytes::len),
            change => {
                let key = change.key().map_or(0, <[u8]>::len);
                key + change.previous().map_or(0, |previous| previous.key().len() + previous.value().len())
            }
        };
        EVENT_BYTES + data as u64
    }

    /// Returns this event's contribution to the state hash (LH2).
    pub(crate) fn hash(&self) -> u128 {
        let mut bytes = Vec::with_capacity(64);
        for number in [self.position.revision, self.position.index, self.time.as_micros()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        match &self.change {
            EventChange::Lock(event) => {
                let mut w = crate::codec::Writer::default();
                crate::codec::encode_lock_event(&mut w, event);
                bytes.push(2);
                bytes.extend_from_slice(w.bytes());
            }
            change => {
                bytes.push(u8::from(change.record().is_some()));
                for record in [change.record(), change.previous()] {
                    bytes.extend_from_slice(&record.map_or(0, |record| record.hash()).to_le_bytes());
                }
            }
        }
        xxh3_128(&bytes)
    }
}

impl LockChange {
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            LockChange::Granted { value, .. } | LockChange::Proclaimed { value } => Some(value),
            LockChange::Released => None,
        }
    }
}

impl Keyed for Event {
    type Key = EventPosition;
    type Bound = EventPosition;

    fn key(&self) -> &EventPosition {
        &self.position
    }

    fn bound(&self) -> EventPosition {
        self.position
    }
}

/// The same event by key.
#[derive(Clone, Debug)]
pub(super) struct KeyEvent {
    pub(super) place: KeyPlace,
    pub(super) event: Arc<Event>,
}

/// The hash of a key and a position. Hashes are compared instead of keys, because every put searches here: a search reads
/// no records. Keys with the same hash share their places in the order of positions, so a reader compares the keys as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyPlace {
    pub(super) hash: u64,
    pub(super) position: EventPosition,
}

impl KeyPlace {
    pub(super) fn new(key: &[u8], position: EventPosition) -> Self {
        KeyPlace { hash: xxh3_64(key), position }
    }
}

impl Keyed for KeyEvent {
    type Key = KeyPlace;
    type Bound = KeyPlace;

    fn key(&self) -> &KeyPlace {
        &self.place
    }

    fn bound(&self) -> KeyPlace {
        self.place
    }
}

/// The last event of a key that does not exist now: its deletion.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) previous: Arc<KeyRecord>,
    pub(super) position: EventPosition,
}

impl Keyed for Deletion {
    type Key = [u8];
    type Bound = Arc<[u8]>;

    fn key(&self) -> &[u8] {
        self.previous.key()
    }

    fn bound(&self) -> Arc<[u8]> {
        self.previous.key().into()
    }
}
