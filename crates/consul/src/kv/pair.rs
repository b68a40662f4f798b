//! A key with its value, and lists of keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;

/// A key as Consul knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: Bytes,
    pub flags: u64,
    /// How many times the key was acquired by a session that did not hold it.
    pub lock_index: u64,
    /// The lease of the session that holds the key, 0 for none.
    pub lease: u64,
    /// 0 for a key that the transaction itself creates.
    pub create_index: u64,
    /// 0 for a key that the transaction itself changes.
    pub modify_index: u64,
}

/// A key in an answer. The order of the fields is Consul's.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PairView {
    lock_index: u64,
    key: String,
    flags: u64,
    value: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    session: String,
    create_index: u64,
    modify_index: u64,
}

impl PairView {
    /// Shows a key with its value. `session` is the id of the session that holds it, or empty.
    pub fn new(pair: &Pair, session: String) -> PairView {
        let Pair { key, value, flags, lock_index, create_index, modify_index, .. } = pair;
        PairView {
            lock_index: *lock_index,
            key: key.clone(),
            flags: *flags,
            value: (!value.is_empty()).then(|| STANDARD.encode(value)),
            session,
            create_index: *create_index,
            modify_index: *modify_index,
        }
    }

    /// Omits the value, as Consul does in the results of most verbs.
    #[must_use]
    pub fn without_value(self) -> PairView {
        PairView { value: None, ..self }
    }
}

impl Pair {
    /// Returns the key with the index of the transaction in the places that the transaction changed.
    #[must_use]
    pub fn at(&self, index: u64) -> Pair {
        let of = |found: u64| if found == 0 { index } else { found };
        Pair { create_index: of(self.create_index), modify_index: of(self.modify_index), ..self.clone() }
    }

    /// Whether a write would change nothing. Consul keeps the index of such a key.
    pub(super) fn is_like(&self, other: &Pair) -> bool {
        let of = |pair: &Pair| (pair.flags, pair.lock_index, pair.lease);
        self.value == other.value && of(self) == of(other)
    }
}

/// Returns keys up to and including the first separator after the prefix, each once. The keys are in order.
pub fn keys_up_to<'a>(keys: impl IntoIterator<Item = &'a str>, prefix: &str, separator: &str) -> Vec<&'a str> {
    let mut shown: Vec<&str> = Vec::new();
    for key in keys {
        let rest = key.get(prefix.len()..).unwrap_or_default();
        let end = match rest.find(separator) {
            Some(at) if !separator.is_empty() => prefix.len() + at + separator.len(),
            _ => key.len(),
        };
        let cut = &key[..end];
        if shown.last() != Some(&cut) {
            shown.push(cut);
        }
    }
    shown
}
