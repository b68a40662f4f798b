//! Lines of the audit log: pure text from values.

use convoke_base::{ErrorCode, timestamp};
use convoke_core::member::beginning;
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of one text in a line. Longer ones are cut, because callers choose them.
const TEXT_BYTES_MAX: usize = 256;
/// Lines per second about denials of callers without a principal. Strangers cannot rotate other lines away.
const STRANGERS_PER_SECOND: u64 = 20;

/// What happened, and who did it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Milliseconds since 1970.
    pub(super) at: u64,
    /// `None` if the credentials are not valid.
    pub(super) principal: Option<String>,
    /// Id of the token, which is not secret.
    pub(super) token: Option<String>,
    pub(super) from: Option<String>,
    pub(super) via: &'static str,
    /// Route or gRPC method.
    pub(super) action: String,
    /// Kind of a message of a stream.
    pub(super) request: Option<&'static str>,
    pub(super) forwarded: bool,
    pub(super) parameters: BTreeMap<&'static str, String>,
    /// Allowed: `VERB RESOURCE`.
    pub(super) allowed: Vec<String>,
    /// Number of further ones.
    pub(super) more: u64,
    pub(super) denied: Option<String>,
    pub(super) result: &'static str,
    /// Why the credentials are not valid.
    pub(super) reason: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    node: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    via: &'a str,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    forwarded: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<String>,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Record {
    /// Returns the line, with its end.
    pub(super) fn line(&self, node: &str) -> String {
        let line = Line {
            time: timestamp(self.at),
            node,
            principal: self.principal.as_deref().map(cut),
            token: self.token.as_deref().map(cut),
            from: self.from.as_deref(),
            via: self.via,
            action: cut(&self.action),
            request: self.request,
            forwarded: self.forwarded,
            parameters: self.parameters.iter().map(|(name, value)| (*name, cut(value))).collect(),
            allowed: self.allowed.iter().map(|text| cut(text)).collect(),
            more: self.more,
            denied: self.denied.as_deref().map(cut),
            result: self.result,
            reason: self.reason.as_deref().map(cut),
        };
        json_line(&line)
    }

    pub(super) fn is_denial(&self) -> bool {
        let codes = [ErrorCode::PermissionDenied, ErrorCode::Unauthenticated];
        self.denied.is_some() || codes.iter().any(|code| code.as_str() == self.result)
    }

    /// Whether it is about a denial of a caller without a principal.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.is_denial() && self.principal.as_deref().is_none_or(|name| name == convoke_access::ANONYMOUS)
    }
}

/// A line about records that are missing, with its end.
pub(super) fn missing_line(at: u64, node: &str, event: &str, count: u64) -> String {
    #[derive(Serialize)]
    struct Missing<'a> {
        time: String,
        node: &'a str,
        event: &'a str,
        count: u64,
    }
    json_line(&Missing { time: timestamp(at), node, event, count })
}

fn json_line(value: &impl Serialize) -> String {
    // Strings, numbers and maps with string keys always serialize.
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// Returns a text as a line may contain it: not too long, and without tokens, which a caller may send in a wrong place.
fn cut(text: &str) -> String {
    let text = &without_tokens(text);
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", beginning(text, TEXT_BYTES_MAX))
}

/// Replaces everything that looks like a signed token: three parts, of which the first is a JSON object in base64url.
fn without_tokens(text: &str) -> String {
    const BEGIN: &str = "eyJ";
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(BEGIN) {
        let (before, candidate) = rest.split_at(at);
        let end = candidate.find(|c| !is_part(c)).unwrap_or(candidate.len());
        let (word, after) = candidate.split_at(end);
        shown += before;
        shown += if word.matches('.').count() >= 2 { "(token)" } else { word };
        rest = after;
    }
    shown + rest
}

/// Limits the lines that strangers cause.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    second: u64,
    written: u64,
    suppressed: u64,
}

impl Strangers {
    /// Whether a denial of a stranger is written.
    pub(super) fn admit(&mut self, at: u64) -> bool {
        let second = at / 1_000;
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if self.written < STRANGERS_PER_SECOND {
            self.written += 1;
            return true;
        }
        self.suppressed += 1;
        false
    }

