//! Ordered keys with revisions (K).
//!
//! Owns the records, the revision and the byte count. It does not depend on sessions: the apply rule decides beforehand
//! whether a change happens (A3). A copy is cheap and immutable (LH5), so a reader can take one and read many pages of
//! one state.

mod change;
mod query;
mod range;
mod record;

use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::tree::{Iter, Tree};
pub use change::Changed;
pub(crate) use change::{KeyChange, KeyChanges, check_key};
pub(crate) use query::QueryBounds;
pub use query::{Content, Order, Query, QueryResult, Selection, SortBy};
pub use range::KeyRange;
pub use record::{KeyExtras, KeyRecord, RECORD_BYTES};
use std::sync::Arc;

/// All keys at one revision.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    tree: Tree<KeyRecord>,
    revision: u64,
    bytes: u64,
    /// Sum of the hashes of all records, updated with every change (LH2).
    hash: u128,
}

/// The first records of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPage {
    pub records: Vec<Arc<KeyRecord>>,
    /// Whether the range contains more records, [`after`](KeyRange::after) the last key.
    pub more: bool,
    pub revision: u64,
}

impl Keys {
    /// Returns the revision, which every request that changes something raises (K2).
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn len(&self) -> usize {
        self.tree.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tree.len() == 0
    }

    /// Returns the bytes of all keys and values, plus [`RECORD_BYTES`] per record (K5).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn get(&self, key: &[u8]) -> Option<&Arc<KeyRecord>> {
        self.tree.get(key)
    }

    /// Returns the first records of a range: at most `limit` records and `bytes` bytes, but at least one record (K6).
    pub fn range(&self, range: &KeyRange, limit: usize, bytes: u64) -> RecordPage {
        let mut page = RecordPage { records: Vec::new(), more: false, revision: self.revision };
        let mut taken = 0;
        for record in self.records(range) {
            taken += record.bytes();
            if page.records.len() == limit || (taken > bytes && !page.records.is_empty()) {
                page.more = true;
                break;
            }
            page.records.push(record.clone());
        }
        page
    }

    /// Iterates over all records of a range in order.
    pub fn records<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<KeyRecord>> {
        self.tree.iter_from(&range.from).take_while(|record| range.is_before_end(record.key()))
    }

    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }

    pub(crate) fn iter(&self) -> Iter<'_, KeyRecord> {
        self.tree.iter()
    }

    /// Raises the revision, for a change outside of the keys as well (K2).
    pub(crate) fn raise_revision(&mut self, by: u64) -> u64 {
        self.revision += by;
        self.revision
    }

    /// Creates the store of a snapshot, without its records.
    pub(crate) fn restored(revision: u64) -> Self {
        Keys { revision, ..Keys::default() }
    }

    /// Adds a record of a snapshot.
    pub(crate) fn restore(&mut self, record: KeyRecord) {
        debug_assert!(record.key().len() as u64 <= KEY_BYTES_MAX && record.value().len() as u64 <= VALUE_BYTES_MAX);
        self.store(Arc::new(record));
    }

    fn store(&mut self, record: Arc<KeyRecord>) -> Option<Arc<KeyRecord>> {
        self.bytes += record.bytes();
        self.hash = self.hash.wrapping_add(record.hash());
        let replaced = self.tree.insert(record);
        self.uncount(replaced.as_ref());
        replaced
    }

    fn remove(&mut self, key: &[u8]) -> Option<Arc<KeyRecord>> {
        let removed = self.tree.remove(key);
        self.uncount(removed.as_ref());
        removed
    }

    fn uncount(&mut self, gone: Option<&Arc<KeyRecord>>) {
        if let Some(record) = gone {
            self.bytes -= record.bytes();
            self.hash = self.hash.wrapping_sub(record.hash());
        }
    }
}

#[cfg(test)]
mod tests;
