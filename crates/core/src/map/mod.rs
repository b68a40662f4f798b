//! The causal map: slots, ranks, contexts, deltas, merges, collection and digests (D1–D16).
//!
//! Owns the replicated state of one node and keeps invariant D4. It has no access to sessions, links or clocks.

mod clients;
mod collect;
mod delta;
mod digest;
mod merge;
mod origins;
mod slots;
mod standing;
mod writes;

pub(crate) use delta::{Cursor, Delta, ItemRef};
pub(crate) use merge::{Outcome, Stored};
pub(crate) use origins::{Evidence, OriginEntry, Origins, SilentState};
pub(crate) use standing::{Standing, StandingEvent};

use crate::config::Limits;
use crate::intern::Interner;
use crate::liveness::Inferred;
use crate::member::{Member, Record, RecordKind, Space, Status};
use crate::mutant::{Mutation, seam};
use crate::time::{Clock, ReceivedAt};
use crate::version::{Incarnation, NodeId, OriginId};
use crate::wire::{CLAIM_FLOOR_MAX, Context};
use clients::Clients;
use collect::Tombstones;
use digest::Digest;
use slots::Slots;
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The key of a slot.
pub(crate) type Key = (Space, SmolStr);

pub(crate) fn key(space: Space, id: &str) -> Key {
    (space, SmolStr::new(id))
}

#[derive(Debug)]
pub(crate) struct CausalMap {
    pub(crate) origins: Origins,
    pub(crate) interner: Interner,
    slots: Slots,
    /// Inferred records (L4). An inference may arrive before its stated record.
    inferred: BTreeMap<Key, Inferred>,
    /// Live members by service.
    services: BTreeMap<SmolStr, BTreeSet<u32>>,
    /// Live members by client.
    clients: Clients,
    tombstones: Tombstones,
    /// Those of agentless members, which are kept for longer (AG5).
    agentless_tombstones: Tombstones,
    /// The highest claim of an agentless member, live or left (AG2).
    agentless_clock: u64,
    /// The highest claim of a collected tombstone of an agentless member (AG5).
    agentless_floor: u64,
    /// Live members whose drain ends by itself (C21).
    timed: BTreeSet<u32>,
    /// The latest writes of this node, for pushing: entry i is write `recent_base + 1 + i`.
    recent: VecDeque<ItemRef>,
    recent_base: u64,
    /// Slots marked by the full merge in progress.
    marking: Option<slots::Marks>,
    live_members: usize,
    live_names: usize,
    digest: Digest,
    /// The highest claim of a collected record (D8).
    claim_floor: u64,
    members_limit: usize,
    names_limit: usize,
    incarnations_limit: usize,
    origins_limit: usize,
    recent_limit: usize,
    /// A starting node writes nothing: it may still take another incarnation (N1).
    pub(crate) may_write: bool,
    mutation: Mutation,
}

impl CausalMap {
    pub(crate) fn new(me: OriginId, limits: &Limits, hash_seed: u64, clock: Clock, mutation: Mutation) -> Self {
        CausalMap {
            origins: Origins::new(me, clock),
            interner: Interner::new(hash_seed),
            slots: Slots::new(hash_seed),
            inferred: BTreeMap::new(),
            services: BTreeMap::new(),
            clients: Clients::new(hash_seed),
            tombstones: Tombstones::default(),
            agentless_tombstones: Tombstones::default(),
            agentless_clock: 0,
            agentless_floor: 0,
            timed: BTreeSet::new(),
            recent: VecDeque::new(),
            recent_base: 0,
            marking: None,
            live_members: 0,
            live_names: 0,
            digest: Digest::default(),
            claim_floor: 0,
            members_limit: limits.members,
            names_limit: limits.names,
            incarnations_limit: limits.incarnations_per_node,
            origins_limit: limits.incarnations_per_node.saturating_mul(limits.peers.saturating_add(1)),
            recent_limit: limits.push_backlog,
            may_write: false,
            mutation,
        }
    }

    /// The stated record of a key, live or left.
    pub(crate) fn record(&self, space: Space, id: &str) -> Option<&Arc<Record>> {
        self.slots.find(space, id)
    }

    pub(crate) fn slot_of(&self, space: Space, id: &str) -> Option<u32> {
        self.slots.find(space, id).map(|record| record.slot)
    }

    pub(crate) fn at(&self, slot: u32) -> &Arc<Record> {
        self.slots.get(slot).expect("a slot in use holds a record")
    }

    pub(crate) fn try_at(&self, slot: u32) -> Option<&Arc<Record>> {
        self.slots.get(slot)
    }

    /// One past the highest slot ever used.
    pub(crate) fn slot_bound(&self) -> u32 {
        self.slots.bound()
    }

    pub(crate) fn inferred(&self, key: &Key) -> Option<&Inferred> {
        self.inferred.get(key)
    }

    pub(crate) fn inferences(&self) -> impl Iterator<Item = (&Key, &Inferred)> {
        self.inferred.iter()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        (0..self.slots.bound()).filter_map(|slot| self.slots.get(slot))
    }

    pub(crate) fn services(&self) -> &BTreeMap<SmolStr, BTreeSet<u32>> {
        &self.services
    }

    /// The live members of a client id, whichever process registered them.
    pub(crate) fn of_client(&self, client: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.clients.of(client, &self.slots).map(|slot| self.at(slot))
    }

