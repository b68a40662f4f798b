//! Admission of commands to the leader's log, and barrier reads (LR4).

use crate::command::Command;
use crate::id::{Epoch, LogSessionId, Position};
use crate::machine::{ApplyRejection, Machine};
use crate::mutant::{Mutation, seam};
use std::collections::{BTreeMap, BTreeSet};

/// Admits commands before the leader appends them. One task must admit and append, so that the commands of a session
/// are appended in the order of admission.
#[derive(Debug)]
pub struct Gate {
    first: Position,
    mutation: Mutation,
    tickets: u64,
    /// Open sessions; bounded by the session limit.
    lanes: BTreeMap<LogSessionId, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// The leader appends no request below this number in this term.
    floor: u64,
    /// The last index known to have been appended for the session in this term.
    appended: u64,
    /// Tickets of admitted commands whose position is not known yet.
    unsettled: BTreeSet<u64>,
}

/// A command that may be appended. Settle it when its position is known.
#[must_use = "an admission that is never settled keeps barrier reads waiting"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    lane: Option<LogSessionId>,
    ticket: u64,
}

/// A barrier read that has raised the volatile floor. Valid for one leadership confirmation made afterwards.
#[must_use]
#[derive(Debug)]
pub struct Barrier {
    session: LogSessionId,
    ticket: u64,
}

/// Why this copy of a command was not appended. Other copies may have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAppended {
    #[error("the command names another epoch; the current epoch is {current}")]
    StaleEpoch { current: Epoch },
    #[error("the leader has not applied the first entry of its term yet; retry")]
    NotReady,
    #[error("the log session is not open; use peek for the fate of the request")]
    SessionNotOpen,
    #[error("{0}")]
    NoRoom(ApplyRejection),
    #[error("the client abandoned all requests below {floor} in a barrier read")]
    Abandoned { floor: u64 },
}

impl Lane {
    fn check_floor(&self, number: u64, mutation: Mutation) -> Result<(), NotAppended> {
        seam!(in mutation, BarrierWithoutFloor => return Ok(()));
        if number < self.floor { Err(NotAppended::Abandoned { floor: self.floor }) } else { Ok(()) }
    }
}

impl Gate {
    pub(super) fn new(first: Position, mutation: Mutation) -> Self {
        Gate { first, mutation, tickets: 0, lanes: BTreeMap::new() }
    }

    /// Checks whether a command may be appended now (E3). `machine` is the leader's state.
    pub fn admit(&mut self, command: &Command, machine: &Machine) -> Result<Admission, NotAppended> {
        self.check(command.epoch(), machine)?;
        self.tickets += 1;
        let ticket = self.tickets;
        if let Command::Open(open) = command {
            machine.has_room(open).map_err(NotAppended::NoRoom)?;
        }
        let Command::Request(request) = command else { return Ok(Admission { lane: None, ticket }) };
        if machine.session(request.session).is_none() {
            return Err(NotAppended::SessionNotOpen);
        }
        let lane = self.lanes.entry(request.session).or_default();
        lane.check_floor(request.number, self.mutation)?;
        lane.unsettled.insert(ticket);
        Ok(Admission { lane: Some(request.session), ticket })
    }

    /// Records that a command was appended at an index, or that it was not appended.
    pub fn settle(&mut self, admission: Admission, index: Option<u64>) {
        if let Some(lane) = admission.lane.and_then(|session| self.lanes.get_mut(&session)) {
            lane.unsettled.remove(&admission.ticket);
            lane.appended = lane.appended.max(index.unwrap_or(0));
        }
    }

    /// Raises the volatile floor: the leader appends no request below it for the session in this term.
    pub fn barrier(
        &mut self,
        session: LogSessionId,
        epoch: Epoch,
        below: u64,
        machine: &Machine,
    ) -> Result<Barrier, NotAppended> {
        self.check(epoch, machine)?;
        if machine.session(session).is_none() {
            return Err(NotAppended::SessionNotOpen);
        }
        let lane = self.lanes.entry(session).or_default();
        lane.floor = lane.floor.max(below);
        self.tickets += 1;
        Ok(Barrier { session, ticket: self.tickets })
    }

    /// Returns the index that must be applied before a barrier read may read. The commit index must have been taken,
    /// and leadership confirmed, after the barrier was raised. Returns `None` while the position of an earlier
    /// admission is unknown.
    pub fn wait_for(&self, barrier: &Barrier, read_index: u64) -> Option<u64> {
        let least = read_index.max(self.first_index());
        seam!(self, BarrierForgetsAppended => return Some(least));
        // Without a lane, the session has ended here, and none of its requests can take effect.
        let Some(lane) = self.lanes.get(&barrier.session) else { return Some(least) };
        let unknown = lane.unsettled.first().is_some_and(|ticket| *ticket < barrier.ticket);
        if unknown { None } else { Some(least.max(lane.appended)) }
    }

    /// Returns the index of the first entry of the term.
    fn first_index(&self) -> u64 {
        seam!(self, BarrierForgetsTerm => return 0);
        self.first.index
    }

    /// Removes an ended session.
    pub fn forget(&mut self, session: LogSessionId) {
        self.lanes.remove(&session);
    }

    fn check(&self, epoch: Epoch, machine: &Machine) -> Result<(), NotAppended> {
        if epoch != self.first.epoch {
            Err(NotAppended::StaleEpoch { current: self.first.epoch })
        } else if machine.applied().index < self.first_index() {
            Err(NotAppended::NotReady)
        } else {
            Ok(())
        }
    }
}
