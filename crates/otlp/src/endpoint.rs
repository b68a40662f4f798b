//! The address of the collector.

use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// Default port of OTLP over HTTP.
const PORT: u16 = 4318;
const PATH: &str = "v1/traces";

/// Base address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As a header, and to connect to.
    pub(crate) authority: String,
    pub(crate) path: String,
}

/// The error of parsing an [`Endpoint`]. The text continues a sentence that begins with the name of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    Tls,
    NoUrl,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndpointError::Tls => {
                "begins with https, but nodes cannot use TLS to a collector: run a collector on this machine that forwards \
                 the spans, and set http://127.0.0.1:4318"
            }
            EndpointError::NoUrl => {
                "is not the URL of a collector: expected http://HOST:PORT, for example http://127.0.0.1:4318"
            }
        })
    }
}

impl std::error::Error for EndpointError {}

impl Endpoint {
    /// Parses `http://HOST[:PORT][/BASE]`. Spans are posted to `BASE/v1/traces`.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let uri: Uri = text.trim().parse().map_err(|_| EndpointError::NoUrl)?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => return Err(EndpointError::Tls),
            _ => return Err(EndpointError::NoUrl),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(EndpointError::NoUrl)?;
        let named = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if named || uri.query().is_some() {
            return Err(EndpointError::NoUrl);
        }
        let port = uri.port_u16().unwrap_or(PORT);
        let base = uri.path().trim_end_matches('/');
        Ok(Endpoint { authority: format!("{host}:{port}"), path: format!("{base}/{PATH}") })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_collectors() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector", "http://collector:4318/v1/traces"),
            ("http://collector:80/otlp/", "http://collector:80/otlp/v1/traces"),
            ("http://[::1]:9/", "http://[::1]:9/v1/traces"),
        ] {
            assert_eq!(Endpoint::parse(text).map(|endpoint| endpoint.to_string()).as_deref(), Ok(url));
        }
        assert_eq!(Endpoint::parse("https://collector:4318"), Err(EndpointError::Tls));
        for wrong in
            ["", "collector", "collector:4318", "/v1", "grpc://a:1", "http://", "http://a:1?x=y", "http://u:p@a"]
        {
            assert_eq!(Endpoint::parse(wrong), Err(EndpointError::NoUrl), "{wrong}");
        }
    }
}
