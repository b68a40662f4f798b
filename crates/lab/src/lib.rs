//! Clusters of real `convoke` processes on one machine, and faults between them, without privileges.
//!
//! Every node of a [`LocalCluster`] has its own loopback address (Linux routes all of 127.0.0.0/8) and dials from it. Peers
//! dial a [`Relay`] in front of the node. The relay identifies the dialling node by its source address, and applies the
//! faults of the [`RelayNetwork`]. Nodes are paused and killed by signals.
//!
//! The nodes end with the process that owns the cluster. If that process was killed, the next one removes its directory
//! ([`StateDir`]).

mod cluster;
mod network;
mod node;
mod process;
mod relay;
mod state_dir;

pub use cluster::{ClusterPlan, LocalCluster, NODES_MAX};
pub use network::{Direction, LinkFaults, RelayNetwork};
pub use node::{LocalNode, NodeState};
pub use process::{NodeAddresses, NodeCommand, NodeError, NodeProcess, remove_configuration};
pub use relay::Relay;
pub use state_dir::{StateDir, StateDirError};
