//! Checks of leases and locks from outside, at seeds whose log is at level 2.

use super::Violation;
use super::bodies::lock;
use convoke_log::command::{Body, LeaseCause, LeaseId, LeaseTerm};
use convoke_log::machine::{Applied, Outcome, Reply, Response};
use convoke_log::{Command, LogTime, Machine, Position};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Coordination {
    /// Grant time and ttl of each lease.
    leases: BTreeMap<LeaseId, (LogTime, Duration)>,
    highest_fence: u64,
}

impl Coordination {
    /// Checks an applied entry and returns what happened, for counting.
    pub(super) fn applied(
        &mut self,
        at: Position,
        command: &Command,
        applied: &Applied,
        machine: &Machine,
        log_time: LogTime,
    ) -> Result<Vec<&'static str>, Violation> {
        let broken = |check, message| Err(Violation::new(check, message));
        let mut seen = Vec::new();
        if let (Command::Request(request), Reply::Request(answer)) = (command, &applied.reply)
            && let (Body::Grant(grant), Ok(outcome)) = (&request.body, &answer.verdict)
            && let (LeaseTerm::Ttl(ttl), Outcome::Applied { response: Response::Granted(lease), .. }) =
                (&grant.term, &**outcome)
        {
            self.leases.entry(*lease).or_insert((log_time, *ttl));
        }
        if let (Command::EndLease(end), Reply::LeaseEnded(Ok(()))) = (command, &applied.reply) {
            seen.push("lease expired");
            if end.epoch != at.epoch {
                return broken("leases", format!("ended in {}, proposed in {}", at.epoch, end.epoch));
            }
            let Some((granted, ttl)) = self.leases.get(&end.lease) else {
                return broken("leases", format!("lease {} was never granted", end.lease));
            };
            if end.cause == LeaseCause::Expired && log_time.since(*granted) < *ttl {
                return broken("leases", format!("lease {} ended too early", end.lease));
            }
        }
        for granted in &applied.granted {
            let is_own = matches!(command, Command::Request(request) if matches!(request.body, Body::Acquire(_)));
            seen.push(if is_own { "lock granted" } else { "lock handed over" });
            if granted.fence <= self.highest_fence {
                return broken("fencing", format!("fence {} after {}", granted.fence, self.highest_fence));
            }
            self.highest_fence = granted.fence;
        }
        let name = lock();
        let holders: Vec<_> = machine.places(&name).filter(|place| place.fence().is_some()).collect();
        if holders.len() > 1 {
            return broken("mutual exclusion", format!("{holders:?}"));
        }
        if let Some(dead) = machine.places(&name).find(|place| machine.lease(place.lease).is_none()) {
            return broken("leases", format!("{dead:?} has no lease"));
        }
        Ok(seen)
    }
}
