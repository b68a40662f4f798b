//! The log plane of Convoke: a replicated log whose requests can be abandoned safely, with keys on top.
//!
//! This crate decides; it does not carry. [`Machine`] is what every replica applies entries to, a function of its state and the
//! entry. [`leader`] holds what a leader keeps in memory for its term. Time comes in as an argument, effects go out as data.
//! The rules are numbered in `docs/log-protocol.md`; comments cite them.

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
pub use id::{Epoch, Position, ReplicaId, RequestId, SessionId};
pub use limits::{Limits, LimitsError};
pub use machine::{Entry, Machine};
pub use mutant::{Mutant, Mutation};
pub use snapshot::Snapshot;
pub use time::LogTime;
