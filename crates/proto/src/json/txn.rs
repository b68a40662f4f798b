//! Transactions as JSON: the body of `POST /api/v1/txn` and its answer.

use super::{KeyValue, is_false, is_zero};
use crate::v1::{self, compare, key_query, txn_delete, txn_operation, txn_result};
use crate::{Error, ErrorCode};
use prost::bytes::Bytes;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// Largest number of compares and operations in one transaction, counted over all three lists.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// A transaction: if all compares hold, the operations of `then` are executed, otherwise those of `else`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Txn {
    #[serde(deserialize_with = "bounded")]
    pub compare: Vec<Compare>,
    #[serde(deserialize_with = "bounded")]
    pub then: Vec<Op>,
    #[serde(rename = "else", deserialize_with = "bounded")]
    pub otherwise: Vec<Op>,
}

/// A condition: a test of a key or of the keys of a range, or a lock that must be held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compare {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the test must hold for every key that begins with `key`.
    #[serde(skip_serializing_if = "is_false")]
    pub prefix: bool,
    /// End of a range that begins at `key`. The test must hold for every key of the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// `=` if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Relation>,
    /// Text for a value or a lease, a number for a version or a revision, a boolean for `exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Operand>,
    /// The bytes of a value, in place of `value`.
    #[serde(skip_serializing_if = "Option::is_none", with = "super::base64_option")]
    pub value_base64: Option<Vec<u8>>,
    /// Name of a lock that must be held with `fence`, in place of a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// The field of a key that a compare tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Value,
    Version,
    CreateRevision,
    ModRevision,
    Exists,
    Lease,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    #[default]
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = ">")]
    Greater,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected text, a number of at least 0, true or false")]
pub enum Operand {
    Flag(bool),
    Number(u64),
    Text(String),
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Put(Put),
    Delete(Delete),
    Get(Get),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The bytes of the value, in place of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::base64_option")]
    pub value_base64: Option<Vec<u8>>,
    /// Lease that the key is attached to. A put without one detaches the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// A number that is stored with the key.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flags: u64,
    /// Whether to return the previous record.
    #[serde(default, skip_serializing_if = "is_false")]
    pub previous: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    pub key: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub prefix: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether to return the deleted records.
    #[serde(default, skip_serializing_if = "is_false")]
    pub previous: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub key: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub prefix: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Whether to omit the values.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keys: bool,
    /// Whether to return the number of keys only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub count: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<Sort>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub descending: bool,
}

/// The order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    Key,
    Version,
    CreateRevision,
    ModRevision,
    Value,
}

/// The answer to a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxnAnswer {
    /// Whether all compares held.
    pub succeeded: bool,
    /// Revision of the key store after the transaction, or that a read-only transaction read.
    pub revision: u64,
    /// Results of the executed branch, one per operation, in order.
    pub results: Vec<OpResult>,
    /// Set if the transaction took effect earlier and history no longer contains its results: the oldest revision of
    /// history. `results` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<u64>,
    /// Id of the request in the log; absent for a read-only transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<v1::RequestId>,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpResult {
    Put {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<KeyValue>,
    },
    Delete {
        deleted: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        previous: Vec<KeyValue>,
    },
    Get {
        keys: Vec<KeyValue>,
        /// Number of returned keys; with `count` the number of selected keys.
        count: u64,
        /// Whether the selection contains more keys.
        more: bool,
    },
}

impl From<v1::TxnResult> for OpResult {
    fn from(result: v1::TxnResult) -> OpResult {
        let shown = |records: Vec<v1::KeyValue>| records.into_iter().map(KeyValue::from).collect();
        match result.result {
            Some(txn_result::Result::Put(put)) => OpResult::Put { previous: put.previous.map(KeyValue::from) },
            Some(txn_result::Result::Delete(delete)) => {
                OpResult::Delete { deleted: delete.keys, previous: shown(delete.previous) }
            }
            Some(txn_result::Result::Read(read)) => {
                OpResult::Get { keys: shown(read.records), count: read.count, more: read.more }
            }
            // A result of a newer node.
            None => OpResult::Put { previous: None },
        }
    }
}

/// Reads at most as many elements as a transaction may have. More of them are not stored.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an array of at most {TXN_OPERATIONS_MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(element) = elements.next_element()? {
                if all.len() == TXN_OPERATIONS_MAX {
                    return Err(A::Error::custom(format!("more than {TXN_OPERATIONS_MAX} elements")));
                }
                all.push(element);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Bounded(PhantomData))
}

