//! Tracks keep-alives and selects sessions to expire (LS6).

use crate::command::Expire;
use crate::id::{Epoch, LogSessionId};
use crate::machine::Machine;
use crate::mutant::{Mutation, seam};
use convoke_base::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest interval between two calls that counts as silence of clients. A longer interval means that the leader
/// itself was paused.
const PAUSE_THRESHOLD: Duration = Duration::from_secs(1);
/// How often [`SessionExpiry::due`] must be called so that all elapsed time counts.
const CALL_INTERVAL: Duration = Duration::from_millis(500);

/// The answer to a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// This leader will not expire the session for another ttl.
    Kept,
    /// The leader has already proposed the expiry. A request can still prevent it, a keep-alive cannot.
    Expiring,
    /// The session is not open in the leader's applied state.
    Unknown,
}

/// The times at which a leader expires sessions, from the keep-alives that it has received in its term.
#[derive(Debug)]
pub struct SessionExpiry {
    epoch: Epoch,
    mutation: Mutation,
    last_call: Time,
    /// Time for which this leader was running in its term. All silence is measured in it.
    running: Duration,
    sessions: BTreeMap<LogSessionId, Kept>,
    /// The same sessions by due time, without those whose expiry is proposed.
    due: BTreeSet<(Duration, LogSessionId)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    ttl: Duration,
    due: Duration,
    expiring: bool,
}

impl SessionExpiry {
    /// Starts a term. No session is due before a full ttl of this term has passed.
    pub fn elected(now: Time, epoch: Epoch, machine: &Machine) -> Self {
        let mutation = machine.mutation;
        let mut expiry = SessionExpiry {
            epoch,
            mutation,
            last_call: now,
            running: Duration::ZERO,
            sessions: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        for session in machine.sessions() {
            let mut grace = session.ttl;
            seam!(in mutation, ExpiryWithoutGrace => grace = Duration::ZERO);
            expiry.set(session.id, session.ttl, grace);
        }
        expiry
    }

    pub fn opened(&mut self, now: Time, session: LogSessionId, ttl: Duration) {
        self.account(now);
        self.set(session, ttl, self.running + ttl);
    }

    /// Records a keep-alive or another message of the session's client.
    pub fn renew(&mut self, now: Time, session: LogSessionId) -> KeepAlive {
        self.account(now);
        match self.sessions.get(&session) {
            None => KeepAlive::Unknown,
            Some(kept) if kept.expiring => KeepAlive::Expiring,
            Some(kept) => {
                self.set(session, kept.ttl, self.running + kept.ttl);
                KeepAlive::Kept
            }
        }
    }

    pub fn ended(&mut self, session: LogSessionId) {
        if let Some(kept) = self.sessions.remove(&session) {
            self.due.remove(&(kept.due, session));
        }
    }

    /// Grants another ttl to a session whose proposed expiry did not end it.
    pub fn not_expired(&mut self, now: Time, session: LogSessionId) {
        self.account(now);
        if let Some(kept) = self.sessions.get(&session) {
            self.set(session, kept.ttl, self.running + kept.ttl);
        }
    }

    /// Returns sessions that have been silent for too long. Each is returned once; the caller must then call `ended` or
    /// `not_expired`.
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<Expire> {
        self.account(now);
        let mut found = Vec::new();
        while let Some(&(due, session)) = self.due.first() {
            if due > self.running {
                break;
            }
            self.due.remove(&(due, session));
            match (machine.session(session), self.sessions.get_mut(&session)) {
                (Some(state), Some(kept)) => {
                    kept.expiring = true;
                    found.push(Expire { epoch: self.epoch, session, activity: state.activity });
                }
                _ => {
                    self.sessions.remove(&session);
                }
            }
        }
        found
    }

    /// Returns the latest time for the next call of [`due`](Self::due).
    pub fn wake(&self) -> Time {
        let quiet = self.due.first().map_or(CALL_INTERVAL, |(due, _)| due.saturating_sub(self.running));
        self.last_call + quiet.min(CALL_INTERVAL)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn set(&mut self, session: LogSessionId, ttl: Duration, due: Duration) {
        if let Some(before) = self.sessions.insert(session, Kept { ttl, due, expiring: false }) {
            self.due.remove(&(before.due, session));
        }
        self.due.insert((due, session));
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
