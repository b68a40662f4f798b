//! The log as it is stored: entries, votes, what was purged.
//!
//! All entries that are not purged are in memory, where replication and apply read them; how much that is, is bounded by
//! snapshots. The disk only ever gets appends, and is read once, when the store is opened.

mod entries;

pub(crate) use entries::{Entries, entry_bytes};

use crate::raft::{Entry, LogId, Types, Vote};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The log of one replica. Copies share it.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    held: Mutex<Held>,
    /// Bytes of all entries held, for those who decide about snapshots.
    bytes: watch::Sender<u64>,
    /// Entries handed to replication at a time.
    read_bytes: usize,
}

/// What is held in memory.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) entries: Entries,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
}

impl LogStore {
    /// A log that is lost with the process.
    pub(crate) fn in_memory(read_bytes: usize) -> Self {
        LogStore { shared: Arc::new(Shared { held: Mutex::default(), bytes: watch::Sender::new(0), read_bytes }) }
    }

    /// Follows the bytes of all entries held.
    pub(crate) fn bytes(&self) -> watch::Receiver<u64> {
        self.shared.bytes.subscribe()
    }

    pub(crate) fn vote(&self) -> Option<Vote> {
        self.lock().vote
    }

    /// The last entry that may be purged so that entries of at least `keep` bytes stay, none behind `limit`.
    pub(crate) fn purgeable(&self, keep: u64, limit: u64) -> Option<u64> {
        self.lock().entries.purgeable(keep, limit)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, bytes: u64) {
        self.shared.bytes.send_if_modified(|before| std::mem::replace(before, bytes) != bytes);
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = bounds(&range);
        Ok(self.lock().entries.range(start, end).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.vote())
    }

    /// No more than fits into one message, but at least one entry.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (held, mut bytes) = (self.lock(), 0);
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += entry_bytes(entry);
            first || bytes <= self.shared.read_bytes as u64
        };
        Ok(held.entries.range(start, end).take_while(fits).cloned().collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let held = self.lock();
        Ok(LogState { last_purged_log_id: held.entries.purged(), last_log_id: held.entries.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let bytes = {
            let mut held = self.lock();
            for entry in &entries {
                held.entries.append(entry.clone())?;
            }
            held.entries.bytes()
        };
        callback.io_completed(Ok(()));
        self.changed(bytes);
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let bytes = {
            let mut held = self.lock();
            held.entries.truncate(last.map_or(0, |last| last.index + 1));
            held.entries.bytes()
        };
        self.changed(bytes);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let bytes = {
            let mut held = self.lock();
            held.entries.purge(upto);
            held.entries.bytes()
        };
        self.changed(bytes);
        Ok(())
    }
}
