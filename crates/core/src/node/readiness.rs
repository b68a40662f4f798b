//! When a starting node has the registry: it compares contexts with every serving peer that it reaches (N3).

use super::{Node, Output, Phase, RegistryEvent};
use crate::mutant::seam;
use crate::peer::LinkPhase;
use crate::time::{Duration, Time};
use crate::version::NodeId;
use std::collections::BTreeSet;

/// The registries that a starting node has received.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The serving peers with which an exchange is complete.
    from: BTreeSet<NodeId>,
    /// When the first of them was complete.
    first_at: Option<Time>,
    /// The longest time for which one of them itself reports no member as absent.
    grace: Duration,
}

impl Node {
    /// An exchange with a serving peer is complete.
    pub(super) fn registry_received(&mut self, from: &NodeId, grace: Duration, out: &mut Output) {
        if matches!(self.phase, Phase::Starting { .. }) {
            self.received.from.insert(from.clone());
            self.received.first_at.get_or_insert(self.clock.now);
            self.received.grace = self.received.grace.max(grace);
            self.check_received(out);
        }
    }

    /// A starting node that has a registry is serving once it has exchanged with all serving peers that it reaches: the first
    /// one may lag behind the others. It does not wait for longer than `lone_start_wait`.
    pub(super) fn check_received(&mut self, out: &mut Output) {
        let Some(first_at) = self.received.first_at.filter(|_| matches!(self.phase, Phase::Starting { .. })) else {
            return;
        };
        let timers = &self.config.timers;
        let (waited, grace) = (self.clock.now.since(first_at), self.received.grace);
        let (bound, without) = (timers.lone_start_wait, timers.heartbeat_timeout);
        // A dial that is not answered by then is one to a dead node, or to one behind a partition.
        let dialling = waited < timers.ping_interval && self.is_connecting();
        let missing = self.serving_peers_not_received();
        seam!(self, ServingAfterOnePeer => return self.begin_serving(false, grace, out));
        // Another process uses the id, or has just ended (N4).
        if self.is_rejected() {
            return;
        }
        if missing.is_empty() && !dialling {
            self.begin_serving(false, grace, out);
        } else if waited >= bound {
            self.begin_serving(false, grace.max(without), out);
            out.events.push(RegistryEvent::ServingWithout { peers: missing, grace: without });
        }
    }

    /// Whether a connection to a seed or a peer is about to be established.
    fn is_connecting(&self) -> bool {
        seam!(self, SeedsNotAwaited => return self.peers.peers.values().any(|peer| peer.dial.is_some()));
        !self.peers.dials.is_empty() || self.peers.links.values().any(|link| link.phase == LinkPhase::Handshake)
    }

    /// Connected serving peers whose registry has not been received.
    fn serving_peers_not_received(&self) -> Vec<NodeId> {
        let linked = self.peers.up().map(|(node, _)| node);
        let missing = linked.filter(|node| !self.received.from.contains(*node) && self.has_served(node));
        missing.cloned().collect()
    }

    /// Peers whose full merge was aborted because of another one are asked again when that one is complete. A starting
    /// node does not wait for the gossip interval: it serves no one yet.
    pub(super) fn request_after_full_merge(&mut self, full: bool, out: &mut Output) {
        if !full || !matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        for link in &self.to_ask {
            if let Some(link) = self.peers.links.get_mut(link) {
                link.wanted = None;
            }
        }
        self.request_due_exchanges(out);
    }
}
