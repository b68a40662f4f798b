//! Merging received records and contexts (D3, D4, D6, D9, D11), full merges (D12) and repeated tombstones (D13).
//!
//! Example: this node holds `m` of node A with rank (1, 4) and its context is {A: 7}. A delta brings `m` of node B with rank
//! (2, 1) and dot (B, 3). The context does not cover (B, 3), and (2, 1) is above (1, 4), so the record is stored. It names
//! (A, 7) as its predecessor, so nothing is reported; with another one it would be a conflict. The context is raised to
//! {A: 7, B: 3} only when the last chunk of the delta has arrived: until then other writes of B may be missing.

use super::{CausalMap, ItemRef, Key, OriginEntry, key};
use crate::liveness::Inferred;
use crate::member::{Maintenance, Member, Record, RecordKind, Space, Status};
use crate::mutant::seam;
use crate::time::{Clock, ReceivedAt};
use crate::version::{NodeId, OriginId, VectorClock, request_of};
use crate::wire::{Context, InferredItem, Item, MAX_DRAIN_TAKEN, RecordItem, next_claim};
use smol_str::SmolStr;
use std::sync::Arc;

/// Result of applying a record.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Its dot was covered already.
    Known,
    /// The held record ranks higher. The other one is returned because it may still require an action.
    Outranked(Arc<Record>),
    Stored(Stored),
    /// An inferred record was stored; the shown status of this id may have changed.
    Inferred,
    /// Too many origins, a retired origin, a record in this node's own name, or one whose counters leave no room.
    Rejected,
}

/// A slot got another record.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) old: Option<Arc<Record>>,
    pub(crate) new: Arc<Record>,
    /// The two were written concurrently (D9).
    pub(crate) conflict: bool,
}

/// Records that a finished full merge removed.
#[derive(Debug, Default)]
pub(crate) struct FullMerge {
    /// Slots, and their members as shown before.
    pub(crate) removed: Vec<(u32, Member)>,
    /// Members as shown before the inferred record about them was dropped.
    pub(crate) uninferred: Vec<Member>,
    /// Slots of live records of this node that the sender collected, because it does not know that they have a live
    /// client.
    pub(crate) own: Vec<u32>,
}

impl CausalMap {
    /// Applies one record from a peer. It does not raise the context; `join` does.
    pub(crate) fn apply(&mut self, item: &Item<'_>, clock: Clock) -> Outcome {
        match item {
            Item::Record(item) => self.apply_record(item, clock),
            Item::Inferred(item) => self.apply_inferred(item, clock),
        }
    }

    /// Applies one record of the full merge in progress, and marks its key as held by the sender. Records from other nodes do
    /// not mark anything: a third node that lags behind may still hold what the sender has collected (D12).
    pub(crate) fn apply_merging(&mut self, item: &Item<'_>, clock: Clock) -> Outcome {
        let outcome = self.apply(item, clock);
        match item {
            Item::Record(item) => {
                if let (Some(marks), Some(held)) = (&mut self.marking, self.slots.find(item.space, item.id)) {
                    marks.set(held.slot);
                }
            }
            Item::Inferred(item) => {
                if let Some(held) = self.inferred.get_mut(&key(item.space, item.id)) {
                    held.marked = true;
                }
            }
        }
        outcome
    }

    fn apply_record(&mut self, item: &RecordItem<'_>, clock: Clock) -> Outcome {
        if self.leaves_no_room(item) {
            return Outcome::Rejected;
        }
        let Some(origin) = self.admit_origin(item.origin, clock) else { return Outcome::Rejected };
        if self.is_covered(origin, item.n) {
            return Outcome::Known;
        }
        if origin == self.origins.me() {
            return Outcome::Rejected;
        }
        let maintenance = self.maintenance_of(item, clock);
        let record = Record {
            id: SmolStr::new(item.id),
            origin: self.origins.entry(origin).origin.clone(),
            slot: 0,
            drain: item.drain,
            space: item.space,
            kind: item.kind,
            status: item.status,
            health: item.health,
            weight: item.weight,
            n: item.n,
            claim: item.claim,
            seq: item.seq,
            predecessor: item.predecessor,
            client: self.interner.client(item.client, item.nonce, item.principal),
            deployment: self.interner.deployment(item.service, item.locality, item.revision),
            created: item.created,
            since: item.since,
            address: SmolStr::new(item.address),
            endpoints: item.endpoints.to_metadata(),
            metadata: item.metadata.to_metadata(),
            checks: item.checks.clone(),
            maintenance,
        };
        match self.store(record, ReceivedAt::ago(clock, item.age)) {
            Outcome::Outranked(loser) => self.repeat_tombstone(loser, clock),
            outcome => {
                let entry = self.origins.entry_mut(origin);
                if item.n > entry.evidence.written {
                    entry.unannounced_at = Some(ReceivedAt::now(clock));
                }
                match outcome {
                    Outcome::Stored(stored) => Outcome::Stored(self.restore_tombstone(stored, clock)),
                    outcome => outcome,
                }
            }
        }
    }

