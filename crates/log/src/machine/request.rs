//! The apply rule (A3), step by step, and the execution of bodies.

use super::answer::{ApplyRejection, Fate, RequestAnswer};
use super::effects::Effects;
use super::outcome::{Outcome, Reason, Response};
use super::session::EndReason;
use super::{Machine, Session};
use crate::command::{Body, Put, Request};
use crate::id::{Epoch, LogSessionId, Position, RequestId};
use crate::keys::KeyChanges;
use crate::limits::LogLimits;
use crate::mutant::{Mutation, seam};
use std::borrow::Cow;
use std::sync::Arc;

impl Machine {
    pub(super) fn request(&mut self, at: Position, request: &Request, effects: &mut Effects) -> RequestAnswer {
        let verdict = self.decide(at, request, effects);
        let previous = self.previous(request).map(|id| (id, self.peek(id)));
        let results = match (effects.results.take(), &request.body, &verdict) {
            (Some(results), ..) => Some(Ok(results)),
            // A copy: the results are not stored, so they are read again (T8).
            (None, Body::Txn(txn), Ok(outcome)) => self.txn_results(txn, outcome),
            _ => None,
        };
        RequestAnswer { id: request.id(), verdict, previous, results }
    }

    /// Returns the request whose fate the answer carries (A5).
    fn previous(&self, request: &Request) -> Option<RequestId> {
        if let Body::Fence(fenced) = request.body {
            return Some(fenced);
        }
        seam!(self, PreviousFateOmitted => return None);
        (request.previous > 0).then(|| RequestId::new(request.session, request.previous))
    }

    fn decide(
        &mut self,
        at: Position,
        request: &Request,
        effects: &mut Effects,
    ) -> Result<Arc<Outcome>, ApplyRejection> {
        request.check().map_err(|field| ApplyRejection::Invalid { field })?;
        self.check_level(&request.body)?;
        // Step 1, log time, precedes every command. Step 2:
        let Some(session) = self.sessions.open.get(&request.session) else {
            return self.decide_without_session(at, request, effects);
        };
        // Steps 3 to 6.
        if let Some(outcome) = self.stored_outcome(session, request.number) {
            return Ok(outcome.clone());
        }
        self.check_floor(session, request.number)?;
        self.check_epoch(at, request.epoch)?;
        self.check_gap(session, request)?;
        self.check_window(session, request)?;
        // Step 7.
        let outcome = if self.is_late(request) {
            Outcome::NotApplied { index: at.index, reason: Reason::Expired }
        } else {
            self.execute(at, request, effects)
        };
        Ok(self.store(at, request, outcome, effects))
    }

