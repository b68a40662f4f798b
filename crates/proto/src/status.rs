//! Errors as a gRPC status with details.

use crate::{Error, ErrorCode, v1};
use prost::Message;

/// Returns the gRPC status of a code.
pub fn grpc_code(code: ErrorCode) -> tonic::Code {
    tonic::Code::from_i32(code.grpc_status() as i32)
}

/// Returns the nearest code for a status without an [`Error`], for example from a proxy.
fn nearest(status: tonic::Code) -> ErrorCode {
    use tonic::Code as Grpc;
    match status {
        Grpc::InvalidArgument => ErrorCode::InvalidArgument,
        Grpc::Unauthenticated => ErrorCode::Unauthenticated,
        Grpc::PermissionDenied => ErrorCode::PermissionDenied,
        Grpc::NotFound => ErrorCode::NotFound,
        Grpc::AlreadyExists => ErrorCode::AlreadyRegistered,
        Grpc::FailedPrecondition => ErrorCode::FailedPrecondition,
        Grpc::OutOfRange => ErrorCode::Compacted,
        Grpc::ResourceExhausted => ErrorCode::ResourceExhausted,
        Grpc::Unavailable | Grpc::Unimplemented => ErrorCode::NotReady,
        Grpc::DeadlineExceeded | Grpc::Unknown | Grpc::Cancelled | Grpc::Aborted => ErrorCode::OutcomeUnknown,
        Grpc::Ok | Grpc::Internal | Grpc::DataLoss => ErrorCode::Internal,
    }
}

/// The standard envelope for details of a gRPC status (google.rpc.Status). gRPC libraries of all languages can read it.
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
        let code = grpc_code(error.code);
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
            None => Error::new(nearest(status.code()), status.message()),
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

    #[test]
    fn an_error_round_trips_through_a_grpc_status() {
        for code in ErrorCode::ALL.iter().copied() {
            let error = Error { known: Some(7), ..Error::new(code, "no").field("id").limit(3).at(1, 9) };
            let status = tonic::Status::from(error.clone());
            assert_eq!(status.code(), grpc_code(code));
            assert_eq!(Error::from(status), error);
        }
    }

    #[test]
    fn a_foreign_status_becomes_the_nearest_error() {
        let error = Error::from(tonic::Status::unavailable("upstream connect error"));
        assert_eq!(error, Error::new(ErrorCode::NotReady, "upstream connect error"));
        let garbled = tonic::Status::with_details(tonic::Code::NotFound, "x", vec![0xff, 0xff].into());
        assert_eq!(Error::from(garbled).code, ErrorCode::NotFound);
    }
}
