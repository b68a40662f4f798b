//! Slots: a slab of records, and a hash table of the same records by key. Slot numbers are small, stable while in use,
//! and give every walk over the registry its order. A record contains its slot number, and the table holds records
//! instead of slot numbers: a lookup among a million members is bound by memory latency, and this saves one access.

use crate::member::{Record, Space};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Slots {
    records: Vec<Option<Arc<Record>>>,
    free: Vec<u32>,
    by_key: HashTable<Arc<Record>>,
    hasher: FixedState,
}

impl Slots {
    pub(super) fn new(seed: u64) -> Self {
        Slots {
            records: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            hasher: FixedState::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15),
        }
    }

    pub(super) fn bound(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Arc<Record>> {
        self.records.get(slot as usize)?.as_ref()
    }

    pub(super) fn find(&self, space: Space, id: &str) -> Option<&Arc<Record>> {
        self.by_key.find(hash(&self.hasher, space, id), |record| record.id == id && record.space == space)
    }

    /// Allocates a slot for a record whose key is not held yet.
    pub(super) fn insert(&mut self, mut record: Record) -> Arc<Record> {
        record.slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() as u32 - 1
        });
        let record = Arc::new(record);
        self.records[record.slot as usize] = Some(record.clone());
        let hasher = &self.hasher;
        let hash_of = |record: &Arc<Record>| hash(hasher, record.space, &record.id);
        self.by_key.insert_unique(hash_of(&record), record.clone(), hash_of);
        record
    }

    /// Replaces the record with the same key and returns it.
    pub(super) fn replace(&mut self, record: Arc<Record>) -> Arc<Record> {
        let hash = hash(&self.hasher, record.space, &record.id);
        let held = self.by_key.find_mut(hash, |held| held.slot == record.slot).expect("only a key in use is replaced");
        *held = record.clone();
        let slot = record.slot as usize;
        self.records[slot].replace(record).expect("only a slot in use is replaced")
    }

    pub(super) fn remove(&mut self, slot: u32) -> Arc<Record> {
        let record = self.records[slot as usize].take().expect("only a slot in use is removed");
        let hash = hash(&self.hasher, record.space, &record.id);
        if let Ok(entry) = self.by_key.find_entry(hash, |held| held.slot == slot) {
            entry.remove();
        }
        self.free.push(slot);
        record
    }
}

fn hash(hasher: &FixedState, space: Space, id: &str) -> u64 {
    hasher.hash_one((space as u8, id))
}

/// A set of slots.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u64>);

impl Marks {
    pub(super) fn set(&mut self, slot: u32) {
        let word = slot as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot % 64);
    }

    pub(super) fn clear(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    pub(super) fn contains(&self, slot: u32) -> bool {
        self.0.get(slot as usize / 64).is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }
}
