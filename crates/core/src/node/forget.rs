//! Forgetting the dead: names, what others wrote off, old runs; and standing by what others forgot (D10).

use super::{Event, Node, Output, Phase};
use crate::map::OriginEntry;
use crate::member::{Member, Record};
use crate::mutant::Mutant;
use crate::version::{NodeId, OriginId};
use crate::wire::Context;
use std::collections::BTreeSet;

impl Node {
    /// Drops the names of origins that have been silent for `dead_peer_timeout` of real time, and forgets old runs that
    /// nothing refers to any more (D10).
    pub(super) fn forget_the_dead(&mut self, out: &mut Output) {
        let me = self.map.origins.me();
        let dead: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| {
                *index != me && !entry.admitted && entry.names_dropped != Some(entry.stores) && self.is_given_up(entry)
            })
            .map(|(index, _)| index)
            .collect();
        if !self.mutation.is(Mutant::NamesNotDropped) {
            for index in dead {
                self.drop_names(index, out);
            }
        }
        // Whoever is starting holds nothing yet, so that nothing seems to refer to any run: what comes of it would be refused.
        if matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        let nodes: BTreeSet<NodeId> = self.map.origins.iter().map(|(_, entry)| entry.origin.id.node.clone()).collect();
        let (clock, long) = (self.clock, self.config.timers.retirement());
        for node in nodes {
            self.retire(&node, |entry| entry.evidence.heard.silence(clock) >= long, out);
        }
    }

    /// Whether the names of a silent origin are kept no longer. Of a run that has a successor, what one node gave up all have
    /// to give up: the successor may never hear of a name that only some still hold, and so cannot unregister it (N2).
    fn is_given_up(&self, entry: &OriginEntry) -> bool {
        let long = entry.evidence.heard.silence(self.clock) >= self.config.timers.dead_peer_timeout;
        long || (entry.written_off > 0 && self.map.origins.is_outlived(&entry.origin.id))
    }

    fn drop_names(&mut self, index: u32, out: &mut Output) {
        let names = self.map.drop_names(index);
        if !names.is_empty() {
            let origin = self.map.origins.entry(index).origin.id.clone();
            out.events.push(Event::NamesDropped { origin, count: names.len() });
        }
        for (slot, name) in names {
            let before = Member { status: name.stated(), record: name };
            self.route(slot, Some(&before), None, true, out);
        }
    }

    fn retire(&mut self, node: &NodeId, done_with: impl Fn(&OriginEntry) -> bool, out: &mut Output) {
        let retired = self.map.origins.retire(node, |entry| !entry.admitted && done_with(entry));
        out.events.extend(retired.into_iter().map(|origin| Event::OriginRetired { origin }));
    }

    /// A peer's context says what it has forgotten: old runs that this node need not keep either, and records of this
    /// node that it has to state again.
    pub(super) fn mind_forgotten(&mut self, context: &Context, out: &mut Output) {
        for (node, incarnation) in &context.retired {
            self.retire(node, |entry| entry.origin.id.incarnation <= *incarnation, out);
        }
        self.map.note_written_off(context);
        let written_off = context.written_off.get(&self.me);
        if written_off >= self.restated_at
            && written_off > 0
            && matches!(self.phase, Phase::Ready { .. })
            && !self.mutation.is(Mutant::WrittenOffNotRestated)
        {
            self.restate(out);
        }
        let older_run = |(origin, _): (&OriginId, u64)| origin.node == self.me.node && *origin != self.me;
        if context.written_off.iter().any(older_run) && matches!(self.phase, Phase::Ready { .. }) {
            self.claim_above(context.claim_floor, out);
        }
    }

    /// Writes all live records of this node anew: somebody gave them up while this node could not be heard (D10).
    fn restate(&mut self, out: &mut Output) {
        let entry = self.map.origins.entry(self.map.origins.me());
        self.restated_at = entry.seen + 1;
        let slots: Vec<u32> = entry.stated.values().copied().filter(|slot| self.map.at(*slot).is_live()).collect();
        for slot in slots {
            let held = self.map.at(slot);
            let draft = Record { seq: held.seq + 1, ..Record::clone(held) };
            self.write(draft, out);
        }
    }

    /// An origin fell silent before it stated again what others wrote off: that is not waited for where it is still held (D10),
    /// since somebody else has done so and holds it no longer. Nobody but that one might be responsible for it (L4).
    pub(super) fn let_go_of_written_off(&mut self, out: &mut Output) {
        if self.mutation.is(Mutant::WrittenOffKept) {
            return;
        }
        let window = self.config.timers.admission_window();
        let more = |entry: &OriginEntry| entry.let_go != (entry.written_off, entry.members_written_off);
        let found: Vec<u32> = self
            .map
            .origins
            .iter()
            .filter(|(index, entry)| !entry.admitted && more(entry) && self.silence(*index) > window)
            .map(|(index, _)| index)
            .collect();
        for index in found {
            for (slot, before) in self.map.drop_written_off(index) {
                self.on_removed(slot, &before, out);
            }
        }
    }
}
