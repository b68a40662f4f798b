//! Collection of tombstones and of inferred `left` records (D8), and of silent origins' records that others wrote off
//! (D10).

use super::{CausalMap, ItemRef, Key};
use crate::liveness::Inferred;
use crate::member::{Member, Record, RecordKind};
use crate::mutant::seam;
use crate::time::{Clock, Duration, ReceivedAt, Time};
use crate::wire::CLAIM_FLOOR_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rest waits for the next tick: a node that is busy for too long looks dead to its peers.
const COLLECTED_AT_ONCE: usize = 20_000;

/// Tombstones of agentless members that are kept before the oldest ones are collected early.
const AGENTLESS_TOMBSTONES_MAX: usize = 65_536;

/// Every tombstone and inference, by the time it was received. Its age is sent with it, so that a new node does not
/// keep it for longer than the others (D8).
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_age: BTreeSet<(ReceivedAt, ItemRef)>,
    learnt: BTreeMap<ItemRef, Tombstone>,
}

#[derive(Clone, Copy, Debug)]
struct Tombstone {
    learnt: ReceivedAt,
    /// The write it is about: tag of the origin, and n.
    tag: u32,
    n: u64,
}

impl Tombstones {
    pub(super) fn add(&mut self, item: ItemRef, learnt: ReceivedAt, tag: u32, n: u64) {
        if let Some(old) = self.learnt.insert(item.clone(), Tombstone { learnt, tag, n }) {
            self.by_age.remove(&(old.learnt, item.clone()));
        }
        self.by_age.insert((learnt, item));
    }

    pub(super) fn len(&self) -> usize {
        self.learnt.len()
    }

    /// Age of this tombstone since the first node on its path received it.
    pub(super) fn age(&self, item: &ItemRef, clock: Clock) -> Duration {
        self.learnt.get(item).map_or(Duration::ZERO, |tombstone| tombstone.learnt.silence(clock))
    }

    fn oldest(&self) -> Option<(ReceivedAt, &ItemRef)> {
        self.by_age.first().map(|(learnt, item)| (*learnt, item))
    }

    fn remove(&mut self, item: &ItemRef) -> Option<Tombstone> {
        let tombstone = self.learnt.remove(item)?;
        self.by_age.remove(&(tombstone.learnt, item.clone()));
        Some(tombstone)
    }
}

impl CausalMap {
    /// Age of the tombstone of a record, or of the inference about it.
    pub(crate) fn departure_age(&self, record: &Record, clock: Clock) -> Duration {
        let item = if record.is_live() { ItemRef::Inferred(record.key()) } else { ItemRef::Stated(record.slot) };
        self.tombstone_age(&item, clock)
    }

    pub(super) fn tombstone_age(&self, item: &ItemRef, clock: Clock) -> Duration {
        self.tombstones.age(item, clock).max(self.agentless_tombstones.age(item, clock))
    }

    /// Collects the tombstones of agentless members that are older than `timeout`, and the oldest ones beyond the limit
    /// (AG5).
    pub(crate) fn collect_agentless(&mut self, clock: Clock, timeout: Duration) -> Vec<(u32, Arc<Record>)> {
        let mut removed = Vec::new();
        while removed.len() < COLLECTED_AT_ONCE
            && let Some((learnt, item)) = self.agentless_tombstones.oldest()
            && (learnt.silence(clock) >= timeout || self.agentless_tombstones.len() > AGENTLESS_TOMBSTONES_MAX)
        {
            let item = item.clone();
            let Some(tombstone) = self.agentless_tombstones.remove(&item) else { break };
            let Some(origin) = self.origin_if_held(&item, tombstone) else { continue };
            if !self.origins.covers(origin, tombstone.n) {
                self.agentless_tombstones.add(item, ReceivedAt::now(clock), tombstone.tag, tombstone.n);
                break;
            }
            if let ItemRef::Stated(slot) = item {
                self.raise_agentless_floor(self.at(slot).claim);
                removed.push((slot, self.remove_slot(slot)));
            }
        }
        removed
    }

    /// When the oldest tombstone is due.
    pub(crate) fn next_collection(&self, clock: Clock, timeout: Duration) -> Option<Time> {
        self.tombstones.oldest().map(|(learnt, _)| learnt.due(clock, timeout, Duration::ZERO))
    }

