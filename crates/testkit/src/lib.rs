//! Test support: clusters of real nodes, in one process ([`Cluster`]) or as processes ([`ProcessCluster`]) that tests kill,
//! pause, stop and restart.
//!
//! Nodes run on loopback, behind a [`Proxy`] that blocks or drops connections, or on a [`NamespaceNetwork`] of network namespaces
//! that can be partitioned. [`golden!`] compares outputs with files. Tests wait for conditions with [`eventually`], never
//! for time to pass.

mod client;
mod cluster;
mod consul;
mod golden;
mod measured;
mod network;
mod process;
mod process_cluster;
mod proxy;
mod skip;
mod terminal;
mod wait;

pub use client::{TestClient, member};
pub use cluster::{Cluster, free_address, meshed, patient_timers, quick_timers, start_alone};
pub use consul::{ConsulAgent, consul_program};
pub use golden::compare_golden;
pub use measured::measured;
pub use network::{NamespaceNetwork, NetworkUnavailable};
pub use process::{Process, TestNode, run};
pub use process_cluster::{ProcessCluster, ProcessClusterPlan};
pub use proxy::Proxy;
pub use skip::skip;
pub use terminal::Terminal;
pub use wait::{TEST_TIMEOUT, eventually, until};
