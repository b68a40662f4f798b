//! Sessions: a session is a lease with a description (docs/consul-kv.md).

use crate::duration::{format_duration, parse_duration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// Bounds of the time to live of a session, as in Consul.
pub const SESSION_TTL_MIN: Duration = Duration::from_secs(10);
pub const SESSION_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest and the default time for which no session can acquire a key after the session that held it has ended.
pub const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
const LOCK_DELAY: Duration = Duration::from_secs(15);
/// The check of a node itself. Every session of Consul depends on it by default.
pub const NODE_CHECK: &str = "serfHealth";
/// Bits of a session id that contain the lease. The others are random, but for the version and the variant of the UUID.
const LEASE_BITS: u32 = 56;

/// The id of a session: a UUID of version 8 that contains the lease and a random part. The random part must be that of the
/// stored description, so a session of another log or of an earlier cluster is never mistaken for one of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsulSessionId {
    pub lease: u64,
    number: u128,
}

/// A text that is not the id of a session of Convoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidSessionId {
    /// Consul's own rule.
    Length,
    /// The id was not made by Convoke, so there is no such session.
    Unknown,
}

impl ConsulSessionId {
    /// Makes the id of a lease from random bits. `None` for a lease that no log reaches.
    pub fn new(lease: u64, random: u64) -> Option<ConsulSessionId> {
        if lease == 0 || lease >> LEASE_BITS != 0 {
            return None;
        }
        // xxxxxxxx-xxxx-8xxx-8ccc-cccccccccccc with random digits x and the lease c.
        let (high, low) = ((random & !0xf000) | 0x8000, (0x8 << 60) | lease);
        Some(ConsulSessionId { lease, number: (u128::from(high) << 64) | u128::from(low) })
    }

    /// Parses an id in the form of a UUID.
    pub fn parse(text: &str) -> Result<ConsulSessionId, InvalidSessionId> {
        if text.len() != 36 {
            return Err(InvalidSessionId::Length);
        }
        let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let mut number = 0_u128;
        for (at, c) in text.chars().enumerate() {
            match c.to_digit(16) {
                Some(digit) if !is_dash(at) => number = number << 4 | u128::from(digit),
                None if is_dash(at) && c == '-' => {}
                _ => return Err(InvalidSessionId::Unknown),
            }
        }
        let (high, low) = ((number >> 64) as u64, number as u64);
        let lease = low & ((1 << LEASE_BITS) - 1);
        ConsulSessionId::new(lease, high).filter(|id| id.number == number).ok_or(InvalidSessionId::Unknown)
    }
}

impl fmt::Display for ConsulSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.number;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            n >> 80 & 0xffff,
            n >> 64 & 0xffff,
            n >> 48 & 0xffff,
            n & 0xffff_ffff_ffff
        )
    }
}

/// What happens to the keys of a session when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behavior {
    #[default]
    Release,
    Delete,
}

/// A session to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub name: String,
    /// The node that the session belongs to; empty for the one that serves the request.
    pub node: String,
    pub lock_delay: Duration,
    pub behavior: Behavior,
    pub ttl: Option<Ttl>,
    pub node_checks: Vec<String>,
}

/// The time to live of a session, and its text in the request, which Consul shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ttl {
    pub time: Duration,
    pub text: String,
}

/// Why a session is not created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRefusal {
    /// The body cannot be read.
    Body(String),
    /// The session is refused. Consul answers with an internal error.
    Refused(String),
}

impl fmt::Display for SessionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionRefusal::Body(why) => write!(f, "Request decode failed: {why}"),
            SessionRefusal::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SessionRefusal {}

impl Default for NewSession {
    fn default() -> Self {
        NewSession {
            name: String::new(),
            node: String::new(),
            lock_delay: LOCK_DELAY,
            behavior: Behavior::Release,
            ttl: None,
            node_checks: vec![NODE_CHECK.to_owned()],
        }
    }
}

impl NewSession {
    /// Parses the body of `PUT /v1/session/create`. Names of fields are case-insensitive, and unknown ones are ignored, as
    /// Consul does.
    pub fn parse(body: &[u8]) -> Result<NewSession, SessionRefusal> {
        let mut session = NewSession::default();
        if body.is_empty() {
            return Ok(session);
        }
        let fields: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| SessionRefusal::Body(error.to_string()))?;
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            match name.to_ascii_lowercase().as_str() {
                "name" => session.name = text(name, value)?.to_owned(),
                "node" => session.node = text(name, value)?.to_owned(),
                "ttl" => session.ttl = ttl(text(name, value)?)?,
                "lockdelay" => session.lock_delay = lock_delay(name, value)?,
                "behavior" => session.behavior = behavior(text(name, value)?)?,
                "checks" | "nodechecks" => {
                    session.node_checks = list(name, value)?;
                }
                "servicechecks" => service_checks(name, value)?,
                _ => {}
            }
        }
        if let Some(check) = session.node_checks.iter().find(|check| *check != NODE_CHECK) {
            return Err(no_check(check));
        }
        Ok(session)
    }
}