    /// The maintenance of a received record. Of two copies of one drain, the longer time since its beginning counts (C21).
    fn maintenance_of(&self, item: &RecordItem<'_>, clock: Clock) -> Option<Arc<Maintenance>> {
        let received = item.maintenance?.to_maintenance(clock);
        seam!(self, DrainAgeIgnored => return Some(Arc::new(received.again(clock))));
        let held = self.record(item.space, item.id).filter(|held| held.drain == item.drain);
        let held = held.and_then(|held| held.maintenance.as_ref()).filter(|held| ***held == received);
        match held {
            Some(held) if !held.begun.is_after(received.begun) => Some(held.clone()),
            _ => Some(Arc::new(received)),
        }
    }

    /// Whether the counters of a record leave no room for the next owner to increment them (P7).
    fn leaves_no_room(&self, item: &RecordItem<'_>) -> bool {
        seam!(self, CountersUnbounded => return false);
        item.seq > crate::version::MAX_SEQ_TAKEN || item.drain > MAX_DRAIN_TAKEN
    }

    /// Whether a record was received before: then it was stored, outranked or collected (D4).
    fn is_covered(&self, origin: u32, n: u64) -> bool {
        seam!(self, CoveredRecordsAccepted => return false);
        self.origins.covers(origin, n)
    }

    /// Writes a tombstone again if a live record of a lower claim arrives for a key that this node shows as left (D13).
    ///
    /// Example: this node holds the tombstone of claim 9, and a node that was cut off brings claim 5 of another origin. A
    /// third node has collected the tombstone and stores claim 5. Its context covers the tombstone's dot, so only a
    /// tombstone with a new dot reaches it. If a connected client registered claim 5, its node claims it again (C9).
    fn repeat_tombstone(&mut self, loser: Arc<Record>, clock: Clock) -> Outcome {
        let Some(held) = self.record(loser.space, &loser.id) else { return Outcome::Outranked(loser) };
        if let Some(again) = self.tombstone_of_later_request(&loser, held) {
            return Outcome::Stored(self.write(again, clock));
        }
        let settled = self.shown(held) != Status::Left || !loser.is_live() || held.origin.index == loser.origin.index;
        if settled || !self.may_write || self.repetition_suppressed(held) {
            return Outcome::Outranked(loser);
        }
        let again = held.expired();
        Outcome::Stored(self.write(again, clock))
    }

    /// Writes a tombstone again that a record of an earlier request has replaced.
    fn restore_tombstone(&mut self, stored: Stored, clock: Clock) -> Stored {
        let Stored { old: Some(old), new, .. } = &stored else { return stored };
        match self.tombstone_of_later_request(old, new) {
            Some(again) => Stored { old: Some(old.clone()), ..self.write(again, clock) },
            None => stored,
        }
    }

    /// The tombstone `ended` as a draft that outranks `live`, if the client unregistered the member with a later request
    /// (C16). Two nodes can give one registration different claims: they have other claim floors, or know other processes
    /// that used the id.
    fn tombstone_of_later_request(&self, ended: &Record, live: &Record) -> Option<Record> {
        seam!(self, EarlierRequestReturns => return None);
        let later = !ended.is_live() && live.is_live() && ended.is_of_later_request(live);
        (later && self.may_write).then(|| Record { claim: next_claim(live.claim), ..ended.expired() })
    }

    /// Whether a mutant suppresses the repetition.
    fn repetition_suppressed(&self, held: &Record) -> bool {
        seam!(self, InferenceNotRepeated => return held.is_live());
        seam!(self, TombstoneNotRepeated => return !held.is_live());
        false
    }

