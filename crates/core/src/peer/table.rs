//! Known peers, their addresses, and the attempts to reach them.

use super::Link;
use crate::node::{DialId, KnownPeer, LinkId, PeerState, SeedFailure};
use crate::time::Time;
use crate::version::{Incarnation, NodeId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) region: String,
    pub(crate) peer_address: String,
    pub(crate) client_address: String,
    pub(crate) state: PeerState,
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) serving: bool,
    /// Sessions with a stream, as it reported with its last ping (N10).
    pub(crate) sessions: u64,
    /// It was serving on the current link, and reports that it no longer is.
    pub(crate) stopping: bool,
    /// The connection in use, or the own dial waiting for its Welcome.
    pub(crate) link: Option<LinkId>,
    /// A second connection that waits (P5).
    pub(crate) candidate: Option<LinkId>,
    pub(crate) dial: Option<DialId>,
    /// When the next attempt is due; stale timers are recognised by it.
    pub(crate) retry_at: Option<Time>,
    pub(crate) query: Option<HealthQuery>,
    /// Another peer agreed that it is lost (L6).
    pub(crate) confirmed: bool,
}

/// A query to other peers about a lost peer (P3).
#[derive(Debug)]
pub(crate) struct HealthQuery {
    pub(crate) id: u64,
    pub(crate) asked: usize,
    /// The peers that answered, and whether they can reach it.
    pub(crate) answers: BTreeMap<NodeId, bool>,
}

/// An address from the configuration (P12).
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) address: String,
    /// The node last found there.
    pub(crate) node: Option<NodeId>,
    pub(crate) dial: Option<DialId>,
    /// Whether the last dial reached this node itself.
    pub(crate) oneself: bool,
    /// The number of addresses that a name led to. There may be a node at each of them.
    pub(crate) addresses: usize,
    /// Why no node was found there.
    pub(crate) failure: Option<SeedFailure>,
    /// The failure that was reported last.
    pub(crate) reported: Option<SeedFailure>,
    /// Attempts while no node had been found there.
    pub(crate) attempts: u32,
}

/// The purpose of a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    Peer(NodeId),
    Seed(usize),
    /// Another process with the id of this node may be there (N4).
    SameId,
}

#[derive(Debug, Default)]
pub(crate) struct Peers {
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) seeds: Vec<Seed>,
    pub(crate) dials: BTreeMap<DialId, Dial>,
    next_dial: u64,
    next_query: u64,
}

impl Seed {
    /// Whether only this node can be there. A name may lead to other nodes with the next dial.
    pub(crate) fn is_this_node(&self) -> bool {
        self.oneself && self.address.parse::<SocketAddr>().is_ok()
    }
}

/// Returns the addresses behind one name in the order in which a dial tries them. Each `turn` begins with another address,
/// because the first one that accepts may be this node itself, or a node that is linked. The first turn keeps the order of
/// the resolver, and the later ones have an order of their own: resolvers rotate their answers too.
pub fn dial_order<T: Ord>(mut addresses: Vec<T>, turn: u32) -> Vec<T> {
    if turn > 0 && !addresses.is_empty() {
        addresses.sort_unstable();
        addresses.dedup();
        let first = turn as usize % addresses.len();
        addresses.rotate_left(first);
    }
    addresses
}

impl Peer {
    pub(crate) fn new(region: &str, peer_address: &str) -> Self {
        Peer {
            region: region.to_owned(),
            peer_address: peer_address.to_owned(),
            client_address: String::new(),
            state: PeerState::Connecting,
            incarnation: None,
            serving: false,
            sessions: 0,
            stopping: false,
            link: None,
            candidate: None,
            dial: None,
            retry_at: None,
            query: None,
            confirmed: false,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_some() || self.candidate.is_some()
    }
}

impl Peers {
    pub(crate) fn new(seeds: &[String], known: Vec<KnownPeer>) -> Self {
        let seeds = seeds
            .iter()
            .map(|address| Seed {
                address: address.clone(),
                node: None,
                dial: None,
                oneself: false,
                addresses: 1,
                failure: None,
                reported: None,
                attempts: 0,
            })
            .collect();
        let known = known.into_iter();
        let peers = known.map(|peer| (peer.node, Peer::new(&peer.region, &peer.peer_address))).collect();
        Peers { seeds, peers, ..Self::default() }
    }

    /// Peers that the next incarnation may find at the same address.
    pub(crate) fn known(&self) -> Vec<KnownPeer> {
        let there = |peer: &Peer| !peer.peer_address.is_empty() && peer.state != PeerState::Left;
        let known = self.peers.iter().filter(|(_, peer)| there(peer)).map(|(node, peer)| KnownPeer {
            node: node.clone(),
            region: peer.region.clone(),
            peer_address: peer.peer_address.clone(),
        });
        known.collect()
    }

    pub(crate) fn start_dial(&mut self, dial: Dial) -> DialId {
        self.next_dial += 1;
        let id = DialId(self.next_dial);
        self.dials.insert(id, dial);
        id
    }

    pub(crate) fn next_query(&mut self) -> u64 {
        self.next_query += 1;
        self.next_query
    }

    /// The links that are up, with their peers.
    pub(crate) fn up(&self) -> impl Iterator<Item = (&NodeId, &Link)> {
        self.links.values().filter(|link| link.is_up()).filter_map(|link| Some((link.peer.as_ref()?, link)))
    }

    pub(crate) fn up_links(&self) -> Vec<LinkId> {
        self.up().map(|(_, link)| link.id).collect()
    }

    pub(crate) fn link_to(&self, node: &NodeId) -> Option<&Link> {
        let link = self.links.get(&self.peers.get(node)?.link?)?;
        link.is_up().then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::dial_order;

    #[test]
    fn each_turn_begins_with_another_address() {
        assert_eq!(dial_order(vec![2, 1, 3], 0), [2, 1, 3], "the order of the resolver");
        assert_eq!(dial_order(vec![2, 1, 3], 1), [2, 3, 1]);
        assert_eq!(dial_order(vec![3, 2, 1], 2), [3, 1, 2]);
        assert_eq!(dial_order(vec![1, 3, 2, 2], 3), [1, 2, 3]);
        assert_eq!(dial_order(vec![7], u32::MAX), [7]);
        assert_eq!(dial_order(Vec::<u8>::new(), 1), []);
    }
}
