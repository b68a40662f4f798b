//! Encoding of the parts of the state, for snapshots and for the state hash (LH1, LH2).

use super::command::{decode_replicas, encode_replicas};
use super::coordination::{
    decode_level, decode_limits as decode_coordination_limits, encode_limits as encode_coordination_limits,
};
use super::{CodecError, Reader, Writer, epoch, put_epoch};
use crate::command::{LeaseId, Opener};
use crate::history::History;
use crate::id::{LogSessionId, Position, ReplicaId};
use crate::keys::{Changed, KeyExtras, KeyRecord, Keys};
use crate::leases::Leases;
use crate::level::Level;
use crate::limits::{COUNT_MAX, CoordinationLimits, KEY_BYTES_MAX, LogLimits, TEXT_BYTES_MAX, VALUE_BYTES_MAX, micros};
use crate::locks::Locks;
use crate::machine::{
    Configuration, EndReason, Ended, Field, LockAnswer, Machine, Membership, Outcome, Reason, Response, Session,
    Sessions, TxnOutcome,
};
use crate::mutant::Mutation;
use crate::time::LogTime;
use smol_str::SmolStr;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Encodes everything except sessions and keys.
pub(crate) fn encode_head(w: &mut Writer, machine: &Machine) {
    encode_limits(w, &machine.limits);
    w.varint(machine.applied.index);
    put_epoch(w, machine.applied.epoch);
    w.varint(machine.log_time.as_micros());
    w.varint(machine.membership.current.number);
    encode_replicas(w, &machine.membership.current.voters);
    encode_replicas(w, &machine.membership.current.learners);
    w.varint(machine.membership.highest.0);
    w.varint(machine.sessions.endings);
    w.varint(machine.keys.revision());
    if machine.level > Level::FIRST {
        w.varint(machine.level.0);
        encode_coordination_limits(w, &machine.limits.coordination);
        w.varint(machine.history.compacted());
    }
}

/// Decodes a machine without the parts that follow in later frames. `has_level` is false for a snapshot of level 1,
/// whose bytes are those of versions without levels (V4).
pub(crate) fn decode_head(r: &mut Reader<'_>, has_level: bool) -> Result<Machine, CodecError> {
    let mut limits = decode_limits(r)?;
    let applied = Position { index: r.counter("applied")?, epoch: epoch(r)? };
    let log_time = LogTime::from_micros(r.varint("log_time")?);
    let current = Configuration {
        number: r.counter("configuration")?,
        voters: decode_replicas(r, "voters")?,
        learners: decode_replicas(r, "learners")?,
    };
    let membership = Membership { current: Arc::new(current), highest: ReplicaId(r.varint("highest")?) };
    let sessions = Sessions::restored(r.counter("endings")?);
    let keys = Keys::restored(r.counter("revision")?);
    let (mut level, mut history) = (Level::FIRST, History::default());
    if has_level {
        level = decode_level(r)?;
        limits.coordination = decode_coordination_limits(r)?;
        history = History::starting_above(r.bounded("compacted", keys.revision())?);
    }
    let (leases, locks) = (Leases::default(), Locks::default());
    let mutation = Mutation::none();
    Ok(Machine { limits, mutation, applied, log_time, sessions, membership, keys, level, history, leases, locks })
}

fn encode_limits(w: &mut Writer, limits: &LogLimits) {
    for value in [
        limits.sessions,
        limits.reserved_sessions,
        limits.sessions_per_client,
        limits.ended_sessions,
        limits.outcomes,
        limits.window,
        limits.outcome_bytes,
        limits.response_bytes,
        micros(limits.ttl_min),
        micros(limits.ttl_max),
        limits.client_name_bytes,
        limits.key_bytes,
        limits.value_bytes,
        limits.range_keys,
        limits.store_bytes,
        limits.replicas,
        limits.address_bytes,
    ] {
        w.varint(value);
    }
}

fn decode_limits(r: &mut Reader<'_>) -> Result<LogLimits, CodecError> {
    let limits = LogLimits {
        sessions: r.varint("limits")?,
        reserved_sessions: r.varint("limits")?,
        sessions_per_client: r.varint("limits")?,
        ended_sessions: r.varint("limits")?,
        outcomes: r.varint("limits")?,
        window: r.varint("limits")?,
        outcome_bytes: r.varint("limits")?,
        response_bytes: r.varint("limits")?,
        ttl_min: Duration::from_micros(r.varint("limits")?),
        ttl_max: Duration::from_micros(r.varint("limits")?),
        client_name_bytes: r.varint("limits")?,
        key_bytes: r.varint("limits")?,
        value_bytes: r.varint("limits")?,
        range_keys: r.varint("limits")?,
        store_bytes: r.varint("limits")?,
        replicas: r.varint("limits")?,
        address_bytes: r.varint("limits")?,
        coordination: CoordinationLimits::INACTIVE,
    };
    limits.check().map_err(|error| CodecError::Invalid(error.field))?;
    Ok(limits)
}