    fn apply_inferred(&mut self, item: &InferredItem<'_>, clock: Clock) -> Outcome {
        let Some(origin) = self.admit_origin(item.origin, clock) else { return Outcome::Rejected };
        if self.origins.covers(origin, item.n) {
            return Outcome::Known;
        }
        if origin == self.origins.me() {
            return Outcome::Rejected;
        }
        let Some(about) = self.admit_origin(item.about, clock) else { return Outcome::Rejected };
        let inferred = Inferred {
            origin: self.origins.entry(origin).origin.clone(),
            n: item.n,
            claim: item.claim,
            about: self.origins.entry(about).origin.clone(),
            about_n: item.about_n,
            liveness_counter: item.liveness_counter,
            marked: false,
        };
        // The sender lags behind: its inference is about a collected record.
        let key = key(item.space, item.id);
        if self.is_baseless(&key, &inferred) {
            return Outcome::Known;
        }
        self.store_inferred(&key, inferred, ReceivedAt::ago(clock, item.age));
        Outcome::Inferred
    }

    /// The index of a peer's origin; `None` if it was retired, or if there are too many, of its node or in all.
    pub(crate) fn admit_origin(&mut self, origin: &OriginId, clock: Clock) -> Option<u32> {
        if let Some(index) = self.origins.index_of(origin) {
            return Some(index);
        }
        if self.origins.is_retired(origin) {
            return None;
        }
        if self.has_max_incarnations(&origin.node) {
            self.origins.drop_unwritten(&origin.node);
        }
        if self.has_max_incarnations(&origin.node) || self.origins.len() >= self.origins_limit {
            return None;
        }
        Some(self.origins.add(origin.clone(), clock))
    }

    fn has_max_incarnations(&self, node: &NodeId) -> bool {
        self.origins.incarnations(node).count() >= self.incarnations_limit
    }

    /// Whether the records of this incarnation could be stored. Those that wrote nothing make room (P2).
    pub(crate) fn has_room_for_incarnation(&mut self, origin: &OriginId) -> bool {
        seam!(self, FullTableAccepts => return true);
        if self.origins.index_of(origin).is_some() || !self.has_max_incarnations(&origin.node) {
            return true;
        }
        self.origins.drop_unwritten(&origin.node);
        !self.has_max_incarnations(&origin.node)
    }

    /// Stores a record in its slot if it outranks the held one (D3).
    pub(super) fn store(&mut self, record: Record, learnt: ReceivedAt) -> Outcome {
        if record.is_agentless() {
            self.agentless_clock = self.agentless_clock.max(record.claim);
        }
        let Some(held) = self.slots.find(record.space, &record.id) else {
            let new = self.slots.insert(record);
            self.note_timed(&new);
            self.index(&new, learnt);
            self.add_to_digest(&new);
            return Outcome::Stored(Stored { old: None, new, conflict: false });
        };
        if !self.mutation.ranks_above(&record, held) {
            return Outcome::Outranked(Arc::new(record));
        }
        let new = Arc::new(Record { slot: held.slot, ..record });
        let old = self.slots.replace(new.clone());
        self.note_timed(&new);
        if !self.move_index(&old, &new) {
            self.unindex(&old);
            self.index(&new, learnt);
        }
        self.remove_from_digest(&old);
        self.add_to_digest(&new);
        let conflict = self.concurrent(&old, &new);
        Outcome::Stored(Stored { old: Some(old), new, conflict })
    }

    fn concurrent(&self, old: &Record, new: &Record) -> bool {
        if old.origin.index == new.origin.index || new.predecessor == (old.origin.tag, old.n) {
            return false;
        }
        // A client that orders its own writes does not conflict with itself (C10), nor do nodes that adopt a member (AG3).
        let ordered = request_of(old.seq).max(request_of(new.seq)) > 0 || new.is_agentless() && old.claim == new.claim;
        if old.client == new.client && ordered {
            return false;
        }
        let (tag, n) = new.predecessor;
        let predecessor_seen = |entry: &OriginEntry| entry.origin.tag == tag && entry.seen >= n;
        new.claim == old.claim || (n > 0 && self.origins.iter().any(|(_, entry)| predecessor_seen(entry)))
    }

