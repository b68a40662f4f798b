//! One session: floor, horizon, outcomes (F).

use super::answer::Fate;
use super::outcome::Outcome;
use crate::command::Opener;
use crate::id::LogSessionId;
use crate::limits::LogLimits;
use crate::mutant::{Mutation, seam};
use crate::time::LogTime;
use crate::tree::Keyed;
use smol_str::SmolStr;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The replicated state of an open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) id: LogSessionId,
    pub(crate) client: Option<SmolStr>,
    /// Digest of the secret of its client (LS9).
    pub(crate) owner: u128,
    pub(crate) opener: Opener,
    pub(crate) ttl: Duration,
    /// The lowest number that can still take effect (F1).
    pub(crate) floor: u64,
    /// Outcomes at or above this number are kept (F2).
    pub(crate) wanted: u64,
    /// The highest number whose outcome was dropped (F4).
    pub(crate) horizon: u64,
    /// Outcomes in order of their numbers.
    pub(crate) outcomes: VecDeque<(u64, Arc<Outcome>)>,
    /// Index of the last outcome, or of the opening (LS6).
    pub(crate) activity: u64,
    /// Log time of the activity.
    pub(crate) active_at: LogTime,
}

impl Session {
    pub(crate) fn outcome(&self, number: u64) -> Option<&Arc<Outcome>> {
        let at = self.outcomes.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.outcomes[at].1)
    }

    /// Returns the fate of a number while the session is open.
    pub(crate) fn fate(&self, number: u64) -> Fate {
        match self.outcome(number) {
            Some(outcome) => Fate::Done(outcome.clone()),
            None if number <= self.horizon => Fate::TooOld,
            None if number < self.floor => Fate::Never,
            None => Fate::Open,
        }
    }

    /// Returns the count and bytes of outcomes at or above a number (F5).
    pub(crate) fn kept_from(&self, number: u64) -> (u64, u64) {
        let kept = self.outcomes.iter().rev().take_while(|(kept, _)| *kept >= number);
        kept.fold((0, 0), |(count, bytes), (_, outcome)| (count + 1, bytes + outcome.bytes()))
    }

    /// Stores an outcome, raises the floor, and drops outcomes that need not be kept (F1 to F4).
    pub(crate) fn store(
        &mut self,
        number: u64,
        wanted: u64,
        outcome: Arc<Outcome>,
        limits: &LogLimits,
        mutation: Mutation,
    ) {
        self.raise_floor(number, &outcome, mutation);
        self.raise_wanted(wanted, mutation);
        // Numbers take effect in rising order, so this is the end of the list unless a mutant switches the rule off.
        let at = self.outcomes.partition_point(|(kept, _)| *kept < number);
        self.outcomes.insert(at, (number, outcome));
        self.drop_old(limits, mutation);
    }

    /// Every outcome raises the floor, whether it is a success or not (F1).
    fn raise_floor(&mut self, number: u64, outcome: &Outcome, mutation: Mutation) {
        seam!(in mutation, FloorOnlyAtSuccess => if !outcome.is_applied() { return });
        self.floor = self.floor.max(number + 1);
    }

    fn raise_wanted(&mut self, wanted: u64, mutation: Mutation) {
        seam!(in mutation, WantedForgotten => return);
        self.wanted = self.wanted.max(wanted);
    }

    /// Returns the count of outcomes that the client no longer wants (F3).
    fn unwanted(&self, mutation: Mutation) -> usize {
        seam!(in mutation, WantedDropped => return self.outcomes.len());
        self.outcomes.partition_point(|(number, _)| *number < self.wanted)
    }

    fn raise_horizon(&mut self, number: u64, mutation: Mutation) {
        seam!(in mutation, HorizonForgotten => return);
        self.horizon = number;
    }

    fn drop_old(&mut self, limits: &LogLimits, mutation: Mutation) {
        let unwanted = self.unwanted(mutation);
        let (mut count, mut bytes) = (unwanted as u64, 0);
        for (_, outcome) in self.outcomes.iter().take(unwanted) {
            bytes += outcome.bytes();
        }
        while count > limits.outcomes || (count > 1 && bytes > limits.outcome_bytes) {
            let Some((number, outcome)) = self.outcomes.pop_front() else { return };
            count -= 1;
            bytes -= outcome.bytes();
            self.raise_horizon(number, mutation);
        }
    }
}

impl Keyed for Session {
    type Key = LogSessionId;
    type Bound = LogSessionId;

    fn key(&self) -> &LogSessionId {
        &self.id
    }

    fn bound(&self) -> LogSessionId {
        self.id
    }
}

/// An ended session with its outcomes (LS8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) session: Arc<Session>,
    /// Sequence number of the ending, because one entry may end several sessions.
    pub(crate) order: u64,
    pub(crate) reason: EndReason,
}

impl Ended {
    /// Returns the fate of a number. No request of an ended session is open.
    pub(crate) fn fate(&self, number: u64) -> Fate {
        match self.session.fate(number) {
            Fate::Open => Fate::Never,
            fate => fate,
        }
    }
}

impl Keyed for Ended {
    type Key = LogSessionId;
    type Bound = LogSessionId;

    fn key(&self) -> &LogSessionId {
        &self.session.id
    }

    fn bound(&self) -> LogSessionId {
        self.session.id
    }
}

/// A value under a name: the session of a client name (LS2), the number of sessions of an opener (LS7).
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub(crate) name: SmolStr,
    pub(crate) value: T,
}

impl<T> Keyed for Named<T> {
    type Key = str;
    type Bound = SmolStr;

    fn key(&self) -> &str {
        &self.name
    }

    fn bound(&self) -> SmolStr {
        self.name.clone()
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// A request ended it (LS4).
    Requested,
    /// Its client was silent for a ttl (LS6).
    Expired,
    /// Its client opened a new session under the same name (LS2).
    Replaced,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            EndReason::Requested => "requested",
            EndReason::Expired => "expired",
            EndReason::Replaced => "replaced by a newer session of its client",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
