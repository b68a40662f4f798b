//! The sessions attached here. A cache: a session that is lost from it is found again in the registry (C8).

use crate::secret::Key;
use convoke_core::{ErrorCode, Rejection, Time};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::time::Duration;

/// Idle sessions are removed after so many of their timeouts. The node's own timers do not depend on this.
const IDLE_TIMEOUTS: u32 = 2;
/// Replaces the timeout until a session is attached: no request takes longer, and one that is cancelled leaves its place
/// behind.
const ATTACHING: Duration = Duration::from_secs(60);

/// Places by session. `P` refers to a place that the caller can lock.
#[derive(Debug)]
pub struct Table<P> {
    entries: BTreeMap<Key, Entry<P>>,
    limit: usize,
    /// Of the last place that was made.
    number: u64,
}

#[derive(Debug)]
struct Entry<P> {
    number: u64,
    place: P,
    /// When a request last asked for it.
    used: Time,
    timeout: Duration,
    /// With `fast` liveness: the connection it was last used on.
    connection: Option<u64>,
}

/// A place and its number, which no other place of the table ever had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<P> {
    pub number: u64,
    pub place: P,
}

impl<P: Clone> Table<P> {
    pub fn new(limit: usize) -> Self {
        Table { entries: BTreeMap::new(), limit, number: 0 }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a session, if it has one.
    pub fn find(&mut self, now: Time, key: &Key) -> Option<Found<P>> {
        let entry = self.entries.get_mut(key)?;
        entry.used = now;
        Some(Found { number: entry.number, place: entry.place.clone() })
    }

    /// The place of a session; a new one if it has none.
    pub fn find_or_make(&mut self, now: Time, key: Key, make: impl FnOnce() -> P) -> Result<Found<P>, Rejection> {
        let count = self.entries.len();
        let entry = match self.entries.entry(key) {
            btree_map::Entry::Occupied(entry) => entry.into_mut(),
            btree_map::Entry::Vacant(_) if count >= self.limit => {
                let message = format!("this node has {} sessions over HTTP already; try another", self.limit);
                return Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(self.limit));
            }
            btree_map::Entry::Vacant(vacant) => {
                self.number += 1;
                let number = self.number;
                vacant.insert(Entry { number, place: make(), used: now, timeout: ATTACHING, connection: None })
            }
        };
        entry.used = now;
        Ok(Found { number: entry.number, place: entry.place.clone() })
    }

    /// Removes a place, unless the session has another one by now.
    #[must_use = "what is removed is dropped without a lock"]
    pub fn remove(&mut self, key: &Key, number: u64) -> Option<P> {
        self.entries.get(key).filter(|entry| entry.number == number)?;
        self.entries.remove(key).map(|entry| entry.place)
    }

    /// The session in a place was attached with this timeout.
    pub fn attached(&mut self, key: &Key, number: u64, timeout: Duration) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.number == number) {
            entry.timeout = timeout;
        }
    }

    /// The session ends with this connection, unless it is used on another one first.
    pub fn bind(&mut self, key: &Key, number: u64, connection: u64) {
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.number == number) {
            entry.connection = Some(connection);
        }
    }

    /// A connection has ended: removes the place if the session was last used on it.
    #[must_use = "what is removed is dropped without a lock"]
    pub fn disconnected(&mut self, key: &Key, connection: u64) -> Option<P> {
        self.entries.get(key).filter(|entry| entry.connection == Some(connection))?;
        self.entries.remove(key).map(|entry| entry.place)
    }

    /// Removes all.
    #[must_use = "what is removed is dropped without a lock"]
    pub fn clear(&mut self) -> Vec<P> {
        std::mem::take(&mut self.entries).into_values().map(|entry| entry.place).collect()
    }

    /// Removes the places that no request has asked for in a long time.
    #[must_use = "what is removed is dropped without a lock"]
    pub fn sweep(&mut self, now: Time) -> Vec<P> {
        let idle = |entry: &Entry<P>| now.since(entry.used) >= entry.timeout.saturating_mul(IDLE_TIMEOUTS);
        let idle: Vec<Key> = self.entries.iter().filter(|(_, entry)| idle(entry)).map(|(key, _)| *key).collect();
        idle.iter().filter_map(|key| self.entries.remove(key)).map(|entry| entry.place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use convoke_core::member::Liveness;

    fn key(random: u8) -> Key {
        Secret::new(None, Liveness::Normal, 0, [random; 16]).key
    }

    #[test]
    fn a_place_that_nobody_attached_is_removed() {
        let mut table = Table::new(1);
        let start = Time::ZERO;
        table.find_or_make(start, key(1), || ()).unwrap();
        assert!(table.sweep(start + ATTACHING).is_empty(), "its request may still be at work");
        assert_eq!(table.sweep(start + 2 * ATTACHING).len(), 1);
        assert!(table.is_empty());
    }

    #[test]
    fn an_idle_session_is_removed_after_two_timeouts() {
        let mut table = Table::new(2);
        let timeout = Duration::from_secs(20);
        let found = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        table.attached(&key(1), found.number, timeout);
        assert!(table.sweep(Time::ZERO + timeout).is_empty());
        table.find(Time::ZERO + timeout, &key(1)).unwrap();
        assert!(table.sweep(Time::ZERO + 2 * timeout).is_empty(), "it was used");
        assert_eq!(table.sweep(Time::ZERO + 3 * timeout).len(), 1);
    }

    #[test]
    fn a_full_table_takes_no_further_session() {
        let mut table = Table::new(1);
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        let rejection = table.find_or_make(Time::ZERO, key(2), || ()).unwrap_err();
        assert_eq!((rejection.code, rejection.limit), (ErrorCode::ResourceExhausted, Some(1)));
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
    }

    #[test]
    fn only_the_last_connection_counts() {
        let mut table = Table::new(1);
        let found = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        table.bind(&key(1), found.number, 7);
        table.bind(&key(1), found.number, 8);
        assert!(table.disconnected(&key(1), 7).is_none());
        assert!(table.disconnected(&key(1), 8).is_some());
    }

    #[test]
    fn a_newer_place_stays() {
        let mut table = Table::new(1);
        let old = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        assert!(table.remove(&key(1), old.number).is_some());
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        assert!(table.remove(&key(1), old.number).is_none());
        assert_eq!(table.len(), 1);
    }
}
