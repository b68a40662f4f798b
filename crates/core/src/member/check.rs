//! Checks of a member: what the client or an operator describes, and the validation (HC1, R-06).

use super::spec::{Empty, check_text, check_value, invalid};
use crate::config::Limits;
use crate::error::{ErrorCode, Rejection};
use convoke_filter::Health;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Checks of one member.
pub const CHECKS_MAX: usize = 16;
/// Bytes of the texts of all checks of one member.
pub const CHECK_TEXTS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the output of one check. A longer one is cut.
pub const OUTPUT_BYTES_MAX: usize = 1024;

const ID_BYTES_MAX: usize = 128;
const NAME_BYTES_MAX: usize = 256;
const NOTES_BYTES_MAX: usize = 1024;
const TARGET_BYTES_MAX: usize = 2048;
const HEADERS_MAX: usize = 16;
const BODY_BYTES_MAX: usize = 4096;
const STATUSES_MAX: usize = 16;
const THRESHOLD_MAX: u32 = 100;
/// Shortest interval and timeout.
const SHORTEST_MS: u64 = 100;
const LONGEST_MS: u64 = 7 * 24 * 3_600_000;
const DEFAULT_INTERVAL_MS: u64 = 10_000;
const DEFAULT_TIMEOUT_MS: u64 = 5_000;

/// A check of a member. Times are milliseconds. After its check on registration, no interval, timeout or threshold is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Check {
    /// Unique in the member.
    pub id: String,
    pub name: String,
    pub notes: String,
    pub probe: Probe,
    pub interval_ms: u64,
    pub timeout_ms: u64,
    pub initial_delay_ms: u64,
    /// Failures in a row until the result is critical.
    pub failures_before_critical: u32,
    /// Successes in a row until the result is passing again.
    pub successes_before_passing: u32,
    /// After this long in critical health, the member is deregistered; 0 for never.
    pub deregister_critical_after_ms: u64,
    /// The result before the first run.
    pub initial: Health,
}

/// How a check finds its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    Http(Box<HttpProbe>),
    /// Passing if a connection can be made to `host:port`.
    Tcp {
        address: String,
    },
    /// The health service of gRPC.
    Grpc {
        /// `host:port`
        address: String,
        /// The service to ask for; empty for the server.
        service: String,
        tls: Option<ProbeTls>,
    },
    /// The application reports its state at least this often.
    Ttl {
        ttl_ms: u64,
    },
}

impl Default for Probe {
    fn default() -> Probe {
        Probe::Ttl { ttl_ms: DEFAULT_INTERVAL_MS }
    }
}

/// An HTTP request and the expected response. Headers are secrets: they are not part of `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct HttpProbe {
    /// `http://` or `https://`, without credentials.
    pub url: String,
    /// Empty for `GET`.
    pub method: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Ranges of passing status codes. Empty: 200 to 299 is passing, 429 is warning.
    pub expected_status: Vec<(u16, u16)>,
    /// Text that the body must contain, if not empty.
    pub body_contains: String,
    pub tls: ProbeTls,
}

impl fmt::Debug for HttpProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({} headers)", self.method, without_query(&self.url), self.headers.len())
    }
}

/// How a check uses TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProbeTls {
    /// Name to verify, if it is not the host.
    pub server_name: String,
    /// Accept any certificate.
    pub skip_verify: bool,
}

