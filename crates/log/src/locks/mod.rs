//! The table of locks: holders, queues and delays (LO).
//!
//! Owns the places and their order. It does not decide: the machine grants, releases and numbers the grants.

mod place;

pub(crate) use place::PlaceKey;
use place::{LeasePlace, WaitingWith};
pub use place::{LockPlace, Standing};

use crate::command::{LeaseId, LockName};
use crate::mutant::{Mutation, seam};
use crate::time::LogTime;
use crate::tree::{Iter, Keyed, Tree};
use bytes::Bytes;
use std::sync::Arc;

/// A lock in use: it has a holder, a waiter or a delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub name: LockName,
    pub permits: u64,
    /// After the death of a holder, the lock is granted to nobody before this log time (LO7).
    pub delayed_until: Option<LogTime>,
    /// Number of holders. Derived from the places.
    pub holders: u64,
    /// Number of waiters. Derived from the places.
    pub waiters: u64,
}

/// All locks. A copy is cheap (LH5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    all: Tree<Lock>,
    /// Holders and waiters, by lock.
    places: Tree<LockPlace>,
    /// The same places by lease. Derived from `places`.
    by_lease: Tree<LeasePlace>,
    /// Waiters that depend on a second lease. Derived from `places`.
    waiting_with: Tree<WaitingWith>,
    /// Number of locks with a delay. Derived from `all`.
    delayed: usize,
    /// Number of waiters of all locks. Derived from `places`.
    waiting: usize,
}

impl Locks {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of holders and waiters of all locks.
    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of waiters of all locks.
    pub(crate) fn waiter_count(&self) -> usize {
        self.waiting
    }

    pub(crate) fn get(&self, name: &LockName) -> Option<&Arc<Lock>> {
        self.all.get(name)
    }

