//! The table of error codes, and how an error travels.

use crate::v1;
use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

pub use v1::error::Code;

/// Exit codes of the command line.
const FAILURE: u8 = 1;
const BAD_INPUT: u8 = 2;
const UNREACHABLE: u8 = 3;
const NOT_FOUND: u8 = 4;
const REFUSED: u8 = 5;

impl Code {
    /// HTTP status, gRPC status code and exit code.
    fn row(self) -> (u16, tonic::Code, u8) {
        use tonic::Code as Grpc;
        match self {
            Code::InvalidMember | Code::InvalidFilter | Code::InvalidArgument => {
                (400, Grpc::InvalidArgument, BAD_INPUT)
            }
            Code::TooLarge => (413, Grpc::InvalidArgument, BAD_INPUT),
            Code::Unauthenticated => (401, Grpc::Unauthenticated, REFUSED),
            Code::PermissionDenied => (403, Grpc::PermissionDenied, REFUSED),
            Code::NotFound | Code::NotRegistered | Code::SessionGone => (404, Grpc::NotFound, NOT_FOUND),
            Code::AlreadyRegistered => (409, Grpc::AlreadyExists, REFUSED),
            Code::TakenOver | Code::Superseded | Code::StaleEpoch => (409, Grpc::Aborted, REFUSED),
            Code::StaleVersion | Code::FailedPrecondition => (412, Grpc::FailedPrecondition, REFUSED),
            Code::Compacted => (410, Grpc::OutOfRange, FAILURE),
            Code::ResourceExhausted => (429, Grpc::ResourceExhausted, FAILURE),
            Code::NotReady | Code::NotLeader | Code::NoQuorum => (503, Grpc::Unavailable, UNREACHABLE),
            Code::Timeout => (504, Grpc::DeadlineExceeded, FAILURE),
            Code::OutcomeUnknown => (504, Grpc::Unknown, FAILURE),
            Code::Internal | Code::Unknown => (500, Grpc::Internal, FAILURE),
        }
    }

    pub fn http_status(self) -> u16 {
        self.row().0
    }

    pub fn grpc_code(self) -> tonic::Code {
        self.row().1
    }

    pub fn exit_code(self) -> u8 {
        self.row().2
    }

    /// As in JSON: `ALREADY_REGISTERED`.
    pub fn as_str(self) -> &'static str {
        self.as_str_name()
    }

    /// The nearest code for a status that came without an [`Error`], from a proxy for example.
    fn from_grpc(code: tonic::Code) -> Code {
        use tonic::Code as Grpc;
        match code {
            Grpc::InvalidArgument => Code::InvalidArgument,
            Grpc::Unauthenticated => Code::Unauthenticated,
            Grpc::PermissionDenied => Code::PermissionDenied,
            Grpc::NotFound => Code::NotFound,
            Grpc::AlreadyExists => Code::AlreadyRegistered,
            Grpc::FailedPrecondition => Code::FailedPrecondition,
            Grpc::OutOfRange => Code::Compacted,
            Grpc::ResourceExhausted => Code::ResourceExhausted,
            Grpc::Unavailable | Grpc::Unimplemented => Code::NotReady,
            Grpc::DeadlineExceeded | Grpc::Unknown | Grpc::Cancelled | Grpc::Aborted => Code::OutcomeUnknown,
            Grpc::Ok | Grpc::Internal | Grpc::DataLoss => Code::Internal,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Ok(Code::from_str_name(&text).unwrap_or(Code::Unknown))
    }
}

/// Why something was refused. Nothing has changed by a refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    pub code: Code,
    /// One sentence that says what to do.
    pub message: String,
    /// The input field that was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The limit that was exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// With [`Code::StaleEpoch`]: the highest attach number known. With [`Code::FailedPrecondition`] of a compare-and-set: the modify
    /// revision found, 0 if the key does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<u64>,
    /// With [`Code::InvalidFilter`]: the position of the error in the filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<v1::error::Position>,
    /// What errors of the log plane also say.
    #[serde(flatten, deserialize_with = "log_context", skip_serializing_if = "Option::is_none")]
    pub log: Option<Box<LogContext>>,
}

