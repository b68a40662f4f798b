//! Hashes of the state at equal indexes, which replicas compare while they run (LH6).
//!
//! The leader names an index that its log does not contain yet, so that every message with this entry names it too. Each
//! replica keeps its state after this entry and computes the hash outside of apply. A follower compares its hash with
//! the hash that the leader sends with later entries.

use crate::mutant::{Mutation, seam};
use convoke_log::Machine;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The hash of the state after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateHash {
    /// Counted from 1.
    pub(crate) index: u64,
    pub(crate) hash: u128,
}

/// A difference between this replica and its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) index: u64,
    pub(crate) own: u128,
    pub(crate) leader: u128,
}

#[derive(Debug, Default)]
pub(crate) struct StateHashes {
    /// The index of the next hash; 0 for none. Apply reads it for every entry, so it is not behind the lock.
    wanted: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// A state whose hash is not computed yet.
    state: Option<Arc<Machine>>,
    own: Option<StateHash>,
    leader: Option<StateHash>,
    divergence: Option<Divergence>,
    compared: Option<u64>,
}

impl StateHashes {
    /// Returns the index of the next hash; 0 for none.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// Names the index of the next hash. An older index has no effect.
    pub(crate) fn want(&self, index: u64) {
        self.wanted.fetch_max(index, Ordering::AcqRel);
    }

    /// Keeps the state after an entry if its hash is wanted.
    pub(crate) fn applied(&self, index: u64, state: impl FnOnce() -> Arc<Machine>) {
        if index == self.wanted() {
            self.lock().state = Some(state());
        }
    }

    /// Computes the hash of a state that was kept.
    pub(crate) fn compute(&self, mutation: Mutation) -> Option<Divergence> {
        let state = self.lock().state.take()?;
        let mut own = StateHash { index: state.applied().index, hash: state.state_hash() };
        seam!(in mutation, StateDiffers => own.hash ^= 1);
        self.lock().compare(Some(own), None)
    }

    /// Compares the hash of the leader with the one of this replica.
    pub(crate) fn compare(&self, leader: StateHash) -> Option<Divergence> {
        self.lock().compare(None, Some(leader))
    }

    /// Returns the last hash of this replica.
    pub(crate) fn last(&self) -> Option<StateHash> {
        self.lock().own
    }

    /// Returns the last index at which this replica and its leader were compared.
    pub(crate) fn compared(&self) -> Option<u64> {
        self.lock().compared
    }

    /// Returns the difference that was found first. It does not end: a replica that differs must be replaced.
    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.lock().divergence
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Returns a difference if it is new.
    fn compare(&mut self, own: Option<StateHash>, leader: Option<StateHash>) -> Option<Divergence> {
        self.own = own.or(self.own);
        self.leader = leader.or(self.leader);
        let (own, leader) = (self.own?, self.leader?);
        if own.index != leader.index || Some(own.index) <= self.compared {
            return None;
        }
        self.compared = Some(own.index);
        if self.divergence.is_some() || own.hash == leader.hash {
            return None;
        }
        self.divergence = Some(Divergence { index: own.index, own: own.hash, leader: leader.hash });
        self.divergence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_log::LogLimits;

    #[test]
    fn lh6_a_difference_at_an_equal_index_is_found_once_and_kept() {
        let state = || Arc::new(Machine::new(LogLimits::default()).unwrap());
        let index = state().applied().index;
        let computed = || {
            let hashes = StateHashes::default();
            hashes.want(3);
            hashes.applied(2, || unreachable!("not wanted"));
            hashes.applied(3, state);
            assert_eq!(hashes.compute(Mutation::none()), None, "the leader has sent no hash");
            hashes
        };
        let hashes = computed();
        let own = hashes.last().unwrap();
        assert_eq!(own, StateHash { index, hash: state().state_hash() });
        assert_eq!((hashes.compare(own), hashes.compared()), (None, Some(index)), "equal");
        assert_eq!(hashes.compare(StateHash { index: index + 1, hash: 1 }), None, "another index");
        let hashes = computed();
        let other = StateHash { index, hash: own.hash ^ 1 };
        let found = Divergence { index, own: own.hash, leader: other.hash };
        assert_eq!(hashes.compare(other), Some(found));
        assert_eq!((hashes.compare(other), hashes.divergence()), (None, Some(found)));
    }
}
