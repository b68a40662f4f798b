//! The lifecycle of links: dialling, losing, retrying (P1, P4, P5, P9).

use super::{DialId, Effect, LinkId, LossReason, Node, Output, PeerState, Phase, RegistryEvent, SeedFailure};
use crate::mutant::seam;
use crate::peer::{Dial, Link, LinkPhase, Peer, Seed};
use crate::time::{Duration, Time};
use crate::timers::Timer;
use crate::version::NodeId;
use crate::wire::Message;

/// Delay before the second attempt at a seed, doubled for each further one; also the delay before peers are tried when
/// another one came up (P4).
const SOON: Duration = Duration::from_millis(250);

impl Node {
    pub(super) fn dial_seed(&mut self, index: usize, out: &mut Output) {
        let Some(seed) = self.peers.seeds.get(index) else { return };
        let others_missing = !self.knows_others_of(seed);
        let known = seed.node.as_ref().and_then(|node| self.peers.peers.get(node));
        // The node may have moved back to the address of the seed from one at which it does not answer.
        let mut same: fn(&Peer, &str) -> bool = |peer, address| peer.peer_address == address;
        seam!(self, SeedShadowed => same = |_, _| true);
        let reached =
            known.is_some_and(|peer| peer.link.is_some() || (peer.dial.is_some() && same(peer, &seed.address)));
        seam!(self, OneselfIsFinal => if seed.oneself { return });
        if seed.is_this_node() || seed.dial.is_some() || (reached && !others_missing) {
            return;
        }
        let (address, turn) = (seed.address.clone(), seed.attempts);
        let dial = self.peers.start_dial(Dial::Seed(index));
        self.peers.seeds[index].dial = Some(dial);
        out.effects.push(Effect::Dial { dial, address, turn });
    }

    pub(super) fn dial_peer(&mut self, node: &NodeId, out: &mut Output) {
        let Some(peer) = self.peers.peers.get(node) else { return };
        if peer.link.is_some() || peer.dial.is_some() || peer.peer_address.is_empty() {
            return;
        }
        let address = peer.peer_address.clone();
        // Counted from here, so that a slow dial does not delay the next one.
        self.schedule_retry(node);
        let dial = self.peers.start_dial(Dial::Peer(node.clone()));
        if let Some(peer) = self.peers.peers.get_mut(node) {
            peer.dial = Some(dial);
        }
        out.effects.push(Effect::Dial { dial, address, turn: 0 });
    }

    /// The address of a dial is a name that leads to this many addresses. Called before the result of the dial.
    pub fn resolved(&mut self, dial: DialId, addresses: usize) {
        if let Some(Dial::Seed(seed)) = self.peers.dials.get(&dial)
            && let Some(seed) = self.peers.seeds.get_mut(*seed)
        {
            seed.addresses = addresses;
        }
    }

    /// Whether this node knows as many other nodes as there may be at a seed. Known ones are dialled at their own addresses.
    fn knows_others_of(&self, seed: &Seed) -> bool {
        seam!(self, NameIsOneNode => return true);
        let there = self.peers.peers.values().filter(|peer| peer.state != PeerState::Left).count();
        there >= seed.addresses.saturating_sub(1)
    }

    /// A dial succeeded.
    pub fn dialled(&mut self, now: Time, dial: DialId, link: LinkId, out: &mut Output) {
        self.observe(now, out);
        let Some(target) = self.finish_dial(dial) else {
            out.effects.push(Effect::CloseLink { link });
            return;
        };
        let mut entry = Link::new(link, true, self.clock);
        match &target {
            Dial::SameId => {}
            Dial::Seed(seed) => entry.seed = Some(*seed),
            Dial::Peer(node) => {
                let Some(peer) = self.peers.peers.get_mut(node).filter(|peer| peer.link.is_none()) else {
                    out.effects.push(Effect::CloseLink { link });
                    return;
                };
                peer.link = Some(link);
                entry.peer = Some(node.clone());
                seam!(self, ConnectionIsEvidence => peer.state = PeerState::Up);
            }
        }
        self.peers.links.insert(link, entry);
        self.timers.set(self.clock.now + self.config.timers.ping_timeout, Timer::Link(link));
        let hello = self.hello(None);
        self.send(link, &Message::Hello(hello), out);
    }

    /// A dial failed.
    pub fn dial_failed(&mut self, now: Time, dial: DialId, failure: SeedFailure, out: &mut Output) {
        self.observe(now, out);
        // The next attempt has its timer already.
        if let Some(Dial::Seed(seed)) = self.finish_dial(dial) {
            self.note_seed_failure(Some(seed), failure, out);
        }
        self.check_received(out);
    }

