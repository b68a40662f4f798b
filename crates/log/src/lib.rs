//! The state machine of Convoke's replicated log: log sessions whose requests can be abandoned safely, and a key-value
//! store.
//!
//! This crate decides and performs no I/O. Every replica applies entries to a [`Machine`], which is a function of its
//! state and the entry. [`leader`] holds the volatile state of a leader for its term. Time is an argument, and effects
//! are data. The rules are numbered in `docs/log-protocol.md`; comments cite them.

pub mod codec;
pub mod command;
mod id;
pub mod keys;
pub mod leader;
mod limits;
pub mod machine;
mod mutant;
pub mod snapshot;
mod time;
mod tree;

pub use command::Command;
pub use id::{Epoch, LogSessionId, Position, ReplicaId, RequestId};
pub use limits::{LimitsError, LogLimits};
pub use machine::{Entry, Machine};
pub use mutant::{Mutant, Mutation};
pub use snapshot::Snapshot;
pub use time::LogTime;
