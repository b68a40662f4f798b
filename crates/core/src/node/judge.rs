//! Judging who is alive: evidence, admission, mass failure, takeover (L2–L6).

use super::queries::node_member_id;
use super::{DegradedReason, Event, Node, Output, Phase, StopReason};
use crate::map::{CausalMap, Evidence, OriginEntry};
use crate::member::{Member, Record, Space, Status};
use crate::mutant::Mutant;
use crate::node::PeerState;
use crate::time::{Duration, Heard, Time};
use crate::version::{NodeId, OriginId};
use crate::wire::EvidenceItem;
use foldhash::fast::FixedState;
use smol_str::SmolStr;
use std::hash::BuildHasher;
use std::sync::Arc;

/// From this many silent sessions (other nodes) on, a mass failure is considered.
pub(super) const MASS_SESSIONS_MIN: usize = 8;
const MASS_NODES_MIN: usize = 2;

/// Second thoughts about mass failures (L6).
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
    /// Looked a moment ago, and there was no reason to wait: not looked again before. To look at all of many for each that is
    /// judged would take longer than they have.
    pub(super) sound_until: Time,
}

impl Hold {
    pub(super) fn hold(&mut self, now: Time, wait: Duration) -> Time {
        self.holding_until = now + wait;
        self.holding_until
    }

    /// Until when judgements wait, if they do. A wait that is over lets them pass, even before the next tick.
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
    /// A message came from the origin itself; a ping says its life number and how much it has written.
    pub(super) fn direct_evidence(&mut self, origin: &OriginId, ping: Option<(u64, u64)>, out: &mut Output) {
        let Some(index) = self.map.admit_origin(origin, self.clock) else { return };
        let heard = Heard::now(self.clock);
        let entry = self.map.origins.entry_mut(index);
        // Only a higher life number is evidence: a Hello may have waited in a queue since before its sender died.
        if let Some((life, written)) = ping
            && life > entry.evidence.life
        {
            let written = entry.evidence.written.max(written);
            entry.evidence = Evidence { life, written, heard, via: None, assumed: false };
            self.note_life(index, out);
        }
    }

    /// A peer tells of an origin's life (L2).
    pub(super) fn relayed_evidence(&mut self, item: &EvidenceItem, via: &NodeId, out: &mut Output) {
        if item.origin == self.me || self.mutation.is(Mutant::NoRelayedEvidence) {
            return;
        }
        let Some(index) = self.map.admit_origin(&item.origin, self.clock) else { return };
        let age = Duration::from_millis(item.age_ms);
        let young = age < self.config.timers.admission_window();
        let heard = Heard::ago(self.clock, age);
        let outlived = self.map.origins.is_outlived(&item.origin);
        let evidence = &mut self.map.origins.entry_mut(index).evidence;
        let first = evidence.assumed;
        let newer = item.life > evidence.life;
        // Nobody has heard of it yet: then whoever waited longest knows best (a fresh replica inherits the clock).
        if first && item.life == 0 && evidence.heard.is_after(heard) {
            evidence.heard = heard;
            if !young {
                self.reshow(index, out, |map| map.origins.entry_mut(index).admitted = false);
            }
            return;
        }
        // A run that has a successor says nothing more: who has waited longest for it knows best, and who slept catches up.
        if outlived && item.life == evidence.life && evidence.heard.is_after(heard) {
            evidence.heard = heard;
        }
        if !newer && !self.mutation.is(Mutant::EvidenceByAgeAlone) {
            return;
        }
        evidence.life = evidence.life.max(item.life);
        evidence.written = evidence.written.max(item.written);
        if first || heard.is_after(evidence.heard) {
            evidence.heard = heard;
            evidence.via = Some(via.clone());
            evidence.assumed = false;
        }
        // If a newer run of this node's own id lives on, two processes use the id: the older one stops (N4). A single
        // sighting may be of a run that just died.
        let namesake = item.origin.node == self.me.node && item.origin.incarnation > self.me.incarnation;
        if namesake && young && !first && newer {
            self.stop_now(StopReason::IdentityConflict, out);
        } else if young {
            self.note_life(index, out);
        } else if first {
            self.reshow(index, out, |map| {
                let entry = map.origins.entry_mut(index);
                entry.admitted = false;
                entry.judged_life = entry.evidence.life;
            });
        } else {
            self.note_past_life(index, out);
        }
    }

