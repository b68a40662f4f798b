//! Shared clients and deployments.
//!
//! A registry repeats a few combinations of service, locality and revision a million times; each is stored once. The
//! tables are only ever looked up, never iterated in an order that could reach an effect.

use crate::member::{ClientProcess, Deployment};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Below this size a table is not worth sweeping.
const SWEEP_MIN: usize = 1024;

#[derive(Debug)]
pub(crate) struct Interner {
    deployments: Shared<Deployment>,
    clients: Shared<ClientProcess>,
}

impl Interner {
    pub(crate) fn new(seed: u64) -> Self {
        Interner { deployments: Shared::new(seed), clients: Shared::new(seed) }
    }

    pub(crate) fn deployment(&mut self, service: &str, locality: &str, revision: &str) -> Arc<Deployment> {
        self.deployments.get_or_add(
            (service, locality, revision),
            |held| held.service == service && held.locality == locality && held.revision == revision,
            || Deployment { service: service.into(), locality: locality.into(), revision: revision.into() },
        )
    }

    pub(crate) fn client(&mut self, id: &str, nonce: u64, principal: &str) -> Arc<ClientProcess> {
        self.clients.get_or_add(
            (id, nonce, principal),
            |held| held.nonce == nonce && held.id == id && held.principal == principal,
            || ClientProcess { id: id.into(), nonce, principal: principal.into() },
        )
    }
}

/// Holds equal values once. Unused values are dropped when the table has doubled.
#[derive(Debug)]
struct Shared<T> {
    held: HashTable<Arc<T>>,
    sweep_at: usize,
    hasher: FixedState,
}

impl<T: Hash> Shared<T> {
    fn new(seed: u64) -> Self {
        Shared { held: HashTable::new(), sweep_at: SWEEP_MIN, hasher: FixedState::with_seed(seed) }
    }

    /// `key` has the hash of the value that `same` recognises and `fresh` creates.
    fn get_or_add(&mut self, key: impl Hash, same: impl Fn(&T) -> bool, fresh: impl FnOnce() -> T) -> Arc<T> {
        let hash = self.hasher.hash_one(key);
        if let Some(known) = self.held.find(hash, |held| same(held)) {
            return known.clone();
        }
        if self.held.len() >= self.sweep_at {
            self.held.retain(|held| Arc::strong_count(held) > 1);
            self.sweep_at = SWEEP_MIN.max(2 * self.held.len());
        }
        let fresh = Arc::new(fresh());
        let hasher = &self.hasher;
        debug_assert_eq!(hash, hasher.hash_one(&*fresh), "a key hashes like its value");
        self.held.insert_unique(hash, fresh.clone(), |held| hasher.hash_one(held));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_shared_and_unused_ones_swept() {
        let mut interner = Interner::new(7);
        let kept = interner.deployment("orders", "eu", "v1");
        let client = interner.client("c", 1, "");
        for i in 0..10 * SWEEP_MIN {
            interner.deployment("orders", "eu", &i.to_string());
            interner.client("c", i as u64 + 2, "");
        }
        let (deployments, clients) = (&interner.deployments.held, &interner.clients.held);
        assert!(deployments.len() <= 2 * SWEEP_MIN && clients.len() <= 2 * SWEEP_MIN);
        assert!(Arc::ptr_eq(&kept, &interner.deployment("orders", "eu", "v1")));
        assert!(Arc::ptr_eq(&client, &interner.client("c", 1, "")));
    }
}
