//! What a leader appends, and barrier reads (LR4).

use crate::command::Command;
use crate::id::{Epoch, Position, SessionId};
use crate::machine::Machine;
use crate::mutant::{Mutant, Mutation};
use std::collections::{BTreeMap, BTreeSet};

/// Stands before the leader's log. Admitting and appending must not be interleaved with other calls for the session in
/// a way that appends in another order than admitted; one task does both.
#[derive(Debug)]
pub struct Gate {
    first: Position,
    mutation: Mutation,
    tickets: u64,
    /// Sessions that are open, so as many as there may be.
    lanes: BTreeMap<SessionId, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Nothing below is appended in this term.
    floor: u64,
    /// The last index that is known to have been appended for the session in this term.
    appended: u64,
    /// Admitted, and not known to have been appended or not.
    unsettled: BTreeSet<u64>,
}

/// A command that may be appended. To be settled when it is known where it went.
#[must_use = "an admission that is never settled keeps barrier reads waiting"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Admission {
    lane: Option<SessionId>,
    ticket: u64,
}

/// A barrier read that has raised its floor. Good for one confirmation of leadership, made after this.
#[must_use]
#[derive(Debug)]
pub struct Barrier {
    session: SessionId,
    ticket: u64,
}

/// This copy was not appended. Nothing is said about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAppended {
    #[error("the command was meant for another epoch than {current}")]
    StaleEpoch { current: Epoch },
    #[error("the leader has not applied the beginning of its term yet")]
    NotReady,
    #[error("the session is not open; peek tells what is known of the request")]
    SessionNotOpen,
    #[error("the client has given up everything below {floor} in a barrier read")]
    GivenUp { floor: u64 },
}

impl Gate {
    pub(super) fn new(first: Position, mutation: Mutation) -> Self {
        Gate { first, mutation, tickets: 0, lanes: BTreeMap::new() }
    }

    /// Whether a command may be appended now (E3). The state is that of the leader.
    pub fn admit(&mut self, command: &Command, machine: &Machine) -> Result<Admission, NotAppended> {
        self.check(command.epoch(), machine)?;
        self.tickets += 1;
        let ticket = self.tickets;
        let Command::Request(request) = command else { return Ok(Admission { lane: None, ticket }) };
        if machine.session(request.session).is_none() {
            return Err(NotAppended::SessionNotOpen);
        }
        let lane = self.lanes.entry(request.session).or_default();
        if request.number < lane.floor && !self.mutation.is(Mutant::BarrierWithoutFloor) {
            return Err(NotAppended::GivenUp { floor: lane.floor });
        }
        lane.unsettled.insert(ticket);
        Ok(Admission { lane: Some(request.session), ticket })
    }

    /// The command was appended at an index, or is known not to have been.
    pub fn settle(&mut self, admission: Admission, index: Option<u64>) {
        if let Some(lane) = admission.lane.and_then(|session| self.lanes.get_mut(&session)) {
            lane.unsettled.remove(&admission.ticket);
            lane.appended = lane.appended.max(index.unwrap_or(0));
        }
    }

    /// Raises the volatile floor: nothing below is appended for the session in this term from now on.
    pub fn barrier(
        &mut self,
        session: SessionId,
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

    /// The index that must be applied before a barrier read may read, given a commit index taken and a leadership
    /// confirmed after the barrier was raised. None while it is not known yet where everything admitted before went.
    pub fn wait_for(&self, barrier: &Barrier, read_index: u64) -> Option<u64> {
        let first = if self.mutation.is(Mutant::BarrierForgetsTerm) { 0 } else { self.first.index };
        let least = read_index.max(first);
        match self.lanes.get(&barrier.session) {
            Some(lane) if !self.mutation.is(Mutant::BarrierForgetsAppended) => {
                let unknown = lane.unsettled.first().is_some_and(|ticket| *ticket < barrier.ticket);
                if unknown { None } else { Some(least.max(lane.appended)) }
            }
            // The session has ended here: nothing of it takes effect any more.
            _ => Some(least),
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId) {
        self.lanes.remove(&session);
    }

    fn check(&self, epoch: Epoch, machine: &Machine) -> Result<(), NotAppended> {
        if epoch != self.first.epoch {
            Err(NotAppended::StaleEpoch { current: self.first.epoch })
        } else if machine.applied().index < self.first.index && !self.mutation.is(Mutant::BarrierForgetsTerm) {
            Err(NotAppended::NotReady)
        } else {
            Ok(())
        }
    }
}
