//! Admission of commands to the leader's log, and barrier reads (LR4).

use crate::command::{Body, Command};
use crate::id::{Epoch, LogSessionId, Position};
use crate::level::Level;
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
    /// Raises and membership changes of this term that are not applied yet, by ticket.
    changes: BTreeMap<u64, Change>,
}

/// A raise or a membership change on its way (V2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// The level that it raises the log to, if it is a raise.
    raises: Option<Level>,
    /// Its index, once it is known.
    index: Option<u64>,
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
    #[error(
        "the request needs feature level {needed}, and the log is at level {current}; `convoke log status` names the \
         replicas that hold it back"
    )]
    Level { needed: Level, current: Level },
    #[error("a membership change is in progress; retry")]
    ChangeInProgress,
}

impl Change {
    fn is_pending(&self, applied: u64) -> bool {
        self.index.is_none_or(|index| index > applied)
    }
}

impl Lane {
    fn check_floor(&self, number: u64, mutation: Mutation) -> Result<(), NotAppended> {
        seam!(in mutation, BarrierWithoutFloor => return Ok(()));
        if number < self.floor { Err(NotAppended::Abandoned { floor: self.floor }) } else { Ok(()) }
    }
}

impl Gate {
    pub(super) fn new(first: Position, mutation: Mutation) -> Self {
        Gate { first, mutation, tickets: 0, lanes: BTreeMap::new(), changes: BTreeMap::new() }
    }

    /// Checks whether a command may be appended now (E3). `machine` is the leader's state.
    pub fn admit(&mut self, command: &Command, machine: &Machine) -> Result<Admission, NotAppended> {
        self.check(command.epoch(), machine)?;
        self.check_level(command, machine)?;
        self.tickets += 1;
        let ticket = self.tickets;
        self.check_change(command, machine)?;
        if let Command::Open(open) = command {
            machine.has_room(open).map_err(NotAppended::NoRoom)?;
        }
        let Command::Request(request) = command else {
            self.note_change(command, ticket);
            return Ok(Admission { lane: None, ticket });
        };
        if machine.session(request.session).is_none() {
            return Err(NotAppended::SessionNotOpen);
        }
        let lane = self.lanes.entry(request.session).or_default();
        lane.check_floor(request.number, self.mutation)?;
        lane.unsettled.insert(ticket);
        self.note_change(command, ticket);
        Ok(Admission { lane: Some(request.session), ticket })
    }

    /// Returns the level that a replica must support to be added: that of the log, or the one that a raise on its way
    /// leads to (V2).
    pub fn required_level(&self, machine: &Machine) -> Level {
        let applied = machine.applied().index;
        let pending = self.changes.values().filter(|change| change.is_pending(applied));
        let raised = pending.filter_map(|change| change.raises).max();
        raised.unwrap_or(Level::FIRST).max(machine.level())
    }

    /// Records that a command was appended at an index, or that it was not appended.
    pub fn settle(&mut self, admission: Admission, index: Option<u64>) {
        match (self.changes.get_mut(&admission.ticket), index) {
            (Some(change), Some(_)) => change.index = index,
            (Some(_), None) => drop(self.changes.remove(&admission.ticket)),
            (None, _) => {}
        }
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

    /// Rejects a command that replicas need a higher level for (V1).
    fn check_level(&self, command: &Command, machine: &Machine) -> Result<(), NotAppended> {
        seam!(self, LevelNotGated => return Ok(()));
        let (needed, current) = (command.level(), machine.level());
        if needed <= current { Ok(()) } else { Err(NotAppended::Level { needed, current }) }
    }

    /// Admits one raise, and only while no membership change is on its way: the replicas that support the level must be
    /// those that get the entry (V2).
    fn check_change(&mut self, command: &Command, machine: &Machine) -> Result<(), NotAppended> {
        let applied = machine.applied().index;
        self.changes.retain(|_, change| change.is_pending(applied));
        seam!(self, RaiseDuringChange => return Ok(()));
        if matches!(command, Command::Raise(_)) && !self.changes.is_empty() {
            return Err(NotAppended::ChangeInProgress);
        }
        Ok(())
    }

    /// Records an admitted raise or membership change.
    fn note_change(&mut self, command: &Command, ticket: u64) {
        let raises = match command {
            Command::Raise(raise) => Some(raise.level),
            Command::Request(request) if matches!(request.body, Body::Membership(_)) => None,
            _ => return,
        };
        self.changes.insert(ticket, Change { raises, index: None });
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
