//! Moving sessions towards an even spread over the ready nodes of a region (N10).
//!
//! Example: three nodes have 1,500, 1,500 and 0 sessions, because the third one was restarted. The share of each node is
//! 1,000. The first two are above it by 500, which is more than the slack of 100, so each of them asks about 15 sessions
//! per second to move to the third one. They stop at their share. They begin again only above the slack, so they rest.

use super::{Effect, HandoverTarget, Node, Notice, Output, Phase, SessionId};
use crate::member::Liveness;
use crate::mutant::seam;
use crate::sessions::Session;
use crate::time::{Duration, Time};
use smol_str::SmolStr;
use std::collections::BTreeMap;

/// A node moves one in this many of its sessions with a tick, on average, ...
const MOVED_ONE_IN: u64 = 100;
/// ... at least one, and at most this many. A drained node always moves this many.
const MOVED_MAX: u64 = 100;
/// A node above its share by less than this part of it is at rest, ...
const SLACK_ONE_IN: u64 = 10;
/// ... and so is a node above it by no more than this number of sessions.
const SLACK_MIN: u64 = 2;
/// A client that attaches here again within this time has no use for the node it was sent to.
const RETURN_WINDOW: Duration = Duration::from_secs(60);
/// A client that was sent a notice is expected to have left after this time.
const LEAVE_WAIT: Duration = Duration::from_secs(10);

/// Another ready node of the region.
#[derive(Clone, Debug)]
pub(super) struct Sibling {
    target: HandoverTarget,
    sessions: u64,
    drained: bool,
}

/// The sessions of this node and its siblings.
#[derive(Debug)]
pub(super) struct Spread {
    /// Sessions that this node has and that were not asked to move.
    own: u64,
    drained: bool,
    siblings: Vec<Sibling>,
}

impl Spread {
    /// The sessions of every node that is not drained, if they are spread evenly; rounded up.
    fn share(&self) -> u64 {
        let total = self.siblings.iter().map(|sibling| sibling.sessions).fold(self.own, u64::saturating_add);
        let takers = self.siblings.iter().filter(|sibling| !sibling.drained).count() as u64 + u64::from(!self.drained);
        total.div_ceil(takers.max(1))
    }

    /// Sessions of this node above its share. A drained node has none, and nothing moves without another taker.
    fn excess(&self) -> u64 {
        let taken = self.siblings.iter().any(|sibling| !sibling.drained);
        match (taken, self.drained) {
            (false, _) => 0,
            (true, true) => self.own,
            (true, false) => self.own.saturating_sub(self.share()),
        }
    }

    fn slack(&self) -> u64 {
        if self.drained { 0 } else { (self.share() / SLACK_ONE_IN).max(SLACK_MIN) }
    }

    /// How far each sibling is below its share.
    fn deficits(&self) -> Vec<u64> {
        let share = self.share();
        let below = |sibling: &Sibling| if sibling.drained { 0 } else { share.saturating_sub(sibling.sessions) };
        self.siblings.iter().map(below).collect()
    }

    /// The largest number of sessions to move with one tick.
    fn rate(&self) -> u64 {
        if self.drained { MOVED_MAX } else { (self.own / MOVED_ONE_IN).clamp(1, MOVED_MAX) }
    }
}

/// What a node remembers between two ticks.
#[derive(Debug, Default)]
pub(super) struct Rebalancing {
    /// When this node came above its slack, and how long it waits from then on.
    above: Option<(Time, Duration)>,
    /// It is on the way down to its share.
    moving: bool,
    /// Clients that were sent a notice, and when.
    asked: BTreeMap<SmolStr, Time>,
    excess: u64,
}

impl Rebalancing {
    /// Whether to move sessions now. Below the share nothing moves; between the share and the slack, a node goes on with
    /// what it has begun.
    fn is_due(&mut self, now: Time, spread: &Spread, wait: Duration) -> bool {
        let (excess, slack) = (spread.excess(), spread.slack());
        if excess == 0 || (excess <= slack && !self.moving) {
            (self.above, self.moving) = (None, false);
            return false;
        }
        let (since, wait) = *self.above.get_or_insert((now, if spread.drained { Duration::ZERO } else { wait }));
        self.moving |= now.since(since) >= wait;
        self.moving
    }
}

impl Node {
    /// Attached sessions that this node could hand over: those of clients with a stream. HTTP clients move by themselves.
    pub fn streamed_sessions(&self) -> u64 {
        self.sessions.streams() as u64
    }

    /// Sessions of this node above its share of those of the region.
    pub fn session_excess(&self) -> u64 {
        self.rebalancing.excess
    }

    /// Asks a few sessions to move, if this node has more than its share (N10).
    pub(super) fn rebalance(&mut self, out: &mut Output) {
        let now = self.clock.now;
        self.rebalancing.asked.retain(|_, at| now.since(*at) < RETURN_WINDOW);
        let steady = matches!(self.phase, Phase::Serving { .. }) && !self.is_alone() && self.degraded().is_empty();
        if !self.config.rebalance || !steady {
            (self.rebalancing.above, self.rebalancing.moving, self.rebalancing.excess) = (None, false, 0);
            return;
        }
        let spread = self.session_spread();
        self.rebalancing.excess = spread.excess();
        let interval = self.config.timers.heartbeat_interval;
        // Two nodes that see the same excess do not begin together.
        let wait = interval + interval.mul_f64(self.random.f64());
        let mut due = self.rebalancing.is_due(now, &spread, wait);
        seam!(self, SpreadIgnored => due = spread.own > 0);
        if !due {
            return;
        }
        let mut count = self.random.u64(..=2 * spread.rate()).min(spread.excess());
        let mut deficits = spread.deficits();
        seam!(self, SpreadIgnored => {
            count = 1;
            deficits.iter_mut().for_each(|deficit| *deficit += 1);
        });
        for session in self.movable(count as usize, spread.drained) {
            let Some(at) = self.choose(&deficits) else { break };
            deficits[at] -= 1;
            let target = spread.siblings[at].target.clone();
            self.ask_to_move(session, target, out);
        }
    }

