//! Keep-alives of leases, places in locks that clients wait for, and the ends of member leases.

use super::LogHandle;
use crate::counters::add;
use crate::engine::Engine;
use crate::rejection::LogRejection;
use crate::state::State;
use convoke_log::command::{LeaseId, LeaseTerm, MemberBinding};
use convoke_log::leader::{AwaitTicket, KeepAlive, MemberSeen, PlaceOf, PlaceState, RegistryHealth};
use convoke_log::{Epoch, Level, LogTime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The answer to the keep-alive of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKept {
    pub lease: LeaseId,
    pub state: KeepAlive,
    /// Time until the leader ends the lease without a further keep-alive; zero for a lease of a member.
    pub left: Duration,
}

impl LogHandle {
    /// Keeps leases alive. The answer comes after a leadership round that began after this call (LE2). `epoch` is the
    /// one the client assumes.
    pub async fn keep_leases(&self, epoch: Epoch, leases: &[LeaseId]) -> Result<Vec<LeaseKept>, LogRejection> {
        let engine = self.engine()?;
        let _permit = engine.permit()?;
        let (renewed, confirmed) = {
            let mut term = engine.state.term();
            engine.check_epoch(term.epoch(), epoch)?;
            let now = engine.state.now();
            let renewed: Vec<KeepAlive> = leases.iter().map(|lease| term.renew_lease(now, *lease)).collect();
            (renewed, engine.keep_alives.received(epoch))
        };
        confirmed.await.unwrap_or(Err(LogRejection::Stopped))?;
        let (machine, term) = (engine.state.machine(), engine.state.term());
        let now = engine.state.now();
        let kept = leases.iter().zip(renewed).map(|(lease, renewed)| {
            let left = term.lease_left(epoch, now, *lease).unwrap_or_default();
            let state = match machine.lease(*lease).map(|lease| &lease.term) {
                None => KeepAlive::Unknown,
                Some(LeaseTerm::Member(_)) => KeepAlive::Kept,
                Some(LeaseTerm::Ttl(_)) => renewed,
            };
            let left = if state == KeepAlive::Kept { left } else { Duration::ZERO };
            LeaseKept { lease: *lease, state, left }
        });
        let kept: Vec<LeaseKept> = kept.collect();
        let count = kept.iter().filter(|kept| kept.state == KeepAlive::Kept).count();
        add(&engine.counting.lease_keep_alives, count as u64);
        Ok(kept)
    }

    /// Returns the time until this leader ends a lease without a further keep-alive. `None` at other replicas, and for
    /// leases of members.
    pub fn lease_left(&self, lease: LeaseId) -> Option<Duration> {
        let state = &self.engine().ok()?.state;
        let term = state.term();
        term.lease_left(term.epoch()?, state.now(), lease)
    }

    /// Waits until a place in a lock differs from the known one, and returns it (LO9). Dropping the future ends the
    /// wait. Rejected when this replica no longer leads.
    pub async fn await_place(
        &self,
        epoch: Epoch,
        place: PlaceOf,
        known: PlaceState,
    ) -> Result<PlaceState, LogRejection> {
        let engine = self.engine()?;
        let (state, limit) = (engine.state.clone(), engine.config.limits.awaited_places);
        engine.check_epoch(state.term().epoch(), epoch)?;
        // A deposed leader that has not noticed it may know an earlier place, and must not report it.
        if PlaceState::of(&state.machine(), &place) != known {
            let found = PlaceState::of(&*engine.read_linearizable().await?, &place);
            if found != known {
                return Ok(found);
            }
        }
        let (changed, _waiting) = {
            let mut term = state.term();
            engine.check_epoch(term.epoch(), epoch)?;
            // Applied since the first look, by an entry of this term or an earlier one.
            let found = PlaceState::of(&state.machine(), &place);
            if found != known {
                return Ok(found);
            }
            let (client, changed) = oneshot::channel();
            let Ok(ticket) = term.awaited.add(place, client, limit) else {
                add(&engine.counting.requests_rejected_busy, 1);
                return Err(LogRejection::Busy { what: "clients that wait for locks", limit: limit as u64 });
            };
            (changed, Waiting { state: state.clone(), ticket, epoch })
        };
        // Do not hold the engine while waiting: a stop waits until it is released.
        drop(engine);
        match changed.await {
            Ok(found) => Ok(found),
            Err(_) => Err(self.engine()?.not_leading()),
        }
    }

    /// Returns the current log time if this replica leads, or that of its last entry.
    pub fn log_time(&self) -> Option<LogTime> {
        let state = &self.engine().ok()?.state;
        let current = state.term().log_time(state.now());
        Some(current.unwrap_or_else(|| state.machine().log_time()))
    }

    /// Returns the number of clients that wait for a place at this leader.
    pub fn awaited_places(&self) -> usize {
        self.engine().map_or(0, |engine| engine.state.term().awaited.len())
    }

    /// Returns the registrations that leases are bound to, if this replica leads.
    pub fn bound_members(&self) -> Vec<MemberBinding> {
        let Ok(engine) = self.engine() else { return Vec::new() };
        if engine.state.term().epoch().is_none() {
            return Vec::new();
        }
        let machine = engine.state.machine();
        let bound = machine.leases().filter_map(|lease| match &lease.term {
            LeaseTerm::Member(bound) => Some(bound.clone()),
            LeaseTerm::Ttl(_) => None,
        });
        bound.collect()
    }

    /// Proposes to end the leases of members that are gone, according to the registry of this node (LE7). Returns how
    /// many. Does nothing unless this replica leads.
    pub fn end_leases_of_members(
        &self,
        health: RegistryHealth,
        heartbeat_timeout: Duration,
        seen: &BTreeMap<String, MemberSeen>,
    ) -> usize {
        let Ok(engine) = self.engine() else { return 0 };
        let (state, machine) = (&engine.state, engine.state.machine());
        let seen = |member: &str| seen.get(member).cloned().unwrap_or(MemberSeen::Absent);
        let due = state.term().members_due(state.now(), &machine, health, heartbeat_timeout, seen);
        let mut ended = 0;
        for command in due {
            match engine.propose(&command) {
                Ok(_) => ended += 1,
                Err(_) => state.term().not_expired(state.now(), &command),
            }
        }
        add(&engine.counting.member_leases_ended, ended as u64);
        ended
    }

    /// Returns the feature level of the log, as far as this replica has applied it.
    pub fn level(&self) -> Option<Level> {
        self.engine().ok().map(|engine| engine.state.machine().level())
    }
}

impl Engine {
    fn check_epoch(&self, current: Option<Epoch>, named: Epoch) -> Result<(), LogRejection> {
        match current {
            Some(current) if current == named => Ok(()),
            Some(current) => Err(LogRejection::StaleEpoch { current }),
            None => Err(self.not_leading()),
        }
    }
}

/// A client in the table of its leader. Dropping it removes the client.
struct Waiting {
    state: Arc<State>,
    ticket: AwaitTicket,
    epoch: Epoch,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut term = self.state.term();
        // The table of another term does not know this ticket, and may have given its number to another client.
        if term.epoch() == Some(self.epoch) {
            term.awaited.cancel(&self.ticket);
        }
    }
}
