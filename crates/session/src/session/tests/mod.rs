//! Stories of one session: the node is played by the test.

mod attaching;
mod losing;
mod operations;
mod unregistering;

use crate::seeds::Seeds;
use crate::session::{ClientIdentity, ClientTime, Effect, OperationId, RegistrationId, Session};
use crate::{ConnectionState, Error, ErrorCode, MemberSpec, Update};
use convoke_proto::json::Liveness;
use convoke_proto::v1::{self, client_message::Message as ToNode, server_message::Message as FromNode};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Story {
    session: Session,
    now: ClientTime,
    /// Effects not yet looked at.
    out: Vec<Effect>,
    connection: Option<crate::session::ConnectionId>,
}

impl Story {
    fn new() -> Story {
        let identity = ClientIdentity { client: "shop".into(), nonce: 7, liveness: Liveness::Normal, timeout: None };
        let seeds = Seeds::new(vec!["a:7700".into(), "b:7700".into()], None);
        let session = Session::new(identity, seeds, fastrand::Rng::with_seed(1), SECOND);
        Story { session, now: SECOND, out: Vec::new(), connection: None }
    }

    /// A story that starts attached, with these members.
    fn attached(ids: &[&str]) -> (Story, Vec<RegistrationId>) {
        let mut story = Story::new();
        let registrations = ids.iter().map(|id| story.register(id).1).collect();
        let attach = story.connect();
        story.accept(&attach);
        story.out.clear();
        (story, registrations)
    }

    fn register(&mut self, id: &str) -> (OperationId, RegistrationId) {
        self.session.register(MemberSpec::new(id, "s"), false, None).unwrap()
    }

    /// Lets time pass until the session connects, and returns its attach.
    fn connect(&mut self) -> v1::Attach {
        for _ in 0..10 {
            let connect = self.out.iter().rev().find_map(|effect| match effect {
                Effect::Connect { connection, .. } => Some(*connection),
                _ => None,
            });
            if let Some(connection) = connect.filter(|connection| Some(*connection) != self.connection) {
                self.connection = Some(connection);
                self.session.connected(self.now, connection, &mut self.out);
                return self.sent_attach();
            }
            self.now = self.session.next_wake().unwrap().max(self.now);
            self.session.wake(self.now, &mut self.out);
        }
        panic!("the session does not connect: {:?}", self.session);
    }

    fn sent(&mut self) -> Vec<ToNode> {
        self.session.flush(&mut self.out);
        let mut sent = Vec::new();
        self.out.retain(|effect| match effect {
            Effect::Send { message, .. } => {
                sent.extend(message.message.clone());
                false
            }
            _ => true,
        });
        sent
    }

    fn sent_attach(&mut self) -> v1::Attach {
        match self.sent().pop() {
            Some(ToNode::Attach(attach)) => attach,
            other => panic!("no attach: {other:?}"),
        }
    }

    fn requests(&mut self) -> Vec<v1::Request> {
        let requests = |message| match message {
            ToNode::Requests(requests) => requests.requests,
            _ => Vec::new(),
        };
        self.sent().into_iter().flat_map(requests).collect()
    }

    fn receive(&mut self, message: FromNode) {
        let connection = self.connection.unwrap();
        self.session.received(self.now, connection, v1::ServerMessage { message: Some(message) }, &mut self.out);
    }

    fn accept(&mut self, attach: &v1::Attach) {
        self.accept_with(attach, 0);
    }

    /// The node accepts the attach. `written` is the number of its last write.
    fn accept_with(&mut self, attach: &v1::Attach, written: u64) {
        let versions = attach.members.iter().map(|register| v1::Versioned {
            id: register.member.as_ref().unwrap().id.clone(),
            version: format!("v{}", attach.claim),
        });
        self.receive(FromNode::Attached(v1::Attached {
            claim: attach.claim,
            node: "n1".into(),
            heartbeat_interval_ms: 5000,
            timeout_ms: 20_000,
            versions: versions.collect(),
            written,
            ..v1::Attached::default()
        }));
    }

    fn reject(&mut self, attach: &v1::Attach, error: Error) {
        self.receive(FromNode::AttachRejected(v1::AttachRejected { claim: attach.claim, error: Some(error.into()) }));
    }

    fn answer(&mut self, seq: u64, version: &str) {
        self.receive_answer(v1::Answer { seq, version: version.into(), ..v1::Answer::default() });
    }

    fn receive_answer(&mut self, answer: v1::Answer) {
        self.receive(FromNode::Answers(v1::Answers { answers: vec![answer] }));
    }

    /// A heartbeat is answered: another node has the writes of this one up to this number.
    fn replicated(&mut self, number: u64) {
        let sent = u64::try_from(self.now.as_micros()).unwrap();
        self.receive(FromNode::HeartbeatAck(v1::HeartbeatAck { sent, replicated: number, ..Default::default() }));
    }

    fn reject_request(&mut self, seq: u64, error: Error) {
        self.receive_answer(v1::Answer { seq, error: Some(error.into()), ..v1::Answer::default() });
    }

    fn notice(&mut self, notice: v1::notice::Notice) {
        self.receive(FromNode::Notice(v1::Notice { notice: Some(notice) }));
    }

    fn lose(&mut self) {
        let connection = self.connection.unwrap();
        self.session.disconnected(self.now, connection, &Error::new(ErrorCode::NotReady, "reset"), &mut self.out);
    }

    /// The answer to an operation, once.
    fn done(&mut self, operation: OperationId) -> Option<Result<String, Error>> {
        let is = |effect: &Effect| matches!(effect, Effect::Done { operation: o, .. } if *o == operation);
        let at = self.out.iter().position(is)?;
        match self.out.remove(at) {
            Effect::Done { result, .. } => Some(result),
            _ => None,
        }
    }

    fn code(&mut self, operation: OperationId) -> Option<ErrorCode> {
        self.done(operation)?.err().map(|error| error.code)
    }

    fn ended(&self, registration: RegistrationId) -> Option<ErrorCode> {
        self.out.iter().find_map(|effect| match effect {
            Effect::Ended { registration: r, error } if *r == registration => Some(error.code),
            _ => None,
        })
    }

    fn disconnected(&self) -> bool {
        let state = self.out.iter().rev().find_map(|effect| match effect {
            Effect::State(state) => Some(state),
            _ => None,
        });
        matches!(state, Some(ConnectionState::Disconnected { .. }))
    }
}

fn ids(attach: &v1::Attach) -> Vec<&str> {
    attach.members.iter().map(|register| register.member.as_ref().unwrap().id.as_str()).collect()
}

fn stale(known: u64) -> Error {
    Error { known: Some(known), ..Error::new(ErrorCode::StaleClaim, "stale") }
}
