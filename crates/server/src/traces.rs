//! Spans of client requests (docs/monitoring.md). Without an exporter they cost next to nothing. They contain routes
//! and never paths, because the paths of HTTP sessions are secret.

use ::http::{HeaderMap, Method, StatusCode};
use convoke_trace::{TARGET, TRACEPARENT};
use tracing::field::Empty;
use tracing::{Span, info_span};

/// The span of an HTTP request. `route` is `None` if no route matches.
pub(crate) fn http(method: &Method, route: Option<&str>, headers: &HeaderMap) -> Span {
    info_span!(
        target: TARGET,
        "http",
        otel.kind = "server",
        otel.name = http_name(method, route),
        otel.status_code = Empty,
        traceparent = caller(headers),
        http.request.method = known(method),
        http.route = route,
        http.response.status_code = Empty,
        "error.type" = Empty,
    )
}

fn http_name(method: &Method, route: Option<&str>) -> String {
    match route {
        Some(route) => format!("{} {route}", known(method)),
        None => known(method).to_owned(),
    }
}

/// Maps unknown methods to one name, so that clients cannot create arbitrary span names.
fn known(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::PUT | Method::POST | Method::PATCH | Method::DELETE => method.as_str(),
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

/// `error` is the code with which the request was rejected.
pub(crate) fn http_answered(span: &Span, status: StatusCode, error: Option<&str>) {
    span.record("http.response.status_code", status.as_u16());
    if let Some(error) = error {
        span.record("error.type", error);
    }
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of a gRPC call. `method` is like `/convoke.v1.Registry/Get`; `None` if it is not known.
pub(crate) fn grpc(method: Option<&str>, headers: &HeaderMap) -> Span {
    let method = method.unwrap_or("/other").trim_start_matches('/');
    info_span!(
        target: TARGET,
        "grpc",
        otel.kind = "server",
        otel.name = method,
        otel.status_code = Empty,
        traceparent = caller(headers),
        rpc.system = "grpc",
        rpc.method = method,
        rpc.grpc.status_code = Empty,
    )
}

pub(crate) fn grpc_answered(span: &Span, code: tonic::Code) {
    use tonic::Code as C;
    span.record("rpc.grpc.status_code", code as i64);
    // The OpenTelemetry conventions list these codes as server errors; the others are errors of the client.
    if matches!(code, C::Unknown | C::DeadlineExceeded | C::Unimplemented | C::Internal | C::Unavailable | C::DataLoss)
    {
        span.record("otel.status_code", "ERROR");
    }
}

/// The span of an attach, until the node has decided.
pub(crate) fn attach(parent: &Span, client: &str) -> Span {
    info_span!(
        target: TARGET,
        parent: parent,
        "session.attach",
        convoke.client = client,
        convoke.members = Empty,
        "error.type" = Empty,
    )
}

pub(crate) fn attached(span: &Span, members: usize) {
    span.record("convoke.members", members);
}

/// The span of the requests in one message of a session, until all are answered.
pub(crate) fn requests(count: usize) -> Span {
    info_span!(target: TARGET, parent: None, "session.requests", convoke.requests = count, convoke.rejected = Empty)
}

/// The span of one log request on a link that carries many.
pub(crate) fn log_request(traceparent: &str) -> Span {
    info_span!(target: TARGET, parent: None, "log.request", otel.kind = "server", traceparent = traceparent, "error.type" = Empty)
}

pub(crate) fn rejected(span: &Span, code: &str) {
    span.record("error.type", code);
}

fn caller(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT)?.to_str().ok()
}
