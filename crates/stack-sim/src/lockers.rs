//! Clients of locks and elections, and watchers. They record what they were certain of and what they received;
//! `coordination` compares the records with the history of the log.

use crate::clients::{ambassador, options};
use crate::faults::Fault;
use crate::plan::Mutant;
use crate::record::{AcknowledgedWrite, now};
use crate::transactions::Transactions;
use crate::world::Shared;
use convoke_client::log::{
    Acquire, KeyWatchEvent, Kv, LeaseTerms, LockGuard, Locks, PendingWrite, ResetReason, WatchKeys, Write, Written,
};
use convoke_client::{Error, ErrorCode};
use convoke_harness::history::CallId;
use convoke_harness::history::coordination::{Reply, Request, Txn};
use std::sync::Arc;
use std::time::Duration;

/// Few locks, so that clients compete for them.
pub(crate) const LOCKS: u8 = 2;
/// Shorter than many faults, so that leases are lost.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(3);
pub(crate) const ELECTION: &str = "leader";
/// Clients of locks on each of the two client machines.
pub(crate) const LOCKERS: u64 = 2;
/// Interval at which a holder checks whether it holds its lock.
const CHECK: Duration = Duration::from_millis(20);

/// A client was certain to hold a lock at all times of an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Belief {
    pub(crate) lock: u8,
    pub(crate) fence: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

/// An acknowledged write that required its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardedWrite {
    pub(crate) lock: u8,
    pub(crate) fence: u64,
    pub(crate) revision: u64,
}

pub(crate) fn lock_name(lock: u8) -> String {
    format!("lock/{lock}")
}

fn guarded_key(lock: u8) -> String {
    format!("guarded/{lock}")
}

pub(crate) struct Locker {
    shared: Arc<Shared>,
    id: u64,
    random: fastrand::Rng,
    kv: Kv,
    locks: Locks,
    transactions: Transactions,
}

/// A guarded write without an answer.
struct Guarded {
    called: u64,
    operation: CallId,
    write: PendingWrite,
}

impl Locker {
    pub(crate) fn new(shared: Arc<Shared>, id: u64) -> Result<Locker, Error> {
        let random = fastrand::Rng::with_seed(shared.plan.seed.wrapping_mul(1_000_033).wrapping_add(id));
        let (kv, locks) = connect(&shared, id)?;
        Ok(Locker { shared, id, random, kv, locks, transactions: Transactions::default() })
    }

    pub(crate) async fn work(mut self) {
        while !self.shared.recorder.lock().closing {
            tokio::time::sleep(Duration::from_millis(self.random.u64(20..600))).await;
            match self.random.u8(0..100) {
                0..65 => self.lock().await,
                65..82 => self.campaign().await,
                82..97 => self.transactions.commit(&self.shared.recorder, self.id, &self.kv, &mut self.random).await,
                _ => self.restart(),
            }
        }
        self.shared.recorder.lock().workers_left -= 1;
    }

