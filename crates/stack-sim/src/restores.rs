//! A restore of the log from a backup, while clients hold locks and watch (LO8).
//!
//! A client takes a backup and holds locks from before and after it. Then all nodes lose their disks, the backup is restored on
//! one of them, and the others are added again.

use crate::clients::ambassador;
use crate::lockers::{ELECTION, LEASE_TTL, lock_name};
use crate::node::{name, peer_address};
use crate::plan::Mutant;
use crate::record::Record;
use crate::world::Shared;
use convoke_client::log::{Acquire, Consistency, KeyValue, LeaseTerms, LockGuard, Locks, Options, Write};
use convoke_client::{Error, ErrorCode};
use convoke_log::machine::Machine;
use convoke_replica::{Mutation, offline};
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
/// Deadline for a holder to notice that the log, and its lock with it, is gone.
const LOSS_PATIENCE: Duration = Duration::from_secs(10);
/// Attempts of a write whose session may have ended.
const ATTEMPTS: usize = 5;
/// Written before and after the backup.
const KEPT: &str = "restored/kept";
const LOST: &str = "restored/lost";
const GUARDED: &str = "restored/guarded";

/// How far a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    NotBegun,
    /// The backup exists, and locks are held.
    Prepared,
    /// All nodes have lost their disks.
    Lost,
    /// One disk has the new log.
    Restored,
    /// The new log has a leader.
    Serving,
    /// The client has seen all that it expects.
    Checked,
}

/// The record of a restore.
#[derive(Debug, Default)]
pub(crate) struct Restoring {
    pub(crate) stage: Stage,
    backup: Vec<u8>,
    pub(crate) report: Option<offline::Report>,
    /// The highest revision and fence that a client of the lost log received.
    pub(crate) highest: u64,
    /// Revisions at which the watch of all keys and the observer of the election were reset.
    key_reset: Option<u64>,
    election_reset: Option<u64>,
    /// Changes that the watch received after its reset.
    changes: u64,
}

impl Restoring {
    /// Returns whether the client and both watchers have received everything.
    pub(crate) fn is_complete(&self) -> bool {
        self.stage == Stage::Checked && self.election_reset.is_some()
    }
}

/// The new log is another one and is ahead of everything that clients of the lost one have seen.
pub(crate) fn check_report(record: &Record, lost: u128) -> Result<(), String> {
    let Restoring { report, highest, .. } = &record.restoring;
    let Some(report) = report else { return Err("a backup is restored: it was not".to_owned()) };
    if report.log == lost {
        return Err("a restored log has another id: it has not".to_owned());
    }
    if report.revision <= *highest {
        let revision = report.revision;
        return Err(format!("fences grow over a restore: revision {revision} after fence or revision {highest}"));
    }
    Ok(())
}

/// Leases and locks of the lost log have ended. Ids of leases are indexes.
pub(crate) fn check_state(record: &Record, machine: &Machine) -> Result<(), String> {
    let applied = record.restoring.report.as_ref().map_or(0, |report| report.applied.index);
    if let Some(lease) = machine.leases().find(|lease| lease.id.0 <= applied) {
        return Err(format!("a restore ends leases and locks: lease {} is from before entry {applied}", lease.id.0));
    }
    if machine.lease_count() == 0 && machine.lock_count() > 0 {
        return Err("a restore ends leases and locks: a lock has no lease".to_owned());
    }
    Ok(())
}

/// Holds locks during a restore.
pub(crate) async fn hold(shared: Arc<Shared>) -> turmoil::Result {
    if let Err(what) = hold_through(&shared).await {
        shared.recorder.violated(what);
    }
    Ok(())
}