/// What errors of the log plane also say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogContext {
    /// With [`Code::OutcomeUnknown`]: what to resolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<v1::RequestId>,
    /// With [`Code::NotLeader`] and [`Code::NoQuorum`]: the group, the last known leader first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<v1::Replica>,
    /// The present epoch.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::json::epoch")]
    pub epoch: Option<v1::Epoch>,
}

impl Eq for LogContext {}

impl LogContext {
    fn if_any(self) -> Option<Box<LogContext>> {
        (self != LogContext::default()).then(|| Box::new(self))
    }
}

fn log_context<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<LogContext>>, D::Error> {
    LogContext::deserialize(deserializer).map(LogContext::if_any)
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), field: None, limit: None, known: None, position: None, log: None }
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

    /// Names the request of the log plane that it is about.
    #[must_use]
    pub fn request(mut self, request: v1::RequestId) -> Error {
        self.log.get_or_insert_default().request = Some(request);
        self
    }

    /// Tells the group of replicas, the last known leader first.
    #[must_use]
    pub fn members(mut self, members: Vec<v1::Replica>, epoch: Option<v1::Epoch>) -> Error {
        let log = self.log.get_or_insert_default();
        (log.members, log.epoch) = (members, epoch);
        self
    }

    /// The request of the log plane that it is about.
    pub fn about(&self) -> Option<v1::RequestId> {
        self.log.as_ref()?.request
    }
}

impl From<Error> for v1::Error {
    fn from(error: Error) -> v1::Error {
        v1::Error {
            code: error.code.into(),
            message: error.message,
            field: error.field,
            limit: error.limit,
            known: error.known,
            position: error.position,
            request: error.log.as_ref().and_then(|log| log.request),
            epoch: error.log.as_ref().and_then(|log| log.epoch),
            members: error.log.map(|log| log.members).unwrap_or_default(),
        }
    }
}

impl From<v1::Error> for Error {
    fn from(error: v1::Error) -> Error {
        let code = error.code();
        let log = LogContext { request: error.request, members: error.members, epoch: error.epoch };
        let v1::Error { message, field, limit, known, position, .. } = error;
        Error { code, message, field, limit, known, position, log: log.if_any() }
    }
}

/// The standard envelope for details of a gRPC status (google.rpc.Status), which libraries of all languages open.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

const TYPE_URL: &str = "type.googleapis.com/convoke.v1.Error";

impl From<Error> for tonic::Status {
    fn from(error: Error) -> tonic::Status {
        let code = error.code.grpc_code();
        let message = error.message.clone();
        let value = v1::Error::from(error).encode_to_vec();
        let details = vec![Any { type_url: TYPE_URL.to_owned(), value }];
        let details = RichStatus { code: code.into(), message: message.clone(), details }.encode_to_vec();
        tonic::Status::with_details(code, message, details.into())
    }
}