    pub(crate) fn iter(&self) -> Iter<'_, Lock> {
        self.all.iter()
    }

    pub(crate) fn iter_from(&self, from: &LockName) -> Iter<'_, Lock> {
        self.all.iter_from(from)
    }

    pub(crate) fn places(&self) -> Iter<'_, LockPlace> {
        self.places.iter()
    }

    /// Iterates over the locks with a delay.
    pub(crate) fn delayed(&self) -> impl Iterator<Item = &Arc<Lock>> {
        self.all.iter().filter(|lock| lock.delayed_until.is_some()).take(self.delayed)
    }

    /// Iterates over the holders of a lock, then over its waiters in the order of the queue.
    pub(crate) fn places_of<'a>(&'a self, name: &'a LockName) -> impl Iterator<Item = &'a Arc<LockPlace>> {
        self.places.iter_from(&PlaceKey::first(name)).take_while(move |place| place.key.name == *name)
    }

    pub(crate) fn places_from(&self, from: &PlaceKey) -> Iter<'_, LockPlace> {
        self.places.iter_from(from)
    }

    pub(crate) fn first_waiter(&self, name: &LockName) -> Option<&Arc<LockPlace>> {
        let from = PlaceKey::first_waiter(name);
        self.places.iter_from(&from).next().filter(|place| place.key.name == *name)
    }

    pub(crate) fn is_held(&self, name: &LockName, fence: u64) -> bool {
        self.places.contains(&PlaceKey { name: name.clone(), standing: Standing::Holder { fence } })
    }

    /// Returns the place of a lease in a lock.
    pub(crate) fn place(&self, name: &LockName, lease: LeaseId) -> Option<&Arc<LockPlace>> {
        let standing = self.by_lease.get(&(lease, name.clone()))?.standing;
        self.places.get(&PlaceKey { name: name.clone(), standing })
    }

    pub(crate) fn holder(&self, name: &LockName, fence: u64) -> Option<&Arc<LockPlace>> {
        self.places.get(&PlaceKey { name: name.clone(), standing: Standing::Holder { fence } })
    }

    /// Returns all places of a lease, in the order of the locks' names.
    pub(crate) fn places_of_lease(&self, lease: LeaseId) -> Vec<Arc<LockPlace>> {
        let from = (lease, LockName::lock(Bytes::new()));
        let entries = self.by_lease.iter_from(&from).take_while(|entry| entry.key.0 == lease);
        entries.filter_map(|entry| self.place(&entry.key.1, lease).cloned()).collect()
    }

    /// Returns the number of places of a lease.
    pub(crate) fn place_count_of(&self, lease: LeaseId) -> usize {
        let from = (lease, LockName::lock(Bytes::new()));
        self.by_lease.iter_from(&from).take_while(|entry| entry.key.0 == lease).count()
    }

    /// Iterates over the names and leases of waiters that depend on a second lease.
    fn waiters_with(&self, lease: LeaseId) -> impl Iterator<Item = &(LeaseId, LockName, LeaseId)> {
        let from = (lease, LockName::lock(Bytes::new()), LeaseId(0));
        self.waiting_with.iter_from(&from).map(|waiter| &waiter.0).take_while(move |waiter| waiter.0 == lease)
    }

    /// Returns the waiters that depend on a second lease, in the order of the locks' names.
    pub(crate) fn places_waiting_with(&self, lease: LeaseId) -> Vec<Arc<LockPlace>> {
        self.waiters_with(lease).filter_map(|(_, name, own)| self.place(name, *own).cloned()).collect()
    }

    pub(crate) fn waiter_count_with(&self, lease: LeaseId) -> usize {
        self.waiters_with(lease).count()
    }

    /// Adds a lock without places, if it does not exist.
    pub(crate) fn ensure(&mut self, name: &LockName, permits: u64) {
        if !self.all.contains(name) {
            let lock = Lock { name: name.clone(), permits, delayed_until: None, holders: 0, waiters: 0 };
            self.all.insert(Arc::new(lock));
        }
    }

    pub(crate) fn restore(&mut self, lock: Lock) {
        self.delayed += usize::from(lock.delayed_until.is_some());
        self.all.insert(Arc::new(lock));
    }

    /// Adds a place. Returns false if its lock does not exist.
    pub(crate) fn add(&mut self, place: LockPlace) -> bool {
        let Some(lock) = self.all.get_mut(&place.key.name) else { return false };
        match place.key.standing {
            Standing::Holder { .. } => lock.holders += 1,
            Standing::Waiter { .. } => {
                lock.waiters += 1;
                self.waiting += 1;
            }
        }
        let key = (place.lease, place.key.name.clone());
        self.by_lease.insert(Arc::new(LeasePlace { key, standing: place.key.standing }));
        if let Some(waiter) = waiting_with(&place) {
            self.waiting_with.insert(Arc::new(WaitingWith(waiter)));
        }
        self.places.insert(Arc::new(place));
        true
    }

    pub(crate) fn remove(&mut self, place: &LockPlace) {
        if self.places.remove(&place.key).is_none() {
            return;
        }
        self.by_lease.remove(&(place.lease, place.key.name.clone()));
        if let Some(waiter) = waiting_with(place) {
            self.waiting_with.remove(&waiter);
        }
        if let Some(lock) = self.all.get_mut(&place.key.name) {
            match place.key.standing {
                Standing::Holder { .. } => lock.holders -= 1,
                Standing::Waiter { .. } => {
                    lock.waiters -= 1;
                    self.waiting -= 1;
                }
            }
        }
    }

    /// Replaces the value of a place.
    pub(crate) fn set_value(&mut self, place: &LockPlace, value: Bytes) {
        self.places.insert(Arc::new(LockPlace { value, ..place.clone() }));
    }

    pub(crate) fn set_delay(&mut self, name: &LockName, until: Option<LogTime>) {
        if let Some(lock) = self.all.get_mut(name) {
            self.delayed += usize::from(until.is_some());
            self.delayed -= usize::from(lock.delayed_until.is_some());
            lock.delayed_until = until;
        }
    }

    /// Drops a lock that nobody uses.
    pub(crate) fn drop_unused(&mut self, name: &LockName) {
        let unused = |lock: &Arc<Lock>| lock.holders == 0 && lock.waiters == 0 && lock.delayed_until.is_none();
        if self.get(name).is_some_and(unused) {
            self.all.remove(name);
        }
    }
}

fn waiting_with(place: &LockPlace) -> Option<(LeaseId, LockName, LeaseId)> {
    place.waits_with.map(|with| (with, place.key.name.clone(), place.lease))
}

impl Lock {
    /// Returns whether a permit can be granted at a log time (LO2, LO7).
    pub(crate) fn is_free(&self, now: LogTime, mutation: Mutation) -> bool {
        self.has_permit(mutation) && !self.is_delayed(now, mutation)
    }

    fn has_permit(&self, mutation: Mutation) -> bool {
        seam!(in mutation, PermitsIgnored => return self.holders <= self.permits);
        self.holders < self.permits
    }

    fn is_delayed(&self, now: LogTime, mutation: Mutation) -> bool {
        seam!(in mutation, DelayIgnored => return false);
        self.delayed_until.is_some_and(|until| now < until)
    }
}

impl Keyed for Lock {
    type Key = LockName;
    type Bound = LockName;

    fn key(&self) -> &LockName {
        &self.name
    }

    fn bound(&self) -> LockName {
        self.name.clone()
    }
}
