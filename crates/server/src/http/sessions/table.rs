//! The sessions attached here. A cache: what is lost from it is found again in the registry (C8).

use super::live::Live;
use super::secret::Key;
use crate::service::ClientConnection;
use convoke_proto::{Error, ErrorCode};
use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Idle sessions are let go after so many of their timeouts. The node's own timers go on without this.
const IDLE_TIMEOUTS: u32 = 2;
/// In place of its timeout, until a session is attached: no request takes longer, and one that is given up midway leaves its
/// place behind.
const ATTACHING: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Table {
    entries: Mutex<HashMap<Key, Arc<Entry>>>,
    limit: usize,
    start: Instant,
}

/// A place for a session: whoever holds the lock attaches it, if it is not.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) live: tokio::sync::Mutex<Option<Live>>,
    /// When it was last asked for, in ms since the table was made.
    used: AtomicU64,
    /// ms.
    timeout: AtomicU64,
    /// With `fast` liveness: the connection it was last used on.
    tie: Mutex<Weak<ClientConnection>>,
}

impl Table {
    pub(crate) fn new(limit: usize) -> Self {
        Table { entries: Mutex::default(), limit, start: Instant::now() }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The place of a session, if it has one.
    pub(super) fn find(&self, key: &Key) -> Option<Arc<Entry>> {
        let entry = self.lock().get(key).cloned()?;
        entry.used.store(self.now(), Ordering::Relaxed);
        Some(entry)
    }

    /// The place of a session; a new one if it has none.
    pub(super) fn place(&self, key: Key) -> Result<Arc<Entry>, Error> {
        let now = self.now();
        let mut entries = self.lock();
        let count = entries.len();
        match entries.entry(key) {
            hash_map::Entry::Occupied(entry) => {
                entry.get().used.store(now, Ordering::Relaxed);
                Ok(entry.get().clone())
            }
            hash_map::Entry::Vacant(_) if count >= self.limit => {
                let message = format!("this node has {} sessions over HTTP already; try another", self.limit);
                Err(Error::new(ErrorCode::ResourceExhausted, message).limit(self.limit as u64))
            }
            hash_map::Entry::Vacant(vacant) => {
                let entry = Entry {
                    live: tokio::sync::Mutex::default(),
                    used: now.into(),
                    timeout: millis(ATTACHING).into(),
                    tie: Mutex::default(),
                };
                Ok(vacant.insert(Arc::new(entry)).clone())
            }
        }
    }

    /// Lets go of a place, unless somebody made a new one meanwhile.
    pub(super) fn remove(&self, key: &Key, entry: &Arc<Entry>) {
        let mut entries = self.lock();
        if entries.get(key).is_some_and(|held| Arc::ptr_eq(held, entry)) {
            entries.remove(key);
        }
    }

    /// A connection has ended: sessions that hang on it are lost, as far as they were not used on another one since.
    pub(crate) fn cut(&self, tie: &Arc<ClientConnection>) {
        for key in tie.take() {
            let mut entries = self.lock();
            let tied = entries.get(&key).is_some_and(|entry| entry.is_tied_to(tie));
            let lost = if tied { entries.remove(&key) } else { None };
            drop(entries);
            drop(lost);
        }
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.lock());
        drop(entries);
    }

    /// Lets go of those nobody asked for in a long time.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        let mut idle = Vec::new();
        self.lock().retain(|_, entry| {
            let limit = entry.timeout.load(Ordering::Relaxed).saturating_mul(IDLE_TIMEOUTS.into());
            let keep = now.saturating_sub(entry.used.load(Ordering::Relaxed)) < limit;
            if !keep {
                idle.push(entry.clone());
            }
            keep
        });
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The session hangs on this connection from now on.
    pub(super) fn tie_to(&self, key: Key, tie: &Arc<ClientConnection>) {
        *self.tie.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(tie);
        tie.bind(key);
    }

    fn is_tied_to(&self, tie: &Arc<ClientConnection>) -> bool {
        std::ptr::eq(self.tie.lock().unwrap_or_else(PoisonError::into_inner).as_ptr(), Arc::as_ptr(tie))
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(millis(timeout), Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::secret::Secret;
    use super::*;
    use convoke_core::member::Liveness;

    #[tokio::test(start_paused = true)]
    async fn a_place_that_nobody_attached_is_let_go() {
        let table = Table::new(1);
        let key = Secret::new(None, Liveness::Normal, 0).unwrap().key;
        drop(table.place(key).unwrap());
        tokio::time::advance(ATTACHING).await;
        table.sweep();
        assert_eq!(table.len(), 1, "its request may still be at it");
        tokio::time::advance(2 * ATTACHING).await;
        table.sweep();
        assert_eq!(table.len(), 0);
    }
}
