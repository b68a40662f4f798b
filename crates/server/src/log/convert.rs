//! Conversions between the log's types and the wire types.

use super::coordination::{acquire, grant, proclaim, release};
use super::txn::{results, txn};
use crate::error::invalid;
use convoke_log::codec::CodecError;
use convoke_log::command::{Body, Delete, DeleteRange, LeaseId, Put, Request};
use convoke_log::keys::{KeyRange, KeyRecord};
use convoke_log::leader::NotAppended;
use convoke_log::machine::{ApplyRejection, Fate, Field, LockAnswer, Outcome, Reason, Response};
use convoke_log::{Epoch, LogSessionId, LogTime, ReplicaId, RequestId};
use convoke_proto::v1::fate::Kind;
use convoke_proto::v1::log_request::Body as WireBody;
use convoke_proto::v1::submit_response::Message;
use convoke_proto::{Error, v1};
use convoke_replica::{Answered, Consistency, LogRejection, OpenAnswered};
use sha2::{Digest, Sha256};

pub(crate) fn wire_epoch(epoch: Epoch) -> v1::Epoch {
    v1::Epoch { term: epoch.term, replica: epoch.leader.0 }
}

pub(crate) fn epoch(epoch: Option<v1::Epoch>) -> Result<Epoch, Error> {
    let epoch = epoch.ok_or_else(|| invalid("epoch", "the epoch of the leader is required"))?;
    Ok(Epoch { term: epoch.term, leader: ReplicaId(epoch.replica) })
}

pub(crate) fn wire_id(id: RequestId) -> v1::RequestId {
    v1::RequestId { session: id.session.0, number: id.number, log: None }
}

pub(crate) fn request_id(id: Option<v1::RequestId>) -> Result<RequestId, Error> {
    let id = id.ok_or_else(|| invalid("request", "a request is required: its session and its number"))?;
    if id.number == 0 {
        return Err(invalid(
            "request",
            "request numbers start at 1; pass the request id as it was reported: session/number",
        ));
    }
    Ok(RequestId::new(LogSessionId(id.session), id.number))
}

pub(crate) fn body(request: v1::LogRequest) -> Result<Request, Error> {
    let body = match request.body.ok_or_else(|| invalid("body", "a put, a delete or another body is required"))? {
        WireBody::Put(put) => {
            Body::Put(Put { key: put.key, value: put.value, if_revision: put.if_revision, previous: put.previous })
        }
        WireBody::Delete(delete) => deletion(delete)?,
        WireBody::End(_) => Body::End(LogSessionId(request.session)),
        WireBody::Txn(wanted) => Body::Txn(txn(wanted)?),
        WireBody::Grant(wanted) => grant(wanted)?,
        WireBody::Revoke(wanted) => Body::Revoke(LeaseId(wanted.lease)),
        WireBody::Acquire(wanted) => acquire(wanted),
        WireBody::Release(wanted) => release(wanted)?,
        WireBody::Proclaim(wanted) => proclaim(wanted),
    };
    Ok(Request {
        session: LogSessionId(request.session),
        number: request.number,
        abandon_below: request.abandon_below,
        previous: request.previous,
        epoch: epoch(request.epoch)?,
        deadline: (request.deadline_us > 0).then(|| LogTime::from_micros(request.deadline_us)),
        last: request.last,
        body,
    })
}

fn deletion(delete: v1::DeleteKeys) -> Result<Body, Error> {
    use v1::delete_keys::Which;
    let v1::DeleteKeys { which, if_revision, previous } = delete;
    match which {
        Some(Which::Key(key)) => Ok(Body::Delete(Delete { key, if_revision, previous })),
        Some(Which::Range(_)) if if_revision.is_some() => {
            Err(invalid("if_revision", "if_revision requires a single key"))
        }
        Some(Which::Range(range)) => Ok(Body::DeleteRange(DeleteRange { range: key_range(range), previous })),
        None => Err(invalid("which", "a key or a range to delete is required")),
    }
}

/// Returns the log that a message of a session names (LS10).
pub(crate) fn log_id(log: Option<v1::LogId>) -> Result<u128, Error> {
    log.map(u128::from).ok_or_else(|| invalid("log", "the id of the log is required, as the leader sent it in welcome"))
}

