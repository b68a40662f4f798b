//! The sessions of this node: the session table behind a lock, and the connections of the attached sessions.

use crate::access::Caller;
use crate::service::ClientConnection;
use convoke_core::{Rejection, Time};
use convoke_http_session::{EntryRef, Key, SessionEntry, SessionTable};
use convoke_node::{ClientConnection as NodeConnection, Delivery};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// An entry that a request locks. Dropping it drops the connection, which detaches the session.
pub(super) type SharedEntry = Arc<tokio::sync::Mutex<HeldEntry>>;

/// An entry and the connection of the session that is attached there.
#[derive(Debug, Default)]
pub(super) struct HeldEntry {
    pub(super) entry: SessionEntry,
    /// The principal that attached the session; empty without access control.
    pub(super) principal: String,
    connection: Option<NodeConnection>,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<SessionTable<SharedEntry>>,
    start: Instant,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Sessions { table: Mutex::new(SessionTable::new(limit)), start: Instant::now() }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns the time since the node started.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    pub(super) fn instant(&self, time: Time) -> Instant {
        self.start + time.since(Time::ZERO)
    }

    pub(super) fn find(&self, key: &Key, bound: Option<&ClientConnection>) -> Option<EntryRef<SharedEntry>> {
        let mut table = self.lock();
        let found = table.find(self.now(), key)?;
        bind(&mut table, *key, &found, bound);
        Some(found)
    }

    pub(super) fn find_or_make(
        &self,
        key: Key,
        bound: Option<&ClientConnection>,
    ) -> Result<EntryRef<SharedEntry>, Rejection> {
        let mut table = self.lock();
        let found = table.find_or_make(self.now(), key, SharedEntry::default)?;
        bind(&mut table, key, &found, bound);
        Ok(found)
    }

    pub(super) fn attached(&self, key: &Key, number: u64, timeout: Duration) {
        self.lock().attached(key, number, timeout);
    }

    pub(super) fn remove(&self, key: &Key, number: u64) {
        let removed = self.lock().remove(key, number);
        drop(removed);
    }

    /// Ends the sessions that are bound to a client's connection, after the connection has ended. A session that was used on
    /// another connection since continues.
    pub(crate) fn disconnected(&self, connection: &ClientConnection) {
        if connection.has_bound() {
            let removed = self.lock().disconnected(connection.number);
            drop(removed);
        }
    }

    pub(crate) fn clear(&self) {
        let removed = self.lock().clear();
        drop(removed);
    }

    pub(crate) fn sweep(&self) {
        let removed = self.lock().sweep(self.now());
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable<SharedEntry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds a session with `fast` liveness to its connection: the loss of the connection ends it.
fn bind(
    table: &mut SessionTable<SharedEntry>,
    key: Key,
    found: &EntryRef<SharedEntry>,
    bound: Option<&ClientConnection>,
) {
    if let Some(connection) = bound {
        table.bind(&key, found.number, connection.number);
        connection.set_bound();
    }
}

impl HeldEntry {
    /// Whether a caller may use the session.
    pub(super) fn is_open_to(&self, caller: &Caller) -> bool {
        !self.entry.is_attached() || self.principal.is_empty() || self.principal == caller.registrant()
    }

    /// Reports the notices that the node sent to the session's connection since the last request.
    pub(super) fn catch_up(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let mut context = Context::from_waker(Waker::noop());
        while self.entry.is_attached() {
            match connection.poll_next(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Some(Delivery::Notice(notice))) => self.entry.notice(notice),
                Poll::Ready(Some(Delivery::Closed(_)) | None) => self.entry.closed(),
                Poll::Ready(Some(
                    Delivery::Answers(_)
                    | Delivery::Unreplicated
                    | Delivery::Heartbeat { .. }
                    | Delivery::HeartbeatRejected { .. },
                )) => {}
            }
        }
    }

    /// Keeps the connection on which the session was attached. Without an attached session no connection is kept.
    pub(super) fn keep(&mut self, connection: Option<NodeConnection>) {
        if connection.is_some() {
            self.connection = connection;
        }
        if !self.entry.is_attached() {
            self.connection = None;
        }
    }

    pub(super) fn connection(&self) -> Option<&NodeConnection> {
        self.connection.as_ref()
    }
}
