//! Runs the health checks of the members that a node owns (HC1 to HC6).
//!
//! [`Schedule`] decides when a check runs and what its results mean; it takes time as an argument and performs no I/O.
//! [`run`] connects it with the node and with the network, and runs the scripts of the
//! configuration. It must not know where members are registered, or why this node
//! owns them: the core says which checks are its own.

mod config;
mod counters;
mod guard;
mod probe;
mod runner;
mod schedule;
mod scripts;
mod state;
mod tls;

pub use config::{CheckerConfig, ConfigError, ScriptCheck};
pub use counters::CheckCounters;
pub use guard::Guard;
pub use runner::{Checker, run};
pub use schedule::{CheckAction, RunId, RunResult, Schedule};
