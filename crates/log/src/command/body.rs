//! Bodies of requests.

use super::{Acquire, GrantLease, LeaseId, Proclaim, Release, Txn};
use crate::id::{LogSessionId, ReplicaId, RequestId};
use crate::keys::KeyRange;
use crate::level::Level;
use bytes::Bytes;
use smol_str::SmolStr;
use std::collections::BTreeMap;

/// The body of a request. The apply rule (A3) executes all bodies, so the same promise covers all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Makes the fate of a request of any session final (F6).
    Fence(RequestId),
    /// Ends a session, its own or another one (LS4).
    End(LogSessionId),
    Put(Put),
    Delete(Delete),
    DeleteRange(DeleteRange),
    Membership(GroupChange),
    /// Level 2: a transaction (T).
    Txn(Txn),
    /// Level 2: grants a lease (LE1).
    Grant(GrantLease),
    /// Level 2: ends a lease (LE4).
    Revoke(LeaseId),
    /// Level 2: asks for a permit of a lock, or becomes a candidate (LO1).
    Acquire(Acquire),
    /// Level 2: releases a lock, gives up a place in its queue, or resigns (LO5).
    Release(Release),
    /// Level 2: replaces the value of a holder (EL2).
    Proclaim(Proclaim),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    pub value: Bytes,
    /// The modify revision that the key must have, or 0 if the key must not exist (K3).
    pub if_revision: Option<u64>,
    /// Whether to return the previous record (K4).
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
pub struct GroupChange {
    /// Number of the configuration it replaces, 0 for none.
    pub replaces: u64,
    pub voters: BTreeMap<ReplicaId, ReplicaLocation>,
    pub learners: BTreeMap<ReplicaId, ReplicaLocation>,
}

/// Location of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaLocation {
    /// Id of the node that hosts the replica.
    pub node: SmolStr,
    pub address: SmolStr,
}

impl Body {
    /// Returns the level that the log must have (V1).
    pub fn level(&self) -> Level {
        match self {
            Body::Fence(_)
            | Body::End(_)
            | Body::Put(_)
            | Body::Delete(_)
            | Body::DeleteRange(_)
            | Body::Membership(_) => Level::FIRST,
            Body::Txn(_)
            | Body::Grant(_)
            | Body::Revoke(_)
            | Body::Acquire(_)
            | Body::Release(_)
            | Body::Proclaim(_) => Level::COORDINATION,
        }
    }

    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Body::Put(Put { key: key.into(), value: value.into(), if_revision: None, previous: false })
    }

    /// Creates a put that requires the given modify revision, or that the key does not exist if it is 0.
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
