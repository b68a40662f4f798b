//! Reads of keys: a selection, its order, and how much of each record (T7).

use super::{KeyRange, KeyRecord};
use crate::limits::LogLimits;
use crate::machine::{Field, Reason};
use bytes::Bytes;
use std::sync::Arc;

/// One key, or all keys of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    Key(Bytes),
    Range(KeyRange),
}

impl Selection {
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Selection::Key(selected) => key == &**selected,
            Selection::Range(range) => range.contains(key),
        }
    }

    /// Returns the selected keys as a range.
    pub fn range(&self) -> KeyRange {
        match self {
            Selection::Key(key) => KeyRange::new(key.clone(), [key, &[0][..]].concat()),
            Selection::Range(range) => range.clone(),
        }
    }
}

/// A read of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub selection: Selection,
    /// Maximum number of records; `None` means no limit other than the size of the answer.
    pub limit: Option<u64>,
    pub content: Content,
    pub order: Order,
}

/// What a read returns of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    #[default]
    Records,
    /// Records without their values.
    Keys,
    /// The number of records only.
    Count,
}

/// The order of the returned records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub by: SortBy,
    pub descending: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    #[default]
    Key,
    Version,
    CreateRevision,
    ModifyRevision,
    Value,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryResult {
    pub records: Vec<Arc<KeyRecord>>,
    /// The number of returned records; with [`Content::Count`] the number of selected records.
    pub count: u64,
    /// Whether the selection contains more records than were returned.
    pub more: bool,
}

/// Bounds of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryBounds {
    /// Bytes that are left for the answer, of `limit`.
    pub(crate) bytes: u64,
    pub(crate) limit: u64,
    /// Records that a read counts or sorts.
    pub(crate) scanned: u64,
    /// Whether the answer ends at `bytes` instead of failing.
    pub(crate) pages: bool,
}

impl QueryBounds {
    /// Bounds of a read inside of a transaction: it fails beyond them (T5).
    pub(crate) fn strict(limits: &LogLimits) -> Self {
        let limit = limits.coordination.answer_bytes;
        QueryBounds { bytes: limit, limit, scanned: limits.range_keys, pages: false }
    }

    /// Bounds of a read outside of an entry: the answer ends at `bytes`.
    pub(crate) fn page(limits: &LogLimits, bytes: u64) -> Self {
        QueryBounds { bytes, limit: bytes, scanned: limits.range_keys, pages: true }
    }

    /// No bounds, for a read that was within its bounds before.
    pub(crate) fn none() -> Self {
        QueryBounds { bytes: u64::MAX, limit: u64::MAX, scanned: u64::MAX, pages: false }
    }

    /// Subtracts a returned record from the bytes of the answer.
    pub(crate) fn charge(&mut self, record: &KeyRecord) -> Result<(), Reason> {
        let (bytes, limit) = (record.bytes(), self.limit);
        let found = limit - self.bytes + bytes;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Reason::TooLarge { field: Field::Answer, found, limit })?;
        Ok(())
    }
}

impl Query {
    /// Creates a read of one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Query::of(Selection::Key(key.into()))
    }

    /// Creates a read of all keys with a prefix.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Query::of(Selection::Range(KeyRange::prefix(prefix)))
    }

    pub fn of(selection: Selection) -> Self {
        Query { selection, limit: None, content: Content::Records, order: Order::default() }
    }

    /// Executes the read on selected records in key order. Subtracts the returned bytes from `bounds.bytes`.
    pub(crate) fn execute(
        &self,
        selected: impl Iterator<Item = Arc<KeyRecord>>,
        bounds: &mut QueryBounds,
    ) -> Result<QueryResult, Reason> {
        if self.content == Content::Count {
            return Ok(QueryResult { count: count(selected, bounds)?, ..QueryResult::default() });
        }
        if self.order == Order::default() {
            return self.take(selected, bounds);
        }
        let bound = usize::try_from(bounds.scanned).unwrap_or(usize::MAX);
        let mut records: Vec<Arc<KeyRecord>> = selected.take(bound.saturating_add(1)).collect();
        if records.len() > bound {
            return Err(Reason::TooMany { field: Field::Range, limit: bounds.scanned });
        }
        // A stable sort keeps records that are equal in key order.
        records.sort_by(|a, b| self.order.by.compare(a, b));
        if self.order.descending {
            records.reverse();
        }
        self.take(records.into_iter(), bounds)
    }

    fn take(
        &self,
        records: impl Iterator<Item = Arc<KeyRecord>>,
        bounds: &mut QueryBounds,
    ) -> Result<QueryResult, Reason> {
        let mut result = QueryResult::default();
        for record in records {
            if self.limit.is_some_and(|limit| result.count >= limit) {
                result.more = true;
                break;
            }
            let record = if self.content == Content::Keys { Arc::new(record.without_value()) } else { record };
            match bounds.charge(&record) {
                Err(reason) if !bounds.pages => return Err(reason),
                Err(_) if result.count > 0 => {
                    result.more = true;
                    break;
                }
                // A page has at least one record.
                Err(_) => bounds.bytes = 0,
                Ok(()) => {}
            }
            result.count += 1;
            result.records.push(record);
        }
        Ok(result)
    }
}

fn count(selected: impl Iterator<Item = Arc<KeyRecord>>, bounds: &QueryBounds) -> Result<u64, Reason> {
    let mut count = 0;
    for _ in selected {
        count += 1;
        if count > bounds.scanned {
            return Err(Reason::TooMany { field: Field::Range, limit: bounds.scanned });
        }
    }
    Ok(count)
}

impl SortBy {
    fn compare(self, a: &KeyRecord, b: &KeyRecord) -> std::cmp::Ordering {
        match self {
            SortBy::Key => a.key().cmp(b.key()),
            SortBy::Version => a.version.cmp(&b.version),
            SortBy::CreateRevision => a.create_revision.cmp(&b.create_revision),
            SortBy::ModifyRevision => a.modify_revision.cmp(&b.modify_revision),
            SortBy::Value => a.value().cmp(b.value()),
        }
    }
}
