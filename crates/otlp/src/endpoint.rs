//! Where the collector is.

use http::Uri;
use http::uri::Scheme;
use std::fmt;

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;
const PATH: &str = "v1/traces";

/// The URL that spans are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(pub(crate) Uri);

/// Continues a sentence that begins with the name of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    Tls,
    NoUrl,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndpointError::Tls => {
                "begins with https, which nodes do not speak to a collector: run one on this machine that passes on, \
                 and write http://127.0.0.1:4318"
            }
            EndpointError::NoUrl => "is no address of a collector: write it like http://127.0.0.1:4318",
        })
    }
}

impl std::error::Error for EndpointError {}

impl Endpoint {
    /// `http://HOST[:PORT][/BASE]`. What is posted goes to `v1/traces` below.
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
        let url = format!("http://{host}:{port}{base}/{PATH}").parse();
        url.map(Endpoint).map_err(|_| EndpointError::NoUrl)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
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
