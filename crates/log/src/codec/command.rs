//! Encoding of commands in log entries.

use super::txn::{decode_txn, encode_txn};
use super::{CodecError, Reader, Writer, coordination, epoch, put_epoch};
use crate::command::{
    Body, Command, Delete, DeleteRange, DurableClient, Expire, GroupChange, LeaseId, Open, Opener, Put,
    ReplicaLocation, Request,
};
use crate::id::{LogSessionId, ReplicaId, RequestId};
use crate::keys::KeyRange;
use crate::limits::{KEY_BYTES_MAX, REPLICAS_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX, micros};
use crate::time::LogTime;
use bytes::Bytes;
use convoke_base::codec::COUNTER_MAX;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of the command format, the first byte of each command.
pub const COMMAND_VERSION: u8 = 2;

const OPEN: u8 = 0;
const REQUEST: u8 = 1;
const EXPIRE: u8 = 2;
/// A request that is the last of its session.
const LAST_REQUEST: u8 = 3;
const RAISE: u8 = 4;
const END_LEASE: u8 = 5;
const END_DELAY: u8 = 6;

const FENCE: u8 = 0;
const END: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const DELETE_RANGE: u8 = 4;
const MEMBERSHIP: u8 = 5;
const TXN: u8 = 6;
const GRANT: u8 = 7;
const REVOKE: u8 = 8;
const ACQUIRE: u8 = 9;
const RELEASE: u8 = 10;
const PROCLAIM: u8 = 11;

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.byte(COMMAND_VERSION);
        match self {
            Command::Open(open) => encode_open(&mut w, open),
            Command::Request(request) => encode_request(&mut w, request),
            Command::Expire(expire) => {
                w.byte(EXPIRE);
                put_epoch(&mut w, expire.epoch);
                w.varint(expire.session.0);
                w.varint(expire.activity);
            }
            Command::Raise(raise) => {
                w.byte(RAISE);
                coordination::encode_raise(&mut w, raise);
            }
            Command::EndLease(end) => {
                w.byte(END_LEASE);
                coordination::encode_end_lease(&mut w, end);
            }
            Command::EndDelay(end) => {
                w.byte(END_DELAY);
                coordination::encode_end_delay(&mut w, end);
            }
        }
        w.into_bytes()
    }

    /// Like `encode`, for a log entry. A command that replicas cannot decode would stop all of them, again after every
    /// start (A1). Also returns the command as every replica will decode it, so that the leader need not decode it
    /// again.
    pub fn encode_checked(&self) -> Result<(Bytes, Command), CodecError> {
        if let Command::Request(request) = self {
            request.check().map_err(|field| CodecError::Invalid(field.as_str()))?;
        }
        let encoded = Bytes::from(self.encode());
        Command::decode(&encoded).map(|command| (encoded, command))
    }

    /// Decodes a command. Keys and values share the memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let version = r.byte("command")?;
        if version != COMMAND_VERSION {
            return Err(CodecError::Version { what: "command", found: version, known: COMMAND_VERSION });
        }
        let command = match r.byte("command")? {
            OPEN => Command::Open(decode_open(r)?),
            REQUEST => Command::Request(decode_request(r, bytes, false)?),
            LAST_REQUEST => Command::Request(decode_request(r, bytes, true)?),
            EXPIRE => Command::Expire(Expire {
                epoch: epoch(r)?,
                session: LogSessionId(r.counter("session")?),
                activity: r.counter("activity")?,
            }),
            RAISE => Command::Raise(coordination::decode_raise(r)?),
            END_LEASE => Command::EndLease(coordination::decode_end_lease(r)?),
            END_DELAY => Command::EndDelay(coordination::decode_end_delay(r, &|part| bytes.slice_ref(part))?),
            _ => return Err(CodecError::Invalid("command")),
        };
        reader.end()?;
        Ok(command)
    }
}

fn encode_open(w: &mut Writer, open: &Open) {
    w.byte(OPEN);
    put_epoch(w, open.epoch);
    w.varint(micros(open.ttl));
    w.fixed128(open.owner);
    w.sized(open.opener.name.as_bytes());
    w.flag(open.opener.reserved);
    w.option(open.client.as_ref(), |w, client| {
        w.sized(client.name.as_bytes());
        w.varint(client.replaces.map_or(0, |session| session.0));
    });
}

fn decode_open(r: &mut Reader<'_>) -> Result<Open, CodecError> {
    Ok(Open {
        epoch: epoch(r)?,
        ttl: Duration::from_micros(r.counter("ttl")?),
        owner: r.fixed128("owner")?,
        opener: Opener { name: SmolStr::new(r.text("opener", TEXT_BYTES_MAX)?), reserved: r.flag("reserved")? },
        client: r.option("client", |r| {
            let name = SmolStr::new(r.text("client.name", TEXT_BYTES_MAX)?);
            // No session has id 0: the first entry has index 1.
            let replaces = Some(r.counter("client.replaces")?).filter(|id| *id > 0).map(LogSessionId);
            Ok(DurableClient { name, replaces })
        })?,
    })
}

/// Encodes a request. `abandon_below` and `previous` are close to the number, so they are written as differences from
/// it.
fn encode_request(w: &mut Writer, request: &Request) {
    w.byte(if request.last { LAST_REQUEST } else { REQUEST });
    w.varint(request.session.0);
    w.varint(request.number);
    w.varint(request.number.saturating_sub(request.abandon_below));
    w.varint(request.number.saturating_sub(request.previous));
    put_epoch(w, request.epoch);
    w.option(request.deadline, |w, deadline| w.varint(deadline.as_micros()));
    encode_body(w, &request.body);
}

