//! One service of the view: its ids in order and its counts of up, down and drained members.

use convoke_core::member::{Health, Member, Status};
use convoke_core::node::is_mass_failure;
use imbl::OrdSet;
use smol_str::SmolStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts as in `convoke services`: a drained member that is up counts as drained only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) up: usize,
    pub(super) down: usize,
    pub(super) drained: usize,
    /// Of those in `up`.
    pub(super) critical: usize,
}

impl Counts {
    fn add(&mut self, member: &Member) {
        *self.of(member) += 1;
        self.critical += usize::from(is_critical(member));
    }

    fn remove(&mut self, member: &Member) {
        *self.of(member) -= 1;
        self.critical -= usize::from(is_critical(member));
    }

    /// Whether so many members are critical that all are routable (HC6).
    pub(super) fn panics(&self, share: f64) -> bool {
        is_mass_failure(self.up, self.critical, share)
    }

    fn of(&mut self, member: &Member) -> &mut usize {
        match member.status() {
            Status::Up if member.drained() => &mut self.drained,
            Status::Up => &mut self.up,
            Status::Down | Status::Left => &mut self.down,
        }
    }
}

/// Critical among the members that could be routable.
fn is_critical(member: &Member) -> bool {
    member.status() == Status::Up && !member.drained() && member.health() == Health::Critical
}

/// Ids and counts at one moment. Clones share the ids.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) ids: OrdSet<SmolStr>,
    pub(super) counts: Counts,
}

/// The state of a service, shared by the event loop and readers.
///
/// The lock is held for the change of one member, or to clone the state, which copies a pointer. So a reader never waits for a turn
/// of the event loop. As long as nobody reads, the event loop changes the ids in place; after a read, it copies the few nodes that
/// it changes.
#[derive(Debug, Default)]
pub(super) struct Service(Mutex<State>);

impl Service {
    pub(super) fn load(&self) -> State {
        self.lock().clone()
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(super) fn enter(&self, member: &Member) {
        let mut state = self.lock();
        state.ids.insert(member.shared_id().clone());
        state.counts.add(member);
    }

    /// Returns whether the service has no members any more.
    pub(super) fn leave(&self, member: &Member) -> bool {
        let mut state = self.lock();
        state.ids.remove(member.id());
        state.counts.remove(member);
        state.ids.is_empty()
    }

    /// Counts a member of the service whose status or health has changed.
    pub(super) fn recount(&self, old: &Member, new: &Member) {
        let counts = &mut self.lock().counts;
        counts.remove(old);
        counts.add(new);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