/// A session is bound to its node and to its ttl, not to other checks.
fn no_check(check: &str) -> SessionRefusal {
    SessionRefusal::Refused(format!("Missing check '{check}' registration: sessions depend on {NODE_CHECK} only"))
}

fn service_checks(name: &str, value: &Value) -> Result<(), SessionRefusal> {
    let checks = value.as_array().ok_or_else(|| mismatch(name, value, "[]structs.ServiceCheck"))?;
    match checks.first() {
        None => Ok(()),
        Some(check) => {
            let id = check.as_object().and_then(|fields| {
                let id = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("id"));
                id.and_then(|(_, id)| id.as_str())
            });
            Err(no_check(id.unwrap_or_default()))
        }
    }
}

fn ttl(text: &str) -> Result<Option<Ttl>, SessionRefusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let time = parse_duration(text)
        .map_err(|error| SessionRefusal::Refused(format!("Session TTL '{text}' invalid: {error}")))?;
    // Consul takes a ttl of zero for none.
    if time.is_zero() {
        return Ok(None);
    }
    if time < SESSION_TTL_MIN || time > SESSION_TTL_MAX {
        let (min, max) = (format_duration(SESSION_TTL_MIN), format_duration(SESSION_TTL_MAX));
        let message = format!("Invalid Session TTL '{}', must be between [{min}={max}]", time.as_nanos());
        return Err(SessionRefusal::Refused(message));
    }
    Ok(Some(Ttl { time, text: text.to_owned() }))
}

/// A text is a duration. A number below 1,000 is seconds, another one nanoseconds.
fn lock_delay(name: &str, value: &Value) -> Result<Duration, SessionRefusal> {
    let delay = match value {
        Value::String(text) => parse_duration(text).map_err(|error| SessionRefusal::Body(error.to_string()))?,
        other => match other.as_u64().ok_or_else(|| mismatch(name, other, "time.Duration"))? {
            seconds @ 0..1_000 => Duration::from_secs(seconds),
            nanoseconds => Duration::from_nanos(nanoseconds),
        },
    };
    Ok(delay)
}

fn behavior(text: &str) -> Result<Behavior, SessionRefusal> {
    match text {
        "" | "release" => Ok(Behavior::Release),
        "delete" => Ok(Behavior::Delete),
        other => Err(SessionRefusal::Refused(format!("Invalid Behavior setting '{other}'"))),
    }
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, SessionRefusal> {
    value.as_str().ok_or_else(|| mismatch(name, value, "string"))
}

fn list(name: &str, value: &Value) -> Result<Vec<String>, SessionRefusal> {
    let entries = value.as_array().ok_or_else(|| mismatch(name, value, "[]string"))?;
    entries.iter().map(|entry| text(name, entry).map(ToOwned::to_owned)).collect()
}

fn mismatch(name: &str, found: &Value, wanted: &str) -> SessionRefusal {
    let kind = match found {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) | Value::Null => "object",
    };
    SessionRefusal::Body(format!("json: cannot unmarshal {kind} into Go struct field .{name} of type {wanted}"))
}

/// The description of a session, as it is stored with its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    id: String,
    name: String,
    node: String,
    lock_delay_ns: u64,
    behavior: Behavior,
    ttl: Option<String>,
    node_checks: Vec<String>,
}

impl Description {
    pub fn new(id: ConsulSessionId, session: &NewSession, node: &str) -> Description {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Description {
            id: id.to_string(),
            name: session.name.clone(),
            node: node.to_owned(),
            lock_delay_ns: nanos(session.lock_delay),
            behavior: session.behavior,
            ttl: session.ttl.as_ref().map(|ttl| ttl.text.clone()),
            node_checks: session.node_checks.clone(),
        }
    }

    /// Reads a stored description. `None` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Option<Description> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn encode(&self) -> Vec<u8> {
        // Texts, numbers and lists of texts always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the delay that is used. Consul accepts a longer one, shows it, and uses its limit.
    pub fn lock_delay(&self) -> Duration {
        Duration::from_nanos(self.lock_delay_ns).min(LOCK_DELAY_MAX)
    }