    /// There is young evidence of an origin. One that had fallen silent is believed again once its news are in.
    fn note_life(&mut self, index: u32, out: &mut Output) {
        let entry = self.map.origins.entry(index);
        if !entry.admitted && entry.news_above == u64::MAX {
            self.reshow(index, out, |map| {
                let entry = map.origins.entry_mut(index);
                // Records of a cut delta are held although nothing is promised of them; they are no news either.
                entry.news_above = entry.seen.max(entry.stated.last());
                // That it lived a little longer may have been heard before; it has written more since.
                entry.returning = Some(entry.evidence.written);
            });
        }
        self.note_past_life(index, out);
    }

    /// There is evidence, young or not, that an origin lived longer than this node knew.
    fn note_past_life(&mut self, index: u32, out: &mut Output) {
        let entry = self.map.origins.entry_mut(index);
        if entry.admitted {
            entry.judged_life = entry.evidence.life;
        } else {
            entry.returning.get_or_insert(entry.evidence.written);
            self.welcome_back(index, out);
        }
    }

    /// Judges a returned origin anew if this node has taken in what it had written when it returned (L3): it is admitted,
    /// or, if it is silent again by now, inferences made before it returned are void (L4).
    pub(super) fn welcome_back(&mut self, index: u32, out: &mut Output) {
        let silent = self.silence(index) > self.config.timers.admission_window();
        let entry = self.map.origins.entry(index);
        let Some(written) = entry.returning else { return };
        let caught_up = entry.seen >= written || self.mutation.is(Mutant::ReturnedBelievedAtOnce);
        if caught_up {
            self.reshow(index, out, |map| {
                let entry = map.origins.entry_mut(index);
                (entry.returning, entry.news_above) = (None, u64::MAX);
                entry.admitted = !silent;
                entry.judged_life = entry.evidence.life;
            });
        } else if silent && entry.news_above != u64::MAX {
            self.reshow(index, out, |map| map.origins.entry_mut(index).news_above = u64::MAX);
        }
    }

    /// After something was taken in: who can be believed again?
    pub(super) fn welcome_all_back(&mut self, out: &mut Output) {
        let returning: Vec<u32> =
            self.map.origins.iter().filter(|(_, entry)| entry.returning.is_some()).map(|(index, _)| index).collect();
        for index in returning {
            self.welcome_back(index, out);
        }
    }

