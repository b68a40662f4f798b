//! Volatile state of a leader for one term.
//!
//! None of it is replicated, and replicated state does not depend on it: the apply rule is correct whatever a leader
//! does. It provides barrier reads (LR4), expiry (LS6) and log time (LS5). A leader that loses leadership drops this
//! value; a restarted leader starts a new epoch (E1).

mod expiry;
mod gate;
mod stamper;

pub use expiry::{KeepAlive, SessionExpiry};
pub use gate::{Admission, Barrier, Gate, NotAppended};
pub use stamper::Stamper;

use crate::command::Expire;
use crate::id::{LogSessionId, Position};
use crate::machine::{Applied, Machine, NotExpired, Reply};
use crate::time::LogTime;
use convoke_base::Time;

/// One term of one leader.
#[derive(Debug)]
pub struct Leadership {
    first: Position,
    pub gate: Gate,
    pub expiry: SessionExpiry,
    pub stamper: Stamper,
}

impl Leadership {
    /// Starts a term whose first entry is `first`. `highest` is the highest stamp in the log at that time.
    pub fn elected(now: Time, first: Position, highest: LogTime, machine: &Machine) -> Self {
        Leadership {
            first,
            gate: Gate::new(first, machine.mutation),
            expiry: SessionExpiry::elected(now, first.epoch, machine),
            stamper: Stamper::elected(now, highest),
        }
    }

    /// Returns the first entry of the term.
    pub fn first(&self) -> Position {
        self.first
    }

    /// Records an applied entry and its effect. Must be called for every entry, in order.
    pub fn applied(&mut self, now: Time, command: &crate::Command, applied: &Applied, machine: &Machine) {
        for (session, _) in &applied.ended {
            self.expiry.ended(*session);
            self.gate.forget(*session);
        }
        match (&applied.reply, command) {
            (Reply::Opened(Ok(opened)), _) => {
                if let Some(session) = machine.session(opened.session) {
                    self.expiry.opened(now, session.id, session.ttl);
                }
            }
            (Reply::Request(answer), _) if answer.verdict.is_ok() => {
                self.expiry.renew(now, answer.id.session);
            }
            (Reply::Expired(Err(why)), crate::Command::Expire(Expire { session, .. }))
                if *why != NotExpired::NotOpen =>
            {
                self.expiry.not_expired(now, *session);
            }
            _ => {}
        }
    }

    /// Returns the expiries to propose now.
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<Expire> {
        self.expiry.due(now, machine)
    }

    /// Starts a barrier read (LR4, step 1). The caller then confirms its leadership and waits.
    pub fn barrier(
        &mut self,
        session: LogSessionId,
        epoch: crate::Epoch,
        below: u64,
        machine: &Machine,
    ) -> Result<Barrier, NotAppended> {
        self.gate.barrier(session, epoch, below, machine)
    }
}

#[cfg(test)]
mod tests;
