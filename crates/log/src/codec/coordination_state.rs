//! Encoding of leases, locks and history, for snapshots and for the state hash (LH1, LH2).

use super::coordination::{
    decode_lock_event, decode_lock_name, decode_term, encode_lock_event, encode_lock_name, encode_term, value,
};
use super::state::{decode_record, encode_record};
use super::{CodecError, Reader, Writer};
use crate::command::LeaseId;
use crate::history::{Event, EventChange, EventPosition, LockEvent};
use crate::keys::{KeyRecord, Keys};
use crate::leases::Lease;
use crate::limits::{COUNT_MAX, KEY_BYTES_MAX, TEXT_BYTES_MAX, micros};
use crate::locks::{Lock, LockPlace, PlaceKey, Standing};
use crate::time::LogTime;
use bytes::Bytes;
use smol_str::SmolStr;
use std::time::Duration;

fn keep(part: &[u8]) -> Bytes {
    Bytes::copy_from_slice(part)
}

pub(crate) fn encode_lease(w: &mut Writer, lease: &Lease) {
    w.varint(lease.id.0);
    encode_term(w, &lease.term, lease.end);
    w.varint(lease.granted_at.as_micros());
    w.sized(lease.owner.as_bytes());
}

pub(crate) fn decode_lease(r: &mut Reader<'_>) -> Result<Lease, CodecError> {
    let id = LeaseId(r.counter("lease")?);
    let (term, end) = decode_term(r)?;
    let granted_at = LogTime::from_micros(r.varint("granted_at")?);
    let owner = SmolStr::new(r.text("owner", TEXT_BYTES_MAX)?);
    Ok(Lease { id, term, end, granted_at, owner, keys: 0 })
}

pub(crate) fn encode_lock(w: &mut Writer, lock: &Lock) {
    encode_lock_name(w, &lock.name);
    w.varint(lock.permits);
    w.option(lock.delayed_until, |w, until| w.varint(until.as_micros()));
}

pub(crate) fn decode_lock(r: &mut Reader<'_>) -> Result<Lock, CodecError> {
    Ok(Lock {
        name: decode_lock_name(r, &keep)?,
        permits: r.bounded("permits", COUNT_MAX)?,
        delayed_until: r.option("delayed_until", |r| r.varint("delayed_until").map(LogTime::from_micros))?,
        holders: 0,
        waiters: 0,
    })
}

const HOLDER: u8 = 0;
const WAITER: u8 = 1;
/// A waiter with a second lease (LO10).
const WAITER_WITH: u8 = 2;

pub(crate) fn encode_place(w: &mut Writer, place: &LockPlace) {
    encode_lock_name(w, place.name());
    let (tag, number) = match (place.standing(), place.waits_with) {
        (Standing::Holder { fence }, _) => (HOLDER, fence),
        (Standing::Waiter { order }, None) => (WAITER, order),
        (Standing::Waiter { order }, Some(_)) => (WAITER_WITH, order),
    };
    w.byte(tag);
    w.varint(number);
    if tag == WAITER_WITH {
        w.varint(place.waits_with.map_or(0, |lease| lease.0));
    }
    w.varint(place.lease.0);
    w.sized(&place.value);
    w.varint(place.since.as_micros());
    w.varint(micros(place.delay));
}

pub(crate) fn decode_place(r: &mut Reader<'_>) -> Result<LockPlace, CodecError> {
    let name = decode_lock_name(r, &keep)?;
    let tag = r.byte("standing")?;
    let standing = match tag {
        HOLDER => Standing::Holder { fence: r.counter("fence")? },
        WAITER | WAITER_WITH => Standing::Waiter { order: r.counter("order")? },
        _ => return Err(CodecError::Invalid("standing")),
    };
    let waits_with = if tag == WAITER_WITH { Some(LeaseId(r.counter("waits_with")?)) } else { None };
    Ok(LockPlace {
        key: PlaceKey { name, standing },
        lease: LeaseId(r.counter("lease")?),
        value: value(r, &keep)?,
        since: LogTime::from_micros(r.varint("since")?),
        delay: Duration::from_micros(r.counter("delay")?),
        waits_with,
    })
}

const DELETE: u8 = 0;
/// A put whose record is the current one of its key.
const PUT_CURRENT: u8 = 1;
/// A put whose record a later event has replaced.
const PUT: u8 = 2;
const LOCK: u8 = 3;

/// A record that an event refers to.
#[derive(Clone, Debug)]
pub(crate) enum Linked {
    None,
    /// The record is part of the event.
    Inline(KeyRecord),
    /// The record is stored elsewhere: the current one of the key, or the one of the previous event of the key.
    Elsewhere,
}

/// An event as a snapshot stores it. Records that the snapshot contains already are not stored again (H6).
#[derive(Clone, Debug)]
pub(crate) struct StoredEvent {
    pub(crate) position: EventPosition,
    pub(crate) time: LogTime,
    pub(crate) change: StoredChange,
}

#[derive(Clone, Debug)]
pub(crate) enum StoredChange {
    Key { key: Bytes, record: Linked, previous: Linked },
    Lock(LockEvent),
}

/// Encodes an event. `compacted` is the revision above which history has all events.
pub(crate) fn encode_event(w: &mut Writer, event: &Event, keys: &Keys, compacted: u64) {
    w.varint(event.position.revision);
    w.varint(event.position.index);
    w.varint(event.time.as_micros());
    let previous = match &event.change {
        EventChange::Lock(event) => {
            w.byte(LOCK);
            return encode_lock_event(w, event);
        }
        EventChange::Delete { previous } => {
            w.byte(DELETE);
            w.sized(previous.key());
            Some(previous)
        }
        EventChange::Put { record, previous } => {
            let is_current = |current: &KeyRecord| current.modify_revision == record.modify_revision;
            if keys.get(record.key()).is_some_and(|current| is_current(current)) {
                w.byte(PUT_CURRENT);
                w.sized(record.key());
            } else {
                w.byte(PUT);
                encode_record(w, record);
            }
            previous.as_ref()
        }
    };
    match previous {
        None => w.byte(0),
        Some(previous) if previous.modify_revision > compacted => w.byte(1),
        Some(previous) => {
            w.byte(2);
            encode_record(w, previous);
        }
    }
}

pub(crate) fn decode_event(r: &mut Reader<'_>) -> Result<StoredEvent, CodecError> {
    let position = EventPosition { revision: r.counter("revision")?, index: r.counter("index")? };
    let time = LogTime::from_micros(r.varint("time")?);
    let (key, record) = match r.byte("event")? {
        LOCK => {
            let change = StoredChange::Lock(decode_lock_event(r, &keep)?);
            return Ok(StoredEvent { position, time, change });
        }
        DELETE => (keep(r.sized("key", KEY_BYTES_MAX)?), Linked::None),
        PUT_CURRENT => (keep(r.sized("key", KEY_BYTES_MAX)?), Linked::Elsewhere),
        PUT => {
            let record = decode_record(r)?;
            (keep(record.key()), Linked::Inline(record))
        }
        _ => return Err(CodecError::Invalid("event")),
    };
    let previous = match r.byte("previous")? {
        0 => Linked::None,
        1 => Linked::Elsewhere,
        2 => Linked::Inline(decode_record(r)?),
        _ => return Err(CodecError::Invalid("previous")),
    };
    Ok(StoredEvent { position, time, change: StoredChange::Key { key, record, previous } })
}
