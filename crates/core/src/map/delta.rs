//! Records that a peer misses, found in O(changes) (D5, D6).

use super::{CausalMap, Key};
use crate::mutant::seam;
use crate::time::Clock;
use crate::wire::{Context, ItemsWriter};
use std::collections::BTreeSet;

/// A reference to an item that is resolved when the item is sent; by then a newer one may have replaced it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ItemRef {
    Stated(u32),
    Inferred(Key),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    /// The peer's context is below the collection floor: send everything (D12).
    Full,
    Items(Vec<ItemRef>),
}

impl CausalMap {
    /// Returns everything that a peer with this context has not received.
    pub(crate) fn delta(&self, context: &Context) -> Delta {
        if self.below_floor(context) {
            return Delta::Full;
        }
        let (mut items, mut inferred) = (Vec::new(), Vec::new());
        for (_, entry) in self.origins.iter() {
            let origin = &entry.origin.id;
            if context.is_retired(origin) {
                continue;
            }
            let seen = context.clock.get(origin);
            items.extend(entry.stated.range(seen + 1..).map(|(_, slot)| ItemRef::Stated(*slot)));
            inferred.extend(entry.inferred.range(seen + 1..).map(|(_, id)| ItemRef::Inferred(id.clone())));
        }
        // After the records that they are about: the receiver judges by them which inference it keeps (L4).
        items.append(&mut inferred);
        let is_own =
            |item: &ItemRef| matches!(item, ItemRef::Stated(slot) if self.at(*slot).origin.index == self.origins.me());
        seam!(self, DeltaSendsOwnOnly => items.retain(is_own));
        Delta::Items(items)
    }

    pub(crate) fn below_floor(&self, context: &Context) -> bool {
        self.origins.iter().any(|(_, entry)| entry.floor > 0 && !context.covers(&entry.origin.id, entry.floor))
    }

    /// Adds the current record of `item` to a frame, if there still is one.
    pub(crate) fn encode(&self, item: &ItemRef, clock: Clock, items: &mut ItemsWriter) {
        let age = self.tombstone_age(item, clock);
        match item {
            ItemRef::Stated(slot) => {
                if let Some(record) = self.slots.get(*slot) {
                    items.record(record, age);
                }
            }
            ItemRef::Inferred(key) => {
                if let Some(inferred) = self.inferred.get(key) {
                    items.inferred(key.0, &key.1, inferred, age);
                }
            }
        }
    }

    /// The current records of this node's writes after `sent`; `None` if they are no longer remembered.
    ///
    /// A write that was superseded, by whichever origin, is represented by the record that superseded it (D5).
    pub(crate) fn push_items(&self, sent: u64, clock: Clock) -> Option<ItemsWriter> {
        let skip = sent.checked_sub(self.recent_base)?;
        let distinct: BTreeSet<&ItemRef> = self.recent.iter().skip(skip as usize).collect();
        let me = self.origins.me();
        let mut items = ItemsWriter::at(clock);
        for item in distinct {
            // A write that was collected meanwhile cannot be pushed, so the push must not cover it either.
            let superseded = match item {
                ItemRef::Stated(slot) => self.slots.get(*slot)?.origin.index != me,
                ItemRef::Inferred(key) => {
                    // The receiver needs the record that it is about (L4).
                    if let Some(about) = self.slots.find(key.0, &key.1) {
                        self.encode(&ItemRef::Stated(about.slot), clock, &mut items);
                    }
                    false
                }
            };
            seam!(self, PushOmitsSuperseding => if superseded { continue });
            self.encode(item, clock, &mut items);
        }
        Some(items)
    }

    /// Returns the next item at or after a cursor over the whole state: slots first, then inferred records.
    ///
    /// The inference about a slot is sent in the same chunk as the slot. If both were collected before its own turn,
    /// the receiver would be left with a record that no other node has (D12).
    pub(crate) fn next_items(&self, from: &Cursor) -> Option<(ItemRef, Option<ItemRef>, Cursor)> {
        match from {
            Cursor::Slot(start) => {
                let held = (*start..self.slots.bound()).find_map(|slot| self.slots.get(slot));
                let Some(record) = held else { return self.next_items(&Cursor::Inferred(None)) };
                let key = record.key();
                let inferred = self.inferred.contains_key(&key).then_some(ItemRef::Inferred(key));
                Some((ItemRef::Stated(record.slot), inferred, Cursor::Slot(record.slot + 1)))
            }
            Cursor::Inferred(after) => {
                use std::ops::Bound;
                let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let (key, _) = self.inferred.range((start, Bound::Unbounded)).next()?;
                Some((ItemRef::Inferred(key.clone()), None, Cursor::Inferred(Some(key.clone()))))
            }
        }
    }
}

/// A position in the whole state.
#[derive(Clone, Debug)]
pub(crate) enum Cursor {
    Slot(u32),
    Inferred(Option<Key>),
}
