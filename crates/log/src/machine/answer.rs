//! What whoever proposed an entry is told.

use super::outcome::{Field, Outcome};
use super::session::EndReason;
use crate::id::{Epoch, RequestId, SessionId};
use crate::time::LogTime;
use std::sync::Arc;

/// What an entry did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub reply: Reply,
    /// Sessions that ended with it, whoever asked for that.
    pub ended: Vec<(SessionId, EndReason)>,
    /// Log time after the entry; what deadlines are made from.
    pub log_time: LogTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Opened(Result<Opened, Refused>),
    Request(Answer),
    /// Whether the session ended; if not, why it goes on.
    Expired(Result<(), NotExpired>),
}

/// An open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub session: SessionId,
    /// The session it ended in the same entry (LS2).
    pub replaced: Option<SessionId>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub id: RequestId,
    /// What became of it, or why this copy did nothing.
    pub verdict: Result<Arc<Outcome>, Refused>,
    /// The fate of the request before it, or of the one it fenced (A5).
    pub previous: Option<(RequestId, Fate)>,
}

/// What the state knows about a request (A5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Decided, with this outcome.
    Done(Arc<Outcome>),
    /// Did not and will not take effect.
    Never,
    /// Has not taken effect so far; may.
    Open,
    /// May have taken effect, and can no longer; which of the two is not known any more.
    TooOld,
}

impl Fate {
    /// Whether no copy of the request can take effect from now on.
    pub fn is_final(&self) -> bool {
        !matches!(self, Fate::Open)
    }
}

/// Why an entry did nothing. Nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the session has ended ({0}); the request can never take effect")]
    SessionEnded(EndReason),
    #[error("the session is not known (any more)")]
    SessionUnknown,
    #[error("a later request took effect, or this one was fenced; it can never take effect")]
    Superseded,
    #[error("too old to know what became of it")]
    TooOld,
    #[error("the command was meant for another epoch than {current}")]
    StaleEpoch { current: Epoch },
    #[error("request {missing} must come first")]
    Gap { missing: u64 },
    #[error("{limit} or more outcomes or bytes of outcomes are still wanted; raise abandon_below")]
    WindowFull { limit: u64 },
    #[error("the client name is held by session {holder}; open again and say that it is replaced")]
    NameHeld { holder: SessionId },
    #[error("there are {limit} sessions, none of them idle for longer than its ttl")]
    SessionsFull { limit: u64 },
    #[error("{field} is not valid")]
    Invalid { field: Field },
    #[error("{field} is {found}, which is not between {min} and {max}")]
    OutOfRange { field: Field, found: u64, min: u64, max: u64 },
}

impl Refused {
    /// Whether sending the same request again, in time and order, may still work.
    pub fn is_final(&self) -> bool {
        !matches!(self, Refused::StaleEpoch { .. } | Refused::Gap { .. } | Refused::WindowFull { .. })
    }

    /// The error code of the interface.
    pub fn code(&self) -> &'static str {
        match self {
            Refused::SessionEnded(_) | Refused::SessionUnknown => "SESSION_GONE",
            Refused::Superseded => "SUPERSEDED",
            Refused::TooOld => "COMPACTED",
            Refused::StaleEpoch { .. } => "STALE_EPOCH",
            Refused::Gap { .. } | Refused::NameHeld { .. } => "FAILED_PRECONDITION",
            Refused::WindowFull { .. } | Refused::SessionsFull { .. } => "RESOURCE_EXHAUSTED",
            Refused::Invalid { .. } | Refused::OutOfRange { .. } => "INVALID_ARGUMENT",
        }
    }
}

/// Why a session was not expired (LS6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpired {
    #[error("the session is not open")]
    NotOpen,
    #[error("proposed in another epoch than {current}")]
    StaleEpoch { current: Epoch },
    #[error("the session was active in the meantime")]
    Active,
    #[error("its ttl has not passed in log time")]
    TooEarly,
}