fn invalid(field: String, message: impl fmt::Display) -> Error {
    let message = format!("{field}: {message}");
    Error::new(ErrorCode::InvalidArgument, message).field(field)
}

impl TryFrom<Txn> for v1::Txn {
    type Error = Error;

    /// Fails with the path of the invalid field.
    fn try_from(txn: Txn) -> Result<v1::Txn, Error> {
        let count = txn.compare.len() + txn.then.len() + txn.otherwise.len();
        if count == 0 || count > TXN_OPERATIONS_MAX {
            let message = format!("a transaction has 1 to {TXN_OPERATIONS_MAX} compares and operations, not {count}");
            let error = Error::new(ErrorCode::InvalidArgument, message);
            return Err(error.field("operations").limit(TXN_OPERATIONS_MAX as u64));
        }
        let compares = txn.compare.into_iter().enumerate().map(|(at, compare)| compare.wire(&format!("compare[{at}]")));
        let branch = |name: &'static str, operations: Vec<Op>| -> Result<Vec<v1::TxnOperation>, Error> {
            let all = operations.into_iter().enumerate();
            all.map(|(at, operation)| operation.wire(&format!("{name}[{at}]"))).collect()
        };
        Ok(v1::Txn {
            compares: compares.collect::<Result<_, Error>>()?,
            then: branch("then", txn.then)?,
            otherwise: branch("else", txn.otherwise)?,
        })
    }
}

impl Compare {
    fn wire(self, path: &str) -> Result<v1::Compare, Error> {
        let field = |name: &str| format!("{path}.{name}");
        if let Some(name) = self.lock {
            let fence = self.fence.ok_or_else(|| invalid(field("fence"), "a lock requires the fence of its holder"))?;
            if self.key.is_some() || self.target.is_some() || self.op.is_some() || self.value.is_some() {
                return Err(invalid(field("lock"), "a lock excludes key, target, op and value"));
            }
            let lock = v1::LockGuard { name: name.into(), fence, election: false };
            return Ok(v1::Compare { subject: Some(compare::Subject::Lock(lock)), ..v1::Compare::default() });
        }
        if self.fence.is_some() {
            return Err(invalid(field("fence"), "a fence requires the name of its lock"));
        }
        let key = self.key.ok_or_else(|| invalid(field("key"), "a key or a lock is required"))?;
        let subject = match selection(path, key, self.prefix, self.until)? {
            Selected::Key(key) => compare::Subject::Key(key),
            Selected::Range(range) => compare::Subject::Range(range),
        };
        let target = self.target.ok_or_else(|| invalid(field("target"), "a target is required"))?;
        let relation = self.op.unwrap_or_default();
        if self.value_base64.is_some() && (self.value.is_some() || target != Target::Value) {
            return Err(invalid(field("value_base64"), "only for the target value, and in place of value"));
        }
        let wrong = |what: &str| Err(invalid(field("value"), format!("this target is compared with {what}")));
        let operand = match (target, self.value, self.value_base64) {
            (Target::Value, None, Some(bytes)) => compare::Operand::Value(bytes.into()),
            (Target::Value, Some(Operand::Text(text)), None) => compare::Operand::Value(text.into()),
            (Target::Value, ..) => return wrong("text"),
            (Target::Version, Some(Operand::Number(number)), _) => compare::Operand::Version(number),
            (Target::CreateRevision, Some(Operand::Number(number)), _) => compare::Operand::CreateRevision(number),
            (Target::ModRevision, Some(Operand::Number(number)), _) => compare::Operand::ModRevision(number),
            (Target::Version | Target::CreateRevision | Target::ModRevision, ..) => return wrong("a number"),
            // A key without a lease has the lease 0.
            (Target::Lease, Some(Operand::Text(lease)), _) if lease == "0" => compare::Operand::Lease(0),
            (Target::Lease, Some(Operand::Text(lease)), _) => {
                compare::Operand::Lease(lease_id(&lease).ok_or_else(|| invalid(field("value"), NO_LEASE))?)
            }
            (Target::Lease, ..) => return wrong("the id of a lease as text"),
            (Target::Exists, ..) if !matches!(relation, Relation::Equal | Relation::NotEqual) => {
                return Err(invalid(field("op"), "existence is compared with = or !="));
            }
            (Target::Exists, None, _) => compare::Operand::Exists(true),
            (Target::Exists, Some(Operand::Flag(exists)), _) => compare::Operand::Exists(exists),
            (Target::Exists, ..) => return wrong("true or false"),
        };
        let relation = match relation {
            Relation::Equal => compare::Relation::Equal,
            Relation::NotEqual => compare::Relation::NotEqual,
            Relation::Less => compare::Relation::Less,
            Relation::Greater => compare::Relation::Greater,
        };
        Ok(v1::Compare { subject: Some(subject), relation: relation.into(), operand: Some(operand) })
    }
}

