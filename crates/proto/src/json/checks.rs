//! Checks of members, as registered and as shown.

use crate::v1;
use convoke_filter::Health;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

impl From<Health> for v1::Health {
    fn from(health: Health) -> v1::Health {
        match health {
            Health::Passing => v1::Health::Passing,
            Health::Warning => v1::Health::Warning,
            Health::Critical => v1::Health::Critical,
        }
    }
}

/// Without a value, a member of an older node: it has no checks.
impl From<v1::Health> for Health {
    fn from(health: v1::Health) -> Health {
        match health {
            v1::Health::Passing | v1::Health::Unspecified => Health::Passing,
            v1::Health::Warning => Health::Warning,
            v1::Health::Critical => Health::Critical,
        }
    }
}

/// A check as registered. Exactly one of `http`, `tcp`, `grpc` and `ttl_ms` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// Unique in the member. Defaults to the kind of the check.
    pub id: String,
    pub name: String,
    pub notes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProbe>,
    /// `host:port`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcProbe>,
    /// The application reports the result at least this often.
    #[serde(alias = "ttl", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Defaults to 10 seconds.
    pub interval_ms: u64,
    /// Defaults to 5 seconds, or to the interval if that is shorter.
    pub timeout_ms: u64,
    pub initial_delay_ms: u64,
    /// 0 counts as 1.
    pub failures_before_critical: u32,
    /// 0 counts as 1.
    pub successes_before_passing: u32,
    /// Only for members without a client; 0 for never.
    pub deregister_critical_after_ms: u64,
    /// The result before the first run. Defaults to critical.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<Health>,
}

impl Check {
    /// A check by an HTTP request.
    pub fn http(url: impl Into<String>) -> Check {
        Check { http: Some(HttpProbe { url: url.into(), ..HttpProbe::default() }), ..Check::default() }
    }

    /// A check by a TCP connection.
    pub fn tcp(address: impl Into<String>) -> Check {
        Check { tcp: Some(address.into()), ..Check::default() }
    }

    /// A check by the health service of gRPC.
    pub fn grpc(address: impl Into<String>) -> Check {
        Check { grpc: Some(GrpcProbe { address: address.into(), ..GrpcProbe::default() }), ..Check::default() }
    }

    /// A check whose result the application reports.
    pub fn ttl(ttl_ms: u64) -> Check {
        Check { ttl_ms: Some(ttl_ms), ..Check::default() }
    }

    /// How many kinds of probes it has.
    pub fn probes(&self) -> usize {
        let given = [self.http.is_some(), self.tcp.is_some(), self.grpc.is_some(), self.ttl_ms.is_some()];
        given.into_iter().filter(|given| *given).count()
    }
}

/// An HTTP request, or only its URL.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "UrlOrProbe")]
pub struct HttpProbe {
    pub url: String,
    /// Defaults to `GET`.
    pub method: String,
    /// Never shown.
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Passing status codes, each as `204` or `200-299`. If empty, 200 to 299 are passing and 429 is a warning.
    pub expected_status: Vec<String>,
    pub body_contains: String,
    pub tls: ProbeTls,
}

