//! Reads from the HTTP API of a Consul agent.

use crate::args::ImportConsulArgs;
use convoke_cli::http::{HttpClientError, HttpConnection};
use convoke_cli::{CommandError, Result, with_port};
use convoke_client::ClientTls;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// The port of Consul's HTTP API.
const PORT: u16 = 8500;

/// A connection to a Consul agent.
#[derive(Debug)]
pub(super) struct Consul {
    address: String,
    tls: Option<ClientTls>,
    headers: HeaderMap,
    connection: HttpConnection,
    timeout: Duration,
}

impl Consul {
    pub(super) async fn connect(arguments: &ImportConsulArgs) -> Result<Consul> {
        let (address, secure) = address(&arguments.from)?;
        let tls = match (&arguments.from_ca, secure) {
            (Some(ca), true) => {
                Some(ClientTls::load(ca, None).map_err(|error| CommandError::usage(error.to_string()))?)
            }
            (None, false) => None,
            (None, true) => return Err(CommandError::usage("https needs the authority of Consul: set --from-ca FILE")),
            (Some(_), false) => return Err(CommandError::usage("--from-ca needs an address with https://")),
        };
        let token = arguments.from_token_file.as_deref().map(token).transpose()?;
        let headers = token.into_iter().map(|token| (HeaderName::from_static("x-consul-token"), token)).collect();
        let connection =
            HttpConnection::open(&address, tls.as_ref()).await.map_err(|error| unreachable(&address, &error))?;
        Ok(Consul { address, tls, headers, connection, timeout: arguments.inspect.connect.timeout })
    }

    /// The JSON at a path; `None` if Consul has nothing there.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>> {
        let answer = match self.connection.get(path, &self.headers, self.timeout).await {
            Ok(answer) => answer,
            // An idle connection may have been closed. A read can be repeated.
            Err(_) => {
                let failed = |error: HttpClientError| unreachable(&self.address, &error);
                self.connection = HttpConnection::open(&self.address, self.tls.as_ref()).await.map_err(failed)?;
                self.connection.get(path, &self.headers, self.timeout).await.map_err(failed)?
            }
        };
        let (status, body) = answer;
        let text = || String::from_utf8_lossy(&body).trim().chars().take(200).collect::<String>();
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map(Some).map_err(|error| {
                CommandError::failed(format!("{} answers {path} with other JSON than Consul: {error}", self.address))
            }),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::FORBIDDEN => Err(CommandError::rejected(format!(
                "Consul denies {path} ({}): use --from-token-file with a token that may read it",
                text()
            ))),
            _ => Err(CommandError::failed(format!("Consul answers {path} with {status}: {}", text()))),
        }
    }
}

/// The address, and whether it uses TLS.
fn address(from: &str) -> Result<(String, bool)> {
    let (rest, secure) = match from.split_once("://") {
        Some(("https", rest)) => (rest, true),
        Some(("http", rest)) => (rest, false),
        None => (from, false),
        Some((scheme, _)) => {
            return Err(CommandError::usage(format!("--from has the scheme {scheme:?}: use http or https")));
        }
    };
    let rest = rest.trim_end_matches('/');
    Ok((with_port(rest, PORT), secure))
}

fn token(file: &Path) -> Result<HeaderValue> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CommandError::usage(format!("cannot read {}: {error}", file.display())))?;
    let mut value = HeaderValue::from_str(text.trim())
        .map_err(|_| CommandError::usage(format!("{} does not contain a token", file.display())))?;
    value.set_sensitive(true);
    Ok(value)
}

fn unreachable(address: &str, error: &HttpClientError) -> CommandError {
    let cause = match error {
        HttpClientError::Refused => "connection refused",
        HttpClientError::Broken(cause) => cause,
    };
    CommandError::unreachable(format!(
        "cannot read from Consul at {address} ({cause}): use another address with --from"
    ))
}

/// A key as a path: everything except letters, digits, `-._~` and `/` is escaped.
pub(super) fn path_of(key: &str) -> String {
    let mut path = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            path.push(byte.into());
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_and_a_port() {
        let of = |from| address(from).unwrap();
        assert_eq!(of("127.0.0.1:8500"), ("127.0.0.1:8500".to_owned(), false));
        assert_eq!(of("http://consul.local/"), ("consul.local:8500".to_owned(), false));
        assert_eq!(of("https://consul.local:8501"), ("consul.local:8501".to_owned(), true));
        assert!(address("ftp://consul.local").unwrap_err().message.contains("http or https"));
    }

    #[test]
    fn keys_are_escaped_in_paths() {
        assert_eq!(path_of("app/limit-1.x_~"), "app/limit-1.x_~");
        assert_eq!(path_of("a b?c#d%e+ü"), "a%20b%3Fc%23d%25e%2B%C3%BC");
    }
}
