//! Execution of transactions (T), and their results for later copies.

use super::effects::Effects;
use super::outcome::{Field, Outcome, Reason, Response, TxnOutcome};
use super::{Machine, request::limits_of_keys};
use crate::command::{Compare, Op, OpResult, Test, Txn, TxnPut};
use crate::history::{Compacted, EventPosition, HistoryView, ReadError};
use crate::keys::{KeyChanges, KeyExtras, KeyRecord, Query, QueryBounds, QueryResult, Selection};
use crate::limits::LogLimits;
use crate::mutant::seam;
use std::sync::Arc;

/// The answer to a read-only transaction (T6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    pub succeeded: bool,
    /// Revision of the state that the transaction read.
    pub revision: u64,
    pub results: Vec<OpResult>,
}

impl Machine {
    /// Executes a transaction. If it fails, nothing has changed (T5).
    pub(super) fn txn(&mut self, txn: &Txn, effects: &mut Effects) -> Result<Response, Reason> {
        self.check_txn(txn)?;
        let succeeded = self.holds(txn)?;
        let limits = limits_of_keys(&self.limits, self.mutation).into_owned();
        let revision = self.keys.revision() + 1;
        let mut changes = KeyChanges::new();
        let mut bounds = QueryBounds::strict(&limits);
        let mut results = Vec::new();
        for op in txn.branch(succeeded) {
            match self.operation(&limits, op, revision, &mut changes, &mut bounds) {
                Ok(result) => results.push(result),
                Err(reason) => {
                    self.abort(changes);
                    return Err(reason);
                }
            }
        }
        if let Err(reason) = self.leases.check_changes(&limits, &changes) {
            self.abort(changes);
            return Err(reason);
        }
        let count = changes.len() as u64;
        if count > 0 {
            self.keys.raise_revision(1);
            self.keys_changed(revision, changes, effects);
        }
        effects.results = Some(results);
        Ok(Response::Txn(TxnOutcome { succeeded, changes: count }))
    }

    fn abort(&mut self, changes: KeyChanges) {
        seam!(self, TxnAppliedInPart => return);
        self.keys.undo(changes);
    }

    fn check_txn(&self, txn: &Txn) -> Result<(), Reason> {
        seam!(self, TxnFormUnchecked => return Ok(()));
        txn.check().map_err(|field| Reason::Invalid { field })
    }

    /// Executes a read-only transaction against this state, without an entry (T6).
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnAnswer, Reason> {
        txn.check().map_err(|field| Reason::Invalid { field })?;
        let succeeded = self.holds(txn)?;
        let mut bounds = QueryBounds::strict(&self.limits);
        let mut results = Vec::new();
        for op in txn.branch(succeeded) {
            let Op::Read(query) = op else { return Err(Reason::Invalid { field: Field::Operations }) };
            results.push(OpResult::Read(query.execute(self.current(&query.selection), &mut bounds)?));
        }
        Ok(TxnAnswer { succeeded, revision: self.keys.revision(), results })
    }

    /// Reads keys, at an older revision if one is given (T7, H4). The answer ends at `bytes`.
    pub fn query(&self, query: &Query, revision: Option<u64>, bytes: u64) -> Result<QueryResult, ReadError> {
        let mut bounds = QueryBounds::page(&self.limits, bytes);
        if query.content == crate::keys::Content::Count {
            // A count returns one number and is not part of an entry, so it may take longer.
            bounds.scanned = u64::MAX;
        }
        let result = match revision.filter(|revision| *revision != self.keys.revision()) {
            None => query.execute(self.current(&query.selection), &mut bounds),
            Some(revision) => self.at(revision)?.query(query, &mut bounds),
        };
        result.map_err(ReadError::TooLarge)
    }

