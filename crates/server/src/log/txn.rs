//! Transactions and reads of keys: conversions between the wire types and the log's types, and their execution on a
//! state.

use super::convert::{key_range, reason, record};
use super::coordination::lock_name;
use crate::error::invalid;
use convoke_log::command::{Compare, LeaseId, Op, OpResult, Relation, Test, Txn, TxnPut};
use convoke_log::history::{Compacted, ReadError};
use convoke_log::keys::{Content, Order, Query, QueryResult, Selection, SortBy};
use convoke_log::{Level, Machine};
use convoke_proto::v1::{compare, key_query, txn_delete, txn_operation, txn_result};
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use std::sync::Arc;

/// Converts a transaction. An error names the path of the invalid field.
pub(crate) fn txn(txn: v1::Txn) -> Result<Txn, Error> {
    let branch = |name: &'static str, operations: Vec<v1::TxnOperation>| -> Result<Vec<Op>, Error> {
        let all = operations.into_iter().enumerate();
        all.map(|(at, operation)| op(&format!("{name}[{at}]"), operation)).collect()
    };
    let compares = txn.compares.into_iter().enumerate();
    let txn = Txn {
        compares: compares
            .map(|(at, found)| compare(&format!("compares[{at}]"), found))
            .collect::<Result<_, Error>>()?,
        then: branch("then", txn.then)?,
        otherwise: branch("otherwise", txn.otherwise)?,
    };
    if let Some(key) = txn.key_changed_twice() {
        let key = key.escape_ascii();
        return Err(invalid("key", format!("a branch changes each key at most once; one changes \"{key}\" twice")));
    }
    Ok(txn)
}

fn missing(path: &str, field: &str, message: &str) -> Error {
    invalid(&format!("{path}.{field}"), format!("{path}: {message}"))
}

fn compare(path: &str, found: v1::Compare) -> Result<Compare, Error> {
    let relation = relation(path, &found)?;
    let selection = match found.subject {
        Some(compare::Subject::Key(key)) => Selection::Key(key),
        Some(compare::Subject::Range(range)) => Selection::Range(key_range(range)),
        Some(compare::Subject::Lock(lock)) => {
            if found.operand.is_some() || found.relation != 0 {
                return Err(missing(path, "operand", "a lock allows neither a relation nor an operand"));
            }
            return Ok(Compare::Lock { name: lock_name(lock.name, lock.election), fence: lock.fence });
        }
        None => return Err(missing(path, "subject", "one of key, range and lock is required")),
    };
    let test = match found.operand {
        Some(compare::Operand::Value(value)) => Test::Value(relation, value),
        Some(compare::Operand::Version(number)) => Test::Version(relation, number),
        Some(compare::Operand::CreateRevision(number)) => Test::CreateRevision(relation, number),
        Some(compare::Operand::ModRevision(number)) => Test::ModifyRevision(relation, number),
        Some(compare::Operand::Lease(lease)) => Test::Lease(relation, lease),
        Some(compare::Operand::Exists(exists)) => match relation {
            Relation::Equal => Test::Exists(exists),
            Relation::NotEqual => Test::Exists(!exists),
            Relation::Less | Relation::Greater => {
                return Err(missing(path, "relation", "existence is compared with EQUAL or NOT_EQUAL"));
            }
        },
        None => return Err(missing(path, "operand", "an operand is required")),
    };
    Ok(Compare::Keys { selection, test })
}

fn relation(path: &str, found: &v1::Compare) -> Result<Relation, Error> {
    match compare::Relation::try_from(found.relation) {
        Ok(compare::Relation::Unspecified | compare::Relation::Equal) => Ok(Relation::Equal),
        Ok(compare::Relation::NotEqual) => Ok(Relation::NotEqual),
        Ok(compare::Relation::Less) => Ok(Relation::Less),
        Ok(compare::Relation::Greater) => Ok(Relation::Greater),
        // A newer client. Another relation in its place would be a wrong answer.
        Err(_) => Err(missing(path, "relation", "this version does not support the relation")),
    }
}

fn op(path: &str, operation: v1::TxnOperation) -> Result<Op, Error> {
    match operation.operation {
        Some(txn_operation::Operation::Put(put)) => Ok(Op::Put(TxnPut {
            key: put.key,
            value: put.value,
            lease: (put.lease > 0).then_some(LeaseId(put.lease)),
            flags: put.flags,
            lock_index: put.lock_index,
            previous: put.previous,
        })),
        Some(txn_operation::Operation::Delete(delete)) => {
            let selection = match delete.which {
                Some(txn_delete::Which::Key(key)) => Selection::Key(key),
                Some(txn_delete::Which::Range(range)) => Selection::Range(key_range(range)),
                None => return Err(missing(path, "delete.which", "a key or a range to delete is required")),
            };
            Ok(Op::Delete { selection, previous: delete.previous })
        }
        Some(txn_operation::Operation::Read(read)) => Ok(Op::Read(query(&format!("{path}.read"), read)?)),
        None => Err(missing(path, "operation", "one of put, delete and read is required")),
    }
}

