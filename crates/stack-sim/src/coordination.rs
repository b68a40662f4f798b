//! Checks of locks, elections and watches of a completed run, against the history of the log.

use crate::lockers::{Belief, ELECTION, GuardedWrite, LEASE_TTL, LOCKS, lock_name};
use crate::members::MEMBER_LOCK;
use crate::outsiders;
use crate::record::Record;
use convoke_log::command::LockName;
use convoke_log::history::{EventChange, EventPosition, LockChange, LockEvent};
use convoke_log::machine::Machine;
use std::collections::BTreeMap;

/// A jump of a node's clock breaks the assumption about clock rates for leases that the jump shortened.
const AFTER_JUMP: u64 = 2 * LEASE_TTL.as_micros() as u64;

/// A change of the election: its revision, and the fence and value of the leader.
pub(crate) type Observed = (u64, Option<(u64, Vec<u8>)>);
/// A change of a key: its revision, the key, and whether it was put.
pub(crate) type Watched = (u64, Vec<u8>, bool);

impl Record {
    /// Records what a client was certain of. The lock may end at any time after that.
    pub(crate) fn held(&mut self, client: u64, belief: Belief, certain: bool) {
        let Belief { lock, fence, from, until } = belief;
        let at = if is_excused(&belief, &self.jumps) { from } else { until };
        self.coordination.may_end(client, lock_name(lock), fence, at);
        self.beliefs.extend(certain.then_some(belief));
    }
}

/// Whether a jump of a clock may have shortened the lease.
fn is_excused(belief: &Belief, jumps: &[u64]) -> bool {
    jumps.iter().any(|jump| *jump <= belief.until && belief.until - jump <= AFTER_JUMP)
}

/// All checks by name; the first that fails is the finding.
pub(crate) fn check(record: &Record, machine: &Machine) -> Result<Vec<(&'static str, u64)>, String> {
    let mut done = Vec::new();
    if machine.history().oldest() > 1 {
        return Err(format!("history is complete: it starts at revision {}", machine.history().oldest()));
    }
    for lock in 0..LOCKS {
        let terms = terms(machine, &LockName::lock(lock_name(lock)));
        one_holder(&terms).map_err(|what| format!("one holder at a time: {}: {what}", lock_name(lock)))?;
        done.push(("one holder at a time", terms.len() as u64));
        let guarded: Vec<_> = record.guarded.iter().filter(|write| write.lock == lock).copied().collect();
        within(&guarded, &terms).map_err(|what| format!("guarded writes: {}: {what}", lock_name(lock)))?;
        done.push(("guarded writes", guarded.len() as u64));
        let beliefs: Vec<_> = record.beliefs.iter().filter(|belief| belief.lock == lock).copied().collect();
        certain(&beliefs, &terms, &record.jumps)
            .map_err(|what| format!("certain holders: {}: {what}", lock_name(lock)))?;
        done.push(("certain holders", beliefs.len() as u64));
    }
    let terms = terms(machine, &LockName::lock(MEMBER_LOCK));
    one_holder(&terms).map_err(|what| format!("one holder at a time: {MEMBER_LOCK}: {what}"))?;
    done.push(("one holder at a time", terms.len() as u64));
    let (watched, keys) = (&record.watched, key_events(machine));
    same(watched, &keys).map_err(|what| format!("watches receive each change once: {what}"))?;
    done.push(("watches receive each change once", keys.len() as u64));
    let changes = leaders(machine);
    observed(&record.observed, &changes).map_err(|what| format!("observers receive each change once: {what}"))?;
    done.push(("observers receive each change once", changes.len() as u64));
    done.push(("watches at nodes without a replica", outsiders::check(record, machine)?));
    Ok(done)
}

/// Revision of the release of each fence of a lock; `u64::MAX` if the lock is still held.
type Terms = BTreeMap<u64, u64>;

fn lock_events(machine: &Machine, name: &LockName) -> Vec<(u64, LockEvent)> {
    let events = machine.history().events_from(EventPosition::start_of(1));
    let of_lock = events.filter_map(|event| match &event.change {
        EventChange::Lock(lock) if lock.name == *name => Some((event.position.revision, lock.clone())),
        _ => None,
    });
    of_lock.collect()
}

fn terms(machine: &Machine, name: &LockName) -> Terms {
    let mut terms = Terms::new();
    for (revision, event) in lock_events(machine, name) {
        match event.change {
            LockChange::Granted { .. } => terms.insert(event.fence, u64::MAX),
            LockChange::Released => terms.insert(event.fence, revision),
            LockChange::Proclaimed { .. } => None,
        };
    }
    terms
}

/// A lock is released before it is granted again.
fn one_holder(terms: &Terms) -> Result<(), String> {
    let mut before: Option<(u64, u64)> = None;
    for (&fence, &released) in terms {
        if let Some((earlier, until)) = before
            && fence < until
        {
            return Err(format!("fence {fence} was granted while fence {earlier} held it until {until}"));
        }
        before = Some((fence, released));
    }
    Ok(())
}

/// A guarded write took effect while its fence held the lock.
fn within(writes: &[GuardedWrite], terms: &Terms) -> Result<(), String> {
    for GuardedWrite { fence, revision, .. } in writes {
        let Some(released) = terms.get(fence) else { return Err(format!("fence {fence} was never granted")) };
        if revision < fence || revision > released {
            return Err(format!("a write with fence {fence}, released at {released}, took effect at {revision}"));
        }
    }
    Ok(())
}

