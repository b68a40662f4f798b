//! Messages of the node: answers, heartbeats, notices.

use super::state::{ClientTime, ConnectionId, Kind, Operation, OperationId, Phase, RegistrationId};
use super::{CLOSE_REPEAT, Effect, Effects, Session};
use crate::Error;
use crate::mutant::seam;
use convoke_proto::{ErrorCode, v1};
use std::time::Duration;
use v1::notice::Notice;
use v1::server_message::Message as FromNode;

impl Session {
    /// Handles a message of the node. Messages of older connections are ignored.
    pub fn received(
        &mut self,
        now: ClientTime,
        connection: ConnectionId,
        message: v1::ServerMessage,
        out: &mut Effects,
    ) {
        if self.phase.connection() != Some(connection) {
            return;
        }
        match message.message {
            Some(FromNode::Attached(answer)) => self.attached(now, answer, out),
            Some(FromNode::AttachRejected(answer)) => self.attach_rejected(now, answer, out),
            Some(FromNode::HeartbeatAck(answer)) => self.heartbeat_answered(now, answer, out),
            Some(FromNode::Answers(answers)) => {
                for answer in answers.answers {
                    if self.phase.connection() == Some(connection) {
                        self.answered(now, answer, out);
                    }
                }
            }
            Some(FromNode::Closed(answer)) => self.closed(now, answer, out),
            Some(FromNode::Notice(v1::Notice { notice: Some(notice) })) => self.noticed(now, notice, out),
            // A newer node may send messages that this version does not know.
            Some(FromNode::Notice(v1::Notice { notice: None })) | None => {}
        }
    }

    fn heartbeat_answered(&mut self, now: ClientTime, answer: v1::HeartbeatAck, out: &mut Effects) {
        if !matches!(self.phase, Phase::Attached { .. }) {
            return;
        }
        match answer.error {
            None => {
                let mut sent = Duration::from_micros(answer.sent);
                seam!(self, EchoCountsOnArrival => sent = now);
                self.last_echo = self.last_echo.max(sent.min(now));
                self.backoff.spread(Duration::from_millis(answer.spread_ms.into()));
                self.unreplicated.replicated(answer.replicated);
            }
            Some(error) => self.lost(now, &error.message, out),
        }
    }

    fn closed(&mut self, now: ClientTime, answer: v1::Closed, out: &mut Effects) {
        if !matches!(self.phase, Phase::Closing { .. }) {
            return;
        }
        match answer.error {
            None => {
                // Other clients of the node may have unregistered members.
                let nothing = self.unregistered.is_empty() && self.unreplicated.ids().next().is_none();
                let mut replicated = !answer.unreplicated || nothing;
                seam!(self, CloseNotRepeated => replicated = true);
                if !replicated && self.repeat_close_until.is_none() {
                    self.repeat_close_until = Some(now + CLOSE_REPEAT);
                    self.lost(now, "no other node has the unregistrations yet", out);
                    return;
                }
                // A second node without a connection to the others, or the same one again: no further one is better.
                self.drop_connection(out);
                self.finish_closing(replicated, out);
            }
            Some(error) => self.lost(now, &error.message, out),
        }
    }

    fn noticed(&mut self, now: ClientTime, notice: Notice, out: &mut Effects) {
        match notice {
            // The notice concerns a session that this one has replaced itself.
            Notice::Lost(lost) if lost.known < self.previous_claim => {}
            Notice::Lost(lost) => {
                self.claim = self.claim.max(lost.known);
                self.lost(now, "a newer session replaced this one", out);
            }
            Notice::Superseded(superseded) => {
                if superseded.known >= self.previous_claim {
                    self.handle_superseded(now, out);
                }
            }
            // The pending attach names the member again, and its answer is newer.
            Notice::TakenOver(taken) if self.pending_attach.members.contains_key(&taken.id) => {}
            Notice::TakenOver(taken) => {
                let error = Error::new(ErrorCode::TakenOver, format!("another client took over member {:?}", taken.id));
                self.give_up(&taken.id, &error.field("id"), out);
            }
            Notice::Handover(handover) => {
                // The node notifies its clients gradually, so they need not spread their reconnects.
                self.backoff.spread(Duration::ZERO);
                self.lost(now, "the node named another one", out);
                if !handover.address.is_empty() {
                    self.seeds.prefer(handover.address);
                }
            }
        }
    }

    fn answered(&mut self, now: ClientTime, answer: v1::Answer, out: &mut Effects) {
        let Some(id) = self.in_flight.remove(&answer.seq) else { return };
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.seq = None;
        match answer.error {
            None => self.executed(id, answer, out),
            Some(error) => self.rejected(now, id, &error.into(), out),
        }
        if let Phase::Attached { connection } = self.phase
            && self.attach_again
            && self.in_flight.is_empty()
        {
            self.attach(now, connection, out);
        }
    }

