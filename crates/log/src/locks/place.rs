//! Holders and waiters of locks.

use crate::command::{LeaseId, LockName};
use crate::time::LogTime;
use crate::tree::Keyed;
use bytes::Bytes;
use std::time::Duration;

/// A holder or waiter of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockPlace {
    pub(crate) key: PlaceKey,
    pub lease: LeaseId,
    pub value: Bytes,
    /// Log time at which the place became what it is.
    pub since: LogTime,
    /// How long the lock stays free after the lease of this holder has ended.
    pub delay: Duration,
    /// The end of this lease removes a waiter, too (LO10). Holders have none.
    pub waits_with: Option<LeaseId>,
}

impl LockPlace {
    pub fn name(&self) -> &LockName {
        &self.key.name
    }

    pub fn standing(&self) -> Standing {
        self.key.standing
    }

    /// Returns the fence of a holder.
    pub fn fence(&self) -> Option<u64> {
        if let Standing::Holder { fence } = self.key.standing { Some(fence) } else { None }
    }
}

/// Holders come before waiters, and waiters are in the order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    Holder {
        /// Revision of the grant (LO3).
        fence: u64,
    },
    Waiter {
        /// Index of the entry that queued it.
        order: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceKey {
    pub(crate) name: LockName,
    pub(crate) standing: Standing,
}

impl PlaceKey {
    pub(super) fn first(name: &LockName) -> Self {
        PlaceKey { name: name.clone(), standing: Standing::Holder { fence: 0 } }
    }

    pub(super) fn first_waiter(name: &LockName) -> Self {
        PlaceKey { name: name.clone(), standing: Standing::Waiter { order: 0 } }
    }
}

impl Keyed for LockPlace {
    type Key = PlaceKey;
    type Bound = PlaceKey;

    fn key(&self) -> &PlaceKey {
        &self.key
    }

    fn bound(&self) -> PlaceKey {
        self.key.clone()
    }
}

/// Where a lease stands in a lock.
#[derive(Clone, Debug)]
pub(super) struct LeasePlace {
    pub(super) key: (LeaseId, LockName),
    pub(super) standing: Standing,
}

impl Keyed for LeasePlace {
    type Key = (LeaseId, LockName);
    type Bound = (LeaseId, LockName);

    fn key(&self) -> &(LeaseId, LockName) {
        &self.key
    }

    fn bound(&self) -> (LeaseId, LockName) {
        self.key.clone()
    }
}

/// A waiter by the second lease it depends on, and by its own one.
#[derive(Clone, Debug)]
pub(super) struct WaitingWith(pub(super) (LeaseId, LockName, LeaseId));

impl Keyed for WaitingWith {
    type Key = (LeaseId, LockName, LeaseId);
    type Bound = (LeaseId, LockName, LeaseId);

    fn key(&self) -> &(LeaseId, LockName, LeaseId) {
        &self.0
    }

    fn bound(&self) -> (LeaseId, LockName, LeaseId) {
        self.0.clone()
    }
}
