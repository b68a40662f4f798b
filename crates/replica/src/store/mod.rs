//! The stored log: entries, votes and the purge position.
//!
//! All entries that are not purged are also in memory, where replication and apply read them; snapshots bound their
//! size. The disk receives only appends and is read once, when the store is opened.

pub(crate) mod disk;
mod entries;
pub(crate) mod identity;
pub(crate) mod open;
mod record;
pub(crate) mod segment;
pub(crate) mod snapshot_file;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use entries::{Entries, entry_bytes};
pub use open::StoreError;
pub(crate) use writer::segment_name;

use crate::counters::Counting;
use crate::raft::{Entry, LogId, Types, Vote};
use disk::Disk;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};
use writer::{Begin, Step, Writer};

/// The log of one replica. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    held: Mutex<Held>,
    /// `None` if the log is in memory only.
    writer: Option<Writer>,
    /// Bytes of all entries held.
    bytes: AtomicU64,
    /// Notified when the log has grown enough for a snapshot.
    grown: Notify,
    grown_bytes: u64,
    /// Bytes of entries per read for replication.
    read_bytes: usize,
}

/// Sizes that control a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of entries per read for replication.
    pub(crate) read_bytes: usize,
    pub(crate) segment_bytes: u64,
    /// Size from which a snapshot is taken.
    pub(crate) grown_bytes: u64,
}

/// The log in memory.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) entries: Entries,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
}

impl LogStore {
    /// Creates a log in memory.
    pub(crate) fn in_memory(sizes: Sizes) -> Self {
        LogStore::new(Held::default(), None, sizes)
    }

    /// Opens the log in a directory. It is read completely before the first write.
    pub(crate) fn open(disk: Arc<dyn Disk>, sizes: Sizes, counting: Arc<Counting>) -> Result<Self, StoreError> {
        let found = open::open(&*disk)?;
        let path = disk.path("");
        let begin = Begin {
            disk,
            known: found.known,
            segments: found.segments,
            scanned: found.scanned,
            next_batch: found.next_batch,
            segment_bytes: sizes.segment_bytes,
            counting,
        };
        let writer = Writer::start(begin).map_err(|source| StoreError::Disk { action: "write to", path, source })?;
        Ok(LogStore::new(found.held, Some(writer), sizes))
    }

    fn new(held: Held, writer: Option<Writer>, sizes: Sizes) -> Self {
        let bytes = AtomicU64::new(held.entries.bytes());
        let Sizes { read_bytes, grown_bytes, .. } = sizes;
        let held = Mutex::new(held);
        LogStore { shared: Arc::new(Shared { held, writer, bytes, grown: Notify::new(), grown_bytes, read_bytes }) }
    }

    /// Returns the bytes of all entries in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the log has grown enough for a snapshot.
    pub(crate) fn has_grown(&self) -> bool {
        self.bytes() > self.shared.grown_bytes
    }

    /// Waits until the log has grown enough for a snapshot.
    pub(crate) async fn grown(&self) {
        while !self.has_grown() {
            self.shared.grown.notified().await;
        }
    }

    pub(crate) fn vote(&self) -> Option<Vote> {
        self.lock().vote
    }

    /// Returns the last entry that may be purged so that at least `keep` bytes remain, up to `limit`.
    pub(crate) fn purgeable(&self, keep: u64, limit: u64) -> Option<u64> {
        self.lock().entries.purgeable(keep, limit)
    }

    /// Returns a weak reference, to detect when the log is released.
    pub(crate) fn downgrade(&self) -> std::sync::Weak<impl Sized + use<>> {
        Arc::downgrade(&self.shared)
    }

    /// Returns the last entry, purged or not.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.lock().entries.last()
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.lock().entries.purged()
    }

    pub(crate) fn committed(&self) -> Option<LogId> {
        self.lock().committed
    }

    /// Returns all entries in memory, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.lock().entries.range(0, u64::MAX).cloned().collect()
    }

    /// Writes a step and waits until it is synced.
    async fn write(&self, step: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Step) -> io::Result<()> {
        let Some(writer) = &self.shared.writer else { return Ok(()) };
        let (reply, written) = oneshot::channel();
        writer.push(step(reply))?;
        written.await.unwrap_or_else(|_| Err(io::Error::other("the log is closed")))
    }

    /// Queues a step that is written together with the next batch.
    fn note(&self, step: Step) -> io::Result<()> {
        self.shared.writer.as_ref().map_or(Ok(()), |writer| writer.push(step))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, bytes: u64) {
        self.shared.bytes.store(bytes, Ordering::Relaxed);
        if bytes > self.shared.grown_bytes {
            self.shared.grown.notify_one();
        }
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

    /// Returns entries that fit into one message, but at least one.
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
        self.write(|reply| Step::Vote(*vote, reply)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.lock().committed = committed;
        committed.map_or(Ok(()), |committed| self.note(Step::Committed(committed)))
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
        self.changed(bytes);
        match &self.shared.writer {
            Some(writer) => writer.push(Step::Append(entries, callback)),
            None => {
                callback.io_completed(Ok(()));
                Ok(())
            }
        }
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let from = last.map_or(0, |last| last.index + 1);
        let (bytes, last) = {
            let mut held = self.lock();
            held.entries.truncate(from);
            (held.entries.bytes(), held.entries.last())
        };
        self.changed(bytes);
        self.note(Step::Truncate(from, last))
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let bytes = {
            let mut held = self.lock();
            held.entries.purge(upto);
            held.entries.bytes()
        };
        self.changed(bytes);
        self.write(|reply| Step::Purge(upto, reply)).await
    }
}