/// No two clients are certain to hold a lock at the same time, and the later one has the higher fence.
fn certain(beliefs: &[Belief], terms: &Terms, jumps: &[u64]) -> Result<(), String> {
    let mut beliefs = beliefs.to_vec();
    beliefs.sort_unstable_by_key(|belief| belief.fence);
    for pair in beliefs.windows(2) {
        let (one, next) = (pair[0], pair[1]);
        if !terms.contains_key(&one.fence) {
            return Err(format!("fence {} was never granted", one.fence));
        }
        if next.from < one.until && !is_excused(&one, jumps) {
            let by = one.until - next.from;
            return Err(format!("fence {} was certain for {by} us after fence {} was granted", one.fence, next.fence));
        }
    }
    Ok(())
}

fn key_events(machine: &Machine) -> Vec<Watched> {
    let events = machine.history().events_from(EventPosition::start_of(1));
    let keys = events.filter_map(|event| {
        let key = event.change.key()?.to_vec();
        Some((event.position.revision, key, event.change.record().is_some()))
    });
    keys.collect()
}

/// Revisions at which a key changed.
pub(crate) fn key_revisions(machine: &Machine) -> u64 {
    let mut revisions: Vec<u64> = key_events(machine).into_iter().map(|(revision, ..)| revision).collect();
    revisions.dedup();
    revisions.len() as u64
}

/// Returns whether the watches and the observer have received everything.
pub(crate) fn caught_up(record: &Record, machine: &Machine) -> bool {
    let watched = record.watched.last().map(|(revision, ..)| *revision);
    let keys = key_events(machine).last().map(|(revision, ..)| *revision);
    let observed = record.observed.last().map(|(revision, _)| *revision);
    let leader = leaders(machine).last().map(|(revision, _)| *revision);
    watched >= keys && observed >= leader && outsiders::caught_up(record, machine)
}

fn same(watched: &[Watched], expected: &[Watched]) -> Result<(), String> {
    if let Some(at) = (0..watched.len().max(expected.len())).find(|at| watched.get(*at) != expected.get(*at)) {
        return Err(format!("event {at} is {:?} instead of {:?}", watched.get(at), expected.get(at)));
    }
    Ok(())
}

/// The changes of the election: at most one for each revision.
fn leaders(machine: &Machine) -> Vec<Observed> {
    let mut changes: Vec<Observed> = Vec::new();
    for (revision, event) in lock_events(machine, &LockName::election(ELECTION)) {
        let leader = match event.change {
            LockChange::Granted { value, .. } | LockChange::Proclaimed { value } => Some((event.fence, value.to_vec())),
            LockChange::Released => None,
        };
        changes.pop_if(|(before, _)| *before == revision);
        if changes.last().and_then(|(_, leader)| leader.clone()) != leader {
            changes.push((revision, leader));
        }
    }
    changes
}

/// The first observed change is the state at the start.
fn observed(observed: &[Observed], changes: &[Observed]) -> Result<(), String> {
    let Some((start, first)) = observed.first() else { return Err("nothing was observed".to_owned()) };
    let state = changes.iter().rfind(|(revision, _)| revision <= start).and_then(|(_, leader)| leader.clone());
    if *first != state {
        return Err(format!("the observer started with {first:?} at revision {start} instead of {state:?}"));
    }
    let later: Vec<_> = changes.iter().filter(|(revision, _)| revision > start).collect();
    if let Some(at) =
        (0..later.len().max(observed.len() - 1)).find(|at| later.get(*at).copied() != observed.get(at + 1))
    {
        return Err(format!("change {at} is {:?} instead of {:?}", observed.get(at + 1), later.get(at)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms_of(pairs: &[(u64, u64)]) -> Terms {
        pairs.iter().copied().collect()
    }

    #[test]
    fn two_holders_at_once_are_noticed() {
        assert_eq!(one_holder(&terms_of(&[(3, 5), (5, 9), (12, u64::MAX)])), Ok(()));
        assert!(one_holder(&terms_of(&[(3, 6), (5, 9)])).is_err());
    }

    #[test]
    fn a_write_of_a_former_holder_is_noticed() {
        let write = |fence, revision| GuardedWrite { lock: 0, fence, revision };
        let terms = terms_of(&[(3, 6), (6, u64::MAX)]);
        assert_eq!(within(&[write(3, 4), write(6, 8)], &terms), Ok(()));
        assert!(within(&[write(3, 7)], &terms).is_err());
        assert!(within(&[write(4, 7)], &terms).is_err(), "never granted");
    }

    #[test]
    fn overlapping_certainty_is_noticed_except_after_a_jump_of_a_clock() {
        let belief = |fence, from, until| Belief { lock: 0, fence, from, until };
        let terms = terms_of(&[(3, 6), (6, u64::MAX)]);
        assert_eq!(certain(&[belief(6, 50, 60), belief(3, 10, 50)], &terms, &[]), Ok(()));
        assert!(certain(&[belief(3, 10, 51), belief(6, 50, 60)], &terms, &[]).is_err());
        assert_eq!(certain(&[belief(3, 10, 51), belief(6, 50, 60)], &terms, &[40]), Ok(()));
    }

    #[test]
    fn a_missing_or_repeated_event_is_noticed() {
        let event = |revision| (revision, b"a".to_vec(), true);
        assert_eq!(same(&[event(1), event(2)], &[event(1), event(2)]), Ok(()));
        assert!(same(&[event(1)], &[event(1), event(2)]).is_err());
        assert!(same(&[event(1), event(1)], &[event(1)]).is_err());
        let leader = |revision, fence| (revision, Some((fence, Vec::new())));
        assert_eq!(observed(&[(1, None), leader(4, 4)], &[leader(4, 4)]), Ok(()));
        assert!(observed(&[(1, None)], &[leader(4, 4)]).is_err());
        assert!(observed(&[leader(5, 5)], &[leader(4, 4)]).is_err());
    }
}
