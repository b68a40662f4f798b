//! What one entry changes besides its answer, collected while it is applied.

use super::Machine;
use super::session::EndReason;
use crate::command::{LeaseId, LockName, OpResult};
use crate::history::{Event, EventChange, EventPosition};
use crate::id::LogSessionId;
use crate::keys::KeyChanges;
use crate::level::Level;

/// A permit of a lock that an entry granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedLock {
    pub name: LockName,
    pub lease: LeaseId,
    pub fence: u64,
}

/// A place in a lock that an entry removed: a holder that released its permit, or a waiter that gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftPlace {
    pub name: LockName,
    pub lease: LeaseId,
}

#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) ended: Vec<(LogSessionId, EndReason)>,
    pub(super) ended_leases: Vec<LeaseId>,
    pub(super) granted: Vec<GrantedLock>,
    pub(super) left: Vec<LeftPlace>,
    /// Events in order, with their revisions.
    pub(super) events: Vec<(u64, EventChange)>,
    /// The revision of the entry, once it has changed something outside of plain puts and deletes.
    pub(super) revision: Option<u64>,
    /// Results of a transaction that the entry executed.
    pub(super) results: Option<Vec<OpResult>>,
}

impl Machine {
    /// Returns the revision of this entry and raises it at the first change (K2).
    pub(super) fn revise(&mut self, effects: &mut Effects) -> u64 {
        *effects.revision.get_or_insert_with(|| self.keys.raise_revision(1))
    }

    /// Records changes of keys that were made at a revision: leases and history.
    pub(super) fn keys_changed(&mut self, revision: u64, changes: KeyChanges, effects: &mut Effects) {
        if self.level < Level::COORDINATION {
            return;
        }
        self.leases.changed(&changes);
        effects.events.extend(changes.into_iter().filter_map(EventChange::of).map(|change| (revision, change)));
    }

    /// Adds the events of an entry to history and drops old ones (H1, H2).
    pub(super) fn record(&mut self, effects: &mut Effects) {
        if self.level < Level::COORDINATION {
            return;
        }
        let (mut last, mut index) = (0, 0);
        for (revision, change) in std::mem::take(&mut effects.events) {
            index = if revision == last { index + 1 } else { 0 };
            last = revision;
            self.history.push(Event { position: EventPosition { revision, index }, time: self.log_time, change });
        }
        self.history.trim(&self.limits.coordination, self.log_time, self.mutation);
    }
}
