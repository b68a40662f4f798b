//! Answers: JSON as Consul writes it, and the headers of reads.

use super::params::{Mode, Params, ReadOptions};
use crate::surface::Surface;
use ::http::{HeaderName, HeaderValue, header};
use axum::body::Body;
use axum::response::Response;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");
const KNOWN_LEADER: HeaderName = HeaderName::from_static("x-consul-knownleader");
const LAST_CONTACT: HeaderName = HeaderName::from_static("x-consul-lastcontact");
const CONSISTENCY: HeaderName = HeaderName::from_static("x-consul-effective-consistency");

/// The answer to a request without parameters of reads.
pub(crate) fn plain(params: &Params, value: &impl Serialize) -> Response {
    json(params.pretty(), value)
}

/// The answer to a request that changed something: no body.
pub(crate) fn done() -> Response {
    with_type("text/plain; charset=utf-8", Body::empty())
}

pub(crate) fn json(pretty: bool, value: &impl Serialize) -> Response {
    written(json_text(pretty, value))
}

/// An answer whose JSON is written already.
pub(crate) fn written(text: impl Into<Body>) -> Response {
    with_type("application/json", text.into())
}

/// Writes JSON as Consul does.
pub(crate) fn json_text(pretty: bool, value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and maps with string keys always serialize.
    let mut text = Vec::new();
    let written = if pretty {
        let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
        value.serialize(&mut serializer)
    } else {
        serde_json::to_writer(&mut text, value)
    };
    debug_assert!(written.is_ok(), "{written:?}");
    if pretty {
        text.push(b'\n');
    }
    text
}

pub(crate) fn with_type(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn knows_leader(surface: &Surface) -> bool {
    surface.consul.leader.get(|| surface.log_status().is_ok_and(|status| !status.leader.is_empty()))
}

/// Adds the index alone.
pub(crate) fn index_header(mut response: Response, index: u64) -> Response {
    response.headers_mut().insert(INDEX, index.max(1).into());
    response
}

/// Adds the headers of reads. `X-Consul-KnownLeader` speaks of the log: the registry has no leader.
pub(crate) fn with_index(mut response: Response, surface: &Surface, options: &ReadOptions, index: u64) -> Response {
    let known = knows_leader(surface);
    let consistency = match options.consistency {
        Mode::Default => "leader",
        Mode::Consistent => "consistent",
        Mode::Stale => "stale",
    };
    response = index_header(response, index);
    let headers = response.headers_mut();
    headers.insert(KNOWN_LEADER, HeaderValue::from_static(if known { "true" } else { "false" }));
    headers.insert(LAST_CONTACT, HeaderValue::from_static("0"));
    headers.insert(CONSISTENCY, HeaderValue::from_static(consistency));
    response
}
