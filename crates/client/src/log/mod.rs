//! The client side of the replicated log: a linearizable key-value store whose requests can be abandoned safely.
//!
//! A process has one [`Ambassador`]. It finds the leader, keeps one link to it, and resends requests that were not
//! answered. Every [`Kv`] handle has its own log session with numbered requests. They take effect in the order they
//! were issued, each at most once. Dropping the future of a request abandons it: whether or not it took effect, it
//! never does so after a later request of the same handle.
//!
//! Internally, `core` makes all decisions and the other modules perform I/O.

mod ambassador;
mod clock;
mod coordination;
mod core;
mod elections;
mod following;
mod kv;
mod leases;
mod linking;
mod locks;
mod observer;
mod operations;
mod options;
mod peers;
mod pending;
mod places;
mod query;
mod read;
mod replica_watch;
mod search;
mod txn;
mod view;
mod watch;

pub use self::ambassador::Ambassador;
pub use self::core::LimitCounters;
pub use self::elections::{Elections, Leader, Leadership};
pub use self::kv::{Kv, Write};
pub use self::leases::{Lease, LeasePage, LeaseTerms, Leases, MemberBinding};
pub use self::locks::{Acquire, LockGuard, LockPage, Locks};
pub use self::observer::{ElectionPosition, LeaderChange, Observer};
pub use self::operations::{EndSessions, ReplicaChange};
pub use self::options::Options;
pub use self::pending::{PendingWrite, Written};
pub use self::query::{KeyPage, Query, Sort};
pub use self::read::Consistency;
#[doc(hidden)]
pub use self::replica_watch::ReplicaWatch;
pub use self::txn::{Compare, Op, OpResult, PendingTxn, Relation, Txn, TxnAnswer, TxnBuilder};
pub use self::view::KeyView;
pub use self::watch::{KeyChange, KeyWatch, KeyWatchEvent, ResetReason, WatchKeys};
pub use crate::connect::{
    Answers, Connect, Connecting, InProcessNode, Responding, TcpConnect, connect_lazy, connector,
};
pub use convoke_proto::v1::{
    Fate, KeyValue, Lease as LeaseInfo, Lock as LockInfo, LockHolder, LogStatusResponse as Status, RequestId,
    fate::Kind as FateKind,
};
