//! What can stand in a log entry.
//!
//! Commands are values; what they do is decided at apply (A3) and nowhere else. Every one names the epoch it is meant for (E2).

mod body;

pub use body::{Body, Change, Delete, DeleteRange, Put, Replica};

use crate::id::{Epoch, RequestId, SessionId};
use crate::limits::COUNTER_MAX;
use crate::machine::Field;
use crate::time::LogTime;
use smol_str::SmolStr;
use std::time::Duration;

/// The command of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Open(Open),
    Request(Request),
    Expire(Expire),
}

/// Opens a session (S1, S2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub epoch: Epoch,
    pub ttl: Duration,
    /// Chosen at random by the client's process, to recognise copies.
    pub nonce: u64,
    pub client: Option<Client>,
}

/// A durable client name, and the session under it that this client knows of and means to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub name: SmolStr,
    pub replaces: Option<SessionId>,
}

/// A numbered request of a session (A2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub session: SessionId,
    /// From 1, rising.
    pub number: u64,
    /// The lowest number that is still wanted; `number` itself if the client has one request at a time.
    pub abandon_below: u64,
    /// The number issued before this one, 0 for none. If it is still wanted, this request waits for it.
    pub previous: u64,
    pub epoch: Epoch,
    /// In log time.
    pub deadline: Option<LogTime>,
    /// The session ends with it, in the same entry, whatever its outcome is (S4).
    pub last: bool,
    pub body: Body,
}

/// Ends a session that was silent for too long; proposed by the leader (S6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    pub epoch: Epoch,
    pub session: SessionId,
    /// The session's activity as the leader knew it.
    pub activity: u64,
}

impl Command {
    pub fn epoch(&self) -> Epoch {
        match self {
            Command::Open(open) => open.epoch,
            Command::Request(request) => request.epoch,
            Command::Expire(expire) => expire.epoch,
        }
    }
}

impl Request {
    /// A request in the seed's manner: it abandons all before it.
    pub fn new(session: SessionId, number: u64, epoch: Epoch, body: Body) -> Self {
        let previous = number.saturating_sub(1);
        Request { session, number, abandon_below: number, previous, epoch, deadline: None, last: false, body }
    }

    pub fn id(&self) -> RequestId {
        RequestId::new(self.session, self.number)
    }

    /// Names the field that makes the request malformed (A2), if one does.
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
