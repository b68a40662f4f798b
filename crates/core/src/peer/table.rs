//! Known peers, their addresses, and the attempts to reach them.

use super::Link;
use crate::node::{DialId, KnownPeer, LinkId, PeerState, SeedFailure};
use crate::time::Time;
use crate::version::{Incarnation, NodeId};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) region: String,
    pub(crate) peer_address: String,
    pub(crate) client_address: String,
    pub(crate) state: PeerState,
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) ready: bool,
    /// It was ready on the current link, and reports that it no longer is.
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

/// An address from the configuration (P4).
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) address: String,
    /// The node last found there.
    pub(crate) node: Option<NodeId>,
    pub(crate) dial: Option<DialId>,
    pub(crate) oneself: bool,
    /// Why no node was found there.
    pub(crate) failure: Option<SeedFailure>,
    /// Attempts while no node had been found there.
    pub(crate) attempts: u32,
}

/// The purpose of a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    Peer(NodeId),
    Seed(usize),
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

impl Peer {
    pub(crate) fn new(region: &str, peer_address: &str) -> Self {
        Peer {
            region: region.to_owned(),
            peer_address: peer_address.to_owned(),
            client_address: String::new(),
            state: PeerState::Connecting,
            incarnation: None,
            ready: false,
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
                failure: None,
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
