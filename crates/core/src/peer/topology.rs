//! Which peers a node wants a link to (P9).

use super::Peers;
use crate::node::PeerState;
use crate::version::NodeId;

/// Links between two regions.
const REGION_LINKS: usize = 2;

impl Peers {
    /// Whether this node should have a direct link to `peer`: always inside the region; across regions only between
    /// counterparts among the lowest live nodes.
    pub(crate) fn wants(&self, me: &NodeId, my_region: &str, peer: &NodeId, live: impl Fn(&NodeId) -> bool) -> bool {
        let Some(entry) = self.peers.get(peer) else { return true };
        if entry.region == my_region {
            return true;
        }
        let mine = self.lowest(my_region, Some(me), &live);
        let theirs = self.lowest(&entry.region, None, &live);
        counterparts(&mine, &theirs).any(|(a, b)| a == me && b == peer)
    }

    fn lowest<'a>(&'a self, region: &str, me: Option<&'a NodeId>, live: &impl Fn(&NodeId) -> bool) -> Vec<&'a NodeId> {
        let peers = self
            .peers
            .iter()
            .filter(|(node, peer)| peer.region == region && peer.state != PeerState::Left && live(node))
            .map(|(node, _)| node);
        let mut nodes: Vec<&NodeId> = peers.chain(me).collect();
        nodes.sort();
        nodes.truncate(REGION_LINKS);
        nodes
    }
}

/// Pairs the lowest nodes of two regions; where one has fewer, its nodes serve several.
fn counterparts<'a>(
    mine: &'a [&'a NodeId],
    theirs: &'a [&'a NodeId],
) -> impl Iterator<Item = (&'a NodeId, &'a NodeId)> {
    let pairs = if mine.is_empty() || theirs.is_empty() { 0 } else { mine.len().max(theirs.len()) };
    (0..pairs).map(move |i| (mine[i % mine.len()], theirs[i % theirs.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn peers(list: &[(&str, &str)]) -> Peers {
        let mut peers = Peers::default();
        for (name, region) in list {
            peers.peers.insert(node(name), Peer::new(region, ""));
        }
        peers
    }

    #[test]
    fn full_mesh_inside_two_links_between() {
        let known = peers(&[("a2", "eu"), ("a3", "eu"), ("b1", "us"), ("b2", "us"), ("b3", "us")]);
        let wanted = |live: fn(&NodeId) -> bool| -> Vec<&str> {
            known.peers.keys().filter(|p| known.wants(&node("a1"), "eu", p, live)).map(NodeId::as_str).collect()
        };
        assert_eq!(wanted(|_| true), ["a2", "a3", "b1"]);
        assert_eq!(wanted(|n| n.as_str() != "b1"), ["a2", "a3", "b2"]);
    }

    #[test]
    fn a_region_of_one_serves_both_links() {
        let known = peers(&[("b1", "us"), ("b2", "us"), ("b3", "us")]);
        let wanted: Vec<_> = known.peers.keys().filter(|p| known.wants(&node("a1"), "eu", p, |_| true)).collect();
        assert_eq!(wanted, [&node("b1"), &node("b2")]);
    }
}
