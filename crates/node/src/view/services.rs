//! One service of the view: its ids in order and its counts of up, down and drained members.

use arc_swap::{ArcSwap, Guard};
use convoke_core::member::{Member, Status};
use imbl::OrdSet;
use smol_str::SmolStr;
use std::sync::Arc;

/// Counts as in `convoke services`: a drained member that is up counts as drained only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) up: usize,
    pub(super) down: usize,
    pub(super) drained: usize,
}

impl Counts {
    pub(super) fn of(&mut self, member: &Member) -> &mut usize {
        match member.status() {
            Status::Up if member.drained() => &mut self.drained,
            Status::Up => &mut self.up,
            Status::Down | Status::Left => &mut self.down,
        }
    }
}

/// Ids and counts at one moment. Clones share the ids.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) ids: OrdSet<SmolStr>,
    pub(super) counts: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Service(ArcSwap<State>);

impl Service {
    pub(super) fn load(&self) -> Guard<Arc<State>> {
        self.0.load()
    }

    pub(super) fn store(&self, state: State) {
        self.0.store(Arc::new(state));
    }
}
