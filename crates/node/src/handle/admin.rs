//! What operators ask for.

use super::NodeHandle;
use convoke_core::Rejection;
use convoke_core::node::{Explanation, Feeder, PeerView};
use convoke_core::version::NodeId;

impl NodeHandle {
    /// Sets or clears the drain mark of a member, wherever its owner is.
    pub async fn drain(&self, id: &str, drained: bool) -> Result<(), Rejection> {
        let id = id.to_owned();
        self.ask(move |owner, now| {
            let (core, out) = owner.core();
            core.drain(now, &id, drained, out)
        })
        .await?
    }

    /// Marks this node as drained, or not.
    pub async fn drain_node(&self, drained: bool) -> Result<(), Rejection> {
        self.ask(move |owner, now| {
            let (core, out) = owner.core();
            core.drain_node(now, drained, out)
        })
        .await?
    }

    /// Why a member has the status it has, tombstones included; `None` if nothing is known under this id.
    pub async fn explain(&self, id: &str) -> Result<Option<Explanation>, Rejection> {
        let id = id.to_owned();
        self.ask(move |owner, _| owner.core().0.explain(&id)).await
    }

    /// Which other node feeds the members of a client's process; `None` if this one does, or none is known.
    pub async fn fed_by(&self, client: &str, nonce: u64) -> Result<Option<Feeder>, Rejection> {
        let client = client.to_owned();
        self.ask(move |owner, _| owner.core().0.fed_by(&client, nonce)).await
    }

    /// The other nodes, as this one sees its links to them.
    pub async fn nodes(&self) -> Result<Vec<PeerView>, Rejection> {
        self.ask(|owner, _| owner.core().0.peers()).await
    }

    /// Removes a node that is not connected, until it is heard of again.
    pub async fn forget(&self, node: &NodeId) -> Result<(), Rejection> {
        let node = node.clone();
        self.ask(move |owner, now| {
            let (core, out) = owner.core();
            core.forget(now, &node, out)
        })
        .await?
    }
}
