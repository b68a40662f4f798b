//! The consequences of a changed slot: watchers and losing sessions are notified, peers are added (C4, C7, C9, D9).

use super::agentless::archive_change;
use super::{Effect, Node, Notice, Output, RegistryEvent};
use crate::map::{Outcome, Stored};
use crate::member::{ClientProcess, Member, NODE_SERVICE, Record, Space, Status};
use crate::mutant::seam;
use crate::version::{Dot, decision_of, request_of, written_by};
use crate::watch::Change;
use crate::wire::{Item, Items, next_claim};
use std::sync::Arc;

impl Node {
    /// Applies the items of a frame, which may be part of a full merge. Does not raise the context.
    pub(super) fn apply_items(&mut self, items: &Items<'_>, merging: bool, out: &mut Output) {
        for item in items.iter() {
            let before = match &item {
                Item::Inferred(inferred) => self.shown_member(inferred.space, inferred.id),
                Item::Record(_) => None,
            };
            let outcome =
                if merging { self.map.apply_merging(&item, self.clock) } else { self.map.apply(&item, self.clock) };
            match outcome {
                Outcome::Known => self.counters.records_known += 1,
                Outcome::Rejected => self.counters.records_rejected += 1,
                Outcome::Outranked(loser) => {
                    self.counters.records_outranked += 1;
                    self.on_outranked(&loser, out);
                }
                Outcome::Stored(stored) => {
                    if stored.new.origin.index == self.map.origins.me() {
                        // A repeated tombstone (C16, D13).
                        self.counters.local_writes += 1;
                        self.sessions.take(stored.new.slot);
                    } else {
                        self.counters.records_applied += 1;
                    }
                    self.on_stored(&stored, out);
                }
                Outcome::Inferred => {
                    self.counters.records_applied += 1;
                    if let Item::Inferred(inferred) = &item {
                        self.route_shown(inferred.space, inferred.id, before, out);
                    }
                }
            }
        }
    }

    /// The record of a key as shown now, tombstones and inferred ones included.
    fn shown_member(&self, space: Space, id: &str) -> Option<Member> {
        if !self.is_watched() {
            return None;
        }
        self.map.record(space, id).map(|record| self.map.member(record))
    }

    pub(super) fn route_shown(&mut self, space: Space, id: &str, before: Option<Member>, out: &mut Output) {
        self.watchers.stamp += 1;
        if let (Some(before), Some(after)) = (before, self.shown_member(space, id))
            && before.status() != after.status()
            && let Some(slot) = self.map.slot_of(space, id)
        {
            self.route(slot, Some(&before), Some(&after), false, out);
        }
    }

    /// Routes a change to watchers; members shown as `left` count as absent.
    pub(super) fn route(
        &mut self,
        slot: u32,
        before: Option<&Member>,
        after: Option<&Member>,
        freed: bool,
        out: &mut Output,
    ) {
        let visible = |member: Option<&Member>| member.is_some_and(|m| m.status() != Status::Left);
        let (was, is) = (visible(before), visible(after));
        self.watchers.stamp += 1;
        if !was && !is {
            return;
        }
        self.publish(before, after, out);
        if self.watchers.is_empty() {
            return;
        }
        let (limit, mutation) = (self.config.limits.watcher_queue, self.mutation);
        let gone = after.filter(|_| !is).map(Member::version);
        let change = Change { slot, before: before.filter(|_| was), after: after.filter(|_| is), freed, gone };
        self.counters.watcher_events += self.watchers.route(change, limit, mutation, out);
    }

    /// A slot was removed: collected elsewhere (D10, D12).
    pub(super) fn on_removed(&mut self, slot: u32, before: &Member, out: &mut Output) {
        self.sessions.take(slot);
        self.forget_archived(&before.record, out);
        self.unassign_checks(&before.record, out);
        self.route(slot, Some(before), None, true, out);
    }

