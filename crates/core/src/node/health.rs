//! Health queries about a lost peer (P3, R-42).

use super::{LinkId, Node, Output, PeerState, RegistryEvent};
use crate::mutant::seam;
use crate::peer::HealthQuery;
use crate::timers::Timer;
use crate::version::NodeId;
use crate::wire::{LinkState, Message};
use std::collections::BTreeMap;

impl Node {
    /// Queries the other peers, a short while after losing a peer.
    pub(super) fn query_health(&mut self, node: &NodeId, out: &mut Output) {
        let id = self.peers.next_query();
        let links = self.peers.up_links();
        let Some(peer) = self.peers.peers.get_mut(node) else { return };
        if peer.state != PeerState::Lost || peer.query.is_some() {
            return;
        }
        peer.query = Some(HealthQuery { id, asked: links.len(), answers: BTreeMap::new() });
        for link in &links {
            self.send(*link, &Message::HealthQuery { query: id, about: node.clone() }, out);
        }
        if links.is_empty() {
            self.decide_health(node, id, out);
        } else {
            let at = self.clock.now + self.config.timers.health_report_wait;
            self.timers.set(at, Timer::HealthDecide(node.clone(), id));
        }
    }

    pub(super) fn answer_health(&mut self, link: LinkId, query: u64, about: NodeId, out: &mut Output) {
        let state = match self.peers.peers.get(&about).map(|peer| peer.state) {
            Some(PeerState::Up) => LinkState::Up,
            Some(PeerState::Lost | PeerState::Failed | PeerState::Left) => LinkState::Lost,
            Some(PeerState::Connecting | PeerState::Distant) | None => LinkState::Unknown,
        };
        let newest = self.map.origins.incarnations(&about).max_by_key(|(incarnation, _)| *incarnation);
        let evidence = newest
            .map(|(_, index)| self.evidence_of(index))
            .filter(|evidence| evidence.liveness_counter > 0 && evidence.origin != self.me);
        self.send(link, &Message::HealthReport { query, about, state, evidence }, out);
    }

    pub(super) fn handle_report(
        &mut self,
        from: &NodeId,
        query: u64,
        about: &NodeId,
        state: LinkState,
        out: &mut Output,
    ) {
        let Some(peer) = self.peers.peers.get_mut(about) else { return };
        let Some(open) = peer.query.as_mut().filter(|open| open.id == query) else { return };
        match state {
            // A peer that never had a link has no view to count.
            LinkState::Unknown => open.asked = open.asked.saturating_sub(1),
            LinkState::Up | LinkState::Lost => drop(open.answers.insert(from.clone(), state == LinkState::Up)),
        }
        if open.answers.len() >= open.asked {
            self.decide_health(about, query, out);
        }
    }

    /// The majority of this node and those that answered decides.
    pub(super) fn decide_health(&mut self, node: &NodeId, query: u64, out: &mut Output) {
        let Some(peer) = self.peers.peers.get_mut(node) else { return };
        if peer.state != PeerState::Lost || peer.query.as_ref().is_none_or(|open| open.id != query) {
            return;
        }
        let Some(open) = peer.query.take() else { return };
        let gone = 1 + open.answers.values().filter(|reachable| !**reachable).count();
        let votes = 1 + open.answers.len();
        let mut decided = gone * 2 > votes;
        seam!(self, OneVoteIsEnough => decided = true);
        if decided {
            peer.state = PeerState::Failed;
            peer.confirmed = gone > 1;
            out.events.push(RegistryEvent::PeerFailed { node: node.clone(), votes: gone, answers: votes });
        }
    }
}