    async fn lock(&mut self) {
        let lock = self.random.u8(0..LOCKS);
        let acquire = Acquire::new(lock_name(lock)).value(format!("client {}", self.id));
        let no_wait = self.random.u8(0..4) == 0;
        let acquire = match no_wait {
            true => acquire.no_wait(),
            false => acquire.wait(Duration::from_millis(self.random.u64(200..8_000))),
        };
        let operation = self.shared.recorder.request(self.id, Request::acquire(lock_name(lock)));
        let pending = self.locks.acquire(acquire);
        let answer = if self.random.u8(0..5) == 0 {
            let patience = Duration::from_millis(self.random.u64(0..300));
            match tokio::time::timeout(patience, pending).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.shared.recorder.fault(
                        now(),
                        Fault::WaiterLeaves,
                        &format!("client {} leaves {lock}", self.id),
                    );
                    return;
                }
            }
        } else {
            pending.await
        };
        match answer {
            Ok(guard) => {
                self.shared.recorder.replied(operation, Reply::Granted { fence: guard.fence() });
                self.hold(lock, guard).await;
            }
            Err(error) if error.code == ErrorCode::LockHeld => {
                self.shared.recorder.count("locks not granted");
                // The end of a wait is no answer: the place may have been granted just before.
                if no_wait {
                    self.shared.recorder.replied(operation, Reply::Held);
                }
            }
            Err(_) => self.shared.recorder.count("acquires without an answer"),
        }
    }

    /// Holds a lock for a while and writes. A holder does not always notice in time that it lost the lock, so some writes are
    /// issued or arrive afterwards.
    async fn hold(&mut self, lock: u8, guard: LockGuard) {
        let recorder = self.shared.recorder.clone();
        let (fence, from) = (guard.fence(), now());
        recorder.count("locks granted");
        recorder.note(from, &format!("client {} holds {lock} with fence {fence}", self.id));
        let end = from + self.random.u64(20_000..6_000_000);
        let loss_ignored = self.shared.plan.has(Mutant::LossIgnored);
        // An answer that comes late can name a permit that was lost meanwhile; then the client is certain of nothing.
        let (mut until, mut writes) = (None, Vec::new());
        while now() < end && (guard.is_held() || loss_ignored) {
            until = Some(now());
            if self.random.u8(0..20) == 0 {
                writes.push(self.guarded(lock, &guard));
            }
            tokio::time::sleep(CHECK).await;
        }
        let belief = Belief { lock, fence, from, until: until.unwrap_or(from) };
        recorder.lock().held(self.id, belief, until.is_some());
        if now() < end {
            recorder.fault(now(), Fault::LockLost, &format!("client {} lost {lock}, fence {fence}", self.id));
            tokio::time::sleep(Duration::from_millis(self.random.u64(0..6_000))).await;
            writes.push(self.guarded(lock, &guard));
        }
        match self.random.u8(0..10) {
            // The process dies: nobody keeps the lease alive.
            0 => {
                guard.detach();
                self.restart();
            }
            1..4 => drop(guard),
            _ => {
                // The lock may be lost by then.
                let _ = guard.release().await;
            }
        }
        for Guarded { called, operation, write } in writes {
            let answer = write.await;
            self.wrote(lock, fence, (called, operation), answer);
        }
    }

    fn guarded(&self, lock: u8, guard: &LockGuard) -> Guarded {
        let (fence, recorder) = (guard.fence(), &self.shared.recorder);
        let request = Txn::guarded(lock_name(lock), fence).put(guarded_key(lock), fence);
        let (called, operation) = (now(), recorder.request(self.id, Request::Txn(request)));
        let write = Write::put(guarded_key(lock), fence.to_string());
        let write = if self.shared.plan.has(Mutant::WritesUnguarded) { write } else { guard.guard(write) };
        Guarded { called, operation, write: self.kv.write(write) }
    }

    fn wrote(&self, lock: u8, fence: u64, issued: (u64, CallId), answer: Result<Written, Error>) {
        let (recorder, (called, operation)) = (&self.shared.recorder, issued);
        let decided = |succeeded| recorder.replied(operation, Reply::Decided { succeeded, read: Vec::new() });
        match answer {
            Ok(Written { index, revision, keys, .. }) => {
                recorder.count("guarded writes");
                decided(true);
                let changed = keys > 0;
                recorder.wrote(AcknowledgedWrite { index, revision, changed, called, answered: now() });
                recorder.lock().guarded.push(GuardedWrite { lock, fence, revision });
            }
            Err(error) => match error.code {
                ErrorCode::FailedPrecondition => {
                    recorder.count("guarded writes rejected");
                    decided(false);
                }
                ErrorCode::OutcomeUnknown | ErrorCode::Compacted => recorder.outcome_unknown(None),
                // Not sent, or not appended: it did nothing.
                _ => recorder.not_executed(operation),
            },
        }
    }

    /// Takes part in the election, with some values.
    async fn campaign(&mut self) {
        let elections = self.kv.elections().with_terms(LeaseTerms::ttl(LEASE_TTL));
        let candidacy = Acquire::new(ELECTION).value(format!("client {}", self.id));
        let patience = Duration::from_millis(self.random.u64(200..4_000));
        let Ok(leadership) = elections.campaign_with(candidacy.wait(patience)).await else { return };
        self.shared.recorder.count("elections won");
        for _ in 0..self.random.u8(0..3) {
            tokio::time::sleep(Duration::from_millis(self.random.u64(10..1_500))).await;
            // The election may be lost by then.
            let _ = leadership.proclaim(format!("client {} at {}", self.id, now())).await;
        }
        let _ = leadership.resign().await;
    }

    /// The process is replaced by another one; its leases are no longer kept alive.
    fn restart(&mut self) {
        let Ok((kv, locks)) = connect(&self.shared, self.id) else { return };
        (self.kv, self.locks) = (kv, locks);
        self.shared.recorder.fault(now(), Fault::ClientRestarts, &format!("lock client {} is replaced", self.id));
    }
}

fn connect(shared: &Shared, id: u64) -> Result<(Kv, Locks), Error> {
    // Not a name of another client.
    let kv = ambassador(shared)?.kv_with(options(2 * id + 1));
    let locks = kv.locks().with_terms(LeaseTerms::ttl(LEASE_TTL));
    Ok((kv, locks))
}

/// Records all changes of keys, from the first revision on.
pub(crate) async fn watch_keys(shared: Arc<Shared>) {
    let Ok(ambassador) = ambassador(&shared) else { return };
    let mut watch = ambassador.kv().watch(WatchKeys::prefix("").from(1));
    while let Some(event) = watch.next().await {
        let mut record = shared.recorder.lock();
        match event {
            Ok(KeyWatchEvent::Change(change)) if record.watched_after_restore(change.revision) => {}
            Ok(KeyWatchEvent::Reset { reason: ResetReason::OtherLog, revision, records }) => {
                record.watch_reset(revision, &records);
            }
            Ok(KeyWatchEvent::Change(change)) => {
                let lost = shared.plan.has(Mutant::EventsLost) && change.revision % 50 == 0;
                if !lost {
                    record.watched.push((change.revision, change.key.to_vec(), change.record.is_some()));
                }
            }
            Ok(KeyWatchEvent::Progress { .. }) => {}
            Ok(other) => {
                record.violation.get_or_insert(format!("watches do not start again: {other:?}"));
            }
            Err(error) => {
                record.violation.get_or_insert(format!("watches go on: {error}"));
            }
        }
    }
}

/// Records all changes of the election.
pub(crate) async fn observe_election(shared: Arc<Shared>) {
    let Ok(ambassador) = ambassador(&shared) else { return };
    let mut observer = ambassador.kv().elections().observe(ELECTION);
    while let Some(change) = observer.next().await {
        let mut record = shared.recorder.lock();
        match change {
            Ok(change) if record.observed_after_restore(change.revision, change.reset, change.leader.is_some()) => {}
            Ok(change) => {
                let leader = change.leader.map(|leader| (leader.fence, leader.value.to_vec()));
                record.observed.push((change.revision, leader));
            }
            Err(error) => {
                record.violation.get_or_insert(format!("observers go on: {error}"));
            }
        }
    }
}
