//! Locks, semaphores and elections (LO, EL).

use super::Machine;
use super::answer::NotEnded;
use super::effects::{Effects, GrantedLock, LeftPlace};
use super::outcome::{Field, LockAnswer, Reason, Response};
use crate::command::{Acquire, EndDelay, LeaseId, LockName, Place, Proclaim, Release};
use crate::history::{EventChange, LockChange, LockEvent};
use crate::id::Position;
use crate::limits::{COUNT_MAX, micros};
use crate::locks::{Lock, LockPlace, PlaceKey, Standing};
use crate::mutant::seam;
use std::sync::Arc;

impl Machine {
    /// Returns a lock that is in use.
    pub fn lock(&self, name: &LockName) -> Option<&Lock> {
        self.locks.get(name).map(|lock| &**lock)
    }

    /// Iterates over the locks in use from a name on, in order of their names. Elections follow all locks.
    pub fn locks_from(&self, from: &LockName) -> impl Iterator<Item = &Lock> {
        self.locks.iter_from(from).map(|lock| &**lock)
    }

    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Returns the number of holders and waiters of all locks.
    pub fn place_count(&self) -> usize {
        self.locks.place_count()
    }

    /// Returns the number of waiters of all locks.
    pub fn waiter_count(&self) -> usize {
        self.locks.waiter_count()
    }

    /// Iterates over the holders of a lock, then over its waiters in the order of the queue.
    pub fn places<'a>(&'a self, name: &'a LockName) -> impl Iterator<Item = &'a LockPlace> {
        self.locks.places_of(name).map(|place| &**place)
    }

    /// Returns the place of a lease in a lock.
    pub fn place(&self, name: &LockName, lease: LeaseId) -> Option<&LockPlace> {
        self.locks.place(name, lease).map(|place| &**place)
    }

    /// Returns the holder of a lock with this fence.
    pub fn holder(&self, name: &LockName, fence: u64) -> Option<&LockPlace> {
        self.locks.holder(name, fence).map(|place| &**place)
    }

    /// Returns all places of a lease, in the order of the locks' names.
    pub fn places_of_lease(&self, lease: LeaseId) -> Vec<Arc<LockPlace>> {
        self.locks.places_of_lease(lease)
    }

    /// Iterates over locks whose delay a leader must end at its time (LO7).
    pub fn delayed_locks(&self) -> impl Iterator<Item = &Lock> {
        self.locks.delayed().map(|lock| &**lock)
    }

    pub(super) fn acquire(
        &mut self,
        at: Position,
        acquire: &Acquire,
        effects: &mut Effects,
    ) -> Result<Response, Reason> {
        self.check_acquire(acquire)?;
        if let Some(answer) = self.held_place(acquire)? {
            self.wait_with(acquire)?;
            return Ok(Response::Lock(answer));
        }
        let Acquire { name, lease, permits, value, wait, delay, waits_with } = acquire.clone();
        let lock = self.locks.get(&name);
        if let Some(lock) = lock.filter(|lock| lock.permits != permits) {
            return Err(Reason::Permits { permits: lock.permits });
        }
        let is_free = lock.is_none_or(|lock| self.is_open_to_all(lock));
        if !is_free && !wait {
            return Err(Reason::LockHeld { fence: self.newest_fence(&name) });
        }
        self.check_places(&acquire.name, lease, is_free)?;
        if !is_free {
            self.check_waiters_with(waits_with)?;
        }
        self.locks.ensure(&name, permits);
        if is_free {
            self.locks.set_delay(&name, None);
        }
        let standing = Standing::Waiter { order: at.index };
        let key = PlaceKey { name, standing };
        let place = LockPlace { key, lease, value, since: self.log_time, delay, waits_with };
        if is_free {
            let fence = self.grant_place(&place, effects);
            return Ok(Response::Lock(LockAnswer::Held { fence }));
        }
        self.locks.add(place);
        Ok(Response::Lock(LockAnswer::Waiting))
    }

    /// A waiter depends on the second lease of the last request for its place (LO10).
    fn wait_with(&mut self, acquire: &Acquire) -> Result<(), Reason> {
        let Some(place) = self.locks.place(&acquire.name, acquire.lease).cloned() else { return Ok(()) };
        if place.fence().is_none() && place.waits_with != acquire.waits_with {
            self.check_waiters_with(acquire.waits_with)?;
            self.locks.remove(&place);
            self.locks.add(LockPlace { waits_with: acquire.waits_with, ..(*place).clone() });
        }
        Ok(())
    }

