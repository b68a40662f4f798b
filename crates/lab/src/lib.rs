//! Clusters of real `convoke` processes on one machine, and faults between them, without privileges.
//!
//! Every node of a [`LocalCluster`] has a loopback address of its own (Linux has all of 127.0.0.0/8) and dials from it. In
//! front of its peer port, at the address it advertises, stands a [`Relay`]: by the source address it knows who
//! dials, and by the [`Network`] which ways are cut or slow. Nodes are paused and killed by signals.
//!
//! Whatever happens to the process that holds a cluster, its nodes end with it. Directories of those that were killed are removed
//! by whoever comes next ([`StateDir`]).

mod cluster;
mod network;
mod node;
mod relay;
mod state_dir;

pub use cluster::{ClusterPlan, LocalCluster, NODES_MAX};
pub use network::{Network, Way, Ways};
pub use node::{LocalNode, NodeError, NodeState};
pub use relay::Relay;
pub use state_dir::{StateDir, StateDirError};
