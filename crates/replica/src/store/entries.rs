//! Entries in memory: a contiguous part of the log.

use crate::raft::{Entry, LogId, Payload};
use std::collections::VecDeque;
use std::io;

/// Bytes counted per entry in addition to its command. Rounded up from the actual size, including the emptied decoded command.
const ENTRY_BYTES: u64 = 192;

/// Entries from the first one that is not purged to the last one.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    entries: VecDeque<Entry>,
    purged: Option<LogId>,
    /// Entries up to this index were in deleted segments. They were purged; the purge record has not been read yet.
    assumed: Option<u64>,
    bytes: u64,
}

/// Returns the bytes counted for an entry.
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

    /// Returns the last entry, or the last purged one.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the entries of a range that are present.
    pub(crate) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = &Entry> {
        let first = self.entries.front().map_or(0, |entry| entry.log_id.index);
        let count = self.entries.len();
        let place = |index: u64| usize::try_from(index.saturating_sub(first)).unwrap_or(count).min(count);
        let (from, until) = (place(start), place(end));
        self.entries.range(from..until.max(from))
    }

    /// Rejects an entry that does not follow the last one, because a gap would stay undetected.
    pub(crate) fn append(&mut self, entry: Entry) -> io::Result<()> {
        let found = entry.log_id.index;
        if let Some(last) = self.last_index().filter(|last| found != last + 1) {
            return Err(io::Error::other(format!("entry {found} does not follow entry {last}")));
        }
        self.bytes += entry_bytes(&entry);
        self.entries.push_back(entry);
        Ok(())
    }

    /// Removes `from` and all later entries.
    pub(crate) fn truncate(&mut self, from: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= from) {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| entry_bytes(&entry));
        }
        if self.assumed >= Some(from) {
            self.assumed = from.checked_sub(1);
        }
    }

    /// Returns the index of the last entry that is present, purged or assumed to be purged.
    pub(crate) fn last_index(&self) -> Option<u64> {
        match self.entries.back() {
            Some(entry) => Some(entry.log_id.index),
            None => self.assumed.max(self.purged.map(|purged| purged.index)),
        }
    }

    /// Assumes that all entries up to this one were purged, because their segments are deleted.
    pub(crate) fn assume(&mut self, last: LogId) {
        self.assumed = Some(last.index).filter(|last| Some(*last) > self.purged.map(|purged| purged.index));
    }

    /// Returns whether that assumption is still unconfirmed.
    pub(crate) fn is_missing(&self) -> bool {
        self.assumed.is_some()
    }

    /// Removes all entries up to this one, which need not be present: a snapshot may reach further than the log.
    pub(crate) fn purge(&mut self, upto: LogId) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= upto.index) {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry_bytes(&entry));
        }
        self.purged = self.purged.max(Some(upto));
        if self.assumed <= Some(upto.index) {
            self.assumed = None;
        }
    }

    /// Returns the last index that can be purged while at least `keep` bytes remain, up to `limit`.
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