impl Probe {
    /// The name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Probe::Http(_) => "http",
            Probe::Tcp { .. } => "tcp",
            Probe::Grpc { .. } => "grpc",
            Probe::Ttl { .. } => "ttl",
        }
    }

    /// What is checked, for display: without the query of a URL, which may contain a secret.
    pub fn target(&self) -> String {
        match self {
            Probe::Http(http) => without_query(&http.url).to_owned(),
            Probe::Tcp { address } => address.clone(),
            Probe::Grpc { address, service, .. } if service.is_empty() => address.clone(),
            Probe::Grpc { address, service, .. } => format!("{address}/{service}"),
            Probe::Ttl { .. } => String::new(),
        }
    }

    /// How long a report counts, of a check that the application reports.
    pub fn ttl_ms(&self) -> Option<u64> {
        match self {
            Probe::Ttl { ttl_ms } => Some(*ttl_ms),
            _ => None,
        }
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

impl Check {
    /// A check with the default times.
    pub fn new(id: impl Into<String>, probe: Probe) -> Check {
        let mut check = Check { id: id.into(), probe, initial: Health::Critical, ..Check::default() };
        check.set_defaults();
        check
    }

    /// Replaces what is 0 because it was not given.
    pub fn set_defaults(&mut self) {
        let or = |value: &mut u64, default| *value = if *value == 0 { default } else { *value };
        or(&mut self.interval_ms, DEFAULT_INTERVAL_MS);
        or(&mut self.timeout_ms, DEFAULT_TIMEOUT_MS.min(self.interval_ms));
        self.failures_before_critical = self.failures_before_critical.max(1);
        self.successes_before_passing = self.successes_before_passing.max(1);
    }

    /// Bytes of all texts.
    fn text_bytes(&self) -> usize {
        let probe = match &self.probe {
            Probe::Http(http) => {
                let headers = http.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
                http.url.len() + http.method.len() + http.body.len() + http.body_contains.len() + headers
            }
            Probe::Tcp { address } => address.len(),
            Probe::Grpc { address, service, .. } => address.len() + service.len(),
            Probe::Ttl { .. } => 0,
        };
        self.id.len() + self.name.len() + self.notes.len() + probe
    }

    fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        check_text("checks.id", &self.id, ID_BYTES_MAX, Empty::Rejected)?;
        check_value("checks.name", &self.name, NAME_BYTES_MAX)?;
        check_lines("checks.notes", &self.notes, NOTES_BYTES_MAX)?;
        within("checks.interval_ms", self.interval_ms, SHORTEST_MS, LONGEST_MS)?;
        within("checks.timeout_ms", self.timeout_ms, SHORTEST_MS, LONGEST_MS)?;
        within("checks.initial_delay_ms", self.initial_delay_ms, 0, LONGEST_MS)?;
        within("checks.deregister_critical_after_ms", self.deregister_critical_after_ms, 0, LONGEST_MS)?;
        let threshold = |field, value: u32| within(field, value.into(), 1, THRESHOLD_MAX.into());
        threshold("checks.failures_before_critical", self.failures_before_critical)?;
        threshold("checks.successes_before_passing", self.successes_before_passing)?;
        self.probe.check(limits)
    }
}

impl Probe {
    fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        let address = |field, address: &str| {
            check_text(field, address, limits.attribute_bytes, Empty::Rejected)?;
            super::spec::check_address(field, address, limits)
        };
        match self {
            Probe::Http(http) => http.check(),
            Probe::Tcp { address: at } => address("checks.tcp", at),
            Probe::Grpc { address: at, service, tls } => {
                address("checks.grpc.address", at)?;
                check_value("checks.grpc.service", service, NAME_BYTES_MAX)?;
                let name = tls.as_ref().map_or("", |tls| &tls.server_name);
                check_value("checks.grpc.tls.server_name", name, NAME_BYTES_MAX)
            }
            Probe::Ttl { ttl_ms } => within("checks.ttl_ms", *ttl_ms, SHORTEST_MS, LONGEST_MS),
        }
    }
}

impl HttpProbe {
    fn check(&self) -> Result<(), Rejection> {
        const URL: &str = "checks.http.url";
        check_text(URL, &self.url, TARGET_BYTES_MAX, Empty::Rejected)?;
        let rest = self.url.strip_prefix("http://").or_else(|| self.url.strip_prefix("https://"));
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        if authority.is_empty() || self.url.contains(char::is_whitespace) {
            let message = format!("{:?} is not a URL with http:// or https:// and a host", without_query(&self.url));
            return Err(invalid(URL, message));
        }
        if authority.contains('@') {
            return Err(invalid(URL, "the URL contains credentials; use the header `authorization`".to_owned()));
        }
        check_value("checks.http.method", &self.method, 16)?;
        if !self.method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(invalid("checks.http.method", format!("{:?} is not a method in capitals", self.method)));
        }
        if self.headers.len() > HEADERS_MAX {
            let message = format!("{} headers, at most {HEADERS_MAX} are allowed", self.headers.len());
            return Err(invalid("checks.http.headers", message).limit(HEADERS_MAX));
        }
        for (name, value) in &self.headers {
            let is_token = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            if !is_token {
                return Err(invalid("checks.http.headers", format!("{name:?} is not the name of a header")));
            }
            // The message must not contain the value.
            check_value("checks.http.headers", value, BODY_BYTES_MAX)?;
        }
        check_lines("checks.http.body", &self.body, BODY_BYTES_MAX)?;
        check_lines("checks.http.body_contains", &self.body_contains, NAME_BYTES_MAX)?;
        check_value("checks.http.tls.server_name", &self.tls.server_name, NAME_BYTES_MAX)?;
        let valid = |(first, last): &(u16, u16)| (100..=999).contains(first) && first <= last && *last <= 999;
        if self.expected_status.len() > STATUSES_MAX || !self.expected_status.iter().all(valid) {
            let message = format!("expected at most {STATUSES_MAX} ranges of status codes between 100 and 999");
            return Err(invalid("checks.http.expected_status", message).limit(STATUSES_MAX));
        }
        Ok(())
    }
}