    fn finish_dial(&mut self, dial: DialId) -> Option<Dial> {
        let target = self.peers.dials.remove(&dial)?;
        match &target {
            Dial::SameId => {}
            Dial::Seed(seed) => self.peers.seeds.get_mut(*seed)?.dial = None,
            Dial::Peer(node) => self.peers.peers.get_mut(node)?.dial = None,
        }
        (self.phase != Phase::Over).then_some(target)
    }

    /// A peer connected.
    pub fn accepted(&mut self, now: Time, link: LinkId, out: &mut Output) {
        self.observe(now, out);
        if self.phase == Phase::Over || self.peers.links.len() >= 4 * self.config.limits.peers {
            self.counters.handshakes_rejected += 1;
            out.effects.push(Effect::CloseLink { link });
            return;
        }
        self.peers.links.insert(link, Link::new(link, false, self.clock));
        self.timers.set(self.clock.now + self.config.timers.ping_timeout, Timer::Link(link));
    }

    /// The certificate of a connection names this node. Called right after [`Node::accepted`] or [`Node::dialled`]. The
    /// peer can then complete the handshake as this node only (TS3).
    pub fn authenticated(&mut self, link: LinkId, node: NodeId) {
        if let Some(link) = self.peers.links.get_mut(&link) {
            link.authenticated = Some(node);
        }
    }

    /// A connection ended: EOF or reset.
    pub fn closed(&mut self, now: Time, link: LinkId, out: &mut Output) {
        self.closed_as(now, link, SeedFailure::Closed, out);
    }

