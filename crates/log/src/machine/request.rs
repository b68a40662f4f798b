//! The apply rule (A3), step by step, and the execution of bodies.

use super::answer::{Fate, Rejected, RequestAnswer};
use super::outcome::{Outcome, Reason, Response};
use super::session::EndReason;
use super::{Machine, Session};
use crate::command::{Body, Put, Request};
use crate::id::{LogSessionId, Position, RequestId};
use crate::limits::LogLimits;
use crate::mutant::{Mutant, Mutation};
use std::borrow::Cow;
use std::sync::Arc;

type Ending = Vec<(LogSessionId, EndReason)>;

impl Machine {
    pub(super) fn request(&mut self, at: Position, request: &Request, ended: &mut Ending) -> RequestAnswer {
        let verdict = self.decide(at, request, ended);
        let about = match request.body {
            Body::Fence(fenced) => Some(fenced),
            _ if self.mutation.is(Mutant::PreviousFateOmitted) => None,
            _ if request.previous > 0 => Some(RequestId::new(request.session, request.previous)),
            _ => None,
        };
        RequestAnswer { id: request.id(), verdict, previous: about.map(|id| (id, self.peek(id))) }
    }

    fn decide(&mut self, at: Position, request: &Request, ended: &mut Ending) -> Result<Arc<Outcome>, Rejected> {
        request.check().map_err(|field| Rejected::Invalid { field })?;
        // Step 1, log time, precedes every command. Step 2:
        let Some(session) = self.sessions.open.get(&request.session) else {
            return self.decide_without_session(at, request, ended);
        };
        // Step 3.
        if let Some(outcome) = session.outcome(request.number)
            && !self.mutation.is(Mutant::OutcomesForgotten)
        {
            return Ok(outcome.clone());
        }
        // Step 4.
        if request.number < session.floor && !self.mutation.is(Mutant::SupersededExecuted) {
            return Err(if request.number <= session.horizon { Rejected::TooOld } else { Rejected::Superseded });
        }
        // Step 5.
        if request.epoch != at.epoch && !self.mutation.is(Mutant::EpochIgnored) {
            return Err(Rejected::StaleEpoch { current: at.epoch });
        }
        // Step 6.
        let missing = request.previous;
        if missing >= request.abandon_below && missing >= session.floor && !self.mutation.is(Mutant::GapIgnored) {
            return Err(Rejected::Gap { missing });
        }
        self.check_window(session, request)?;
        // Step 7.
        let late = request.deadline.is_some_and(|deadline| self.log_time > deadline);
        let outcome = if late && !self.mutation.is(Mutant::DeadlineIgnored) {
            Outcome::NotApplied { index: at.index, reason: Reason::Expired }
        } else {
            self.execute(at, request, ended)
        };
        Ok(self.store(at, request, outcome, ended))
    }

    /// Step 2: an ended session executes nothing but still returns its outcomes (LS8).
    fn decide_without_session(
        &mut self,
        at: Position,
        request: &Request,
        ended: &mut Ending,
    ) -> Result<Arc<Outcome>, Rejected> {
        let Some(over) = self.sessions.ended.get(&request.session) else { return Err(Rejected::SessionUnknown) };
        let reason = over.reason;
        match over.fate(request.number) {
            Fate::Done(outcome) => Ok(outcome),
            Fate::TooOld => Err(Rejected::TooOld),
            _ if self.mutation.is(Mutant::EndedSessionsExecute) => Ok(Arc::new(self.execute(at, request, ended))),
            _ => Err(Rejected::SessionEnded(reason)),
        }
    }

    /// Rejects a request of a client that never raises `abandon_below`, before its outcomes fill the memory (F5).
    fn check_window(&self, session: &Session, request: &Request) -> Result<(), Rejected> {
        let (count, bytes) = session.kept_from(session.wanted.max(request.abandon_below));
        if self.mutation.is(Mutant::WindowIgnored) {
            Ok(())
        } else if count >= self.limits.window {
            Err(Rejected::WindowFull { limit: self.limits.window })
        } else if bytes >= self.limits.outcome_bytes {
            Err(Rejected::WindowFull { limit: self.limits.outcome_bytes })
        } else {
            Ok(())
        }
    }

    fn store(&mut self, at: Position, request: &Request, outcome: Outcome, ended: &mut Ending) -> Arc<Outcome> {
        let outcome = Arc::new(outcome);
        if let Some(session) = self.sessions.open.get_mut(&request.session) {
            session.activity = at.index;
            session.active_at = self.log_time;
            session.store(request.number, request.abandon_below, outcome.clone(), &self.limits, self.mutation);
        }
        // A session that ends itself does so last, so that this outcome is kept as well.
        let asked = outcome.is_applied() && request.body == Body::End(request.session);
        if asked || (request.last && !self.mutation.is(Mutant::LastStaysOpen)) {
            self.end(request.session, EndReason::Requested, ended);
        }
        outcome
    }

    fn execute(&mut self, at: Position, request: &Request, ended: &mut Ending) -> Outcome {
        let limits = limits_of_keys(&self.limits, self.mutation);
        let executed = match &request.body {
            Body::Fence(fenced) => self.fence(at, *fenced),
            Body::End(session) => self.end_by_request(request.session, *session, ended),
            Body::Put(put) if self.mutation.is(Mutant::CompareIgnored) => {
                let put = Put { if_revision: None, ..put.clone() };
                self.keys.put(&limits, &put).map(Response::Changed)
            }
            Body::Put(put) => self.keys.put(&limits, put).map(Response::Changed),
            Body::Delete(delete) => self.keys.delete(&limits, delete).map(Response::Changed),
            Body::DeleteRange(delete) => self.keys.delete_range(&limits, delete).map(Response::Changed),
            Body::Membership(change) => self.configure(at, change),
        };
        let index = at.index;
        match executed {
            Ok(response) => Outcome::Applied { index, revision: self.keys.revision(), response },
            Err(reason) => Outcome::NotApplied { index, reason },
        }
    }

    /// Raises the floor of the session, so that the fates of the number and of all lower ones are final (F6).
    fn fence(&mut self, at: Position, fenced: RequestId) -> Result<Response, Reason> {
        if fenced.session.0 >= at.index {
            // The session may still be opened later; the fence would not hold then.
            return Err(Reason::NoSession);
        }
        if !self.mutation.is(Mutant::FenceDoesNothing)
            && let Some(session) = self.sessions.open.get_mut(&fenced.session)
        {
            session.floor = session.floor.max(fenced.number.saturating_add(1));
        }
        Ok(Response::Fenced)
    }

    fn end_by_request(
        &mut self,
        own: LogSessionId,
        target: LogSessionId,
        ended: &mut Ending,
    ) -> Result<Response, Reason> {
        if own == target || self.end(target, EndReason::Requested, ended) {
            Ok(Response::Ended)
        } else {
            Err(Reason::NoSession)
        }
    }
}

/// Returns the limits for keys: those of the state, or those of a mutant.
fn limits_of_keys(limits: &LogLimits, mutation: Mutation) -> Cow<'_, LogLimits> {
    const ANY: u64 = u64::MAX;
    if mutation.is(Mutant::KeyBoundsIgnored) {
        let any = LogLimits { key_bytes: ANY, value_bytes: ANY, store_bytes: ANY, range_keys: ANY, ..limits.clone() };
        Cow::Owned(any)
    } else if mutation.is(Mutant::PreviousUnbounded) {
        Cow::Owned(LogLimits { response_bytes: ANY, ..limits.clone() })
    } else {
        Cow::Borrowed(limits)
    }
}
