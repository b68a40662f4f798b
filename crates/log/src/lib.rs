//! The state machine of Convoke's replicated log: log sessions whose requests can be abandoned safely, and a key-value
//! store.
//!
//! This crate decides and performs no I/O. Every replica applies entries to a [`Machine`], which is a function of its
//! state and the entry. [`leader`] holds the volatile state of a leader for its term. Time is an argument, and effects
//! are data. The rules are numbered in `docs/log-protocol.md`; comments cite them.

pub mod codec;
pub mod command;
pub mod history;
mod id;
pub mod keys;
pub mod leader;
mod leases;
mod level;
mod limits;
mod locks;
pub mod machine;
mod mutant;
pub mod snapshot;
mod time;
mod tree;

pub use command::Command;
pub use id::{Epoch, LogSessionId, Position, ReplicaId, RequestId};
pub use leases::Lease;
pub use level::Level;
pub use limits::{CoordinationLimits, LimitsError, LogLimits};
pub use locks::{Lock, LockPlace, Standing};
pub use machine::{Entry, Machine};
pub use mutant::{Mutant, Mutation};
pub use snapshot::Snapshot;
pub use time::LogTime;
