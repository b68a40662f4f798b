//! Entries in memory: a piece of the log without holes.

use crate::raft::{Entry, LogId, Payload};
use std::collections::VecDeque;
use std::io;

/// What an entry is counted with beside its command. Rounded up from what it takes, with the place of a decoded command that was taken.
const ENTRY_BYTES: u64 = 192;

/// Entries from the first that was not purged to the last.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    entries: VecDeque<Entry>,
    purged: Option<LogId>,
    /// Up to here entries were in segments that are gone. They were purged; where, is yet to be read.
    assumed: Option<u64>,
    bytes: u64,
}

/// What an entry counts for.
pub(crate) fn entry_bytes(entry: &Entry) -> u64 {
    let content = match &entry.payload {
        Payload::Normal(proposal) => proposal.command.len() as u64,
        Payload::Blank | Payload::Membership(_) => 0,
    };
    content + ENTRY_BYTES
}

impl Entries {
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    /// The last entry there is, or was before it was purged.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries of a range that are there.
    pub(crate) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = &Entry> {
        let first = self.entries.front().map_or(0, |entry| entry.log_id.index);
        let count = self.entries.len();
        let place = |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(count).min(count);
        let (from, until) = (place(start), place(end));
        self.entries.range(from..until.max(from))
    }

    /// Refuses an entry that does not follow the last one: a hole would go unnoticed for ever.
    pub(crate) fn append(&mut self, entry: Entry) -> io::Result<()> {
        let found = entry.log_id.index;
        if let Some(last) = self.last_index().filter(|last| found != last + 1) {
            return Err(io::Error::other(format!("entry {found} was to be appended behind entry {last}")));
        }
        self.bytes += entry_bytes(&entry);
        self.entries.push_back(entry);
        Ok(())
    }

    /// Removes `from` and everything behind it.
    pub(crate) fn truncate(&mut self, from: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= from) {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| entry_bytes(&entry));
        }
        if self.assumed >= Some(from) {
            self.assumed = from.checked_sub(1);
        }
    }

    /// Index of the last entry there is, was, or must have been.
    pub(crate) fn last_index(&self) -> Option<u64> {
        match self.entries.back() {
            Some(entry) => Some(entry.log_id.index),
            None => self.assumed.max(self.purged.map(|purged| purged.index)),
        }
    }

    /// Takes it that everything up to an entry was purged: the segments it was in are gone.
    pub(crate) fn assume(&mut self, last: LogId) {
        self.assumed = Some(last.index).filter(|last| Some(*last) > self.purged.map(|purged| purged.index));
    }

    /// Whether that was not borne out.
    pub(crate) fn is_missing(&self) -> bool {
        self.assumed.is_some()
    }

    /// Removes everything up to an entry, which need not be there: a snapshot may reach further than the log.
    pub(crate) fn purge(&mut self, upto: LogId) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= upto.index) {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry_bytes(&entry));
        }
        self.purged = self.purged.max(Some(upto));
        if self.assumed <= Some(upto.index) {
            self.assumed = None;
        }
    }

    /// Index of the last entry that can go while entries of at least `keep` bytes stay; never above `limit`.
    pub(crate) fn purgeable(&self, keep: u64, limit: u64) -> Option<u64> {
        let mut bytes = self.bytes;
        let mut found = None;
        for entry in &self.entries {
            bytes -= entry_bytes(entry);
            if bytes < keep || entry.log_id.index > limit {
                break;
            }
            found = Some(entry.log_id.index);
        }
        found
    }
}