impl Op {
    fn wire(self, path: &str) -> Result<v1::TxnOperation, Error> {
        let operation = match self {
            Op::Put(put) => txn_operation::Operation::Put(put.wire(&format!("{path}.put"))?),
            Op::Delete(delete) => {
                let which = match selection(&format!("{path}.delete"), delete.key, delete.prefix, delete.until)? {
                    Selected::Key(key) => txn_delete::Which::Key(key),
                    Selected::Range(range) => txn_delete::Which::Range(range),
                };
                txn_operation::Operation::Delete(v1::TxnDelete { which: Some(which), previous: delete.previous })
            }
            Op::Get(get) => txn_operation::Operation::Read(get.wire(&format!("{path}.get"))?),
        };
        Ok(v1::TxnOperation { operation: Some(operation) })
    }
}

impl Put {
    fn wire(self, path: &str) -> Result<v1::TxnPut, Error> {
        let value = match (self.value, self.value_base64) {
            (Some(text), None) => text.into(),
            (None, Some(bytes)) => bytes.into(),
            _ => return Err(invalid(format!("{path}.value"), "exactly one of value and value_base64 is required")),
        };
        let lease = self.lease.map(|lease| lease_id(&lease).ok_or_else(|| invalid(format!("{path}.lease"), NO_LEASE)));
        let lease = lease.transpose()?.unwrap_or(0);
        let Put { key, flags, previous, .. } = self;
        Ok(v1::TxnPut { key: key.into(), value, lease, flags, lock_index: 0, previous })
    }
}

impl Get {
    fn wire(self, path: &str) -> Result<v1::KeyQuery, Error> {
        let which = match selection(path, self.key, self.prefix, self.until)? {
            Selected::Key(key) => key_query::Which::Key(key),
            Selected::Range(range) => key_query::Which::Range(range),
        };
        if self.limit == Some(0) {
            return Err(invalid(format!("{path}.limit"), "the limit must be at least 1"));
        }
        let content = match (self.keys, self.count) {
            (false, false) => key_query::Content::Records,
            (true, false) => key_query::Content::Keys,
            (false, true) => key_query::Content::Count,
            (true, true) => return Err(invalid(format!("{path}.count"), "keys and count exclude each other")),
        };
        Ok(v1::KeyQuery {
            which: Some(which),
            limit: self.limit.unwrap_or(0),
            content: content.into(),
            sort: self.sort.unwrap_or(Sort::Key).wire().into(),
            descending: self.descending,
        })
    }
}

impl Sort {
    /// Returns the order on the wire.
    pub fn wire(self) -> key_query::Sort {
        match self {
            Sort::Key => key_query::Sort::Key,
            Sort::Version => key_query::Sort::Version,
            Sort::CreateRevision => key_query::Sort::CreateRevision,
            Sort::ModRevision => key_query::Sort::ModRevision,
            Sort::Value => key_query::Sort::Value,
        }
    }
}

enum Selected {
    Key(Bytes),
    Range(v1::KeyRange),
}

fn selection(path: &str, key: String, prefix: bool, until: Option<String>) -> Result<Selected, Error> {
    match (prefix, until) {
        (false, None) => Ok(Selected::Key(key.into())),
        (true, None) => Ok(Selected::Range(v1::KeyRange::prefix(key))),
        (false, Some(until)) => Ok(Selected::Range(v1::KeyRange { from: key.into(), until: Some(until.into()) })),
        (true, Some(_)) => Err(invalid(format!("{path}.until"), "prefix and until exclude each other")),
    }
}

const NO_LEASE: &str = "expected the id of a lease: decimal digits";

