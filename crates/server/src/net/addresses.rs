//! Counts the connections from each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// No more entries than open connections.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    limit: usize,
}

/// One connection from an address. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct Place {
    address: IpAddr,
    addresses: Addresses,
}

impl Addresses {
    pub(crate) fn new(limit: usize) -> Addresses {
        Addresses { open: Arc::default(), limit }
    }

    /// Returns `None` if the address has as many connections as it may have.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(Place { address, addresses: self.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = open.entry(self.address) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}
