//! The operations of a transaction.

use bytes::Bytes;

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnEntry {
    Kv(KvOp),
    /// An operation of nodes, services or checks, which Convoke does not have in transactions.
    Other(&'static str),
}

/// An operation of a key or prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvOp {
    pub verb: Verb,
    pub key: String,
    pub value: Bytes,
    pub flags: u64,
    pub index: u64,
    pub session: String,
}

/// What an operation does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    Set,
    Cas,
    Lock,
    Unlock,
    #[default]
    Get,
    GetTree,
    CheckIndex,
    CheckSession,
    CheckNotExists,
    Delete,
    DeleteTree,
    DeleteCas,
    /// A verb that Consul does not know either.
    Unknown(String),
}

impl Verb {
    pub(super) fn parse(text: &str) -> Verb {
        match text {
            "set" => Verb::Set,
            "cas" => Verb::Cas,
            "lock" => Verb::Lock,
            "unlock" => Verb::Unlock,
            "get" => Verb::Get,
            "get-tree" => Verb::GetTree,
            "check-index" => Verb::CheckIndex,
            "check-session" => Verb::CheckSession,
            "check-not-exists" => Verb::CheckNotExists,
            "delete" => Verb::Delete,
            "delete-tree" => Verb::DeleteTree,
            "delete-cas" => Verb::DeleteCas,
            other => Verb::Unknown(other.to_owned()),
        }
    }

    /// Whether the verb can change keys. A transaction without one is a read.
    pub fn writes(&self) -> bool {
        use Verb as V;
        matches!(self, V::Set | V::Cas | V::Lock | V::Unlock | V::Delete | V::DeleteTree | V::DeleteCas)
    }

    /// Whether the key of the operation is a prefix.
    pub fn is_tree(&self) -> bool {
        matches!(self, Verb::GetTree | Verb::DeleteTree)
    }
}

impl KvOp {
    pub fn new(verb: Verb, key: impl Into<String>) -> KvOp {
        KvOp { verb, key: key.into(), ..KvOp::default() }
    }
}
