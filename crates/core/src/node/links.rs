//! Dialing, losing, retrying: the life of links (P1, P4, P5, P9).

use super::{DialId, Effect, Event, LinkId, LossReason, Node, Output, PeerState, Phase};
use crate::mutant::Mutant;
use crate::peer::{Dial, Link, LinkPhase, Peer};
use crate::time::{Duration, Time};
use crate::timers::Timer;
use crate::version::NodeId;
use crate::wire::{Message, WireError};
use bytes::Bytes;
use std::collections::BTreeSet;

impl Node {
    pub(super) fn dial_seed(&mut self, index: usize, out: &mut Output) {
        let Some(seed) = self.peers.seeds.get(index) else { return };
        let known = seed.node.as_ref().and_then(|node| self.peers.peers.get(node));
        let reached = known.is_some_and(|peer| peer.link.is_some() || peer.dial.is_some());
        if seed.oneself || seed.dial.is_some() || reached {
            return;
        }
        let address = seed.address.clone();
        let dial = self.peers.start_dial(Dial::Seed(index));
        self.peers.seeds[index].dial = Some(dial);
        out.effects.push(Effect::Dial { dial, address });
    }

    pub(super) fn dial_peer(&mut self, node: &NodeId, out: &mut Output) {
        let Some(peer) = self.peers.peers.get(node) else { return };
        if peer.link.is_some() || peer.dial.is_some() || peer.peer_address.is_empty() {
            return;
        }
        let address = peer.peer_address.clone();
        let dial = self.peers.start_dial(Dial::Peer(node.clone()));
        if let Some(peer) = self.peers.peers.get_mut(node) {
            peer.dial = Some(dial);
        }
        out.effects.push(Effect::Dial { dial, address });
    }

    /// A dial succeeded.
    pub fn dialed(&mut self, now: Time, dial: DialId, link: LinkId, out: &mut Output) {
        self.observe(now, out);
        let Some(target) = self.finish_dial(dial) else {
            out.effects.push(Effect::CloseLink { link });
            return;
        };
        let mut entry = Link::new(link, true, self.clock);
        match &target {
            Dial::Seed(seed) => entry.seed = Some(*seed),
            Dial::Peer(node) => {
                let Some(peer) = self.peers.peers.get_mut(node).filter(|peer| peer.link.is_none()) else {
                    out.effects.push(Effect::CloseLink { link });
                    return;
                };
                peer.link = Some(link);
                entry.peer = Some(node.clone());
                if self.mutation.is(Mutant::ConnectIsProof) {
                    peer.state = PeerState::Up;
                }
            }
        }
        self.peers.links.insert(link, entry);
        self.timers.set(self.clock.now + self.config.timers.ping_timeout, Timer::Link(link));
        let hello = self.hello(None);
        self.send(link, &Message::Hello(hello), out);
    }

    /// A dial failed.
    pub fn dial_failed(&mut self, now: Time, dial: DialId, out: &mut Output) {
        self.observe(now, out);
        match self.finish_dial(dial) {
            Some(Dial::Peer(node)) => self.schedule_retry(&node),
            // Seeds are looked at again in any case.
            Some(Dial::Seed(_)) | None => {}
        }
    }

    fn finish_dial(&mut self, dial: DialId) -> Option<Dial> {
        let target = self.peers.dials.remove(&dial)?;
        match &target {
            Dial::Seed(seed) => self.peers.seeds.get_mut(*seed)?.dial = None,
            Dial::Peer(node) => self.peers.peers.get_mut(node)?.dial = None,
        }
        (self.phase != Phase::Over).then_some(target)
    }

    /// A peer connected.
    pub fn accepted(&mut self, now: Time, link: LinkId, out: &mut Output) {
        self.observe(now, out);
        if self.phase == Phase::Over || self.peers.links.len() >= 4 * self.config.limits.peers {
            self.counters.handshakes_refused += 1;
            out.effects.push(Effect::CloseLink { link });
            return;
        }
        self.peers.links.insert(link, Link::new(link, false, self.clock));
        self.timers.set(self.clock.now + self.config.timers.ping_timeout, Timer::Link(link));
    }

    /// A connection ended: EOF or reset.
    pub fn closed(&mut self, now: Time, link: LinkId, out: &mut Output) {
        self.observe(now, out);
        self.lose(link, LossReason::Closed, out);
    }

