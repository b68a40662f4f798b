//! Clients that wait for the next change of a place in a lock (LO9).

use crate::command::{LeaseId, LockName};
use crate::locks::LockPlace;
use crate::machine::{Applied, Machine};
use crate::mutant::{Mutation, seam};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a lease in a lock.
pub type PlaceOf = (LockName, LeaseId);

/// What the place of a lease in a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    Held {
        fence: u64,
    },
    Waiting,
    /// The lease neither holds the lock nor waits for it.
    None,
}

impl PlaceState {
    pub fn of(machine: &Machine, (name, lease): &PlaceOf) -> Self {
        match machine.place(name, *lease).map(LockPlace::fence) {
            Some(Some(fence)) => PlaceState::Held { fence },
            Some(None) => PlaceState::Waiting,
            None => PlaceState::None,
        }
    }
}

/// The clients that wait at a leader, by place. `T` is what the caller needs to answer: usually a channel.
#[derive(Clone, Debug)]
pub struct AwaitedPlaces<T> {
    mutation: Mutation,
    tickets: u64,
    waiting: BTreeMap<PlaceOf, BTreeMap<u64, T>>,
    count: usize,
}

/// A client that waits. Cancel it when the client is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitTicket {
    place: PlaceOf,
    number: u64,
}

/// Too many clients wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitFull;

impl<T> AwaitedPlaces<T> {
    pub fn new(mutation: Mutation) -> Self {
        AwaitedPlaces { mutation, tickets: 0, waiting: BTreeMap::new(), count: 0 }
    }

    /// Adds a client that waits for the next change of a place, unless `limit` clients wait already. The caller has
    /// compared the place before, in the same state.
    pub fn add(&mut self, place: PlaceOf, client: T, limit: usize) -> Result<AwaitTicket, AwaitFull> {
        if self.count >= limit {
            return Err(AwaitFull);
        }
        self.tickets += 1;
        let number = self.tickets;
        self.waiting.entry(place.clone()).or_default().insert(number, client);
        self.count += 1;
        Ok(AwaitTicket { place, number })
    }

    /// Removes a client that no longer waits.
    pub fn cancel(&mut self, ticket: &AwaitTicket) {
        let Some(clients) = self.waiting.get_mut(&ticket.place) else { return };
        if clients.remove(&ticket.number).is_some() {
            self.count -= 1;
        }
        if clients.is_empty() {
            self.waiting.remove(&ticket.place);
        }
    }

    /// Removes and returns the clients whose places an entry changed, with their new places. A hand-over wakes the
    /// client that left and the one that got the permit, and nobody else.
    pub fn applied(&mut self, applied: &Applied, machine: &Machine) -> Vec<(T, PlaceState)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut changed: BTreeSet<PlaceOf> = BTreeSet::new();
        changed.extend(applied.granted.iter().map(|granted| (granted.name.clone(), granted.lease)));
        changed.extend(self.left(applied));
        let woken = changed.into_iter().filter_map(|place| {
            let clients = self.waiting.remove(&place)?;
            self.count -= clients.len();
            let state = PlaceState::of(machine, &place);
            Some(clients.into_values().map(move |client| (client, state)))
        });
        woken.flatten().collect()
    }

    fn left(&self, applied: &Applied) -> Vec<PlaceOf> {
        seam!(self, LossNotReported => return Vec::new());
        applied.left.iter().map(|left| (left.name.clone(), left.lease)).collect()
    }

    /// Returns the number of clients that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
