//! Handshakes: Hello, Welcome, Reject; one link per pair (P2, P5).

use super::{Effect, LinkId, LossReason, Node, Output, PeerState, Phase, RegistryEvent, SeedFailure, Timer};
use crate::mutant::seam;
use crate::peer::{LinkPhase, Peer};
use crate::time::ReceivedAt;
use crate::version::{Incarnation, NodeId, OriginId};
use crate::wire::{Hello, Message, PROTOCOL_VERSION, RejectReason};

impl Node {
    /// This node's Hello, for the given origin if known.
    pub(super) fn hello(&self, to: Option<&OriginId>) -> Hello {
        let nodes = self
            .peers
            .peers
            .iter()
            .filter(|(_, peer)| !peer.peer_address.is_empty() && peer.state != PeerState::Left)
            .map(|(node, peer)| (node.clone(), peer.region.clone(), peer.peer_address.clone()))
            .collect();
        Hello {
            version: PROTOCOL_VERSION,
            cluster: self.config.cluster.clone(),
            origin: self.me.clone(),
            region: self.config.region.clone(),
            peer_address: self.config.peer_address.clone(),
            client_address: self.config.client_address.clone(),
            serving: self.is_serving(),
            known_incarnation: to.and_then(|origin| self.map.known_incarnation(&origin.node, origin)),
            nodes,
        }
    }

    fn is_of_another_cluster(&self, hello: &Hello) -> bool {
        seam!(self, AnyClusterAccepted => return false);
        hello.cluster != self.config.cluster
    }

    fn objection(&mut self, hello: &Hello) -> Option<RejectReason> {
        if self.is_of_another_cluster(hello) {
            Some(RejectReason::Cluster)
        } else if hello.version != PROTOCOL_VERSION {
            Some(RejectReason::Version)
        } else if hello.origin == self.me {
            Some(RejectReason::Oneself)
        } else if hello.origin.node == self.me.node {
            Some(RejectReason::Identity)
        } else if !self.peers.peers.contains_key(&hello.origin.node)
            && self.peers.peers.len() >= self.config.limits.peers
            && !self.drop_gone_peer()
        {
            Some(RejectReason::Full)
        } else if !self.map.has_room_for_incarnation(&hello.origin) {
            Some(RejectReason::Incarnations)
        } else {
            None
        }
    }

    /// Makes room in a full table of peers: removes one that is gone (D15). False if there is none.
    fn drop_gone_peer(&mut self) -> bool {
        let origins = &self.map.origins;
        let gone = |(node, peer): &(&NodeId, &Peer)| !peer.is_connected() && origins.is_gone(node);
        let gone = self.peers.peers.iter().find(gone).map(|(node, _)| node.clone());
        gone.is_some_and(|node| self.peers.peers.remove(&node).is_some())
    }

    fn reject(
        &mut self,
        id: LinkId,
        node: NodeId,
        reason: RejectReason,
        known_incarnation: Option<Incarnation>,
        address: String,
        out: &mut Output,
    ) {
        self.counters.handshakes_rejected += 1;
        if reason != RejectReason::Oneself {
            out.events.push(RegistryEvent::PeerRejected { node: Some(node), reason: reason.to_string() });
        }
        let me = self.me.node.clone();
        self.send(id, &Message::Reject { reason, node: me, known_incarnation, address }, out);
        self.close(id, LossReason::Closed, out);
    }

    /// Closes a link whose peer says that it is another node than its certificate names (TS3). It gets no answer: a
    /// rejection would be about a node that it is not.
    fn reject_impostor(&mut self, id: LinkId, hello: &Hello, out: &mut Output) -> bool {
        let named = self.peers.links.get(&id).and_then(|link| link.authenticated.clone());
        let Some(named) = named.filter(|named| *named != hello.origin.node) else { return false };
        self.counters.handshakes_rejected += 1;
        let reason = format!("its certificate names node {named}, and it says that it is node {}", hello.origin.node);
        out.events.push(RegistryEvent::PeerRejected { node: Some(named), reason });
        let seed = self.peers.links.get(&id).and_then(|link| link.seed);
        self.note_seed_failure(seed, SeedFailure::Certificate, out);
        self.close(id, LossReason::Closed, out);
        true
    }

