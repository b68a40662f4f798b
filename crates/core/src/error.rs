//! Refusals: the typed answers to what cannot be done.
//!
//! A refusal never leaves a trace in the state; whoever gets one knows which field was wrong and what the limit is.

use std::fmt;

/// Error codes as fixed in the interface (`{"error":{"code":…}}`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    InvalidMember,
    InvalidFilter,
    InvalidArgument,
    PermissionDenied,
    NotFound,
    NotRegistered,
    SessionGone,
    AlreadyRegistered,
    TakenOver,
    Superseded,
    StaleEpoch,
    StaleVersion,
    TooLarge,
    ResourceExhausted,
    NotReady,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidMember => "INVALID_MEMBER",
            Code::InvalidFilter => "INVALID_FILTER",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::NotFound => "NOT_FOUND",
            Code::NotRegistered => "NOT_REGISTERED",
            Code::SessionGone => "SESSION_GONE",
            Code::AlreadyRegistered => "ALREADY_REGISTERED",
            Code::TakenOver => "TAKEN_OVER",
            Code::Superseded => "SUPERSEDED",
            Code::StaleEpoch => "STALE_EPOCH",
            Code::StaleVersion => "STALE_VERSION",
            Code::TooLarge => "TOO_LARGE",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::NotReady => "NOT_READY",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a request was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// The input field that was wrong.
    pub field: Option<&'static str>,
    /// The limit that was exceeded.
    pub limit: Option<u64>,
    /// With [`Code::StaleEpoch`]: the highest claim known here; try again with one more (rule C1).
    pub known: Option<u64>,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), field: None, limit: None, known: None }
    }

    pub fn field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    pub fn limit(mut self, limit: impl TryInto<u64>) -> Self {
        self.limit = limit.try_into().ok();
        self
    }

    pub fn stale_epoch(known: u64) -> Self {
        let message = format!("attach number {known} is already known; attach again with {}", known.saturating_add(1));
        Refusal { known: Some(known), ..Refusal::new(Code::StaleEpoch, message) }
    }
}
