//! Comparison of the contents with those of peers that have the same context (D16).

use super::{LinkId, Node, Output, RegistryEvent};
use crate::mutant::seam;
use crate::version::NodeId;

/// This many comparisons in a row must differ. A difference that the next writes resolve ends before (D13).
const DIFFERENCES_MIN: u32 = 3;

impl Node {
    /// The digest of the contents, for comparison. A node that is not serving writes nothing, so its differences may wait
    /// for a write of its own (D13).
    pub(super) fn contents_digest(&self) -> Option<u64> {
        if self.is_serving() { self.map.contents_digest() } else { None }
    }

    /// Compares the digest of a peer whose context hash equals that of this node.
    pub(super) fn compare_contents(&mut self, id: LinkId, node: &NodeId, peer: Option<u64>, out: &mut Output) {
        seam!(self, ContentsNotCompared => return);
        let (Some(own), Some(peer)) = (self.contents_digest(), peer) else { return };
        let Some(link) = self.peers.links.get_mut(&id) else { return };
        self.counters.contents_compared += 1;
        let node = node.clone();
        if own != peer {
            link.contents_differed = link.contents_differed.saturating_add(1);
            if link.contents_differed == DIFFERENCES_MIN {
                self.counters.divergences += 1;
                out.events.push(RegistryEvent::Diverged { node });
            }
        } else if std::mem::take(&mut link.contents_differed) >= DIFFERENCES_MIN {
            out.events.push(RegistryEvent::DivergenceEnded { node });
        }
    }

    /// Linked peers that hold other records than this node with the same context.
    pub fn diverged_peers(&self) -> Vec<NodeId> {
        let diverged = self.peers.up().filter(|(_, link)| link.contents_differed >= DIFFERENCES_MIN);
        let mut nodes: Vec<NodeId> = diverged.map(|(node, _)| node.clone()).collect();
        nodes.sort();
        nodes
    }
}
