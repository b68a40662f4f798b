//! The mass-failure guard: judgements wait when most sessions or most nodes fall silent at once (L6).

use super::{DegradedReason, Node, Output, RegistryEvent};
use crate::mutant::seam;
use crate::node::PeerState;
use crate::time::{Duration, Time};

/// With at least this many silent sessions (other nodes), a mass failure is considered.
pub(super) const MASS_SESSIONS_MIN: usize = 8;
const MASS_NODES_MIN: usize = 2;

/// The mass-failure guard (L6).
#[derive(Debug, Default)]
pub(super) struct Guard {
    pub(super) sessions: Hold,
    pub(super) nodes: Hold,
}

#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Judgements wait until then.
    pub(super) holding_until: Time,
    /// The wait is over: judgements pass until then.
    pub(super) passing_until: Time,
    /// Until then, a recent check that found no reason to wait stays valid. Checking all sessions for each one that is
    /// judged would take too long.
    pub(super) sound_until: Time,
}

impl Hold {
    pub(super) fn hold(&mut self, now: Time, wait: Duration) -> Time {
        self.holding_until = now + wait;
        self.holding_until
    }

    /// Returns until when judgements wait, if they do. Judgements pass after the wait, even before the next tick.
    pub(super) fn holds(&mut self, now: Time, pass: Duration) -> Option<Time> {
        self.expire(now, pass);
        self.is_holding(now).then_some(self.holding_until)
    }

    /// Whether the wait ended just now.
    fn expire(&mut self, now: Time, pass: Duration) -> bool {
        let over = self.holding_until != Time::ZERO && now >= self.holding_until;
        if over {
            self.holding_until = Time::ZERO;
            self.passing_until = now + pass;
        }
        over
    }

    fn is_holding(&self, now: Time) -> bool {
        now < self.holding_until
    }
}

impl Node {
    /// Whether this node waits with judgements, because it may itself be cut off.
    pub(super) fn is_degraded(&self) -> bool {
        let now = self.clock.now;
        self.guard.sessions.is_holding(now) || self.guard.nodes.is_holding(now)
    }

    /// Ends the waits that are over.
    pub(super) fn end_degraded(&mut self, out: &mut Output) {
        let (now, wait) = (self.clock.now, self.config.timers.heartbeat_timeout);
        for (hold, reason) in
            [(&mut self.guard.sessions, DegradedReason::Sessions), (&mut self.guard.nodes, DegradedReason::Nodes)]
        {
            if hold.expire(now, wait) {
                out.events.push(RegistryEvent::DegradedEnded { reason });
            }
        }
    }

    /// Whether most other nodes fell silent at once: then it is more likely that this node is cut off.
    pub(super) fn hold_nodes(&mut self, out: &mut Output) -> bool {
        let now = self.clock.now;
        if now < self.guard.nodes.passing_until {
            return false;
        }
        let newest = |index: u32| {
            let id = &self.map.origins.entry(index).origin.id;
            id.node != self.me.node
                && self.map.origins.incarnations(&id.node).all(|(incarnation, _)| incarnation <= id.incarnation)
        };
        // Nodes that are about to be judged count too: nodes lost at once are not judged in the same instant.
        let soon = self.config.timers.heartbeat_timeout;
        let fading = self.map.origins.iter().filter(|(index, entry)| {
            *index != self.map.origins.me() && entry.standing.is_admitted() && self.silence(*index) > soon
        });
        // A node that lost its disk runs with a lower number than before.
        let mut links_count = true;
        seam!(self, LinkedNodeCountsAsGone => links_count = false);
        let linked = |index: u32| self.peers.link_to(&self.map.origins.entry(index).origin.id.node).is_some();
        let lost = fading.map(|(index, _)| index).filter(|index| newest(*index) && !(links_count && linked(*index)));
        let lost: Vec<u32> = lost.collect();
        let others =
            self.map.origins.iter().filter(|(index, entry)| entry.standing.is_admitted() && newest(*index)).count();
        let mut confirmed = lost.iter().all(|index| {
            let node = &self.map.origins.entry(*index).origin.id.node;
            self.peers.peers.get(node).is_some_and(|peer| peer.state == PeerState::Failed && peer.confirmed)
        });
        let mass = lost.len() >= MASS_NODES_MIN && lost.len() as f64 > others as f64 * self.config.mass_failure_share;
        seam!(self, NoMassFailureGuard => return false);
        seam!(self, ConfirmationIgnored => confirmed = false);
        if !mass || confirmed {
            return false;
        }
        if !self.guard.nodes.is_holding(now) {
            let until = self.guard.nodes.hold(now, self.config.timers.heartbeat_timeout);
            let until_ms = until.as_micros() / 1000;
            out.events.push(RegistryEvent::Degraded { reason: DegradedReason::Nodes, until_ms });
        }
        true
    }

    /// The reasons for which this node is degraded at the moment.
    pub fn degraded(&self) -> Vec<DegradedReason> {
        let now = self.clock.now;
        let holds = [(&self.guard.sessions, DegradedReason::Sessions), (&self.guard.nodes, DegradedReason::Nodes)];
        holds.into_iter().filter(|(hold, _)| hold.is_holding(now)).map(|(_, reason)| reason).collect()
    }
}
