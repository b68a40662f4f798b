//! Rejections: typed negative answers to requests.
//!
//! A rejected request changes no state. The rejection names the wrong field and the limit.

pub use convoke_base::ErrorCode;

/// Why a request was rejected. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Rejection {
    pub code: ErrorCode,
    pub message: String,
    /// The input field that was wrong.
    pub field: Option<&'static str>,
    /// The limit that was exceeded.
    pub limit: Option<u64>,
    /// With [`ErrorCode::StaleClaim`]: the highest claim known here; try again with one more (rule C1).
    pub known: Option<u64>,
}

impl Rejection {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Rejection { code, message: message.into(), field: None, limit: None, known: None }
    }

    pub fn field(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    pub fn limit(mut self, limit: impl TryInto<u64>) -> Self {
        self.limit = limit.try_into().ok();
        self
    }

    pub fn stale_claim(known: u64) -> Self {
        let message = format!("claim {known} is already known; attach again with claim {}", known.saturating_add(1));
        Rejection { known: Some(known), ..Rejection::new(ErrorCode::StaleClaim, message) }
    }
}
