//! The description of a member that a client registers, and its validation.

use super::check::{Check, check_checks};
use crate::config::Limits;
use crate::error::{ErrorCode, Rejection};
use std::collections::BTreeMap;

/// Service of the members that nodes register for themselves.
pub const NODE_SERVICE: &str = "convoke";
/// Client of members that no client keeps alive (AG1).
pub const AGENTLESS_CLIENT: &str = "convoke.agentless";
/// Ids with this prefix belong to nodes.
pub const NODE_ID_PREFIX: &str = "convoke.";

/// A member as its client describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSpec {
    pub id: String,
    pub service: String,
    pub locality: String,
    pub revision: String,
    /// UNIX ms; by default the time of first registration.
    pub created: Option<u64>,
    /// `host:port`, or empty.
    pub address: String,
    /// Further named addresses.
    pub endpoints: BTreeMap<String, String>,
    /// Relative share of traffic; 0 reads as "not set" and counts as 1.
    pub weight: u16,
    pub metadata: BTreeMap<String, String>,
    /// Checks that decide about its health (HC1).
    pub checks: Vec<Check>,
}

/// How a client's silence is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// A dropped connection changes nothing before the heartbeat timeout.
    #[default]
    Normal,
    /// A dropped connection means `down` within a second.
    Fast,
}

impl MemberSpec {
    pub fn new(id: impl Into<String>, service: impl Into<String>) -> Self {
        MemberSpec { id: id.into(), service: service.into(), ..Self::default() }
    }

    /// Validates a member that a client registers. Only the client decides about its end.
    pub fn check_of_client(&self, limits: &Limits) -> Result<(), Rejection> {
        if self.checks.iter().any(|check| check.deregister_critical_after_ms > 0) {
            const FIELD: &str = "checks.deregister_critical_after_ms";
            return Err(invalid(FIELD, format!("{FIELD} is for members without a client; leave it out")));
        }
        self.check(limits)
    }

    /// Validates all fields; the rejection names the field and the limit.
    pub fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        check_id(&self.id, limits)?;
        check_text("service", &self.service, limits.attribute_bytes, Empty::Rejected)?;
        check_text("locality", &self.locality, limits.attribute_bytes, Empty::Allowed)?;
        check_text("revision", &self.revision, limits.attribute_bytes, Empty::Allowed)?;
        check_address("address", &self.address, limits)?;
        if self.service == NODE_SERVICE {
            return Err(reserved("service", NODE_SERVICE));
        }
        if self.endpoints.len() > limits.endpoints {
            let message = format!("{} endpoints, at most {} are allowed", self.endpoints.len(), limits.endpoints);
            return Err(invalid("endpoints", message).limit(limits.endpoints));
        }
        for (name, address) in &self.endpoints {
            check_key("endpoints", "an endpoint name", name, limits)?;
            check_address("endpoints", address, limits)?;
        }
        check_metadata(&self.metadata, limits)?;
        check_checks(&self.checks, limits)
    }
}

/// Checks a whole metadata map.
pub(super) fn check_metadata(metadata: &BTreeMap<String, String>, limits: &Limits) -> Result<(), Rejection> {
    if metadata.len() > limits.metadata_pairs {
        let message = format!("{} metadata pairs, at most {} are allowed", metadata.len(), limits.metadata_pairs);
        return Err(invalid("metadata", message).limit(limits.metadata_pairs));
    }
    let mut total = 0;
    for (key, value) in metadata {
        check_key("metadata", "a metadata key", key, limits)?;
        check_value("metadata", value, limits.metadata_value_bytes)?;
        total += key.len() + value.len();
    }
    if total > limits.metadata_bytes {
        let message = format!("metadata of {total} bytes, at most {} are allowed", limits.metadata_bytes);
        return Err(
            Rejection { code: ErrorCode::TooLarge, ..invalid("metadata", message) }.limit(limits.metadata_bytes)
        );
    }
    Ok(())
}

/// Checks the id of a member.
pub fn check_id(id: &str, limits: &Limits) -> Result<(), Rejection> {
    check_text("id", id, limits.id_bytes, Empty::Rejected)?;
    if id.starts_with(NODE_ID_PREFIX) { Err(reserved("id", NODE_ID_PREFIX)) } else { Ok(()) }
}

/// Checks a client id.
pub fn check_client_id(client: &str, limits: &Limits) -> Result<(), Rejection> {
    check_text("client", client, limits.id_bytes, Empty::Rejected)
        .map_err(|rejection| Rejection { code: ErrorCode::InvalidArgument, ..rejection })?;
    if client.starts_with(NODE_ID_PREFIX) { Err(reserved("client", NODE_ID_PREFIX)) } else { Ok(()) }
}

/// Checks an actor-style name and its location.
pub fn check_name(name: &str, location: &str, limits: &Limits) -> Result<(), Rejection> {
    check_text("name", name, limits.id_bytes, Empty::Rejected)
        .and_then(|()| check_value("location", location, limits.metadata_value_bytes))
        .map_err(|rejection| Rejection { code: ErrorCode::InvalidArgument, ..rejection })
}

#[derive(PartialEq, Clone, Copy)]
pub(super) enum Empty {
    Allowed,
    Rejected,
}

