//! Deterministic simulation of whole Convoke clusters.
//!
//! The real core runs on virtual hosts in virtual time and exchanges real frames over a virtual network. One seed
//! decides everything. See `world.rs` for scripting, `plan.rs` for the meaning of a seed, `invariants/` for the
//! invariants.

mod actions;
pub mod agentless;
pub mod client;
mod congestion;
pub mod drive;
pub mod faults;
pub mod host;
pub mod http;
mod inputs;
pub mod invariants;
mod machine;
pub mod mutants;
pub mod network;
pub mod plan;
pub mod reach;
mod reading;
mod replaced_process;
pub mod scenarios;
mod script;
mod sdk;
mod serving;
pub mod stats;
pub mod themes;
pub mod trace;
pub mod truth;
pub mod watcher;
mod wires;
mod workload;
pub mod world;

pub use drive::{RunOutcome, run_plan, run_seed, run_with_two_clocks};
pub use invariants::Violation;
pub use plan::{Kind, Plan};
pub use world::{Crash, Setup, Topology, World};
