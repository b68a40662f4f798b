//! Encoding of transactions in requests.

use super::coordination::{decode_lock_name, encode_lock_name};
use super::{CodecError, Reader, Writer};
use crate::command::{Compare, LeaseId, Op, Relation, TXN_OPERATIONS_MAX, Test, Txn, TxnPut};
use crate::keys::{Content, KeyRange, Order, Query, Selection, SortBy};
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use bytes::Bytes;

const KEY: u8 = 0;
const RANGE: u8 = 1;
/// A compare of a lock, in the place of a selection.
const LOCK: u8 = 2;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const READ: u8 = 2;

pub(super) fn encode_txn(w: &mut Writer, txn: &Txn) {
    w.count(txn.compares.len());
    for compare in &txn.compares {
        match compare {
            Compare::Lock { name, fence } => {
                w.byte(LOCK);
                encode_lock_name(w, name);
                w.varint(*fence);
            }
            Compare::Keys { selection, test } => {
                encode_selection(w, selection);
                encode_test(w, test);
            }
        }
    }
    for branch in [&txn.then, &txn.otherwise] {
        w.count(branch.len());
        for op in branch {
            encode_op(w, op);
        }
    }
}

pub(super) fn decode_txn(r: &mut Reader<'_>, bytes: &Bytes) -> Result<Txn, CodecError> {
    let limit = TXN_OPERATIONS_MAX as u64;
    let compares = (0..r.count("compares", 3, limit)?).map(|_| decode_compare(r, bytes)).collect::<Result<_, _>>()?;
    let mut branch =
        |what| -> Result<Vec<Op>, CodecError> { (0..r.count(what, 3, limit)?).map(|_| decode_op(r, bytes)).collect() };
    let txn = Txn { compares, then: branch("then")?, otherwise: branch("else")? };
    txn.check().map_err(|field| CodecError::Invalid(field.as_str()))?;
    Ok(txn)
}

fn encode_selection(w: &mut Writer, selection: &Selection) {
    match selection {
        Selection::Key(key) => {
            w.byte(KEY);
            w.sized(key);
        }
        Selection::Range(range) => {
            w.byte(RANGE);
            w.sized(&range.from);
            w.option(range.until.as_ref(), |w, until| w.sized(until));
        }
    }
}

fn decode_selection(r: &mut Reader<'_>, bytes: &Bytes, tag: u8) -> Result<Selection, CodecError> {
    let key = |r: &mut Reader<'_>, what| r.sized(what, KEY_BYTES_MAX).map(|key| bytes.slice_ref(key));
    Ok(match tag {
        KEY => Selection::Key(key(r, "key")?),
        RANGE => Selection::Range(KeyRange { from: key(r, "from")?, until: r.option("until", |r| key(r, "until"))? }),
        _ => return Err(CodecError::Invalid("selection")),
    })
}

fn decode_compare(r: &mut Reader<'_>, bytes: &Bytes) -> Result<Compare, CodecError> {
    let tag = r.byte("compare")?;
    if tag == LOCK {
        return Ok(Compare::Lock {
            name: decode_lock_name(r, &|part| bytes.slice_ref(part))?,
            fence: r.counter("fence")?,
        });
    }
    Ok(Compare::Keys { selection: decode_selection(r, bytes, tag)?, test: decode_test(r, bytes)? })
}

fn encode_test(w: &mut Writer, test: &Test) {
    let (tag, relation, number) = match test {
        Test::Exists(exists) => {
            w.byte(5);
            return w.flag(*exists);
        }
        Test::Value(relation, value) => {
            w.byte(0);
            w.byte(relation_code(*relation));
            return w.sized(value);
        }
        Test::Version(relation, number) => (1, relation, number),
        Test::CreateRevision(relation, number) => (2, relation, number),
        Test::ModifyRevision(relation, number) => (3, relation, number),
        Test::Lease(relation, number) => (4, relation, number),
    };
    w.byte(tag);
    w.byte(relation_code(*relation));
    w.varint(*number);
}

