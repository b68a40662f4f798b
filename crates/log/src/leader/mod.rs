//! Volatile state of a leader for one term.
//!
//! None of it is replicated, and replicated state does not depend on it: the apply rule is correct whatever a leader
//! does. It provides barrier reads (LR4), expiry (LS6) and log time (LS5). A leader that loses leadership drops this
//! value; a restarted leader starts a new epoch (E1).

mod awaited;
mod expiry;
mod gate;
mod level;
mod members;
mod rounds;
mod stamper;

pub use awaited::{AwaitFull, AwaitTicket, AwaitedPlaces, PlaceOf, PlaceState};
pub use expiry::{Expirable, Expiry, KeepAlive};
pub use gate::{Admission, Barrier, Gate, NotAppended};
pub use level::{HeldBackBy, LEVEL_WAIT, LevelPace, LevelPolicy, LevelVerdict};
pub use members::{MemberLeases, MemberSeen, RegistryHealth};
pub use rounds::Rounds;
pub use stamper::Stamper;

use crate::command::{EndDelay, Expire, LeaseTerm, LockName};
use crate::id::{LogSessionId, Position};
use crate::leases::Lease;
use crate::machine::{Applied, Machine, NotExpired, Outcome, Reply, Response};
use crate::time::LogTime;
use convoke_base::Time;
use std::collections::BTreeSet;

/// One term of one leader.
#[derive(Debug)]
pub struct LeaderTerm {
    first: Position,
    pub gate: Gate,
    pub expiry: Expiry,
    pub stamper: Stamper,
    pub level: LevelPolicy,
    pub members: MemberLeases,
    /// Locks whose end of delay is proposed.
    delays: BTreeSet<LockName>,
}

impl LeaderTerm {
    /// Starts a term whose first entry is `first`. `highest` is the highest stamp in the log at that time.
    pub fn elected(now: Time, first: Position, highest: LogTime, machine: &Machine) -> Self {
        LeaderTerm {
            first,
            gate: Gate::new(first, machine.mutation),
            expiry: Expiry::elected(now, first.epoch, machine),
            stamper: Stamper::elected(now, highest),
            level: LevelPolicy::new(first.epoch, machine.mutation),
            members: MemberLeases::elected(now, first.epoch, machine.mutation),
            delays: BTreeSet::new(),
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
        for lease in &applied.ended_leases {
            self.expiry.ended(*lease);
            self.members.settled(*lease);
        }
        match (&applied.reply, command) {
            (Reply::Opened(Ok(opened)), _) => {
                if let Some(session) = machine.session(opened.session) {
                    self.expiry.opened(now, session.id, session.ttl);
                }
            }
            (Reply::Request(answer), _) => {
                let Ok(outcome) = &answer.verdict else { return };
                self.expiry.renew(now, answer.id.session);
                self.granted(now, outcome, machine);
            }
            (Reply::Expired(Err(why)), crate::Command::Expire(Expire { session, .. }))
                if *why != NotExpired::NotOpen =>
            {
                self.expiry.not_expired(now, *session);
            }
            (Reply::LeaseEnded(Err(_)), crate::Command::EndLease(end)) => {
                self.expiry.not_expired(now, end.lease);
                self.members.settled(end.lease);
            }
            (Reply::DelayEnded(_), crate::Command::EndDelay(end)) => {
                self.delays.remove(&end.name);
            }
            _ => {}
        }
    }

    /// Starts the ttl of a lease that an entry granted. A copy of the grant starts nothing again.
    fn granted(&mut self, now: Time, outcome: &Outcome, machine: &Machine) {
        let Outcome::Applied { response: Response::Granted(id), .. } = outcome else { return };
        if self.expiry.left(*id).is_some() {
            return;
        }
        if let Some(Lease { term: LeaseTerm::Ttl(ttl), .. }) = machine.lease(*id) {
            self.expiry.opened(now, *id, *ttl);
        }
    }

    /// Returns the commands to propose now: expiries of sessions and leases (LS6, LE3), and ended delays of locks (LO7).
    /// If a command is not appended, pass it to [`not_proposed`](Self::not_proposed).
    pub fn due(&mut self, now: Time, machine: &Machine) -> Vec<crate::Command> {
        let mut due = self.expiry.due(now, machine);
        let (epoch, log_time) = (self.first.epoch, self.stamper.stamp(now));
        for lock in machine.delayed_locks() {
            let is_over = lock.delayed_until.is_some_and(|until| until <= log_time);
            if is_over && self.delays.insert(lock.name.clone()) {
                due.push(crate::Command::EndDelay(EndDelay { epoch, name: lock.name.clone() }));
            }
        }
        due
    }

    /// Records that a command of [`due`](Self::due) was not appended.
    pub fn not_proposed(&mut self, now: Time, command: &crate::Command) {
        match command {
            crate::Command::Expire(expire) => self.expiry.not_expired(now, expire.session),
            crate::Command::EndLease(end) => {
                self.expiry.not_expired(now, end.lease);
                self.members.settled(end.lease);
            }
            crate::Command::EndDelay(end) => drop(self.delays.remove(&end.name)),
            _ => {}
        }
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
mod coordination_tests;
#[cfg(test)]
mod tests;
