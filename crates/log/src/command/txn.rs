//! Transactions: compares, and the operations of two branches (T).

use super::coordination::{LeaseId, LockName};
use crate::keys::{KeyRange, KeyRecord, Query, Selection};
use crate::machine::Field;
use bytes::Bytes;
use std::sync::Arc;

/// Compares and operations in one transaction, counted over all three lists (T1).
pub const TXN_OPERATIONS_MAX: usize = 128;

/// A transaction: if all compares hold, the operations of `then` are executed, otherwise those of `otherwise` (T2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub then: Vec<Op>,
    pub otherwise: Vec<Op>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// A key, or every key of a range.
    Keys { selection: Selection, test: Test },
    /// The lock is held with this fence now (LO6).
    Lock { name: LockName, fence: u64 },
}

/// A test of one field of a key. A key that does not exist has versions, revisions and lease 0 (T3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// A value comparison is false for a key that does not exist, except `NotEqual`.
    Value(Relation, Bytes),
    Version(Relation, u64),
    CreateRevision(Relation, u64),
    ModifyRevision(Relation, u64),
    /// The lease that the key is attached to, 0 for none.
    Lease(Relation, u64),
    /// Whether the key exists; for a range, whether it contains a key.
    Exists(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    Greater,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put(TxnPut),
    Delete {
        selection: Selection,
        /// Whether to return the deleted records.
        previous: bool,
    },
    Read(Query),
}

/// A put in a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnPut {
    pub key: Bytes,
    pub value: Bytes,
    /// The lease that the key is attached to. A put without one detaches the key (LE5).
    pub lease: Option<LeaseId>,
    /// A number that clients store with the key. The log does not interpret it.
    pub flags: u64,
    /// A number that clients count acquisitions of the key with. The log does not interpret it.
    pub lock_index: u64,
    /// Whether to return the previous record.
    pub previous: bool,
}

/// The result of one operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    Put { previous: Option<Arc<KeyRecord>> },
    Deleted { keys: u64, previous: Vec<Arc<KeyRecord>> },
    Read(crate::keys::QueryResult),
}

impl Txn {
    /// Returns the operations of a branch.
    pub fn branch(&self, succeeded: bool) -> &[Op] {
        if succeeded { &self.then } else { &self.otherwise }
    }

    /// Returns whether neither branch changes a key. A read-only transaction needs no entry (T6).
    pub fn is_read_only(&self) -> bool {
        self.then.iter().chain(&self.otherwise).all(|op| matches!(op, Op::Read(_)))
    }

    /// Checks the form: the number of operations, and that a branch changes no key twice (T1, T4).
    pub(crate) fn check(&self) -> Result<(), Field> {
        let operations = self.compares.len() + self.then.len() + self.otherwise.len();
        if operations == 0 || operations > TXN_OPERATIONS_MAX {
            return Err(Field::Operations);
        }
        if self.key_changed_twice().is_some() { Err(Field::Key) } else { Ok(()) }
    }

    /// Returns a key that a branch puts twice, or puts and deletes (T4).
    pub fn key_changed_twice(&self) -> Option<&Bytes> {
        [&self.then, &self.otherwise].into_iter().find_map(|branch| {
            let puts: Vec<&Bytes> = branch.iter().filter_map(Op::put_key).collect();
            let deletes = || branch.iter().filter_map(Op::deletes);
            let again = |at: usize| puts[..at].contains(&puts[at]) || deletes().any(|found| found.contains(puts[at]));
            (0..puts.len()).find(|at| again(*at)).map(|at| puts[at])
        })
    }
}

impl Op {
    fn put_key(&self) -> Option<&Bytes> {
        if let Op::Put(put) = self { Some(&put.key) } else { None }
    }

    fn deletes(&self) -> Option<&Selection> {
        if let Op::Delete { selection, .. } = self { Some(selection) } else { None }
    }
}

impl TxnPut {
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        TxnPut { key: key.into(), value: value.into(), ..TxnPut::default() }
    }
}

impl Relation {
    pub(crate) fn holds<T: Ord + ?Sized>(self, found: &T, wanted: &T) -> bool {
        match self {
            Relation::Equal => found == wanted,
            Relation::NotEqual => found != wanted,
            Relation::Less => found < wanted,
            Relation::Greater => found > wanted,
        }
    }
}

impl Compare {
    /// Creates a compare of one key.
    pub fn key(key: impl Into<Bytes>, test: Test) -> Self {
        Compare::Keys { selection: Selection::Key(key.into()), test }
    }

    /// Creates a compare of every key with a prefix.
    pub fn prefix(prefix: impl Into<Bytes>, test: Test) -> Self {
        Compare::Keys { selection: Selection::Range(KeyRange::prefix(prefix)), test }
    }
}
