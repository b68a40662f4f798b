//! Which slot carries which write of one origin, in the order of the writes (D5, D6).

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeFrom;

/// Marks a write in the ring that no record carries any more.
const NONE: u32 = u32::MAX;

/// The ring may be this many times longer than what it holds.
const SPARSE_MAX: u64 = 4;

/// A map from n to slot. A new write has the number above all others and supersedes an old one, so the last writes lie
/// close together: they are a ring addressed by n, from which an old one is removed without a search. Writes that the
/// ring has moved past, and writes that arrive late, are in a tree.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Writes below `start`.
    tree: BTreeMap<u64, u32>,
    /// Entry i is the slot of write `start + i`, or `NONE`. Neither end is `NONE`.
    ring: VecDeque<u32>,
    start: u64,
    /// How many entries of the ring are slots.
    held: u64,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.tree.is_empty()
    }

    /// Slots in the order of n.
    pub(crate) fn values(&self) -> impl Iterator<Item = &u32> {
        self.range(0..).map(|(_, slot)| slot)
    }

    /// The highest n held; 0 if there is none.
    pub(crate) fn last(&self) -> u64 {
        let in_tree = self.tree.last_key_value().map_or(0, |(n, _)| *n);
        if self.ring.is_empty() { in_tree } else { self.start + self.ring.len() as u64 - 1 }
    }

    pub(crate) fn range(&self, range: RangeFrom<u64>) -> impl Iterator<Item = (u64, &u32)> {
        let first = range.start.max(self.start);
        let skipped = (first - self.start).min(self.ring.len() as u64);
        let ring = (first..).zip(self.ring.range(skipped as usize..)).filter(|(_, slot)| **slot != NONE);
        self.tree.range(range).map(|(n, slot)| (*n, slot)).chain(ring)
    }

    pub(crate) fn insert(&mut self, n: u64, slot: u32) {
        while !self.ring.is_empty() && n.saturating_sub(self.start) >= SPARSE_MAX * (self.held + 1) {
            self.move_first_to_tree();
        }
        if self.ring.is_empty() && n >= self.start {
            self.start = n;
        }
        let Some(at) = n.checked_sub(self.start).map(|at| at as usize) else {
            self.tree.insert(n, slot);
            return;
        };
        if at >= self.ring.len() {
            self.ring.resize(at + 1, NONE);
        }
        self.held += u64::from(self.ring[at] == NONE);
        self.ring[at] = slot;
    }

    pub(crate) fn remove(&mut self, n: u64) {
        let Some(at) = n.checked_sub(self.start) else {
            self.tree.remove(&n);
            return;
        };
        if let Some(slot) = self.ring.get_mut(at as usize).filter(|slot| **slot != NONE) {
            *slot = NONE;
            self.held -= 1;
        }
        while self.ring.back() == Some(&NONE) {
            self.ring.pop_back();
        }
        while self.ring.front() == Some(&NONE) {
            self.move_first_to_tree();
        }
    }

    /// Moves the first write of the ring to the tree.
    fn move_first_to_tree(&mut self) {
        if let Some(slot) = self.ring.pop_front().filter(|slot| *slot != NONE) {
            self.held -= 1;
            self.tree.insert(self.start, slot);
        }
        self.start += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The next write, after a gap.
        Next(u64),
        /// A write that comes late.
        Late(u64),
        /// Removes the i-th write that is held.
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => Just(Step::Next(1)),
            1 => (1..40_u64).prop_map(Step::Next),
            1 => Just(Step::Next(1 << 50)),
            1 => (1..100_u64).prop_map(Step::Late),
            6 => any::<usize>().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map_whose_ring_is_not_sparse(steps in prop::collection::vec(step(), 0..300)) {
            let (mut writes, mut expected) = (Writes::default(), BTreeMap::new());
            let mut last = 0;
            for (slot, step) in steps.into_iter().enumerate() {
                let n = match step {
                    Step::Next(gap) => last + gap,
                    Step::Late(lag) => last.saturating_sub(lag).max(1),
                    Step::Remove(i) => {
                        if let Some(n) = expected.keys().nth(i % expected.len().max(1)).copied() {
                            writes.remove(n);
                            expected.remove(&n);
                        }
                        continue;
                    }
                };
                writes.insert(n, slot as u32);
                expected.insert(n, slot as u32);
                prop_assert!(n <= last || writes.ring.len() as u64 <= SPARSE_MAX * writes.held);
                last = last.max(n);
                for from in [0, writes.start, n, n + 1] {
                    prop_assert!(writes.range(from..).eq(expected.range(from..).map(|(n, slot)| (*n, slot))));
                }
            }
            prop_assert!(writes.values().eq(expected.values()));
            prop_assert_eq!(writes.is_empty(), expected.is_empty());
            prop_assert_eq!(writes.last(), expected.last_key_value().map_or(0, |(n, _)| *n));
        }
    }

    #[test]
    fn random_updates_of_all_leave_next_to_nothing_in_the_tree() {
        let mut writes = Writes::default();
        let mut written: Vec<u64> = (1..=1000).collect();
        (1..=1000).for_each(|n| writes.insert(n, n as u32));
        let mut random = fastrand::Rng::with_seed(1);
        for n in 1001..20_000 {
            let slot = random.usize(..1000);
            writes.remove(written[slot]);
            writes.insert(n, slot as u32);
            written[slot] = n;
        }
        assert!(writes.tree.len() < 50, "{} in the tree", writes.tree.len());
        assert_eq!(writes.values().count(), 1000);
    }
}