/// Parses the id of a lease. No lease has id 0.
pub fn lease_id(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|lease| is_number && *lease > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Result<v1::Txn, Error> {
        serde_json::from_str::<Txn>(text).unwrap().try_into()
    }

    #[test]
    fn every_form_is_understood() {
        let txn = wire(
            r#"{"compare": [
                {"key": "a", "target": "value", "op": "=", "value": "1"},
                {"key": "a", "target": "value", "value_base64": "/w=="},
                {"key": "a", "target": "mod_revision", "op": "<", "value": 7},
                {"key": "a", "target": "lease", "op": "!=", "value": "12"},
                {"key": "p/", "prefix": true, "target": "exists"},
                {"lock": "jobs", "fence": 9}],
              "then": [
                {"put": {"key": "a", "value": "2", "lease": "12", "flags": 3, "previous": true}},
                {"delete": {"key": "p/", "prefix": true}},
                {"get": {"key": "a", "until": "c", "limit": 2, "keys": true, "sort": "mod_revision", "descending": true}}],
              "else": [{"get": {"key": "a"}}]}"#,
        )
        .unwrap();
        assert_eq!((txn.compares.len(), txn.then.len(), txn.otherwise.len()), (6, 3, 1));
        assert_eq!(txn.compares[1].operand, Some(compare::Operand::Value(Bytes::from_static(b"\xff"))));
        assert_eq!(txn.compares[2].relation(), compare::Relation::Less);
        assert_eq!(txn.compares[4].subject, Some(compare::Subject::Range(v1::KeyRange::prefix("p/"))));
        let Some(txn_operation::Operation::Put(put)) = &txn.then[0].operation else { panic!("{txn:?}") };
        assert_eq!((put.lease, put.flags, put.previous), (12, 3, true));
        let Some(txn_operation::Operation::Read(read)) = &txn.then[2].operation else { panic!("{txn:?}") };
        assert_eq!(
            (read.limit, read.content(), read.sort()),
            (2, key_query::Content::Keys, key_query::Sort::ModRevision)
        );
    }

    #[test]
    fn errors_name_the_path_of_the_field() {
        for (text, field) in [
            (r#"{}"#, "operations"),
            (r#"{"compare":[{"target":"value","value":"x"}]}"#, "compare[0].key"),
            (r#"{"compare":[{"key":"a"}]}"#, "compare[0].target"),
            (r#"{"compare":[{"key":"a","target":"version","value":"1"}]}"#, "compare[0].value"),
            (r#"{"compare":[{"key":"a","target":"value","value":1}]}"#, "compare[0].value"),
            (r#"{"compare":[{"key":"a","target":"exists","op":"<"}]}"#, "compare[0].op"),
            (r#"{"compare":[{"key":"a","target":"lease","value":"x"}]}"#, "compare[0].value"),
            (r#"{"compare":[{"lock":"l"}]}"#, "compare[0].fence"),
            (r#"{"compare":[{"key":"a","target":"exists","fence":1}]}"#, "compare[0].fence"),
            (r#"{"compare":[{"lock":"l","fence":1,"key":"a"}]}"#, "compare[0].lock"),
            (r#"{"then":[{"get":{"key":"a"}},{"put":{"key":"a"}}]}"#, "then[1].put.value"),
            (r#"{"then":[{"put":{"key":"a","value":"1","lease":"0"}}]}"#, "then[0].put.lease"),
            (r#"{"else":[{"delete":{"key":"a","prefix":true,"until":"b"}}]}"#, "else[0].delete.until"),
            (r#"{"else":[{"get":{"key":"a","limit":0}}]}"#, "else[0].get.limit"),
            (r#"{"else":[{"get":{"key":"a","keys":true,"count":true}}]}"#, "else[0].get.count"),
        ] {
            let error = wire(text).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some(field)), "{text}");
        }
    }

    #[test]
    fn no_more_elements_than_allowed_are_read() {
        let text = |count: usize| format!(r#"{{"then":[{}]}}"#, vec![r#"{"get":{"key":"a"}}"#; count].join(","));
        assert!(wire(&text(128)).is_ok());
        assert!(serde_json::from_str::<Txn>(&text(129)).unwrap_err().to_string().contains("more than 128"));
        let spread = r#"{"compare":[COMPARES],"then":[{"get":{"key":"a"}}]}"#;
        let compares = vec![r#"{"key":"a","target":"exists"}"#; 128].join(",");
        assert_eq!(wire(&spread.replace("COMPARES", &compares)).unwrap_err().field.as_deref(), Some("operations"));
    }

    #[test]
    fn fuzz_transactions() {
        let corpus = [
            r#"{"compare":[{"key":"a","target":"value","op":"=","value":"1"}],"then":[{"put":{"key":"a","value":"2"}}]}"#,
            r#"{"then":[{"delete":{"key":"a","prefix":true}},{"get":{"key":"a","limit":3}}],"else":[]}"#,
            r#"{"compare":[{"lock":"l","fence":3}]}"#,
        ];
        convoke_fuzz::texts(&corpus, |text| {
            let Ok(txn) = serde_json::from_str::<Txn>(text) else { return };
            let printed = serde_json::to_string(&txn).unwrap();
            assert_eq!(serde_json::from_str::<Txn>(&printed).unwrap(), txn);
            let _ = v1::Txn::try_from(txn);
        });
    }
}
