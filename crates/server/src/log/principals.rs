//! The log sessions of a node for its HTTP clients: one per principal, so that requests and leases have an owner (AU15).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Principals that have a log session at one node.
pub(super) const PRINCIPALS_MAX: usize = 1_000;
/// Time without a request after which the log session of a principal is ended.
const IDLE: Duration = Duration::from_secs(5 * 60);

/// Handles by principal. A handle that somebody uses is never dropped.
#[derive(Debug)]
pub(super) struct Principals<T> {
    limit: usize,
    handles: HashMap<String, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    handle: Arc<T>,
    used_at: Duration,
}

impl<T> Entry<T> {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.handle) > 1
    }
}

impl<T> Principals<T> {
    pub(super) fn new(limit: usize) -> Self {
        Principals { limit, handles: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Returns the handle of a principal, or `None` if it has none and all others are in use. `now` is a time since any
    /// fixed moment.
    pub(super) fn get(&mut self, now: Duration, principal: &str, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        if let Some(entry) = self.handles.get_mut(principal) {
            entry.used_at = now;
            return Some(entry.handle.clone());
        }
        self.handles.retain(|_, entry| entry.is_used() || now.saturating_sub(entry.used_at) < IDLE);
        if self.handles.len() >= self.limit {
            let unused = self.handles.iter().filter(|(_, entry)| !entry.is_used());
            let oldest = unused.min_by_key(|(_, entry)| entry.used_at).map(|(name, _)| name.clone())?;
            self.handles.remove(&oldest);
        }
        let handle = Arc::new(make());
        self.handles.insert(principal.to_owned(), Entry { handle: handle.clone(), used_at: now });
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn every_principal_has_its_own_handle_and_keeps_it() {
        let mut table = Principals::new(10);
        let first = table.get(seconds(0), "token/a", || 1).unwrap();
        let other = table.get(seconds(0), "token/b", || 2).unwrap();
        assert_eq!((*first, *other), (1, 2));
        assert_eq!(*table.get(seconds(1), "token/a", || 3).unwrap(), 1);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn the_least_recently_used_handle_makes_room_unless_it_is_in_use() {
        let mut table = Principals::new(2);
        let used = table.get(seconds(0), "token/a", || 1).unwrap();
        drop(table.get(seconds(1), "token/b", || 2));
        let third = table.get(seconds(2), "token/c", || 3).unwrap();
        assert_eq!(table.len(), 2);
        assert_eq!(*table.get(seconds(3), "token/a", || 9).unwrap(), 1, "it was in use");
        assert_eq!(table.get(seconds(4), "token/b", || 4), None, "all are in use");
        drop((used, third));
        assert_eq!(table.get(seconds(5), "token/b", || 5).as_deref(), Some(&5));
    }

    #[test]
    fn idle_handles_are_dropped() {
        let mut table = Principals::new(10);
        drop(table.get(seconds(0), "token/a", || 1));
        drop(table.get(seconds(299), "token/b", || 2));
        drop(table.get(seconds(300), "token/c", || 3));
        assert_eq!(table.len(), 2);
    }
}
