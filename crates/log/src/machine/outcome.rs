//! Stored outcomes of requests (A4).

use crate::command::LeaseId;
use crate::id::ReplicaId;
use crate::keys::Changed;
use convoke_base::ErrorCode;

/// The final result of a request. Stored with the session in the same entry as the change it describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Applied {
        index: u64,
        /// Revision of the key store after the request (K2).
        revision: u64,
        response: Response,
    },
    NotApplied {
        index: u64,
        reason: Reason,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// The fate of the fenced request is now final; the answer carries it.
    Fenced,
    Ended,
    Changed(Changed),
    /// Number of the recorded configuration.
    Configured(u64),
    Txn(TxnOutcome),
    Granted(LeaseId),
    Revoked {
        /// Keys that were deleted or detached.
        keys: u64,
    },
    Lock(LockAnswer),
    Released {
        /// The fence of the released permit; `None` if a place in the queue was given up.
        fence: Option<u64>,
    },
    Proclaimed,
}

/// The stored outcome of a transaction. Its results are not stored (T8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnOutcome {
    /// Whether all compares held.
    pub succeeded: bool,
    /// Keys put or deleted.
    pub changes: u64,
}

/// The place of a lease in a lock after an acquire (LO1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    Held { fence: u64 },
    Waiting,
}

/// Why a well-formed request was not applied. A function of the state, so it is the same on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("the deadline of the request had passed")]
    Expired,
    #[error("{}; read it and try again", of_key(*revision))]
    Precondition { revision: u64 },
    #[error("{field} would have {found} bytes; the limit is {limit}")]
    TooLarge { field: Field, found: u64, limit: u64 },
    #[error("{field} has more entries than the limit of {limit}")]
    TooMany { field: Field, limit: u64 },
    #[error("{field} is invalid")]
    Invalid { field: Field },
    #[error("configuration {current} was recorded in the meantime")]
    Replaced { current: u64 },
    #[error("replica id {0} was used before; use an id above every id ever recorded")]
    ReplicaIdUsed(ReplicaId),
    #[error("the log session does not exist")]
    NoSession,
    #[error("{field} is {found}; it must be between {min} and {max}")]
    OutOfRange { field: Field, found: u64, min: u64, max: u64 },
    #[error("{field} have reached their limit of {limit}; delete some")]
    Full { field: Field, limit: u64 },
    #[error("lease {0} does not exist")]
    NoLease(LeaseId),
    #[error("the lock is held with fence {fence}")]
    LockHeld { fence: u64 },
    #[error("the lock is not held with this lease or fence")]
    NotHeld,
    #[error("the lock has {permits} permits")]
    Permits { permits: u64 },
}

/// The state of a key that did not have the required modify revision.
fn of_key(revision: u64) -> String {
    match revision {
        0 => "the key does not exist".to_owned(),
        revision => format!("the key has modify revision {revision}"),
    }
}

impl Reason {
    /// The error code of the interface.
    pub fn code(&self) -> ErrorCode {
        match self {
            Reason::Expired => ErrorCode::Timeout,
            Reason::Precondition { .. }
            | Reason::Replaced { .. }
            | Reason::ReplicaIdUsed(_)
            | Reason::Permits { .. } => ErrorCode::FailedPrecondition,
            Reason::TooLarge { field: Field::Store, .. } | Reason::Full { .. } => ErrorCode::ResourceExhausted,
            Reason::TooLarge { .. } | Reason::TooMany { .. } => ErrorCode::TooLarge,
            Reason::Invalid { .. } | Reason::OutOfRange { .. } => ErrorCode::InvalidArgument,
            Reason::NoSession | Reason::NoLease(_) | Reason::NotHeld => ErrorCode::NotFound,
            Reason::LockHeld { .. } => ErrorCode::LockHeld,
        }
    }
}

macro_rules! fields {
    ($($name:ident: $code:literal, $text:literal;)*) => {
        /// The part of a request that an answer refers to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field { $($name,)* }

        impl Field {
            pub fn as_str(self) -> &'static str {
                match self { $(Field::$name => $text,)* }
            }

            pub(crate) fn code(self) -> u8 {
                match self { $(Field::$name => $code,)* }
            }

            pub(crate) fn from_code(code: u8) -> Option<Field> {
                match code { $($code => Some(Field::$name),)* _ => None }
            }
        }
    };
}

// Snapshots contain these codes: add codes, never change them.
fields! {
    Key: 0, "key";
    Value: 1, "value";
    Range: 2, "range";
    Store: 3, "store";
    Number: 4, "number";
    AbandonBelow: 5, "abandon_below";
    Previous: 6, "previous";
    Ttl: 7, "ttl";
    ClientName: 8, "client.name";
    Voters: 9, "voters";
    Learners: 10, "learners";
    Replicas: 11, "replicas";
    Address: 12, "address";
    Node: 13, "node";
    Opener: 14, "opener";
    Answer: 15, "answer";
    Operations: 16, "operations";
    Keys: 17, "keys";
    Leases: 18, "leases";
    KeysOfLease: 19, "keys of the lease";
    Name: 20, "name";
    Permits: 21, "permits";
    Delay: 22, "delay";
    Waiters: 23, "waiters of the lock";
    Places: 24, "holders and waiters of all locks";
    PlacesOfLease: 25, "locks of the lease";
    Member: 26, "member";
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Outcome {
    pub fn index(&self) -> u64 {
        match self {
            Outcome::Applied { index, .. } | Outcome::NotApplied { index, .. } => *index,
        }
    }

    pub fn is_applied(&self) -> bool {
        matches!(self, Outcome::Applied { .. })
    }

    /// Returns the bytes counted for this outcome in its session (F3, F5).
    pub(crate) fn bytes(&self) -> u64 {
        const FIXED: u64 = 128;
        match self {
            Outcome::Applied { response: Response::Changed(changed), .. } => {
                FIXED + changed.previous.iter().map(|record| record.bytes()).sum::<u64>()
            }
            _ => FIXED,
        }
    }
}
