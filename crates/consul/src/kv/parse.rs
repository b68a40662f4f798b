//! The body of `PUT /v1/txn`.

use super::operation::{KvOp, TxnEntry, Verb};
use crate::fields::kind;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::fmt;

/// Consul's limit of the operations of a transaction.
pub const TXN_OPERATIONS_MAX: usize = 64;

/// Why a transaction is refused before it is executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnError {
    Body(String),
    TooMany(usize),
}

impl fmt::Display for TxnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TxnError::Body(why) => write!(f, "Failed to parse body: {why}"),
            TxnError::TooMany(found) => {
                write!(f, "Transaction contains too many operations ({found} > {TXN_OPERATIONS_MAX})")
            }
        }
    }
}

impl std::error::Error for TxnError {}

/// Parses a transaction. Names of fields are case-insensitive, as in Go, and unknown ones are refused.
pub fn parse_txn(body: &[u8]) -> Result<Vec<TxnEntry>, TxnError> {
    let parsed: Value = serde_json::from_slice(body).map_err(|error| TxnError::Body(error.to_string()))?;
    let Value::Array(entries) = parsed else {
        let kind = kind(&parsed);
        return Err(TxnError::Body(format!("json: cannot unmarshal {kind} into Go value of type api.TxnOps")));
    };
    if entries.len() > TXN_OPERATIONS_MAX {
        return Err(TxnError::TooMany(entries.len()));
    }
    let parsed = entries.iter().filter_map(|entry| operation(entry).transpose());
    parsed.collect::<Result<_, String>>().map_err(TxnError::Body)
}

/// Consul skips an operation without content.
fn operation(entry: &Value) -> Result<Option<TxnEntry>, String> {
    let mut found = None;
    for (name, value) in object(entry, "api.TxnOp")? {
        let parsed = match name.to_ascii_lowercase().as_str() {
            _ if value.is_null() => None,
            "kv" => Some(TxnEntry::Kv(kv(object(value, "api.KVTxnOp")?)?)),
            "node" => Some(TxnEntry::Other("nodes")),
            "service" => Some(TxnEntry::Other("services")),
            "check" => Some(TxnEntry::Other("checks")),
            _ => return Err(unknown(name)),
        };
        if found.is_some() && parsed.is_some() {
            return Err("an operation has one of KV, Node, Service and Check".to_owned());
        }
        found = found.or(parsed);
    }
    Ok(found)
}

fn kv(fields: &Map<String, Value>) -> Result<KvOp, String> {
    let mut op = KvOp { verb: Verb::parse(""), ..KvOp::default() };
    for (name, value) in fields {
        match name.to_ascii_lowercase().as_str() {
            "verb" => op.verb = Verb::parse(text(name, value)?),
            "key" => op.key = text(name, value)?.to_owned(),
            "session" => op.session = text(name, value)?.to_owned(),
            "flags" => op.flags = number(name, value)?,
            "index" => op.index = number(name, value)?,
            "value" => {
                let decoded = STANDARD.decode(text(name, value)?);
                op.value = decoded.map_err(|error| format!("illegal base64 data: {error}"))?.into();
            }
            _ => return Err(unknown(name)),
        }
    }
    Ok(op)
}

fn object<'a>(value: &'a Value, kind_name: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("json: cannot unmarshal {} into Go value of type {kind_name}", kind(value)))
}

/// In Go, `null` leaves a field as it is.
fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(""),
        other => Err(mismatch(name, other, "string")),
    }
}

fn number(name: &str, value: &Value) -> Result<u64, String> {
    match value {
        Value::Null => Ok(0),
        other => other.as_u64().ok_or_else(|| mismatch(name, other, "uint64")),
    }
}

fn mismatch(name: &str, found: &Value, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field KVTxnOp.{name} of type {wanted}", kind(found))
}

fn unknown(name: &str) -> String {
    format!("json: unknown field {name:?}")
}
