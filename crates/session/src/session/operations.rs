//! Operations of the application: register, update, unregister, close; deadlines.

use super::state::{ClientTime, Gone, Holding, Kind, NotSent, Operation, OperationId, Phase, RegistrationId};
use super::{ANSWER_TIMEOUT, Effect, Effects, Session, ToNode, not_sent_in_time};
use crate::mutant::seam;
use crate::{ConnectionState, Error, Update};
use convoke_proto::json::MemberSpec;
use convoke_proto::{ErrorCode, PART_BYTES, PART_ELEMENTS, of_request, v1};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use v1::request::Operation as Request;

/// Largest number of operations that wait for an answer.
const OPERATIONS_MAX: usize = 16_384;
/// Largest number of requests in flight.
const IN_FLIGHT_MAX: usize = 1_024;

impl Session {
    /// Registers a member. The request is sent by the next `flush` or with the next attach.
    pub fn register(
        &mut self,
        spec: MemberSpec,
        takeover: bool,
        deadline: Option<ClientTime>,
    ) -> Result<(OperationId, RegistrationId), Error> {
        self.check_open()?;
        check_id(&spec.id)?;
        if self.holdings.contains_key(&spec.id) {
            let message = format!("this client has registered {:?} already; update its registration", spec.id);
            return Err(Error::new(ErrorCode::AlreadyRegistered, message).field("id"));
        }
        let (id, metadata) = (spec.id.clone(), spec.metadata.clone());
        self.last_id += 1;
        let registration = RegistrationId(self.last_id);
        let holding = Holding { registration, spec, takeover, confirmed: None, version: None, sent: false };
        self.holdings.insert(id.clone(), holding);
        let operation = self.enqueue(id, registration, Kind::Register { metadata }, deadline);
        Ok((operation, registration))
    }

    /// Changes the metadata of a registration.
    pub fn update(
        &mut self,
        id: &str,
        registration: RegistrationId,
        update: Update,
        deadline: Option<ClientTime>,
    ) -> Result<OperationId, Error> {
        self.check_open()?;
        let holding = self.holding(id, registration)?;
        if update.if_version.is_none() {
            update.apply(&mut holding.spec.metadata);
        }
        Ok(self.enqueue(id.to_owned(), registration, Kind::Update(update), deadline))
    }

    pub fn unregister(
        &mut self,
        id: &str,
        registration: RegistrationId,
        deadline: Option<ClientTime>,
        out: &mut Effects,
    ) -> Result<OperationId, Error> {
        self.check_open()?;
        self.holding(id, registration)?;
        self.release(id, out);
        Ok(self.enqueue(id.to_owned(), registration, Kind::Unregister, deadline))
    }

    /// Unregisters everything and ends the session.
    pub fn close(&mut self, now: ClientTime, out: &mut Effects) {
        if self.closing || self.phase == Phase::Closed {
            return;
        }
        self.closing = true;
        let ids: Vec<String> = self.holdings.keys().cloned().collect();
        for id in ids {
            self.release(&id, out);
        }
        match self.phase {
            Phase::Attached { connection } => {
                self.phase = Phase::Closing { connection, until: now + ANSWER_TIMEOUT };
                self.send(connection, ToNode::Close(v1::Close {}), out);
            }
            _ if self.unregistered.is_empty() || self.observing => {
                self.drop_connection(out);
                self.finish_closing(true, out);
            }
            _ => {}
        }
    }

    /// `replicated` is false if only one node is known to have the unregistrations.
    pub(super) fn finish_closing(&mut self, replicated: bool, out: &mut Effects) {
        self.phase = Phase::Closed;
        self.repeat_close_until = None;
        self.unregistered.clear();
        self.unreplicated.clear();
        let rest: Vec<OperationId> = self.operations.keys().copied().collect();
        for operation in rest {
            self.finish(operation, Ok(String::new()), out);
        }
        out.push(Effect::State(ConnectionState::Closed));
        out.push(Effect::Closed { replicated });
    }

    /// The application no longer waits for the answer. An operation that was not sent is withdrawn.
    pub fn cancel(&mut self, operation: OperationId, out: &mut Effects) -> NotSent {
        let Some(held) = self.operations.get_mut(&operation) else { return NotSent::OutcomeUnknown };
        held.answered = true;
        if let Some(deadline) = held.deadline.take() {
            self.deadlines.remove(&(deadline, operation));
        }
        let (id, registration, sent) = (held.id.clone(), held.registration, held.sent);
        match (&held.kind, sent) {
            (Kind::Register { .. }, _) => {
                self.release(&id, out);
                if sent {
                    self.enqueue_silently(id, registration, Kind::Unregister);
                }
            }
            (Kind::Update(_), false) => {
                self.finish(operation, Ok(String::new()), out);
                self.rebuild(&id, registration);
            }
            (Kind::Update(_) | Kind::Unregister, _) => return NotSent::OutcomeUnknown,
        }
        if sent { NotSent::OutcomeUnknown } else { NotSent::TakenBack }
    }