    /// Whether a client that attaches was sent to another node, and has returned. It is not asked again (N10).
    pub(super) fn has_returned(&mut self, client: &str) -> bool {
        let returned = self.rebalancing.asked.remove(client).is_some();
        self.counters.sessions_returned += u64::from(returned);
        seam!(self, ReturnedAskedAgain => return false);
        returned
    }

    fn ask_to_move(&mut self, id: SessionId, target: HandoverTarget, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.asked_to_move = true;
        let Some(conn) = session.conn else { return };
        self.rebalancing.asked.insert(session.client.id.clone(), self.clock.now);
        self.counters.sessions_rebalanced += 1;
        out.effects.push(Effect::Notify { conn, notice: Notice::Handover { target: Some(target) } });
    }

    /// Sessions that may move. A client with `fast` liveness stays at a node that is not drained: its members would be
    /// `down` if it did not reach the other node within a second.
    fn movable(&mut self, count: usize, drained: bool) -> Vec<SessionId> {
        let may = |session: &Session| {
            let attached = session.conn.is_some() && !session.restored && !session.asked_to_move && !session.down;
            attached && (drained || session.liveness != Liveness::Fast)
        };
        let from = self.random.usize(..);
        self.sessions.pick(from, count, may)
    }

    /// Chooses a sibling, by how far each is below its share.
    fn choose(&mut self, deficits: &[u64]) -> Option<usize> {
        let total: u64 = deficits.iter().sum();
        let mut place = if total == 0 { return None } else { self.random.u64(..total) };
        deficits.iter().position(|deficit| {
            let here = place < *deficit;
            place = place.saturating_sub(*deficit);
            here
        })
    }

    fn session_spread(&self) -> Spread {
        let is_drained = |id: &str| self.member(id).is_some_and(|member| member.drained());
        let ready = self.peers.up().filter_map(|(node, _)| Some((node, self.peers.peers.get(node)?)));
        let ready = ready.filter(|(_, peer)| {
            let addressed = !peer.client_address.is_empty();
            peer.serving && !peer.stopping && addressed && peer.region == self.config.region
        });
        let siblings = ready.map(|(node, peer)| Sibling {
            target: HandoverTarget { node: node.clone(), client_address: peer.client_address.clone() },
            sessions: peer.sessions,
            drained: is_drained(&super::queries::node_member_id(node)),
        });
        let own = self.streamed_sessions().saturating_sub(self.leaving());
        Spread { own, drained: is_drained(&self.member_id), siblings: siblings.collect() }
    }

    /// Sessions that were asked to move a moment ago and are still here.
    fn leaving(&self) -> u64 {
        let now = self.clock.now;
        let here = |client: &SmolStr| {
            let session = self.sessions.of_client(client).and_then(|id| self.sessions.get(id));
            session.is_some_and(|session| session.asked_to_move && session.conn.is_some())
        };
        let asked = self.rebalancing.asked.iter().filter(|(_, at)| now.since(**at) < LEAVE_WAIT);
        asked.filter(|(client, _)| here(client)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::NodeId;

    fn spread(own: u64, drained: bool, siblings: &[(u64, bool)]) -> Spread {
        let siblings = siblings.iter().map(|(sessions, drained)| Sibling {
            target: HandoverTarget { node: NodeId::new("n").unwrap(), client_address: "h:1".to_owned() },
            sessions: *sessions,
            drained: *drained,
        });
        Spread { own, drained, siblings: siblings.collect() }
    }

    #[test]
    fn a_node_moves_what_is_above_its_share() {
        let uneven = spread(1_500, false, &[(1_500, false), (0, false)]);
        assert_eq!((uneven.share(), uneven.excess(), uneven.slack(), uneven.rate()), (1_000, 500, 100, 15));
        assert_eq!(uneven.deficits(), [0, 1_000]);
        let alone = spread(1_500, false, &[]);
        assert_eq!(alone.excess(), 0);
    }

    #[test]
    fn a_drained_node_has_no_share() {
        let drained = spread(20, true, &[(10, false), (0, false)]);
        assert_eq!((drained.excess(), drained.slack(), drained.rate()), (20, 0, 100));
        assert_eq!(drained.deficits(), [5, 15]);
        let sibling = spread(10, false, &[(20, true), (0, false)]);
        assert_eq!((sibling.share(), sibling.excess()), (15, 0));
        assert_eq!(spread(20, true, &[(10, true)]).excess(), 0, "there is no other node");
    }

    #[test]
    fn it_begins_above_the_slack_and_ends_at_the_share() {
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        let wait = Duration::from_secs(5);
        let mut state = Rebalancing::default();
        let with = |own: u64| spread(own, false, &[(2_000 - own, false)]);
        assert!(!state.is_due(at(0), &with(1_090), wait), "within the slack");
        assert!(!state.is_due(at(1), &with(1_200), wait), "it waits first");
        assert!(state.is_due(at(6), &with(1_200), wait));
        assert!(state.is_due(at(7), &with(1_050), wait), "it goes on below the slack");
        assert!(!state.is_due(at(8), &with(1_000), wait), "it has reached its share");
        assert!(!state.is_due(at(9), &with(1_050), wait), "and rests");
    }
}