/// The headers may be secret.
impl std::fmt::Debug for HttpProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url.split('?').next().unwrap_or_default();
        write!(f, "{} {url} ({} headers)", self.method, self.headers.len())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UrlOrProbe {
    Url(String),
    Probe(FullHttpProbe),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FullHttpProbe {
    url: String,
    method: String,
    headers: BTreeMap<String, String>,
    body: String,
    expected_status: Vec<String>,
    body_contains: String,
    tls: ProbeTls,
}

impl From<UrlOrProbe> for HttpProbe {
    fn from(given: UrlOrProbe) -> HttpProbe {
        match given {
            UrlOrProbe::Url(url) => HttpProbe { url, ..HttpProbe::default() },
            UrlOrProbe::Probe(full) => {
                let FullHttpProbe { url, method, headers, body, expected_status, body_contains, tls } = full;
                HttpProbe { url, method, headers, body, expected_status, body_contains, tls }
            }
        }
    }
}

/// The health service of gRPC, or only its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AddressOrProbe")]
pub struct GrpcProbe {
    /// `host:port`
    pub address: String,
    /// Empty for the whole server.
    pub service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ProbeTls>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AddressOrProbe {
    Address(String),
    Probe(FullGrpcProbe),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FullGrpcProbe {
    address: String,
    service: String,
    tls: Option<ProbeTls>,
}

impl From<AddressOrProbe> for GrpcProbe {
    fn from(given: AddressOrProbe) -> GrpcProbe {
        match given {
            AddressOrProbe::Address(text) => match text.split_once('/') {
                Some((address, service)) => GrpcProbe { address: address.into(), service: service.into(), tls: None },
                None => GrpcProbe { address: text, ..GrpcProbe::default() },
            },
            AddressOrProbe::Probe(FullGrpcProbe { address, service, tls }) => GrpcProbe { address, service, tls },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeTls {
    /// Name to verify, if it is not the host.
    pub server_name: String,
    /// Accept any certificate.
    pub skip_verify: bool,
}

/// A check and its last result. What it sends, such as headers, is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CheckStatus {
    pub id: String,
    pub name: String,
    pub notes: String,
    /// `http`, `tcp`, `grpc` or `ttl`.
    #[serde(rename = "type")]
    pub kind: String,
    /// URL without its query, or address; empty for `ttl`.
    pub target: String,
    pub status: Health,
    pub output: String,
    /// Since when the status holds, in UNIX milliseconds; for display only.
    pub since: u64,
    pub interval_ms: u64,
    pub timeout_ms: u64,
    /// 0 for other types.
    pub ttl_ms: u64,
}

/// Body of `PUT /api/v1/services/{service}/members/{id}/checks/{check}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckReport {
    pub status: Health,
    #[serde(default)]
    pub output: String,
}

impl From<Check> for v1::Check {
    fn from(check: Check) -> v1::Check {
        use v1::check::Probe;
        let grpc = check.grpc.map(|grpc| Probe::Grpc(grpc.into()));
        let probe = check.http.map(|http| Probe::Http(http.into())).or(check.tcp.map(Probe::Tcp)).or(grpc);
        v1::Check {
            id: check.id,
            name: check.name,
            notes: check.notes,
            probe: probe.or(check.ttl_ms.map(Probe::TtlMs)),
            interval_ms: check.interval_ms,
            timeout_ms: check.timeout_ms,
            initial_delay_ms: check.initial_delay_ms,
            failures_before_critical: check.failures_before_critical,
            successes_before_passing: check.successes_before_passing,
            deregister_critical_after_ms: check.deregister_critical_after_ms,
            initial: check.initial.map_or(v1::Health::Unspecified, v1::Health::from).into(),
        }
    }
}

impl From<HttpProbe> for v1::HttpProbe {
    fn from(http: HttpProbe) -> v1::HttpProbe {
        let HttpProbe { url, method, headers, body, expected_status, body_contains, tls } = http;
        v1::HttpProbe { url, method, headers, body, expected_status, body_contains, tls: Some(tls.into()) }
    }
}

impl From<GrpcProbe> for v1::GrpcProbe {
    fn from(grpc: GrpcProbe) -> v1::GrpcProbe {
        v1::GrpcProbe { address: grpc.address, service: grpc.service, tls: grpc.tls.map(Into::into) }
    }
}

impl From<ProbeTls> for v1::ProbeTls {
    fn from(tls: ProbeTls) -> v1::ProbeTls {
        v1::ProbeTls { server_name: tls.server_name, skip_verify: tls.skip_verify }
    }
}

impl From<v1::CheckStatus> for CheckStatus {
    fn from(check: v1::CheckStatus) -> CheckStatus {
        let status = check.status().into();
        CheckStatus {
            id: check.id,
            name: check.name,
            notes: check.notes,
            kind: check.r#type,
            target: check.target,
            status,
            output: check.output,
            since: check.since,
            interval_ms: check.interval_ms,
            timeout_ms: check.timeout_ms,
            ttl_ms: check.ttl_ms,
        }
    }
}

impl From<CheckStatus> for v1::CheckStatus {
    fn from(check: CheckStatus) -> v1::CheckStatus {
        v1::CheckStatus {
            id: check.id,
            name: check.name,
            notes: check.notes,
            r#type: check.kind,
            target: check.target,
            status: v1::Health::from(check.status).into(),
            output: check.output,
            since: check.since,
            interval_ms: check.interval_ms,
            timeout_ms: check.timeout_ms,
            ttl_ms: check.ttl_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use serde_json::from_str;

    #[test]
    fn a_probe_is_an_object_or_its_address() {
        let short: Check = from_str(r#"{"http":"http://h/x"}"#).unwrap();
        let long: Check = from_str(r#"{"http":{"url":"http://h/x"}}"#).unwrap();
        assert_eq!((&short, short.probes()), (&long, 1));
        let grpc: Check = from_str(r#"{"grpc":"h:1/orders"}"#).unwrap();
        assert_eq!(grpc.grpc.unwrap().service, "orders");
        assert_eq!(from_str::<Check>(r#"{"ttl":5000}"#).unwrap(), Check::ttl(5_000));
        assert_eq!(from_str::<Check>(r#"{"ttl_ms":5000,"tcp":"h:1"}"#).unwrap().probes(), 2);
        for bad in [r#"{"script":"x"}"#, r#"{"http":{"uri":"x"}}"#, r#"{"initial":"fine"}"#] {
            assert!(from_str::<Check>(bad).is_err(), "{bad}");
        }
    }
}