/// Returns the digest by which the log knows the owner of a session (LS9). The log does not store the secret: backups
/// would contain it.
pub(crate) fn owner(secret: &[u8]) -> Result<u128, Error> {
    if secret.len() != SECRET_BYTES {
        return Err(invalid("secret", "the secret of the session is required: 16 random bytes"));
    }
    let digest = Sha256::digest(secret);
    let (half, _) = digest.split_first_chunk::<16>().expect("a SHA-256 digest has 32 bytes");
    Ok(u128::from_le_bytes(*half))
}

const SECRET_BYTES: usize = 16;

/// Parses a barrier read (LR4).
pub(crate) fn barrier(barrier: Option<v1::Barrier>) -> Result<Consistency, Error> {
    let message =
        "a barrier read requires the session, its epoch and the number below which all requests are abandoned";
    let v1::Barrier { session, epoch: meant, below, .. } = barrier.ok_or_else(|| invalid("barrier", message))?;
    Ok(Consistency::Barrier { session: LogSessionId(session), epoch: epoch(meant)?, below })
}

pub(crate) fn key_range(range: v1::KeyRange) -> KeyRange {
    KeyRange { from: range.from, until: range.until }
}

/// Converts a rejection of the replica.
pub(crate) fn rejection(why: &LogRejection) -> Error {
    let error = Error::new(why.code(), why.to_string());
    match why {
        LogRejection::StaleEpoch { current } => error.replicas(Vec::new(), Some(wire_epoch(*current))),
        LogRejection::Busy { limit, .. } | LogRejection::TooLarge { limit, .. } => error.limit(*limit),
        LogRejection::Unreadable(CodecError::TooLarge { what, limit, .. }) => error.field(*what).limit(*limit),
        LogRejection::Unreadable(why) => why.part().into_iter().fold(error, Error::field),
        LogRejection::NoSession { .. } => error.field("request"),
        LogRejection::OtherLog { .. } => error.field("log"),
        LogRejection::NotOwner => error.field("secret"),
        LogRejection::Level(NotAppended::Level { needed, .. }) => error.field("level").limit(needed.0),
        LogRejection::NoRoom(why) => rejected(why),
        _ => error,
    }
}

/// Converts a rejection of the log's state machine.
fn rejected(why: &ApplyRejection) -> Error {
    if let ApplyRejection::OutOfRange { field, found, min, max } = *why {
        return out_of_range(field, [found, min, max]);
    }
    let error = Error::new(why.code(), why.to_string());
    match why {
        ApplyRejection::StaleEpoch { current } => error.replicas(Vec::new(), Some(wire_epoch(*current))),
        ApplyRejection::WindowFull { limit } => error.limit(*limit),
        ApplyRejection::SessionsFull { limit } | ApplyRejection::QuotaReached { limit } => {
            error.field("sessions").limit(*limit)
        }
        ApplyRejection::Invalid { field } => error.field(field.as_str()),
        ApplyRejection::Level { needed, .. } => error.field("level").limit(needed.0),
        _ => error,
    }
}

/// The log uses microseconds, its clients milliseconds.
fn out_of_range(field: Field, numbers: [u64; 3]) -> Error {
    let (name, [found, min, max]) = match field {
        Field::Ttl => ("ttl_ms", numbers.map(|micros| micros / 1_000)),
        Field::Delay => ("delay_ms", numbers.map(|micros| micros / 1_000)),
        field => (field.as_str(), numbers),
    };
    let unit = match field {
        Field::Name | Field::Value | Field::Member => " bytes",
        _ => "",
    };
    let message = format!("{name} is {found}{unit}; it must be between {min} and {max}");
    Error::new(convoke_proto::ErrorCode::InvalidArgument, message).field(name).limit(max)
}

pub(super) fn reason(why: &Reason) -> Error {
    if let Reason::OutOfRange { field, found, min, max } = *why {
        return out_of_range(field, [found, min, max]);
    }
    let error = Error::new(why.code(), why.to_string());
    match why {
        Reason::Precondition { revision } => Error { known: Some(*revision), ..error },
        Reason::TooLarge { field, limit, .. } | Reason::TooMany { field, limit } | Reason::Full { field, limit } => {
            error.field(field.as_str()).limit(*limit)
        }
        Reason::NoLease(_) => error.field("lease"),
        Reason::LockHeld { fence } => Error { known: Some(*fence), ..error },
        Reason::Permits { permits } => error.field("permits").limit(*permits),
        Reason::NotHeld => error.field("lock"),
        Reason::Invalid { field } => error.field(field.as_str()),
        _ => error,
    }
}

