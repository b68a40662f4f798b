//! The table of origins: contexts, floors, indexes, written-off numbers and retirement (D1, D6, D8, D10, D14, D15).

use super::Key;
use super::standing::{Known, Standing};
use super::writes::Writes;
use crate::member::{Origin, Space};
use crate::time::{Clock, Duration, ReceivedAt};
use crate::version::{Incarnation, NodeId, OriginId, VectorClock};
use crate::wire::Context;
use foldhash::fast::FixedState;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Everything known about one origin.
#[derive(Debug)]
pub(crate) struct OriginEntry {
    pub(crate) origin: Arc<Origin>,
    /// The context: all writes up to this number were received.
    pub(crate) seen: u64,
    /// Writes up to this number may have been collected here.
    pub(crate) floor: u64,
    /// Records of writes up to this number were dropped, here or elsewhere, without a write of their origin, which may still
    /// be alive (D10).
    pub(crate) written_off: u64,
    /// n → slot of the stated records that carry this origin's dots.
    pub(crate) stated: Writes,
    /// n → key of the inferred records that carry this origin's dots.
    pub(crate) inferred: BTreeMap<u64, Key>,
    pub(crate) evidence: Evidence,
    pub(crate) standing: Standing,
    /// Records stored so far.
    pub(crate) stores: u64,
    /// When a record arrived that it had not announced with its latest evidence: it lived longer than the evidence shows
    /// (L4).
    pub(crate) unannounced_at: Option<ReceivedAt>,
    /// An operator stated that this node is gone for good (D15).
    pub(crate) forgotten: bool,
    /// The state in which the periodic rules last processed it.
    pub(crate) last_processed: Option<SilentState>,
}

impl OriginEntry {
    /// The highest of its writes that is held, stated or inferred.
    pub(crate) fn last(&self) -> u64 {
        self.stated.last().max(self.inferred.last_key_value().map_or(0, |(n, _)| *n))
    }

    /// The input for judging this origin.
    pub(crate) fn known(&self) -> Known {
        let Evidence { liveness_counter, written, .. } = self.evidence;
        Known { liveness_counter, written, seen: self.seen, held: self.stated.last() }
    }
}

/// Everything that the periodic rules about a silent origin depend on. An origin with an unchanged value is skipped:
/// it may have a million records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SilentState {
    pub(crate) liveness_counter: u64,
    pub(crate) stores: u64,
    pub(crate) written_off: u64,
    /// This node has to expire its records (L4): members, and later names as well.
    pub(crate) expires: Option<Space>,
}

/// The latest evidence of an origin (L2).
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// Highest liveness counter known; 0 if none.
    pub(crate) liveness_counter: u64,
    /// How many writes the origin had made by then.
    pub(crate) written: u64,
    pub(crate) received_at: ReceivedAt,
    /// The peer that relayed it; `None` if the origin sent it itself.
    pub(crate) via: Option<NodeId>,
    /// No evidence was received yet; the origin counts as alive until the admission window has passed.
    pub(crate) assumed: bool,
    /// It was relayed after a pause of this node, which is subtracted from its age until an exchange is complete (L5).
    pub(crate) forgiven: bool,
}

/// The marker of a node's retired incarnations (D14).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    /// The highest.
    pub(crate) incarnation: Incarnation,
    at: ReceivedAt,
}

#[derive(Debug)]
pub(crate) struct Origins {
    entries: Vec<Option<OriginEntry>>,
    by_id: BTreeMap<OriginId, u32>,
    free: Vec<u32>,
    retired: BTreeMap<NodeId, Retired>,
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

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
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
            written_off: 0,
            stated: Writes::default(),
            inferred: BTreeMap::new(),
            evidence: Evidence {
                liveness_counter: 0,
                written: 0,
                received_at: ReceivedAt::now(clock),
                via: None,
                assumed: true,
                forgiven: false,
            },
            standing: Standing::Admitted,
            stores: 0,
            unannounced_at: None,
            forgotten: false,
            last_processed: None,
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

    /// Records that writes of `index` up to `n` were written off (D10).
    pub(crate) fn write_off(&mut self, index: u32, n: u64) {
        let before = self.written_off_term(self.entry(index));
        let entry = self.entry_mut(index);
        entry.written_off = entry.written_off.max(n);
        self.hash ^= before ^ self.written_off_term(self.entry(index));
    }

    fn written_off_term(&self, entry: &OriginEntry) -> u64 {
        let n = entry.written_off;
        if n == 0 { 0 } else { self.hasher.hash_one((tag_input(&entry.origin.id), "written off", n)) }
    }

    /// Hash of the context and of the written-off numbers, for comparison in pings (D7).
    pub(crate) fn context_hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn context(&self) -> Context {
        Context {
            clock: self.clock_of(|entry| entry.seen),
            retired: self.retired.iter().map(|(node, retired)| (node.clone(), retired.incarnation)).collect(),
            written_off: self.written_off(),
            claim_floor: 0,
            agentless_floor: 0,
            grace_ms: 0,
        }
    }

    pub(crate) fn floor(&self) -> VectorClock {
        self.clock_of(|entry| entry.floor)
    }

    pub(crate) fn written_off(&self) -> VectorClock {
        self.clock_of(|entry| entry.written_off)
    }

    /// The last writes that are held although the context does not cover them (D7).
    pub(crate) fn beyond(&self) -> VectorClock {
        self.clock_of(|entry| if entry.last() > entry.seen { entry.last() } else { 0 })
    }

    fn clock_of(&self, part: impl Fn(&OriginEntry) -> u64) -> VectorClock {
        self.iter().map(|(_, entry)| (entry.origin.id.clone(), part(entry))).filter(|(_, n)| *n > 0).collect()
    }

