//! Errors as HTTP responses: `{"error":{"code":…}}` with the HTTP status of the error code.

use ::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use convoke_proto::json::ErrorBody;
use convoke_proto::{Error, ErrorCode};
use serde::Serialize;

/// An error as an HTTP response.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    /// In a box, because results carry it.
    error: Box<Error>,
}

impl HttpError {
    /// Overrides the status, for the few HTTP statuses without an error code.
    pub(crate) fn with_status(status: StatusCode, error: Error) -> Self {
        HttpError { status, error: Box::new(error) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn into_error(self) -> Error {
        *self.error
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        HttpError { status, error: Box::new(error) }
    }
}

/// The error code of a response, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(pub(crate) ErrorCode);

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let (code, retry_after) = (self.error.code, self.error.retry_after_ms);
        let mut response = json(self.status, &ErrorBody { error: *self.error });
        if code == ErrorCode::Unauthenticated {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = retry_after {
            // The header has seconds.
            response.headers_mut().insert(header::RETRY_AFTER, wait.div_ceil(1_000).into());
        }
        response.extensions_mut().insert(Failed(code));
        response
    }
}

/// A JSON response.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Strings, numbers and maps with string keys always serialize.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The state may change at any time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A response with an endless stream of server-sent events.
pub(crate) fn event_stream<S>(events: S) -> Response
where
    S: futures_core::Stream<Item = Result<bytes::Bytes, std::convert::Infallible>> + Send + 'static,
{
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not buffer the stream.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
