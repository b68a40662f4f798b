//! Definitions of checks in the bodies of registrations, as native checks.

use super::failure::Failure;
use convoke_consul::Fields;
use convoke_core::filter::Health;
use convoke_core::member::{Check, HttpProbe, Probe, ProbeTls};
use std::time::Duration;

/// Consul's timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Consul raises a shorter time to this one.
const DEREGISTER_AFTER_MIN: Duration = Duration::from_secs(60);
const NO_SCRIPTS: &str = "Scripts are disabled on this agent; Convoke runs no scripts for clients (see docs/consul.md)";

/// A check as a body describes it.
#[derive(Debug)]
pub(crate) struct CheckDefinition {
    /// Empty if it was not given.
    pub(crate) id: String,
    pub(crate) name: String,
    /// The service instance that it belongs to. Only at `agent/check/register`.
    pub(crate) service_id: String,
    pub(crate) check: Check,
}

/// Reads a check.
pub(crate) fn check_definition(fields: Fields) -> Result<CheckDefinition, Failure> {
    // Consul refuses scripts with another status than what it does not understand.
    read(fields).map_err(|why| if why == NO_SCRIPTS { Failure::server(why) } else { Failure::bad(why) })
}

fn read(mut fields: Fields) -> Result<CheckDefinition, String> {
    let mut id = fields.text("ID")?;
    let check_id = fields.text("CheckID")?;
    if !check_id.is_empty() {
        id = check_id;
    }
    let (name, service_id) = (fields.text("Name")?, fields.text("ServiceID")?);
    for field in ["Script", "Args", "ScriptArgs", "DockerContainerID", "Shell"] {
        if fields.ignore(field) {
            return Err(NO_SCRIPTS.to_owned());
        }
    }
    fields.refuse("AliasNode", "checks that follow others")?;
    fields.refuse("AliasService", "checks that follow others")?;
    fields.refuse("Namespace", "namespaces")?;
    let interval = fields.duration("Interval")?;
    let probe = probe(&mut fields, interval)?;
    let mut check = Check { id: id.clone(), name: name.clone(), probe, ..Check::default() };
    check.notes = fields.text("Notes")?;
    check.initial = match fields.text("Status")?.as_str() {
        "" => Health::Critical,
        status => Health::parse(status).ok_or_else(|| format!("Invalid check status: '{status}'"))?,
    };
    check.interval_ms = milliseconds(interval);
    let timeout = fields.duration("Timeout")?;
    check.timeout_ms = milliseconds(if timeout.is_zero() { TIMEOUT } else { timeout });
    let after = fields.duration("DeregisterCriticalServiceAfter")?;
    check.deregister_critical_after_ms =
        if after.is_zero() { 0 } else { milliseconds(after.max(DEREGISTER_AFTER_MIN)) };
    check.failures_before_critical = count(&mut fields, "FailuresBeforeCritical")?;
    check.successes_before_passing = count(&mut fields, "SuccessBeforePassing")?;
    // Convoke has one limit for all outputs.
    fields.ignore("OutputMaxSize");
    fields.ignore("Token");
    fields.end()?;
    check.set_defaults();
    Ok(CheckDefinition { id, name, service_id, check })
}

