//! Errors on the wire, as a message and as JSON.

use crate::v1;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

pub use convoke_base::ErrorCode;

/// Serializes a code by its name.
mod by_name {
    use super::{Deserialize, Deserializer, ErrorCode, Serializer};

    pub(super) fn serialize<S: Serializer>(code: &ErrorCode, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(code.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ErrorCode, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Ok(ErrorCode::from_name(&text))
    }
}

/// Longest time that a client waits because a node asks for it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The error of a request that was rejected or failed. A rejected request has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    #[serde(with = "by_name")]
    pub code: ErrorCode,
    /// One sentence with the cause and what to do.
    pub message: String,
    /// Name of the invalid input field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Limit that was exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// With [`ErrorCode::StaleClaim`]: the highest claim that the node knows. With [`ErrorCode::FailedPrecondition`]
    /// of a compare-and-set: the modify revision of the key, 0 if the key does not exist. With
    /// [`ErrorCode::Compacted`] of a revision: the oldest revision that the history contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<u64>,
    /// With [`ErrorCode::ResourceExhausted`] of a rate limit: time after which the request can be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With [`ErrorCode::InvalidFilter`]: the position of the error in the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<v1::error::Position>,
    /// Additional fields of errors of the log plane.
    #[serde(flatten, deserialize_with = "log_context", skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<LogContext>>,
}

/// Additional fields of errors of the log plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogContext {
    /// The request that the error refers to. With [`ErrorCode::OutcomeUnknown`]: the request to resolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<v1::RequestId>,
    /// With [`ErrorCode::NotLeader`] and [`ErrorCode::NoQuorum`]: the replicas of the group, the last known leader
    /// first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<v1::Replica>,
    /// The current epoch.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::json::epoch")]
    pub epoch: Option<v1::Epoch>,
}

impl Eq for LogContext {}

impl LogContext {
    fn non_empty(self) -> Option<Box<LogContext>> {
        (self != LogContext::default()).then(|| Box::new(self))
    }
}

fn log_context<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<LogContext>>, D::Error> {
    LogContext::deserialize(deserializer).map(LogContext::non_empty)
}

impl Error {
    /// Returns how long a caller should wait before it tries again: zero if the node named no time, and at most a minute.
    pub fn retry_after(&self) -> Duration {
        Duration::from_millis(self.retry_after_ms.unwrap_or(0)).min(RETRY_AFTER_MAX)
    }

    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            field: None,
            limit: None,
            known: None,
            retry_after_ms: None,
            position: None,
            log: None,
        }
    }

    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Error {
        self.field = Some(field.into());
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: u64) -> Error {
        self.limit = Some(limit);
        self
    }

    /// Sets the position of the error in the filter, counted from 1.
    #[must_use]
    pub fn at(mut self, line: usize, column: usize) -> Error {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.position = Some(v1::error::Position { line: number(line), column: number(column) });
        self
    }

    /// Sets the log request that the error refers to.
    #[must_use]
    pub fn request(mut self, request: v1::RequestId) -> Error {
        self.log.get_or_insert_default().request = Some(request);
        self
    }

    /// Sets the replicas of the group, the last known leader first, and the current epoch.
    #[must_use]
    pub fn replicas(mut self, replicas: Vec<v1::Replica>, epoch: Option<v1::Epoch>) -> Error {
        let log = self.log.get_or_insert_default();
        (log.replicas, log.epoch) = (replicas, epoch);
        self
    }

    /// Returns the log request that the error refers to.
    pub fn about(&self) -> Option<v1::RequestId> {
        self.log.as_ref()?.request
    }
}

impl From<Error> for v1::Error {
    fn from(error: Error) -> v1::Error {
        v1::Error {
            code: error.code.number(),
            message: error.message,
            field: error.field,
            limit: error.limit,
            known: error.known,
            retry_after_ms: error.retry_after_ms,
            position: error.position,
            request: error.log.as_ref().and_then(|log| log.request),
            epoch: error.log.as_ref().and_then(|log| log.epoch),
            replicas: error.log.map(|log| log.replicas).unwrap_or_default(),
        }
    }
}

impl From<v1::Error> for Error {
    fn from(error: v1::Error) -> Error {
        let code = error.error_code();
        let log = LogContext { request: error.request, replicas: error.replicas, epoch: error.epoch };
        let v1::Error { message, field, limit, known, retry_after_ms, position, .. } = error;
        Error { code, message, field, limit, known, retry_after_ms, position, log: log.non_empty() }
    }
}

impl v1::Error {
    /// Returns the code as an enum.
    pub fn error_code(&self) -> ErrorCode {
        ErrorCode::from_number(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema and the table of codes agree on names and numbers.
    #[test]
    fn the_schema_has_the_same_codes() {
        for code in ErrorCode::ALL {
            let schema = v1::error::Code::try_from(code.number()).unwrap();
            assert_eq!(schema.as_str_name(), code.as_str());
        }
        let beyond = ErrorCode::ALL.len() as i32;
        assert!(v1::error::Code::try_from(beyond).is_err(), "the schema has a code that the table lacks");
    }

    #[test]
    fn errors_of_the_log_plane_have_additional_fields() {
        let leader = v1::Replica { replica: 1, node: "n1".into(), leader: true, ..v1::Replica::default() };
        let epoch = v1::Epoch { term: 3, replica: 1 };
        let error = Error::new(ErrorCode::NotLeader, "elsewhere").replicas(vec![leader], Some(epoch));
        assert_eq!(Error::from(v1::Error::from(error.clone())), error);
        let text = serde_json::to_string(&error).unwrap();
        assert!(text.contains(r#""epoch":"3@1""#) && text.contains(r#""node":"n1""#), "{text}");
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
        let unknown =
            Error::new(ErrorCode::OutcomeUnknown, "lost").request(v1::RequestId { session: 7, number: 9, log: None });
        let text = serde_json::to_string(&unknown).unwrap();
        assert_eq!(text, r#"{"code":"OUTCOME_UNKNOWN","message":"lost","request":{"session":7,"number":9}}"#);
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), unknown);
        assert_eq!(unknown.about(), Some(v1::RequestId { session: 7, number: 9, log: None }));
    }

    #[test]
    fn json_omits_empty_fields() {
        let error = Error::new(ErrorCode::AlreadyRegistered, "taken").field("id");
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(text, r#"{"code":"ALREADY_REGISTERED","message":"taken","field":"id"}"#);
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
        let unknown: Error = serde_json::from_str(r#"{"code":"OF_TOMORROW","message":"m"}"#).unwrap();
        assert_eq!(unknown.code, ErrorCode::Unknown);
    }
}