    /// Collects tombstones and inferences that are older than `timeout`, at most `COLLECTED_AT_ONCE`. Returns the slots that
    /// were dropped; none of them was shown.
    ///
    /// Example: a tombstone with dot (A, 5) and claim 3 is collected. The collection floor of A rises to 5, so a peer whose
    /// context has {A: 4} gets a full merge in place of a delta, and learns from it that the key is gone. The claim floor
    /// rises to 3, so a new registration of the key outranks the tombstone where it still exists. A tombstone beyond the
    /// context waits: the collection floor must not exceed the context.
    pub(crate) fn collect(&mut self, clock: Clock, timeout: Duration) -> Vec<(u32, Arc<Record>)> {
        let mut removed = Vec::new();
        let mut later = Vec::new();
        while removed.len() < COLLECTED_AT_ONCE
            && let Some((learnt, item)) = self.tombstones.oldest()
            && learnt.silence(clock) >= timeout
        {
            let item = item.clone();
            let Some(tombstone) = self.tombstones.remove(&item) else { break };
            let Some(origin) = self.origin_if_held(&item, tombstone) else { continue };
            if !self.origins.covers(origin, tombstone.n) {
                later.push((item, tombstone));
                continue;
            }
            match item {
                ItemRef::Stated(slot) => removed.push((slot, self.remove_slot(slot))),
                ItemRef::Inferred(key) => removed.extend(self.collect_inferred(&key)),
            }
        }
        for (item, tombstone) in later {
            self.tombstones.add(item, tombstone.learnt, tombstone.tag, tombstone.n);
        }
        removed
    }

    /// The origin of the write a tombstone is about, if that write is still held.
    fn origin_if_held(&self, item: &ItemRef, tombstone: Tombstone) -> Option<u32> {
        let (origin, n) = match item {
            ItemRef::Stated(slot) => {
                let record = self.slots.get(*slot).filter(|record| record.kind == RecordKind::Left)?;
                (&record.origin, record.n)
            }
            ItemRef::Inferred(key) => {
                let inferred = self.inferred.get(key)?;
                (&inferred.origin, inferred.n)
            }
        };
        (origin.tag == tombstone.tag && n == tombstone.n).then_some(origin.index)
    }

    /// Collects an inferred `left`. If it still applies, its slot is collected too: the stated record alone would show the
    /// member as `down` again (L4).
    fn collect_inferred(&mut self, key: &Key) -> Option<(u32, Arc<Record>)> {
        let inferred = self.drop_inferred(key)?;
        seam!(self, InferredCollectedAlone => return None);
        let record = self.slots.find(key.0, &key.1)?;
        let judged = self.origins.entry(record.origin.index).standing.judges(record.n);
        let applies = judged.is_some_and(|liveness_counter| inferred.applies(record, liveness_counter));
        if !applies {
            return None;
        }
        let (slot, owner) = (record.slot, record.origin.index);
        self.write_off(owner, self.origins.entry(owner).seen);
        self.raise_floor(inferred.origin.index, inferred.n);
        Some((slot, self.remove_slot(slot)))
    }

    pub(super) fn drop_inferred(&mut self, key: &Key) -> Option<Inferred> {
        let inferred = self.inferred.remove(key)?;
        self.origins.entry_mut(inferred.origin.index).inferred.remove(&inferred.n);
        Some(inferred)
    }

    pub(super) fn remove_slot(&mut self, slot: u32) -> Arc<Record> {
        let record = self.slots.remove(slot);
        self.timed.remove(&slot);
        self.claim_floor = self.claim_floor.max(record.claim.min(CLAIM_FLOOR_MAX));
        self.unindex(&record);
        self.remove_from_digest(&record);
        if let Some(marks) = &mut self.marking {
            marks.clear(slot);
        }
        self.raise_floor(record.origin.index, record.n);
        let key = record.key();
        if self.inferred.get(&key).is_some_and(|held| self.is_baseless(&key, held)) {
            self.drop_inferred(&key);
        }
        record
    }

    /// Whether the record that an inference is about was here and was collected. Such an inference came from a node that
    /// lags behind (L4).
    pub(super) fn is_baseless(&self, key: &Key, inferred: &Inferred) -> bool {
        seam!(self, InferredWithoutBasisKept => return false);
        let about = &inferred.about.id;
        self.slots.find(key.0, &key.1).is_none()
            && match self.origins.index_of(about) {
                Some(index) => self.origins.covers(index, inferred.about_n),
                None => self.origins.is_retired(about),
            }
    }

    fn raise_floor(&mut self, origin: u32, n: u64) {
        seam!(self, FloorNotRaised => return);
        let entry = self.origins.entry_mut(origin);
        // Not above the context: no peer could have received more, so every peer and token would be below the floor.
        entry.floor = entry.floor.max(n.min(entry.seen));
    }

    /// Drops the live records that others have written off of an origin that fell silent before it restated them
    /// (D10). Returns the slots, and their members as shown before.
    pub(crate) fn drop_written_off(&mut self, index: u32) -> Vec<(u32, Member)> {
        let entry = self.origins.entry(index);
        let written_off = entry.stated.range(0..).take_while(|(n, _)| *n <= entry.written_off);
        let is_dropped = |slot: &u32| self.at(*slot).is_live() && !self.at(*slot).is_agentless();
        let live: Vec<u32> = written_off.map(|(_, slot)| *slot).filter(is_dropped).collect();
        let drop = |slot| {
            let shown = self.member(self.at(slot));
            self.remove_slot(slot);
            (slot, shown)
        };
        live.into_iter().map(drop).collect()
    }
}