    /// Returns the keys as they were at a revision (H4).
    pub fn at(&self, revision: u64) -> Result<HistoryView<'_>, ReadError> {
        let current = self.keys.revision();
        if revision > current {
            return Err(ReadError::Future { asked: revision, current });
        }
        let before = EventPosition::start_of(revision + 1);
        self.check_history(before.revision)?;
        Ok(HistoryView::before(&self.keys, &self.history, before, self.mutation)?)
    }

    /// Returns the results of an applied transaction from history (T8). `None` if the outcome is not of a transaction.
    pub fn txn_results(&self, txn: &Txn, outcome: &Outcome) -> Option<Result<Vec<OpResult>, Compacted>> {
        let Outcome::Applied { revision, response: Response::Txn(outcome), .. } = outcome else { return None };
        Some(self.results_at(txn, *revision, *outcome))
    }

    fn results_at(&self, txn: &Txn, revision: u64, outcome: TxnOutcome) -> Result<Vec<OpResult>, Compacted> {
        // The first operation saw the state before the changes of the transaction.
        let mut position = EventPosition::start_of(if outcome.changes > 0 { revision } else { revision + 1 });
        seam!(self, ResultsAfterChanges => position = EventPosition::start_of(revision + 1));
        let mut bounds = QueryBounds::none();
        let mut results = Vec::new();
        for op in txn.branch(outcome.succeeded) {
            let view = HistoryView::before(&self.keys, &self.history, position, self.mutation)?;
            let result = match op {
                Op::Put(put) => {
                    position = position.next();
                    OpResult::Put { previous: view.get(&put.key).filter(|_| put.previous) }
                }
                Op::Delete { selection, previous } => {
                    let records: Vec<Arc<KeyRecord>> = view.records(selection).collect();
                    let keys = records.len() as u64;
                    position.index += keys;
                    OpResult::Deleted { keys, previous: if *previous { records } else { Vec::new() } }
                }
                // The same read was within the limits when it was executed.
                Op::Read(query) => OpResult::Read(view.query(query, &mut bounds).unwrap_or_default()),
            };
            results.push(result);
        }
        Ok(results)
    }

    fn operation(
        &mut self,
        limits: &LogLimits,
        op: &Op,
        revision: u64,
        changes: &mut KeyChanges,
        bounds: &mut QueryBounds,
    ) -> Result<OpResult, Reason> {
        match op {
            Op::Read(query) => {
                let result = query.execute(self.current(&query.selection), bounds)?;
                Ok(OpResult::Read(result))
            }
            Op::Put(put) => {
                let previous = self.txn_put(limits, put, revision, changes)?.filter(|_| put.previous);
                charge(bounds, previous.as_slice())?;
                Ok(OpResult::Put { previous })
            }
            Op::Delete { selection, previous } => {
                let records = match selection {
                    Selection::Key(key) => {
                        crate::keys::check_key(limits, key)?;
                        self.keys.erase(key, changes).into_iter().collect()
                    }
                    Selection::Range(range) => self.keys.erase_range(limits, range, changes)?,
                };
                let keys = records.len() as u64;
                let previous = if *previous { records } else { Vec::new() };
                charge(bounds, &previous)?;
                Ok(OpResult::Deleted { keys, previous })
            }
        }
    }

    fn txn_put(
        &mut self,
        limits: &LogLimits,
        put: &TxnPut,
        revision: u64,
        changes: &mut KeyChanges,
    ) -> Result<Option<Arc<KeyRecord>>, Reason> {
        self.keys.check_put(limits, &put.key, &put.value)?;
        let next = self.keys.check_room(limits, &put.key, &put.value)?;
        if let Some(lease) = put.lease.filter(|lease| !self.leases.contains(*lease)) {
            return Err(Reason::NoLease(lease));
        }
        let lease = put.lease.map_or(0, |lease| lease.0);
        let mut extras = KeyExtras { flags: put.flags, lease, lock_index: put.lock_index };
        seam!(self, PutKeepsLease => if lease == 0 {
            extras.lease = self.keys.get(&put.key).map_or(0, |record| record.extras().lease);
        });
        let record = next.record(revision, &put.key, &put.value).with_extras(extras);
        Ok(self.keys.write(record, changes))
    }

    /// Iterates over the current records of a selection.
    fn current<'a>(&'a self, selection: &'a Selection) -> Box<dyn Iterator<Item = Arc<KeyRecord>> + 'a> {
        match selection {
            Selection::Key(key) => Box::new(self.keys.get(key).cloned().into_iter()),
            Selection::Range(range) => Box::new(self.keys.records(range).cloned()),
        }
    }

    /// Returns whether all compares hold (T3).
    fn holds(&self, txn: &Txn) -> Result<bool, Reason> {
        seam!(self, ComparesIgnored => return Ok(true));
        let mut all = true;
        for compare in &txn.compares {
            all &= match compare {
                Compare::Lock { name, fence } => self.guards(name, *fence),
                Compare::Keys { selection: Selection::Key(key), test } => {
                    test.holds(self.keys.get(key).map(|record| &**record))
                }
                Compare::Keys { selection: Selection::Range(range), test: Test::Exists(exists) } => {
                    self.keys.records(range).next().is_some() == *exists
                }
                Compare::Keys { selection: Selection::Range(range), test } => {
                    self.all_hold(self.keys.records(range), test)?
                }
            };
        }
        Ok(all)
    }

    fn all_hold<'a>(&self, records: impl Iterator<Item = &'a Arc<KeyRecord>>, test: &Test) -> Result<bool, Reason> {
        let limit = self.limits.range_keys;
        for (examined, record) in records.enumerate() {
            if examined as u64 >= limit {
                return Err(Reason::TooMany { field: Field::Range, limit });
            }
            if !test.holds(Some(record)) {
                return Ok(false);
            }
            seam!(self, PrefixCompareFirst => return Ok(true));
        }
        Ok(true)
    }

    /// Returns whether a lock is held with a fence now (LO6).
    fn guards(&self, name: &crate::command::LockName, fence: u64) -> bool {
        seam!(self, GuardIgnored => return true);
        self.locks.is_held(name, fence)
    }
}

impl Test {
    fn holds(&self, record: Option<&KeyRecord>) -> bool {
        let number = |of: fn(&KeyRecord) -> u64| record.map_or(0, of);
        match self {
            Test::Value(relation, wanted) => match record {
                Some(record) => relation.holds(record.value(), &**wanted),
                None => *relation == crate::command::Relation::NotEqual,
            },
            Test::Version(relation, wanted) => relation.holds(&number(|record| record.version), wanted),
            Test::CreateRevision(relation, wanted) => relation.holds(&number(|record| record.create_revision), wanted),
            Test::ModifyRevision(relation, wanted) => relation.holds(&number(|record| record.modify_revision), wanted),
            Test::Lease(relation, wanted) => relation.holds(&number(|record| record.extras().lease), wanted),
            Test::Exists(exists) => record.is_some() == *exists,
        }
    }
}

/// Subtracts returned records from the bytes of the answer (T5).
fn charge(bounds: &mut QueryBounds, records: &[Arc<KeyRecord>]) -> Result<(), Reason> {
    records.iter().try_for_each(|record| bounds.charge(record))
}
