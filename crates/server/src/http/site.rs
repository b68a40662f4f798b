//! Requests of web pages from other sites are rejected.
//!
//! A browser lets every page send requests to every address that the browser reaches, loopback included, and there is no
//! authentication. Three checks keep pages of other sites out:
//!
//! - `Sec-Fetch-Site` and `Origin`, which a page cannot forge, must name the site of the node itself. Opening the
//!   dashboard by a link is allowed.
//! - `Host` must be a name that an attacker cannot point to this machine (DNS rebinding): after that, the attacker's page
//!   would be of the same site.
//! - A body must have a content type that an HTML form cannot send, for browsers without the headers above.
//!
//! Clients that are not browsers send neither `Origin` nor `Sec-Fetch-Site`.

use super::http_error::HttpError;
use super::routes::{Body, RouteInfo};
use ::http::{HeaderMap, Method, StatusCode, Uri, Version, header};
use convoke_proto::{Error, ErrorCode};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Suffixes that public DNS does not have: names of this machine, of services in Kubernetes, of private networks.
const PRIVATE_SUFFIXES: [&str; 4] = [".localhost", ".svc", ".svc.cluster.local", ".internal"];

/// Names under which clients reach this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// In lower case.
    names: BTreeSet<String>,
    /// Every name is accepted.
    any: bool,
}

impl Hosts {
    /// `configured` are names without ports; `*` accepts every name. `own` are addresses of the node, with ports.
    pub(crate) fn new<'a>(configured: &'a [String], own: impl IntoIterator<Item = &'a str>) -> Hosts {
        let own = own.into_iter().map(host_of);
        let names = configured.iter().map(String::as_str).chain(own).map(|name| normal(name).to_ascii_lowercase());
        Hosts { names: names.collect(), any: configured.iter().any(|name| name == "*") }
    }

    /// Returns whether a host, without its port, is an address or a name that only this network resolves.
    fn accepts(&self, host: &str) -> bool {
        let host = normal(host).to_ascii_lowercase();
        self.any || is_address(&host) || is_private(&host) || self.names.contains(&host)
    }
}

/// An address cannot be resolved to another one.
fn is_address(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    host.parse::<Ipv4Addr>().is_ok() || bracketed.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
}

/// Names without a dot are those of this machine, of containers and of services in the same namespace.
fn is_private(host: &str) -> bool {
    let word = !host.is_empty() && !host.contains('.') && !host.contains(':');
    word || PRIVATE_SUFFIXES.iter().any(|suffix| host.len() > suffix.len() && host.ends_with(suffix))
}

/// A fully qualified name may end with a dot.
fn normal(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// The host of `host:port`.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        // The colons of an IPv6 address are inside of brackets.
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

/// Checks a request. `route` is `None` if no route matches.
pub(super) fn check(
    hosts: &Hosts,
    route: Option<RouteInfo>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), HttpError> {
    let authority = authority(uri, headers)?;
    // Probes of load balancers use any name, and their answers contain no data.
    if !route.is_some_and(|route| route.probe) {
        check_host(hosts, authority)?;
    }
    let reading = matches!(*method, Method::GET | Method::HEAD);
    let navigation = reading && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
    if !navigation {
        check_page(hosts, authority, headers)?;
    }
    match route.map_or(Body::Raw, |route| route.body) {
        Body::Json => check_type(headers),
        Body::Raw | Body::None => Ok(()),
    }
}

/// Checks a gRPC call. No browser speaks HTTP/2 without TLS, so the host of such a call need not be checked.
pub(crate) fn check_grpc(hosts: &Hosts, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    let authority = authority(uri, headers)?;
    if version != Version::HTTP_2 {
        check_host(hosts, authority)?;
    }
    check_page(hosts, authority, headers)
}

fn check_host(hosts: &Hosts, authority: Option<&str>) -> Result<(), Error> {
    match authority.map(host_of).filter(|host| !hosts.accepts(host)) {
        None => Ok(()),
        Some(host) => Err(denied(format!(
            "host {host:?} is not accepted: add it to allowed_hosts of this node, or use an IP address"
        ))),
    }
}

/// Rejects requests of pages of other sites.
fn check_page(hosts: &Hosts, authority: Option<&str>, headers: &HeaderMap) -> Result<(), Error> {
    if let Some(site) = headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        let site = site.to_str().unwrap_or("unreadable");
        return Err(denied(format!("a web page of another site sent this request (Sec-Fetch-Site: {site})")));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let of_page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let same = of_page.is_some_and(|page| {
        authority.is_some_and(|here| here.eq_ignore_ascii_case(page))
            // A proxy may change the host.
            || hosts.names.contains(&normal(host_of(page)).to_ascii_lowercase())
    });
    match same {
        true => Ok(()),
        false => Err(denied(format!("a web page of another site sent this request (Origin: {origin})"))),
    }
}

/// The host and port that the client used. A client without `Host` is not a browser.
fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, Error> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.as_str()));
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(host), None) => match host.to_str() {
            Ok(host) => Ok(Some(host)),
            Err(_) => Err(denied("the header Host is not readable".to_owned())),
        },
        (Some(_), Some(_)) => Err(denied("the header Host is given twice".to_owned())),
    }
}

/// An HTML form sends `text/plain`, `multipart/form-data` or `application/x-www-form-urlencoded`. The latter is also the
/// default of `curl -d`; a form encodes the braces of JSON in it, so that its body is not JSON.
fn check_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind == "application/x-www-form-urlencoded" {
        return Ok(());
    }
    let message = format!("content type {given:?} is not accepted here: send application/json");
    let error = Error::new(ErrorCode::InvalidArgument, message).field("content-type");
    Err(HttpError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

fn denied(message: String) -> Error {
    Error::new(ErrorCode::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_an_attacker_cannot_point_here_are_accepted() {
        let hosts = Hosts::new(&["Registry.example.com".into()], ["n1.example.com:7700", "10.0.0.1:7700"]);
        for host in [
            "127.0.0.1",
            "10.1.2.3:7700",
            "[::1]",
            "[::1]:7700",
            "localhost:7700",
            "LOCALHOST",
            "a.localhost",
            "n1:7700",
            "convoke.default.svc",
            "convoke.default.svc.cluster.local:7700",
            "n1.c.project.internal",
            "n1.example.com",
            "n1.example.com.:80",
            "registry.EXAMPLE.com:443",
        ] {
            assert!(hosts.accepts(host_of(host)), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "example.com:7700",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7700",
            "1.2.3.4.5",
            ".svc",
            "svc.example",
            "[::1].evil.example",
            "notregistry.example.com",
            "printer.local",
        ] {
            assert!(!hosts.accepts(host_of(host)), "{host}");
        }
        assert!(Hosts::new(&["*".into()], []).accepts("evil.example"));
    }
}
