//! The table of origins: contexts, floors, indexes and retirement (D1, D6, D8, D10).

use crate::member::Origin;
use crate::time::{Clock, Heard};
use crate::version::{Incarnation, NodeId, OriginId, VectorClock};
use crate::wire::Context;
use foldhash::fast::FixedState;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Everything known about one origin.
#[derive(Debug)]
pub(crate) struct OriginEntry {
    pub(crate) origin: Arc<Origin>,
    /// The context: writes up to this number have been taken in. Zero once retired.
    pub(crate) seen: u64,
    /// Writes up to this number may have been collected here.
    pub(crate) floor: u64,
    /// n → slot of the stated records that carry this origin's dots.
    pub(crate) stated: BTreeMap<u64, u32>,
    /// n → id of the inferred records that carry this origin's dots.
    pub(crate) inferred: BTreeMap<u64, SmolStr>,
    pub(crate) evidence: Evidence,
    /// Whether the origin counts as alive (L2); kept up to date by the liveness rules.
    pub(crate) admitted: bool,
    /// Records stored so far; tells whether the takeover (L4) has anything new to look at.
    pub(crate) stores: u64,
    /// Life number and `stores` when its members were last taken over by this node.
    pub(crate) taken_over: Option<(u64, u64)>,
}

/// Youngest sign of life.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// Highest life number heard; 0 = none yet.
    pub(crate) life: u64,
    pub(crate) heard: Heard,
    /// Who told: `None` = the origin itself.
    pub(crate) via: Option<NodeId>,
    /// Nobody told anything yet; the origin is given the benefit of the doubt.
    pub(crate) assumed: bool,
}

#[derive(Debug)]
pub(crate) struct Origins {
    entries: Vec<Option<OriginEntry>>,
    by_id: BTreeMap<OriginId, u32>,
    free: Vec<u32>,
    retired: BTreeMap<NodeId, Incarnation>,
    me: u32,
    hash: u64,
    hasher: FixedState,
}

/// Fixed, so that two nodes compute the same hash of the same context, and the same tag of the same origin.
const CONTEXT_HASH_SEED: u64 = 0x636f_6e76_6f6b_6531;

impl Origins {
    pub(crate) fn new(me: OriginId, clock: Clock) -> Self {
        let mut origins = Origins {
            entries: Vec::new(),
            by_id: BTreeMap::new(),
            free: Vec::new(),
            retired: BTreeMap::new(),
            me: 0,
            hash: 0,
            hasher: FixedState::with_seed(CONTEXT_HASH_SEED),
        };
        origins.me = origins.add(me, clock);
        origins
    }

    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    pub(crate) fn index_of(&self, origin: &OriginId) -> Option<u32> {
        self.by_id.get(origin).copied()
    }