    /// Fails the operations that were not answered in time.
    pub(super) fn expire(&mut self, now: ClientTime, out: &mut Effects) {
        while let Some((deadline, operation)) = self.deadlines.first().copied()
            && now >= deadline
        {
            self.deadlines.pop_first();
            let error = match self.cancel(operation, out) {
                NotSent::TakenBack => not_sent_in_time(),
                NotSent::OutcomeUnknown => outcome_unknown("the operation was not answered in time"),
            };
            out.push(Effect::Done { operation, result: Err(error) });
        }
    }

    /// Sends the waiting operations, several requests in one message.
    pub fn flush(&mut self, out: &mut Effects) {
        let Phase::Attached { connection } = self.phase else { return };
        if self.attach_again {
            return;
        }
        let (mut requests, mut bytes, mut elements) = (Vec::new(), 0, 0);
        while self.in_flight.len() < IN_FLIGHT_MAX
            && let Some(next) = self.waiting.pop_first()
        {
            let Some(request) = self.request(next) else { continue };
            bytes += request.encoded_len();
            elements += of_request(&request);
            requests.push(request);
            if bytes > PART_BYTES || elements > PART_ELEMENTS {
                let requests = std::mem::take(&mut requests);
                self.send(connection, ToNode::Requests(v1::Requests { requests }), out);
                (bytes, elements) = (0, 0);
            }
        }
        if !requests.is_empty() {
            self.send(connection, ToNode::Requests(v1::Requests { requests }), out);
        }
    }

    fn request(&mut self, id: OperationId) -> Option<v1::Request> {
        let operation = self.operations.get_mut(&id)?;
        let holding = self.holdings.get_mut(&operation.id).filter(|h| h.registration == operation.registration);
        let request = match &mut operation.kind {
            Kind::Register { metadata } => {
                let holding = holding?;
                holding.sent = true;
                *metadata = holding.spec.metadata.clone();
                let member = Some(holding.spec.clone().into());
                Request::Register(v1::Register { member, takeover: holding.takeover })
            }
            Kind::Update(update) => Request::Update(update.to_wire(&operation.id)),
            Kind::Unregister => Request::Unregister(v1::Unregister { id: operation.id.clone() }),
        };
        self.seq += 1;
        operation.seq = Some(self.seq);
        operation.sent = true;
        self.in_flight.insert(self.seq, id);
        Some(v1::Request { seq: self.seq, operation: Some(request) })
    }

    /// Registers again the wanted members that this session does not hold.
    pub(super) fn repair(&mut self) {
        if self.holdings.values().all(|holding| holding.version.is_some()) {
            return;
        }
        let busy: BTreeSet<RegistrationId> = self.operations.values().map(|operation| operation.registration).collect();
        let missing: Vec<(String, RegistrationId)> = self
            .holdings
            .iter()
            .filter(|(_, holding)| holding.version.is_none() && !busy.contains(&holding.registration))
            .map(|(id, holding)| (id.clone(), holding.registration))
            .collect();
        for (id, registration) in missing {
            self.enqueue_silently(id, registration, Kind::Register { metadata: BTreeMap::new() });
        }
    }

    fn enqueue(
        &mut self,
        id: String,
        registration: RegistrationId,
        kind: Kind,
        deadline: Option<ClientTime>,
    ) -> OperationId {
        self.last_id += 1;
        let operation = OperationId(self.last_id);
        let held =
            Operation { id, registration, kind, seq: None, covered: false, sent: false, answered: false, deadline };
        self.operations.insert(operation, held);
        self.deadlines.extend(deadline.map(|deadline| (deadline, operation)));
        self.waiting.insert(operation);
        operation
    }

    /// Queues an operation of the session itself, without a waiting caller.
    pub(super) fn enqueue_silently(&mut self, id: String, registration: RegistrationId, kind: Kind) {
        let operation = self.enqueue(id, registration, kind, None);
        self.operations.entry(operation).and_modify(|operation| operation.answered = true);
    }

    /// Answers an operation and removes it.
    pub(super) fn finish(&mut self, operation: OperationId, result: Result<String, Error>, out: &mut Effects) {
        let Some(held) = self.operations.remove(&operation) else { return };
        self.waiting.remove(&operation);
        if let Some(deadline) = held.deadline {
            self.deadlines.remove(&(deadline, operation));
        }
        if let Some(seq) = held.seq {
            self.in_flight.remove(&seq);
        }
        if !held.answered {
            out.push(Effect::Done { operation, result });
        }
    }

