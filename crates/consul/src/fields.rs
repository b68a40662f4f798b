//! JSON objects as Consul reads them: names in any case, `snake_case` as well, and unknown names refused.

use crate::duration::parse_duration;
use crate::flag::parse_bool;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// An object whose fields are taken one by one. Errors are texts as Consul answers them.
#[derive(Debug)]
pub struct Fields {
    /// By name in lower case without underscores; the value is the name as sent and the value.
    fields: BTreeMap<String, (String, Value)>,
}

impl Fields {
    /// Parses the body of a request.
    pub fn parse(body: &[u8]) -> Result<Fields, String> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(failed("EOF"));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Fields::of(map)),
            Ok(other) => Err(failed(format!("json: cannot unmarshal {} into Go value of type object", kind(&other)))),
            Err(error) => Err(failed(error)),
        }
    }

    fn of(map: Map<String, Value>) -> Fields {
        // Of two spellings of one name, the last one counts, as in Go.
        let fields = map.into_iter().filter(|(_, value)| !value.is_null());
        Fields { fields: fields.map(|(name, value)| (normal(&name), (name, value))).collect() }
    }

    /// Refuses fields that nobody has taken.
    pub fn end(self) -> Result<(), String> {
        match self.fields.into_values().next() {
            Some((name, _)) => Err(failed(format!("json: unknown field {name:?}"))),
            None => Ok(()),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(&normal(name)).map(|(_, value)| value)
    }

    /// Returns whether a field is present, and drops it.
    pub fn ignore(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    /// Refuses a field with a value that means something: Convoke has no equivalent.
    pub fn refuse(&mut self, name: &str, what: &str) -> Result<(), String> {
        match self.take(name) {
            None => Ok(()),
            Some(value) if is_unset(&value) => Ok(()),
            Some(_) => Err(format!("Convoke does not offer {what} (field {name}); see docs/consul.md")),
        }
    }

    pub fn text(&mut self, name: &str) -> Result<String, String> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(mismatch(&other, name, "string")),
        }
    }

    pub fn integer(&mut self, name: &str) -> Result<Option<i64>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| mismatch(&value, name, "int")),
        }
    }

    pub fn boolean(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(Value::String(text)) if parse_bool(&text).is_some() => Ok(parse_bool(&text) == Some(true)),
            Some(other) => Err(mismatch(&other, name, "bool")),
        }
    }

    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, String> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let list = match value {
            Value::Array(list) => list,
            other => return Err(mismatch(&other, name, "[]string")),
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            other => Err(mismatch(&other, name, "string")),
        };
        list.into_iter().map(text).collect()
    }

    pub fn map(&mut self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let Some(value) = self.take(name) else { return Ok(BTreeMap::new()) };
        let map = match value {
            Value::Object(map) => map,
            other => return Err(mismatch(&other, name, "map[string]string")),
        };
        let text = |(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            other => Err(mismatch(&other, name, "string")),
        };
        map.into_iter().map(text).collect()
    }

    /// A map of lists, like the headers of a check. A single text counts as a list.
    pub fn lists(&mut self, name: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
        let Some(value) = self.take(name) else { return Ok(BTreeMap::new()) };
        let Value::Object(map) = value else { return Err(mismatch(&value, name, "map[string][]string")) };
        map.into_iter()
            .map(|(key, value)| {
                let mut inner = Fields::of(Map::from_iter([(
                    "v".to_owned(),
                    if value.is_string() { Value::Array(vec![value]) } else { value },
                )]));
                inner.texts("v").map(|list| (key, list))
            })
            .collect()
    }

    /// A duration as text, or as a number of nanoseconds.
    pub fn duration(&mut self, name: &str) -> Result<Duration, String> {
        match self.take(name) {
            None => Ok(Duration::ZERO),
            Some(Value::String(text)) if text.is_empty() => Ok(Duration::ZERO),
            Some(Value::String(text)) => parse_duration(&text).map_err(failed),
            Some(value) => value.as_u64().map(Duration::from_nanos).ok_or_else(|| mismatch(&value, name, "duration")),
        }
    }

    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, String> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields::of(map))),
            Some(other) => Err(mismatch(&other, name, "object")),
        }
    }

    pub fn objects(&mut self, name: &str) -> Result<Vec<Fields>, String> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let Value::Array(list) = value else { return Err(mismatch(&value, name, "array")) };
        let object = |value| match value {
            Value::Object(map) => Ok(Fields::of(map)),
            other => Err(mismatch(&other, name, "object")),
        };
        list.into_iter().map(object).collect()
    }

    /// A map of objects by name.
    pub fn named_objects(&mut self, name: &str) -> Result<Vec<(String, Fields)>, String> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let Value::Object(map) = value else { return Err(mismatch(&value, name, "object")) };
        let object = |(key, value)| match value {
            Value::Object(map) => Ok((key, Fields::of(map))),
            other => Err(mismatch(&other, name, "object")),
        };
        map.into_iter().map(object).collect()
    }
}