    /// Closes a link from this side.
    pub(super) fn close(&mut self, link: LinkId, reason: LossReason, out: &mut Output) {
        if self.peers.links.contains_key(&link) {
            out.effects.push(Effect::CloseLink { link });
            self.lose(link, reason, out);
        }
    }

    /// A link is gone; its peer is lost unless another connection was waiting (P1, P5).
    fn lose(&mut self, link: LinkId, reason: LossReason, out: &mut Output) {
        let Some(entry) = self.peers.links.remove(&link) else { return };
        if entry.incoming.is_some_and(|incoming| incoming.full) {
            self.map.abort_full_merge();
        }
        let Some(node) = entry.peer else { return };
        let Some(peer) = self.peers.peers.get_mut(&node) else { return };
        if peer.candidate == Some(link) {
            peer.candidate = None;
        }
        if peer.link != Some(link) {
            return;
        }
        peer.link = None;
        if let Some(candidate) = peer.candidate.take() {
            self.establish(candidate, out);
            return;
        }
        let was_up = entry.phase == LinkPhase::Up;
        if was_up && !matches!(peer.state, PeerState::Left | PeerState::Distant) {
            peer.state = PeerState::Lost;
            peer.confirmed = false;
            peer.query = None;
            let at = self.clock.now + self.config.timers.health_query_delay;
            self.timers.set(at, Timer::HealthQuery(node.clone()));
            out.events.push(Event::PeerLost { node: node.clone(), reason });
        }
        self.schedule_retry(&node);
    }

    /// The next attempt, with jitter (P4).
    pub(super) fn schedule_retry(&mut self, node: &NodeId) {
        let at = self.clock.now + self.jittered(self.config.timers.peer_retry_interval);
        let Some(peer) = self.peers.peers.get_mut(node) else { return };
        peer.retry_at = Some(at);
        self.timers.set(at, Timer::RetryPeer(node.clone()));
    }

    pub(super) fn schedule_seed(&mut self, seed: usize) {
        let at = self.clock.now + self.jittered(self.config.timers.peer_retry_interval);
        self.timers.set(at, Timer::RetrySeed(seed));
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        let jitter = self.config.retry_jitter;
        interval.mul_f64(1.0 - jitter + 2.0 * jitter * self.random.f64())
    }

    pub(super) fn retry_peer(&mut self, node: &NodeId, out: &mut Output) {
        let Some(peer) = self.peers.peers.get(node) else { return };
        if peer.retry_at.is_none_or(|at| at > self.clock.now) {
            return;
        }
        if self.wants_link(node) && peer.state != PeerState::Left {
            self.dial_peer(node, out);
        }
    }

    pub(super) fn retry_seed(&mut self, seed: usize, out: &mut Output) {
        let Some(entry) = self.peers.seeds.get(seed) else { return };
        // Where the node found there last is dialed at the same address anyway, one attempt is enough.
        let peer = entry.node.as_ref().and_then(|node| self.peers.peers.get(node));
        let covered = peer.is_some_and(|peer| {
            peer.state == PeerState::Up || (peer.peer_address == entry.address && peer.state != PeerState::Left)
        });
        if !covered {
            self.dial_seed(seed, out);
        }
        // Once everything is quiet this costs one look per interval; it is what makes any split heal.
        if !self.peers.seeds[seed].oneself {
            self.schedule_seed(seed);
        }
    }

    /// Whether a direct link to this peer is wanted (P9).
    pub(super) fn wants_link(&self, node: &NodeId) -> bool {
        self.peers.wants(&self.me.node, &self.config.region, node, |node| self.seems_live(node))
    }

    fn seems_live(&self, node: &NodeId) -> bool {
        let lost = self.peers.peers.get(node).is_some_and(|p| matches!(p.state, PeerState::Lost | PeerState::Failed));
        let admitted = self.map.origins.incarnations(node).any(|(_, index)| self.map.origins.entry(index).admitted);
        !lost || admitted && self.peers.peers.get(node).is_some_and(|p| p.state != PeerState::Failed)
    }

