//! Encoding of leases, locks and elections in commands and events.

use super::{CodecError, Reader, Writer, epoch, put_epoch};
use crate::command::{
    Acquire, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, LockName, LockSpace,
    MemberBinding, Place, Proclaim, Raise, Release,
};
use crate::history::{LockChange, LockEvent};
use crate::level::Level;
use crate::limits::{CoordinationLimits, KEY_BYTES_MAX, LOCK_VALUE_BYTES_MAX, TEXT_BYTES_MAX, micros};
use bytes::Bytes;
use smol_str::SmolStr;
use std::time::Duration;

/// Keeps decoded bytes: as a part of the whole, or as a copy.
pub(crate) type Keep<'a> = &'a dyn Fn(&[u8]) -> Bytes;

pub(super) fn encode_raise(w: &mut Writer, raise: &Raise) {
    put_epoch(w, raise.epoch);
    w.varint(raise.level.0);
    w.varint(raise.configuration);
    encode_limits(w, &raise.limits);
}

pub(super) fn decode_raise(r: &mut Reader<'_>) -> Result<Raise, CodecError> {
    let epoch = epoch(r)?;
    Ok(Raise { epoch, level: decode_level(r)?, configuration: r.counter("configuration")?, limits: decode_limits(r)? })
}

/// Decodes a level above the first. A replica that does not support it must not continue (V2, V4).
pub(crate) fn decode_level(r: &mut Reader<'_>) -> Result<Level, CodecError> {
    let level = Level(r.bounded("feature level", Level::SUPPORTED.0)?);
    if level > Level::FIRST { Ok(level) } else { Err(CodecError::Invalid("feature level")) }
}

pub(crate) fn encode_limits(w: &mut Writer, limits: &CoordinationLimits) {
    limits.values().into_iter().for_each(|value| w.varint(value));
}

pub(crate) fn decode_limits(r: &mut Reader<'_>) -> Result<CoordinationLimits, CodecError> {
    let mut values = [0; 13];
    for value in &mut values {
        *value = r.varint("limits")?;
    }
    let limits = CoordinationLimits::from_values(values);
    limits.check().map_err(|error| CodecError::Invalid(error.field))?;
    Ok(limits)
}

pub(super) fn encode_end_lease(w: &mut Writer, end: &EndLease) {
    put_epoch(w, end.epoch);
    w.varint(end.lease.0);
    let registration = match &end.cause {
        LeaseCause::Expired => None,
        LeaseCause::MemberGone { registration } => Some(registration),
    };
    w.option(registration, |w, registration| w.sized(registration.as_bytes()));
}

pub(super) fn decode_end_lease(r: &mut Reader<'_>) -> Result<EndLease, CodecError> {
    let (epoch, lease) = (epoch(r)?, LeaseId(r.counter("lease")?));
    let registration = r.option("registration", |r| text(r, "registration"))?;
    let cause = registration.map_or(LeaseCause::Expired, |registration| LeaseCause::MemberGone { registration });
    Ok(EndLease { epoch, lease, cause })
}

pub(super) fn encode_end_delay(w: &mut Writer, end: &EndDelay) {
    put_epoch(w, end.epoch);
    encode_lock_name(w, &end.name);
}

