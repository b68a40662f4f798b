//! Answers to the proposer of an entry.

use super::outcome::{Field, Outcome};
use super::session::EndReason;
use crate::id::{Epoch, LogSessionId, RequestId};
use crate::time::LogTime;
use convoke_base::ErrorCode;
use std::sync::Arc;

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub reply: Reply,
    /// Sessions that ended with this entry, for any reason.
    pub ended: Vec<(LogSessionId, EndReason)>,
    /// Log time after the entry, the base for deadlines.
    pub log_time: LogTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Opened(Result<Opened, ApplyRejection>),
    Request(RequestAnswer),
    /// `Ok` if the session ended, otherwise why it did not.
    Expired(Result<(), NotExpired>),
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
}

impl ApplyRejection {
    /// Returns whether a retry of the same request is pointless.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            ApplyRejection::StaleEpoch { .. } | ApplyRejection::Gap { .. } | ApplyRejection::WindowFull { .. }
        )
    }

    /// The error code of the interface.
    pub fn code(&self) -> ErrorCode {
        match self {
            ApplyRejection::SessionEnded(_) | ApplyRejection::SessionUnknown => ErrorCode::SessionGone,
            ApplyRejection::Superseded => ErrorCode::Superseded,
            ApplyRejection::TooOld => ErrorCode::Compacted,
            ApplyRejection::StaleEpoch { .. } => ErrorCode::StaleEpoch,
            ApplyRejection::Gap { .. } | ApplyRejection::NameHeld { .. } => ErrorCode::FailedPrecondition,
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