pub(crate) fn encode_session(w: &mut Writer, session: &Session) {
    w.varint(session.id.0);
    w.option(session.client.as_ref(), |w, name| w.sized(name.as_bytes()));
    w.fixed128(session.owner);
    w.sized(session.opener.name.as_bytes());
    w.flag(session.opener.reserved);
    w.varint(micros(session.ttl));
    w.varint(session.floor);
    w.varint(session.wanted);
    w.varint(session.horizon);
    w.varint(session.activity);
    w.varint(session.active_at.as_micros());
    w.count(session.outcomes.len());
    for (number, outcome) in &session.outcomes {
        w.varint(*number);
        encode_outcome(w, outcome);
    }
}

pub(crate) fn decode_session(r: &mut Reader<'_>) -> Result<Session, CodecError> {
    let mut session = Session {
        id: LogSessionId(r.counter("session")?),
        client: r.option("client", |r| r.text("client", TEXT_BYTES_MAX).map(SmolStr::new))?,
        owner: r.fixed128("owner")?,
        opener: Opener { name: SmolStr::new(r.text("opener", TEXT_BYTES_MAX)?), reserved: r.flag("reserved")? },
        ttl: Duration::from_micros(r.counter("ttl")?),
        floor: r.bounded("floor", COUNTER_AFTER_LAST)?,
        wanted: r.counter("wanted")?,
        horizon: r.counter("horizon")?,
        activity: r.counter("activity")?,
        active_at: LogTime::from_micros(r.varint("active_at")?),
        outcomes: VecDeque::new(),
    };
    let mut last = session.horizon;
    for _ in 0..r.count("outcomes", 3, COUNT_MAX)? {
        let number = r.counter("number")?;
        // Between horizon and floor, in rising order (F1, F4).
        if number <= last || number >= session.floor {
            return Err(CodecError::Invalid("outcomes"));
        }
        last = number;
        session.outcomes.push_back((number, Arc::new(decode_outcome(r)?)));
    }
    Ok(session)
}

/// Upper bound of a floor, which is one above a request number.
const COUNTER_AFTER_LAST: u64 = convoke_base::codec::COUNTER_MAX + 1;

pub(crate) fn encode_ended(w: &mut Writer, ended: &Ended) {
    w.varint(ended.order);
    w.byte(match ended.reason {
        EndReason::Requested => 0,
        EndReason::Expired => 1,
        EndReason::Replaced => 2,
    });
    encode_session(w, &ended.session);
}

pub(crate) fn decode_ended(r: &mut Reader<'_>) -> Result<Ended, CodecError> {
    let order = r.counter("order")?;
    let reason = match r.byte("reason")? {
        0 => EndReason::Requested,
        1 => EndReason::Expired,
        2 => EndReason::Replaced,
        _ => return Err(CodecError::Invalid("reason")),
    };
    Ok(Ended { session: Arc::new(decode_session(r)?), order, reason })
}

pub(crate) fn encode_record(w: &mut Writer, record: &KeyRecord) {
    w.sized(record.key());
    w.sized(record.value());
    w.varint(record.create_revision);
    w.varint(record.modify_revision);
    let extras = record.extras();
    if extras != KeyExtras::default() {
        // A version is never 0, so a 0 here is a record of level 2.
        for number in [0, extras.flags, extras.lease, extras.lock_index] {
            w.varint(number);
        }
    }
    w.varint(record.version);
}

pub(crate) fn decode_record(r: &mut Reader<'_>) -> Result<KeyRecord, CodecError> {
    let key = r.sized("key", KEY_BYTES_MAX)?;
    let value = r.sized("value", VALUE_BYTES_MAX)?;
    let mut revisions = [r.counter("create_revision")?, r.counter("modify_revision")?, r.counter("version")?];
    let mut extras = KeyExtras::default();
    if revisions[2] == 0 {
        extras =
            KeyExtras { flags: r.varint("flags")?, lease: r.counter("lease")?, lock_index: r.varint("lock_index")? };
        revisions[2] = r.counter("version")?;
        if extras == KeyExtras::default() {
            return Err(CodecError::Invalid("record"));
        }
    }
    if key.is_empty() || revisions[0] == 0 || revisions[0] > revisions[1] || revisions[2] == 0 {
        return Err(CodecError::Invalid("record"));
    }
    Ok(KeyRecord::new(key, value, revisions).with_extras(extras))
}

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

fn encode_outcome(w: &mut Writer, outcome: &Outcome) {
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

fn decode_outcome(r: &mut Reader<'_>) -> Result<Outcome, CodecError> {
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