pub(super) fn decode_end_delay(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<EndDelay, CodecError> {
    Ok(EndDelay { epoch: epoch(r)?, name: decode_lock_name(r, keep)? })
}

pub(crate) fn encode_lock_name(w: &mut Writer, name: &LockName) {
    w.byte(match name.space {
        LockSpace::Lock => 0,
        LockSpace::Election => 1,
    });
    w.sized(&name.name);
}

pub(crate) fn decode_lock_name(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<LockName, CodecError> {
    let space = match r.byte("space")? {
        0 => LockSpace::Lock,
        1 => LockSpace::Election,
        _ => return Err(CodecError::Invalid("space")),
    };
    Ok(LockName { space, name: keep(r.sized("name", KEY_BYTES_MAX)?) })
}

pub(crate) fn encode_term(w: &mut Writer, term: &LeaseTerm, end: EndBehavior) {
    match term {
        LeaseTerm::Ttl(ttl) => {
            w.byte(0);
            w.varint(micros(*ttl));
        }
        LeaseTerm::Member(MemberBinding { member, client, registration }) => {
            w.byte(1);
            for text in [member, client, registration] {
                w.sized(text.as_bytes());
            }
        }
    }
    w.flag(end == EndBehavior::Release);
}

pub(crate) fn decode_term(r: &mut Reader<'_>) -> Result<(LeaseTerm, EndBehavior), CodecError> {
    let term = match r.byte("term")? {
        0 => LeaseTerm::Ttl(Duration::from_micros(r.counter("ttl")?)),
        1 => LeaseTerm::Member(MemberBinding {
            member: text(r, "member")?,
            client: text(r, "client")?,
            registration: text(r, "registration")?,
        }),
        _ => return Err(CodecError::Invalid("term")),
    };
    let end = if r.flag("end")? { EndBehavior::Release } else { EndBehavior::Delete };
    Ok((term, end))
}

pub(super) fn decode_grant(r: &mut Reader<'_>) -> Result<GrantLease, CodecError> {
    let (term, end) = decode_term(r)?;
    Ok(GrantLease { term, end })
}

const NO_WAIT: u8 = 0;
const WAIT: u8 = 1;
/// A second lease follows.
const WAIT_WITH: u8 = 2;

pub(super) fn encode_acquire(w: &mut Writer, acquire: &Acquire) {
    encode_lock_name(w, &acquire.name);
    w.varint(acquire.lease.0);
    w.varint(acquire.permits);
    w.sized(&acquire.value);
    w.byte(match acquire.waits_with {
        _ if !acquire.wait => NO_WAIT,
        None => WAIT,
        Some(_) => WAIT_WITH,
    });
    w.varint(micros(acquire.delay));
    if let Some(lease) = acquire.waits_with.filter(|_| acquire.wait) {
        w.varint(lease.0);
    }
}

pub(super) fn decode_acquire(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<Acquire, CodecError> {
    let name = decode_lock_name(r, keep)?;
    let mut acquire = Acquire {
        lease: LeaseId(r.counter("lease")?),
        permits: r.counter("permits")?,
        value: value(r, keep)?,
        ..Acquire::new(name, LeaseId(0))
    };
    let wait = r.byte("wait")?;
    acquire.wait = wait != NO_WAIT;
    acquire.delay = Duration::from_micros(r.counter("delay")?);
    acquire.waits_with = match wait {
        NO_WAIT | WAIT => None,
        WAIT_WITH => Some(LeaseId(r.counter("waits_with")?)),
        _ => return Err(CodecError::Invalid("wait")),
    };
    Ok(acquire)
}

pub(super) fn encode_release(w: &mut Writer, release: &Release) {
    encode_lock_name(w, &release.name);
    let (tag, number) = match release.place {
        Place::Lease(lease) => (0, lease.0),
        Place::Fence(fence) => (1, fence),
    };
    w.byte(tag);
    w.varint(number);
}

pub(super) fn decode_release(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<Release, CodecError> {
    let name = decode_lock_name(r, keep)?;
    let place = match r.byte("place")? {
        0 => Place::Lease(LeaseId(r.counter("lease")?)),
        1 => Place::Fence(r.counter("fence")?),
        _ => return Err(CodecError::Invalid("place")),
    };
    Ok(Release { name, place })
}

pub(super) fn encode_proclaim(w: &mut Writer, proclaim: &Proclaim) {
    encode_lock_name(w, &proclaim.name);
    w.varint(proclaim.fence);
    w.sized(&proclaim.value);
}

pub(super) fn decode_proclaim(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<Proclaim, CodecError> {
    Ok(Proclaim { name: decode_lock_name(r, keep)?, fence: r.counter("fence")?, value: value(r, keep)? })
}

pub(crate) fn encode_lock_event(w: &mut Writer, event: &LockEvent) {
    encode_lock_name(w, &event.name);
    w.varint(event.fence);
    match &event.change {
        LockChange::Granted { lease, value } => {
            w.byte(0);
            w.varint(lease.0);
            w.sized(value);
        }
        LockChange::Proclaimed { value } => {
            w.byte(1);
            w.sized(value);
        }
        LockChange::Released => w.byte(2),
    }
}

pub(crate) fn decode_lock_event(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<LockEvent, CodecError> {
    let (name, fence) = (decode_lock_name(r, keep)?, r.counter("fence")?);
    let change = match r.byte("event")? {
        0 => LockChange::Granted { lease: LeaseId(r.counter("lease")?), value: value(r, keep)? },
        1 => LockChange::Proclaimed { value: value(r, keep)? },
        2 => LockChange::Released,
        _ => return Err(CodecError::Invalid("event")),
    };
    Ok(LockEvent { name, fence, change })
}

pub(crate) fn value(r: &mut Reader<'_>, keep: Keep<'_>) -> Result<Bytes, CodecError> {
    Ok(keep(r.sized("value", LOCK_VALUE_BYTES_MAX)?))
}

fn text(r: &mut Reader<'_>, what: &'static str) -> Result<SmolStr, CodecError> {
    r.text(what, TEXT_BYTES_MAX).map(SmolStr::new)
}
