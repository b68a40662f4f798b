//! The replicated state machine (A1): a function of its state and the entry only.
//!
//! Owns sessions, configuration and keys, and changes them only in [`Machine::apply`]. It reads no clock and no
//! configuration.

mod answer;
mod effects;
mod hash;
mod leasing;
mod level;
mod locking;
mod membership;
mod open;
mod outcome;
mod quota;
mod request;
mod session;
mod sessions;
mod txn;

pub use answer::{Applied, ApplyRejection, Fate, NotEnded, NotExpired, NotRaised, Opened, Reply, RequestAnswer};
pub use effects::{GrantedLock, LeftPlace};
pub use level::REVISION_JUMP;
pub use membership::Configuration;
pub(crate) use membership::Membership;
pub use outcome::{Field, LockAnswer, Outcome, Reason, Response, TxnOutcome};
pub use quota::Quota;
pub use session::EndReason;
pub(crate) use session::{Ended, Session};
pub(crate) use sessions::Sessions;
pub use txn::TxnAnswer;

use crate::command::{Command, Expire, Opener};
use crate::history::{Compacted, EventPosition, History, WatchFilter, WatchPage};
use crate::id::{Epoch, LogSessionId, Position, ReplicaId, RequestId};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::level::Level;
use crate::limits::{LimitsError, LogLimits};
use crate::locks::Locks;
use crate::mutant::{Mutation, seam};
use crate::time::LogTime;
use effects::Effects;
use std::time::Duration;

/// One committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub index: u64,
    /// Epoch of the leader that appended it.
    pub epoch: Epoch,
    /// Stamp set by that leader (LS5).
    pub stamp: LogTime,
    pub command: Command,
}

/// The state of one replica. A copy is cheap and immutable.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) limits: LogLimits,
    pub(crate) mutation: Mutation,
    pub(crate) applied: Position,
    pub(crate) log_time: LogTime,
    pub(crate) sessions: Sessions,
    pub(crate) membership: Membership,
    pub(crate) keys: Keys,
    pub(crate) level: Level,
    /// The rest is empty below level 2.
    pub(crate) history: History,
    pub(crate) leases: Leases,
    pub(crate) locks: Locks,
}

/// An entry was applied out of order: a fault of the engine or the storage. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {found} applied out of order; expected entry {expected}")]
pub struct OutOfOrder {
    pub found: u64,
    pub expected: u64,
}

/// Public view of an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState<'a> {
    pub id: LogSessionId,
    pub client: Option<&'a str>,
    pub opener: &'a Opener,
    pub owner: u128,
    pub ttl: Duration,
    pub floor: u64,
    pub horizon: u64,
    pub activity: u64,
    pub active_at: LogTime,
}

impl Machine {
    /// Creates the state before the first entry, at level 1. All replicas must start with the same limits (LH4).
    pub fn new(limits: LogLimits) -> Result<Self, LimitsError> {
        Machine::created(limits, Level::FIRST)
    }

    /// Creates the state before the first entry of a log whose replicas all support a level (V2).
    pub fn created(limits: LogLimits, level: Level) -> Result<Self, LimitsError> {
        limits.check()?;
        Ok(Machine {
            limits: level::limits_at(level, limits),
            mutation: Mutation::none(),
            applied: Position::default(),
            log_time: LogTime::ZERO,
            sessions: Sessions::default(),
            membership: Membership::default(),
            keys: Keys::default(),
            level,
            history: History::default(),
            leases: Leases::default(),
            locks: Locks::default(),
        })
    }

    /// Returns the machine with a deliberate bug.
    #[must_use]
    pub fn with_mutation(self, mutation: Mutation) -> Self {
        Machine { mutation, ..self }
    }

    /// Applies the next entry. No other code decides what a request does (A3).
    pub fn apply(&mut self, entry: &Entry) -> Result<Applied, OutOfOrder> {
        let position = Position { index: entry.index, epoch: entry.epoch };
        self.skip(position)?;
        seam!(self, LogTimeFalls => self.log_time = entry.stamp);
        self.log_time = self.log_time.max(entry.stamp);
        let mut effects = Effects::default();
        let reply = match &entry.command {
            Command::Open(open) => Reply::Opened(self.open(position, open, &mut effects.ended)),
            Command::Request(request) => Reply::Request(self.request(position, request, &mut effects)),
            Command::Expire(expire) => Reply::Expired(self.expire(position, *expire, &mut effects.ended)),
            Command::Raise(raise) => Reply::Raised(self.raise(position, raise)),
            Command::EndLease(end) => Reply::LeaseEnded(self.end_lease_by_leader(position, end, &mut effects)),
            Command::EndDelay(end) => Reply::DelayEnded(self.end_delay(position, end, &mut effects)),
        };
        self.record(&mut effects);
        let Effects { ended, ended_leases, granted, left, .. } = effects;
        Ok(Applied { reply, ended, ended_leases, granted, left, log_time: self.log_time })
    }