    /// Whether clients keep the session alive. Otherwise it is bound to its node.
    pub fn has_ttl(&self) -> bool {
        self.ttl.is_some()
    }
}

/// A session in an answer. The order of the fields is Consul's.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct SessionRow {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    node: String,
    lock_delay: u64,
    behavior: Behavior,
    #[serde(rename = "TTL")]
    ttl: String,
    node_checks: Vec<String>,
    service_checks: Option<()>,
    create_index: u64,
    modify_index: u64,
}

/// Returns the index of a list of sessions: a number from 1 to 2^53 that depends on its content only.
pub fn sessions_index(sessions: &[SessionRow]) -> u64 {
    // Texts and numbers always serialize.
    let content = serde_json::to_vec(sessions).unwrap_or_default();
    (xxhash_rust::xxh3::xxh3_64(&content) >> 11) + 1
}

impl SessionRow {
    /// `index` is the revision at which the session was created.
    pub fn new(description: Description, index: u64) -> SessionRow {
        let Description { id, name, node, lock_delay_ns, behavior, ttl, node_checks } = description;
        SessionRow {
            id,
            name,
            node,
            lock_delay: lock_delay_ns,
            behavior,
            ttl: ttl.unwrap_or_default(),
            node_checks,
            service_checks: None,
            create_index: index,
            modify_index: index,
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn node(&self) -> &str {
        &self.node
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn ck5_an_id_contains_its_lease_and_a_random_part() {
        let id = ConsulSessionId::new(0x1234, u64::MAX).unwrap();
        assert_eq!(id.to_string(), "ffffffff-ffff-8fff-8000-000000001234");
        assert_eq!(ConsulSessionId::parse(&id.to_string().to_uppercase()), Ok(id));
        assert_ne!(ConsulSessionId::new(0x1234, 1), Some(id));
        assert_eq!(ConsulSessionId::new(0, 1), None);
        assert_eq!(ConsulSessionId::parse("x"), Err(InvalidSessionId::Length));
        for text in [
            "ffffffff-ffff-4fff-8000-000000001234",
            "ffffffff-ffff-8fff-8100-000000001234",
            "ffffffff-ffff-8fff-8000-000000000000",
            "ffffffff_ffff_8fff_8000_000000001234",
            "fffffffff-fff-8fff-8000-000000001234",
        ] {
            assert_eq!(ConsulSessionId::parse(text), Err(InvalidSessionId::Unknown), "{text}");
        }
    }

    #[test]
    fn durations_of_a_session_are_those_of_consul() {
        let parse = |body: &str| NewSession::parse(body.as_bytes());
        assert_eq!(parse("").unwrap(), NewSession::default());
        let delay = |body: &str| parse(body).unwrap().lock_delay;
        assert_eq!(delay(r#"{"LockDelay":"0.001s"}"#), Duration::from_millis(1));
        assert_eq!(delay(r#"{"lockdelay":90}"#), Duration::from_secs(90));
        assert_eq!(delay(r#"{"LockDelay":15000000000}"#), Duration::from_secs(15));
        let session = parse(r#"{"LockDelay":"90s","TTL":"90s"}"#).unwrap();
        let description = Description::new(ConsulSessionId::new(1, 2).unwrap(), &session, "n");
        assert_eq!(description.lock_delay(), LOCK_DELAY_MAX);
        assert_eq!(Description::decode(&description.encode()), Some(description.clone()));
        assert_eq!(SessionRow::new(description, 3).ttl, "90s");
        for body in
            [r#"{"TTL":"9.9s"}"#, r#"{"TTL":"24h1s"}"#, r#"{"Checks":["mem"]}"#, r#"{"ServiceChecks":[{"ID":"w"}]}"#]
        {
            assert!(matches!(parse(body), Err(SessionRefusal::Refused(_))), "{body}");
        }
    }

    #[test]
    fn fuzz_sessions() {
        let seeds = [
            r#"{"TTL":"15s","LockDelay":1,"Checks":["serfHealth"],"ServiceChecks":[]}"#,
            "ffffffff-ffff-8fff-8000-000000001234",
        ];
        convoke_fuzz::texts(&seeds, |text| {
            let _ = NewSession::parse(text.as_bytes());
            let _ = Description::decode(text.as_bytes());
            if let Ok(id) = ConsulSessionId::parse(text) {
                assert!(id.to_string().eq_ignore_ascii_case(text));
            }
        });
    }
}
