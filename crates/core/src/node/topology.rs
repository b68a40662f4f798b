//! The links that a node wants, and how regions stay connected (P9).

use super::{LossReason, Node, Output, PeerState};
use crate::mutant::seam;
use crate::version::NodeId;
use crate::wire::Message;
use std::collections::BTreeSet;

impl Node {
    /// Whether a direct link to this peer is wanted (P9).
    pub(super) fn wants_link(&self, node: &NodeId) -> bool {
        self.peers.wants(&self.me.node, &self.config.region, node, |node| self.seems_live(node))
    }

    /// Whether a node counts as alive. A node that only this one cannot reach does; others reach it.
    fn seems_live(&self, node: &NodeId) -> bool {
        let lost = self.peers.peers.get(node).is_some_and(|p| matches!(p.state, PeerState::Lost | PeerState::Failed));
        !lost || self.is_admitted(node)
    }

    pub(super) fn is_admitted(&self, node: &NodeId) -> bool {
        self.map.origins.incarnations(node).any(|(_, index)| self.map.origins.entry(index).standing.is_admitted())
    }

    /// Dials peers that should be linked, closes region links that others have taken over, and finds another path into
    /// a region that no node of this region is linked to (P9).
    pub(super) fn repair_topology(&mut self, out: &mut Output) {
        let now = self.clock.now;
        let nodes: Vec<NodeId> = self.peers.peers.keys().cloned().collect();
        for node in &nodes {
            let wanted = self.wants_link(node);
            let Some(peer) = self.peers.peers.get_mut(node) else { continue };
            let idle = peer.link.is_none() && peer.dial.is_none() && peer.retry_at.is_none_or(|at| at <= now);
            match (wanted, peer.state) {
                (true, PeerState::Distant) => {
                    peer.state = PeerState::Connecting;
                    self.dial_peer(node, out);
                }
                (true, PeerState::Connecting | PeerState::Lost | PeerState::Failed | PeerState::Left) if idle => {
                    self.dial_peer(node, out);
                }
                (false, PeerState::Connecting) if idle => peer.state = PeerState::Distant,
                (false, PeerState::Up) => self.close_redundant_link(node, out),
                _ => {}
            }
        }
        self.serve_unserved_regions(out);
    }

    /// Regions this node has a link to.
    pub(super) fn linked_regions(&self) -> Vec<String> {
        let regions: BTreeSet<&String> =
            self.peers.up().filter_map(|(node, _)| Some(&self.peers.peers.get(node)?.region)).collect();
        regions.into_iter().filter(|region| **region != self.config.region).cloned().collect()
    }

    /// Whether a sibling that satisfies `which` has a link to this region.
    fn sibling_serves(&self, region: &String, which: impl Fn(&NodeId) -> bool) -> bool {
        self.peers.up().any(|(node, link)| {
            let sibling = self.peers.peers.get(node).is_some_and(|peer| peer.region == self.config.region);
            sibling && which(node) && link.regions.contains(region)
        })
    }

    /// Closes a region link this node dialled, once a lower sibling has one, or this node has the one it wants.
    fn close_redundant_link(&mut self, node: &NodeId, out: &mut Output) {
        let Some(peer) = self.peers.peers.get(node) else { return };
        let Some(link) = peer.link.and_then(|link| self.peers.links.get(&link)) else { return };
        let id = link.id;
        let has_wanted = || {
            self.peers.up().any(|(other, _)| {
                let same = self.peers.peers.get(other).is_some_and(|other| other.region == peer.region);
                same && self.wants_link(other)
            })
        };
        let served = || self.sibling_serves(&peer.region, |sibling| *sibling < self.me.node) || has_wanted();
        if link.dialled && peer.candidate.is_none() && served() {
            if let Some(peer) = self.peers.peers.get_mut(node) {
                peer.state = PeerState::Distant;
            }
            self.send(id, &Message::Goodbye { leaving: false }, out);
            self.close(id, LossReason::Replaced, out);
        }
    }

    /// The node of an unserved region to dial next: the one that was dialled longest ago. Round robin dials a live node
    /// after at most as many intervals as the region has nodes; at random it could be missed for longer than
    /// `reconnect_timeout` (P9).
    fn next_entry_node(&self, ways: &[NodeId]) -> Option<NodeId> {
        let retry_at = |node: &NodeId| self.peers.peers.get(node).and_then(|peer| peer.retry_at);
        ways.iter().min_by_key(|node| retry_at(node)).cloned()
    }

    /// Dials into regions that no node of this region has had a link to for `peer_retry_interval`: admitted nodes if
    /// there are any, otherwise any node. One that has left may be back, and may not know this node.
    fn serve_unserved_regions(&mut self, out: &mut Output) {
        seam!(self, UnservedRegionsIgnored => return);
        let now = self.clock.now;
        let regions: BTreeSet<String> = self.peers.peers.values().map(|peer| peer.region.clone()).collect();
        let linked = self.linked_regions();
        self.unserved.retain(|region, _| regions.contains(region));
        for region in regions {
            let served =
                region == self.config.region || linked.contains(&region) || self.sibling_serves(&region, |_| true);
            if served {
                self.unserved.remove(&region);
                continue;
            }
            let since = *self.unserved.entry(region.clone()).or_insert(now);
            if now.since(since) < self.config.timers.peer_retry_interval {
                continue;
            }
            self.unserved.insert(region.clone(), now);
            let inside = self.peers.peers.iter().filter(|(_, peer)| peer.region == region);
            let (live, silent): (Vec<NodeId>, Vec<NodeId>) =
                inside.map(|(node, _)| node.clone()).partition(|node| self.is_admitted(node));
            let ways = if live.is_empty() { silent } else { live };
            if let Some(way) = self.next_entry_node(&ways) {
                self.dial_peer(&way, out);
            }
        }
    }
}