    /// The connection was lost: unanswered operations are sent with or after the next attach, except those that cannot
    /// be repeated.
    pub(super) fn requeue(&mut self, out: &mut Effects) {
        self.in_flight.clear();
        let mut lost = Vec::new();
        for (id, operation) in &mut self.operations {
            if operation.seq.take().is_some() && operation.is_conditional() {
                lost.push(*id);
            }
            operation.covered = false;
        }
        for operation in lost {
            self.finish(operation, Err(outcome_unknown("the connection was lost")), out);
        }
        seam!(self, UnregistrationForgotten => self.forget_unregistrations(out));
    }

    /// The deliberate bug `UnregistrationForgotten`.
    fn forget_unregistrations(&mut self, out: &mut Effects) {
        self.unregistered.clear();
        let unregistration = |operation: &Operation| matches!(operation.kind, Kind::Unregister);
        let ended = self.operations.iter().filter(|(_, operation)| unregistration(operation));
        let ended: Vec<OperationId> = ended.map(|(id, _)| *id).collect();
        for operation in ended {
            self.finish(operation, Ok(String::new()), out);
        }
    }

    /// The application no longer wants this member. Pending operations on it fail.
    fn release(&mut self, id: &str, out: &mut Effects) {
        let Some(holding) = self.holdings.remove(id) else { return };
        if holding.sent {
            let gone = self.unregistered.entry(id.to_owned()).or_insert(Gone { confirmed: false });
            gone.confirmed |= holding.confirmed.is_some();
        }
        let error = Error::new(ErrorCode::NotRegistered, format!("member {id:?} was unregistered")).field("id");
        self.fail_operations(holding.registration, &error, out);
    }

    /// Another client holds this member. It is not registered again.
    pub(super) fn give_up(&mut self, id: &str, error: &Error, out: &mut Effects) {
        let Some(holding) = self.holdings.remove(id) else { return };
        self.fail_operations(holding.registration, error, out);
        if holding.confirmed.is_some() {
            let error = if error.code == ErrorCode::Superseded {
                error.clone()
            } else {
                Error::new(ErrorCode::TakenOver, format!("another client took over member {id:?}")).field("id")
            };
            out.push(Effect::Ended { registration: holding.registration, error });
        }
    }

    fn fail_operations(&mut self, registration: RegistrationId, error: &Error, out: &mut Effects) {
        let of = |operation: &Operation| operation.registration == registration;
        let ids: Vec<OperationId> =
            self.operations.iter().filter(|(_, operation)| of(operation)).map(|(id, _)| *id).collect();
        for operation in ids {
            self.finish(operation, Err(error.clone()), out);
        }
    }

    /// An update was rejected, or a conditional one was executed: the wanted state is computed again from the
    /// acknowledged state and the pending updates.
    pub(super) fn rebuild(&mut self, id: &str, registration: RegistrationId) {
        let Some(holding) = self.holdings.get_mut(id).filter(|h| h.registration == registration) else { return };
        let Some(mut metadata) = holding.confirmed.clone() else { return };
        for operation in self.operations.values().filter(|operation| operation.registration == registration) {
            if let Kind::Update(update) = &operation.kind
                && update.if_version.is_none()
            {
                update.apply(&mut metadata);
            }
        }
        holding.spec.metadata = metadata;
    }

    fn holding(&mut self, id: &str, registration: RegistrationId) -> Result<&mut Holding, Error> {
        let holding = self.holdings.get_mut(id).filter(|holding| holding.registration == registration);
        let missing =
            || Error::new(ErrorCode::NotRegistered, format!("member {id:?} is not registered any more")).field("id");
        holding.ok_or_else(missing)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closing || self.phase == Phase::Closed {
            return Err(Error::new(ErrorCode::FailedPrecondition, "this client is closed; build a new one"));
        }
        if self.observing {
            let message = "another process uses this client id; give every process its own";
            return Err(Error::new(ErrorCode::Superseded, message).field("client"));
        }
        if self.operations.len() >= OPERATIONS_MAX {
            let message = format!("{OPERATIONS_MAX} operations already wait for an answer; try again later");
            return Err(Error::new(ErrorCode::ResourceExhausted, message).limit(OPERATIONS_MAX as u64));
        }
        Ok(())
    }
}

/// Rejects texts that no node accepts as an id, whatever its limits. Nodes check everything; this keeps texts that are
/// certainly invalid out of attaches.
fn check_id(id: &str) -> Result<(), Error> {
    let problem = if id.is_empty() {
        "must not be empty"
    } else if id.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorCode::InvalidMember, format!("id {problem}")).field("id"))
}

pub(super) fn outcome_unknown(why: &str) -> Error {
    Error::new(ErrorCode::OutcomeUnknown, format!("{why}; it may have been executed: read the member and try again"))
}
