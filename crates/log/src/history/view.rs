//! The keys at a position of history (H4).

use super::{Compacted, EventPosition, History};
use crate::keys::{KeyRange, KeyRecord, Keys, Query, QueryBounds, QueryResult, Selection};
use crate::machine::Reason;
use crate::mutant::{Mutation, seam};
use std::sync::Arc;

/// All keys as they were before the event at a position; the current keys if the position is after all events.
#[derive(Clone, Copy, Debug)]
pub struct HistoryView<'a> {
    keys: &'a Keys,
    history: &'a History,
    /// Events at and after this position are undone.
    before: EventPosition,
    mutation: Mutation,
}

/// Why a read at a revision failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Compacted(#[from] Compacted),
    #[error("revision {asked} does not exist yet (current revision is {current})")]
    Future { asked: u64, current: u64 },
    /// The read needs more than the limits allow.
    #[error(transparent)]
    TooLarge(Reason),
}

impl ReadError {
    /// The error code of the interface.
    pub fn code(&self) -> convoke_base::ErrorCode {
        match self {
            ReadError::Compacted(_) => convoke_base::ErrorCode::Compacted,
            ReadError::Future { .. } => convoke_base::ErrorCode::InvalidArgument,
            ReadError::TooLarge(reason) => reason.code(),
        }
    }
}

impl<'a> HistoryView<'a> {
    pub(crate) fn before(
        keys: &'a Keys,
        history: &'a History,
        before: EventPosition,
        mutation: Mutation,
    ) -> Result<Self, Compacted> {
        // The state before the first kept event is known, because each event has the previous record.
        if before.revision < history.oldest() {
            return Err(Compacted { oldest: history.oldest() });
        }
        Ok(HistoryView { keys, history, before, mutation })
    }

    /// Returns the record of a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<KeyRecord>> {
        match self.undone(key) {
            Some(previous) => previous,
            None => self.keys.get(key).cloned(),
        }
    }

    /// Iterates over the records of a selection in key order.
    pub fn records(&self, selection: &Selection) -> Box<dyn Iterator<Item = Arc<KeyRecord>> + '_> {
        match selection {
            Selection::Key(key) => Box::new(self.get(key).into_iter()),
            Selection::Range(range) => Box::new(ViewIter { view: *self, range: range.clone() }),
        }
    }

    pub(crate) fn query(&self, query: &Query, bounds: &mut QueryBounds) -> Result<QueryResult, Reason> {
        query.execute(self.records(&query.selection), bounds)
    }

    /// Returns the record before the first undone event of a key, if there is such an event.
    fn undone(&self, key: &[u8]) -> Option<Option<Arc<KeyRecord>>> {
        seam!(self, PastReadsCurrent => return None);
        self.history.of_key_from(key, self.before).next().map(|first| first.change.previous().cloned())
    }

    /// Returns the first key of a range that has a record now or was deleted within history. The last undone event of any
    /// other key would be a put, which leaves a record.
    fn first_key(&self, range: &KeyRange) -> Option<Vec<u8>> {
        let current = self.keys.records(range).next().map(|record| record.key());
        let deleted = self.history.deleted.iter_from(&range.from).next().map(|deletion| deletion.previous.key());
        let deleted = deleted.filter(|key| range.is_before_end(key));
        current.into_iter().chain(deleted).min().map(<[u8]>::to_vec)
    }
}

struct ViewIter<'a> {
    view: HistoryView<'a>,
    range: KeyRange,
}

impl Iterator for ViewIter<'_> {
    type Item = Arc<KeyRecord>;

    fn next(&mut self) -> Option<Arc<KeyRecord>> {
        loop {
            let key = self.view.first_key(&self.range)?;
            self.range = self.range.after(&key);
            if let Some(record) = self.view.get(&key) {
                return Some(record);
            }
        }
    }
}
