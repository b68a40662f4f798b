//! Metrics and typed errors of every gRPC call.

use crate::error::invalid;
use crate::metrics::Requests;
use crate::service::Reply;
use crate::surface::Surface;
use ::http::Response;
use convoke_proto::{Error, ErrorCode, MESSAGE_BYTES_MAX};
use std::time::Instant;
use tonic::Status;

/// Methods with their own label value in the metrics.
const METHODS: [&str; 18] = [
    "/convoke.v1.Registry/Attach",
    "/convoke.v1.Registry/Watch",
    "/convoke.v1.Registry/List",
    "/convoke.v1.Registry/Get",
    "/convoke.v1.Admin/Status",
    "/convoke.v1.Admin/Nodes",
    "/convoke.v1.Admin/ForgetNode",
    "/convoke.v1.Admin/BootstrapNode",
    "/convoke.v1.Admin/Services",
    "/convoke.v1.Admin/Explain",
    "/convoke.v1.Admin/Drain",
    "/convoke.v1.Admin/Undrain",
    "/convoke.v1.Log/Submit",
    "/convoke.v1.Log/Read",
    "/convoke.v1.Log/Resolve",
    "/convoke.v1.Log/Members",
    "/convoke.v1.Log/Status",
    "/convoke.v1.Log/Backup",
];

/// Names of the gRPC status codes, in numeric order.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

pub(crate) fn requests() -> Requests {
    let methods = METHODS.iter().copied().chain(["other"]);
    Requests::new(methods.map(|method| vec![("method", method.to_owned())]), CODES.to_vec())
}

/// Returns the index of a method in the counters.
pub(super) fn method(path: &str) -> Option<usize> {
    METHODS.iter().position(|method| *method == path)
}

/// Returns the method as it was called, if it is known.
pub(super) fn name(method: Option<usize>) -> Option<&'static str> {
    METHODS.get(method?).copied()
}

/// Counts a call with its status and returns the response. A stream that starts successfully counts as OK.
pub(super) fn measured(
    surface: &Surface,
    method: Option<usize>,
    begun: Instant,
    mut response: Response<Reply>,
) -> (tonic::Code, Response<Reply>) {
    let mut code = tonic::Code::Ok;
    if let Some(status) = Status::from_header_map(response.headers()) {
        let status = typed(status);
        code = status.code();
        response = status.into_http().map(Reply::Grpc);
    }
    surface.metrics.grpc.record(method, code as usize, begun.elapsed());
    (code, response)
}

/// Adds an error code of the interface to a status that tonic itself produced.
fn typed(status: Status) -> Status {
    if !status.details().is_empty() {
        return status;
    }
    match status.code() {
        tonic::Code::OutOfRange => {
            let limit = MESSAGE_BYTES_MAX as u64;
            Error::new(ErrorCode::TooLarge, "the message is too large").field("message").limit(limit).into()
        }
        tonic::Code::Internal => invalid("message", status.message()).into(),
        _ => status,
    }
}
