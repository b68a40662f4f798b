//! The log plane: keys that are consistent, and requests that can be abandoned safely.
//!
//! A process has one [`Ambassador`]: it knows who leads the log, keeps the one link there, and sends again what was not answered. Every
//! [`Kv`] handle is a session of its own with numbered requests: they take effect in the order they were issued, each at most once. Dropping
//! the future of a request abandons it: whether or not it took effect, it never does so after a later request of the same handle.
//!
//! Inside, `core` decides and the rest carries out.

/// The examples of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/log.md")]
mod guide {}

mod ambassador;
mod core;
mod kv;
mod linking;
mod operations;
mod options;
mod peers;
mod pending;
mod read;
mod search;

pub use self::ambassador::Ambassador;
pub use self::kv::{Kv, Write};
pub use self::operations::Change;
pub use self::options::Options;
pub use self::pending::{Pending, Written};
pub use self::read::{Consistency, Page};
pub use crate::connect::{Connect, Connecting, LocalNode, Responding, Tcp};
pub use convoke_proto::v1::{Fate, KeyValue, LogStatusResponse as Status, RequestId, fate::Kind as FateKind};