pub(crate) fn record(record: &KeyRecord) -> v1::KeyValue {
    let extras = record.extras();
    v1::KeyValue {
        key: record.key().to_vec().into(),
        value: record.value().to_vec().into(),
        create_revision: record.create_revision,
        mod_revision: record.modify_revision,
        version: record.version,
        lease: extras.lease,
        flags: extras.flags,
        lock_index: extras.lock_index,
    }
}

pub(crate) fn fate(fate: &Fate) -> v1::Fate {
    match fate {
        Fate::Done(outcome) => decided(outcome),
        Fate::Never => v1::Fate::of(Kind::Never),
        Fate::Open => v1::Fate::of(Kind::Open),
        Fate::TooOld => v1::Fate::of(Kind::TooOld),
    }
}

fn decided(outcome: &Outcome) -> v1::Fate {
    match outcome {
        Outcome::Applied { index, revision, response } => {
            let (keys, previous, omitted) = match response {
                Response::Changed(changed) => {
                    let previous = changed.previous.iter().map(|before| record(before)).collect();
                    (changed.keys, previous, changed.omitted)
                }
                Response::Txn(txn) => (txn.changes, Vec::new(), 0),
                Response::Revoked { keys } => (*keys, Vec::new(), 0),
                Response::Fenced
                | Response::Ended
                | Response::Configured(_)
                | Response::Granted(_)
                | Response::Lock(_)
                | Response::Released { .. }
                | Response::Proclaimed => (0, Vec::new(), 0),
            };
            let succeeded = if let Response::Txn(txn) = response { Some(txn.succeeded) } else { None };
            let (lease, fence) = match response {
                Response::Granted(lease) => (lease.0, 0),
                Response::Lock(LockAnswer::Held { fence }) | Response::Released { fence: Some(fence) } => (0, *fence),
                _ => (0, 0),
            };
            let applied = v1::Fate::of(Kind::Applied);
            v1::Fate { index: *index, revision: *revision, keys, previous, omitted, succeeded, lease, fence, ..applied }
        }
        Outcome::NotApplied { index, reason: why } => {
            v1::Fate { index: *index, reason: Some(reason(why).into()), ..v1::Fate::of(Kind::NotApplied) }
        }
    }
}

/// The answer to a request that was applied.
pub(crate) fn answer(answered: &Answered) -> Message {
    let answer = &answered.answer;
    let (final_fate, why) = match &answer.verdict {
        Ok(outcome) => (decided(outcome), None),
        Err(why) => {
            let kind = match why {
                ApplyRejection::SessionUnknown | ApplyRejection::TooOld => Kind::TooOld,
                why if why.is_final() => Kind::Never,
                _ => Kind::Open,
            };
            (v1::Fate::of(kind), Some(rejected(why).into()))
        }
    };
    Message::Answer(v1::LogAnswer {
        request: Some(wire_id(answer.id)),
        fate: Some(final_fate),
        rejected: why,
        previous: answer.previous.as_ref().map(|(id, _)| wire_id(*id)),
        previous_fate: answer.previous.as_ref().map(|(_, final_fate)| fate(final_fate)),
        log_time_us: answered.log_time.as_micros(),
        results: answer.results.as_ref().map(|found| results(found.as_deref().map_err(|compacted| *compacted))),
    })
}

/// The answer to a request whose session is not open, or not any more.
pub(crate) fn read_fate(id: RequestId, final_fate: &Fate, results: Option<v1::TxnResults>) -> Message {
    let over = rejection(&LogRejection::SessionNotOpen);
    Message::Answer(v1::LogAnswer {
        request: Some(wire_id(id)),
        fate: Some(fate(final_fate)),
        rejected: Some(over.into()),
        results,
        ..v1::LogAnswer::default()
    })
}

pub(crate) fn opened(answered: &OpenAnswered) -> Message {
    let log_time_us = answered.log_time.as_micros();
    match &answered.opened {
        Ok(opened) => Message::Opened(v1::SessionOpened {
            session: opened.session.0,
            replaced: opened.replaced.map(|session| session.0),
            log_time_us,
            held_by: None,
        }),
        Err(ApplyRejection::NameHeld { holder }) => {
            Message::Opened(v1::SessionOpened { held_by: Some(holder.0), log_time_us, ..v1::SessionOpened::default() })
        }
        Err(why) => Message::Rejected(rejected(why).into()),
    }
}