fn probe(fields: &mut Fields, interval: Duration) -> Result<Probe, String> {
    let (ttl, http, tcp, grpc) =
        (fields.duration("TTL")?, fields.text("HTTP")?, fields.text("TCP")?, fields.text("GRPC")?);
    let skip_verify = fields.boolean("TLSSkipVerify")?;
    let (use_tls, method, body) = (fields.boolean("GRPCUseTLS")?, fields.text("Method")?, fields.text("Body")?);
    let headers = fields.lists("Header")?;
    let tls = ProbeTls { skip_verify, ..ProbeTls::default() };
    let probe = if !http.is_empty() {
        let headers = headers.into_iter().map(|(name, values)| (name, values.join(", "))).collect();
        let (url, method) = (http, method.to_ascii_uppercase());
        Probe::Http(Box::new(HttpProbe { url, method, headers, body, tls, ..HttpProbe::default() }))
    } else if !tcp.is_empty() {
        Probe::Tcp { address: tcp }
    } else if !grpc.is_empty() {
        let (address, service) = grpc.split_once('/').unwrap_or((&grpc, ""));
        Probe::Grpc { address: address.to_owned(), service: service.to_owned(), tls: use_tls.then_some(tls) }
    } else if ttl.is_zero() {
        return Err("Invalid check: TTL must be > 0 for TTL checks".to_owned());
    } else {
        return Ok(Probe::Ttl { ttl_ms: milliseconds(ttl) });
    };
    if !ttl.is_zero() {
        return Err("Invalid check: a check has a TTL, or an address to ask, and not both".to_owned());
    }
    if interval.is_zero() {
        return Err("Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks".to_owned());
    }
    Ok(probe)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn count(fields: &mut Fields, name: &str) -> Result<u32, String> {
    let given = fields.integer(name)?.unwrap_or(0);
    u32::try_from(given).map_err(|_| format!("Invalid check: {name} must not be negative"))
}

/// Gives the checks of a service the ids and names of Consul where they have none.
pub(crate) fn named(definitions: Vec<CheckDefinition>, service: &str, service_id: &str) -> Vec<Check> {
    let several = definitions.len() > 1;
    let named = definitions.into_iter().zip(1..).map(|(definition, number)| {
        let CheckDefinition { id, name, mut check, .. } = definition;
        check.id = match (id.is_empty(), several) {
            (false, _) => id,
            (true, false) => format!("service:{service_id}"),
            (true, true) => format!("service:{service_id}:{number}"),
        };
        check.name = if name.is_empty() { format!("Service '{service}' check") } else { name };
        check
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    fn definition(body: &str) -> Result<CheckDefinition, String> {
        check_definition(Fields::parse(body.as_bytes()).unwrap()).map_err(|failure| failure.parts().1.to_owned())
    }

    #[test]
    fn checks_become_native_ones() {
        let http = r#"{"http":"http://h/x","interval":"10s","method":"head","header":{"a":["b","c"]},
            "deregister_critical_service_after":"1s","success_before_passing":3}"#;
        let check = definition(http).unwrap().check;
        let Probe::Http(probe) = &check.probe else { panic!("{check:?}") };
        assert_eq!(
            (probe.url.as_str(), probe.method.as_str(), probe.headers["a"].as_str()),
            ("http://h/x", "HEAD", "b, c")
        );
        assert_eq!((check.interval_ms, check.timeout_ms, check.deregister_critical_after_ms), (10_000, 10_000, 60_000));
        assert_eq!((check.failures_before_critical, check.successes_before_passing), (1, 3));
        assert_eq!(check.initial, Health::Critical);
        let grpc =
            definition(r#"{"GRPC":"h:1/svc","Interval":"1m","GRPCUseTLS":true,"Status":"passing"}"#).unwrap().check;
        let tls = Some(ProbeTls::default());
        assert_eq!(grpc.probe, Probe::Grpc { address: "h:1".into(), service: "svc".into(), tls });
        assert_eq!(grpc.initial, Health::Passing);
        let ttl = definition(r#"{"TTL":"15s"}"#).unwrap();
        assert_eq!(ttl.check.probe, Probe::Ttl { ttl_ms: 15_000 });
        let checks = named(vec![ttl, definition(r#"{"TTL":"1s","CheckID":"c","Name":"n"}"#).unwrap()], "web", "w1");
        let shown: Vec<_> = checks.iter().map(|check| (check.id.as_str(), check.name.as_str())).collect();
        assert_eq!(shown, [("service:w1:1", "Service 'web' check"), ("c", "n")]);
    }

    #[test]
    fn errors_are_those_of_consul() {
        for (body, message) in [
            (r#"{"TTL":"10x"}"#, "Request decode failed: time: unknown unit \"x\" in duration \"10x\""),
            (r#"{"HTTP":"http://x"}"#, "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks"),
            (r#"{"Notes":"n"}"#, "Invalid check: TTL must be > 0 for TTL checks"),
            (r#"{"Args":["/bin/true"],"Interval":"10s"}"#, NO_SCRIPTS),
            (r#"{"TTL":"1s","Status":"bad"}"#, "Invalid check status: 'bad'"),
        ] {
            assert_eq!(definition(body).unwrap_err(), message, "{body}");
        }
    }
}