    /// A peer that dialled this node identifies itself.
    pub(super) fn handle_hello(&mut self, id: LinkId, hello: &Hello, out: &mut Output) {
        if self.reject_impostor(id, hello, out) {
            return;
        }
        let node = hello.origin.node.clone();
        if let Some(reason) = self.objection(hello) {
            // A starting process does not stop one that serves (N4).
            let starting = matches!(self.phase, Phase::Starting { .. });
            let named = reason == RejectReason::Identity && !(starting && hello.serving);
            self.reject(id, node, reason, named.then_some(self.me.incarnation), String::new(), out);
            if reason == RejectReason::Identity {
                self.met_duplicate(&hello.origin.node, hello.origin.incarnation, hello.serving, out);
            }
            return;
        }
        if let Some(current) = self.in_use_by_another(hello) {
            // Both are alive: this one is rejected. Each learns the address of the other, and the older one stops when they
            // meet (N4).
            let there = self.peers.peers.get(&node).map_or_else(String::new, |peer| peer.peer_address.clone());
            self.reject(id, node.clone(), RejectReason::Identity, Some(current), there, out);
            if hello.serving
                && hello.origin.incarnation > current
                && let Some(link) = self.peers.link_to(&node)
            {
                let (link, known_incarnation) = (link.id, Some(hello.origin.incarnation));
                let (me, address) = (self.me.node.clone(), hello.peer_address.clone());
                let reason = RejectReason::Identity;
                self.send(link, &Message::Reject { reason, node: me, known_incarnation, address }, out);
            }
            return;
        }
        self.identify(id, hello, out);
        let Some(peer) = self.peers.peers.get_mut(&node) else { return };
        let current = peer.link.and_then(|link| self.peers.links.get(&link));
        let mut wait = match current.map(|link| link.phase) {
            None => false,
            // The same incarnation dials although a link is up: it may have lost that link. The one that proves alive
            // stays.
            Some(LinkPhase::Up) => peer.incarnation == Some(hello.origin.incarnation),
            // Both dialled: the dial of the smaller id wins.
            Some(_) => self.me.node < node,
        };
        seam!(self, EveryDialReplaces => wait = false);
        if wait {
            if let Some(old) = peer.candidate.replace(id) {
                self.peers.links.remove(&old);
                out.effects.push(Effect::CloseLink { link: old });
            }
            if let Some(link) = self.peers.links.get_mut(&id) {
                link.phase = LinkPhase::Candidate;
            }
            self.remember_peer(hello);
            return;
        }
        self.remember_peer(hello);
        self.establish(id, out);
    }

    /// The incarnation that uses this id over a link that works, if it is another one.
    fn in_use_by_another(&self, hello: &Hello) -> Option<Incarnation> {
        let link = self.peers.link_to(&hello.origin.node)?;
        let current = link.origin.as_ref()?.incarnation;
        let fresh = link.silence(self.clock) < self.config.timers.ping_interval * 2;
        (current != hello.origin.incarnation && fresh).then_some(current)
    }

    /// The node that this one dialled identifies itself.
    pub(super) fn handle_welcome(&mut self, id: LinkId, hello: &Hello, out: &mut Output) {
        if self.reject_impostor(id, hello, out) {
            return;
        }
        let node = hello.origin.node.clone();
        if let Some(reason) = self.objection(hello) {
            self.note_seed(id, &node, reason == RejectReason::Oneself);
            self.note_rejected_seed(id, reason, out);
            self.reject(id, node, reason, None, String::new(), out);
            return;
        }
        if self.raise_number(&node, hello.known_incarnation, out) {
            return;
        }
        self.note_seed(id, &node, false);
        // Both dialled at once, and the other's dial is up already: the one of the smaller id stays (P5).
        let linked = self.peers.link_to(&node).filter(|link| link.id != id);
        let same = linked.is_some_and(|link| link.origin.as_ref() == Some(&hello.origin));
        if same && self.me.node > node {
            self.close(id, LossReason::Replaced, out);
            return;
        }
        self.identify(id, hello, out);
        self.remember_peer(hello);
        self.establish(id, out);
    }

    /// Binds the link to a node.
    fn identify(&mut self, id: LinkId, hello: &Hello, out: &mut Output) {
        let node = &hello.origin.node;
        let previous = self.peers.links.get(&id).and_then(|link| link.peer.clone());
        if let Some(previous) = previous.filter(|previous| previous != node)
            && let Some(peer) = self.peers.peers.get_mut(&previous)
        {
            // Another node has that address now.
            if peer.link == Some(id) {
                peer.link = None;
            }
            peer.peer_address.clear();
        }
        if let Some(link) = self.peers.links.get_mut(&id) {
            link.peer = Some(node.clone());
            link.origin = Some(hello.origin.clone());
        }
        if !self.peers.peers.contains_key(node) {
            self.peers.peers.insert(node.clone(), Peer::new(&hello.region, &hello.peer_address));
        }
        for (node, region, address) in &hello.nodes {
            self.learn_peer(node, region, address, out);
        }
    }

