//! Forgetting: collection of tombstones (D8) and retirement of origins (D10).

use super::CausalMap;
use crate::liveness::Inferred;
use crate::member::{Kind, Record, Space};
use crate::mutant::Mutant;
use crate::time::{Duration, Time};
use crate::version::{Incarnation, NodeId};
use smol_str::SmolStr;
use std::sync::Arc;

/// A `left` record in the order in which this node learnt of them.
#[derive(Debug)]
pub(super) struct Tombstone {
    learnt: Time,
    what: What,
    origin: u32,
    n: u64,
}

#[derive(Debug)]
enum What {
    Stated(u32),
    Inferred(SmolStr),
}

/// Whether removing a slot obliges peers that lag behind it to a full merge.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Floor {
    Raise,
    /// The origin is retired: it counts as covered everywhere.
    Keep,
}

impl Tombstone {
    pub(super) fn stated(learnt: Time, slot: u32, record: &Record) -> Self {
        Tombstone { learnt, what: What::Stated(slot), origin: record.origin.index, n: record.n }
    }

    pub(super) fn inferred(learnt: Time, id: SmolStr, inferred: &Inferred) -> Self {
        Tombstone { learnt, what: What::Inferred(id), origin: inferred.origin.index, n: inferred.n }
    }
}

impl CausalMap {
    /// When the oldest tombstone is due.
    pub(crate) fn next_collection(&self, timeout: Duration) -> Option<Time> {
        self.tombstones.front().map(|tombstone| tombstone.learnt + timeout)
    }

    /// Drops what has been a tombstone for `timeout`. Returns the live records that an inferred `left` took along.
    pub(crate) fn collect(&mut self, now: Time, timeout: Duration) -> Vec<Arc<Record>> {
        let mut removed = Vec::new();
        let mut later = Vec::new();
        while self.tombstones.front().is_some_and(|tombstone| tombstone.learnt + timeout <= now) {
            let Some(tombstone) = self.tombstones.pop_front() else { break };
            if !self.still_there(&tombstone) {
                continue;
            }
            if !self.origins.covers(tombstone.origin, tombstone.n) {
                later.push(Tombstone { learnt: now, ..tombstone });
                continue;
            }
            match tombstone.what {
                What::Stated(slot) => drop(self.remove_slot(slot, Floor::Raise)),
                What::Inferred(id) => removed.extend(self.collect_inferred(&id)),
            }
        }
        self.tombstones.extend(later);
        removed
    }

    fn still_there(&self, tombstone: &Tombstone) -> bool {
        match &tombstone.what {
            What::Stated(slot) => self.slots.get(*slot).is_some_and(|record| {
                record.origin.index == tombstone.origin && record.n == tombstone.n && record.kind == Kind::Left
            }),
            What::Inferred(id) => {
                self.inferred.get(id).is_some_and(|i| i.origin.index == tombstone.origin && i.n == tombstone.n)
            }
        }
    }

    /// An inferred `left` that still applies takes the slot with it (H11); a void one just goes.
    fn collect_inferred(&mut self, id: &SmolStr) -> Option<Arc<Record>> {
        let inferred = self.drop_inferred(id)?;
        let slot = self.slots.find(Space::Member, id)?;
        let record = self.at(slot);
        let owner = self.origins.entry(record.origin.index);
        let applies = !owner.admitted && inferred.applies(record, owner.evidence.life);
        if !applies || self.mutation.is(Mutant::InferredCollectedAlone) {
            return None;
        }
        self.raise_floor(inferred.origin.index, inferred.n);
        Some(self.remove_slot(slot, Floor::Raise))
    }

    pub(super) fn drop_inferred(&mut self, id: &SmolStr) -> Option<Inferred> {
        let inferred = self.inferred.remove(id)?;
        self.origins.entry_mut(inferred.origin.index).inferred.remove(&inferred.n);
        Some(inferred)
    }

    pub(super) fn remove_slot(&mut self, slot: u32, floor: Floor) -> Arc<Record> {
        let record = self.slots.remove(slot);
        self.unindex(slot, &record);
        if let Some(marks) = &mut self.marking {
            marks.clear(slot);
        }
        if floor == Floor::Raise {
            self.raise_floor(record.origin.index, record.n);
        }
        record
    }

    fn raise_floor(&mut self, origin: u32, n: u64) {
        let retired = self.origins.is_retired(&self.origins.entry(origin).origin.id);
        if !retired && !self.mutation.is(Mutant::FloorNotRaised) {
            let entry = self.origins.entry_mut(origin);
            entry.floor = entry.floor.max(n);
        }
    }

    /// Retires everything up to `incarnation` of `node` and drops its names (D10, L7). Returns the names.
    pub(crate) fn retire(&mut self, node: &NodeId, incarnation: Incarnation) -> Vec<Arc<Record>> {
        self.origins.retire(node, incarnation);
        let gone: Vec<u32> =
            self.origins.incarnations(node).filter(|(i, _)| *i <= incarnation).map(|(_, index)| index).collect();
        let mut dropped = Vec::new();
        for index in gone {
            let slots: Vec<u32> = self.origins.entry(index).stated.values().copied().collect();
            for slot in slots {
                if self.at(slot).space == Space::Name {
                    dropped.push(self.remove_slot(slot, Floor::Keep));
                }
            }
        }
        self.origins.sweep();
        dropped
    }
}
