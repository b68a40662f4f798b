//! Encoding of stored outcomes.

use super::state::{decode_record, encode_record};
use super::{CodecError, Reader, Writer};
use crate::command::LeaseId;
use crate::id::ReplicaId;
use crate::keys::Changed;
use crate::limits::COUNT_MAX;
use crate::machine::{Field, LockAnswer, Outcome, Reason, Response, TxnOutcome};
use std::sync::Arc;

const FENCED: u8 = 0;
const ENDED: u8 = 1;
const CHANGED: u8 = 2;
const CONFIGURED: u8 = 3;
const TXN: u8 = 4;
const GRANTED: u8 = 5;
const REVOKED: u8 = 6;
const HELD: u8 = 7;
const WAITING: u8 = 8;
const RELEASED: u8 = 9;
const PROCLAIMED: u8 = 10;
/// Tags of reasons follow the tags of responses.
const NOT_APPLIED: u8 = 16;

pub(super) fn encode_outcome(w: &mut Writer, outcome: &Outcome) {
    match outcome {
        Outcome::Applied { index, revision, response } => {
            let tag = match response {
                Response::Fenced => FENCED,
                Response::Ended => ENDED,
                Response::Changed(_) => CHANGED,
                Response::Configured(_) => CONFIGURED,
                Response::Txn(_) => TXN,
                Response::Granted(_) => GRANTED,
                Response::Revoked { .. } => REVOKED,
                Response::Lock(LockAnswer::Held { .. }) => HELD,
                Response::Lock(LockAnswer::Waiting) => WAITING,
                Response::Released { .. } => RELEASED,
                Response::Proclaimed => PROCLAIMED,
            };
            w.byte(tag);
            w.varint(*index);
            w.varint(*revision);
            match response {
                Response::Fenced | Response::Ended | Response::Proclaimed | Response::Lock(LockAnswer::Waiting) => {}
                Response::Configured(number)
                | Response::Granted(LeaseId(number))
                | Response::Revoked { keys: number }
                | Response::Lock(LockAnswer::Held { fence: number }) => w.varint(*number),
                Response::Released { fence } => w.option(*fence, Writer::varint),
                Response::Txn(txn) => {
                    w.flag(txn.succeeded);
                    w.varint(txn.changes);
                }
                Response::Changed(changed) => {
                    w.varint(changed.keys);
                    w.count(changed.previous.len());
                    for record in &changed.previous {
                        encode_record(w, record);
                    }
                    w.varint(changed.omitted);
                }
            }
        }
        Outcome::NotApplied { index, reason } => {
            let (tag, field, numbers) = reason_parts(*reason);
            w.byte(NOT_APPLIED + tag);
            w.varint(*index);
            if let Some(field) = field {
                w.byte(field.code());
            }
            for number in numbers.into_iter().flatten() {
                w.varint(number);
            }
        }
    }
}

fn reason_parts(reason: Reason) -> (u8, Option<Field>, [Option<u64>; 3]) {
    let (tag, field, numbers): (u8, Option<Field>, &[u64]) = match reason {
        Reason::Expired => (0, None, &[]),
        Reason::Precondition { revision } => (1, None, &[revision]),
        Reason::TooLarge { field, found, limit } => (2, Some(field), &[found, limit]),
        Reason::TooMany { field, limit } => (3, Some(field), &[limit]),
        Reason::Invalid { field } => (4, Some(field), &[]),
        Reason::Replaced { current } => (5, None, &[current]),
        Reason::ReplicaIdUsed(id) => (6, None, &[id.0]),
        Reason::NoSession => (7, None, &[]),
        Reason::OutOfRange { field, found, min, max } => (8, Some(field), &[found, min, max]),
        Reason::Full { field, limit } => (9, Some(field), &[limit]),
        Reason::NoLease(lease) => (10, None, &[lease.0]),
        Reason::LockHeld { fence } => (11, None, &[fence]),
        Reason::NotHeld => (12, None, &[]),
        Reason::Permits { permits } => (13, None, &[permits]),
    };
    (tag, field, [0, 1, 2].map(|at| numbers.get(at).copied()))
}

pub(super) fn decode_outcome(r: &mut Reader<'_>) -> Result<Outcome, CodecError> {
    let tag = r.byte("outcome")?;
    let index = r.counter("index")?;
    if let Some(tag) = tag.checked_sub(NOT_APPLIED) {
        return Ok(Outcome::NotApplied { index, reason: decode_reason(r, tag)? });
    }
    let revision = r.counter("revision")?;
    let response = match tag {
        FENCED => Response::Fenced,
        ENDED => Response::Ended,
        CONFIGURED => Response::Configured(r.counter("configuration")?),
        TXN => Response::Txn(TxnOutcome { succeeded: r.flag("succeeded")?, changes: r.counter("changes")? }),
        GRANTED => Response::Granted(LeaseId(r.counter("lease")?)),
        REVOKED => Response::Revoked { keys: r.counter("keys")? },
        HELD => Response::Lock(LockAnswer::Held { fence: r.counter("fence")? }),
        WAITING => Response::Lock(LockAnswer::Waiting),
        RELEASED => Response::Released { fence: r.option("fence", |r| r.counter("fence"))? },
        PROCLAIMED => Response::Proclaimed,
        CHANGED => {
            let keys = r.counter("keys")?;
            let count = r.count("previous", 6, COUNT_MAX)?;
            let previous = (0..count).map(|_| decode_record(r).map(Arc::new)).collect::<Result<_, _>>()?;
            Response::Changed(Changed { keys, previous, omitted: r.counter("omitted")? })
        }
        _ => return Err(CodecError::Invalid("outcome")),
    };
    Ok(Outcome::Applied { index, revision, response })
}

fn decode_reason(r: &mut Reader<'_>, tag: u8) -> Result<Reason, CodecError> {
    let field = |r: &mut Reader<'_>| Field::from_code(r.byte("field")?).ok_or(CodecError::Invalid("field"));
    Ok(match tag {
        0 => Reason::Expired,
        1 => Reason::Precondition { revision: r.counter("revision")? },
        2 => Reason::TooLarge { field: field(r)?, found: r.varint("found")?, limit: r.varint("limit")? },
        3 => Reason::TooMany { field: field(r)?, limit: r.varint("limit")? },
        4 => Reason::Invalid { field: field(r)? },
        5 => Reason::Replaced { current: r.counter("configuration")? },
        6 => Reason::ReplicaIdUsed(ReplicaId(r.varint("replica")?)),
        7 => Reason::NoSession,
        8 => Reason::OutOfRange {
            field: field(r)?,
            found: r.varint("found")?,
            min: r.varint("min")?,
            max: r.varint("max")?,
        },
        9 => Reason::Full { field: field(r)?, limit: r.varint("limit")? },
        10 => Reason::NoLease(LeaseId(r.counter("lease")?)),
        11 => Reason::LockHeld { fence: r.counter("fence")? },
        12 => Reason::NotHeld,
        13 => Reason::Permits { permits: r.counter("permits")? },
        _ => return Err(CodecError::Invalid("reason")),
    })
}
