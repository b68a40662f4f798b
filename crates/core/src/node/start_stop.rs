//! Starting, serving, restarting, stopping (N1–N6).

use super::attach::not_ready;
use super::queries::node_member_id;
use super::{
    Effect, HandoverTarget, InheritedState, LossReason, Node, Notice, Output, PeerState, Phase, RegistryEvent,
    RestartReason, SessionId, StopReason,
};
use crate::error::{ErrorCode, Rejection};
use crate::map::{CausalMap, OriginEntry};
use crate::member::{Deployment, Record, Space};
use crate::mutant::seam;
use crate::peer::Link;
use crate::time::{Duration, Time};
use crate::timers::Timer;
use crate::version::{Incarnation, NodeId};
use crate::wire::Message;
use std::sync::Arc;

/// This many clients may move at once without overloading a node.
const HANDOVER_AT_ONCE: usize = 50;

impl Node {
    /// Starts dialling. Call once.
    pub fn begin(&mut self, now: Time, out: &mut Output) {
        self.clock.now = now;
        let first = self.config.timers.ping_interval.mul_f64(self.random.f64());
        self.timers.set(now + first, Timer::Tick);
        self.schedule_collection();
        out.effects.push(Effect::Persist { incarnation: self.me.incarnation.number });
        for seed in 0..self.peers.seeds.len() {
            self.dial_seed(seed, out);
            self.schedule_seed(seed);
        }
        for peer in self.peers.peers.keys().cloned().collect::<Vec<NodeId>>() {
            if self.wants_link(&peer) {
                self.dial_peer(&peer, out);
            }
        }
        if self.is_first() {
            self.joined = true;
            self.begin_serving(true, self.config.timers.heartbeat_timeout, out);
        }
    }

