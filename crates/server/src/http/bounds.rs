//! The layer around every route: metrics, limits of sizes before the request is parsed, and the timeout.

use super::extract::no_query;
use super::failure::{Failed, Failure};
use super::routes::RouteInfo;
use crate::surface::Surface;
use crate::traces;
use ::http::{HeaderMap, Method, StatusCode};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use convoke_proto::{Error, ErrorCode};
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument;

/// `route` is `None` if no route matches the request.
pub(crate) async fn bounded(
    State((surface, route)): State<(Arc<Surface>, Option<RouteInfo>)>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let span = traces::http(request.method(), route.map(|route| route.path), request.headers());
    let response = match check(&surface, route, &request) {
        Ok(()) => in_time(&surface, request, next).instrument(span.clone()).await,
        Err(failure) => failure.into_response(),
    };
    let failed = response.extensions().get::<Failed>().map(|failed| failed.0);
    surface.metrics.http.record(
        route.map(|route| route.position),
        failed.map_or(0, |code| code as usize),
        begun.elapsed(),
    );
    traces::http_answered(&span, response.status(), failed.map(ErrorCode::as_str));
    response
}

async fn in_time(surface: &Surface, request: Request, next: Next) -> Response {
    let reading = request.method() == Method::GET || request.method() == Method::HEAD;
    // The body and the answer have a timeout each.
    let timeout = surface.config.timeouts.request * 2;
    let error = match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => return response,
        Err(_) if reading => Error::new(ErrorCode::Timeout, "the node is too busy; try again or use another node"),
        Err(_) => {
            let message = "the node did not answer in time; the request may or may not have been executed";
            Error::new(ErrorCode::OutcomeUnknown, message)
        }
    };
    Failure::from(error).into_response()
}

fn check(surface: &Surface, route: Option<RouteInfo>, request: &Request) -> Result<(), Failure> {
    let limits = &surface.config.limits;
    let uri = request.uri().path_and_query().map_or(0, |text| text.as_str().len());
    if uri > limits.uri_bytes {
        return Err(too_large(StatusCode::URI_TOO_LONG, "path and query", uri, limits.uri_bytes));
    }
    let headers = header_bytes(request.headers());
    if headers > limits.header_bytes {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(too_large(status, "headers", headers, limits.header_bytes));
    }
    match (route, request.uri().query()) {
        (Some(route), Some(query)) if !route.query => Ok(no_query(query)?),
        _ => Ok(()),
    }
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn too_large(status: StatusCode, what: &str, bytes: usize, limit: usize) -> Failure {
    let message = format!("{what} of {bytes} bytes exceeds the limit of {limit}");
    Failure::with_status(status, Error::new(ErrorCode::TooLarge, message).limit(limit as u64))
}