    pub(super) fn store_inferred(&mut self, key: &Key, inferred: Inferred, learnt: ReceivedAt) {
        if let Some(held) = self.inferred.get(key) {
            if !self.replaces(key, held, &inferred) {
                return;
            }
            let old = held.clone();
            self.origins.entry_mut(old.origin.index).inferred.remove(&old.n);
        }
        let origin = inferred.origin.index;
        self.origins.entry_mut(origin).inferred.insert(inferred.n, key.clone());
        self.tombstones.add(ItemRef::Inferred(key.clone()), learnt, inferred.origin.tag, inferred.n);
        self.inferred.insert(key.clone(), inferred);
    }

    /// Whether an inference replaces the held one: one about the stated record replaces one about an earlier registration,
    /// otherwise the precedence decides (L4).
    fn replaces(&self, key: &Key, held: &Inferred, inferred: &Inferred) -> bool {
        let precedes = inferred.precedence() > held.precedence();
        seam!(self, OutdatedInferenceKept => return precedes);
        let record = self.record(key.0, &key.1);
        let is_current = |inferred: &Inferred| record.is_some_and(|record| inferred.is_about(record));
        match (is_current(held), is_current(inferred)) {
            (false, true) => true,
            (true, false) => false,
            _ => precedes,
        }
    }

    /// An ordinary update changes only the dot: the service index stays as it is. False if more changed.
    fn move_index(&mut self, old: &Record, new: &Record) -> bool {
        if !(old.is_live() && new.is_live() && old.deployment.service == new.deployment.service) {
            return false;
        }
        let same_client = Arc::ptr_eq(&old.client, &new.client) || old.client.id == new.client.id;
        if old.space == Space::Member && !same_client {
            self.clients.remove(new.slot, old);
            self.clients.add(new.slot, new, &self.slots);
        }
        self.origins.entry_mut(old.origin.index).stated.remove(old.n);
        let entry = self.origins.entry_mut(new.origin.index);
        entry.stated.insert(new.n, new.slot);
        entry.stores += 1;
        true
    }

    fn note_timed(&mut self, record: &Record) {
        let timed = record.maintenance.as_ref().is_some_and(|maintenance| maintenance.lasts.is_some());
        if timed && record.is_live() && record.drained() {
            self.timed.insert(record.slot);
        } else {
            self.timed.remove(&record.slot);
        }
    }

    fn index(&mut self, record: &Record, learnt: ReceivedAt) {
        let slot = record.slot;
        let entry = self.origins.entry_mut(record.origin.index);
        entry.stated.insert(record.n, slot);
        entry.stores += 1;
        match (record.kind, record.space) {
            (RecordKind::Left, _) => {
                let agentless = record.is_agentless();
                let tombstones = if agentless { &mut self.agentless_tombstones } else { &mut self.tombstones };
                tombstones.add(ItemRef::Stated(slot), learnt, record.origin.tag, record.n);
            }
            (RecordKind::Live, Space::Name) => self.live_names += 1,
            (RecordKind::Live, Space::Member) => {
                self.live_members += 1;
                self.services.entry(record.deployment.service.clone()).or_default().insert(slot);
                self.clients.add(slot, record, &self.slots);
            }
        }
    }

    pub(super) fn unindex(&mut self, record: &Record) {
        self.origins.entry_mut(record.origin.index).stated.remove(record.n);
        match (record.kind, record.space) {
            (RecordKind::Left, _) => {}
            (RecordKind::Live, Space::Name) => self.live_names -= 1,
            (RecordKind::Live, Space::Member) => {
                self.live_members -= 1;
                self.clients.remove(record.slot, record);
                let service = &record.deployment.service;
                if let Some(slots) = self.services.get_mut(service) {
                    slots.remove(&record.slot);
                    if slots.is_empty() {
                        self.services.remove(service);
                    }
                }
            }
        }
    }

    /// Joins the sender's context, right after the whole of its delta was applied (D6).
    pub(crate) fn join(&mut self, context: &Context, clock: Clock) {
        self.claim_floor = self.claim_floor.max(context.claim_floor);
        self.raise_agentless_floor(context.agentless_floor);
        for (origin, n) in context.written_off.iter() {
            if let Some(index) = self.admit_origin(origin, clock) {
                self.write_off(index, n);
            }
        }
        for (origin, n) in context.clock.iter() {
            if let Some(index) = self.admit_origin(origin, clock)
                && index != self.origins.me()
            {
                self.origins.raise(index, n);
            }
        }
    }