    pub(crate) fn live_members(&self) -> usize {
        self.live_members
    }

    pub(crate) fn live_names(&self) -> usize {
        self.live_names
    }

    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.len() + self.agentless_tombstones.len()
    }

    /// The status to show for a record (L3).
    pub(crate) fn shown(&self, record: &Record) -> Status {
        if record.kind == RecordKind::Left {
            return Status::Left;
        }
        let judged = self.origins.entry(record.origin.index).standing.judges(record.n);
        let Some(mut liveness_counter) = judged else { return record.status };
        if record.is_agentless() {
            return record.status;
        }
        seam!(self, SilentOwnerHidesMember => return Status::Left);
        seam!(self, InferredIgnoresCounter => liveness_counter = 0);
        match self.inferred.get(&record.key()) {
            Some(inferred) if inferred.applies(record, liveness_counter) => Status::Left,
            _ => Status::Down,
        }
    }

    pub(crate) fn agentless_clock(&self) -> u64 {
        self.agentless_clock.max(self.agentless_floor)
    }

    pub(crate) fn agentless_floor(&self) -> u64 {
        self.agentless_floor
    }

    pub(crate) fn raise_agentless_floor(&mut self, claim: u64) {
        self.agentless_floor = self.agentless_floor.max(claim.min(CLAIM_FLOOR_MAX));
    }

    /// Live members whose drain ends by itself (C21).
    pub(crate) fn timed_drains(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.timed.iter().filter_map(|slot| self.slots.get(*slot))
    }

    pub(crate) fn member(&self, record: &Arc<Record>) -> Member {
        Member { status: self.shown(record), record: record.clone() }
    }

    /// Writes a record as this node: gives it the next dot and stores it. The draft's origin, n, predecessor and
    /// slot are filled in here.
    pub(crate) fn write(&mut self, mut draft: Record, clock: Clock) -> Stored {
        let me = self.origins.me();
        let entry = self.origins.entry(me);
        draft.origin = entry.origin.clone();
        draft.n = entry.seen + 1;
        draft.predecessor = self.predecessor(draft.space, &draft.id);
        let n = draft.n;
        self.origins.raise(me, n);
        let outcome = self.store(draft, ReceivedAt::now(clock));
        let Outcome::Stored(stored) = outcome else {
            unreachable!("a node only writes what outranks the record it holds: {outcome:?}");
        };
        self.remember(ItemRef::Stated(stored.new.slot));
        stored
    }

    /// The predecessor of the next record that this node writes for a key (D2).
    fn predecessor(&self, space: Space, id: &str) -> (u32, u64) {
        let Some(old) = self.record(space, id) else { return (0, 0) };
        let replaced = (old.origin.tag, old.n);
        seam!(self, PredecessorNotKept => return replaced);
        let update = old.origin.index == self.origins.me() && old.is_live() && old.predecessor != (0, 0);
        if update { old.predecessor } else { replaced }
    }

    /// Writes an inferred record as this node (L4).
    pub(crate) fn write_inferred(&mut self, basis: &Record, liveness_counter: u64, clock: Clock) {
        let me = self.origins.me();
        let entry = self.origins.entry(me);
        let inferred = Inferred {
            origin: entry.origin.clone(),
            n: entry.seen + 1,
            claim: basis.claim,
            about: basis.origin.clone(),
            about_n: basis.n,
            liveness_counter,
            marked: false,
        };
        self.origins.raise(me, inferred.n);
        self.store_inferred(&basis.key(), inferred, ReceivedAt::now(clock));
        self.remember(ItemRef::Inferred(basis.key()));
    }

    fn remember(&mut self, item: ItemRef) {
        self.recent.push_back(item);
        if self.recent.len() > self.recent_limit {
            self.recent.pop_front();
            self.recent_base += 1;
        }
    }

    /// The highest claim that may have been used for a key: that of its record, or the claim floor.
    pub(crate) fn known_claim(&self, space: Space, id: &str) -> u64 {
        let mut floor = self.claim_floor;
        seam!(self, ClaimsStartOver => floor = 0);
        match self.record(space, id) {
            Some(record) if record.is_live() => record.claim,
            Some(record) => record.claim.max(floor),
            None => floor,
        }
    }

    pub(crate) fn claim_floor(&self) -> u64 {
        self.claim_floor
    }

    /// The context as sent to peers.
    pub(crate) fn context(&self) -> Context {
        let (claim_floor, agentless_floor) = (self.claim_floor, self.agentless_floor);
        Context { claim_floor, agentless_floor, ..self.origins.context() }
    }

    /// Whether one more live record of this space fits. As many tombstones may be held for a while (D8).
    pub(crate) fn has_room(&self, space: Space) -> bool {
        let (live, limit) = match space {
            Space::Member => (self.live_members, self.members_limit),
            Space::Name => (self.live_names, self.names_limit),
        };
        live < limit && live + self.tombstones.len() < limit.saturating_mul(2)
    }

    /// Highest incarnation of `node` in any table, other than `except`.
    pub(crate) fn known_incarnation(&self, node: &NodeId, except: &OriginId) -> Option<Incarnation> {
        let known = self.origins.incarnations(node).map(|(i, _)| i).filter(|i| *i != except.incarnation).max();
        known.max(self.origins.retired().get(node).map(|r| r.incarnation).filter(|i| *i != except.incarnation))
    }
}

#[cfg(test)]
mod tests;
