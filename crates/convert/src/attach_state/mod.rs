//! The node's side of an attach stream, without input and output.
//!
//! The caller passes the client's messages and the node's answers. [`AttachState`] returns the operations for the node
//! and the messages for the client. The server drives it with a gRPC stream, the simulator in virtual time.

mod answers;
mod parts;

use crate::{attach_member, error, invalid, metadata_update, notice};
pub use answers::answer;
use answers::{Pending, rejected_answer};
use convoke_core::Rejection;
use convoke_core::node::{AttachMember, ClientOperation, Notice, Replicated, SessionId};
use convoke_proto::{Error, ErrorCode, PART_BYTES, v1};
use parts::Parts;
use std::collections::VecDeque;
use std::sync::Arc;
use v1::client_message::Message as ClientMessage;
use v1::request::Operation as Requested;
use v1::server_message::Message as ServerMessage;

/// Reconnecting clients per second of a lost node that the other nodes accept. Two nodes that shared two cores
/// with the clients accepted 10,000 in four seconds; half of that rate leaves capacity for other clients
/// (docs/performance.md).
const RETURNS_PER_SECOND: usize = 1_250;

/// Settings of an attach stream.
#[derive(Clone, Copy, Debug)]
pub struct AttachSettings {
    /// Largest number of members in one session.
    pub members_max: usize,
    /// Largest size of an attach with all its parts.
    pub bytes_max: usize,
    /// Size above which the answer to an attach is sent in parts.
    pub part_bytes: usize,
    /// Reconnecting clients per second that the other nodes accept.
    pub returns_per_second: usize,
}

impl AttachSettings {
    /// Returns the settings of a node with these limits.
    pub fn new(members_max: usize, bytes_max: usize) -> Self {
        AttachSettings { members_max, bytes_max, part_bytes: PART_BYTES, returns_per_second: RETURNS_PER_SECOND }
    }
}

/// The calls of the node that a message requires.
#[derive(Debug, Default)]
pub struct Calls {
    /// Operations for [`AttachState::answered`], in order.
    pub operations: Vec<ClientOperation>,
    /// Heartbeats for [`AttachState::heartbeat_answered`]. They need not wait for the operations.
    pub heartbeats: Vec<HeartbeatCall>,
}

/// A heartbeat of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatCall {
    pub session: SessionId,
    /// The time at which the client sent it, for its answer.
    pub sent: u64,
}

/// Decides which registrations a client may make.
pub trait Registrations {
    fn register(&self, member: &AttachMember) -> Result<(), Error>;

    /// Decides about the unregistration of a member that the client names in an attach. It may have registered it at another
    /// node.
    fn unregister(&self, id: &str) -> Result<(), Error>;
}

/// Every registration is allowed.
impl Registrations for () {
    fn register(&self, _: &AttachMember) -> Result<(), Error> {
        Ok(())
    }

    fn unregister(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
}

/// The state of one attach stream.
#[derive(Clone, Debug)]
pub struct AttachState {
    /// Id of the node.
    node: String,
    /// The principal of the stream; empty without access control (C14).
    principal: String,
    settings: AttachSettings,
    /// Session of the last accepted attach.
    session: Option<SessionId>,
    phase: Phase,
    parts: Parts,
    /// Answers that the client waits for, in order.
    pending: VecDeque<Pending>,
    /// Messages for the client.
    outgoing: VecDeque<ServerMessage>,
    /// No other node has confirmed the close that is answered next.
    unreplicated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Only an attach is accepted.
    First,
    Reading,
    /// The outcome of an attach or a close decides how the next message is handled.
    Waiting,
}

impl AttachState {
    pub fn new(node: String, settings: AttachSettings) -> Self {
        AttachState {
            node,
            principal: String::new(),
            settings,
            session: None,
            phase: Phase::First,
            parts: Parts::new(&settings),
            pending: VecDeque::new(),
            outgoing: VecDeque::new(),
            unreplicated: false,
        }
    }

    /// Attaches clients in the name of a principal (C14).
    #[must_use]
    pub fn of_principal(self, principal: String) -> Self {
        AttachState { principal, ..self }
    }

    /// Returns the session of the last accepted attach.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns whether the next message of the client may be passed.
    pub fn is_reading(&self) -> bool {
        self.phase != Phase::Waiting
    }

    /// Returns whether the client waits for no answer of the node except to heartbeats.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the next message for the client.
    pub fn next_message(&mut self) -> Option<ServerMessage> {
        self.outgoing.pop_front()
    }

    /// Takes a message of a client that may make every registration. An error ends the stream.
    pub fn message(&mut self, message: v1::ClientMessage, calls: &mut Calls) -> Result<(), Error> {
        self.message_checked(message, calls, &())
    }

