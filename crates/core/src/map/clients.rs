//! The live members of each client (C8): a list through the slots per client id, which costs eight bytes per slot and
//! a few per client.

use super::slots::Slots;
use crate::member::Record;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Clients {
    /// First slot of each client's list.
    heads: HashTable<u32>,
    /// Neighbours of each slot in its list.
    links: Vec<Link>,
    hasher: FixedState,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

impl Clients {
    pub(super) fn new(seed: u64) -> Self {
        Clients {
            heads: HashTable::new(),
            links: Vec::new(),
            hasher: FixedState::with_seed(seed ^ 0x2545_f491_4f6c_dd1d),
        }
    }

    /// Puts the slot at the head of its client's list.
    pub(super) fn add(&mut self, slot: u32, record: &Record, slots: &Slots) {
        if slot as usize >= self.links.len() {
            self.links.resize(slot as usize + 1, Link { previous: NONE, next: NONE });
        }
        let client = record.client.id.as_str();
        let hash = self.hasher.hash_one(client);
        let next = match self.heads.find_mut(hash, |head| client_of(slots, *head) == client) {
            Some(head) => std::mem::replace(head, slot),
            None => {
                let hasher = &self.hasher;
                let rehash = |head: &u32| hasher.hash_one(client_of(slots, *head));
                self.heads.insert_unique(hash, slot, rehash);
                NONE
            }
        };
        self.links[slot as usize] = Link { previous: NONE, next };
        if next != NONE {
            self.links[next as usize].previous = slot;
        }
    }

    /// Removes the slot from the list of its record's client.
    pub(super) fn remove(&mut self, slot: u32, record: &Record) {
        let Link { previous, next } = self.links[slot as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return;
        }
        let hash = self.hasher.hash_one(record.client.id.as_str());
        if let Ok(mut head) = self.heads.find_entry(hash, |head| *head == slot) {
            if next == NONE {
                head.remove();
            } else {
                *head.get_mut() = next;
            }
        }
    }

    /// The slots of a client's live members, the latest first.
    pub(super) fn of<'a>(&'a self, client: &str, slots: &Slots) -> impl Iterator<Item = u32> + use<'a> {
        let hash = self.hasher.hash_one(client);
        let head = self.heads.find(hash, |head| client_of(slots, *head) == client).copied();
        std::iter::successors(head, |slot| Some(self.links[*slot as usize].next).filter(|next| *next != NONE))
    }
}

fn client_of(slots: &Slots, slot: u32) -> &str {
    slots.get(slot).expect("only slots in use are listed").client.id.as_str()
}