async fn hold_through(shared: &Shared) -> Result<(), String> {
    let failed = |error: Error| format!("clients go on after a restore: {error}");
    let ambassador = ambassador(shared).map_err(failed)?;
    let kv = ambassador.kv_with(Options::default().timeout(LOSS_PATIENCE));
    let locks = kv.locks().with_terms(LeaseTerms::ttl(LEASE_TTL));
    let elections = kv.elections().with_terms(LeaseTerms::ttl(LEASE_TTL));

    kv.put(KEPT, "1").await.map_err(failed)?;
    let first = locks.acquire(Acquire::new(lock_name(0))).await.map_err(failed)?;
    let leadership = elections.campaign(ELECTION, "before a restore").await.map_err(failed)?;
    let mut parts = ambassador.backup(Some(LOSS_PATIENCE)).await.map_err(failed)?;
    let mut backup = Vec::new();
    while let Some(part) = parts.message().await.map_err(|status| failed(status.into()))? {
        backup.extend_from_slice(&part.data);
    }
    // The log goes on: what follows is lost.
    let second = locks.acquire(Acquire::new(lock_name(1))).await.map_err(failed)?;
    let lost = kv.put(LOST, "1").await.map_err(failed)?;
    let guards = [first, second];
    {
        let mut record = shared.recorder.lock();
        let fences = guards.iter().map(LockGuard::fence).chain([leadership.fence()]);
        record.restoring.highest = fences.fold(lost.revision, u64::max);
        (record.restoring.backup, record.restoring.stage) = (backup, Stage::Prepared);
    }
    reached(shared, Stage::Serving).await;

    let all_lost = async {
        for guard in &guards {
            guard.lost().await;
        }
        leadership.lost().await;
    };
    if tokio::time::timeout(LOSS_PATIENCE, all_lost).await.is_err() || guards.iter().any(LockGuard::is_held) {
        return Err(format!("holders lose their locks by a restore: not within {LOSS_PATIENCE:?}"));
    }
    for guard in &guards {
        // A session of the lost log has ended; the next attempt opens another one.
        let mut codes = Vec::new();
        while codes.len() < ATTEMPTS && codes.last() != Some(&ErrorCode::FailedPrecondition) {
            match kv.write(guard.guard(Write::put(GUARDED, "1"))).await {
                Ok(_) => return Err(format!("fences of a lost log are rejected: {} was accepted", guard.fence())),
                Err(error) => codes.push(error.code),
            }
        }
        if codes.last() != Some(&ErrorCode::FailedPrecondition) {
            return Err(format!("fences of a lost log are rejected: the answers are {codes:?}"));
        }
    }
    for (key, expected) in [(KEPT, true), (LOST, false), (GUARDED, false)] {
        let found = kv.get_with(key, Consistency::Linearizable).await.map_err(failed)?;
        if found.is_some() != expected {
            return Err(format!("a restored log has the state of the backup: {key} is {found:?}"));
        }
    }
    acquire_again(shared, &locks).await?;
    // The watch may be reset after some of these.
    while shared.recorder.lock().restoring.changes == 0 {
        kv.put(KEPT, "2").await.map_err(failed)?;
        tokio::time::sleep(10 * PAUSE).await;
    }
    shared.recorder.lock().restoring.stage = Stage::Checked;
    // Guards of the lost log must not release anything of the new one.
    for guard in guards {
        guard.detach();
    }
    Ok(())
}

/// The locks are free, and their next fences are higher.
async fn acquire_again(shared: &Shared, locks: &Locks) -> Result<(), String> {
    let highest = shared.recorder.lock().restoring.highest;
    for lock in 0..2 {
        let guard = locks.acquire(Acquire::new(lock_name(lock)).wait(LOSS_PATIENCE)).await;
        let guard = guard.map_err(|error| format!("a restore ends leases and locks: {error}"))?;
        if guard.fence() <= highest {
            return Err(format!("fences grow over a restore: {} after {highest}", guard.fence()));
        }
    }
    Ok(())
}

async fn reached(shared: &Shared, stage: Stage) {
    while shared.recorder.lock().restoring.stage < stage {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Restores the backup on the empty disk of a node, with the code of `convoke log restore`.
pub(crate) async fn restore(shared: Arc<Shared>, place: usize) -> turmoil::Result {
    let backup = std::mem::take(&mut shared.recorder.lock().restoring.backup);
    let mutation = match shared.plan.has(Mutant::RestoredAsIs) {
        true => Mutation::of(convoke_replica::Mutant::RestoredAsIs),
        false => Mutation::none(),
    };
    let (node, disk) = (name(place), shared.disks[place].mount());
    let restored = offline::restore_on(disk, &node, &peer_address(&node), &mut Cursor::new(backup), mutation).await;
    match restored {
        Ok(report) => {
            let mut record = shared.recorder.lock();
            (record.restoring.report, record.restoring.stage) = (Some(report), Stage::Restored);
        }
        Err(error) => shared.recorder.violated(format!("a backup is restored: {error}")),
    }
    Ok(())
}

impl Record {
    /// The watch of all keys starts again, in another log.
    pub(crate) fn watch_reset(&mut self, revision: u64, records: &[KeyValue]) {
        let has = |key: &str| records.iter().any(|record| record.key == key.as_bytes());
        let restoring = &mut self.restoring;
        let what = if restoring.stage < Stage::Lost || restoring.key_reset.is_some() {
            "it was reset without a restore".to_owned()
        } else if revision <= restoring.highest {
            format!("it was reset to revision {revision}, after {}", restoring.highest)
        } else if !has(KEPT) || has(LOST) {
            "its records are not those of the backup".to_owned()
        } else {
            restoring.key_reset = Some(revision);
            return;
        };
        self.violation.get_or_insert(format!("watches are reset by a restore: {what}"));
    }

    /// Returns whether a change belongs to the restored log.
    pub(crate) fn watched_after_restore(&mut self, revision: u64) -> bool {
        let Some(reset) = self.restoring.key_reset else { return false };
        self.restoring.changes += 1;
        if revision <= reset {
            let what = format!("revision {revision} after a reset to revision {reset}");
            self.violation.get_or_insert(format!("watches are reset by a restore: {what}"));
        }
        true
    }

    /// Returns whether a state of the election belongs to the restored log.
    pub(crate) fn observed_after_restore(&mut self, revision: u64, reset: bool, has_leader: bool) -> bool {
        let Restoring { stage, highest, election_reset, .. } = &mut self.restoring;
        if *stage < Stage::Lost {
            return false;
        }
        // Events of the lost log may still arrive.
        if election_reset.is_none() && !reset {
            return true;
        }
        if election_reset.is_none() && (has_leader || revision <= *highest) {
            let what = format!("the election has a leader ({has_leader}) at revision {revision}, after {highest}");
            self.violation.get_or_insert(format!("observers are reset by a restore: {what}"));
        }
        self.restoring.election_reset.get_or_insert(revision);
        true
    }
}
