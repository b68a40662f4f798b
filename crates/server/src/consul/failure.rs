//! Errors as Consul's clients expect them: plain text, and statuses on which clients decide.

use crate::http::{Failed, HttpError};
use ::http::{HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use convoke_proto::{Error, ErrorCode};

/// What Consul answers when a token lacks a permission. Clients compare the text.
const DENIED: &str = "Permission denied";
/// The prefix of Consul's message without a quorum. Clients compare it and try again.
const NO_LEADER: &str = "No cluster leader";

/// An error as a response.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    text: String,
    code: ErrorCode,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Failure {
        let code = match status {
            StatusCode::NOT_FOUND => ErrorCode::NotFound,
            StatusCode::FORBIDDEN => ErrorCode::PermissionDenied,
            status if status.is_client_error() => ErrorCode::InvalidArgument,
            _ => ErrorCode::Internal,
        };
        Failure { status, text: text.into(), code }
    }

    /// A request that is not valid.
    pub(crate) fn bad(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, text)
    }

    /// Consul's answer to most errors, and to what Convoke has no equivalent of.
    pub(crate) fn server(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    pub(crate) fn denied() -> Failure {
        Failure::new(StatusCode::FORBIDDEN, DENIED)
    }

    /// An error whose message the client must see, also if it is a denial.
    pub(crate) fn with_reason(error: HttpError) -> Failure {
        let status = error.status();
        let Error { code, message, .. } = error.into_error();
        Failure { status, text: message, code }
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> (u16, &str) {
        (self.status.as_u16(), &self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        use ErrorCode as C;
        let Error { code, message, .. } = error;
        let (status, text) = match code {
            C::Unauthenticated | C::PermissionDenied => (StatusCode::FORBIDDEN, DENIED.to_owned()),
            C::InvalidMember | C::InvalidFilter | C::InvalidArgument => (StatusCode::BAD_REQUEST, message),
            C::NotFound | C::NotRegistered | C::SessionGone => (StatusCode::NOT_FOUND, message),
            C::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, message),
            C::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, message),
            C::NotReady | C::NotLeader | C::NoQuorum => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{NO_LEADER}: {message}"))
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, message),
        };
        Failure { status, text, code }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let status = error.status();
        let failure = Failure::from(error.into_error());
        // Statuses without an error code: a path that is too long, a page of another site.
        match failure.code {
            ErrorCode::TooLarge | ErrorCode::InvalidArgument => Failure { status, ..failure },
            _ => failure,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(Failed(self.code));
        response
    }
}
