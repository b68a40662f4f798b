//! Encoding of the parts of the state, for snapshots and for the state hash (LH1, LH2).

use super::command::{decode_replicas, encode_replicas};
use super::coordination::{
    decode_level, decode_limits as decode_coordination_limits, encode_limits as encode_coordination_limits,
};
use super::outcome::{decode_outcome, encode_outcome};
use super::{CodecError, Reader, Writer, epoch, put_epoch};
use crate::command::Opener;
use crate::history::History;
use crate::id::{LogSessionId, Position, ReplicaId};
use crate::keys::{KeyExtras, KeyRecord, Keys};
use crate::leases::Leases;
use crate::level::Level;
use crate::limits::{COUNT_MAX, CoordinationLimits, KEY_BYTES_MAX, LogLimits, TEXT_BYTES_MAX, VALUE_BYTES_MAX, micros};
use crate::locks::Locks;
use crate::machine::{Configuration, EndReason, Ended, Machine, Membership, Session, Sessions};
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
