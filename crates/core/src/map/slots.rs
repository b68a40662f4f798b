//! Slots: a slab of records with a hash table from key to slot. Slot numbers are small, stable while in use, and give
//! every walk over the registry its order.

use crate::member::{Record, Space};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Slots {
    records: Vec<Option<Arc<Record>>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
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

    pub(super) fn find(&self, space: Space, id: &str) -> Option<u32> {
        let hash = hash(&self.hasher, space, id);
        let same = |slot: &u32| {
            self.records[*slot as usize].as_ref().is_some_and(|record| record.id == id && record.space == space)
        };
        self.by_key.find(hash, same).copied()
    }

    pub(super) fn insert(&mut self, record: Arc<Record>) -> u32 {
        let hash = hash(&self.hasher, record.space, &record.id);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() as u32 - 1
        });
        self.records[slot as usize] = Some(record);
        let (records, hasher) = (&self.records, &self.hasher);
        self.by_key.insert_unique(hash, slot, |slot| hash_of(hasher, records, *slot));
        slot
    }

    pub(super) fn replace(&mut self, slot: u32, record: Arc<Record>) -> Arc<Record> {
        self.records[slot as usize].replace(record).expect("only a slot in use is replaced")
    }

    pub(super) fn remove(&mut self, slot: u32) -> Arc<Record> {
        let (records, hasher) = (&self.records, &self.hasher);
        let hash = hash_of(hasher, records, slot);
        if let Ok(entry) = self.by_key.find_entry(hash, |known| *known == slot) {
            entry.remove();
        }
        self.free.push(slot);
        self.records[slot as usize].take().expect("only a slot in use is removed")
    }
}

fn hash(hasher: &FixedState, space: Space, id: &str) -> u64 {
    hasher.hash_one((space as u8, id))
}

fn hash_of(hasher: &FixedState, records: &[Option<Arc<Record>>], slot: u32) -> u64 {
    let record = records[slot as usize].as_ref().expect("the table only names slots in use");
    hash(hasher, record.space, &record.id)
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
