//! Conversion of client messages to operations.

use super::outgoing::{Pending, answer};
use super::{AttachStream, State};
use crate::convert::{attach_member, metadata_update};
use crate::error::{invalid, rejected};
use crate::traces;
use convoke_core::node::SessionId;
use convoke_node::ClientOperation;
use convoke_proto::{Error, ErrorCode, v1};
use std::sync::Arc;
use tracing::Span;
use v1::client_message::Message as ClientMessage;
use v1::request::Operation as Requested;
use v1::server_message::Message as ServerMessage;

impl AttachStream {
    pub(super) fn message(&mut self, message: v1::ClientMessage, operations: &mut Vec<ClientOperation>) {
        let wrong = match (&self.state, &message.message) {
            (_, None) => Some("this node does not know this kind of message"),
            (_, Some(ClientMessage::Attach(_))) => None,
            (State::First, _) => Some("the first message of a stream must be an attach"),
            _ if self.parts.begun() => Some("an attach in parts must not be interrupted"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return self.end_with(invalid("message", wrong));
        }
        match message.message {
            Some(ClientMessage::Heartbeat(heartbeat)) => self.heartbeat(heartbeat.sent),
            Some(ClientMessage::Requests(requests)) => self.requests(requests, operations),
            Some(ClientMessage::Attach(attach)) => self.attach(attach, operations),
            Some(ClientMessage::Close(_)) => self.close(operations),
            None => {}
        }
    }

    fn heartbeat(&mut self, sent: u64) {
        let result = match self.session {
            Some(session) => self.connection.heartbeat_echoed(session, sent).map_err(rejected),
            None => Err(session_gone()),
        };
        match result {
            Ok(()) => self.unanswered += 1,
            Err(error) => {
                let ack = v1::HeartbeatAck { sent, error: Some(error.into()), spread_ms: 0 };
                self.outgoing.push_back(ServerMessage::HeartbeatAck(ack));
            }
        }
    }

    fn requests(&mut self, requests: v1::Requests, operations: &mut Vec<ClientOperation>) {
        let requests = requests.requests;
        let mut answers = Vec::with_capacity(requests.len());
        let mut open = 0;
        operations.reserve(requests.len());
        for request in requests {
            let seq = request.seq;
            match self.session.ok_or_else(session_gone).and_then(|session| operation(session, request)) {
                Ok(operation) => {
                    operations.push(operation);
                    open += 1;
                    answers.push(v1::Answer { seq, ..v1::Answer::default() });
                }
                Err(error) => answers.push(answer(seq, error)),
            }
        }
        let span = traces::requests(answers.len());
        self.pending.push_back(Pending::Requests { answers, open, span });
    }

    fn attach(&mut self, attach: v1::Attach, operations: &mut Vec<ClientOperation>) {
        let claim = attach.claim;
        match self.parts.take(attach) {
            None => {}
            Some(Ok(attach)) => {
                let call = std::mem::replace(&mut self.call, Span::none());
                let span = traces::attach(&call, &attach.client);
                operations.push(ClientOperation::Attach(attach));
                self.pending.push_back(Pending::Attach { claim, span });
                self.state = State::Waiting;
            }
            Some(Err(error)) => {
                self.pending.push_back(Pending::Rejected { claim, error });
                self.state = State::Reading;
            }
        }
    }

    fn close(&mut self, operations: &mut Vec<ClientOperation>) {
        match self.session {
            Some(session) => {
                operations.push(ClientOperation::Close { session });
                self.pending.push_back(Pending::Close);
                self.state = State::Waiting;
            }
            None => {
                let closed = v1::Closed { error: Some(session_gone().into()) };
                self.outgoing.push_back(ServerMessage::Closed(closed));
            }
        }
    }
}

fn operation(session: SessionId, request: v1::Request) -> Result<ClientOperation, Error> {
    let seq = request.seq;
    Ok(match request.operation {
        Some(Requested::Register(register)) => {
            ClientOperation::Register { session, seq, member: Arc::new(attach_member(register)?) }
        }
        Some(Requested::Update(update)) => {
            let (id, update, expected) = metadata_update(update)?;
            ClientOperation::Update { session, seq, id, update: Arc::new(update), expected }
        }
        Some(Requested::Unregister(unregister)) => ClientOperation::Unregister { session, seq, id: unregister.id },
        None => return Err(invalid("operation", "this node does not know this kind of request")),
    })
}

fn session_gone() -> Error {
    Error::new(ErrorCode::SessionGone, "no session is attached on this stream; attach again")
}
