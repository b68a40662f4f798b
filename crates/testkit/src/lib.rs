//! Clusters of real nodes for tests: in one process, on ports the system chooses.
//!
//! Tests wait for conditions with [`eventually`], never for time to pass.

mod client;
mod cluster;
mod proxy;
mod wait;

pub use client::{TestClient, member};
pub use cluster::{Cluster, free_address, patient_timers, quick_timers};
pub use proxy::Proxy;
pub use wait::{PATIENCE, eventually};