fn decode_test(r: &mut Reader<'_>, bytes: &Bytes) -> Result<Test, CodecError> {
    let tag = r.byte("target")?;
    if tag == 5 {
        return Ok(Test::Exists(r.flag("exists")?));
    }
    let relation = match r.byte("op")? {
        0 => Relation::Equal,
        1 => Relation::NotEqual,
        2 => Relation::Less,
        3 => Relation::Greater,
        _ => return Err(CodecError::Invalid("op")),
    };
    Ok(match tag {
        0 => Test::Value(relation, bytes.slice_ref(r.sized("value", VALUE_BYTES_MAX)?)),
        1 => Test::Version(relation, r.counter("version")?),
        2 => Test::CreateRevision(relation, r.counter("create_revision")?),
        3 => Test::ModifyRevision(relation, r.counter("mod_revision")?),
        4 => Test::Lease(relation, r.counter("lease")?),
        _ => return Err(CodecError::Invalid("target")),
    })
}

fn relation_code(relation: Relation) -> u8 {
    match relation {
        Relation::Equal => 0,
        Relation::NotEqual => 1,
        Relation::Less => 2,
        Relation::Greater => 3,
    }
}

fn encode_op(w: &mut Writer, op: &Op) {
    match op {
        Op::Put(put) => {
            w.byte(PUT);
            w.sized(&put.key);
            w.sized(&put.value);
            w.varint(put.lease.map_or(0, |lease| lease.0));
            w.varint(put.flags);
            w.varint(put.lock_index);
            w.flag(put.previous);
        }
        Op::Delete { selection, previous } => {
            w.byte(DELETE);
            encode_selection(w, selection);
            w.flag(*previous);
        }
        Op::Read(query) => {
            w.byte(READ);
            encode_selection(w, &query.selection);
            w.option(query.limit, Writer::varint);
            w.byte(match query.content {
                Content::Records => 0,
                Content::Keys => 1,
                Content::Count => 2,
            });
            w.byte(match query.order.by {
                SortBy::Key => 0,
                SortBy::Version => 1,
                SortBy::CreateRevision => 2,
                SortBy::ModifyRevision => 3,
                SortBy::Value => 4,
            });
            w.flag(query.order.descending);
        }
    }
}

fn decode_op(r: &mut Reader<'_>, bytes: &Bytes) -> Result<Op, CodecError> {
    let selection = |r: &mut Reader<'_>| {
        let tag = r.byte("selection")?;
        decode_selection(r, bytes, tag)
    };
    Ok(match r.byte("operation")? {
        PUT => Op::Put(TxnPut {
            key: bytes.slice_ref(r.sized("key", KEY_BYTES_MAX)?),
            value: bytes.slice_ref(r.sized("value", VALUE_BYTES_MAX)?),
            // No lease has id 0: the first entry has index 1.
            lease: Some(LeaseId(r.counter("lease")?)).filter(|lease| lease.0 > 0),
            flags: r.varint("flags")?,
            lock_index: r.varint("lock_index")?,
            previous: r.flag("previous")?,
        }),
        DELETE => Op::Delete { selection: selection(r)?, previous: r.flag("previous")? },
        READ => Op::Read(Query {
            selection: selection(r)?,
            limit: r.option("limit", |r| r.varint("limit"))?,
            content: match r.byte("content")? {
                0 => Content::Records,
                1 => Content::Keys,
                2 => Content::Count,
                _ => return Err(CodecError::Invalid("content")),
            },
            order: Order {
                by: match r.byte("sort")? {
                    0 => SortBy::Key,
                    1 => SortBy::Version,
                    2 => SortBy::CreateRevision,
                    3 => SortBy::ModifyRevision,
                    4 => SortBy::Value,
                    _ => return Err(CodecError::Invalid("sort")),
                },
                descending: r.flag("descending")?,
            },
        }),
        _ => return Err(CodecError::Invalid("operation")),
    })
}
