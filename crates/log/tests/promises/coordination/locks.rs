//! The model of locks: plain lists.

use super::reference::{Model, ModelChange};
use bytes::Bytes;
use convoke_log::Epoch;
use convoke_log::command::{Acquire, EndDelay, LeaseId, LockName, Place, Proclaim, Release};
use convoke_log::history::{LockChange, LockEvent};
use convoke_log::machine::{Field, LockAnswer, NotEnded, Reason, Response};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelPlace {
    /// 0 for a waiter.
    pub(super) fence: u64,
    pub(super) lease: u64,
    pub(super) value: Bytes,
    pub(super) delay: u64,
    /// Second lease of a waiter; 0 for none.
    pub(super) waits_with: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelLock {
    pub(super) permits: u64,
    pub(super) holders: Vec<ModelPlace>,
    pub(super) queue: Vec<ModelPlace>,
    pub(super) delayed_until: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelLocks(pub(super) BTreeMap<LockName, ModelLock>);

impl ModelLock {
    fn places(&self) -> impl Iterator<Item = &ModelPlace> {
        self.holders.iter().chain(&self.queue)
    }
}

impl Model {
    pub(super) fn acquire(&mut self, _index: u64, acquire: &Acquire) -> Result<Response, Reason> {
        self.check(acquire)?;
        let (name, with) = (&acquire.name, acquire.waits_with.map_or(0, |lease| lease.0));
        let lock = self.locks.0.get(name).cloned();
        let newest = lock.iter().flat_map(|lock| &lock.holders).map(|holder| holder.fence).max().unwrap_or(0);
        let held = Err(Reason::LockHeld { fence: newest });
        let mine = lock.iter().flat_map(ModelLock::places).find(|place| place.lease == acquire.lease.0);
        match mine {
            Some(place) if place.fence > 0 => return Ok(Response::Lock(LockAnswer::Held { fence: place.fence })),
            Some(place) if acquire.wait => {
                if place.waits_with != with {
                    self.check_second_lease(with)?;
                }
                let lock = self.locks.0.get_mut(name).unwrap();
                let mine = lock.queue.iter_mut().find(|place| place.lease == acquire.lease.0).unwrap();
                mine.waits_with = with;
                return Ok(Response::Lock(LockAnswer::Waiting));
            }
            Some(_) => return held,
            None => {}
        }
        if let Some(lock) = lock.as_ref().filter(|lock| lock.permits != acquire.permits) {
            return Err(Reason::Permits { permits: lock.permits });
        }
        let is_free = lock.as_ref().is_none_or(|lock| {
            let is_delayed = lock.delayed_until.is_some_and(|until| self.log_time < until);
            (lock.holders.len() as u64) < lock.permits && lock.queue.is_empty() && !is_delayed
        });
        if !is_free && !acquire.wait {
            return held;
        }
        self.check_places(acquire, lock.as_ref(), is_free)?;
        if !is_free {
            self.check_second_lease(with)?;
        }
        let new = ModelLock { permits: acquire.permits, holders: Vec::new(), queue: Vec::new(), delayed_until: None };
        let lock = self.locks.0.entry(name.clone()).or_insert(new);
        let delay = acquire.delay.as_micros() as u64;
        let (lease, value) = (acquire.lease.0, acquire.value.clone());
        lock.queue.push(ModelPlace { fence: 0, lease, value, delay, waits_with: with });
        if !is_free {
            return Ok(Response::Lock(LockAnswer::Waiting));
        }
        lock.delayed_until = None;
        self.settle(name);
        Ok(Response::Lock(LockAnswer::Held { fence: self.revision }))
    }

    fn check(&self, acquire: &Acquire) -> Result<(), Reason> {
        let limits = &self.limits.coordination;
        for (field, found, min, max) in [
            (Field::Name, acquire.name.name.len() as u64, 1, self.limits.key_bytes),
            (Field::Permits, acquire.permits, 1, 1 << 20),
            (Field::Value, acquire.value.len() as u64, 0, limits.lock_value_bytes),
            (Field::Delay, acquire.delay.as_micros() as u64, 0, limits.lock_delay_max.as_micros() as u64),
        ] {
            if found < min || found > max {
                return Err(Reason::OutOfRange { field, found, min, max });
            }
        }
        for lease in [Some(acquire.lease), acquire.waits_with].into_iter().flatten() {
            if !self.leases.contains_key(&lease.0) {
                return Err(Reason::NoLease(lease));
            }
        }
        Ok(())
    }

    fn check_second_lease(&self, lease: u64) -> Result<(), Reason> {
        let limit = self.limits.coordination.places_per_lease;
        let all = self.locks.0.values().flat_map(|lock| &lock.queue);
        let count = all.filter(|place| lease > 0 && place.waits_with == lease).count() as u64;
        if count >= limit { Err(Reason::Full { field: Field::PlacesOfLease, limit }) } else { Ok(()) }
    }

    fn check_places(&self, acquire: &Acquire, lock: Option<&ModelLock>, is_free: bool) -> Result<(), Reason> {
        let limits = &self.limits.coordination;
        let waiters = lock.map_or(0, |lock| lock.queue.len() as u64);
        let all = || self.locks.0.values().flat_map(ModelLock::places);
        let own = all().filter(|place| place.lease == acquire.lease.0).count() as u64;
        if !is_free && waiters + 1 > limits.waiters {
            return Err(Reason::Full { field: Field::Waiters, limit: limits.waiters });
        }
        if own + 1 > limits.places_per_lease {
            return Err(Reason::Full { field: Field::PlacesOfLease, limit: limits.places_per_lease });
        }
        if all().count() as u64 + 1 > limits.places {
            return Err(Reason::Full { field: Field::Places, limit: limits.places });
        }
        Ok(())
    }

    /// Grants free permits in the order of the queue, and drops an unused lock.
    fn settle(&mut self, name: &LockName) {
        let mut granted = false;
        while let Some(lock) = self.locks.0.get_mut(name) {
            let is_delayed = lock.delayed_until.is_some_and(|until| self.log_time < until);
            if lock.queue.is_empty() || lock.holders.len() as u64 >= lock.permits || is_delayed {
                if lock.queue.is_empty() && lock.holders.is_empty() && lock.delayed_until.is_none() {
                    self.locks.0.remove(name);
                }
                return;
            }
            let mut place = lock.queue.remove(0);
            if granted {
                // A second grant of the lock in one entry has a revision of its own.
                self.entry_revision = None;
            }
            granted = true;
            let fence = self.revise();
            (place.fence, place.waits_with) = (fence, 0);
            let change = LockChange::Granted { lease: LeaseId(place.lease), value: place.value.clone() };
            self.locks.0.get_mut(name).unwrap().holders.push(place);
            self.lock_event(name, fence, change);
        }
    }

    fn lock_event(&mut self, name: &LockName, fence: u64, change: LockChange) {
        let revision = self.revise();
        self.changes.push((revision, ModelChange::Lock(LockEvent { name: name.clone(), fence, change })));
    }

    fn leave(&mut self, name: &LockName, is: impl Fn(&ModelPlace) -> bool) -> Option<ModelPlace> {
        let lock = self.locks.0.get_mut(name)?;
        if let Some(at) = lock.holders.iter().position(&is) {
            let place = lock.holders.remove(at);
            self.lock_event(name, place.fence, LockChange::Released);
            return Some(place);
        }
        let at = lock.queue.iter().position(is)?;
        Some(lock.queue.remove(at))
    }

    pub(super) fn release(&mut self, release: &Release) -> Result<Response, Reason> {
        let left = match release.place {
            Place::Lease(lease) => self.leave(&release.name, |place| place.lease == lease.0),
            Place::Fence(fence) => self.leave(&release.name, |place| place.fence > 0 && place.fence == fence),
        };
        let place = left.ok_or(Reason::NotHeld)?;
        self.settle(&release.name);
        Ok(Response::Released { fence: Some(place.fence).filter(|fence| *fence > 0) })
    }

    pub(super) fn proclaim(&mut self, proclaim: &Proclaim) -> Result<Response, Reason> {
        let (found, max) = (proclaim.value.len() as u64, self.limits.coordination.lock_value_bytes);
        if found > max {
            return Err(Reason::OutOfRange { field: Field::Value, found, min: 0, max });
        }
        let lock = self.locks.0.get_mut(&proclaim.name).ok_or(Reason::NotHeld)?;
        let holder = lock.holders.iter_mut().find(|holder| holder.fence == proclaim.fence).ok_or(Reason::NotHeld)?;
        if holder.value != proclaim.value {
            holder.value = proclaim.value.clone();
            self.lock_event(&proclaim.name, proclaim.fence, LockChange::Proclaimed { value: proclaim.value.clone() });
        }
        Ok(Response::Proclaimed)
    }

    pub(super) fn end_delay(&mut self, at: Epoch, end: &EndDelay) -> Result<(), NotEnded> {
        let lock = self.locks.0.get_mut(&end.name).filter(|lock| lock.delayed_until.is_some());
        let lock = lock.ok_or(NotEnded::NotDelayed)?;
        if end.epoch != at {
            return Err(NotEnded::StaleEpoch { current: at });
        }
        if lock.delayed_until.is_some_and(|until| self.log_time < until) {
            return Err(NotEnded::TooEarly);
        }
        lock.delayed_until = None;
        self.settle(&end.name);
        Ok(())
    }

    pub(super) fn end_places(&mut self, lease: LeaseId) {
        let names: Vec<LockName> = self.locks.0.keys().cloned().collect();
        for name in &names {
            let mut found = false;
            while self.leave(name, |place| place.waits_with == lease.0).is_some() {
                found = true;
            }
            if found {
                self.settle(name);
            }
        }
        for name in names {
            let Some(place) = self.leave(&name, |place| place.lease == lease.0) else { continue };
            if place.fence > 0 && place.delay > 0 {
                let until = self.log_time + place.delay;
                let lock = self.locks.0.get_mut(&name).unwrap();
                lock.delayed_until = Some(lock.delayed_until.map_or(until, |known| known.max(until)));
            }
            self.settle(&name);
        }
    }
}