    /// Whether there is no other node to receive the registry from.
    fn is_first(&self) -> bool {
        seam!(self, ServingBeforeExchange => return true);
        self.peers.peers.is_empty() && self.peers.seeds.is_empty()
    }

    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. })
    }

    /// The registry is complete, as far as reachable: the node accepts clients (N3). `first` if no peer confirmed that. During the grace
    /// period no member is reported as absent: the peer may itself have started alone a moment ago.
    pub(super) fn begin_serving(&mut self, first: bool, grace: Duration, out: &mut Output) {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        let now = self.clock.now;
        self.phase = Phase::Serving { since: now, absence_from: now + grace };
        self.map.may_write = true;
        out.events.push(RegistryEvent::Serving { first, alone: self.is_alone() });
        self.write_node_record(out);
        self.restate_tombstones(out);
        self.restore_archive(out);
    }

    /// Writes the unregistrations of the previous incarnation in this process again. Others may have rejected them,
    /// because its number was too low: they had retired higher ones (N1, D14).
    fn restate_tombstones(&mut self, out: &mut Output) {
        for end in std::mem::take(&mut self.inherited_tombstones) {
            let held = self.map.record(end.space, &end.id);
            let since = |held: &&Arc<Record>| (held.claim, held.seq) > (end.claim, end.seq);
            if held.is_some_and(|held| since(&held) && (held.is_live() || held.claim > end.claim)) {
                continue;
            }
            let seq = held.map_or(end.seq, |held| held.seq.max(end.seq)) + 1;
            let interner = &mut self.map.interner;
            let Deployment { service, locality, revision } = &*end.deployment;
            let deployment = interner.deployment(service, locality, revision);
            let client = interner.client(&end.client.id, end.client.nonce, &end.client.principal);
            self.write(Record { seq, client, deployment, ..Record::clone(&end) }, out);
        }
    }

    /// Tombstones of members that this incarnation wrote. The next one handles its names itself (N2).
    fn own_tombstones(&self) -> Vec<Arc<Record>> {
        let me = self.map.origins.entry(self.map.origins.me());
        let written = me.stated.values().map(|slot| self.map.at(*slot));
        written.filter(|record| record.space == Space::Member && !record.is_live()).cloned().collect()
    }

    /// A starting node that reaches only starting nodes: the lowest id begins to serve after a while (N8). A node that
    /// has met a serving node holds a part of its registry and waits longer for the rest.
    pub(super) fn check_readiness(&mut self, out: &mut Output) {
        let (now, rejected) = (self.clock.now, self.is_rejected());
        let Phase::Starting { since, met } = &mut self.phase else { return };
        let reachable: Vec<(&NodeId, bool)> =
            self.peers.up().filter_map(|(node, _)| Some((node, self.peers.peers.get(node)?.serving))).collect();
        if reachable.iter().any(|(_, serving)| *serving) {
            (*since, *met) = (now, true);
            return;
        }
        let timers = &self.config.timers;
        let wait = if *met { timers.heartbeat_timeout.max(timers.lone_start_wait) } else { timers.lone_start_wait };
        let lowest = reachable.iter().all(|(node, _)| self.me.node < **node);
        if !rejected && lowest && now >= *since + wait {
            self.begin_serving(true, timers.heartbeat_timeout, out);
        }
    }

    /// Takes a higher incarnation while still starting: nothing has been written yet (N1).
    pub(super) fn renumber(&mut self, number: u64, out: &mut Output) {
        self.me.incarnation = Incarnation { number, nonce: self.me.incarnation.nonce };
        self.publish_all_removed(out);
        self.received = super::readiness::Received::default();
        let limits = &self.config.limits;
        self.map = CausalMap::new(self.me.clone(), limits, self.config.hash_seed, self.clock, self.mutation);
        self.self_client = self.map.interner.client(&self.member_id, self.me.incarnation.nonce, "");
        self.last_unregistration = 0;
        out.effects.push(Effect::Persist { incarnation: number });
        let links: Vec<_> = self.peers.links.keys().copied().collect();
        for link in links {
            self.close(link, LossReason::Replaced, out);
        }
        for seed in 0..self.peers.seeds.len() {
            self.dial_seed(seed, out);
        }
        let peers: Vec<NodeId> = self.peers.peers.keys().cloned().collect();
        for peer in peers {
            self.dial_peer(&peer, out);
        }
    }

    /// Ends this incarnation; the next one takes a higher number (N5).
    pub(super) fn restart(&mut self, reason: RestartReason, out: &mut Output) {
        self.restart_above(reason, self.me.incarnation.number, out);
    }

    pub(super) fn restart_above(&mut self, reason: RestartReason, number: u64, out: &mut Output) {
        self.phase = Phase::Over;
        let incarnation = number.max(self.me.incarnation.number) + 1;
        out.effects.push(Effect::Persist { incarnation: incarnation - 1 });
        let tombstones = match reason {
            RestartReason::WritesUnknown => self.own_tombstones(),
            // They may have been collected everywhere (N5).
            RestartReason::PausedTooLong => Vec::new(),
        };
        let inherited = InheritedState { peers: self.peers.known(), tombstones, joined: self.joined };
        out.effects.push(Effect::Restart { reason, incarnation, inherited });
    }

    pub(super) fn stop_now(&mut self, reason: StopReason, out: &mut Output) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            out.effects.push(Effect::Stop { reason });
        }
    }

    /// Graceful stop: no new sessions, handover of the existing ones, then Goodbye (N6).
    pub fn stop(&mut self, now: Time, out: &mut Output) {
        self.observe(now, out);
        match self.phase {
            Phase::Serving { .. } => {
                let deadline = self.clock.now + self.config.timers.handover_timeout;
                self.phase = Phase::Stopping { deadline };
                self.check_stopping(out);
            }
            Phase::Starting { .. } => self.finish_stop(true, out),
            Phase::Stopping { .. } | Phase::Over => {}
        }
    }

    /// The mutant: all members are unregistered.
    fn stop_without_handover(&mut self, out: &mut Output) {
        let slots: Vec<u32> = self.sessions.iter().flat_map(|(_, session)| session.members.clone()).collect();
        for slot in slots {
            self.write_unregistered(slot, out);
        }
        self.finish_stop(true, out);
    }

    /// Hands a part of the sessions over, and finishes when none is left.
    pub(super) fn check_stopping(&mut self, out: &mut Output) {
        let Phase::Stopping { deadline } = self.phase else { return };
        seam!(self, StopWithoutHandover => return self.stop_without_handover(out));
        let targets = self.handover_targets();
        let attached = self.sessions.iter().filter(|(_, s)| s.conn.is_some()).count();
        let over = self.clock.now >= deadline;
        // A starting node will accept clients soon.
        let stopping = |node: &NodeId| self.peers.peers.get(node).is_some_and(|peer| peer.stopping);
        let hopeless = targets.is_empty() && self.peers.up().all(|(node, _)| stopping(node));
        if over || (self.has_receiver() && (attached == 0 || hopeless)) {
            self.finish_stop(over, out);
            return;
        }
        if targets.is_empty() {
            return;
        }
        let waiting: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| s.conn.is_some() && !s.handed_over).map(|(id, _)| id).collect();
        // Evenly: every session is notified within the first third of the timeout. A few sessions need not be spread.
        let reserve = self.config.timers.handover_timeout.as_millis() * 2 / 3;
        let left = deadline.since(self.clock.now).as_millis().saturating_sub(reserve);
        let ticks = left / self.config.timers.ping_interval.as_millis().max(1);
        let batch = waiting.len().div_ceil(ticks as usize + 1).max(HANDOVER_AT_ONCE);
        for id in waiting.into_iter().take(batch) {
            let target = targets.get(self.random.usize(..targets.len())).cloned();
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.handed_over = true;
            if let Some(conn) = session.conn {
                out.effects.push(Effect::Notify { conn, notice: Notice::Handover { target } });
            }
        }
    }

    /// Whether a peer receives this node's writes. If not, although a peer is alive, they would be lost with it (N6).
    fn has_receiver(&self) -> bool {
        let me = self.map.origins.me();
        let pushed_to = |link: &Link| link.sent.is_some() && link.outgoing.is_none();
        let left = |node: &NodeId| self.peers.peers.get(node).is_some_and(|peer| peer.state == PeerState::Left);
        let is_live = |entry: &OriginEntry| {
            entry.standing.is_admitted() && self.states_serving(entry) && !left(&entry.origin.id.node)
        };
        let alone = !self.map.origins.iter().any(|(index, entry)| index != me && is_live(entry));
        alone || self.peers.up().any(|(_, link)| pushed_to(link))
    }

    /// The rejection of a client that attaches now. A stopping node names another node, always the same one per client
    /// (N6).
    pub(super) fn not_accepting_clients(&self, client: &str) -> Rejection {
        if !matches!(self.phase, Phase::Stopping { .. }) {
            return not_ready();
        }
        let targets = self.handover_targets();
        let number: usize = client.bytes().map(usize::from).sum();
        let message = match targets.get(number % targets.len().max(1)) {
            Some(target) => format!("this node is stopping; attach to {} instead", target.client_address),
            None => "this node is stopping; attach to another node".to_owned(),
        };
        Rejection::new(ErrorCode::NotReady, message)
    }

    /// Nodes to which sessions can move: serving peers, in the order in which clients would choose them. Drained nodes
    /// come last, and other regions only count if this one has no other node.
    fn handover_targets(&self) -> Vec<HandoverTarget> {
        let serving = self.peers.up().filter_map(|(node, _)| Some((node, self.peers.peers.get(node)?)));
        let mut targets: Vec<((bool, bool), HandoverTarget)> = serving
            .filter(|(_, peer)| peer.serving)
            .map(|(node, peer)| {
                let drained = self.member(&node_member_id(node)).is_some_and(|member| member.drained());
                let target = HandoverTarget { node: node.clone(), client_address: peer.client_address.clone() };
                ((drained, peer.region != self.config.region), target)
            })
            .collect();
        let best = targets.iter().map(|(distance, _)| *distance).min();
        targets.retain(|(distance, _)| Some(*distance) == best);
        targets.into_iter().map(|(_, target)| target).collect()
    }

    /// Unregisters this node's own records, sends Goodbye and stops, once a peer has received them or the time is
    /// over.
    fn finish_stop(&mut self, over: bool, out: &mut Output) {
        let me = self.map.origins.me();
        let own: Vec<u32> = self
            .map
            .iter()
            .filter(|record| record.origin.index == me && record.is_live())
            .filter(|record| record.space == Space::Name || record.client == self.self_client)
            .map(|record| record.slot)
            .collect();
        for slot in own {
            self.write_unregistered(slot, out);
        }
        let now = self.clock.now;
        self.flush(now, out);
        // Too large for a push: the exchange that was requested instead brings it.
        let written = self.written();
        let has_all = |link: &Link| link.sent == Some(written) && link.outgoing.is_none();
        let links: Vec<&Link> = self.peers.up().map(|(_, link)| link).collect();
        if !over && !links.is_empty() && !links.into_iter().any(has_all) {
            return;
        }
        for link in self.peers.up_links() {
            self.send(link, &Message::Goodbye { leaving: true }, out);
        }
        self.stop_now(StopReason::Graceful, out);
    }

    /// Removes a peer until it is seen again, and its name once nothing of it is left (D15). Rejected while it is
    /// connected.
    pub fn forget(&mut self, now: Time, node: &NodeId, out: &mut Output) -> Result<(), Rejection> {
        self.observe(now, out);
        let result = match self.peers.peers.get(node) {
            None => Err(Rejection::new(ErrorCode::NotFound, format!("no node {node}")).field("node")),
            Some(peer) if peer.state == super::PeerState::Up => {
                let message = format!("node {node} is connected; stop it first");
                Err(Rejection::new(ErrorCode::FailedPrecondition, message).field("node"))
            }
            Some(_) => {
                self.peers.peers.remove(node);
                self.map.origins.forget(node);
                Ok(())
            }
        };
        self.count_rejection(result)
    }
}
