//! Tracks keep-alives and selects sessions and leases to expire (LS6, LE3).

use crate::command::{Command, EndLease, Expire, LeaseCause, LeaseId, LeaseTerm};
use crate::id::{Epoch, LogSessionId};
use crate::machine::Machine;
use crate::mutant::{Mutation, seam};
use convoke_base::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest interval between two calls that counts as silence of clients. A longer interval means that the leader
/// itself was paused.
const PAUSE_THRESHOLD: Duration = Duration::from_secs(1);
/// How often [`Expiry::due`] must be called so that all elapsed time counts.
const CALL_INTERVAL: Duration = Duration::from_millis(500);

/// The answer to a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// This leader will not expire it for another ttl. A lease is kept for its client only after a leadership round
    /// that began later (LE2).
    Kept,
    /// The leader has already proposed the expiry. A request can still prevent it, a keep-alive cannot.
    Expiring,
    /// It does not exist in the leader's applied state, or has no ttl.
    Unknown,
}

/// A session, or a lease with a ttl. One mechanism expires both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expirable {
    Session(LogSessionId),
    Lease(LeaseId),
}

impl From<LogSessionId> for Expirable {
    fn from(session: LogSessionId) -> Self {
        Expirable::Session(session)
    }
}

impl From<LeaseId> for Expirable {
    fn from(lease: LeaseId) -> Self {
        Expirable::Lease(lease)
    }
}

/// The times at which a leader expires sessions and leases, from the keep-alives that it has received in its term.
#[derive(Clone, Debug)]
pub struct Expiry {
    epoch: Epoch,
    mutation: Mutation,
    last_call: Time,
    /// Time for which this leader was running in its term. All silence is measured in it.
    running: Duration,
    all: BTreeMap<Expirable, Kept>,
    /// The same by due time, without those whose expiry is proposed.
    due: BTreeSet<(Duration, Expirable)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    ttl: Duration,
    due: Duration,
    expiring: bool,
}

impl Expiry {
    /// Starts a term. Nothing is due before a full ttl of this term has passed.
    pub fn elected(now: Time, epoch: Epoch, machine: &Machine) -> Self {
        let mutation = machine.mutation;
        let mut expiry = Expiry {
            epoch,
            mutation,
            last_call: now,
            running: Duration::ZERO,
            all: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        for session in machine.sessions() {
            let mut grace = session.ttl;
            seam!(in mutation, ExpiryWithoutGrace => grace = Duration::ZERO);
            expiry.set(session.id.into(), session.ttl, grace);
        }
        for lease in machine.leases() {
            let LeaseTerm::Ttl(ttl) = lease.term else { continue };
            let mut grace = ttl;
            seam!(in mutation, LeaseWithoutGrace => grace = Duration::ZERO);
            expiry.set(lease.id.into(), ttl, grace);
        }
        expiry
    }

    /// Adds an opened session or a granted lease.
    pub fn opened(&mut self, now: Time, what: impl Into<Expirable>, ttl: Duration) {
        self.account(now);
        self.set(what.into(), ttl, self.running + ttl);
    }

    /// Records a keep-alive, or another message of the client of a session.
    pub fn renew(&mut self, now: Time, what: impl Into<Expirable>) -> KeepAlive {
        self.account(now);
        let what = what.into();
        match self.all.get(&what) {
            None => KeepAlive::Unknown,
            Some(kept) if kept.expiring => KeepAlive::Expiring,
            Some(kept) => {
                self.set(what, kept.ttl, self.running + kept.ttl);
                KeepAlive::Kept
            }
        }
    }

    pub fn ended(&mut self, what: impl Into<Expirable>) {
        let what = what.into();
        if let Some(kept) = self.all.remove(&what) {
            self.due.remove(&(kept.due, what));
        }
    }

    /// Grants another ttl if a proposed expiry did not end a session or lease.
    pub fn not_expired(&mut self, now: Time, what: impl Into<Expirable>) {
        self.account(now);
        let what = what.into();
        if let Some(kept) = self.all.get(&what) {
            self.set(what, kept.ttl, self.running + kept.ttl);
        }
    }

    /// Returns the time until this leader expires a lease or session if no further keep-alive arrives.
    pub fn left(&self, what: impl Into<Expirable>) -> Option<Duration> {
        self.all.get(&what.into()).map(|kept| kept.due.saturating_sub(self.running))
    }

    /// The same at a time. Time that passed since the last call counts, so that a client never hears of more time than
    /// it has.
    pub fn left_at(&self, now: Time, what: impl Into<Expirable>) -> Option<Duration> {
        let left = self.left(what)?;
        Some(left.saturating_sub(self.counted(now.since(self.last_call))))
    }

    /// Returns commands that expire sessions and leases that were silent for too long. Each is returned once; the
    /// caller must then call `ended` or `not_expired`.
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<Command> {
        self.account(now);
        let mut found = Vec::new();
        while let Some(&(due, what)) = self.due.first() {
            if due > self.running {
                break;
            }
            self.due.remove(&(due, what));
            match (self.command(what, machine), self.all.get_mut(&what)) {
                (Some(command), Some(kept)) => {
                    kept.expiring = true;
                    found.push(command);
                }
                _ => {
                    self.all.remove(&what);
                }
            }
        }
        found
    }

    /// Returns the command that expires a session or lease, if it exists.
    fn command(&self, what: Expirable, machine: &Machine) -> Option<Command> {
        let epoch = self.epoch;
        match what {
            Expirable::Session(session) => {
                let activity = machine.session(session)?.activity;
                Some(Command::Expire(Expire { epoch, session, activity }))
            }
            Expirable::Lease(lease) => {
                machine.lease(lease)?;
                Some(Command::EndLease(EndLease { epoch, lease, cause: LeaseCause::Expired }))
            }
        }
    }

    /// Returns the latest time for the next call of [`due`](Self::due).
    pub fn wake(&self) -> Time {
        let quiet = self.due.first().map_or(CALL_INTERVAL, |(due, _)| due.saturating_sub(self.running));
        self.last_call + quiet.min(CALL_INTERVAL)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn set(&mut self, what: Expirable, ttl: Duration, due: Duration) {
        if let Some(before) = self.all.insert(what, Kept { ttl, due, expiring: false }) {
            self.due.remove(&(before.due, what));
        }
        self.due.insert((due, what));
    }

    fn account(&mut self, now: Time) {
        self.running += self.counted(now.since(self.last_call));
        self.last_call = self.last_call.max(now);
    }

    /// Returns the part of an interval between two calls that counts as silence.
    fn counted(&self, passed: Duration) -> Duration {
        seam!(self, PauseCountedAsSilence => return passed);
        passed.min(PAUSE_THRESHOLD)
    }
}
