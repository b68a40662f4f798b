//! The sessions attached here. The table is a cache: a session that is not in it is restored from the registry (C8).

use crate::secret::Key;
use convoke_core::{ErrorCode, Rejection, Time};
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::time::Duration;

/// An idle session is removed after this many of its timeouts. The node's own timers do not depend on this.
const IDLE_TIMEOUTS: u32 = 2;
/// Replaces the timeout until a session is attached. No request takes longer. A cancelled request leaves its entry behind.
const ATTACHING: Duration = Duration::from_secs(60);

/// The entries by session. `S` is a reference to an entry that the caller can lock.
#[derive(Debug)]
pub struct SessionTable<S> {
    rows: BTreeMap<Key, Row<S>>,
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
        SessionTable { rows: BTreeMap::new(), limit, number: 0 }
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
        self.rows.remove(key).map(|row| row.entry)
    }

    /// Records that the session in an entry was attached with this timeout.
    pub fn attached(&mut self, key: &Key, number: u64, timeout: Duration) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.number == number) {
            row.timeout = timeout;
        }
    }

    /// Binds a session to a connection: it ends with the connection, unless it is used on another one first.
    pub fn bind(&mut self, key: &Key, number: u64, connection: u64) {
        if let Some(row) = self.rows.get_mut(key).filter(|row| row.number == number) {
            row.connection = Some(connection);
        }
    }

    /// Removes the entry of a session that was last used on this connection, which has ended.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn disconnected(&mut self, key: &Key, connection: u64) -> Option<S> {
        self.rows.get(key).filter(|row| row.connection == Some(connection))?;
        self.rows.remove(key).map(|row| row.entry)
    }

    /// Removes all entries.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn clear(&mut self) -> Vec<S> {
        std::mem::take(&mut self.rows).into_values().map(|row| row.entry).collect()
    }

    /// Removes the entries that no request has used for a long time.
    #[must_use = "drop the removed entry after the table is unlocked"]
    pub fn sweep(&mut self, now: Time) -> Vec<S> {
        let idle = |row: &Row<S>| now.since(row.used) >= row.timeout.saturating_mul(IDLE_TIMEOUTS);
        let idle: Vec<Key> = self.rows.iter().filter(|(_, row)| idle(row)).map(|(key, _)| *key).collect();
        idle.iter().filter_map(|key| self.rows.remove(key)).map(|row| row.entry).collect()
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
        assert!(table.disconnected(&key(1), 7).is_none());
        assert!(table.disconnected(&key(1), 8).is_some());
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