    /// An origin gave signs of life and fell silent again before its news arrived; they may be lost with it. That it lived
    /// longer voids what was inferred before all the same (L4): whoever hears of it only now would not believe that either.
    fn give_up_returns(&mut self, out: &mut Output) {
        let window = self.config.timers.admission_window();
        let outdated = |entry: &OriginEntry| entry.returning.is_some() && entry.judged_life < entry.evidence.life;
        let again: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| outdated(entry) && self.silence(*index) > window)
            .map(|(index, _)| index)
            .collect();
        for index in again {
            self.reshow(index, out, |map| {
                let entry = map.origins.entry_mut(index);
                entry.judged_life = entry.evidence.life;
            });
        }
    }

    /// Records of a silent origin that came with a cut delta are promised by nobody, and contexts do not tell who has them:
    /// they are shared by exchanging with everyone, whenever there are more of them (D7).
    pub(super) fn share_loose_ends(&mut self) {
        let loose = |entry: &OriginEntry| !entry.admitted && entry.stated.last() > entry.seen;
        let found: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(_, entry)| loose(entry) && entry.shared != entry.stores)
            .map(|(index, _)| index)
            .collect();
        if !found.is_empty() {
            self.to_ask.extend(self.peers.up_links());
        }
        for index in found {
            let entry = self.map.origins.entry_mut(index);
            entry.shared = entry.stores;
        }
    }

    /// Changes how an origin is judged, and tells subscribers which members look different now (L3).
    fn reshow(&mut self, index: u32, out: &mut Output, change: impl FnOnce(&mut CausalMap)) {
        let was = self.map.origins.entry(index).admitted;
        let before: Vec<(u32, Member)> = if !self.is_watched() {
            Vec::new()
        } else {
            let slots = self.map.origins.entry(index).stated.values();
            slots
                .map(|slot| (*slot, self.map.at(*slot)))
                .filter(|(_, record)| record.is_live() && record.space == Space::Member)
                .map(|(slot, record)| (slot, self.map.member(record)))
                .collect()
        };
        change(&mut self.map);
        let entry = self.map.origins.entry(index);
        let origin = entry.origin.id.clone();
        match (was, entry.admitted) {
            (true, false) => out.events.push(Event::OriginSilent { origin }),
            (false, true) => out.events.push(Event::OriginReturned { origin }),
            _ if before.is_empty() => return,
            _ => {}
        }
        self.subscribers.stamp += 1;
        for (slot, before) in before {
            let after = self.map.member(self.map.at(slot));
            if after.status() != before.status() {
                self.route(slot, Some(&before), Some(&after), false, out);
            }
        }
    }

    pub(super) fn silence(&self, index: u32) -> Duration {
        self.map.origins.entry(index).evidence.heard.attentive_silence(self.clock, Duration::MAX)
    }

    /// Withdraws admission from origins that have been silent for too long (L2), with second thoughts (L6).
    pub(super) fn judge_origins(&mut self, out: &mut Output) {
        self.welcome_all_back(out);
        self.give_up_returns(out);
        let now = self.clock.now;
        let wait = self.config.timers.heartbeat_timeout;
        for (hold, reason) in
            [(&mut self.guard.sessions, DegradedReason::Sessions), (&mut self.guard.nodes, DegradedReason::Nodes)]
        {
            if hold.expire(now, wait) {
                out.events.push(Event::DegradedEnded { reason });
            }
        }
        let window = self.config.timers.admission_window();
        let me = self.map.origins.me();
        let silent: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| *index != me && entry.admitted && self.silence(*index) > window)
            .map(|(index, _)| index)
            .collect();
        if !silent.is_empty() && !self.hold_nodes(out) {
            for index in silent {
                self.reshow(index, out, |map| map.origins.entry_mut(index).admitted = false);
            }
        }
        self.let_go_of_written_off(out);
    }

    /// Whether most other nodes fell silent at once: then it is more likely that this node is cut off.
    fn hold_nodes(&mut self, out: &mut Output) -> bool {
        let now = self.clock.now;
        if now < self.guard.nodes.passing_until {
            return false;
        }
        let newest = |index: u32| {
            let id = &self.map.origins.entry(index).origin.id;
            id.node != self.me.node
                && self.map.origins.incarnations(&id.node).all(|(incarnation, _)| incarnation <= id.incarnation)
        };
        // Those about to follow count too: nodes lost at once are not judged in the same instant.
        let soon = self.config.timers.heartbeat_timeout;
        let fading =
            self.map.origins.iter().filter(|(index, entry)| {
                *index != self.map.origins.me() && entry.admitted && self.silence(*index) > soon
            });
        let lost: Vec<u32> = fading.map(|(index, _)| index).filter(|index| newest(*index)).collect();
        let others = self.map.origins.iter().filter(|(index, entry)| entry.admitted && newest(*index)).count();
        let confirmed = lost.iter().all(|index| {
            let node = &self.map.origins.entry(*index).origin.id.node;
            self.peers.peers.get(node).is_some_and(|peer| peer.state == PeerState::Failed && peer.confirmed)
        });
        let mass = lost.len() >= MASS_NODES_MIN && lost.len() as f64 > others as f64 * self.config.mass_failure_share;
        if !mass || confirmed {
            return false;
        }
        if !self.guard.nodes.is_holding(now) {
            let until = self.guard.nodes.hold(now, self.config.timers.heartbeat_timeout);
            let until_ms = until.as_micros() / 1000;
            out.events.push(Event::Degraded { reason: DegradedReason::Nodes, until_ms });
        }
        true
    }

    /// What this node doubts at the moment.
    pub fn degraded(&self) -> Vec<DegradedReason> {
        let now = self.clock.now;
        let holds = [(&self.guard.sessions, DegradedReason::Sessions), (&self.guard.nodes, DegradedReason::Nodes)];
        holds.into_iter().filter(|(hold, _)| hold.is_holding(now)).map(|(_, reason)| reason).collect()
    }

    /// Writes `left` for members of origins that have been silent too long, if this node is responsible (L4).
    pub(super) fn take_over(&mut self, out: &mut Output) {
        if !matches!(self.phase, Phase::Ready { .. }) {
            return;
        }
        let long = self.config.timers.admission_window() + self.config.timers.reconnect_timeout;
        let silent: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| {
                !entry.admitted
                    && !entry.stated.is_empty()
                    && entry.taken_over != Some((entry.evidence.life, entry.stores))
                    && self.silence(*index) >= long
            })
            .map(|(index, _)| index)
            .collect();
        for index in silent {
            let origin = self.map.origins.entry(index).origin.id.clone();
            let responsible = self.responsible_for(&origin).as_ref() == Some(&self.me.node);
            if responsible || self.mutation.is(Mutant::EveryoneTakesOver) {
                self.take_over_origin(index, out);
            }
        }
    }

    fn take_over_origin(&mut self, index: u32, out: &mut Output) {
        let entry = self.map.origins.entry(index);
        let (life, stores) = (entry.evidence.life, entry.stores);
        let slots: Vec<u32> = entry.stated.values().copied().collect();
        self.map.origins.entry_mut(index).taken_over = Some((life, stores));
        for slot in slots {
            let record: Arc<Record> = self.map.at(slot).clone();
            let due = record.is_live() && record.space == Space::Member;
            if !due || (self.map.shown(&record) == Status::Left && !self.mutation.is(Mutant::EveryoneTakesOver)) {
                continue;
            }
            self.counters.members_expired += 1;
            self.counters.local_writes += 1;
            let before = self.map.member(&record);
            let id: SmolStr = record.id.clone();
            self.map.write_inferred(&id, &record, life, self.clock);
            let after = self.map.member(&record);
            self.route(slot, Some(&before), Some(&after), false, out);
        }
    }

    /// The node responsible for an origin's members while it is silent: first by rendezvous hash among the admitted.
    pub fn responsible_for(&self, origin: &OriginId) -> Option<NodeId> {
        let me = self.map.origins.me();
        let mut nodes: Vec<&NodeId> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| entry.admitted && (*index == me || self.is_serving(entry)))
            .map(|(_, entry)| &entry.origin.id.node)
            .collect();
        nodes.dedup();
        let hasher = FixedState::with_seed(0);
        let weight = |node: &NodeId| hasher.hash_one((origin, node.as_str()));
        nodes.into_iter().max_by_key(|node| (weight(node), *node)).cloned()
    }

    /// Whether a linked peer is ready, or was in its present run and is stopping by now: what it holds is complete (N3).
    pub(super) fn has_been_ready(&self, node: &NodeId) -> bool {
        let Some(peer) = self.peers.peers.get(node) else { return false };
        let run = peer.incarnation.map(|incarnation| OriginId { node: node.clone(), incarnation });
        let index = run.and_then(|run| self.map.origins.index_of(&run));
        peer.ready || index.is_some_and(|index| self.is_serving(self.map.origins.entry(index)))
    }

    /// Whether an origin's own word is that it is there: its node record, which it unregisters when it leaves.
    pub(super) fn is_serving(&self, entry: &OriginEntry) -> bool {
        let own = self.map.record(Space::Member, &node_member_id(&entry.origin.id.node));
        own.is_some_and(|record| record.is_live() && record.origin.index == entry.origin.index)
    }
}