    /// Records writes that the sender of a context has written off, for origins of which this node has received as
    /// much: no delta follows whose end would join them.
    pub(crate) fn note_written_off(&mut self, context: &Context) {
        for (origin, n) in context.written_off.iter() {
            if let Some(index) = self.origins.index_of(origin).filter(|index| self.origins.covers(*index, n)) {
                self.write_off(index, n);
            }
        }
    }

    /// Raises the context of one origin to `to`, if it has reached `from` (D5).
    pub(crate) fn join_push(&mut self, origin: u32, mut from: u64, to: u64) -> bool {
        seam!(self, PushGapCovered => from = 0);
        if self.origins.entry(origin).seen < from {
            return false;
        }
        self.origins.raise(origin, to);
        true
    }

    /// Begins a full merge: from now on the keys that its sender holds are marked.
    pub(crate) fn begin_full_merge(&mut self) {
        self.marking = Some(super::slots::Marks::default());
        for inferred in self.inferred.values_mut() {
            inferred.marked = false;
        }
    }

    pub(crate) fn is_merging(&self) -> bool {
        self.marking.is_some()
    }

    pub(crate) fn abort_full_merge(&mut self) {
        self.marking = None;
    }

    /// Ends a full merge: a record that the sender's context covers and that the sender did not send was collected there, so
    /// it is dropped here too (D12).
    ///
    /// Example: this node was cut off and still holds `m` with dot (A, 4). The sender's context has {A: 9} and its stream
    /// did not contain `m`: it saw the write and collected the tombstone that followed. A record with dot (A, 12) stays,
    /// because the sender has not seen it yet.
    pub(crate) fn finish_full_merge(&mut self, context: &Context, floor: &VectorClock, clock: Clock) -> FullMerge {
        let mut merge = FullMerge::default();
        let Some(marks) = self.marking.take() else { return merge };
        for slot in 0..self.slots.bound() {
            let Some(record) = self.slots.get(slot) else { continue };
            if marks.contains(slot) || !self.was_collected(record, context) {
                continue;
            }
            if self.is_own(record) {
                merge.own.push(slot);
                continue;
            }
            let shown = self.member(record);
            self.remove_slot(slot);
            merge.removed.push((slot, shown));
        }
        let void: Vec<Key> = self
            .inferred
            .iter()
            .filter(|(_, i)| !i.marked && context.covers(&i.origin.id, i.n) && i.origin.index != self.origins.me())
            .map(|(key, _)| key.clone())
            .collect();
        for key in void {
            merge.uninferred.extend(self.record(key.0, &key.1).map(|record| self.member(record)));
            self.drop_inferred(&key);
        }
        self.join(context, clock);
        let baseless = self.inferred.iter().filter(|(key, inferred)| self.is_baseless(key, inferred));
        for key in baseless.map(|(key, _)| key.clone()).collect::<Vec<Key>>() {
            self.drop_inferred(&key);
        }
        for (origin, n) in floor.iter() {
            if let Some(index) = self.origins.index_of(origin) {
                let entry = self.origins.entry_mut(index);
                entry.floor = entry.floor.max(n.min(entry.seen));
            }
        }
        merge
    }

    /// Whether a record that the sender of a full merge did not send was collected there (D12).
    fn was_collected(&self, record: &Record, context: &Context) -> bool {
        seam!(self, FullMergeKeepsAbsent => return false);
        context.covers(&record.origin.id, record.n) && !self.overrides_collection(record, context)
    }

    /// Whether a record is a live one of this node, which no full merge takes away.
    fn is_own(&self, record: &Record) -> bool {
        seam!(self, FullMergeTakesOwn => return false);
        record.origin.index == self.origins.me() && record.is_live() && !record.is_agentless()
    }

    /// Whether the sender of a full merge collected an inference that this node knows to be wrong: the sender has written the
    /// record off, this node admits its origin, and it has received as much of that origin as the sender.
    fn overrides_collection(&self, record: &Record, context: &Context) -> bool {
        let (entry, origin) = (self.origins.entry(record.origin.index), &record.origin.id);
        context.written_off.get(origin) >= record.n
            && entry.standing.is_admitted()
            && entry.seen >= context.clock.get(origin)
    }
}
