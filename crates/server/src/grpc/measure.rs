//! Metrics and typed errors of every gRPC call.

use crate::access::{Permission, permission};
use crate::audit::Recorded;
use crate::error::invalid;
use crate::metrics::Requests;
use crate::service::Reply;
use crate::surface::Surface;
use ::http::Response;
use convoke_proto::{Error, ErrorCode, MESSAGE_BYTES_MAX};
use std::time::Instant;
use tonic::Status;

const CALLS: Recorded = Recorded::Calls;
const DENIALS: Recorded = Recorded::Denials;

/// Every method: its label value in the metrics, what a caller needs, and which calls the audit log contains. Unlisted
/// methods are those of [`UNLISTED`]. A test compares the table with the schema. The messages of attaches and submits are
/// recorded one by one.
const METHODS: &[(&str, Permission, Recorded)] = &[
    // Clients that only watch are attached, too (AU23).
    ("/convoke.v1.Registry/Attach", permission!(Register Service | Read Service), DENIALS),
    ("/convoke.v1.Registry/Watch", permission!(Read Service), DENIALS),
    // Clients that only register learn the nodes of the cluster with it.
    ("/convoke.v1.Registry/List", permission!(Read Service | Register Service), DENIALS),
    ("/convoke.v1.Registry/Get", permission!(Read Service), DENIALS),
    ("/convoke.v1.Admin/Status", permission!(Observe Cluster), DENIALS),
    ("/convoke.v1.Admin/Nodes", permission!(Observe Cluster), DENIALS),
    ("/convoke.v1.Admin/ForgetNode", permission!(Forget Node), CALLS),
    ("/convoke.v1.Admin/DeclareFirstNode", permission!(Reconfigure Cluster), CALLS),
    ("/convoke.v1.Admin/Services", permission!(Read Service), DENIALS),
    ("/convoke.v1.Admin/Explain", permission!(Observe Service), DENIALS),
    ("/convoke.v1.Admin/Drain", permission!(Drain Service | Drain Node), CALLS),
    ("/convoke.v1.Admin/RegisterMember", permission!(Register Service), CALLS),
    ("/convoke.v1.Admin/DeregisterMember", permission!(Register Service), CALLS),
    ("/convoke.v1.Admin/ReportCheck", permission!(Register Service), DENIALS),
    ("/convoke.v1.Admin/Revoke", permission!(Revoke Cluster), CALLS),
    ("/convoke.v1.Admin/Undrain", permission!(Drain Service | Drain Node), CALLS),
    (
        // The first message names the leader, for whatever the client does there (AU23).
        "/convoke.v1.Log/Submit",
        permission!(
            Put Key | Delete Key | Read Key | Lock LockName | Lock Election | Release LockName | Release Election | Open Client
                | Resolve Log | Read LockName | Read Election | Observe Log | Reconfigure Log | Backup Log
        ),
        DENIALS,
    ),
    (
        "/convoke.v1.Log/Read",
        permission!(
            Read Key | Put Key | Delete Key | Observe Log | Read LockName | Lock LockName | Read Election | Lock Election
        ),
        DENIALS,
    ),
    ("/convoke.v1.Log/Watch", permission!(Read Key | Read LockName | Read Election), DENIALS),
    ("/convoke.v1.Log/Resolve", permission!(Put Key | Delete Key | Lock LockName | Lock Election | Resolve Log), CALLS),
    ("/convoke.v1.Log/Members", permission!(Reconfigure Log), CALLS),
    ("/convoke.v1.Log/Sessions", permission!(Observe Log), DENIALS),
    ("/convoke.v1.Log/EndSessions", permission!(Resolve Log), CALLS),
    ("/convoke.v1.Log/Upgrade", permission!(Reconfigure Log), CALLS),
    ("/convoke.v1.Log/Status", permission!(Observe Log), DENIALS),
    ("/convoke.v1.Log/Backup", permission!(Backup Log), CALLS),
];

/// The standard health service shows whether a node is ready, as `/readyz` does.
const HEALTH: &str = "/grpc.health.v1.Health/";
/// Reflection, and methods that do not exist.
const UNLISTED: Permission = permission!(Observe Cluster);

/// Returns every method with what it needs.
pub(crate) fn methods() -> impl Iterator<Item = (&'static str, Permission)> {
    METHODS.iter().map(|(method, permission, _)| (*method, *permission))
}

pub(super) fn needed(path: &str) -> Permission {
    match METHODS.iter().find(|(method, ..)| *method == path) {
        Some((_, permission, _)) => *permission,
        None if path.starts_with(HEALTH) => Permission::Public,
        None => UNLISTED,
    }
}

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
    let methods = methods().map(|(method, _)| method).chain(["other"]);
    Requests::new(methods.map(|method| vec![("method", method.to_owned())]), CODES.to_vec())
}

/// Returns the index of a method in the counters.
pub(super) fn method(path: &str) -> Option<usize> {
    METHODS.iter().position(|(method, ..)| *method == path)
}

/// Returns the method as it was called, if it is known.
pub(super) fn name(method: Option<usize>) -> Option<&'static str> {
    METHODS.get(method?).map(|(method, ..)| *method)
}

/// Returns which calls of a method the audit log contains.
pub(super) fn recorded(method: Option<usize>) -> Recorded {
    method.and_then(|method| METHODS.get(method)).map_or(DENIALS, |(.., recorded)| *recorded)
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
