//! The sessions attached here. The table is a cache: a session that is not in it is restored from the registry (C8).

use crate::secret::Key;
use convoke_core::{ErrorCode, Rejection, Time};
use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An idle session is removed after this many of its timeouts. The node's own timers do not depend on this.
const IDLE_TIMEOUTS: u32 = 2;
/// Replaces the timeout until a session is attached. No request takes longer. A cancelled request leaves its entry behind.
const ATTACHING: Duration = Duration::from_secs(60);

/// The entries by session. `S` is a reference to an entry that the caller can lock.
#[derive(Debug)]
pub struct SessionTable<S> {
    rows: BTreeMap<Key, Row<S>>,
    /// The sessions of each connection; only with `fast` liveness. A session is in it as long as it has a row.
    bound: BTreeMap<u64, BTreeSet<Key>>,
    limit: usize,
    /// Number of the last entry that was made.
    number: u64,
}

#[derive(Debug)]
struct Row<S> {
    number: u64,
    entry: S,
    /// When a request last used it.
    used: Time,
    timeout: Duration,
    /// The connection it was last used on; only with `fast` liveness.
    connection: Option<u64>,
}

/// An entry and its number. The table never uses a number twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRef<S> {
    pub number: u64,
    pub entry: S,
}

impl<S: Clone> SessionTable<S> {
    pub fn new(limit: usize) -> Self {
        SessionTable { rows: BTreeMap::new(), bound: BTreeMap::new(), limit, number: 0 }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the entry of a session, if it has one.
    pub fn find(&mut self, now: Time, key: &Key) -> Option<EntryRef<S>> {
        let row = self.rows.get_mut(key)?;
        row.used = now;
        Some(EntryRef { number: row.number, entry: row.entry.clone() })
    }

    /// Returns the entry of a session; makes one if there is none.
    pub fn find_or_make(&mut self, now: Time, key: Key, make: impl FnOnce() -> S) -> Result<EntryRef<S>, Rejection> {
        let count = self.rows.len();
        let row = match self.rows.entry(key) {
            btree_map::Entry::Occupied(occupied) => occupied.into_mut(),
            btree_map::Entry::Vacant(_) if count >= self.limit => {
                let message =
                    format!("this node has reached its limit of {} HTTP sessions; use another node", self.limit);
                return Err(Rejection::new(ErrorCode::ResourceExhausted, message).limit(self.limit));
            }
            btree_map::Entry::Vacant(vacant) => {
                self.number += 1;
                let number = self.number;
                vacant.insert(Row { number, entry: make(), used: now, timeout: ATTACHING, connection: None })
            }
        };
        row.used = now;
        Ok(EntryRef { number: row.number, entry: row.entry.clone() })
    }

    /// Removes an entry, unless the session has another one by now.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn remove(&mut self, key: &Key, number: u64) -> Option<S> {
        self.rows.get(key).filter(|row| row.number == number)?;
        self.take(key)
    }

