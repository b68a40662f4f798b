//! How a node is.

use super::NodeHandle;
use crate::counters::NetworkCounters;
use crate::shared::Phase;
use convoke_core::Rejection;
use convoke_core::node::{DegradedReason, Sizes};
use convoke_core::version::Incarnation;
use std::time::Duration;

/// A node's own account of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub incarnation: Incarnation,
    pub phase: Phase,
    pub uptime: Duration,
    pub sizes: Sizes,
    pub degraded: Vec<DegradedReason>,
    /// Equal at two nodes that hold the same.
    pub context_hash: u64,
}

/// Monotonic counters of the registry and of the network around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub registry: convoke_core::node::Counters,
    pub network: NetworkCounters,
}

impl NodeHandle {
    pub async fn status(&self) -> Result<NodeStatus, Rejection> {
        let phase = self.phase();
        self.ask(move |owner, now| {
            let core = &*owner.core().0;
            NodeStatus {
                incarnation: core.origin().incarnation,
                phase,
                uptime: Duration::from_micros(now.as_micros()),
                sizes: core.sizes(),
                degraded: core.degraded(),
                context_hash: core.context_hash(),
            }
        })
        .await
    }

    pub async fn counters(&self) -> Result<Counters, Rejection> {
        let registry = self.ask(|owner, _| *owner.core().0.counters()).await?;
        Ok(Counters { registry, network: self.shared.counting.read() })
    }
}
