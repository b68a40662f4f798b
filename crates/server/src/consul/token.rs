//! The token of a request, in one of the three places where Consul's clients put it.

use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header};

/// Prefix of the paths of Consul's HTTP API.
pub(crate) const PREFIX: &str = "/v1/";

const TOKEN: HeaderName = HeaderName::from_static("x-consul-token");

/// A path without a route. Everything but Consul's HTTP API is there on the listener for it.
pub(crate) fn elsewhere() -> Uri {
    Uri::from_static("/v1/")
}

/// Moves the token of a request into the header `Authorization`, where access control reads it. It is removed from the
/// query, so that no log, trace or audit record can contain it. The order is Consul's: `?token=`, `X-Consul-Token`, Bearer.
pub(crate) fn take_token<B>(request: &mut Request<B>) {
    if !request.uri().path().starts_with(PREFIX) {
        return;
    }
    let in_query = take_from_query(request.uri_mut());
    let headers = request.headers_mut();
    let in_header = headers.remove(TOKEN).filter(|token| !token.is_empty());
    if let Some(token) = in_query.filter(|token| !token.is_empty()) {
        show(headers, token.as_bytes());
    } else if let Some(token) = in_header {
        show(headers, token.as_bytes());
    }
}

fn show(headers: &mut HeaderMap, token: &[u8]) {
    // A token that no header can contain is not valid. It must not be ignored, so another invalid one replaces it.
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
    let mut value = value.unwrap_or(HeaderValue::from_static("Bearer unreadable"));
    value.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, value);
}

/// Removes the parameter `token` from the query and returns its value.
fn take_from_query(uri: &mut Uri) -> Option<String> {
    let query = uri.query()?;
    let is_token =
        |pair: &&str| form_urlencoded::parse(pair.as_bytes()).next().is_some_and(|(name, _)| name == "token");
    let (shown, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| is_token(pair));
    let first = shown.first()?;
    let token = form_urlencoded::parse(first.as_bytes()).next().map(|(_, value)| value.into_owned());
    let path = uri.path();
    let rest = if others.is_empty() { path.to_owned() } else { format!("{path}?{}", others.join("&")) };
    let mut parts = uri.clone().into_parts();
    // A part of a valid path and query is valid.
    parts.path_and_query = Some(PathAndQuery::try_from(rest).unwrap_or(PathAndQuery::from_static("/")));
    *uri = Uri::from_parts(parts).unwrap_or_default();
    token
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn taken(uri: &str, headers: &[(&str, &str)]) -> (String, Option<String>) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        take_token(&mut request);
        let shown = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        assert!(!request.headers().contains_key("x-consul-token"));
        (request.uri().to_string(), shown)
    }

    #[test]
    fn the_token_is_moved_from_the_query_and_the_header() {
        let bearer = |token: &str| Some(format!("Bearer {token}"));
        assert_eq!(taken("/v1/kv/a?raw&token=s3%20x&dc=a", &[]), ("/v1/kv/a?raw&dc=a".into(), bearer("s3 x")));
        assert_eq!(taken("http://h:1/v1/kv/a?token=s", &[]), ("http://h:1/v1/kv/a".into(), bearer("s")));
        assert_eq!(taken("/v1/kv/a?tok%65n=s", &[("x-consul-token", "h")]), ("/v1/kv/a".into(), bearer("s")));
        let both = [("authorization", "Bearer b"), ("x-consul-token", "h")];
        assert_eq!(taken("/v1/kv/a?raw", &both), ("/v1/kv/a?raw".into(), bearer("h")));
        assert_eq!(taken("/v1/kv/a?token=", &both[..1]), ("/v1/kv/a".into(), bearer("b")), "an empty token is none");
        assert_eq!(taken("/v1/kv/a?token=x%0a", &[]).1, bearer("unreadable"));
        let native = Request::builder().uri("/api/v1/kv/a?token=s").body(()).unwrap();
        let mut request = native;
        take_token(&mut request);
        assert_eq!(request.uri(), "/api/v1/kv/a?token=s", "only Consul's paths");
    }
}