    /// Skips an entry of the engine (A1).
    pub fn skip(&mut self, position: Position) -> Result<(), OutOfOrder> {
        let expected = self.applied.index + 1;
        if position.index != expected {
            return Err(OutOfOrder { found: position.index, expected });
        }
        self.applied = position;
        Ok(())
    }

    /// Returns the fate of a request without a log entry (A5).
    pub fn peek(&self, id: RequestId) -> Fate {
        self.sessions.fate(id.session, id.number, self.applied.index)
    }

    /// Returns the feature level (V1).
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the recent changes (H1).
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the events of a watch at and after a position: at most `limit` events and `bytes` bytes, but at least
    /// one event if there is one (H5). A position after all events gives an empty page.
    pub fn watch(
        &self,
        filter: &WatchFilter,
        from: EventPosition,
        limit: usize,
        bytes: u64,
    ) -> Result<WatchPage, Compacted> {
        self.check_history(from.revision)?;
        self.history.watch(filter, from, (limit, bytes), self.keys.revision(), self.mutation)
    }

    /// Below level 2 there is no history: a position in the past is always too old (H3).
    fn check_history(&self, revision: u64) -> Result<(), Compacted> {
        let current = self.keys.revision();
        if self.level < Level::COORDINATION && revision <= current {
            return Err(Compacted { oldest: current + 1 });
        }
        Ok(())
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the newest recorded configuration (M1).
    pub fn configuration(&self) -> &Configuration {
        &self.membership.current
    }

    /// Returns the highest replica id ever recorded; a new id must be higher (M2).
    pub fn highest_replica(&self) -> ReplicaId {
        self.membership.highest
    }

    /// Returns the position of the last applied entry.
    pub fn applied(&self) -> Position {
        self.applied
    }

    pub fn log_time(&self) -> LogTime {
        self.log_time
    }

    pub fn limits(&self) -> &LogLimits {
        &self.limits
    }

    pub fn session(&self, id: LogSessionId) -> Option<SessionState<'_>> {
        self.sessions.open.get(&id).map(|session| session.state())
    }

    /// Returns who opened a session, as long as the session or its outcomes are kept (LS8).
    pub fn opener(&self, id: LogSessionId) -> Option<&Opener> {
        let open = self.sessions.open.get(&id).map(|session| &session.opener);
        open.or_else(|| self.sessions.ended.get(&id).map(|ended| &ended.session.opener))
    }

    /// Iterates over all open sessions in order of their ids.
    pub fn sessions(&self) -> impl Iterator<Item = SessionState<'_>> {
        self.sessions.open.iter().map(|session| session.state())
    }

    /// Iterates over open sessions with a higher id than `after`.
    pub fn sessions_after(&self, after: LogSessionId) -> impl Iterator<Item = SessionState<'_>> {
        self.sessions.open.iter_from(&LogSessionId(after.0.saturating_add(1))).map(|session| session.state())
    }

    pub fn session_count(&self) -> usize {
        self.sessions.open.len()
    }

    fn end(&mut self, id: LogSessionId, reason: EndReason, ended: &mut Vec<(LogSessionId, EndReason)>) -> bool {
        let mut kept = self.limits.ended_sessions;
        seam!(self, EndedForgotten => kept = 0);
        let found = self.sessions.end(id, reason, kept);
        if found {
            ended.push((id, reason));
        }
        found
    }

    /// Ends a session after silence, unless it was active in the meantime (LS6).
    fn expire(
        &mut self,
        at: Position,
        expire: Expire,
        ended: &mut Vec<(LogSessionId, EndReason)>,
    ) -> Result<(), NotExpired> {
        let session = self.sessions.open.get(&expire.session).ok_or(NotExpired::NotOpen)?;
        self.check_expiry_epoch(at, expire)?;
        self.check_silence(session, expire)?;
        self.end(expire.session, EndReason::Expired, ended);
        Ok(())
    }

    fn check_expiry_epoch(&self, at: Position, expire: Expire) -> Result<(), NotExpired> {
        seam!(self, ExpiryIgnoresEpoch => return Ok(()));
        if expire.epoch == at.epoch { Ok(()) } else { Err(NotExpired::StaleEpoch { current: at.epoch }) }
    }

    fn check_silence(&self, session: &Session, expire: Expire) -> Result<(), NotExpired> {
        seam!(self, ExpiryIgnoresActivity => return Ok(()));
        if expire.activity != session.activity {
            Err(NotExpired::Active)
        } else if self.log_time.since(session.active_at) < session.ttl {
            Err(NotExpired::TooEarly)
        } else {
            Ok(())
        }
    }
}

impl Session {
    fn state(&self) -> SessionState<'_> {
        SessionState {
            id: self.id,
            client: self.client.as_deref(),
            opener: &self.opener,
            owner: self.owner,
            ttl: self.ttl,
            floor: self.floor,
            horizon: self.horizon,
            activity: self.activity,
            active_at: self.active_at,
        }
    }
}