impl From<&tonic::Status> for Error {
    fn from(status: &tonic::Status) -> Error {
        let rich = RichStatus::decode(status.details()).unwrap_or_default();
        let detail = rich.details.iter().find(|detail| detail.type_url.ends_with("/convoke.v1.Error"));
        match detail.and_then(|detail| v1::Error::decode(detail.value.as_slice()).ok()) {
            Some(error) => error.into(),
            None => Error::new(Code::from_grpc(status.code()), status.message()),
        }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Error {
        Error::from(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Code> {
        (1..=23).map(|number| Code::try_from(number).unwrap())
    }

    /// The table of the interface, word by word.
    #[test]
    fn codes_mean_what_the_interface_says() {
        use tonic::Code as Grpc;
        for (names, http, grpc, exit) in [
            ("INVALID_MEMBER INVALID_FILTER INVALID_ARGUMENT", 400, Grpc::InvalidArgument, 2),
            ("UNAUTHENTICATED", 401, Grpc::Unauthenticated, 5),
            ("PERMISSION_DENIED", 403, Grpc::PermissionDenied, 5),
            ("NOT_FOUND NOT_REGISTERED SESSION_GONE", 404, Grpc::NotFound, 4),
            ("ALREADY_REGISTERED", 409, Grpc::AlreadyExists, 5),
            ("TAKEN_OVER SUPERSEDED STALE_EPOCH", 409, Grpc::Aborted, 5),
            ("STALE_VERSION FAILED_PRECONDITION", 412, Grpc::FailedPrecondition, 5),
            ("TOO_LARGE", 413, Grpc::InvalidArgument, 2),
            ("COMPACTED", 410, Grpc::OutOfRange, 1),
            ("RESOURCE_EXHAUSTED", 429, Grpc::ResourceExhausted, 1),
            ("NOT_READY NOT_LEADER NO_QUORUM", 503, Grpc::Unavailable, 3),
            ("TIMEOUT", 504, Grpc::DeadlineExceeded, 1),
            ("OUTCOME_UNKNOWN", 504, Grpc::Unknown, 1),
            ("INTERNAL", 500, Grpc::Internal, 1),
        ] {
            for name in names.split(' ') {
                let code = Code::from_str_name(name).unwrap();
                assert_eq!((code.http_status(), code.grpc_code(), code.exit_code()), (http, grpc, exit), "{name}");
            }
        }
    }

    #[test]
    fn an_error_survives_the_way_through_a_grpc_status() {
        for code in all() {
            let error = Error { known: Some(7), ..Error::new(code, "no").field("id").limit(3).at(1, 9) };
            let status = tonic::Status::from(error.clone());
            assert_eq!(status.code(), code.grpc_code());
            assert_eq!(Error::from(status), error);
        }
    }

    #[test]
    fn a_status_of_somebody_else_becomes_the_nearest_error() {
        let error = Error::from(tonic::Status::unavailable("upstream connect error"));
        assert_eq!(error, Error::new(Code::NotReady, "upstream connect error"));
        let garbled = tonic::Status::with_details(tonic::Code::NotFound, "x", vec![0xff, 0xff].into());
        assert_eq!(Error::from(garbled).code, Code::NotFound);
    }

    #[test]
    fn errors_of_the_log_plane_say_more() {
        let leader = v1::Replica { replica: 1, node: "n1".into(), leader: true, ..v1::Replica::default() };
        let epoch = v1::Epoch { term: 3, replica: 1 };
        let error = Error::new(Code::NotLeader, "elsewhere").members(vec![leader], Some(epoch));
        assert_eq!(Error::from(tonic::Status::from(error.clone())), error);
        let text = serde_json::to_string(&error).unwrap();
        assert!(text.contains(r#""epoch":"3@1""#) && text.contains(r#""node":"n1""#), "{text}");
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
        let unknown = Error::new(Code::OutcomeUnknown, "lost").request(v1::RequestId { session: 7, number: 9 });
        let text = serde_json::to_string(&unknown).unwrap();
        assert_eq!(text, r#"{"code":"OUTCOME_UNKNOWN","message":"lost","request":{"session":7,"number":9}}"#);
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), unknown);
        assert_eq!(unknown.about(), Some(v1::RequestId { session: 7, number: 9 }));
    }

    #[test]
    fn json_has_the_fields_that_say_something() {
        let error = Error::new(Code::AlreadyRegistered, "taken").field("id");
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(text, r#"{"code":"ALREADY_REGISTERED","message":"taken","field":"id"}"#);
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
        let unknown: Error = serde_json::from_str(r#"{"code":"OF_TOMORROW","message":"m"}"#).unwrap();
        assert_eq!(unknown.code, Code::Unknown);
    }
}
