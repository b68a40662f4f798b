//! The dashboard: static files in the binary. It reads all its data through the public interface.

use super::extract::Segments;
use super::http_error::HttpError;
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_proto::{Error, ErrorCode};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// Allows nothing from other origins and nothing inline: the dashboard shows text that clients registered, which must
/// never run as code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal)+) => {
        &[$(File { name: $name, kind: kind($name), bytes: include_bytes!(concat!("../../ui/", $name)) }),+]
    };
}

const FILES: &[File] = files! {
    "index.html" "style.css" "pages.css" "icon.svg" "theme.js"
    "app.js" "api.js" "sign_in.js" "dom.js" "filter.js" "format.js" "live.js" "metrics.js" "log.js" "stream.js" "table.js" "rows.js"
    "graph.js" "chart.js" "poller.js"
    "overview.js" "services.js" "members.js" "member.js" "events.js" "watchers.js" "keys.js" "key.js" "locks.js" "lock.js"
    "rates.js"
};

const fn kind(name: &str) -> &'static str {
    match name.as_bytes() {
        [.., b'.', b'h', b't', b'm', b'l'] => "text/html; charset=utf-8",
        [.., b'.', b'c', b's', b's'] => "text/css; charset=utf-8",
        [.., b'.', b's', b'v', b'g'] => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

/// The entity tag of each file, a hash of its content.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |file: &File| format!("\"{}\"", URL_SAFE_NO_PAD.encode(&Sha256::digest(file.bytes)[..12]));
    FILES.iter().map(tag).collect()
});

/// `/`: redirects browsers to the dashboard and answers other clients with a hint.
pub(crate) async fn root(headers: HeaderMap) -> Response {
    let browser = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|accept| accept.to_str().is_ok_and(|accept| accept.to_ascii_lowercase().contains("text/html")));
    let mut response = if browser {
        to_dashboard(StatusCode::TEMPORARY_REDIRECT)
    } else {
        missing("no resource at /; the interface is described at /api/v1/openapi.json, the dashboard is at /ui/")
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

pub(crate) async fn redirect_to_ui() -> Response {
    to_dashboard(StatusCode::PERMANENT_REDIRECT)
}

pub(crate) async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

pub(crate) async fn file(Segments(name): Segments<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some((file, tag)) = FILES.iter().zip(TAGS.iter()).find(|(file, _)| file.name == name) else {
        return missing("the dashboard has no such file; it starts at /ui/");
    };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let known = known
        .flat_map(|tags| tags.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    let mut response = Response::new(if known { Body::empty() } else { Body::from(file.bytes) });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.extend([
        (header::CONTENT_TYPE, HeaderValue::from_static(file.kind)),
        // Browsers revalidate before each use, so that an old dashboard does not run against an upgraded node.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ]);
    headers.extend(HeaderValue::from_str(tag).map(|tag| (header::ETAG, tag)));
    response
}

fn to_dashboard(status: StatusCode) -> Response {
    (status, [(header::LOCATION, "/ui/")]).into_response()
}

fn missing(message: &str) -> Response {
    HttpError::from(Error::new(ErrorCode::NotFound, message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_dashboard_have_at_most_120_columns() {
        for file in FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for (number, line) in text.lines().enumerate().filter(|_| file.name != "icon.svg") {
                assert!(line.chars().count() <= 120, "{}:{}: {line}", file.name, number + 1);
            }
        }
    }
}
