//! Evidence of what each replica has acknowledged, so that a disk that went back in time is noticed (M6).
//!
//! A leader knows how far each replica has stored its log, and adds this to every message. Replicas keep it for each
//! other. A replica that later has less than it acknowledged has lost data, and must neither vote nor acknowledge.

use crate::raft::{LeaderId, Vote};
use crate::state_hashes::StateHashes;
use convoke_log::codec::{CodecError, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Replicas in one table.
const REPLICAS_MAX: u64 = 1024;

/// The data that a replica has acknowledged. Indexes count from 1; 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The newest leader that it followed, or that it was.
    pub(crate) leader: LeaderId,
    /// The highest index that it stored under that leader.
    pub(crate) matched: u64,
    /// The highest index that it stored and that was committed.
    pub(crate) committed: u64,
}

/// A contradiction between what a replica has and what it acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RolledBack {
    has: u64,
    acknowledged: u64,
    term: u64,
}

impl fmt::Display for RolledBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RolledBack { has, acknowledged, term } = self;
        write!(f, "its log ends at entry {has}, but it acknowledged entry {acknowledged} in term {term}")
    }
}

impl Seen {
    /// Combines two observations of one replica. A later leader may have truncated entries that were not committed.
    fn merge(&mut self, other: Seen) -> bool {
        let before = *self;
        match other.leader.cmp(&self.leader) {
            std::cmp::Ordering::Greater => (self.leader, self.matched) = (other.leader, other.matched),
            std::cmp::Ordering::Equal => self.matched = self.matched.max(other.matched),
            std::cmp::Ordering::Less => {}
        }
        self.committed = self.committed.max(other.committed);
        *self != before
    }

    /// Compares with what the replica has now: its vote, and the index up to which it has entries or state.
    pub(crate) fn check(&self, vote: Option<Vote>, has: u64) -> Result<(), RolledBack> {
        let followed = vote.map(|vote| vote.leader_id);
        let is_older = followed.is_none_or(|followed| followed < self.leader);
        let lost = is_older || (followed == Some(self.leader) && has < self.matched) || has < self.committed;
        let acknowledged = if followed > Some(self.leader) { self.committed } else { self.matched.max(self.committed) };
        if lost { Err(RolledBack { has, acknowledged, term: self.leader.term }) } else { Ok(()) }
    }

    /// Compares with the last entry that a candidate names. Its vote is that of its candidacy.
    pub(crate) fn check_candidate(&self, has: u64) -> Result<(), RolledBack> {
        if has < self.committed {
            return Err(RolledBack { has, acknowledged: self.committed, term: self.leader.term });
        }
        Ok(())
    }
}

/// The evidence that this replica has, and what its leader reports besides.
#[derive(Debug, Default)]
pub(crate) struct AcknowledgementTable {
    seen: Mutex<BTreeMap<u64, Seen>>,
    /// Whether the evidence has changed since it was last saved.
    unsaved: AtomicBool,
    /// Whether the leader commits nothing although entries wait.
    stalled: AtomicBool,
    /// Replicas that the leader does not reach.
    unreachable: Mutex<BTreeSet<u64>>,
    /// Replicas to which this leader could not connect at the last attempt.
    refused: Mutex<BTreeSet<u64>>,
    pub(crate) hashes: Arc<StateHashes>,
}

impl AcknowledgementTable {
    pub(crate) fn new(hashes: Arc<StateHashes>) -> Self {
        AcknowledgementTable { hashes, ..AcknowledgementTable::default() }
    }

    pub(crate) fn of(&self, replica: u64) -> Option<Seen> {
        self.lock().get(&replica).copied()
    }

    pub(crate) fn all(&self) -> Vec<(u64, Seen)> {
        self.lock().iter().map(|(replica, seen)| (*replica, *seen)).collect()
    }

    pub(crate) fn record(&self, replica: u64, seen: Seen) {
        let mut table = self.lock();
        let is_full = table.len() as u64 >= REPLICAS_MAX;
        let changed = match table.get_mut(&replica) {
            Some(known) => known.merge(seen),
            None if is_full => false,
            None => table.insert(replica, seen).is_none(),
        };
        if changed {
            self.unsaved.store(true, Ordering::Relaxed);
        }
    }