    /// Dials peers that should be linked, lets go of region links that others have taken over, and finds another way
    /// into a region that nobody serves (P9).
    pub(super) fn mend_topology(&mut self, out: &mut Output) {
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
                (true, PeerState::Connecting | PeerState::Lost | PeerState::Failed) if idle => {
                    self.dial_peer(node, out);
                }
                (false, PeerState::Connecting) if idle => peer.state = PeerState::Distant,
                (false, PeerState::Up) => self.let_go(node, out),
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

    /// Closes a region link this node dialed, once a lower sibling is known to have one.
    fn let_go(&mut self, node: &NodeId, out: &mut Output) {
        let Some(peer) = self.peers.peers.get(node) else { return };
        let Some(link) = peer.link.and_then(|link| self.peers.links.get(&link)) else { return };
        let id = link.id;
        if link.dialed && peer.candidate.is_none() && self.sibling_serves(&peer.region, |n| *n < self.me.node) {
            if let Some(peer) = self.peers.peers.get_mut(node) {
                peer.state = PeerState::Distant;
            }
            self.send(id, &Message::Goodbye { leaving: false }, out);
            self.close(id, LossReason::Replaced, out);
        }
    }

    /// The counterparts of a region cannot reach each other: after a while anyone tries any way in.
    fn serve_unserved_regions(&mut self, out: &mut Output) {
        let now = self.clock.now;
        let known = self.peers.peers.values().filter(|peer| peer.state != PeerState::Left);
        let regions: BTreeSet<String> = known.map(|peer| peer.region.clone()).collect();
        let linked = self.linked_regions();
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
            let inside: Vec<NodeId> = self
                .peers
                .peers
                .iter()
                .filter(|(_, peer)| peer.region == region && peer.state != PeerState::Left)
                .map(|(node, _)| node.clone())
                .collect();
            if !inside.is_empty() {
                let choice = inside[self.random.usize(..inside.len())].clone();
                self.dial_peer(&choice, out);
            }
        }
    }

    /// A node was heard of.
    pub(super) fn learn_peer(&mut self, node: &NodeId, region: &str, address: &str, out: &mut Output) {
        if *node == self.me.node || address.is_empty() {
            return;
        }
        let full = self.peers.peers.len() >= self.config.limits.peers;
        match self.peers.peers.get_mut(node) {
            Some(peer) => {
                // A connected peer's own word counts more than what others say.
                if peer.state != PeerState::Up {
                    region.clone_into(&mut peer.region);
                    address.clone_into(&mut peer.peer_address);
                }
            }
            None if full => self.counters.handshakes_refused += 1,
            None => {
                self.peers.peers.insert(node.clone(), Peer::new(region, address));
                if self.wants_link(node) {
                    self.dial_peer(node, out);
                }
            }
        }
    }

    /// A link's timer: handshake overdue, silence, missing echo (P6).
    pub(super) fn check_link(&mut self, id: LinkId, out: &mut Output) {
        let Some(link) = self.peers.links.get(&id) else { return };
        let timeout = self.config.timers.ping_timeout;
        let interval = self.config.timers.ping_interval;
        let silence = match link.phase {
            LinkPhase::Handshake => link.opened.attentive_silence(self.clock, Duration::MAX),
            LinkPhase::Candidate => Duration::ZERO,
            LinkPhase::Up => link.silence(self.clock),
        };
        // A ping is echoed with the peer's next ping, so a fresh echo may be one interval older.
        let echo =
            if link.is_up() { link.echo_silence(self.clock).saturating_sub(interval * 2) } else { Duration::ZERO };
        if silence >= timeout {
            self.close(id, LossReason::Silent, out);
        } else if echo >= timeout && !self.mutation.is(Mutant::NoEchoCheck) {
            self.close(id, LossReason::OneWay, out);
        } else {
            let left = timeout - silence.max(echo.min(timeout));
            self.timers.set(self.clock.now + left.max(Duration::from_millis(1)), Timer::Link(id));
        }
    }