    fn remember_peer(&mut self, hello: &Hello) {
        let Some(peer) = self.peers.peers.get_mut(&hello.origin.node) else { return };
        peer.region.clone_from(&hello.region);
        peer.client_address.clone_from(&hello.client_address);
        (peer.serving, peer.stopping) = (hello.serving, false);
        if !hello.peer_address.is_empty() {
            peer.peer_address.clone_from(&hello.peer_address);
        }
    }

    fn note_seed(&mut self, id: LinkId, node: &NodeId, oneself: bool) {
        if let Some(seed) = self.peers.links.get(&id).and_then(|link| link.seed)
            && let Some(seed) = self.peers.seeds.get_mut(seed)
        {
            seed.oneself = oneself;
            seed.node = (!oneself).then(|| node.clone());
        }
    }

    /// A handshake at a seed failed: no node of this cluster is there for this node.
    fn note_rejected_seed(&mut self, id: LinkId, reason: RejectReason, out: &mut Output) {
        let seed = self.peers.links.get(&id).and_then(|link| link.seed);
        if let Some(seed) = seed.and_then(|seed| self.peers.seeds.get_mut(seed)) {
            seed.node = None;
        }
        self.note_seed_failure(seed, reason.into(), out);
    }

    /// A connection that waited becomes the link (P5). Its Hello shows that the peer was alive then, not now, so the peer
    /// has one ping interval to answer.
    pub(super) fn promote(&mut self, candidate: LinkId, out: &mut Output) {
        let (timeout, interval) = (self.config.timers.ping_timeout, self.config.timers.ping_interval);
        let mut received = ReceivedAt::ago(self.clock, timeout.saturating_sub(interval));
        seam!(self, PromotionIsEvidence => received = ReceivedAt::now(self.clock));
        if let Some(link) = self.peers.links.get_mut(&candidate) {
            link.received = link.received.max(received);
        }
        self.timers.set(self.clock.now + interval, Timer::Link(candidate));
        self.establish(candidate, out);
    }

    /// The link becomes the one to its peer.
    fn establish(&mut self, id: LinkId, out: &mut Output) {
        let Some(link) = self.peers.links.get_mut(&id) else { return };
        let (Some(node), Some(origin)) = (link.peer.clone(), link.origin.clone()) else { return };
        link.phase = LinkPhase::Up;
        let dialled = link.dialled;
        self.accepted_by(&node);
        let Some(peer) = self.peers.peers.get_mut(&node) else { return };
        let old = peer.link.replace(id).filter(|old| *old != id);
        let candidate = peer.candidate.take().filter(|candidate| *candidate != id);
        for other in old.into_iter().chain(candidate) {
            if let Some(other) = self.peers.links.remove(&other)
                && other.incoming.is_some_and(|incoming| incoming.full)
            {
                self.map.abort_full_merge();
            }
            out.effects.push(Effect::CloseLink { link: other });
        }
        let Some(peer) = self.peers.peers.get_mut(&node) else { return };
        peer.state = PeerState::Up;
        peer.incarnation = Some(origin.incarnation);
        peer.query = None;
        peer.confirmed = false;
        peer.retry_at = None;
        self.hasten_retries();
        out.events.push(RegistryEvent::PeerUp { node });
        if !dialled {
            let welcome = self.hello(Some(&origin));
            self.send(id, &Message::Welcome(welcome), out);
        }
        self.direct_evidence(&origin, None, out);
        self.ping(id, out);
        self.send_revocations(id, out);
        if dialled {
            self.want(id, out);
        }
    }

    pub(super) fn handle_reject(
        &mut self,
        id: LinkId,
        reason: RejectReason,
        node: NodeId,
        known_incarnation: Option<Incarnation>,
        address: &str,
        out: &mut Output,
    ) {
        if reason != RejectReason::Linked {
            self.note_rejected_seed(id, reason, out);
        }
        match reason {
            RejectReason::Linked => self.note_seed(id, &node, false),
            RejectReason::Oneself => {
                let me = self.me.node.clone();
                self.note_seed(id, &me, true);
            }
            RejectReason::Identity => {
                if let Some(known_incarnation) = known_incarnation {
                    if self.is_own_process(id, &node) || !self.is_running() {
                        self.met_duplicate(&node, known_incarnation, true, out);
                    } else {
                        self.duplicate_reported(&node, known_incarnation, address, out);
                    }
                }
            }
            RejectReason::Cluster | RejectReason::Version | RejectReason::Full | RejectReason::Incarnations => {
                out.events.push(RegistryEvent::PeerRejected { node: Some(node), reason: reason.to_string() });
            }
        }
        self.close(id, LossReason::Closed, out);
    }
}
