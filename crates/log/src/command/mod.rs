//! Commands: the content of log entries.
//!
//! A command is a value; only apply decides what it does (A3). Every command names the epoch it is meant for (E2).

mod body;
mod coordination;
mod txn;

pub use body::{Body, Delete, DeleteRange, GroupChange, Put, ReplicaLocation};
pub use coordination::{
    Acquire, EndBehavior, EndDelay, EndLease, GrantLease, LeaseCause, LeaseId, LeaseTerm, LockName, LockSpace,
    MemberBinding, Place, Proclaim, Raise, Release,
};
pub use txn::{Compare, Op, OpResult, Relation, TXN_OPERATIONS_MAX, Test, Txn, TxnPut};

use crate::id::{Epoch, LogSessionId, RequestId};
use crate::level::Level;
use crate::machine::Field;
use crate::time::LogTime;
use convoke_base::codec::COUNTER_MAX;
use smol_str::SmolStr;
use std::time::Duration;

/// The command of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Open(Open),
    Request(Request),
    Expire(Expire),
    Raise(Raise),
    EndLease(EndLease),
    EndDelay(EndDelay),
}

/// Opens a session (LS1, LS2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub epoch: Epoch,
    pub ttl: Duration,
    /// Digest of the client's secret. It identifies copies of this open (LS2) and the owner of the session (LS9).
    pub owner: u128,
    pub client: Option<DurableClient>,
    pub opener: Opener,
}

/// Who opens a session, as far as the leader can tell. The session quota counts by it (LS7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opener {
    pub name: SmolStr,
    /// Whether the session may use the places that are reserved for nodes and operators.
    pub reserved: bool,
}

impl Opener {
    /// Returns the name if it is that of a principal. Its first part, up to a slash, has lower-case letters, digits and
    /// hyphens. Names of nodes have no slash, and a network has a colon before it.
    pub fn principal(&self) -> Option<&str> {
        let (kind, _) = self.name.split_once('/').filter(|_| !self.reserved)?;
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (!kind.is_empty() && kind.bytes().all(is_word)).then_some(self.name.as_str())
    }
}

/// A durable client name, and the session under that name that the client wants to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableClient {
    pub name: SmolStr,
    pub replaces: Option<LogSessionId>,
}

/// A numbered request of a session (A2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub session: LogSessionId,
    /// Request number, starting at 1 and rising.
    pub number: u64,
    /// The lowest number that the client still wants; equal to `number` if the client has one request at a time.
    pub abandon_below: u64,
    /// The number issued before this one, or 0. If the client still wants it, this request waits for it.
    pub previous: u64,
    pub epoch: Epoch,
    /// Deadline in log time.
    pub deadline: Option<LogTime>,
    /// The session ends with it, in the same entry, whatever its outcome (LS4).
    pub last: bool,
    pub body: Body,
}

/// Ends a session after silence of its client; proposed by the leader (LS6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    pub epoch: Epoch,
    pub session: LogSessionId,
    /// The session's activity when the leader proposed the expiry.
    pub activity: u64,
}

impl Open {
    /// Creates an open of an anonymous client.
    pub fn new(epoch: Epoch, ttl: Duration, owner: u128) -> Self {
        Open { epoch, ttl, owner, client: None, opener: Opener::default() }
    }
}

impl Command {
    pub fn epoch(&self) -> Epoch {
        match self {
            Command::Open(open) => open.epoch,
            Command::Request(request) => request.epoch,
            Command::Expire(expire) => expire.epoch,
            Command::Raise(raise) => raise.epoch,
            Command::EndLease(end) => end.epoch,
            Command::EndDelay(end) => end.epoch,
        }
    }

    /// Returns the level that the log must have before a leader appends the command (V1). A raise is appended below the
    /// level that it names, after every replica supports it (V2).
    pub fn level(&self) -> Level {
        match self {
            Command::Open(_) | Command::Expire(_) | Command::Raise(_) => Level::FIRST,
            Command::Request(request) => request.body.level(),
            Command::EndLease(_) | Command::EndDelay(_) => Level::COORDINATION,
        }
    }
}

impl Request {
    /// Creates a request that abandons all earlier ones.
    pub fn new(session: LogSessionId, number: u64, epoch: Epoch, body: Body) -> Self {
        let previous = number.saturating_sub(1);
        Request { session, number, abandon_below: number, previous, epoch, deadline: None, last: false, body }
    }

    pub fn id(&self) -> RequestId {
        RequestId::new(self.session, self.number)
    }

    /// Returns the field that makes the request malformed (A2), if there is one.
    pub fn check(&self) -> Result<(), Field> {
        if self.number == 0 || self.number > COUNTER_MAX {
            Err(Field::Number)
        } else if self.abandon_below == 0 || self.abandon_below > self.number {
            Err(Field::AbandonBelow)
        } else if self.previous >= self.number {
            Err(Field::Previous)
        } else {
            Ok(())
        }
    }
}
