//! Answers to the proposer of an entry.

use super::effects::{GrantedLock, LeftPlace};
use super::outcome::{Field, Outcome};
use super::session::EndReason;
use crate::command::{LeaseId, OpResult};
use crate::history::Compacted;
use crate::id::{Epoch, LogSessionId, RequestId};
use crate::level::Level;
use crate::time::LogTime;
use convoke_base::ErrorCode;
use std::sync::Arc;

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub reply: Reply,
    /// Sessions that ended with this entry, for any reason.
    pub ended: Vec<(LogSessionId, EndReason)>,
    /// Leases that ended with this entry, for any reason.
    pub ended_leases: Vec<LeaseId>,
    /// Permits of locks that this entry granted, at once or to waiters.
    pub granted: Vec<GrantedLock>,
    /// Places in locks that ended with this entry.
    pub left: Vec<LeftPlace>,
    /// Log time after the entry, the base for deadlines.
    pub log_time: LogTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Opened(Result<Opened, ApplyRejection>),
    Request(RequestAnswer),
    /// `Ok` if the session ended, otherwise why it did not.
    Expired(Result<(), NotExpired>),
    /// The level after the entry, or why it was not raised.
    Raised(Result<Level, NotRaised>),
    /// `Ok` if the lease ended, otherwise why it did not.
    LeaseEnded(Result<(), NotEnded>),
    /// `Ok` if the delay of the lock ended, otherwise why it did not.
    DelayEnded(Result<(), NotEnded>),
}

/// An opened session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub session: LogSessionId,
    /// The session that ended in the same entry (LS2).
    pub replaced: Option<LogSessionId>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAnswer {
    pub id: RequestId,
    /// The outcome, or why this copy did nothing.
    pub verdict: Result<Arc<Outcome>, ApplyRejection>,
    /// The fate of the previous request, or of the fenced one (A5).
    pub previous: Option<(RequestId, Fate)>,
    /// The results of an applied transaction. A copy reads them from history, which may no longer have them (T8).
    pub results: Option<Result<Vec<OpResult>, Compacted>>,
}

/// The state's knowledge of a request (A5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The request has this outcome.
    Done(Arc<Outcome>),
    /// The request did not and will not take effect.
    Never,
    /// The request has not taken effect yet but still may.
    Open,
    /// The request may have taken effect but no longer can; the outcome is no longer kept.
    TooOld,
}

impl Fate {
    /// Returns whether no copy of the request can take effect any more.
    pub fn is_final(&self) -> bool {
        !matches!(self, Fate::Open)
    }
}

/// Why an entry did nothing. Nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyRejection {
    #[error("the log session has ended ({0}); the request never takes effect")]
    SessionEnded(EndReason),
    #[error("the log session is unknown or was dropped; open a new one")]
    SessionUnknown,
    #[error("a later request took effect or fenced this one; it never takes effect")]
    Superseded,
    #[error("the outcome of the request is no longer kept; it cannot take effect any more")]
    TooOld,
    #[error("the command names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("request {missing} must take effect first")]
    Gap { missing: u64 },
    #[error("the session keeps its limit of {limit} outcomes or outcome bytes; raise abandon_below")]
    WindowFull { limit: u64 },
    #[error("log session {holder} holds the client name; open again with replaces={holder}")]
    NameHeld { holder: LogSessionId },
    #[error(
        "all {limit} places for log sessions are taken; end some (`convoke log sessions`) or wait until they expire"
    )]
    SessionsFull { limit: u64 },
    #[error("this client has {limit} open log sessions, which is its limit; close some handles")]
    QuotaReached { limit: u64 },
    #[error("{field} is invalid")]
    Invalid { field: Field },
    #[error("{field} is {found}; it must be between {min} and {max}")]
    OutOfRange { field: Field, found: u64, min: u64, max: u64 },
    #[error(
        "the request needs feature level {needed}, and the log is at level {current}; `convoke log status` names the \
         replicas that hold it back"
    )]
    Level { needed: Level, current: Level },
}

impl ApplyRejection {
    /// Returns whether a retry of the same request is pointless.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            ApplyRejection::StaleEpoch { .. }
                | ApplyRejection::Gap { .. }
                | ApplyRejection::WindowFull { .. }
                // Another copy takes effect if it is applied after the level was raised.
                | ApplyRejection::Level { .. }
        )
    }

    /// The error code of the interface.
    pub fn code(&self) -> ErrorCode {
        match self {
            ApplyRejection::SessionEnded(_) | ApplyRejection::SessionUnknown => ErrorCode::SessionGone,
            ApplyRejection::Superseded => ErrorCode::Superseded,
            ApplyRejection::TooOld => ErrorCode::Compacted,
            ApplyRejection::StaleEpoch { .. } => ErrorCode::StaleEpoch,
            ApplyRejection::Gap { .. } | ApplyRejection::NameHeld { .. } | ApplyRejection::Level { .. } => {
                ErrorCode::FailedPrecondition
            }
            ApplyRejection::WindowFull { .. }
            | ApplyRejection::SessionsFull { .. }
            | ApplyRejection::QuotaReached { .. } => ErrorCode::ResourceExhausted,
            ApplyRejection::Invalid { .. } | ApplyRejection::OutOfRange { .. } => ErrorCode::InvalidArgument,
        }
    }
}

/// Why a session was not expired (LS6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExpired {
    #[error("the log session is not open")]
    NotOpen,
    #[error("the expiry names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("the log session was active in the meantime")]
    Active,
    #[error("the ttl of the log session has not passed in log time")]
    TooEarly,
}

/// Why the level was not raised (V2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRaised {
    #[error("the command names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("configuration {current} was recorded in the meantime")]
    Reconfigured { current: u64 },
}

/// Why a lease or the delay of a lock was not ended (LE3, LE6, LO7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEnded {
    #[error("the lease does not exist")]
    NoLease,
    #[error("the lock has no delay")]
    NotDelayed,
    #[error("the command names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("the time has not passed in log time")]
    TooEarly,
    #[error("the lease does not end for this reason")]
    OtherTerm,
    #[error("the lease is bound to another registration")]
    OtherRegistration,
}
