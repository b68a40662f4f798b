//! Checks of members in requests.

use convoke_core::member::{Check, Health, HttpProbe, Probe, ProbeTls};
use convoke_proto::{Error, ErrorCode, v1};

fn invalid(field: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidMember, message).field(field)
}

pub(crate) fn no_probe() -> Error {
    invalid("checks", "a check has exactly one of `http`, `tcp`, `grpc` and `ttl_ms`")
}

/// Converts a check. What was not given gets its default; the core checks the rest.
pub(crate) fn check(check: v1::Check) -> Result<Check, Error> {
    let initial = match check.initial() {
        v1::Health::Unspecified => Health::Critical,
        given => given.into(),
    };
    let probe = probe(check.probe.ok_or_else(no_probe)?)?;
    let id = if check.id.is_empty() { probe.kind().to_owned() } else { check.id };
    let mut converted = Check {
        id,
        name: check.name,
        notes: check.notes,
        probe,
        interval_ms: check.interval_ms,
        timeout_ms: check.timeout_ms,
        initial_delay_ms: check.initial_delay_ms,
        failures_before_critical: check.failures_before_critical,
        successes_before_passing: check.successes_before_passing,
        deregister_critical_after_ms: check.deregister_critical_after_ms,
        initial,
    };
    converted.set_defaults();
    Ok(converted)
}

fn probe(probe: v1::check::Probe) -> Result<Probe, Error> {
    Ok(match probe {
        v1::check::Probe::Http(http) => Probe::Http(Box::new(HttpProbe {
            url: http.url,
            method: http.method,
            headers: http.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect(),
            body: http.body,
            expected_status: http.expected_status.iter().map(|text| range(text)).collect::<Result<_, Error>>()?,
            body_contains: http.body_contains,
            tls: http.tls.map(tls).unwrap_or_default(),
        })),
        v1::check::Probe::Tcp(address) => Probe::Tcp { address },
        v1::check::Probe::Grpc(grpc) => {
            Probe::Grpc { address: grpc.address, service: grpc.service, tls: grpc.tls.map(tls) }
        }
        v1::check::Probe::TtlMs(ttl_ms) => Probe::Ttl { ttl_ms },
    })
}

fn tls(tls: v1::ProbeTls) -> ProbeTls {
    ProbeTls { server_name: tls.server_name, skip_verify: tls.skip_verify }
}

/// `204`, or `200-299`.
fn range(text: &str) -> Result<(u16, u16), Error> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>();
    match (number(first), number(last)) {
        (Ok(first), Ok(last)) => Ok((first, last)),
        _ => {
            let message = format!("{text:?} is neither a status code such as 204 nor a range such as 200-299");
            Err(invalid("checks.http.expected_status", message))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;
    use convoke_proto::json;

    #[test]
    fn a_check_gets_its_defaults() {
        let converted = check(json::Check::http("http://h/").into()).unwrap();
        assert_eq!((converted.id.as_str(), converted.interval_ms, converted.timeout_ms), ("http", 10_000, 5_000));
        assert_eq!((converted.failures_before_critical, converted.initial), (1, Health::Critical));
        let fast = check(v1::Check { interval_ms: 1_000, ..json::Check::tcp("h:1").into() }).unwrap();
        assert_eq!(fast.timeout_ms, 1_000);
    }

    #[test]
    fn a_check_has_one_probe_and_status_codes() {
        assert_eq!(check(v1::Check::default()).unwrap_err().field.as_deref(), Some("checks"));
        let two = json::Check { ttl_ms: Some(1), ..json::Check::tcp("h:1") };
        let spec = json::MemberSpec::new("m", "s").check(two);
        assert_eq!(crate::member_spec(spec).unwrap_err().field.as_deref(), Some("checks"));
        let expecting = |text: &str| {
            let mut http = json::Check::http("http://h/");
            http.http.as_mut().unwrap().expected_status.push(text.to_owned());
            check(http.into())
        };
        for (text, expected) in [("204", (204, 204)), ("200-299", (200, 299))] {
            let Probe::Http(http) = expecting(text).unwrap().probe else { panic!("not HTTP") };
            assert_eq!(http.expected_status, [expected]);
        }
        assert_eq!(expecting("2xx").unwrap_err().field.as_deref(), Some("checks.http.expected_status"));
    }
}