    /// A record was stored in a slot, from a peer or from this node's own write.
    pub(super) fn on_stored(&mut self, stored: &Stored, out: &mut Output) {
        if let Some(draft) = self.reclaimed(stored).or_else(|| self.not_critical_here(stored)) {
            self.counters.local_writes += 1;
            let reclaimed = self.map.write(draft, self.clock);
            if stored.conflict {
                self.report_conflict(&reclaimed.new, &stored.new, out);
            }
            return self.on_stored(&Stored { old: stored.old.clone(), ..reclaimed }, out);
        }
        let Stored { old, new, conflict } = stored;
        archive_change(old.as_ref(), new, out);
        self.assign_checks(old.as_ref(), new, out);
        if self.is_watched() {
            let before = old.as_ref().map(|old| self.map.member(old));
            let after = self.map.member(new);
            self.route(new.slot, before.as_ref(), Some(&after), false, out);
        } else {
            self.watchers.stamp += 1;
        }
        let me = self.map.origins.me();
        if new.origin.index == me {
            return;
        }
        if old.as_ref().is_none_or(|old| old.origin.index != new.origin.index) {
            self.note_owner_elsewhere(new);
        }
        if let Some(old) = old {
            if *conflict {
                self.report_conflict(new, old, out);
            }
            if old.origin.index == me {
                self.on_lost(old, new, out);
            }
            self.restore_later_request(old, new, out);
            self.note_expired_elsewhere(old, new, out);
        }
        self.learn_node(new, out);
        self.defend_own(new, out);
    }

    /// The record with which this node claims a member again, if a received record outranks the registration of a
    /// client that is connected here and does not end it (C9).
    fn reclaimed(&self, stored: &Stored) -> Option<Record> {
        let Stored { old, new, .. } = stored;
        let me = self.map.origins.me();
        let old = old.as_ref().filter(|old| old.origin.index == me && old.stated() == Status::Up)?;
        if new.origin.index == me {
            return None;
        }
        let session = self.sessions.of_slot(new.slot).and_then(|session| self.sessions.get(session));
        let session = session.filter(|session| session.conn.is_some())?;
        if self.ends_registration(old, new, &session.client) {
            return None;
        }
        // A drain mark survives a change of owner (C7), but not the registration it was set on.
        let claim = next_claim(new.claim);
        // The requests of the other process have numbers of their own (C10). At the highest claim, the sequence decides.
        let seq = if claim > new.claim { old.seq } else { new.seq.max(old.seq) };
        let marked = if new.is_live() { Record::clone(old).with_mark_of(new) } else { Record::clone(old) };
        Some(Record { claim, seq: seq + 1, ..marked })
    }

    /// Whether a record that outranks the one of a connected client ends its registration.
    fn ends_registration(&self, old: &Record, new: &Record, client: &ClientProcess) -> bool {
        let same_client = new.client.id == client.id;
        let same_process = same_client && new.client.nonce == client.nonce;
        // The client has decided after the request that wrote the other record (C16).
        if old.is_of_later_request(new) {
            return false;
        }
        seam!(self, SilentOwnerWins => return new.is_live() || same_client);
        seam!(self, EarlierTombstoneWins => return !new.is_live() && !same_client);
        // A record that names this registration as its predecessor took the member knowingly.
        let (tag, n) = new.predecessor;
        let knew = tag == old.origin.tag && self.sessions.held_since(new.slot).is_some_and(|since| n >= since);
        seam!(self, EarlierProcessWins => return same_client || knew || self.map.shown(new) == Status::Up);
        if new.is_live() {
            // Any other record that is not up is the leftover of an earlier registration: another client could have
            // registered over it (C2). An earlier process of the same client is such a client.
            return knew || same_process || self.map.shown(new) == Status::Up;
        }
        // Only this node states the end of its own claim, unless the client used another node with it (C10). Others infer
        // it, and repeat that as a tombstone (D13).
        if same_process {
            return new.claim != old.claim || decision_of(new.seq) > decision_of(old.seq);
        }
        // The tombstone of another registration. It ranks higher because that client or process attached more often. A
        // process that replaced this one before it unregistered the member has named this registration.
        same_client && knew
    }

