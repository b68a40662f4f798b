//! What a leader keeps in memory for its term, and for no longer.
//!
//! None of this is replicated and nothing replicated depends on it: the apply rule stays right whatever a leader does. It gives
//! barrier reads (LR4), expiry (LS6) and log time (LS5). Losing leadership means dropping the value; a restarted leader
//! begins a new epoch (E1).

mod gate;
mod keeper;
mod stamper;

pub use gate::{Admission, Barrier, Gate, NotAppended};
pub use keeper::{KeepAlive, Keeper};
pub use stamper::Stamper;

use crate::command::Expire;
use crate::id::{Position, SessionId};
use crate::machine::{Applied, Machine, NotExpired, Reply};
use crate::time::LogTime;
use convoke_core::Time;

/// One term of one leader.
#[derive(Debug)]
pub struct Leadership {
    first: Position,
    pub gate: Gate,
    pub keeper: Keeper,
    pub stamper: Stamper,
}

impl Leadership {
    /// Begins a term whose first entry is `first`. `highest` is the highest stamp in the log at that moment.
    pub fn elected(now: Time, first: Position, highest: LogTime, machine: &Machine) -> Self {
        Leadership {
            first,
            gate: Gate::new(first, machine.mutation),
            keeper: Keeper::elected(now, first.epoch, machine),
            stamper: Stamper::elected(now, highest),
        }
    }

    /// The first entry of the term.
    pub fn first(&self) -> Position {
        self.first
    }

    /// To be told of every entry that was applied here, in order, with what it did.
    pub fn applied(&mut self, now: Time, command: &crate::Command, applied: &Applied, machine: &Machine) {
        for (session, _) in &applied.ended {
            self.keeper.ended(*session);
            self.gate.forget(*session);
        }
        match (&applied.reply, command) {
            (Reply::Opened(Ok(opened)), _) => {
                if let Some(session) = machine.session(opened.session) {
                    self.keeper.opened(now, session.id, session.ttl);
                }
            }
            (Reply::Request(answer), _) if answer.verdict.is_ok() => {
                self.keeper.heard(now, answer.id.session);
            }
            (Reply::Expired(Err(why)), crate::Command::Expire(Expire { session, .. }))
                if *why != NotExpired::NotOpen =>
            {
                self.keeper.not_expired(now, *session);
            }
            _ => {}
        }
    }

    /// Sessions that may be expired now: commands to propose.
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<Expire> {
        self.keeper.due(now, machine)
    }

    /// Starts a barrier read (LR4, step 1); the caller then confirms that it leads, and waits.
    pub fn barrier(
        &mut self,
        session: SessionId,
        epoch: crate::Epoch,
        below: u64,
        machine: &Machine,
    ) -> Result<Barrier, NotAppended> {
        self.gate.barrier(session, epoch, below, machine)
    }
}

#[cfg(test)]
mod tests;
