//! What a request asks for.

use crate::id::{ReplicaId, RequestId, SessionId};
use crate::keys::KeyRange;
use bytes::Bytes;
use smol_str::SmolStr;
use std::collections::BTreeMap;

/// The body of a request. All of them are executed by the same rule (A3) and so under the same promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Makes the fate of a request final: of this session or another (F6).
    Fence(RequestId),
    /// Ends a session: this one or another (LS4).
    End(SessionId),
    Put(Put),
    Delete(Delete),
    DeleteRange(DeleteRange),
    Membership(Change),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    pub value: Bytes,
    /// The modify revision the key must have; 0: it must not exist (K3).
    pub if_revision: Option<u64>,
    /// Whether to return the record before (K4).
    pub previous: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub key: Bytes,
    pub if_revision: Option<u64>,
    pub previous: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRange {
    pub range: KeyRange,
    pub previous: bool,
}

/// A wanted configuration of the replica group (M1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number of the configuration it replaces, 0 for none.
    pub replaces: u64,
    pub voters: BTreeMap<ReplicaId, Replica>,
    pub learners: BTreeMap<ReplicaId, Replica>,
}

/// Where a replica is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// Id of the node it lives on.
    pub node: SmolStr,
    pub address: SmolStr,
}

impl Body {
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Body::Put(Put { key: key.into(), value: value.into(), if_revision: None, previous: false })
    }

    /// Puts only if the key has that modify revision; 0: only if it does not exist.
    pub fn compare_and_set(key: impl Into<Bytes>, value: impl Into<Bytes>, revision: u64) -> Self {
        Body::Put(Put { key: key.into(), value: value.into(), if_revision: Some(revision), previous: false })
    }

    pub fn delete(key: impl Into<Bytes>) -> Self {
        Body::Delete(Delete { key: key.into(), if_revision: None, previous: false })
    }

    pub fn delete_range(range: KeyRange) -> Self {
        Body::DeleteRange(DeleteRange { range, previous: false })
    }
}
