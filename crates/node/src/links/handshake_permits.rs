//! Permits for inbound connections that have not completed the handshake. Half of them are reserved for the addresses of
//! known peers, so that strangers cannot keep peers out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Addresses of known peers. More than the nodes of any cluster.
const KNOWN_MAX: usize = 4_096;

#[derive(Debug)]
pub(crate) struct HandshakePermits {
    open: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    known: Mutex<BTreeSet<IpAddr>>,
}

impl HandshakePermits {
    pub(crate) fn new(limit: usize) -> HandshakePermits {
        let reserved = limit / 2;
        HandshakePermits {
            open: Arc::new(Semaphore::new(limit - reserved)),
            reserved: Arc::new(Semaphore::new(reserved)),
            known: Mutex::default(),
        }
    }

    /// Records that a peer completed the handshake from this address, or was reached there.
    pub(crate) fn add_known(&self, address: IpAddr) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < KNOWN_MAX {
            known.insert(address);
        }
    }

    pub(super) fn is_known(&self, address: IpAddr) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }

    /// Returns a permit for a connection from this address, if there is one.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.open.clone().try_acquire_owned() {
            return Some(permit);
        }
        if self.is_known(address) { self.reserved.clone().try_acquire_owned().ok() } else { None }
    }
}
