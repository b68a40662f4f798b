//! Walks: how a watcher gets all members, or all changes, while the registry keeps changing (W2).

use super::Change;
use crate::map::CausalMap;
use crate::member::{Member, Space};
use crate::mutant::{Mutation, seam};
use crate::node::{ResetReason, StreamEvent, WatchSelection};
use crate::version::Version;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Walk {
    path: Path,
    /// Versions the watcher has; members it has already are not sent again.
    known: Option<BTreeMap<String, Version>>,
}

#[derive(Debug)]
enum Path {
    /// All slots from here on.
    All { next: u32 },
    /// The slots of one service from here on.
    Service { next: u32 },
    /// These slots, sorted.
    Changed { slots: Vec<u32>, next: usize },
}

impl Walk {
    pub(crate) fn snapshot(selection: &WatchSelection) -> Self {
        let path = match (selection.space, selection.filter.service_literal()) {
            (Space::Member, Some(_)) => Path::Service { next: 0 },
            _ => Path::All { next: 0 },
        };
        Walk { path, known: None }
    }

    pub(crate) fn known(selection: &WatchSelection, known: BTreeMap<String, Version>) -> Self {
        Walk { known: Some(known), ..Walk::snapshot(selection) }
    }

    /// Over the slots that changed; `recent` is what the watcher may have seen beyond its token.
    pub(crate) fn changed(slots: Vec<u32>, recent: BTreeMap<String, Version>) -> Self {
        Walk { path: Path::Changed { slots, next: 0 }, known: Some(recent) }
    }

    /// The fallback when a token cannot be used: compare by known versions, or start over.
    pub(crate) fn instead(
        selection: &WatchSelection,
        known: Option<BTreeMap<String, Version>>,
        reason: ResetReason,
    ) -> (Self, Option<ResetReason>) {
        match known {
            Some(known) if reason == ResetReason::TooOld => (Walk::known(selection, known), None),
            _ => (Walk::snapshot(selection), Some(reason)),
        }
    }

    /// Whether the walk has yet to reach this slot, so that the change need not be sent now.
    pub(crate) fn will_meet(&self, change: Change<'_>) -> bool {
        match &self.path {
            Path::All { next } | Path::Service { next } => change.slot >= *next,
            Path::Changed { slots, next } => !change.freed && slots[*next..].binary_search(&change.slot).is_ok(),
        }
    }

    /// Whether the walk reports members that have disappeared.
    pub(crate) fn is_of_changes(&self) -> bool {
        matches!(self.path, Path::Changed { .. })
    }

    /// A change of this id is being sent; the version that the watcher had no longer matters.
    pub(crate) fn forget_known(&mut self, change: Change<'_>) {
        if let (Some(known), Some(member)) = (&mut self.known, change.after.or(change.before)) {
            known.remove(member.id());
        }
    }

    /// Takes one step; `false` at the end.
    pub(crate) fn step(
        &mut self,
        selection: &WatchSelection,
        map: &CausalMap,
        mutation: Mutation,
        events: &mut Vec<StreamEvent>,
    ) -> bool {
        match &mut self.path {
            Path::All { next } => {
                if *next >= map.slot_bound() {
                    return false;
                }
                let slot = *next;
                *next += 1;
                self.meet(slot, selection, map, mutation, events);
            }
            Path::Service { next } => {
                let service = selection.filter.service_literal().unwrap_or_default();
                let Some(slot) = map.services().get(service).and_then(|slots| slots.range(*next..).next().copied())
                else {
                    // Everything is behind the cursor now: changes are sent as they occur.
                    *next = u32::MAX;
                    return false;
                };
                *next = slot + 1;
                self.meet(slot, selection, map, mutation, events);
            }
            Path::Changed { slots, next } => {
                let Some(slot) = slots.get(*next).copied() else { return false };
                *next += 1;
                if let (Some(known), Some(record)) = (&mut self.known, map.try_at(slot)) {
                    known.remove(record.id());
                }
                show_change(slot, selection, map, events);
            }
        }
        true
    }

    fn meet(
        &mut self,
        slot: u32,
        selection: &WatchSelection,
        map: &CausalMap,
        mutation: Mutation,
        events: &mut Vec<StreamEvent>,
    ) {
        let Some(member) = visible(slot, selection, map) else { return };
        let had = self.known.as_mut().and_then(|known| known.remove(member.id()));
        let same = |had: Version| {
            let version = member.version();
            let stated = |version| Version { inferred: None, ..version };
            seam!(in mutation, VersionsIgnoreStatus => return stated(had) == stated(version));
            had == version
        };
        if !had.is_some_and(same) {
            events.push(StreamEvent::Snapshot(member));
        }
    }

    /// At the end of a walk by known versions: members that the watcher has and this node does not show.
    pub(crate) fn missing(&mut self, map: &CausalMap, selection: &WatchSelection) -> BTreeMap<String, Version> {
        let mut known = self.known.take().unwrap_or_default();
        known.retain(|id, _| {
            let slot = map.slot_of(selection.space, id);
            slot.and_then(|slot| visible(slot, selection, map)).is_none()
        });
        known
    }
}

/// The member in a slot, if the watcher should see it.
fn visible(slot: u32, selection: &WatchSelection, map: &CausalMap) -> Option<Member> {
    let record = map.try_at(slot)?;
    if record.space != selection.space || !record.is_live() {
        return None;
    }
    let member = map.member(record);
    let shown = member.status() != crate::member::Status::Left;
    (shown && selection.filter.matches(&member.subject())).then_some(member)
}

/// Sends the current state of a slot to a watcher that may or may not have known it.
fn show_change(slot: u32, selection: &WatchSelection, map: &CausalMap, events: &mut Vec<StreamEvent>) {
    if let Some(member) = visible(slot, selection, map) {
        events.push(StreamEvent::Snapshot(member));
    } else if let Some(record) = map.try_at(slot)
        && record.space == selection.space
    {
        let member = map.member(record);
        events.push(StreamEvent::Unregistered { id: member.id().to_owned(), version: member.version() });
    }
}
