//! Who was heard when, and who may be expired (LS6).

use crate::command::Expire;
use crate::id::{Epoch, SessionId};
use crate::machine::Machine;
use crate::mutant::{Mutant, Mutation};
use convoke_core::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest time between two calls that counts as silence of others. Beyond it the leader itself was away.
const ATTENTION_MAX: Duration = Duration::from_secs(1);
/// How often the keeper wants to be called, so that its attention counts in full.
const ATTENTION_INTERVAL: Duration = Duration::from_millis(500);

/// The answer to a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// The session will not be expired by this leader for another ttl.
    Kept,
    /// Too late: its expiry is on its way. It may still be stopped by a request, not by a keep-alive.
    Expiring,
    /// Not an open session, as far as this leader has applied.
    Unknown,
}

/// The keep-alives a leader has heard in its term.
#[derive(Debug)]
pub struct Keeper {
    epoch: Epoch,
    mutation: Mutation,
    last_call: Time,
    /// Time this leader was awake in its term; all silence is measured in it.
    awake: Duration,
    sessions: BTreeMap<SessionId, Kept>,
    /// The same sessions by when they are due, without those that are being expired.
    due: BTreeSet<(Duration, SessionId)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    ttl: Duration,
    due: Duration,
    expiring: bool,
}

impl Keeper {
    /// Nobody is due before a whole ttl of this term has passed.
    pub fn elected(now: Time, epoch: Epoch, machine: &Machine) -> Self {
        let mutation = machine.mutation;
        let mut keeper = Keeper {
            epoch,
            mutation,
            last_call: now,
            awake: Duration::ZERO,
            sessions: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        for session in machine.sessions() {
            let grace = if mutation.is(Mutant::ExpiryWithoutGrace) { Duration::ZERO } else { session.ttl };
            keeper.set(session.id, session.ttl, grace);
        }
        keeper
    }

    pub fn opened(&mut self, now: Time, session: SessionId, ttl: Duration) {
        self.attend(now);
        self.set(session, ttl, self.awake + ttl);
    }

    /// A keep-alive, or any other sign of life of the session's client.
    pub fn heard(&mut self, now: Time, session: SessionId) -> KeepAlive {
        self.attend(now);
        match self.sessions.get(&session) {
            None => KeepAlive::Unknown,
            Some(kept) if kept.expiring => KeepAlive::Expiring,
            Some(kept) => {
                self.set(session, kept.ttl, self.awake + kept.ttl);
                KeepAlive::Kept
            }
        }
    }

    pub fn ended(&mut self, session: SessionId) {
        if let Some(kept) = self.sessions.remove(&session) {
            self.due.remove(&(kept.due, session));
        }
    }

    /// An expiry that was proposed did not end the session: it has another ttl.
    pub fn not_expired(&mut self, now: Time, session: SessionId) {
        self.attend(now);
        if let Some(kept) = self.sessions.get(&session) {
            self.set(session, kept.ttl, self.awake + kept.ttl);
        }
    }

    /// Sessions that were silent for too long. Each is named once; then either `ended` or `not_expired` must follow.
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<Expire> {
        self.attend(now);
        let mut found = Vec::new();
        while let Some(&(due, session)) = self.due.first() {
            if due > self.awake {
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

    /// When to call [`due`](Self::due) next, at the latest.
    pub fn wake(&self) -> Time {
        let quiet = self.due.first().map_or(ATTENTION_INTERVAL, |(due, _)| due.saturating_sub(self.awake));
        self.last_call + quiet.min(ATTENTION_INTERVAL)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn set(&mut self, session: SessionId, ttl: Duration, due: Duration) {
        if let Some(before) = self.sessions.insert(session, Kept { ttl, due, expiring: false }) {
            self.due.remove(&(before.due, session));
        }
        self.due.insert((due, session));
    }

    fn attend(&mut self, now: Time) {
        let passed = now.since(self.last_call);
        let counted =
            if self.mutation.is(Mutant::StallHeldAgainstClients) { passed } else { passed.min(ATTENTION_MAX) };
        self.awake += counted;
        self.last_call = self.last_call.max(now);
    }
}
