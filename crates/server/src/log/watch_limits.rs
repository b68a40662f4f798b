//! Limits of watches of keys, locks and elections: streams of the node, and watches of one connection (H11).

use crate::service::ClientConnection;
use crate::surface::Gates;
use convoke_counters::add;
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Watches of all streams of one connection: 32 full streams. Without it, one connection could have as many watches as its
/// streams allow, 32,768.
pub(crate) const CONNECTION_WATCHES_MAX: usize = 4_096;

/// The streams of watches of a node.
#[derive(Debug)]
pub(super) struct WatchLimits {
    streams: Arc<Semaphore>,
    streams_max: usize,
    rejected: AtomicU64,
}

/// A stream of watches within the limits. Dropping it frees its places.
#[derive(Debug)]
pub(crate) struct WatchPermit {
    _stream: OwnedSemaphorePermit,
    _watches: Option<ConnectionWatches>,
}

impl WatchLimits {
    pub(super) fn new(streams_max: usize) -> Self {
        let streams_max = streams_max.min(Semaphore::MAX_PERMITS);
        WatchLimits { streams: Arc::new(Semaphore::new(streams_max)), streams_max, rejected: AtomicU64::new(0) }
    }

    /// Acquires places for one more stream with some watches. A call of this process has no connection.
    pub(super) fn enter(
        &self,
        connection: Option<&Arc<ClientConnection>>,
        watches: usize,
    ) -> Result<WatchPermit, Error> {
        let permit = connection.map(|connection| ConnectionWatches::enter(connection, watches)).transpose().and_then(
            |watches| {
                let stream = Gates::enter(&self.streams, "watches of keys", self.streams_max)?;
                Ok(WatchPermit { _stream: stream, _watches: watches })
            },
        );
        permit.inspect_err(|_| add(&self.rejected, 1))
    }

    /// Returns the number of open streams.
    pub(super) fn open(&self) -> usize {
        self.streams_max - self.streams.available_permits()
    }

    /// Returns the number of streams that were rejected.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

/// Watches of one stream, counted at their connection.
#[derive(Debug)]
struct ConnectionWatches {
    connection: Arc<ClientConnection>,
    watches: usize,
}

impl ConnectionWatches {
    fn enter(connection: &Arc<ClientConnection>, watches: usize) -> Result<Self, Error> {
        let counter: &AtomicUsize = &connection.key_watches;
        let room = |open: usize| Some(open + watches).filter(|open| *open <= CONNECTION_WATCHES_MAX);
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(ConnectionWatches { connection: connection.clone(), watches }),
            Err(open) => {
                let message = format!(
                    "a connection has at most {CONNECTION_WATCHES_MAX} watches of keys, locks and elections; this one has \
                     {open}, and the request has {watches}; use another connection"
                );
                Err(Error::new(ErrorCode::ResourceExhausted, message).limit(CONNECTION_WATCHES_MAX as u64))
            }
        }
    }
}

impl Drop for ConnectionWatches {
    fn drop(&mut self) {
        self.connection.key_watches.fetch_sub(self.watches, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h11_places_are_limited_counted_and_freed() {
        let (limits, connection) = (WatchLimits::new(3), Arc::<ClientConnection>::default());
        let rest = CONNECTION_WATCHES_MAX - 1;
        let one = limits.enter(Some(&connection), 1).unwrap();
        let others = limits.enter(Some(&connection), rest).unwrap();
        let error = limits.enter(Some(&connection), 1).unwrap_err();
        assert_eq!((error.code, error.limit), (ErrorCode::ResourceExhausted, Some(CONNECTION_WATCHES_MAX as u64)));
        assert_eq!((limits.open(), limits.rejected()), (2, 1), "a rejected request takes no place");

        let elsewhere = limits.enter(Some(&Arc::default()), rest).unwrap();
        drop(others);
        let again = limits.enter(Some(&connection), rest).unwrap();
        drop((one, again, elsewhere));
        assert_eq!((limits.open(), connection.key_watches.load(Ordering::Relaxed)), (0, 0));

        let all: Vec<_> = (0..3).map(|_| limits.enter(None, rest).unwrap()).collect();
        let error = limits.enter(Some(&connection), 1).unwrap_err();
        assert_eq!((error.code, error.limit), (ErrorCode::ResourceExhausted, Some(3)));
        assert_eq!((all.len(), limits.rejected(), connection.key_watches.load(Ordering::Relaxed)), (3, 2, 0));
    }
}
