//! The error codes of the public interface.
//!
//! Every plane names its errors with this enum, so no code crosses a crate as text. One table gives each code its
//! number in the protobuf schema, its HTTP status, its gRPC status and the exit status of the command line. A code
//! without a row does not compile.

use std::fmt;

/// Exit statuses of the command line.
const FAILED: u8 = 1;
const BAD_USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;
const MISSING: u8 = 4;
const REJECTED: u8 = 5;

/// The gRPC status codes that Convoke uses, by their standard numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum GrpcStatus {
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $http:literal, $grpc:ident, $exit:ident;)*) => {
        /// An error code of the interface: `{"error":{"code":…}}`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// Returns the name in JSON: `ALREADY_REGISTERED`.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$name => $http,)* }
            }

            pub const fn grpc_status(self) -> GrpcStatus {
                match self { $(ErrorCode::$name => GrpcStatus::$grpc,)* }
            }

            /// Returns the exit status of a command that ends with this error.
            pub const fn exit_status(self) -> u8 {
                match self { $(ErrorCode::$name => $exit,)* }
            }
        }
    };
}

codes! {
    /// A code that this version does not know. Never sent.
    Unknown = 0, "UNKNOWN", 500, Internal, FAILED;
    InvalidMember = 1, "INVALID_MEMBER", 400, InvalidArgument, BAD_USAGE;
    InvalidFilter = 2, "INVALID_FILTER", 400, InvalidArgument, BAD_USAGE;
    InvalidArgument = 3, "INVALID_ARGUMENT", 400, InvalidArgument, BAD_USAGE;
    TooLarge = 4, "TOO_LARGE", 413, InvalidArgument, BAD_USAGE;
    Unauthenticated = 5, "UNAUTHENTICATED", 401, Unauthenticated, REJECTED;
    PermissionDenied = 6, "PERMISSION_DENIED", 403, PermissionDenied, REJECTED;
    NotFound = 7, "NOT_FOUND", 404, NotFound, MISSING;
    NotRegistered = 8, "NOT_REGISTERED", 404, NotFound, MISSING;
    SessionGone = 9, "SESSION_GONE", 404, NotFound, MISSING;
    AlreadyRegistered = 10, "ALREADY_REGISTERED", 409, AlreadyExists, REJECTED;
    TakenOver = 11, "TAKEN_OVER", 409, Aborted, REJECTED;
    Superseded = 12, "SUPERSEDED", 409, Aborted, REJECTED;
    /// Registry: the claim is not above the highest known one (rule C1).
    StaleClaim = 13, "STALE_CLAIM", 409, Aborted, REJECTED;
    StaleVersion = 14, "STALE_VERSION", 412, FailedPrecondition, REJECTED;
    FailedPrecondition = 15, "FAILED_PRECONDITION", 412, FailedPrecondition, REJECTED;
    Compacted = 16, "COMPACTED", 410, OutOfRange, FAILED;
    ResourceExhausted = 17, "RESOURCE_EXHAUSTED", 429, ResourceExhausted, FAILED;
    NotReady = 18, "NOT_READY", 503, Unavailable, UNREACHABLE;
    NotLeader = 19, "NOT_LEADER", 503, Unavailable, UNREACHABLE;
    NoQuorum = 20, "NO_QUORUM", 503, Unavailable, UNREACHABLE;
    /// The request was not sent in time. It has no effect.
    Timeout = 21, "TIMEOUT", 504, DeadlineExceeded, FAILED;
    /// Log: the request may have been applied, or may still be.
    OutcomeUnknown = 22, "OUTCOME_UNKNOWN", 504, Unknown, FAILED;
    Internal = 23, "INTERNAL", 500, Internal, FAILED;
    /// Log: the request names another epoch than the current one.
    StaleEpoch = 24, "STALE_EPOCH", 409, Aborted, REJECTED;
    /// Registry: writes of the session that the client knows are lost (rule C17).
    WritesLost = 25, "WRITES_LOST", 409, Aborted, REJECTED;
    /// Log: another lease holds the lock.
    LockHeld = 26, "LOCK_HELD", 409, Aborted, REJECTED;
    /// Registry: a later request of the HTTP session has written the member (rule C10).
    StaleRequest = 27, "STALE_REQUEST", 409, Aborted, REJECTED;
}

impl ErrorCode {
    /// Returns the number in the protobuf schema (`convoke.v1.Error.Code`).
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Returns the code with this number, or [`ErrorCode::Unknown`].
    pub fn from_number(number: i32) -> ErrorCode {
        ErrorCode::find(|code| code.number() == number)
    }

    /// Returns the code with this name, or [`ErrorCode::Unknown`].
    pub fn from_name(name: &str) -> ErrorCode {
        ErrorCode::find(|code| code.as_str() == name)
    }

    fn find(wanted: impl Fn(ErrorCode) -> bool) -> ErrorCode {
        ErrorCode::ALL.iter().copied().find(|code| wanted(*code)).unwrap_or(ErrorCode::Unknown)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GrpcStatus as Grpc;

    /// The table of the interface, row by row.
    #[test]
    fn codes_have_the_statuses_of_the_interface() {
        let rows = [
            ("INVALID_MEMBER INVALID_FILTER INVALID_ARGUMENT", 400, Grpc::InvalidArgument, 2),
            ("UNAUTHENTICATED", 401, Grpc::Unauthenticated, 5),
            ("PERMISSION_DENIED", 403, Grpc::PermissionDenied, 5),
            ("NOT_FOUND NOT_REGISTERED SESSION_GONE", 404, Grpc::NotFound, 4),
            ("ALREADY_REGISTERED", 409, Grpc::AlreadyExists, 5),
            (
                "TAKEN_OVER SUPERSEDED STALE_CLAIM STALE_REQUEST STALE_EPOCH WRITES_LOST LOCK_HELD",
                409,
                Grpc::Aborted,
                5,
            ),
            ("STALE_VERSION FAILED_PRECONDITION", 412, Grpc::FailedPrecondition, 5),
            ("TOO_LARGE", 413, Grpc::InvalidArgument, 2),
            ("COMPACTED", 410, Grpc::OutOfRange, 1),
            ("RESOURCE_EXHAUSTED", 429, Grpc::ResourceExhausted, 1),
            ("NOT_READY NOT_LEADER NO_QUORUM", 503, Grpc::Unavailable, 3),
            ("TIMEOUT", 504, Grpc::DeadlineExceeded, 1),
            ("OUTCOME_UNKNOWN", 504, Grpc::Unknown, 1),
            ("INTERNAL", 500, Grpc::Internal, 1),
        ];
        let mut named = 0;
        for (names, http, grpc, exit) in rows {
            for name in names.split(' ') {
                let code = ErrorCode::from_name(name);
                assert_eq!(code.as_str(), name);
                assert_eq!((code.http_status(), code.grpc_status(), code.exit_status()), (http, grpc, exit), "{name}");
                named += 1;
            }
        }
        assert_eq!(named + 1, ErrorCode::ALL.len(), "every code but UNKNOWN is in the interface");
    }

    #[test]
    fn codes_round_trip_through_names_and_numbers() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_name(code.as_str()), *code);
            assert_eq!(ErrorCode::from_number(code.number()), *code);
        }
        assert_eq!(ErrorCode::from_name("NEW_IN_A_LATER_VERSION"), ErrorCode::Unknown);
        assert_eq!(ErrorCode::from_number(9_999), ErrorCode::Unknown);
    }
}