    /// A frame came in.
    pub fn received(&mut self, now: Time, link: LinkId, frame: &[u8], out: &mut Output) {
        self.observe(now, out);
        if self.phase == Phase::Over || !self.peers.links.contains_key(&link) {
            return;
        }
        self.counters.frames_received += 1;
        let limit = self.config.limits.frame_bytes;
        let decoded = if frame.len() > limit {
            Err(WireError::TooMany { what: "frame", found: frame.len() as u64, limit: limit as u64 })
        } else {
            Message::decode(frame)
        };
        let handled = decoded.and_then(|message| self.handle(link, message, frame, out));
        if let Err(error) = handled {
            self.counters.frames_malformed += 1;
            let node = self.peers.links.get(&link).and_then(|link| link.peer.clone());
            out.events.push(Event::PeerRefused { node, reason: error.to_string() });
            self.close(link, LossReason::Malformed, out);
        }
    }

    fn handle(&mut self, id: LinkId, message: Message<'_>, frame: &[u8], out: &mut Output) -> Result<(), WireError> {
        let Some(link) = self.peers.links.get_mut(&id) else { return Ok(()) };
        link.received = crate::time::Heard::now(self.clock);
        match (link.phase, link.dialed, message) {
            (LinkPhase::Handshake, false, Message::Hello(hello)) => self.handle_hello(id, &hello, out),
            (LinkPhase::Handshake, true, Message::Welcome(hello)) => self.handle_welcome(id, &hello, out),
            (LinkPhase::Handshake, true, Message::Refuse { reason, heard }) => {
                self.handle_refuse(id, reason, heard, out);
            }
            (LinkPhase::Handshake | LinkPhase::Candidate, _, _) => return Err(WireError::Invalid("message order")),
            (LinkPhase::Up, _, message) => self.handle_up(id, message, frame, out)?,
        }
        Ok(())
    }

    /// A message on an established link.
    fn handle_up(&mut self, id: LinkId, message: Message<'_>, frame: &[u8], out: &mut Output) -> Result<(), WireError> {
        let Some(link) = self.peers.links.get(&id) else { return Ok(()) };
        let (Some(node), Some(origin)) = (link.peer.clone(), link.origin.clone()) else { return Ok(()) };
        // The peer still uses this link: a second connection of it is superfluous (P5).
        if let Some(candidate) = self.peers.peers.get_mut(&node).and_then(|peer| peer.candidate.take()) {
            self.peers.links.remove(&candidate);
            out.effects.push(Effect::CloseLink { link: candidate });
        }
        let life = if let Message::Ping(ping) = &message { Some(ping.life) } else { None };
        self.direct_evidence(&origin, life, out);
        match message {
            Message::Ping(ping) => self.handle_ping(id, &node, ping, out),
            Message::Push { origin, from, to, items } => self.handle_push(id, &origin, from, to, &items, frame, out),
            Message::Want { exchange, context, evidence } => {
                self.relayed_all(&evidence, &node, out);
                if !self.check_namesakes(&context, out) {
                    self.adopt_retired(&context, out);
                    self.send_delta(id, exchange, context, true, out);
                }
            }
            Message::Chunk(chunk) => self.handle_chunk(id, &node, chunk, out),
            Message::ChunkAck { exchange, index } => self.handle_chunk_ack(id, exchange, index, out),
            Message::ChunkAbort { exchange } => self.handle_chunk_abort(id, exchange),
            Message::HealthQuery { query, about } => self.answer_health(id, query, about, out),
            Message::HealthReport { query, about, state, evidence } => {
                self.relayed_all(evidence.as_slice(), &node, out);
                self.handle_report(&node, query, &about, state, out);
            }
            Message::Drain { id: member, drain } => self.handle_drain(id, member, drain, out),
            Message::Goodbye { leaving } => self.handle_goodbye(id, &node, leaving, out),
            Message::Refuse { heard, .. } => self.handle_late_refuse(heard, out),
            Message::Hello(_) | Message::Welcome(_) => return Err(WireError::Invalid("message order")),
        }
        Ok(())
    }

    fn handle_goodbye(&mut self, id: LinkId, node: &NodeId, leaving: bool, out: &mut Output) {
        if let Some(peer) = self.peers.peers.get_mut(node) {
            peer.state = if leaving { PeerState::Left } else { PeerState::Distant };
        }
        if leaving {
            out.events.push(Event::PeerLeft { node: node.clone() });
        }
        self.close(id, LossReason::Closed, out);
    }

    pub(super) fn send(&mut self, link: LinkId, message: &Message<'_>, out: &mut Output) {
        out.effects.push(Effect::Send { link, frame: Bytes::from(message.encode()) });
    }
}
