//! The status of a node.

use super::NodeHandle;
use crate::counters::NetworkCounters;
use crate::shared::Phase;
use convoke_core::Rejection;
use convoke_core::node::{DegradedReason, PeerState, PeerView, Registration, Sizes};
use convoke_core::version::{Incarnation, NodeId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Status of a node, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    pub incarnation: Incarnation,
    pub phase: Phase,
    pub uptime: Duration,
    pub sizes: Sizes,
    pub queues: QueueLengths,
    /// Number of other nodes by the state of the link to them.
    pub peers: BTreeMap<PeerState, usize>,
    pub degraded: Vec<DegradedReason>,
    /// Linked peers that hold other records, although both have received the same writes (D16).
    pub diverged: Vec<NodeId>,
    /// Equal at two nodes that hold the same records.
    pub context_hash: u64,
    /// Attached sessions of clients with a stream.
    pub streamed_sessions: u64,
    /// Those above the share of this node (N10).
    pub session_excess: u64,
}

/// Lengths of the queues of a node. Each has a limit, and a counter of what was rejected there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Requests of clients that wait for the event loop.
    pub client_requests: usize,
    /// Calls of this process that wait for the event loop.
    pub calls: usize,
    /// Batches of peer frames and other events of peer connections that wait for the event loop.
    pub peer_inputs: usize,
    /// Bytes that wait for the slowest peer.
    pub link_bytes_max: usize,
}

/// Monotonic counters of the registry and of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub registry: convoke_core::node::Counters,
    pub network: NetworkCounters,
}

/// Whether the registry of a node can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryStanding {
    /// The node sees another node, or knows none that has not left.
    pub connected: bool,
    pub degraded: bool,
}

impl NodeHandle {
    pub async fn status(&self) -> Result<NodeStatus, Rejection> {
        let (phase, mut queues) = (self.phase(), self.shared.queue_lengths());
        self.run_in_event_loop(move |event_loop, now| {
            queues.link_bytes_max = event_loop.link_bytes_max();
            let core = &*event_loop.core().0;
            let disputed = core.is_id_disputed().then_some(DegradedReason::Identity).into_iter();
            NodeStatus {
                incarnation: core.origin().incarnation,
                phase,
                uptime: Duration::from_micros(now.as_micros()),
                sizes: core.sizes(),
                streamed_sessions: core.streamed_sessions(),
                session_excess: core.session_excess(),
                queues,
                peers: count_by_state(&core.peers()),
                degraded: disputed.chain(core.degraded()).collect(),
                diverged: core.diverged_peers(),
                context_hash: core.context_hash(),
            }
        })
        .await
    }

    /// Returns the registrations of members that this node has a record of, tombstones included, and whether its
    /// registry can be relied on at the same moment.
    pub async fn registrations(
        &self,
        ids: Vec<String>,
    ) -> Result<(BTreeMap<String, Registration>, RegistryStanding), Rejection> {
        self.run_in_event_loop(move |event_loop, _| {
            let core = &*event_loop.core().0;
            let found = ids.into_iter().filter_map(|id| core.registration(&id).map(|found| (id, found)));
            let peers = core.peers();
            let others = || peers.iter().filter(|peer| peer.state != PeerState::Left);
            let linked = others().any(|peer| matches!(peer.state, PeerState::Up | PeerState::Distant));
            let standing = RegistryStanding {
                connected: linked || others().next().is_none(),
                degraded: !core.degraded().is_empty(),
            };
            (found.collect(), standing)
        })
        .await
    }

    pub async fn counters(&self) -> Result<Counters, Rejection> {
        let registry = self.run_in_event_loop(|event_loop, _| *event_loop.core().0.counters()).await?;
        Ok(Counters { registry, network: self.shared.counting.read() })
    }
}

fn count_by_state(peers: &[PeerView]) -> BTreeMap<PeerState, usize> {
    let mut counts = BTreeMap::new();
    for peer in peers {
        *counts.entry(peer.state).or_default() += 1;
    }
    counts
}