    /// Step 3: a copy of a request that took effect gets its outcome.
    fn stored_outcome<'a>(&self, session: &'a Session, number: u64) -> Option<&'a Arc<Outcome>> {
        seam!(self, OutcomesForgotten => return None);
        session.outcome(number)
    }

    /// Step 4: a number below the floor never takes effect.
    fn check_floor(&self, session: &Session, number: u64) -> Result<(), ApplyRejection> {
        seam!(self, SupersededExecuted => return Ok(()));
        if number >= session.floor {
            Ok(())
        } else if number <= session.horizon {
            Err(ApplyRejection::TooOld)
        } else {
            Err(ApplyRejection::Superseded)
        }
    }

    /// Step 5: a command that another leader should have appended does nothing.
    pub(super) fn check_epoch(&self, at: Position, epoch: Epoch) -> Result<(), ApplyRejection> {
        seam!(self, EpochIgnored => return Ok(()));
        if epoch == at.epoch { Ok(()) } else { Err(ApplyRejection::StaleEpoch { current: at.epoch }) }
    }

    /// Step 6: a pipelined request waits for the one before it, unless the client has abandoned that one.
    fn check_gap(&self, session: &Session, request: &Request) -> Result<(), ApplyRejection> {
        seam!(self, GapIgnored => return Ok(()));
        let missing = request.previous;
        let waits = missing >= request.abandon_below && missing >= session.floor;
        if waits { Err(ApplyRejection::Gap { missing }) } else { Ok(()) }
    }

    /// Step 7: after its deadline, a request is not executed.
    fn is_late(&self, request: &Request) -> bool {
        seam!(self, DeadlineIgnored => return false);
        request.deadline.is_some_and(|deadline| self.log_time > deadline)
    }

    /// Step 2: an ended session executes nothing but still returns its outcomes (LS8).
    fn decide_without_session(
        &mut self,
        at: Position,
        request: &Request,
        effects: &mut Effects,
    ) -> Result<Arc<Outcome>, ApplyRejection> {
        let Some(over) = self.sessions.ended.get(&request.session) else { return Err(ApplyRejection::SessionUnknown) };
        let reason = over.reason;
        match over.fate(request.number) {
            Fate::Done(outcome) => return Ok(outcome),
            Fate::TooOld => return Err(ApplyRejection::TooOld),
            Fate::Never | Fate::Open => {}
        }
        seam!(self, EndedSessionsExecute => return Ok(Arc::new(self.execute(at, request, effects))));
        Err(ApplyRejection::SessionEnded(reason))
    }

    /// Rejects a request of a client that never raises `abandon_below`, before its outcomes fill the memory (F5).
    fn check_window(&self, session: &Session, request: &Request) -> Result<(), ApplyRejection> {
        seam!(self, WindowIgnored => return Ok(()));
        let (count, bytes) = session.kept_from(session.wanted.max(request.abandon_below));
        if count >= self.limits.window {
            Err(ApplyRejection::WindowFull { limit: self.limits.window })
        } else if bytes >= self.limits.outcome_bytes {
            Err(ApplyRejection::WindowFull { limit: self.limits.outcome_bytes })
        } else {
            Ok(())
        }
    }

    fn store(&mut self, at: Position, request: &Request, outcome: Outcome, effects: &mut Effects) -> Arc<Outcome> {
        let outcome = Arc::new(outcome);
        if let Some(session) = self.sessions.open.get_mut(&request.session) {
            session.activity = at.index;
            session.active_at = self.log_time;
            session.store(request.number, request.abandon_below, outcome.clone(), &self.limits, self.mutation);
        }
        // A session that ends itself does so last, so that this outcome is kept as well.
        let asked = outcome.is_applied() && request.body == Body::End(request.session);
        if asked || self.is_last(request) {
            self.end(request.session, EndReason::Requested, &mut effects.ended);
        }
        outcome
    }

    /// Whether the session ends with this request (LS4).
    fn is_last(&self, request: &Request) -> bool {
        seam!(self, LastStaysOpen => return false);
        request.last
    }

    fn execute(&mut self, at: Position, request: &Request, effects: &mut Effects) -> Outcome {
        let executed = match &request.body {
            Body::Fence(fenced) => self.fence(at, *fenced),
            Body::End(session) => self.end_by_request(request.session, *session, effects),
            Body::Put(_) | Body::Delete(_) | Body::DeleteRange(_) => self.change_keys(&request.body, effects),
            Body::Membership(change) => self.configure(at, change),
            Body::Txn(txn) => self.txn(txn, effects),
            Body::Grant(grant) => self.grant(at, request.session, grant),
            Body::Revoke(lease) => self.revoke(*lease, effects),
            Body::Acquire(acquire) => self.acquire(at, acquire, effects),
            Body::Release(release) => self.release(release, effects),
            Body::Proclaim(proclaim) => self.proclaim(proclaim, effects),
        };
        let index = at.index;
        match executed {
            Ok(response) => Outcome::Applied { index, revision: self.keys.revision(), response },
            Err(reason) => Outcome::NotApplied { index, reason },
        }
    }

    /// Executes a plain put or delete.
    fn change_keys(&mut self, body: &Body, effects: &mut Effects) -> Result<Response, Reason> {
        let limits = limits_of_keys(&self.limits, self.mutation);
        let mut changes = KeyChanges::new();
        let changed = match body {
            Body::Put(put) => self.keys.put(&limits, &as_compared(put, self.mutation), &mut changes),
            Body::Delete(delete) => self.keys.delete(&limits, delete, &mut changes),
            Body::DeleteRange(delete) => self.keys.delete_range(&limits, delete, &mut changes),
            _ => Err(Reason::Invalid { field: super::Field::Operations }),
        }?;
        self.keys_changed(self.keys.revision(), changes, effects);
        Ok(Response::Changed(changed))
    }

    /// Raises the floor of the session, so that the fates of the number and of all lower ones are final (F6).
    fn fence(&mut self, at: Position, fenced: RequestId) -> Result<Response, Reason> {
        if fenced.session.0 >= at.index {
            // The session may still be opened later; the fence would not hold then.
            return Err(Reason::NoSession);
        }
        seam!(self, FenceDoesNothing => return Ok(Response::Fenced));
        if let Some(session) = self.sessions.open.get_mut(&fenced.session) {
            session.floor = session.floor.max(fenced.number.saturating_add(1));
        }
        Ok(Response::Fenced)
    }

    fn end_by_request(
        &mut self,
        own: LogSessionId,
        target: LogSessionId,
        effects: &mut Effects,
    ) -> Result<Response, Reason> {
        if own == target || self.end(target, EndReason::Requested, &mut effects.ended) {
            Ok(Response::Ended)
        } else {
            Err(Reason::NoSession)
        }
    }
}

/// Returns the limits for keys: those of the state, or those of a mutant.
pub(super) fn limits_of_keys(limits: &LogLimits, mutation: Mutation) -> Cow<'_, LogLimits> {
    const ANY: u64 = u64::MAX;
    let without_bounds =
        || LogLimits { key_bytes: ANY, value_bytes: ANY, store_bytes: ANY, range_keys: ANY, ..limits.clone() };
    seam!(in mutation, KeyBoundsIgnored => return Cow::Owned(without_bounds()));
    seam!(in mutation, PreviousUnbounded => return Cow::Owned(LogLimits { response_bytes: ANY, ..limits.clone() }));
    Cow::Borrowed(limits)
}

/// Returns the put with its compare (K3), or without it under a mutant.
fn as_compared(put: &Put, mutation: Mutation) -> Cow<'_, Put> {
    seam!(in mutation, CompareIgnored => return Cow::Owned(Put { if_revision: None, ..put.clone() }));
    Cow::Borrowed(put)
}