    /// The entry of `origin`, added if new. A new origin counts as alive until evidence says otherwise.
    pub(crate) fn add(&mut self, origin: OriginId, clock: Clock) -> u32 {
        if let Some(index) = self.by_id.get(&origin) {
            return *index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let tag = self.hasher.hash_one(tag_input(&origin)) as u32;
        self.by_id.insert(origin.clone(), index);
        self.entries[index as usize] = Some(OriginEntry {
            origin: Arc::new(Origin { id: origin, index, tag }),
            seen: 0,
            floor: 0,
            stated: BTreeMap::new(),
            inferred: BTreeMap::new(),
            evidence: Evidence { life: 0, heard: Heard::now(clock), via: None, assumed: true },
            admitted: true,
            stores: 0,
            taken_over: None,
        });
        index
    }

    pub(crate) fn entry(&self, index: u32) -> &OriginEntry {
        self.entries[index as usize].as_ref().expect("an index in use has an entry")
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut OriginEntry {
        self.entries[index as usize].as_mut().expect("an index in use has an entry")
    }

    /// All origins in the order of their ids, which is the same on every node.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &OriginEntry)> {
        self.by_id.values().map(|index| (*index, self.entry(*index)))
    }

    pub(crate) fn incarnations(&self, node: &NodeId) -> impl Iterator<Item = (Incarnation, u32)> {
        let lowest = OriginId { node: node.clone(), incarnation: Incarnation { number: 0, nonce: 0 } };
        self.by_id
            .range(lowest..)
            .take_while(move |(id, _)| id.node == *node)
            .map(|(id, index)| (id.incarnation, *index))
    }

    /// Raises the context of `index` to at least `n`.
    pub(crate) fn raise(&mut self, index: u32, n: u64) {
        let entry = self.entry(index);
        if n > entry.seen {
            let delta = self.term(&entry.origin.id, entry.seen) ^ self.term(&entry.origin.id, n);
            self.hash ^= delta;
            self.entry_mut(index).seen = n;
        }
    }

    fn term(&self, origin: &OriginId, n: u64) -> u64 {
        if n == 0 { 0 } else { self.hasher.hash_one((tag_input(origin), n)) }
    }

    /// Hash of the context, for comparison in pings (D7).
    pub(crate) fn context_hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn context(&self) -> Context {
        Context { clock: self.clock_of(|entry| entry.seen), retired: self.retired.clone() }
    }

    pub(crate) fn floor(&self) -> VectorClock {
        self.clock_of(|entry| entry.floor)
    }

    fn clock_of(&self, part: impl Fn(&OriginEntry) -> u64) -> VectorClock {
        self.iter().map(|(_, entry)| (entry.origin.id.clone(), part(entry))).filter(|(_, n)| *n > 0).collect()
    }

    /// Whether writes up to `n` of `index` have been taken in, or are of no interest any more.
    pub(crate) fn covers(&self, index: u32, n: u64) -> bool {
        let entry = self.entry(index);
        entry.seen >= n || self.is_retired(&entry.origin.id)
    }

    pub(crate) fn is_retired(&self, origin: &OriginId) -> bool {
        self.retired.get(&origin.node).is_some_and(|highest| *highest >= origin.incarnation)
    }

    pub(crate) fn retired(&self) -> &BTreeMap<NodeId, Incarnation> {
        &self.retired
    }

    /// Marks everything up to `incarnation` of `node` as retired: it is no longer claimed (D10).
    pub(crate) fn retire(&mut self, node: &NodeId, incarnation: Incarnation) {
        let marker = self.retired.entry(node.clone()).or_insert(incarnation);
        *marker = (*marker).max(incarnation);
        let marker = *marker;
        let gone: Vec<u32> = self.incarnations(node).filter(|(i, _)| *i <= marker).map(|(_, index)| index).collect();
        for index in gone {
            let entry = self.entry(index);
            self.hash ^= self.term(&entry.origin.id, entry.seen);
            let entry = self.entry_mut(index);
            entry.seen = 0;
            entry.floor = 0;
        }
    }

    /// Takes `origin` out of retirement; older runs of its node stay retired.
    pub(crate) fn unretire(&mut self, origin: &OriginId) {
        match before(origin.incarnation) {
            Some(lower) => self.retired.insert(origin.node.clone(), lower),
            None => self.retired.remove(&origin.node),
        };
    }

    /// Forgets a node altogether (`nodes forget`), if nothing refers to it.
    pub(crate) fn forget_marker(&mut self, node: &NodeId) {
        if self.incarnations(node).next().is_none() {
            self.retired.remove(node);
        }
    }

    /// Frees entries of retired origins that no record refers to.
    pub(crate) fn sweep(&mut self) {
        let idle: Vec<u32> = self
            .iter()
            .filter(|(_, entry)| {
                entry.stated.is_empty() && entry.inferred.is_empty() && self.is_retired(&entry.origin.id)
            })
            .map(|(index, _)| index)
            .collect();
        for index in idle {
            if let Some(entry) = self.entries[index as usize].take() {
                self.by_id.remove(&entry.origin.id);
                self.free.push(index);
            }
        }
    }
}

fn tag_input(origin: &OriginId) -> (&str, u64, u64) {
    (origin.node.as_str(), origin.incarnation.number, origin.incarnation.nonce)
}

fn before(incarnation: Incarnation) -> Option<Incarnation> {
    match (incarnation.number, incarnation.nonce) {
        (0, 0) => None,
        (number, 0) => Some(Incarnation { number: number - 1, nonce: u64::MAX }),
        (number, nonce) => Some(Incarnation { number, nonce: nonce - 1 }),
    }
}