    /// Checks that the end of a second lease stays bounded work (Q1).
    fn check_waiters_with(&self, lease: Option<LeaseId>) -> Result<(), Reason> {
        let limit = self.limits.coordination.places_per_lease;
        match lease {
            Some(lease) if self.locks.waiter_count_with(lease) as u64 >= limit => {
                Err(Reason::Full { field: Field::PlacesOfLease, limit })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a new acquire is granted at once: nobody waits before it (LO2).
    fn is_open_to_all(&self, lock: &Lock) -> bool {
        let is_free = lock.is_free(self.log_time, self.mutation);
        seam!(self, QueueJumped => return is_free);
        is_free && lock.waiters == 0
    }

    /// Asking again gives the same place (LO1).
    fn held_place(&self, acquire: &Acquire) -> Result<Option<LockAnswer>, Reason> {
        seam!(self, AcquireTwice => return Ok(None));
        let Some(place) = self.locks.place(&acquire.name, acquire.lease) else { return Ok(None) };
        match place.standing() {
            Standing::Holder { fence } => Ok(Some(LockAnswer::Held { fence })),
            Standing::Waiter { .. } if acquire.wait => Ok(Some(LockAnswer::Waiting)),
            Standing::Waiter { .. } => Err(Reason::LockHeld { fence: self.newest_fence(&acquire.name) }),
        }
    }

    fn newest_fence(&self, name: &LockName) -> u64 {
        self.locks.places_of(name).filter_map(|place| place.fence()).max().unwrap_or(0)
    }

    fn check_acquire(&self, acquire: &Acquire) -> Result<(), Reason> {
        seam!(self, AcquireUnchecked => return Ok(()));
        let limits = &self.limits.coordination;
        let delay = (micros(acquire.delay), 0, micros(limits.lock_delay_max));
        for (field, (found, min, max)) in [
            (Field::Name, (acquire.name.name.len() as u64, 1, self.limits.key_bytes)),
            (Field::Permits, (acquire.permits, 1, COUNT_MAX)),
            (Field::Value, (acquire.value.len() as u64, 0, limits.lock_value_bytes)),
            (Field::Delay, delay),
        ] {
            if found < min || found > max {
                return Err(Reason::OutOfRange { field, found, min, max });
            }
        }
        let mut leases = [Some(acquire.lease), acquire.waits_with].into_iter().flatten();
        leases.find(|lease| !self.leases.contains(*lease)).map_or(Ok(()), |lease| Err(Reason::NoLease(lease)))
    }

    /// Checks that another place fits (Q1).
    fn check_places(&self, name: &LockName, lease: LeaseId, is_free: bool) -> Result<(), Reason> {
        seam!(self, PlacesUnlimited => return Ok(()));
        let limits = &self.limits.coordination;
        let waiters = self.locks.get(name).map_or(0, |lock| lock.waiters);
        let held = self.locks.place_count_of(lease) as u64;
        for (field, found, limit) in [
            (Field::Waiters, if is_free { 0 } else { waiters + 1 }, limits.waiters),
            (Field::PlacesOfLease, held + 1, limits.places_per_lease),
            (Field::Places, self.locks.place_count() as u64 + 1, limits.places),
        ] {
            if found > limit {
                return Err(Reason::Full { field, limit });
            }
        }
        Ok(())
    }

    /// Makes a waiter a holder and returns its fence: the revision of the grant (LO3).
    fn grant_place(&mut self, waiter: &LockPlace, effects: &mut Effects) -> u64 {
        let name = waiter.name().clone();
        let mut fence = self.revise(effects);
        if effects.granted.iter().any(|granted| granted.name == name && granted.fence == fence) {
            // Two holders of a semaphore never have the same fence.
            fence = self.keys.raise_revision(1);
            effects.revision = Some(fence);
        }
        seam!(self, FenceIsOrder => fence = match waiter.standing() {
            Standing::Waiter { order } => order,
            Standing::Holder { fence } => fence,
        });
        self.locks.remove(waiter);
        let key = PlaceKey { name: name.clone(), standing: Standing::Holder { fence } };
        self.locks.add(LockPlace { key, since: self.log_time, waits_with: None, ..waiter.clone() });
        let change = LockChange::Granted { lease: waiter.lease, value: waiter.value.clone() };
        self.lock_event(&name, fence, change, effects);
        effects.granted.push(GrantedLock { name, lease: waiter.lease, fence });
        fence
    }

    fn lock_event(&mut self, name: &LockName, fence: u64, change: LockChange, effects: &mut Effects) {
        let revision = self.revise(effects);
        seam!(self, LockEventsMissing => return);
        effects.events.push((revision, EventChange::Lock(LockEvent { name: name.clone(), fence, change })));
    }

    /// Grants free permits to the first waiters, in the entry that made them free (LO4).
    fn hand_over(&mut self, name: &LockName, effects: &mut Effects) {
        loop {
            let Some(lock) = self.locks.get(name) else { return };
            if !lock.is_free(self.log_time, self.mutation) {
                return;
            }
            let Some(waiter) = self.next_waiter(name) else {
                return self.locks.drop_unused(name);
            };
            self.grant_place(&waiter, effects);
        }
    }

    fn next_waiter(&self, name: &LockName) -> Option<Arc<LockPlace>> {
        seam!(self, QueueReversed => return {
            let waiters = self.locks.places_of(name).filter(|place| place.fence().is_none());
            waiters.last().cloned()
        });
        self.locks.first_waiter(name).cloned()
    }

    pub(super) fn release(&mut self, release: &Release, effects: &mut Effects) -> Result<Response, Reason> {
        let name = &release.name;
        let place = match release.place {
            Place::Lease(lease) => self.locks.place(name, lease),
            Place::Fence(fence) => self.locks.holder(name, fence),
        };
        let place = place.ok_or(Reason::NotHeld)?.clone();
        self.leave(&place, effects);
        self.hand_over(name, effects);
        self.locks.drop_unused(name);
        Ok(Response::Released { fence: place.fence() })
    }

    /// Removes a place.
    fn leave(&mut self, place: &LockPlace, effects: &mut Effects) {
        self.locks.remove(place);
        effects.left.push(LeftPlace { name: place.name().clone(), lease: place.lease });
        if let Some(fence) = place.fence() {
            self.lock_event(place.name(), fence, LockChange::Released, effects);
        }
    }

    /// Removes all places of an ended lease and hands its locks over, or delays them (LO4, LO7).
    pub(super) fn end_places(&mut self, lease: LeaseId, effects: &mut Effects) {
        // First and all together, so that no lock is handed over to one of them.
        let waiters = self.waiters_of_ended(lease);
        waiters.iter().for_each(|place| self.leave(place, effects));
        for place in waiters {
            self.hand_over(place.name(), effects);
            self.locks.drop_unused(place.name());
        }
        seam!(self, LeasePlacesStay => return);
        for place in self.locks.places_of_lease(lease) {
            self.leave(&place, effects);
            let name = place.name();
            if place.fence().is_some() && !place.delay.is_zero() {
                let until = self.log_time + place.delay;
                let known = self.locks.get(name).and_then(|lock| lock.delayed_until);
                self.locks.set_delay(name, Some(known.map_or(until, |known| known.max(until))));
            }
            self.hand_over(name, effects);
            self.locks.drop_unused(name);
        }
    }

    fn waiters_of_ended(&self, lease: LeaseId) -> Vec<Arc<LockPlace>> {
        seam!(self, SecondLeaseIgnored => return Vec::new());
        self.locks.places_waiting_with(lease)
    }

    pub(super) fn end_delay(&mut self, at: Position, end: &EndDelay, effects: &mut Effects) -> Result<(), NotEnded> {
        let until = self.locks.get(&end.name).and_then(|lock| lock.delayed_until).ok_or(NotEnded::NotDelayed)?;
        self.check_leader_epoch(at, end.epoch)?;
        if self.log_time < until {
            return Err(NotEnded::TooEarly);
        }
        self.locks.set_delay(&end.name, None);
        self.hand_over(&end.name, effects);
        self.locks.drop_unused(&end.name);
        Ok(())
    }

    pub(super) fn proclaim(&mut self, proclaim: &Proclaim, effects: &mut Effects) -> Result<Response, Reason> {
        let (found, max) = (proclaim.value.len() as u64, self.limits.coordination.lock_value_bytes);
        if found > max {
            return Err(Reason::OutOfRange { field: Field::Value, found, min: 0, max });
        }
        let place = self.locks.holder(&proclaim.name, proclaim.fence).ok_or(Reason::NotHeld)?.clone();
        if place.value != proclaim.value {
            self.locks.set_value(&place, proclaim.value.clone());
            let change = LockChange::Proclaimed { value: proclaim.value.clone() };
            self.lock_event(&proclaim.name, proclaim.fence, change, effects);
        }
        Ok(Response::Proclaimed)
    }
}