    /// Returns the number of suppressed lines, once their second is over.
    pub(super) fn take_suppressed(&mut self, at: u64) -> u64 {
        if at / 1_000 == self.second { 0 } else { std::mem::take(&mut self.suppressed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_who_where_what_and_the_result() {
        let record = Record {
            at: 1_794_895_854_009,
            principal: Some("token/orders".to_owned()),
            token: Some("token/a1".to_owned()),
            from: Some("10.0.0.7:5000".to_owned()),
            via: "http",
            action: "PUT /api/v1/kv/{*key}".to_owned(),
            parameters: [("key", "config/a".to_owned())].into(),
            allowed: vec!["put key:config/a".to_owned()],
            result: "OK",
            ..Record::default()
        };
        assert_eq!(
            record.line("n1"),
            concat!(
                r#"{"time":"2026-11-17T06:10:54.009Z","node":"n1","principal":"token/orders","token":"token/a1","#,
                r#""from":"10.0.0.7:5000","via":"http","action":"PUT /api/v1/kv/{*key}","#,
                r#""parameters":{"key":"config/a"},"allowed":["put key:config/a"],"result":"OK"}"#,
                "\n"
            )
        );
        let line = missing_line(1_794_895_854_009, "n1", "lost", 7);
        assert_eq!(line, "{\"time\":\"2026-11-17T06:10:54.009Z\",\"node\":\"n1\",\"event\":\"lost\",\"count\":7}\n");
    }

    #[test]
    fn a_caller_cannot_forge_or_swell_a_line() {
        let record = Record { action: "a\n{\"result\":\"OK\"}".to_owned(), result: "NOT_FOUND", ..Record::default() };
        let line = record.line("n1");
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let long = Record { denied: Some("é".repeat(10_000)), result: "NOT_FOUND", ..Record::default() };
        assert!(long.line("n1").len() < 600);
    }

    #[test]
    fn a_token_in_a_wrong_place_is_not_shown() {
        let key = convoke_access::SigningKey::from_seed([1; 32]);
        let (token, _) = convoke_access::operator_token(&key, "convoke", 1_000, [2; 16]);
        let record = Record {
            principal: Some(format!("token/{}", token.secret())),
            parameters: [("key", format!("a {} b", token.secret()))].into(),
            allowed: vec![format!("put key:{}", token.secret())],
            ..Record::default()
        };
        let line = record.line("n1");
        let signature = token.secret().rsplit_once('.').map_or("", |(_, signature)| signature);
        assert!(!line.contains(signature) && line.contains(r#""a (token) b""#), "{line}");
        assert_eq!(without_tokens("eyJa.b"), "eyJa.b");
    }

    #[test]
    fn strangers_write_a_limited_number_of_lines() {
        let mut strangers = Strangers::default();
        let written = (0..1_000).filter(|_| strangers.admit(5_000)).count() as u64;
        assert_eq!((written, strangers.take_suppressed(5_999)), (STRANGERS_PER_SECOND, 0));
        assert!(strangers.admit(6_000), "the next second");
        assert_eq!(strangers.take_suppressed(7_000), 1_000 - STRANGERS_PER_SECOND);
        assert_eq!(strangers.take_suppressed(8_000), 0);
    }

    #[test]
    fn denials_are_those_by_grants_and_by_credentials() {
        let by = |result, denied: Option<&str>, principal: Option<&str>| {
            let (denied, principal) = (denied.map(str::to_owned), principal.map(str::to_owned));
            let record = Record { result, denied, principal, ..Record::default() };
            (record.is_denial(), record.is_of_stranger())
        };
        assert_eq!(by("OK", None, None), (false, false));
        assert_eq!(by("PERMISSION_DENIED", None, Some("token/a")), (true, false));
        assert_eq!(by("UNAUTHENTICATED", None, Some("anonymous")), (true, true));
        // A member that the caller may not read does not exist for it.
        assert_eq!(by("NOT_FOUND", Some("drain service:web"), Some("token/a")), (true, false));
    }
}