    /// Whether all writes of `index` up to `n` have been received.
    pub(crate) fn covers(&self, index: u32, n: u64) -> bool {
        self.entry(index).seen >= n
    }

    pub(crate) fn is_retired(&self, origin: &OriginId) -> bool {
        self.retired.get(&origin.node).is_some_and(|retired| retired.incarnation >= origin.incarnation)
    }

    pub(crate) fn retired(&self) -> &BTreeMap<NodeId, Retired> {
        &self.retired
    }

    /// Whether a newer incarnation of the same node is known.
    pub(crate) fn is_outlived(&self, origin: &OriginId) -> bool {
        self.incarnations(&origin.node).any(|(incarnation, _)| incarnation > origin.incarnation)
    }

    /// Counts the whole silence of incarnations that have a successor, also while this node was paused (L2): nothing of them
    /// can have been missed. That of evidence that other nodes relayed since counts as well (L5).
    pub(crate) fn count_whole_silence(&mut self, clock: Clock) {
        let next = self.by_id.keys().skip(1).map(Some).chain([None]);
        for ((id, index), next) in self.by_id.iter().zip(next) {
            let outlived = next.is_some_and(|next| next.node == id.node);
            let evidence = &mut self.entries[*index as usize].as_mut().expect("an index in use has an entry").evidence;
            if outlived || evidence.forgiven {
                evidence.received_at = ReceivedAt::ago(clock, evidence.received_at.silence(clock));
                evidence.forgiven = false;
            }
        }
    }

    /// Retires incarnations of `node` from the oldest on, as long as `done_with` allows it and no record refers to them (D14).
    /// The flag is whether a newer incarnation is known. If not, the node itself is gone (D15).
    pub(crate) fn retire(
        &mut self,
        node: &NodeId,
        clock: Clock,
        done_with: impl Fn(&OriginEntry, bool) -> bool,
    ) -> Vec<OriginId> {
        let mut retired = Vec::new();
        let runs: Vec<u32> = self.incarnations(node).map(|(_, index)| index).collect();
        for index in runs {
            let entry = self.entry(index);
            let unused = entry.stated.is_empty() && entry.inferred.is_empty() && index != self.me;
            if !unused || !done_with(entry, self.is_outlived(&entry.origin.id)) {
                break;
            }
            let id = entry.origin.id.clone();
            self.remove(index);
            let marker = Retired { incarnation: id.incarnation, at: ReceivedAt::now(clock) };
            self.retired.insert(id.node.clone(), marker);
            retired.push(id);
        }
        retired
    }

    fn remove(&mut self, index: u32) {
        let entry = self.entry(index);
        self.hash ^= self.term(&entry.origin.id, entry.seen) ^ self.written_off_term(entry);
        if let Some(entry) = self.entries[index as usize].take() {
            self.by_id.remove(&entry.origin.id);
            self.free.push(index);
        }
    }

    /// Removes outlived incarnations of `node` that wrote nothing, as far as known: no context mentions them.
    pub(crate) fn drop_unwritten(&mut self, node: &NodeId) {
        let unwritten = |index: &u32| {
            let entry = self.entry(*index);
            let numbers = [entry.seen, entry.floor, entry.written_off, entry.evidence.written, entry.stores];
            numbers == [0; 5] && entry.last() == 0 && *index != self.me && self.is_outlived(&entry.origin.id)
        };
        let dropped: Vec<u32> = self.incarnations(node).map(|(_, index)| index).filter(unwritten).collect();
        for index in dropped {
            self.remove(index);
        }
    }

    /// Whether all incarnations of this node were retired.
    pub(crate) fn is_gone(&self, node: &NodeId) -> bool {
        self.retired.contains_key(node) && self.incarnations(node).next().is_none()
    }

    /// Lowers the marker of a node below an incarnation that proves to be alive (D14, D17): it was behind a partition for a long
    /// time, or lost its disk and began with a low number.
    pub(crate) fn revive(&mut self, origin: &OriginId) {
        if !self.is_retired(origin) || self.by_id.contains_key(origin) {
            return;
        }
        match self.retired.get_mut(&origin.node).zip(origin.incarnation.below()) {
            Some((marker, below)) => marker.incarnation = below,
            None => drop(self.retired.remove(&origin.node)),
        }
    }

    /// Marks a node as gone for good, or removes the marker of its retired incarnations (`nodes forget`).
    pub(crate) fn forget(&mut self, node: &NodeId) {
        let runs: Vec<u32> = self.incarnations(node).map(|(_, index)| index).collect();
        if runs.is_empty() {
            self.retired.remove(node);
        }
        for index in runs {
            self.entry_mut(index).forgotten = true;
        }
    }

    /// Whether an operator has forgotten this node, and it was not seen since.
    pub(crate) fn is_forgotten(&self, node: &NodeId) -> bool {
        self.incarnations(node).last().is_some_and(|(_, index)| self.entry(index).forgotten)
    }

    /// Removes markers of nodes that have been gone for `timeout` (D15).
    pub(crate) fn drop_markers(&mut self, clock: Clock, timeout: Duration) {
        let due = |(node, retired): &(&NodeId, &Retired)| retired.at.silence(clock) >= timeout && self.is_gone(node);
        let due: Vec<NodeId> = self.retired.iter().filter(due).map(|(node, _)| node.clone()).collect();
        for node in due {
            self.retired.remove(&node);
        }
    }
}

fn tag_input(origin: &OriginId) -> (&str, u64, u64) {
    (origin.node.as_str(), origin.incarnation.number, origin.incarnation.nonce)
}