    /// Records that the session in an entry was attached with this timeout.
    pub fn attached(&mut self, key: &Key, number: u64, timeout: Duration) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.number == number) {
            row.timeout = timeout;
        }
    }

    /// Binds a session to a connection: it ends with the connection, unless it is used on another one first.
    pub fn bind(&mut self, key: &Key, number: u64, connection: u64) {
        let Some(row) = self.rows.get_mut(key).filter(|row| row.number == number) else { return };
        let earlier = row.connection.replace(connection);
        if earlier != Some(connection) {
            self.unbind(key, earlier);
            self.bound.entry(connection).or_default().insert(*key);
        }
    }

    /// Removes the entries of sessions that were last used on this connection, which has ended.
    #[must_use = "drop the removed entries after the table is unlocked"]
    pub fn disconnected(&mut self, connection: u64) -> Vec<S> {
        let keys = self.bound.remove(&connection).unwrap_or_default();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    fn take(&mut self, key: &Key) -> Option<S> {
        let row = self.rows.remove(key)?;
        self.unbind(key, row.connection);
        Some(row.entry)
    }

    fn unbind(&mut self, key: &Key, connection: Option<u64>) {
        let Some(btree_map::Entry::Occupied(mut keys)) = connection.map(|connection| self.bound.entry(connection))
        else {
            return;
        };
        keys.get_mut().remove(key);
        if keys.get().is_empty() {
            keys.remove();
        }
    }

    /// Removes all entries.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn clear(&mut self) -> Vec<S> {
        self.bound.clear();
        std::mem::take(&mut self.rows).into_values().map(|row| row.entry).collect()
    }

    /// Removes the entries that no request has used for a long time.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn sweep(&mut self, now: Time) -> Vec<S> {
        let idle = |row: &Row<S>| now.since(row.used) >= row.timeout.saturating_mul(IDLE_TIMEOUTS);
        let idle: Vec<Key> = self.rows.iter().filter(|(_, row)| idle(row)).map(|(key, _)| *key).collect();
        idle.iter().filter_map(|key| self.take(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use convoke_core::member::Liveness;

    fn key(random: u8) -> Key {
        let node = convoke_core::version::NodeId::new("n1").unwrap();
        let incarnation = convoke_core::version::Incarnation { number: 1, nonce: 1 };
        let creator = convoke_core::version::OriginId { node, incarnation };
        Secret::new(None, Liveness::Normal, 0, &creator, [random; 16]).key
    }

    #[test]
    fn an_entry_without_a_session_is_removed() {
        let mut table = SessionTable::new(1);
        let start = Time::ZERO;
        table.find_or_make(start, key(1), || ()).unwrap();
        assert!(table.sweep(start + ATTACHING).is_empty(), "its request may still be in progress");
        assert_eq!(table.sweep(start + 2 * ATTACHING).len(), 1);
        assert!(table.is_empty());
    }

    #[test]
    fn an_idle_session_is_removed_after_two_timeouts() {
        let mut table = SessionTable::new(2);
        let timeout = Duration::from_secs(20);
        let found = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        table.attached(&key(1), found.number, timeout);
        assert!(table.sweep(Time::ZERO + timeout).is_empty());
        table.find(Time::ZERO + timeout, &key(1)).unwrap();
        assert!(table.sweep(Time::ZERO + 2 * timeout).is_empty(), "it was used");
        assert_eq!(table.sweep(Time::ZERO + 3 * timeout).len(), 1);
    }

    #[test]
    fn a_full_table_rejects_a_further_session() {
        let mut table = SessionTable::new(1);
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        let rejection = table.find_or_make(Time::ZERO, key(2), || ()).unwrap_err();
        assert_eq!((rejection.code, rejection.limit), (ErrorCode::ResourceExhausted, Some(1)));
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
    }

    #[test]
    fn only_the_last_connection_counts() {
        let mut table = SessionTable::new(1);
        let found = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        table.bind(&key(1), found.number, 7);
        table.bind(&key(1), found.number, 8);
        assert!(table.disconnected(7).is_empty());
        assert_eq!(table.disconnected(8).len(), 1);
    }

    /// A proxy keeps its connections for days, and its clients create and end sessions all the time.
    #[test]
    fn a_connection_keeps_nothing_of_sessions_that_ended() {
        let mut table = SessionTable::new(10);
        let timeout = Duration::from_secs(20);
        for round in 0..3 {
            let found = table.find_or_make(Time::ZERO, key(round), || ()).unwrap();
            table.bind(&key(round), found.number, 7);
            table.attached(&key(round), found.number, timeout);
            match round {
                0 => assert!(table.remove(&key(0), found.number).is_some()),
                1 => assert_eq!(table.sweep(Time::ZERO + 2 * timeout).len(), 1),
                _ => assert_eq!(table.clear().len(), 1),
            }
            assert!(table.bound.is_empty(), "round {round}");
        }
        for number in 0..2 {
            let found = table.find_or_make(Time::ZERO, key(number), || ()).unwrap();
            table.bind(&key(number), found.number, 7);
        }
        assert_eq!((table.disconnected(7).len(), table.len(), table.bound.len()), (2, 0, 0));
    }

    #[test]
    fn a_newer_entry_stays() {
        let mut table = SessionTable::new(1);
        let old = table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        assert!(table.remove(&key(1), old.number).is_some());
        table.find_or_make(Time::ZERO, key(1), || ()).unwrap();
        assert!(table.remove(&key(1), old.number).is_none());
        assert_eq!(table.len(), 1);
    }
}