/// Converts a read of keys. `path` is the place of the read in the request.
pub(crate) fn query(path: &str, query: v1::KeyQuery) -> Result<Query, Error> {
    let selection = match query.which {
        Some(key_query::Which::Key(key)) => Selection::Key(key),
        Some(key_query::Which::Range(range)) => Selection::Range(key_range(range)),
        None => return Err(missing(path, "which", "a key or a range to read is required")),
    };
    let content = match key_query::Content::try_from(query.content) {
        Ok(key_query::Content::Unspecified | key_query::Content::Records) => Content::Records,
        Ok(key_query::Content::Keys) => Content::Keys,
        Ok(key_query::Content::Count) => Content::Count,
        Err(_) => return Err(missing(path, "content", "this version does not support the content")),
    };
    let by = match key_query::Sort::try_from(query.sort) {
        Ok(key_query::Sort::Unspecified | key_query::Sort::Key) => SortBy::Key,
        Ok(key_query::Sort::Version) => SortBy::Version,
        Ok(key_query::Sort::CreateRevision) => SortBy::CreateRevision,
        Ok(key_query::Sort::ModRevision) => SortBy::ModifyRevision,
        Ok(key_query::Sort::Value) => SortBy::Value,
        Err(_) => return Err(missing(path, "sort", "this version does not support the order")),
    };
    let order = Order { by, descending: query.descending };
    Ok(Query { selection, limit: (query.limit > 0).then_some(query.limit), content, order })
}

/// Returns the results of a transaction in wire types.
pub(crate) fn results(results: Result<&[OpResult], Compacted>) -> v1::TxnResults {
    match results {
        Ok(results) => v1::TxnResults { results: results.iter().map(result).collect(), compacted: None },
        Err(Compacted { oldest }) => v1::TxnResults { results: Vec::new(), compacted: Some(oldest) },
    }
}

fn result(result: &OpResult) -> v1::TxnResult {
    let records = |found: &[Arc<convoke_log::keys::KeyRecord>]| found.iter().map(|found| record(found)).collect();
    let result = match result {
        OpResult::Put { previous } => {
            txn_result::Result::Put(v1::PutResult { previous: previous.as_ref().map(|found| record(found)) })
        }
        OpResult::Deleted { keys, previous } => {
            txn_result::Result::Delete(v1::DeleteResult { keys: *keys, previous: records(previous) })
        }
        OpResult::Read(QueryResult { records: found, count, more }) => {
            txn_result::Result::Read(v1::QueryResult { records: records(found), count: *count, more: *more })
        }
    };
    v1::TxnResult { result: Some(result) }
}

/// Executes a read-only transaction on a state (T6). Returns whether its compares held, the revision and the results.
pub(crate) fn read_txn(machine: &Machine, wanted: v1::Txn) -> Result<(bool, u64, v1::TxnResults), Error> {
    let wanted = txn(wanted)?;
    if !wanted.is_read_only() {
        return Err(invalid("txn", "a transaction that changes keys is not a read; submit it as a request"));
    }
    check_level(machine, Level::COORDINATION)?;
    let answer = machine.read_txn(&wanted).map_err(|why| reason(&why))?;
    Ok((answer.succeeded, answer.revision, results(Ok(&answer.results))))
}

/// Reads keys from a state, at the current revision if `revision` is 0. The answer ends after about 1 MiB.
pub(crate) fn read_keys(machine: &Machine, wanted: v1::KeyQuery, revision: u64) -> Result<QueryResult, Error> {
    let wanted = query("query", wanted)?;
    read_query(machine, &wanted, revision)
}

fn read_query(machine: &Machine, wanted: &Query, revision: u64) -> Result<QueryResult, Error> {
    let current = machine.keys().revision();
    if revision > 0 && revision < current && machine.level() < Level::COORDINATION {
        // Below level 2 there is no history.
        return Err(not_read(&ReadError::Compacted(Compacted { oldest: current + 1 }), current));
    }
    let found = machine.query(wanted, (revision > 0).then_some(revision), PART_BYTES as u64);
    found.map_err(|why| not_read(&why, current))
}

/// Reads one key at a revision.
pub(crate) fn read_key_at(machine: &Machine, key: bytes::Bytes, revision: u64) -> Result<QueryResult, Error> {
    read_query(machine, &Query::key(key), revision)
}

/// Reads a range of keys at a revision.
pub(crate) fn read_range_at(machine: &Machine, wanted: v1::ReadRange, revision: u64) -> Result<QueryResult, Error> {
    let range = wanted.range.ok_or_else(|| invalid("range", "a range of keys is required"))?;
    let selection = Selection::Range(key_range(range));
    let content = if wanted.keys_only { Content::Keys } else { Content::Records };
    let limit = (wanted.limit > 0).then_some(wanted.limit);
    read_query(machine, &Query { limit, content, ..Query::of(selection) }, revision)
}

fn not_read(why: &ReadError, current: u64) -> Error {
    match why {
        ReadError::TooLarge(why) => reason(why),
        ReadError::Compacted(compacted) => compacted_error(*compacted, current),
        ReadError::Future { .. } => Error::new(why.code(), why.to_string()).field("revision"),
    }
}

/// Returns the error of a read or watch of a revision that history no longer contains.
pub(crate) fn compacted_error(compacted: Compacted, current: u64) -> Error {
    let oldest = compacted.oldest;
    let message = format!(
        "the history starts at revision {oldest} (current revision is {current}); read the current state and continue \
         from its revision"
    );
    Error { known: Some(oldest), ..Error::new(ErrorCode::Compacted, message).field("revision") }
}

/// Rejects a request that the feature level of the log does not allow (V1).
pub(crate) fn check_level(machine: &Machine, needed: Level) -> Result<(), Error> {
    let current = machine.level();
    if current >= needed {
        return Ok(());
    }
    let message = format!(
        "the request needs feature level {needed}, and the log is at level {current}; `convoke log status` names the \
         replicas that hold it back"
    );
    Err(Error::new(ErrorCode::FailedPrecondition, message).field("level").limit(needed.0))
}
