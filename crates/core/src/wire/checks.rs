//! Checks of a member and their results on the wire (HC1).

use super::{CodecError, Reader, Writer};
use crate::member::{CHECKS_MAX, Check, CheckResult, Checks, HttpProbe, OUTPUT_BYTES_MAX, Probe, ProbeTls};
use convoke_filter::Health;
use std::sync::Arc;

/// Bytes of one text of a check.
const TEXT_MAX: u64 = 8 * 1024;
const PAIRS_MAX: u64 = 64;

const HTTP: u8 = 0;
const TCP: u8 = 1;
const GRPC: u8 = 2;
const GRPC_TLS: u8 = 3;
const TTL: u8 = 4;

pub(super) fn encode_checks(w: &mut Writer, checks: &Checks) {
    w.count(checks.results().len());
    for (check, result) in checks.iter() {
        encode_check(w, check);
        w.byte(result.status as u8);
        w.text(&result.output);
        w.varint(result.since);
    }
}

pub(super) fn decode_checks(reader: &mut Reader<'_>) -> Result<Arc<Checks>, CodecError> {
    let count = reader.bounded("checks", CHECKS_MAX as u64)?;
    let mut checks = Vec::with_capacity(count as usize);
    let mut results = Vec::with_capacity(count as usize);
    for _ in 0..count {
        checks.push(decode_check(reader)?);
        let status = decode_health(reader)?;
        let output = reader.text("output", OUTPUT_BYTES_MAX as u64)?.to_owned();
        results.push(CheckResult { status, output, since: reader.varint("since")? });
    }
    Checks::new(checks.into(), results).ok_or(CodecError::Invalid("checks"))
}

pub(super) fn decode_health(reader: &mut Reader<'_>) -> Result<Health, CodecError> {
    let code = usize::from(reader.byte("health")?);
    Health::ALL.get(code).copied().ok_or(CodecError::Invalid("health"))
}

fn encode_check(w: &mut Writer, check: &Check) {
    w.text(&check.id);
    w.text(&check.name);
    w.text(&check.notes);
    w.varint(check.interval_ms);
    w.varint(check.timeout_ms);
    w.varint(check.initial_delay_ms);
    w.varint(u64::from(check.failures_before_critical));
    w.varint(u64::from(check.successes_before_passing));
    w.varint(check.deregister_critical_after_ms);
    w.byte(check.initial as u8);
    match &check.probe {
        Probe::Http(http) => {
            w.byte(HTTP);
            encode_http(w, http);
        }
        Probe::Tcp { address } => {
            w.byte(TCP);
            w.text(address);
        }
        Probe::Grpc { address, service, tls } => {
            w.byte(if tls.is_some() { GRPC_TLS } else { GRPC });
            w.text(address);
            w.text(service);
            tls.iter().for_each(|tls| encode_tls(w, tls));
        }
        Probe::Ttl { ttl_ms } => {
            w.byte(TTL);
            w.varint(*ttl_ms);
        }
    }
}

fn decode_check(reader: &mut Reader<'_>) -> Result<Check, CodecError> {
    Ok(Check {
        id: text(reader, "check id")?,
        name: text(reader, "check name")?,
        notes: text(reader, "check notes")?,
        interval_ms: reader.varint("interval")?,
        timeout_ms: reader.varint("timeout")?,
        initial_delay_ms: reader.varint("delay")?,
        failures_before_critical: reader.bounded("failures", u64::from(u32::MAX))? as u32,
        successes_before_passing: reader.bounded("successes", u64::from(u32::MAX))? as u32,
        deregister_critical_after_ms: reader.varint("deregister")?,
        initial: decode_health(reader)?,
        probe: match reader.byte("probe")? {
            HTTP => Probe::Http(Box::new(decode_http(reader)?)),
            TCP => Probe::Tcp { address: text(reader, "address")? },
            kind @ (GRPC | GRPC_TLS) => Probe::Grpc {
                address: text(reader, "address")?,
                service: text(reader, "service")?,
                tls: if kind == GRPC_TLS { Some(decode_tls(reader)?) } else { None },
            },
            TTL => Probe::Ttl { ttl_ms: reader.varint("ttl")? },
            _ => return Err(CodecError::Invalid("probe")),
        },
    })
}

fn encode_http(w: &mut Writer, http: &HttpProbe) {
    w.text(&http.url);
    w.text(&http.method);
    w.count(http.headers.len());
    for (name, value) in &http.headers {
        w.text(name);
        w.text(value);
    }
    w.text(&http.body);
    w.count(http.expected_status.len());
    for (first, last) in &http.expected_status {
        w.varint(u64::from(*first));
        w.varint(u64::from(*last));
    }
    w.text(&http.body_contains);
    encode_tls(w, &http.tls);
}

fn decode_http(reader: &mut Reader<'_>) -> Result<HttpProbe, CodecError> {
    let status = |reader: &mut Reader<'_>| Ok(reader.bounded("status", u64::from(u16::MAX))? as u16);
    Ok(HttpProbe {
        url: text(reader, "url")?,
        method: text(reader, "method")?,
        headers: (0..reader.bounded("headers", PAIRS_MAX)?)
            .map(|_| Ok((text(reader, "header")?, text(reader, "header")?)))
            .collect::<Result<_, CodecError>>()?,
        body: text(reader, "body")?,
        expected_status: (0..reader.bounded("status", PAIRS_MAX)?)
            .map(|_| Ok((status(reader)?, status(reader)?)))
            .collect::<Result<_, CodecError>>()?,
        body_contains: text(reader, "body")?,
        tls: decode_tls(reader)?,
    })
}

fn encode_tls(w: &mut Writer, tls: &ProbeTls) {
    w.text(&tls.server_name);
    w.flag(tls.skip_verify);
}

fn decode_tls(reader: &mut Reader<'_>) -> Result<ProbeTls, CodecError> {
    Ok(ProbeTls { server_name: text(reader, "server name")?, skip_verify: reader.flag("skip verify")? })
}

fn text(reader: &mut Reader<'_>, what: &'static str) -> Result<String, CodecError> {
    Ok(reader.text(what, TEXT_MAX)?.to_owned())
}