    /// Drops replicas that are no longer in the group. Their ids never return (M2).
    pub(crate) fn retain(&self, is_member: impl Fn(u64) -> bool) {
        self.lock().retain(|replica, _| is_member(*replica));
    }

    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.stalled.store(stalled, Ordering::Relaxed);
    }

    pub(crate) fn set_unreachable(&self, replicas: BTreeSet<u64>) {
        *self.unreachable.lock().unwrap_or_else(PoisonError::into_inner) = replicas;
    }

    pub(crate) fn unreachable(&self) -> BTreeSet<u64> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records whether the last attempt to connect to a replica failed.
    pub(crate) fn set_refused(&self, replica: u64, is_refused: bool) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if is_refused {
            refused.insert(replica);
        } else {
            refused.remove(&replica);
        }
    }

    pub(crate) fn refused(&self) -> BTreeSet<u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets these attempts: this replica does not lead.
    pub(crate) fn clear_refused(&self) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// Returns the table if it has changed since the last call.
    pub(crate) fn take_unsaved(&self) -> Option<Vec<u8>> {
        self.unsaved.swap(false, Ordering::Relaxed).then(|| {
            let mut w = Writer::default();
            put_table(&mut w, &self.all());
            w.into_bytes()
        })
    }

    /// Adds a saved table.
    pub(crate) fn load(&self, bytes: &[u8]) -> Result<(), CodecError> {
        let mut r = Reader::new(bytes);
        let table = table(&mut r)?;
        r.end()?;
        for (replica, seen) in table {
            self.record(replica, seen);
        }
        self.unsaved.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn put_seen(w: &mut Writer, seen: &Seen) {
    crate::codec::put_leader(w, &seen.leader);
    w.varint(seen.matched);
    w.varint(seen.committed);
}

pub(crate) fn seen(r: &mut Reader<'_>) -> Result<Seen, CodecError> {
    Ok(Seen { leader: crate::codec::leader(r)?, matched: r.counter("matched")?, committed: r.counter("committed")? })
}

pub(crate) fn put_table(w: &mut Writer, table: &[(u64, Seen)]) {
    w.count(table.len());
    for (replica, seen) in table {
        w.varint(*replica);
        put_seen(w, seen);
    }
}

pub(crate) fn table(r: &mut Reader<'_>) -> Result<Vec<(u64, Seen)>, CodecError> {
    (0..r.count("evidence", 5, REPLICAS_MAX)?).map(|_| Ok((r.varint("replica")?, seen(r)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(term: u64) -> LeaderId {
        LeaderId { term, node_id: 1 }
    }

    fn vote(term: u64) -> Option<Vote> {
        Some(Vote { leader_id: leader(term), committed: true })
    }

    #[test]
    fn m6_less_than_was_acknowledged_is_noticed_and_truncation_is_not() {
        let seen = Seen { leader: leader(3), matched: 20, committed: 15 };
        assert_eq!(seen.check(vote(3), 20), Ok(()));
        assert_eq!(seen.check(vote(3), 25), Ok(()));
        // A cut tail, and an older image.
        assert!(seen.check(vote(3), 19).is_err());
        assert!(seen.check(vote(2), 20).is_err());
        assert!(seen.check(None, 0).is_err());
        // A later leader may truncate entries that were not committed, and no others.
        assert_eq!(seen.check(vote(4), 15), Ok(()));
        let lost = seen.check(vote(4), 14).unwrap_err();
        assert_eq!(lost.to_string(), "its log ends at entry 14, but it acknowledged entry 15 in term 3");
        // A candidate names its last entry only.
        assert_eq!(seen.check_candidate(15), Ok(()));
        assert!(seen.check_candidate(14).is_err());
    }

    #[test]
    fn m6_evidence_grows_follows_the_newest_leader_and_survives_on_disk() {
        let acknowledgements = AcknowledgementTable::default();
        acknowledgements.record(2, Seen { leader: leader(3), matched: 20, committed: 15 });
        acknowledgements.record(2, Seen { leader: leader(2), matched: 90, committed: 10 });
        acknowledgements.record(2, Seen { leader: leader(3), matched: 18, committed: 17 });
        assert_eq!(acknowledgements.of(2), Some(Seen { leader: leader(3), matched: 20, committed: 17 }));
        acknowledgements.record(2, Seen { leader: leader(4), matched: 18, committed: 0 });
        let newest = Seen { leader: leader(4), matched: 18, committed: 17 };
        assert_eq!(acknowledgements.of(2), Some(newest));
        let saved = acknowledgements.take_unsaved().unwrap();
        assert_eq!(acknowledgements.take_unsaved(), None);
        let after_restart = AcknowledgementTable::default();
        after_restart.load(&saved).unwrap();
        assert_eq!((after_restart.all(), after_restart.take_unsaved()), (vec![(2, newest)], None));
        assert!(after_restart.load(&saved[..saved.len() - 1]).is_err());
        acknowledgements.retain(|replica| replica != 2);
        assert_eq!(acknowledgements.of(2), None);
    }
}