    /// Takes a message of the client. A registration that it may not make is answered with an error; an attach with one
    /// is rejected as a whole.
    pub fn message_checked(
        &mut self,
        message: v1::ClientMessage,
        calls: &mut Calls,
        may: &impl Registrations,
    ) -> Result<(), Error> {
        let wrong = match (self.phase, &message.message) {
            (_, None) => Some("this node does not know this kind of message"),
            (_, Some(ClientMessage::Attach(_))) => None,
            (Phase::First, _) => Some("the first message of a stream must be an attach"),
            _ if self.parts.begun() => Some("an attach in parts must not be interrupted"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(invalid("message", wrong));
        }
        match message.message {
            Some(ClientMessage::Heartbeat(heartbeat)) => self.heartbeat(heartbeat.sent, calls),
            Some(ClientMessage::Requests(requests)) => self.requests(requests.requests, calls, may),
            Some(ClientMessage::Attach(attach)) => self.attach(attach, calls, may),
            Some(ClientMessage::Close(_)) => self.close(calls),
            None => {}
        }
        self.settle();
        Ok(())
    }

    fn heartbeat(&mut self, sent: u64, calls: &mut Calls) {
        match self.session {
            Some(session) => calls.heartbeats.push(HeartbeatCall { session, sent }),
            None => self.heartbeat_rejected(sent, session_gone()),
        }
    }

    /// Takes the result of a heartbeat. `attached` is the number of clients that are attached to the node, and
    /// `replicated` the number up to which another ready node has the writes of this one (C13).
    pub fn heartbeat_answered(
        &mut self,
        sent: u64,
        result: Result<(), Rejection>,
        attached: usize,
        replicated: Replicated,
    ) {
        if let Err(rejection) = result {
            return self.heartbeat_rejected(sent, error(rejection));
        }
        // The time over which all clients of this node should spread their reconnects.
        let spread = attached * 1_000 / self.settings.returns_per_second;
        let ack = v1::HeartbeatAck {
            sent,
            spread_ms: u32::try_from(spread).unwrap_or(u32::MAX),
            replicated: replicated.number(),
            ..v1::HeartbeatAck::default()
        };
        self.outgoing.push_back(ServerMessage::HeartbeatAck(ack));
    }

    /// The node did not accept a heartbeat.
    pub fn heartbeat_rejected(&mut self, sent: u64, error: Error) {
        let ack = v1::HeartbeatAck { sent, error: Some(error.into()), ..v1::HeartbeatAck::default() };
        self.outgoing.push_back(ServerMessage::HeartbeatAck(ack));
    }

    fn requests(&mut self, requests: Vec<v1::Request>, calls: &mut Calls, may: &impl Registrations) {
        let mut answers = Vec::with_capacity(requests.len());
        let mut open = 0;
        calls.operations.reserve(requests.len());
        for request in requests {
            let seq = request.seq;
            match self
                .session
                .ok_or_else(session_gone)
                .and_then(|session| operation(session, request).and_then(|operation| check(operation, may)))
            {
                Ok(operation) => {
                    calls.operations.push(operation);
                    open += 1;
                    answers.push(v1::Answer { seq, ..v1::Answer::default() });
                }
                Err(error) => answers.push(rejected_answer(seq, error)),
            }
        }
        self.pending.push_back(Pending::Requests { answers, open });
    }

    fn attach(&mut self, attach: v1::Attach, calls: &mut Calls, may: &impl Registrations) {
        let claim = attach.claim;
        match self.parts.take(attach, may) {
            None => {}
            Some(Ok(mut attach)) => {
                attach.principal.clone_from(&self.principal);
                calls.operations.push(ClientOperation::Attach(attach));
                self.pending.push_back(Pending::Attach { claim });
                self.phase = Phase::Waiting;
            }
            Some(Err(error)) => {
                self.pending.push_back(Pending::Rejected { claim, error });
                self.phase = Phase::Reading;
            }
        }
    }

    fn close(&mut self, calls: &mut Calls) {
        match self.session {
            Some(session) => {
                calls.operations.push(ClientOperation::Close { session });
                self.pending.push_back(Pending::Close);
                self.phase = Phase::Waiting;
            }
            None => self.pending.push_back(Pending::CloseRejected { error: session_gone() }),
        }
    }

    /// Takes a notice of the node.
    pub fn notice(&mut self, sent: Notice) {
        self.outgoing.push_back(ServerMessage::Notice(notice(sent)));
    }
}

/// The members that a session updates and unregisters are its own: it registered them.
fn check(operation: ClientOperation, may: &impl Registrations) -> Result<ClientOperation, Error> {
    if let ClientOperation::Register { member, .. } = &operation {
        may.register(member)?;
    }
    Ok(operation)
}

/// Converts a request to an operation of a session.
pub fn operation(session: SessionId, request: v1::Request) -> Result<ClientOperation, Error> {
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

#[cfg(test)]
mod tests;