    /// Attaches the session again on the same stream to settle this operation. It waits until all pending operations
    /// are answered, because the attach must contain their outcome.
    fn attach_again(&mut self, operation: OperationId) {
        self.waiting.insert(operation);
        self.attach_again = true;
    }

    fn executed(&mut self, operation: OperationId, answer: v1::Answer, out: &mut Effects) {
        let version = answer.version;
        let Some(held) = self.operations.get(&operation) else { return };
        let (id, registration) = (held.id.clone(), held.registration);
        let holding = self.holdings.get_mut(&id).filter(|holding| holding.registration == registration);
        match (&held.kind, holding) {
            (Kind::Register { metadata }, Some(holding)) => holding.confirmed = Some(metadata.clone()),
            (Kind::Update(update), Some(holding)) => {
                update.apply(holding.confirmed.get_or_insert_default());
            }
            _ => {}
        }
        match held.kind {
            Kind::Unregister => {
                self.unregistration_settled(&id, operation);
                self.keep_unregistration(id.clone(), answer.written);
            }
            Kind::Register { .. } => self.unreplicated.remove(&id),
            Kind::Update(_) => {}
        }
        let Some(held) = self.operations.get(&operation) else { return };
        let conditional = held.is_conditional();
        if let Some(holding) = self.holdings.get_mut(&id).filter(|h| h.registration == registration) {
            holding.version = Some(version.clone());
            out.push(Effect::Versioned { registration, version: version.clone() });
        }
        self.finish(operation, Ok(version), out);
        if conditional {
            self.rebuild(&id, registration);
        }
    }

    fn rejected(&mut self, now: ClientTime, operation: OperationId, error: &Error, out: &mut Effects) {
        let Some(held) = self.operations.get(&operation) else { return };
        let (id, registration) = (held.id.clone(), held.registration);
        match (&held.kind, error.code) {
            (Kind::Register { .. }, ErrorCode::StaleClaim) => {
                self.claim = self.claim.max(error.known.unwrap_or(0));
                self.attach_again(operation);
            }
            (Kind::Unregister, ErrorCode::NotRegistered) if !self.awaited(&id) => {
                self.unregistration_settled(&id, operation);
                self.finish(operation, Ok(String::new()), out);
            }
            (_, ErrorCode::SessionGone | ErrorCode::NotRegistered | ErrorCode::NotReady | ErrorCode::StaleClaim) => {
                match self.phase {
                    Phase::Attached { .. } => self.lost(now, &error.message, out),
                    _ => {
                        self.waiting.insert(operation);
                    }
                }
            }
            // Another session holds the member: another client's, or an older one of this client. If the attach names
            // the id, its answer settles this. An id that the session never sent is not named and belongs to another
            // client: there is nothing to unregister, and attaching again would change nothing and never end.
            (Kind::Unregister, ErrorCode::AlreadyRegistered | ErrorCode::TakenOver | ErrorCode::PermissionDenied) => {
                if self.unregistered.contains_key(&id) || self.holdings.contains_key(&id) {
                    self.attach_again(operation);
                } else {
                    self.finish(operation, Ok(String::new()), out);
                }
            }
            (_, ErrorCode::AlreadyRegistered | ErrorCode::TakenOver | ErrorCode::PermissionDenied) => {
                if self.is_held(&id, registration) {
                    self.give_up(&id, error, out);
                } else {
                    self.finish(operation, Err(error.clone()), out);
                }
            }
            (Kind::Register { .. }, _) => {
                let fresh = self.holdings.get(&id).is_some_and(|holding| holding.confirmed.is_none());
                if fresh && self.is_held(&id, registration) {
                    self.give_up(&id, error, out);
                } else {
                    self.finish(operation, Err(error.clone()), out);
                }
            }
            (Kind::Update(_), _) => {
                self.finish(operation, Err(error.clone()), out);
                self.rebuild(&id, registration);
            }
            (Kind::Unregister, _) => self.finish(operation, Err(error.clone()), out),
        }
    }

    /// Records that the id is unregistered, unless it was registered and unregistered again since.
    fn unregistration_settled(&mut self, id: &str, settled: OperationId) {
        let again = |(key, held): (&OperationId, &Operation)| {
            *key != settled && held.id == id && matches!(held.kind, Kind::Unregister)
        };
        if !self.operations.iter().any(again) {
            self.unregistered.remove(id);
        }
    }

    /// Names an acknowledged unregistration in further attaches until another node has it (C13).
    fn keep_unregistration(&mut self, id: String, written: u64) {
        seam!(self, AcknowledgedIsReplicated => return);
        self.unreplicated.insert(id, written);
    }

    /// Returns whether the unregistration of this id must reach a node that knows the member, with another attach (C3).
    fn awaited(&self, id: &str) -> bool {
        !self.holdings.contains_key(id) && self.unregistered.get(id).is_some_and(|gone| gone.confirmed)
    }

    fn is_held(&self, id: &str, registration: RegistrationId) -> bool {
        self.holdings.get(id).is_some_and(|holding| holding.registration == registration)
    }
}
