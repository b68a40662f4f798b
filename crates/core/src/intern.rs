//! Shared strings and clients.
//!
//! A registry repeats a few services, localities and revisions a million times; each is stored once. The tables are
//! only ever looked up, never iterated in an order that could reach an effect.

use crate::member::Client;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smol_str::SmolStr;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Below this size a table is not worth sweeping.
const SWEEP_MIN: usize = 1024;

#[derive(Debug)]
pub(crate) struct Interner {
    state: FixedState,
    texts: HashTable<Arc<str>>,
    clients: HashTable<Arc<Client>>,
    sweep_texts_at: usize,
    sweep_clients_at: usize,
}

impl Interner {
    pub(crate) fn new(seed: u64) -> Self {
        Interner {
            state: FixedState::with_seed(seed),
            texts: HashTable::new(),
            clients: HashTable::new(),
            sweep_texts_at: SWEEP_MIN,
            sweep_clients_at: SWEEP_MIN,
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        let hash = self.state.hash_one(text);
        if let Some(known) = self.texts.find(hash, |known| **known == *text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_texts_at {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_texts_at = SWEEP_MIN.max(2 * self.texts.len());
        }
        let fresh: Arc<str> = text.into();
        let state = &self.state;
        self.texts.insert_unique(hash, fresh.clone(), |text| state.hash_one(&**text));
        fresh
    }

    pub(crate) fn client(&mut self, id: &str, nonce: u64) -> Arc<Client> {
        let hash = self.state.hash_one((id, nonce));
        if let Some(known) = self.clients.find(hash, |known| known.nonce == nonce && known.id == id) {
            return known.clone();
        }
        if self.clients.len() >= self.sweep_clients_at {
            self.clients.retain(|client| Arc::strong_count(client) > 1);
            self.sweep_clients_at = SWEEP_MIN.max(2 * self.clients.len());
        }
        let fresh = Arc::new(Client { id: SmolStr::new(id), nonce });
        let state = &self.state;
        self.clients.insert_unique(hash, fresh.clone(), |client| state.hash_one((client.id.as_str(), client.nonce)));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_shared_and_unused_ones_swept() {
        let mut interner = Interner::new(7);
        let kept = interner.text("orders");
        assert!(Arc::ptr_eq(&kept, &interner.text("orders")));
        for i in 0..10 * SWEEP_MIN {
            interner.text(&i.to_string());
            interner.client(&i.to_string(), 1);
        }
        assert!(interner.texts.len() <= 2 * SWEEP_MIN && interner.clients.len() <= 2 * SWEEP_MIN);
        assert!(Arc::ptr_eq(&kept, &interner.text("orders")));
    }
}