fn decode_request(r: &mut Reader<'_>, bytes: &Bytes, last: bool) -> Result<Request, CodecError> {
    let session = LogSessionId(r.counter("session")?);
    let number = r.counter("number")?;
    let request = Request {
        session,
        number,
        abandon_below: number - r.bounded("abandon_below", number)?,
        previous: number - r.bounded("previous", number)?,
        epoch: epoch(r)?,
        deadline: r.option("deadline", |r| r.varint("deadline").map(LogTime::from_micros))?,
        last,
        body: decode_body(r, bytes)?,
    };
    request.check().map_err(|field| CodecError::Invalid(field.as_str()))?;
    Ok(request)
}

fn encode_body(w: &mut Writer, body: &Body) {
    match body {
        Body::Fence(fenced) => {
            w.byte(FENCE);
            w.varint(fenced.session.0);
            w.varint(fenced.number);
        }
        Body::End(session) => {
            w.byte(END);
            w.varint(session.0);
        }
        Body::Put(put) => {
            w.byte(PUT);
            w.sized(&put.key);
            w.sized(&put.value);
            w.option(put.if_revision, Writer::varint);
            w.flag(put.previous);
        }
        Body::Delete(delete) => {
            w.byte(DELETE);
            w.sized(&delete.key);
            w.option(delete.if_revision, Writer::varint);
            w.flag(delete.previous);
        }
        Body::DeleteRange(delete) => {
            w.byte(DELETE_RANGE);
            w.sized(&delete.range.from);
            w.option(delete.range.until.as_ref(), |w, until| w.sized(until));
            w.flag(delete.previous);
        }
        Body::Membership(change) => {
            w.byte(MEMBERSHIP);
            w.varint(change.replaces);
            encode_replicas(w, &change.voters);
            encode_replicas(w, &change.learners);
        }
        Body::Txn(txn) => {
            w.byte(TXN);
            encode_txn(w, txn);
        }
        Body::Grant(grant) => {
            w.byte(GRANT);
            coordination::encode_term(w, &grant.term, grant.end);
        }
        Body::Revoke(lease) => {
            w.byte(REVOKE);
            w.varint(lease.0);
        }
        Body::Acquire(acquire) => {
            w.byte(ACQUIRE);
            coordination::encode_acquire(w, acquire);
        }
        Body::Release(release) => {
            w.byte(RELEASE);
            coordination::encode_release(w, release);
        }
        Body::Proclaim(proclaim) => {
            w.byte(PROCLAIM);
            coordination::encode_proclaim(w, proclaim);
        }
    }
}

fn decode_body(r: &mut Reader<'_>, bytes: &Bytes) -> Result<Body, CodecError> {
    let if_revision = |r: &mut Reader<'_>| r.option("if_revision", |r| r.counter("if_revision"));
    let keep = |part: &[u8]| bytes.slice_ref(part);
    let key = |r: &mut Reader<'_>, what| r.sized(what, KEY_BYTES_MAX).map(|key| bytes.slice_ref(key));
    Ok(match r.byte("body")? {
        FENCE => {
            let session = LogSessionId(r.counter("fence.session")?);
            Body::Fence(RequestId::new(session, r.bounded("fence.number", COUNTER_MAX)?))
        }
        END => Body::End(LogSessionId(r.counter("end.session")?)),
        PUT => Body::Put(Put {
            key: key(r, "key")?,
            value: bytes.slice_ref(r.sized("value", VALUE_BYTES_MAX)?),
            if_revision: if_revision(r)?,
            previous: r.flag("previous")?,
        }),
        DELETE => {
            Body::Delete(Delete { key: key(r, "key")?, if_revision: if_revision(r)?, previous: r.flag("previous")? })
        }
        DELETE_RANGE => {
            let range = KeyRange { from: key(r, "from")?, until: r.option("until", |r| key(r, "until"))? };
            Body::DeleteRange(DeleteRange { range, previous: r.flag("previous")? })
        }
        MEMBERSHIP => Body::Membership(GroupChange {
            replaces: r.counter("replaces")?,
            voters: decode_replicas(r, "voters")?,
            learners: decode_replicas(r, "learners")?,
        }),
        TXN => Body::Txn(decode_txn(r, bytes)?),
        GRANT => Body::Grant(coordination::decode_grant(r)?),
        REVOKE => Body::Revoke(LeaseId(r.counter("lease")?)),
        ACQUIRE => Body::Acquire(coordination::decode_acquire(r, &keep)?),
        RELEASE => Body::Release(coordination::decode_release(r, &keep)?),
        PROCLAIM => Body::Proclaim(coordination::decode_proclaim(r, &keep)?),
        _ => return Err(CodecError::Invalid("body")),
    })
}

pub(super) fn encode_replicas(w: &mut Writer, replicas: &BTreeMap<ReplicaId, ReplicaLocation>) {
    w.count(replicas.len());
    for (id, replica) in replicas {
        w.varint(id.0);
        w.sized(replica.node.as_bytes());
        w.sized(replica.address.as_bytes());
    }
}

pub(super) fn decode_replicas(
    r: &mut Reader<'_>,
    what: &'static str,
) -> Result<BTreeMap<ReplicaId, ReplicaLocation>, CodecError> {
    let mut replicas = BTreeMap::new();
    for _ in 0..r.count(what, 3, REPLICAS_MAX)? {
        let id = ReplicaId(r.varint("replica")?);
        if replicas.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(CodecError::Invalid(what));
        }
        let node = SmolStr::new(r.text("node", TEXT_BYTES_MAX)?);
        let address = SmolStr::new(r.text("address", TEXT_BYTES_MAX)?);
        replicas.insert(id, ReplicaLocation { node, address });
    }
    Ok(replicas)
}