    /// A record from a peer that ranks below the one held.
    fn on_outranked(&mut self, loser: &Arc<Record>, out: &mut Output) {
        let Some(held) = self.map.record(loser.space, &loser.id).cloned() else { return };
        let ordered = held.client == loser.client && request_of(held.seq) > 0;
        if held.claim == loser.claim && held.origin.index != loser.origin.index && !ordered {
            self.report_conflict(&held, loser, out);
        }
        if self.restore_later_request(loser, &held, out) {
            return;
        }
        seam!(self, MoveClearsDrain => return);
        let mine = held.origin.index == self.map.origins.me();
        if mine && held.is_live() && loser.is_live() && loser.drain > held.drain {
            let draft = Record { seq: held.seq + 1, ..Record::clone(&held).with_mark_of(loser) };
            self.write(draft, out);
        }
    }

    fn report_conflict(&mut self, winner: &Record, loser: &Record, out: &mut Output) {
        seam!(self, ConflictsNotReported => return);
        self.counters.conflicts += 1;
        let dot = |record: &Record| Dot { origin: record.origin.id.clone(), n: record.n };
        out.events.push(RegistryEvent::Conflict { id: winner.id.to_string(), winner: dot(winner), loser: dot(loser) });
    }

    /// Another origin took a record of this node (C4).
    fn on_lost(&mut self, old: &Arc<Record>, new: &Arc<Record>, out: &mut Output) {
        if new.drain < old.drain && old.is_live() && new.is_live() {
            let maintenance = old.maintenance.as_deref();
            self.pass_on_drain(&new.origin.id.node.clone(), &old.id, old.drain, maintenance, out);
        }
        let Some(session) = self.sessions.of_slot(new.slot) else { return };
        seam!(self, LossNotNotified => return);
        self.sessions.take(new.slot);
        let Some(entry) = self.sessions.get(session) else { return };
        let (client, conn, empty) = (entry.client.clone(), entry.conn, entry.members.is_empty());
        // The nodes choose the claims of an HTTP client, so the higher one may be of an earlier process.
        let mut earlier = entry.restored && new.client.nonce != client.nonce && self.map.shown(new) != Status::Up;
        seam!(self, EarlierSessionSupersedes => earlier = false);
        if new.client.id != client.id || earlier {
            self.note_lost_member(session, &new.id);
            if let Some(conn) = conn {
                out.effects
                    .push(Effect::Notify { conn, notice: Notice::TakenOver { id: new.id.to_string(), last: empty } });
            }
            return;
        }
        seam!(self, OwnerChangeReleasesFirst => entry.members.clone().into_iter().for_each(|slot| self.write_unregistered(slot, out)));
        let known = new.claim;
        if let Some(conn) = self.sessions.supersede(session) {
            let same = new.client.nonce == client.nonce;
            let notice = if same { Notice::Lost { known } } else { Notice::Superseded { known } };
            out.effects.push(Effect::Notify { conn, notice });
        }
        if empty {
            self.sessions.remove(session);
        }
    }

    /// Records of nodes contain their addresses (P8).
    fn learn_node(&mut self, record: &Arc<Record>, out: &mut Output) {
        if record.space != Space::Member || record.deployment.service != NODE_SERVICE || !record.is_live() {
            return;
        }
        let node = record.origin.id.node.clone();
        let region = record.metadata.get("region").unwrap_or_default().to_owned();
        let address = record.metadata.get("peer_address").unwrap_or_default().to_owned();
        self.learn_peer(&node, &region, &address, out);
        if let Some(peer) = self.peers.peers.get_mut(&node) {
            peer.client_address = record.address.to_string();
        }
    }

    /// Writes a record as this node and notifies watchers and sessions.
    pub(super) fn write(&mut self, draft: Record, out: &mut Output) -> Stored {
        self.counters.local_writes += 1;
        let stored = self.map.write(draft, self.clock);
        self.on_stored(&stored, out);
        stored
    }

    /// Writes the tombstone of an unregistered record, whatever its owner.
    pub(super) fn write_unregistered(&mut self, slot: u32, out: &mut Output) {
        let held = self.map.at(slot);
        let draft = Record { seq: written_by(self.request, held.seq), ..held.unregistered() };
        self.write(draft, out);
        self.note_unregistration();
    }

    /// Writes the tombstone of an expired record, or repeats a tombstone, whatever its owner.
    pub(super) fn write_expired(&mut self, slot: u32, out: &mut Output) {
        let draft = self.map.at(slot).expired();
        self.write(draft, out);
    }
}