    /// A connection ended, or sent something that is not a frame. `failure` counts if it was the dial of a seed.
    pub fn closed_as(&mut self, now: Time, link: LinkId, failure: SeedFailure, out: &mut Output) {
        self.observe(now, out);
        let unanswered = self.peers.links.get(&link).filter(|link| link.phase == LinkPhase::Handshake);
        self.note_seed_failure(unanswered.and_then(|link| link.seed), failure, out);
        seam!(self, EndIgnored => return);
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
            self.promote(candidate, out);
            return;
        }
        let was_up = entry.phase == LinkPhase::Up;
        if was_up && !matches!(peer.state, PeerState::Left | PeerState::Distant) {
            peer.state = PeerState::Lost;
            peer.confirmed = false;
            peer.query = None;
            let at = self.clock.now + self.config.timers.health_query_delay;
            self.timers.set(at, Timer::HealthQuery(node.clone()));
            out.events.push(RegistryEvent::PeerLost { node: node.clone(), reason });
        }
        // A peer that closed its link while this node was paused is reachable: no reason to wait.
        if was_up && self.clock.now.since(self.running_since) < self.config.timers.ping_timeout {
            self.retry_after(&node, SOON);
        } else {
            self.schedule_retry(&node);
        }
    }

    /// Closes all links unread: this node was paused and its peers have closed their links. Buffered frames are
    /// outdated and must not be processed as current (L5). New links start with an exchange.
    pub(super) fn drop_links(&mut self, out: &mut Output) {
        let links: Vec<LinkId> = self.peers.links.keys().copied().collect();
        for link in links {
            self.close(link, LossReason::Silent, out);
        }
        let peers: Vec<NodeId> = self.peers.peers.keys().cloned().collect();
        for peer in peers.iter().filter(|peer| self.wants_link(peer)).collect::<Vec<_>>() {
            self.dial_peer(peer, out);
        }
    }

    /// Schedules the next attempt (P4).
    pub(super) fn schedule_retry(&mut self, node: &NodeId) {
        self.retry_after(node, self.retry_interval());
    }

    /// A node without any link gets no records from other peers either, so it retries twice as often (P4).
    fn retry_interval(&self) -> Duration {
        let interval = self.config.timers.peer_retry_interval;
        let linked = self.peers.peers.values().any(|peer| peer.state == PeerState::Up);
        if linked { interval } else { interval / 2 }
    }

    /// Unreachable peers may have become reachable together with the peer that was just found: they are tried soon
    /// (P4).
    pub(super) fn hasten_retries(&mut self) {
        let later = self.clock.now + SOON.mul_f64(2.0);
        let waiting = |peer: &Peer| peer.link.is_none() && peer.retry_at.is_some_and(|at| at > later);
        let nodes: Vec<NodeId> =
            self.peers.peers.iter().filter(|(_, peer)| waiting(peer)).map(|(node, _)| node.clone()).collect();
        for node in nodes {
            self.retry_after(&node, SOON);
        }
    }

    fn retry_after(&mut self, node: &NodeId, pause: Duration) {
        let at = self.clock.now + self.jittered(pause);
        let Some(peer) = self.peers.peers.get_mut(node) else { return };
        peer.retry_at = Some(at);
        self.timers.set(at, Timer::RetryPeer(node.clone()));
    }

    /// Schedules the next dial of a seed. Nodes that start together miss each other by moments, so the first retries
    /// come sooner.
    pub(super) fn schedule_seed(&mut self, index: usize) {
        let interval = self.retry_interval();
        let Some(seed) = self.peers.seeds.get_mut(index) else { return };
        let early = SOON.saturating_mul(2u32.saturating_pow(seed.attempts));
        seed.attempts = seed.attempts.saturating_add(1);
        let pause = if seed.node.is_none() { early.min(interval) } else { interval };
        let at = self.clock.now + self.jittered(pause);
        self.timers.set(at, Timer::RetrySeed(index));
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        let jitter = self.config.retry_jitter;
        interval.mul_f64(1.0 - jitter + 2.0 * jitter * self.random.f64())
    }

    pub(super) fn retry_peer(&mut self, node: &NodeId, out: &mut Output) {
        seam!(self, NoRetries => return);
        let Some(peer) = self.peers.peers.get(node) else { return };
        if peer.retry_at.is_none_or(|at| at > self.clock.now) {
            return;
        }
        if self.wants_link(node) {
            self.dial_peer(node, out);
        }
    }

    pub(super) fn retry_seed(&mut self, seed: usize, out: &mut Output) {
        let Some(entry) = self.peers.seeds.get(seed) else { return };
        // If the last node found at this seed, or one that advertises its address, is dialled at the same address
        // anyway, one attempt is enough.
        let there = |peer: &&Peer| peer.peer_address == entry.address;
        let found = entry.node.as_ref().and_then(|node| self.peers.peers.get(node));
        let peer = found.or_else(|| self.peers.peers.values().find(there));
        let covered = peer.is_some_and(|peer| {
            peer.state == PeerState::Up || (peer.peer_address == entry.address && peer.state != PeerState::Left)
        });
        // A name that led to this node itself leads to no other node that could be linked.
        let covered = covered || (entry.oneself && self.peers.up().next().is_some());
        if !(covered && self.knows_others_of(entry)) {
            self.dial_seed(seed, out);
        }
        // When everything is linked this costs one check per interval; it makes any partition heal.
        if !self.peers.seeds[seed].is_this_node() {
            self.schedule_seed(seed);
        }
    }

    /// Adds a node to the known peers.
    pub(super) fn learn_peer(&mut self, node: &NodeId, region: &str, address: &str, out: &mut Output) {
        seam!(self, PeersNotLearned => return);
        if *node == self.me.node || address.is_empty() || self.map.origins.is_gone(node) {
            return;
        }
        let full = self.peers.peers.len() >= self.config.limits.peers;
        match self.peers.peers.get_mut(node) {
            Some(peer) => {
                // A connected peer's own statement takes precedence over relayed ones.
                if peer.state != PeerState::Up {
                    region.clone_into(&mut peer.region);
                    address.clone_into(&mut peer.peer_address);
                }
            }
            None if full => self.counters.handshakes_rejected += 1,
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
            LinkPhase::Handshake => link.opened.silence_without_pauses(self.clock, Duration::MAX),
            LinkPhase::Candidate => Duration::ZERO,
            LinkPhase::Up => link.silence(self.clock),
        };
        // A ping is echoed with the peer's next ping, so a fresh echo may be one interval older.
        let mut echo =
            if link.is_up() { link.echo_silence(self.clock).saturating_sub(interval * 2) } else { Duration::ZERO };
        seam!(self, NoEchoCheck => echo = Duration::ZERO);
        if silence >= timeout {
            let unanswered = link.seed.filter(|_| link.phase == LinkPhase::Handshake);
            self.note_seed_failure(unanswered, SeedFailure::TimedOut, out);
            self.close(id, LossReason::Silent, out);
        } else if echo >= timeout {
            self.close(id, LossReason::OneWay, out);
        } else {
            let left = timeout - silence.max(echo.min(timeout));
            self.timers.set(self.clock.now + left.max(Duration::from_millis(1)), Timer::Link(id));
        }
    }
}
