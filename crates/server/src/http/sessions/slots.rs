//! The sessions of this node: the pure table behind a lock, and the connections of the attached sessions.

use crate::error::rejected;
use crate::service::ClientConnection;
use convoke_core::Time;
use convoke_http_session::{Found, Key, Place, Table};
use convoke_node::{ClientConnection as NodeConnection, Delivery};
use convoke_proto::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// A place that a request locks. Removing it drops the connection, which ends the session's attachment.
pub(super) type Slot = Arc<tokio::sync::Mutex<Held>>;

/// A place and the connection of the session that is attached there.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) place: Place,
    connection: Option<NodeConnection>,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table<Slot>>,
    start: Instant,
}

impl Sessions {
    pub(crate) fn new(limit: usize) -> Self {
        Sessions { table: Mutex::new(Table::new(limit)), start: Instant::now() }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Time as the sessions count it.
    pub(super) fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    pub(super) fn instant(&self, time: Time) -> Instant {
        self.start + time.since(Time::ZERO)
    }

    pub(super) fn find(&self, key: &Key, bound: Option<&ClientConnection>) -> Option<Found<Slot>> {
        let mut table = self.lock();
        let found = table.find(self.now(), key)?;
        bind(&mut table, *key, &found, bound);
        Some(found)
    }

    pub(super) fn find_or_make(&self, key: Key, bound: Option<&ClientConnection>) -> Result<Found<Slot>, Error> {
        let mut table = self.lock();
        let found = table.find_or_make(self.now(), key, Slot::default).map_err(rejected)?;
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

    /// A connection of a client has ended: so have the sessions bound to it, unless they were used on another one since.
    pub(crate) fn disconnected(&self, connection: &ClientConnection) {
        for key in connection.take() {
            let removed = self.lock().disconnected(&key, connection.number);
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

    fn lock(&self) -> MutexGuard<'_, Table<Slot>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With `fast` liveness the loss of the connection counts.
fn bind(table: &mut Table<Slot>, key: Key, found: &Found<Slot>, bound: Option<&ClientConnection>) {
    if let Some(connection) = bound {
        table.bind(&key, found.number, connection.number);
        connection.bind(key);
    }
}

impl Held {
    /// Reports what the node sent to the session's connection since the last request.
    pub(super) fn catch_up(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let mut context = Context::from_waker(Waker::noop());
        while self.place.is_attached() {
            match connection.poll_next(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Some(Delivery::Notice(notice))) => self.place.notice(notice),
                Poll::Ready(Some(Delivery::Closed(_)) | None) => self.place.closed(),
                Poll::Ready(Some(
                    Delivery::Answers(_) | Delivery::Heartbeat { .. } | Delivery::HeartbeatRejected { .. },
                )) => {}
            }
        }
    }

    /// The session was attached on this connection, or was not. Without a session no connection is kept.
    pub(super) fn keep(&mut self, connection: Option<NodeConnection>) {
        if connection.is_some() {
            self.connection = connection;
        }
        if !self.place.is_attached() {
            self.connection = None;
        }
    }

    pub(super) fn connection(&self) -> Option<&NodeConnection> {
        self.connection.as_ref()
    }
}
