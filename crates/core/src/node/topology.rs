//! The links that a node wants, and how regions stay connected (P9).

use super::{LossReason, Node, Output, PeerState};
use crate::mutant::seam;
use crate::peer::{Link, Peer};
use crate::version::{NodeId, OriginId};
use crate::wire::Message;
use foldhash::fast::FixedState;
use std::collections::BTreeSet;
use std::hash::BuildHasher;

/// Most nodes of other regions that a node begins to dial per ping interval.
const SEEK_MAX: usize = 8;

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

    /// Dials peers that should be linked, closes region links that others have taken over, and finds other paths to nodes
    /// of other regions (P9).
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
        self.seek_lost_nodes(out);
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
        if link.dialled && peer.candidate.is_none() && served() && !self.is_only_path(node, &peer.region, link) {
            if let Some(peer) = self.peers.peers.get_mut(node) {
                peer.state = PeerState::Distant;
            }
            self.send(id, &Message::Goodbye { leaving: false }, out);
            self.close(id, LossReason::Replaced, out);
        }
    }

    /// Whether a node of another region cannot reach its own region: it has not sent which origins it lacks a link to, or
    /// lacks one to an admitted node of its region. Links of others to that region do not help it.
    fn is_only_path(&self, node: &NodeId, region: &str, link: &Link) -> bool {
        seam!(self, SplitRegionIgnored => return false);
        let lacks = |origin: &OriginId| {
            let there = self.peers.peers.get(&origin.node).is_some_and(|peer| peer.region == region);
            let index = self.map.origins.index_of(origin);
            let admitted = index.is_some_and(|index| self.map.origins.entry(index).standing.is_admitted());
            there && admitted && origin.node != *node && !self.map.origins.is_outlived(origin)
        };
        link.received_seq == 0 || link.asked.iter().any(lacks)
    }

    /// Dials nodes of other regions of which there has been no evidence for a while (P9). Each is dialled once per retry
    /// interval; admitted ones first, because their members become `down` soon. Siblings begin with different nodes.
    fn seek_lost_nodes(&mut self, out: &mut Output) {
        seam!(self, LostRegionsIgnored => return);
        let now = self.clock.now;
        let timers = &self.config.timers;
        let ticks = timers.peer_retry_interval.as_micros().div_ceil(timers.ping_interval.as_micros().max(1)).max(1);
        let lost: Vec<(&NodeId, &Peer)> = self
            .peers
            .peers
            .iter()
            .filter(|(node, peer)| peer.region != self.config.region && self.is_lost(node))
            .collect();
        let mut most = lost.len().div_ceil(ticks as usize).min(SEEK_MAX);
        seam!(self, LostRegionsSoughtSlowly => most = usize::from(self.liveness_counter.is_multiple_of(ticks as u64)));
        let hasher = FixedState::with_seed(0);
        let order = |node: &NodeId| {
            seam!(self, LostRegionsSoughtSlowly => return 0);
            hasher.hash_one((self.me.node.as_str(), node.as_str()))
        };
        let due = lost.into_iter().filter(|(_, peer)| {
            seam!(self, LeftNodesNotSought => if peer.state == PeerState::Left { return false });
            peer.link.is_none() && peer.dial.is_none() && peer.retry_at.is_none_or(|at| at <= now)
        });
        let mut due: Vec<_> =
            due.map(|(node, peer)| (!self.is_admitted(node), peer.retry_at, order(node), node.clone())).collect();
        due.sort();
        for (.., node) in due.into_iter().take(most) {
            self.dial_peer(&node, out);
        }
    }

    /// Whether there has been no evidence of a node for so long that the paths by which it came are lost: a ping timeout,
    /// and the relay over two links.
    fn is_lost(&self, node: &NodeId) -> bool {
        let patience = self.config.timers.ping_timeout + self.config.timers.ping_interval * 2;
        let newest = self.map.origins.incarnations(node).last();
        newest.is_none_or(|(_, index)| {
            !self.map.origins.entry(index).standing.is_admitted() || self.silence(index) > patience
        })
    }
}
