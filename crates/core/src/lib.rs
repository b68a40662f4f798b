//! The pure core of Convoke's registry and peer planes.
//!
//! No clock, no socket, no thread, no OS randomness: time and randomness come in as arguments, effects go out as data.
//! The rules are numbered in `docs/protocol.md`; comments cite them. The same code runs under tokio in a node and in
//! virtual time in the simulator.

pub mod config;
pub mod error;
mod intern;
mod liveness;
mod map;
pub mod member;
mod mutant;
pub mod node;
mod peer;
mod sessions;
pub mod time;
mod timers;
pub mod version;
mod watch;
pub mod wire;

pub use config::{Config, ConfigError, Limits, Timers};
pub use convoke_base::{Revocation, RevocationSet};
pub use convoke_filter as filter;
pub use error::{ErrorCode, Rejection};
pub use mutant::{Mutant, Mutation};
pub use node::{Node, Output};
pub use time::Time;
