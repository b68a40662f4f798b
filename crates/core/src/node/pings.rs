//! Pings: liveness counter, echo, context hash, digest of the contents, evidence (P6, L2, D7, D16).

use super::{LinkId, Node, Output};
use crate::mutant::seam;
use crate::version::{NodeId, OriginId};
use crate::wire::{EvidenceItem, Message, Ping};

/// With more links than this, evidence is requested from a few of them only.
const ASK_ALL_MAX: usize = 8;
const ASK_SOME: usize = 5;

impl Node {
    pub(super) fn ping_all(&mut self, out: &mut Output) {
        let links = self.peers.up_links();
        let unlinked = self.unlinked_origins();
        let mut asked: Vec<LinkId> = links.clone();
        if asked.len() > ASK_ALL_MAX {
            // Links to other regions always: no other node receives from there (P9).
            let home = &self.config.region;
            let distant = |node: &NodeId| self.peers.peers.get(node).is_some_and(|peer| peer.region != *home);
            let afar: Vec<LinkId> =
                self.peers.up().filter(|(node, _)| distant(node)).map(|(_, link)| link.id).collect();
            self.random.shuffle(&mut asked);
            asked.truncate(ASK_SOME);
            asked.extend(afar);
        }
        for link in links {
            let ask = if asked.contains(&link) { unlinked.clone() } else { Vec::new() };
            self.ping_with(link, ask, out);
        }
    }

    /// Sends the first ping on a new link: it carries the liveness counter that proves that this node is alive.
    pub(super) fn ping(&mut self, link: LinkId, out: &mut Output) {
        let ask = self.unlinked_origins();
        self.ping_with(link, ask, out);
    }

    /// Origins of which this node can only get relayed evidence.
    fn unlinked_origins(&self) -> Vec<OriginId> {
        let me = self.map.origins.me();
        self.map
            .origins
            .iter()
            .filter(|(index, entry)| {
                let id = &entry.origin.id;
                let linked = self.peers.link_to(&id.node).is_some_and(|link| link.origin.as_ref() == Some(id));
                *index != me && !linked && !self.map.origins.is_retired(id)
            })
            .map(|(_, entry)| entry.origin.id.clone())
            .collect()
    }

    fn ping_with(&mut self, id: LinkId, ask: Vec<OriginId>, out: &mut Output) {
        let asked = self.peers.links.get(&id).into_iter().flat_map(|link| &link.asked);
        let evidence: Vec<EvidenceItem> = asked
            .filter_map(|origin| self.map.origins.index_of(origin))
            .filter(|index| self.map.origins.entry(*index).evidence.liveness_counter > 0)
            .map(|index| self.evidence_of(index))
            .collect();
        let (liveness_counter, serving, context_hash) =
            (self.liveness_counter, self.is_serving(), self.map.origins.context_hash());
        let (contents, sessions) = (self.contents_digest(), self.streamed_sessions());
        let regions = self.linked_regions();
        let written = self.written();
        let clock = self.clock;
        let Some(link) = self.peers.links.get_mut(&id) else { return };
        let (seq, echo) = (link.next_ping(clock), link.received_seq);
        let state = Ping { seq, echo, liveness_counter, written, context_hash, contents, serving, ..Ping::default() };
        let ping = Ping { sessions, regions, ask, evidence, ..state };
        self.send(id, &Message::Ping(ping), out);
    }

    pub(super) fn handle_ping(&mut self, id: LinkId, node: &NodeId, ping: Ping, out: &mut Output) {
        if let Some(link) = self.peers.links.get_mut(&id) {
            link.note_echo(ping.echo);
            link.received_seq = link.received_seq.max(ping.seq);
            link.asked = ping.ask;
            link.regions = ping.regions;
        }
        if let Some(peer) = self.peers.peers.get_mut(node) {
            peer.stopping = !ping.serving && (peer.serving || peer.stopping);
            peer.serving = ping.serving;
            peer.sessions = ping.sessions;
        }
        self.relayed_all(&ping.evidence, node, out);
        // One ping may have crossed a push; two in a row have not.
        let mut differs = ping.context_hash != self.map.origins.context_hash();
        if !differs {
            self.compare_contents(id, node, ping.contents, out);
        }
        seam!(self, NoExchange => differs = false);
        let link = self.peers.links.get_mut(&id);
        let differed = link.is_some_and(|link| std::mem::replace(&mut link.differed, differs));
        let starting = !self.is_serving() && self.has_served(node);
        if (differs && differed && self.me.node < *node) || starting {
            self.want(id, out);
        }
    }
}
