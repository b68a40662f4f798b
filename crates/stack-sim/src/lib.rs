//! The log's whole stack in simulation: real replicas (engine, storage format, framing), the real gRPC service and the
//! real SDK, on a simulated network (turmoil), disk and clock, with faults drawn from a seed.
//!
//! `docs/log-simulation.md` describes which parts are real, what is checked, and how reproducible a run is.

mod checks;
mod clients;
mod cluster;
mod coordination;
mod disk;
pub mod drive;
mod faults;
mod links;
mod lockers;
mod members;
mod net;
mod node;
mod operator;
mod outsiders;
mod plan;
mod record;
mod registry;
mod restores;
pub mod stats;
mod transactions;
mod world;

pub use faults::Fault;
pub use outsiders::OUTSIDE;
pub use plan::{Mutant, Plan};
