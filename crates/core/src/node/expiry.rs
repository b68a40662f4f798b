//! Expiry: members of silent origins, records that others wrote off, old incarnations; and the restating of records that
//! others dropped (L4, D10).

use super::{Node, Output, PeerState, Phase, RegistryEvent};
use crate::map::{OriginEntry, SilentState};
use crate::member::{Record, Space, Status};
use crate::mutant::seam;
use crate::peer::Peer;
use crate::time::Duration;
use crate::version::{Incarnation, NodeId, OriginId};
use crate::wire::Context;
use foldhash::fast::FixedState;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl Node {
    /// Applies the rules for silent origins. Each examines all records of an origin, so an origin whose state is
    /// unchanged since the last time is skipped.
    pub(super) fn expire_silent_origins(&mut self, out: &mut Output) {
        let window = self.config.timers.admission_window();
        for index in self.origins_that(|index, entry| !entry.standing.is_admitted() && self.silence(index) > window) {
            let state = self.silent_state(index);
            let entry = self.map.origins.entry_mut(index);
            let last = entry.last_processed.replace(state);
            if last == Some(state) {
                continue;
            }
            if last.is_none_or(|last| last.stores != state.stores) && entry.stated.last() > entry.seen {
                // Part of an interrupted delta. No context covers these records, so only exchanges spread them (D7).
                self.to_ask.extend(self.peers.up_links());
            }
            self.drop_written_off(index, out);
            if let Some(due) = state.expires {
                self.expire_records_of(index, due, out);
            }
        }
        self.retire_silent(out);
    }

    fn silent_state(&self, index: u32) -> SilentState {
        let entry = self.map.origins.entry(index);
        let due = |space: &Space| self.is_due(*space, index);
        let able = matches!(self.phase, Phase::Serving { .. }) && due(&Space::Member);
        let expires = able && self.is_responsible_for(&entry.origin.id);
        let expires = [Space::Name, Space::Member].into_iter().find(due).filter(|_| expires);
        SilentState {
            liveness_counter: entry.evidence.liveness_counter,
            stores: entry.stores,
            written_off: entry.written_off,
            expires,
        }
    }

    /// Whether the records of a silent origin in this key space expire now (L4).
    fn is_due(&self, space: Space, index: u32) -> bool {
        let (timers, silence) = (&self.config.timers, self.silence(index));
        match space {
            _ if self.wrote_lately(index) => false,
            Space::Member => silence >= timers.admission_window() + timers.reconnect_timeout,
            Space::Name => self.names_are_due(silence),
        }
    }

    /// Whether a write of an origin has arrived that it made after its latest evidence. It may be back, and the evidence of
    /// that may be on its way (L4).
    fn wrote_lately(&self, index: u32) -> bool {
        seam!(self, LaterWritesExpired => return false);
        let window = self.config.timers.admission_window();
        let arrived = self.map.origins.entry(index).unannounced_at;
        arrived.is_some_and(|at| at.silence_without_pauses(self.clock, Duration::MAX) < window)
    }

    /// Names of a lost origin expire later than its members (L4).
    fn names_are_due(&self, silence: Duration) -> bool {
        seam!(self, NamesNeverExpire => return false);
        silence >= self.config.timers.dead_peer_timeout
    }

    fn is_responsible_for(&self, origin: &OriginId) -> bool {
        seam!(self, EveryNodeExpires => return true);
        self.responsible_for(origin).as_ref() == Some(&self.me.node)
    }

    /// Writes an inferred `left` for each live record of a silent origin (L4): its members, and if `due` its names as well.
    fn expire_records_of(&mut self, index: u32, due: Space, out: &mut Output) {
        let entry = self.map.origins.entry(index);
        let liveness_counter = entry.evidence.liveness_counter;
        let slots: Vec<u32> = entry.stated.values().copied().collect();
        for slot in slots {
            let record = self.map.at(slot).clone();
            let expires = record.is_live() && record.space <= due && !record.is_agentless();
            if !expires || self.is_expired(&record) {
                continue;
            }
            self.counters.members_expired += u64::from(record.space == Space::Member);
            self.counters.local_writes += 1;
            self.expire_record(slot, &record, liveness_counter, out);
        }
    }

    /// Whether a node has written the inferred `left` of a live record already.
    fn is_expired(&self, record: &Arc<Record>) -> bool {
        seam!(self, EveryNodeExpires => return false);
        self.map.shown(record) == Status::Left
    }

    fn expire_record(&mut self, slot: u32, record: &Arc<Record>, liveness_counter: u64, out: &mut Output) {
        seam!(self, ExpiryStatesLeft => return self.write_expired(slot, out));
        let before = self.map.member(record);
        self.map.write_inferred(record, liveness_counter, self.clock);
        let after = self.map.member(record);
        self.route(slot, Some(&before), Some(&after), false, out);
    }

    /// The node responsible for the records of a silent origin: first by rendezvous hash among the admitted (L4).
    pub fn responsible_for(&self, origin: &OriginId) -> Option<NodeId> {
        first_by_hash(origin, self.live_nodes()).cloned()
    }

    /// The admitted nodes that serve, this one included.
    pub(super) fn live_nodes(&self) -> Vec<&NodeId> {
        let me = self.map.origins.me();
        let live = |(index, entry): &(u32, &OriginEntry)| {
            entry.standing.is_admitted() && (*index == me || self.states_serving(entry))
        };
        let mut nodes: Vec<&NodeId> =
            self.map.origins.iter().filter(live).map(|(_, entry)| &entry.origin.id.node).collect();
        nodes.dedup();
        nodes
    }

    /// Drops records that another node has written off (D10). Their origin fell silent before it restated them, and
    /// the node that dropped them may be the one responsible for expiring them.
    fn drop_written_off(&mut self, index: u32, out: &mut Output) {
        seam!(self, WrittenOffKept => return);
        for (slot, before) in self.map.drop_written_off(index) {
            self.on_removed(slot, &before, out);
        }
    }

    /// Retires old incarnations that no record refers to (D14), and nodes that are gone (D15). A starting node retires
    /// none: it has not received the records yet.
    fn retire_silent(&mut self, out: &mut Output) {
        if matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        let nodes: BTreeSet<NodeId> = self.map.origins.iter().map(|(_, entry)| entry.origin.id.node.clone()).collect();
        let (clock, long) = (self.clock, self.config.timers.retirement());
        for node in nodes {
            let gone = self.gone_after(&node);
            let due = |entry: &OriginEntry, outlived| {
                let timeout = if outlived || entry.forgotten { long } else { gone };
                entry.evidence.received_at.silence(clock) >= timeout
            };
            self.retire(&node, due, out);
        }
        self.map.origins.drop_markers(clock, self.config.timers.forget_timeout);
    }

    /// How long a node must be silent before its name is removed. A node that left will not return with the same
    /// incarnation; any other one may be behind a partition (D15).
    fn gone_after(&self, node: &NodeId) -> Duration {
        seam!(self, GoneNamesKept => return Duration::MAX);
        let left = self.peers.peers.get(node).is_some_and(|peer| peer.state == PeerState::Left);
        if left { self.config.timers.retirement() } else { self.config.timers.forget_timeout }
    }

    fn retire(&mut self, node: &NodeId, done_with: impl Fn(&OriginEntry, bool) -> bool, out: &mut Output) {
        seam!(self, NeverRetired => return);
        let done_with = |entry: &OriginEntry, outlived| !entry.standing.is_admitted() && done_with(entry, outlived);
        let forgotten = self.map.origins.is_forgotten(node);
        let retired = self.map.origins.retire(node, self.clock, done_with);
        // Any other peer is dialled for ever, so that every partition heals (P4).
        let removed = |peer: &Peer| !peer.is_connected() && (forgotten || peer.state == PeerState::Left);
        if !retired.is_empty() && self.map.origins.is_gone(node) && self.peers.peers.get(node).is_some_and(removed) {
            self.peers.peers.remove(node);
        }
        out.events.extend(retired.into_iter().map(|origin| RegistryEvent::OriginRetired { origin }));
    }

    /// Applies the dropped state in a peer's context: incarnations that this node retires too, and records that were
    /// written off. This node restates its own.
    pub(super) fn apply_peer_forgetting(&mut self, context: &Context, out: &mut Output) {
        for (node, incarnation) in &context.retired {
            self.repeat_tombstones_of(node, *incarnation, out);
            let (clock, long) = (self.clock, self.config.timers.retirement());
            let due = |entry: &OriginEntry, outlived| {
                let silent = outlived || entry.evidence.received_at.silence(clock) >= long;
                entry.origin.id.incarnation <= *incarnation && silent
            };
            self.retire(node, due, out);
        }
        self.map.note_written_off(context);
        if !matches!(self.phase, Phase::Serving { .. }) {
            return;
        }
        let written_off = context.written_off.get(&self.me);
        if written_off >= self.restated_at && written_off > 0 {
            self.restate(out);
        }
        let older = |(origin, _): (&OriginId, u64)| origin.node == self.me.node && *origin != self.me;
        if context.written_off.iter().any(older) {
            self.claim_above(context.claim_floor, out);
        }
    }

    /// Writes again, as tombstones of this node, what a silent origin left and what was inferred of it, if a peer has retired
    /// the origin (D13). Its records that are due to expire are ended here too: the responsible node may be that peer.
    ///
    /// Example: node C lost its disk, started with number 1 beside node B, and stored claim 9 of `m` over the claim 8 of
    /// node A. A was cut off from both, and retired numbers of C up to 2 long ago. It rejects all records of C with number 1,
    /// so it would show claim 8 for ever while B shows `m` as left. If A is the responsible node, B would show `m` as down.
    fn repeat_tombstones_of(&mut self, node: &NodeId, incarnation: Incarnation, out: &mut Output) {
        seam!(self, RetiredNotRepeated => return);
        if !self.map.may_write {
            return;
        }
        let origins = &self.map.origins;
        let retired =
            origins.incarnations(node).filter(|(number, index)| *number <= incarnation && *index != origins.me());
        let silent = retired.filter(|(_, index)| origins.entry(*index).standing.is_silent());
        let slots = silent.flat_map(|(_, index)| origins.entry(index).stated.values().map(move |slot| (index, *slot)));
        let left: Vec<u32> =
            slots.filter(|(index, slot)| self.is_over(*index, self.map.at(*slot))).map(|(_, slot)| slot).collect();
        for slot in left {
            self.write_expired(slot, out);
        }
    }

    /// Whether a record of a silent origin is shown as left, or is due to expire.
    fn is_over(&self, index: u32, record: &Arc<Record>) -> bool {
        let left = self.map.shown(record) == Status::Left;
        seam!(self, RetiredNotExpired => return left);
        left || self.is_due(record.space, index)
    }

    /// Writes all live records of this node again: another node dropped them while this node was unreachable (D10).
    fn restate(&mut self, out: &mut Output) {
        seam!(self, WrittenOffNotRestated => return);
        let entry = self.map.origins.entry(self.map.origins.me());
        self.restated_at = entry.seen + 1;
        let slots: Vec<u32> = entry.stated.values().copied().filter(|slot| self.map.at(*slot).is_live()).collect();
        for slot in slots {
            let held = self.map.at(slot);
            let draft = Record { seq: held.seq + 1, ..Record::clone(held) };
            self.write(draft, out);
        }
    }
}

/// The node with the highest rendezvous hash for a key.
pub(super) fn first_by_hash(key: impl Hash, nodes: Vec<&NodeId>) -> Option<&NodeId> {
    let hasher = FixedState::with_seed(0);
    let weight = |node: &NodeId| hasher.hash_one((&key, node.as_str()));
    nodes.into_iter().max_by_key(|node| (weight(node), *node))
}