/// Whether a value is what Go writes for a field that nobody has set.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_unset),
    }
}

fn normal(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// The name of a kind of values in messages of Go.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(value: &Value, name: &str, wanted: &str) -> String {
    failed(format!("json: cannot unmarshal {} into Go struct field .{name} of type {wanted}", kind(value)))
}

fn failed(why: impl std::fmt::Display) -> String {
    format!("Request decode failed: {why}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the message")]
    use super::*;

    #[test]
    fn names_are_found_in_any_spelling() {
        let body = br#"{"NAME":"a","enable_tag_override":true,"tags":["x"],"meta":{"K":"v"},"port":7,"ID":null,
            "interval":"1m","Timeout":1000000000,"Header":{"a":["b"],"c":"d"}}"#;
        let mut fields = Fields::parse(body).unwrap();
        assert_eq!(fields.text("Name").unwrap(), "a");
        assert_eq!(fields.text("ID").unwrap(), "");
        assert!(fields.boolean("EnableTagOverride").unwrap());
        assert_eq!(fields.texts("Tags").unwrap(), ["x"]);
        assert_eq!(fields.map("Meta").unwrap()["K"], "v", "keys of maps keep their case");
        assert_eq!(fields.integer("Port").unwrap(), Some(7));
        assert_eq!(fields.duration("Interval").unwrap(), Duration::from_secs(60));
        assert_eq!(fields.duration("Timeout").unwrap(), Duration::from_secs(1));
        assert_eq!(fields.lists("Header").unwrap()["c"], ["d"]);
        fields.end().unwrap();
    }

    #[test]
    fn errors_are_those_of_consul() {
        let failed = |body: &str| Fields::parse(body.as_bytes()).map(drop).unwrap_err();
        assert_eq!(failed(""), "Request decode failed: EOF");
        assert!(failed("{bad").starts_with("Request decode failed: "));
        assert!(failed("[]").contains("cannot unmarshal array"));
        let mut fields = Fields::parse(br#"{"Port":"80","Unknown":1}"#).unwrap();
        let message = "Request decode failed: json: cannot unmarshal string into Go struct field .Port of type int";
        assert_eq!(fields.integer("Port").unwrap_err(), message);
        assert_eq!(fields.end().unwrap_err(), "Request decode failed: json: unknown field \"Unknown\"");
        let mut fields = Fields::parse(br#"{"Connect":{"Native":true},"Proxy":{}}"#).unwrap();
        assert!(fields.refuse("Connect", "service mesh").unwrap_err().contains("does not offer service mesh"));
        fields.refuse("Proxy", "service mesh").unwrap();
        let zero =
            br#"{"Definition":{"HTTP":"","Header":null,"TLSSkipVerify":false,"Interval":"0s","Timeout":0},"D":[0]}"#;
        let mut fields = Fields::parse(zero).unwrap();
        fields.refuse("Definition", "definitions").unwrap();
        assert!(fields.refuse("D", "lists").is_err());
    }
}