/// Checks all checks of a member. Only a member without a client is deregistered by a check: a client decides for its own.
pub(super) fn check_checks(checks: &[Check], limits: &Limits) -> Result<(), Rejection> {
    if checks.len() > CHECKS_MAX {
        let message = format!("{} checks, at most {CHECKS_MAX} are allowed", checks.len());
        return Err(invalid("checks", message).limit(CHECKS_MAX));
    }
    let mut ids = BTreeSet::new();
    for check in checks {
        check.check(limits)?;
        if !ids.insert(check.id.as_str()) {
            return Err(invalid("checks.id", format!("check {:?} is listed twice", check.id)));
        }
    }
    let bytes = checks.iter().map(Check::text_bytes).sum::<usize>();
    if bytes > CHECK_TEXTS_BYTES_MAX {
        let message = format!("checks of {bytes} bytes, at most {CHECK_TEXTS_BYTES_MAX} are allowed");
        let rejection = invalid("checks", message).limit(CHECK_TEXTS_BYTES_MAX);
        return Err(Rejection { code: ErrorCode::TooLarge, ..rejection });
    }
    Ok(())
}

fn within(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), Rejection> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(field, format!("{field} is {value}, not between {least} and {most}")).limit(most as usize))
}

/// Checks a text of several lines.
fn check_lines(field: &'static str, text: &str, limit: usize) -> Result<(), Rejection> {
    let single = text.replace(['\n', '\r', '\t'], " ");
    check_value(field, &single, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::MemberSpec;

    fn rejection(change: impl FnOnce(&mut Check)) -> Rejection {
        let mut check = Check::new("web", http(|_| {}));
        change(&mut check);
        let spec = MemberSpec { checks: vec![check], ..MemberSpec::new("m", "s") };
        spec.check(&Limits::default()).unwrap_err()
    }

    fn http(change: impl FnOnce(&mut HttpProbe)) -> Probe {
        let mut probe = HttpProbe { url: "http://10.0.0.1:80/health?token=secret".to_owned(), ..HttpProbe::default() };
        change(&mut probe);
        Probe::Http(Box::new(probe))
    }

    #[test]
    fn each_field_of_a_check_is_named_in_its_rejection() {
        let field = |change: fn(&mut Check)| rejection(change).field.unwrap();
        assert_eq!(field(|c| c.id.clear()), "checks.id");
        assert_eq!(field(|c| c.interval_ms = 1), "checks.interval_ms");
        assert_eq!(field(|c| c.timeout_ms = u64::MAX), "checks.timeout_ms");
        assert_eq!(field(|c| c.failures_before_critical = 0), "checks.failures_before_critical");
        assert_eq!(field(|c| c.probe = Probe::Tcp { address: "h".into() }), "checks.tcp");
        assert_eq!(field(|c| c.probe = Probe::Ttl { ttl_ms: 0 }), "checks.ttl_ms");
        assert_eq!(field(|c| c.probe = http(|h| h.url = "ftp://h/".into())), "checks.http.url");
        assert_eq!(field(|c| c.probe = http(|h| h.url = "http://user:pw@h/".into())), "checks.http.url");
        assert_eq!(field(|c| c.probe = http(|h| h.method = "get".into())), "checks.http.method");
        let header = |h: &mut HttpProbe| drop(h.headers.insert("a b".into(), "v".into()));
        assert_eq!(rejection(|c| c.probe = http(header)).field, Some("checks.http.headers"));
        assert_eq!(field(|c| c.probe = http(|h| h.expected_status = vec![(300, 200)])), "checks.http.expected_status");
    }

    #[test]
    fn a_member_has_a_bounded_number_of_checks_with_different_ids() {
        let checks: Vec<Check> = (0..17).map(|i| Check::new(i.to_string(), Probe::default())).collect();
        assert_eq!(check_checks(&checks, &Limits::default()).unwrap_err().limit, Some(16));
        let twice = [checks[0].clone(), checks[0].clone()];
        assert_eq!(check_checks(&twice, &Limits::default()).unwrap_err().field, Some("checks.id"));
        assert!(check_checks(&checks[..16], &Limits::default()).is_ok());
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = |h: &mut HttpProbe| drop(h.headers.insert("authorization".into(), "Bearer secret".into()));
        let check = Check::new("web", http(secret));
        assert!(!format!("{check:?}").contains("secret"));
        assert_eq!(check.probe.target(), "http://10.0.0.1:80/health");
        let rejected = rejection(|c| {
            c.probe = http(|h| drop(h.headers.insert("authorization".into(), "secret\n".into())));
        });
        assert!(!rejected.message.contains("secret"));
    }
}
