//! Reading history in order, from a position (H5).

use super::union::WatchUnion;
use super::{Compacted, Event, EventChange, EventPosition, History};
use crate::command::LockName;
use crate::keys::Selection;
use crate::mutant::{Mutation, seam};
use std::sync::Arc;

/// Events that one call examines, so that a watch of a rare key is answered in bounded time.
const EXAMINED_MAX: usize = 10_000;

/// The events that a watch wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFilter {
    pub scope: WatchScope,
    pub puts: bool,
    pub deletes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    Keys(Selection),
    /// Grants, values and releases of a lock or election.
    Lock(LockName),
    /// Everything that several watches select.
    Union(Arc<WatchUnion>),
}

impl WatchFilter {
    /// Creates a filter for all changes of keys.
    pub fn keys(selection: Selection) -> Self {
        WatchFilter { scope: WatchScope::Keys(selection), puts: true, deletes: true }
    }

    /// Creates a filter for all changes of a lock or election.
    pub fn lock(name: LockName) -> Self {
        WatchFilter { scope: WatchScope::Lock(name), puts: true, deletes: true }
    }

    /// Creates a filter for all changes of a union.
    pub fn union(union: WatchUnion) -> Self {
        WatchFilter { scope: WatchScope::Union(Arc::new(union)), puts: true, deletes: true }
    }

    pub fn matches(&self, change: &EventChange) -> bool {
        match (&self.scope, change) {
            (WatchScope::Keys(selection), EventChange::Put { record, .. }) => {
                self.puts && selection.contains(record.key())
            }
            (WatchScope::Keys(selection), EventChange::Delete { previous }) => {
                self.deletes && selection.contains(previous.key())
            }
            (WatchScope::Lock(name), EventChange::Lock(event)) => event.name == *name,
            (WatchScope::Union(union), EventChange::Put { record, .. }) => {
                self.puts && union.contains_key(record.key())
            }
            (WatchScope::Union(union), EventChange::Delete { previous }) => {
                self.deletes && union.contains_key(previous.key())
            }
            (WatchScope::Union(union), EventChange::Lock(event)) => union.contains_lock(&event.name),
            (WatchScope::Keys(_), EventChange::Lock(_)) | (WatchScope::Lock(_), _) => false,
        }
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    pub event: Arc<Event>,
    /// Whether the watch has no further event of this revision.
    pub last: bool,
}

/// The next events of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPage {
    pub events: Vec<WatchEvent>,
    /// Where the next call continues. All events before it have been returned, so it is also a progress mark.
    pub next: EventPosition,
    /// Whether history contains more events at `next`.
    pub more: bool,
}

impl History {
    /// Returns the events of a watch at and after `from`, at most `limit` events and `bytes` bytes, but at least one
    /// event. `revision` is the current revision of the store.
    pub(crate) fn watch(
        &self,
        filter: &WatchFilter,
        from: EventPosition,
        (limit, bytes): (usize, u64),
        revision: u64,
        mutation: Mutation,
    ) -> Result<WatchPage, Compacted> {
        self.check_start(from, mutation)?;
        let mut page = WatchPage { events: Vec::new(), next: from, more: false };
        let mut taken = 0;
        for (examined, event) in self.events_from(from).enumerate() {
            let matches = filter.matches(&event.change);
            taken += if matches { event_bytes(event) } else { 0 };
            let is_full = page.events.len() >= limit || (taken > bytes && !page.events.is_empty());
            if examined == EXAMINED_MAX || (matches && is_full) {
                page.more = true;
                if let Some(last) = page.events.last_mut() {
                    last.last = !self.continues(filter, event.position, last.event.position.revision);
                }
                return Ok(page);
            }
            if matches {
                if let Some(last) = page.events.last_mut() {
                    last.last = last.event.position.revision != event.position.revision;
                }
                page.events.push(WatchEvent { event: event.clone(), last: true });
            }
            page.next = after(event, mutation);
        }
        page.next = page.next.max(EventPosition::start_of(revision + 1));
        Ok(page)
    }

    /// Returns whether a revision has an event of the watch at or after a position.
    fn continues(&self, filter: &WatchFilter, from: EventPosition, revision: u64) -> bool {
        let rest = self.events_from(from).take_while(|event| event.position.revision == revision);
        rest.into_iter().any(|event| filter.matches(&event.change))
    }

    /// Rejects a start that is older than history (H3).
    fn check_start(&self, from: EventPosition, mutation: Mutation) -> Result<(), Compacted> {
        seam!(in mutation, CompactedIgnored => return Ok(()));
        if from.revision < self.oldest() { Err(Compacted { oldest: self.oldest() }) } else { Ok(()) }
    }
}

/// Returns the position after an event (H5).
fn after(event: &Event, mutation: Mutation) -> EventPosition {
    seam!(in mutation, ResumeAtRevision => return EventPosition::start_of(event.position.revision + 1));
    event.position.next()
}

/// Bytes of an event in a page: both records.
fn event_bytes(event: &Event) -> u64 {
    event.bytes() + event.change.record().map_or(0, |record| record.value().len() as u64)
}
