//! Clusters of real nodes for tests: in one process or as processes, on ports the system chooses; and outputs compared with files.
//!
//! Tests wait for conditions with [`eventually`], never for time to pass.

mod client;
mod cluster;
mod golden;
mod process;
mod proxy;
mod wait;

pub use client::{TestClient, member};
pub use cluster::{Cluster, free_address, patient_timers, quick_timers};
pub use golden::compare_golden;
pub use process::{NodeProcess, Process, run};
pub use proxy::Proxy;
pub use wait::{PATIENCE, eventually, until};