pub(super) fn check_text(field: &'static str, text: &str, limit: usize, empty: Empty) -> Result<(), Rejection> {
    if text.is_empty() && empty == Empty::Rejected {
        return Err(invalid(field, format!("{field} must not be empty")));
    }
    check_value(field, text, limit)
}

/// Checks a key of a map. An empty map is valid but an empty key is not, so the message differs.
fn check_key(field: &'static str, what: &str, key: &str, limits: &Limits) -> Result<(), Rejection> {
    if key.is_empty() {
        return Err(invalid(field, format!("{what} is empty: give it a value or remove it")));
    }
    check_value(field, key, limits.metadata_key_bytes)
}

pub(super) fn check_value(field: &'static str, text: &str, limit: usize) -> Result<(), Rejection> {
    if text.len() > limit {
        let message = format!("{field} has {} bytes, at most {limit} are allowed", text.len());
        return Err(invalid(field, message).limit(limit));
    }
    if let Some(at) = text.chars().position(char::is_control) {
        return Err(invalid(field, format!("{field} has a control character at position {}", at + 1)));
    }
    Ok(())
}

pub(super) fn check_address(field: &'static str, address: &str, limits: &Limits) -> Result<(), Rejection> {
    check_text(field, address, limits.attribute_bytes, Empty::Allowed)?;
    if address.is_empty() {
        return Ok(());
    }
    let well_formed = address.rsplit_once(':').is_some_and(|(host, port)| {
        let host_fits = match host.strip_prefix('[') {
            Some(v6) => v6.strip_suffix(']').is_some_and(|v6| v6.contains(':')),
            None => !host.contains(':'),
        };
        !host.is_empty()
            && host_fits
            && !host.contains(char::is_whitespace)
            && port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    });
    if well_formed { Ok(()) } else { Err(invalid(field, format!("{field} {address:?} is not host:port"))) }
}

pub(super) fn invalid(field: &'static str, message: String) -> Rejection {
    Rejection::new(ErrorCode::InvalidMember, message).field(field)
}

fn reserved(field: &'static str, what: &str) -> Rejection {
    let message = format!("{field} {what:?} is reserved for Convoke's own nodes; choose another");
    Rejection::new(ErrorCode::PermissionDenied, message).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejection(change: impl FnOnce(&mut MemberSpec)) -> Rejection {
        let mut spec = MemberSpec::new("orders-1", "orders");
        change(&mut spec);
        spec.check(&Limits::default()).unwrap_err()
    }

    #[test]
    fn good_members_pass() {
        let mut spec = MemberSpec::new("orders-1", "orders");
        spec.locality = "aws.us-east-1.a".into();
        for address in ["", "10.0.0.1:80", "host.example:443", "[::1]:80"] {
            spec.address = address.into();
            spec.check(&Limits::default()).unwrap();
        }
        spec.endpoints.insert("grpc".into(), "10.0.0.1:81".into());
        spec.metadata.insert("k".into(), String::new());
        spec.check(&Limits::default()).unwrap();
    }

    #[test]
    fn each_field_is_named_in_its_rejection() {
        let long = "x".repeat(257);
        assert_eq!(rejection(|s| s.id.clear()).field, Some("id"));
        assert_eq!(rejection(|s| s.id = long.clone()).limit, Some(256));
        assert_eq!(rejection(|s| s.service.clear()).field, Some("service"));
        assert_eq!(rejection(|s| s.service = "a\nb".into()).message, "service has a control character at position 2");
        assert_eq!(rejection(|s| s.locality = long.clone()).field, Some("locality"));
        assert_eq!(rejection(|s| s.revision = "\0".into()).field, Some("revision"));
        for bad in ["10.0.0.1", ":80", "host:99999", "::1:80", "[::1:80", "a b:80"] {
            assert_eq!(rejection(|s| s.address = bad.into()).field, Some("address"), "{bad}");
        }
        assert_eq!(rejection(|s| s.service = "convoke".into()).code, ErrorCode::PermissionDenied);
        assert_eq!(rejection(|s| s.id = "convoke.n1".into()).code, ErrorCode::PermissionDenied);
        let unnamed = rejection(|s| drop(s.metadata.insert(String::new(), "v".into())));
        assert_eq!(
            (unnamed.field, unnamed.message.as_str()),
            (Some("metadata"), "a metadata key is empty: give it a value or remove it")
        );
        let unnamed = rejection(|s| drop(s.endpoints.insert(String::new(), "h:1".into())));
        assert_eq!(
            (unnamed.field, unnamed.message.as_str()),
            (Some("endpoints"), "an endpoint name is empty: give it a value or remove it")
        );
        assert_eq!(rejection(|s| drop(s.metadata.insert("k".into(), "v".repeat(5000)))).limit, Some(4096));
        let many = (0..65).map(|i| (i.to_string(), String::new())).collect();
        assert_eq!(rejection(|s| s.metadata = many).limit, Some(64));
        let large = (0..5).map(|i| (i.to_string(), "v".repeat(4000))).collect();
        assert_eq!(rejection(|s| s.metadata = large).code, ErrorCode::TooLarge);
        let endpoints = (0..17).map(|i| (i.to_string(), "h:1".to_owned())).collect();
        assert_eq!(rejection(|s| s.endpoints = endpoints).field, Some("endpoints"));
    }
}
