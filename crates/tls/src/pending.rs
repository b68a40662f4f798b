//! The handshakes in progress on a port. Above the limit the oldest is cut off, so that silent ones keep nobody out (TS6).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

#[derive(Clone, Debug)]
pub struct PendingHandshakes {
    state: Arc<Mutex<State>>,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order of their begin.
    pending: BTreeMap<u64, Arc<Notify>>,
}

/// One handshake. Dropping it frees its place.
#[derive(Debug)]
pub struct Handshake {
    number: u64,
    displaced: Arc<Notify>,
    of: PendingHandshakes,
}

impl PendingHandshakes {
    pub fn new(limit: usize) -> PendingHandshakes {
        PendingHandshakes { state: Arc::default(), limit: limit.max(1) }
    }

    /// Begins a handshake. If too many are pending, the oldest ends.
    pub fn begin(&self) -> Handshake {
        let displaced = Arc::new(Notify::new());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.next;
        state.next += 1;
        state.pending.insert(number, displaced.clone());
        if state.pending.len() > self.limit
            && let Some((_, oldest)) = state.pending.pop_first()
        {
            oldest.notify_one();
        }
        drop(state);
        Handshake { number, displaced, of: self.clone() }
    }

    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Handshake {
    /// Ends when a newer handshake took this one's place.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.of.state.lock().unwrap_or_else(PoisonError::into_inner).pending.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ts6_the_oldest_handshake_makes_room() {
        let pending = PendingHandshakes::new(2);
        let (first, second) = (pending.begin(), pending.begin());
        assert_eq!(pending.len(), 2);
        let third = pending.begin();
        first.displaced().await;
        assert_eq!(pending.len(), 2);
        drop(first);
        assert_eq!(pending.len(), 2, "its place was taken already");
        drop(second);
        let _fourth = pending.begin();
        let still = tokio::time::timeout(std::time::Duration::from_millis(20), third.displaced()).await;
        assert!(still.is_err(), "there was room");
        assert_eq!(pending.len(), 2);
    }
}
