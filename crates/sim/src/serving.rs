//! The node's side of a client's connection, as in the server: messages become calls of the core, and results become
//! answers.
//!
//! The node's answers are checked here, before the SDK could compensate for an error (invariant `answers`).

use crate::client::{Client, FromClient};
use crate::convert;
use crate::faults::Action;
use crate::invariants::{ANSWERS, Violation};
use crate::network::{Item, SECOND};
use crate::truth::Claimed;
use crate::world::World;
use convoke_core::member::Status;
use convoke_core::node::{Attached, ConnId, Notice, SessionId, SlotView};
use convoke_core::version::{Dot, Version};
use convoke_core::{ErrorCode, Node, Output, Rejection, Time};
use convoke_proto::v1;
use v1::client_message::Message as ToNode;
use v1::request::Operation;
use v1::server_message::Message as FromNode;

/// One line for the trace.
pub(crate) fn describe(message: &FromClient) -> String {
    let request = |request: &v1::Request| match &request.operation {
        Some(Operation::Register(register)) => {
            format!("#{} register {}", request.seq, register.member.as_ref().map_or("", |member| &member.id))
        }
        Some(Operation::Update(update)) => format!("#{} {update:?}", request.seq),
        Some(Operation::Unregister(unregister)) => format!("#{} unregister {}", request.seq, unregister.id),
        None => String::new(),
    };
    match message {
        FromClient::Again { session, request: again } => format!("{session:?} again {}", request(again)),
        FromClient::Message(message) => match &message.message {
            Some(ToNode::Attach(attach)) => {
                let ids: Vec<&str> =
                    attach.members.iter().filter_map(|m| m.member.as_ref()).map(|member| member.id.as_str()).collect();
                format!(
                    "attach {} claim {} after {} with {ids:?} without {:?}",
                    attach.client, attach.claim, attach.previous_claim, attach.unregistered
                )
            }
            Some(ToNode::Requests(requests)) => {
                requests.requests.iter().map(request).collect::<Vec<String>>().join(", ")
            }
            other => format!("{other:?}"),
        },
    }
}

impl World {
    /// A node serves a message of a client and answers on the same connection.
    pub(crate) fn serve(&mut self, host: usize, conn: u64, message: FromClient) {
        let session = self.network.connections.get(&conn).and_then(|connection| connection.session);
        let answer = match message {
            FromClient::Again { session, request } => {
                self.serve_requests(host, conn, Some(session), vec![request], false)
            }
            FromClient::Message(message) => match message.message {
                Some(ToNode::Attach(attach)) => self.serve_attach(host, conn, attach),
                Some(ToNode::Heartbeat(heartbeat)) => self.serve_heartbeat(host, session, heartbeat.sent),
                Some(ToNode::Requests(requests)) => {
                    if let Some(session) = session {
                        self.duplicate_some(conn, session, &requests.requests);
                    }
                    self.serve_requests(host, conn, session, requests.requests, true)
                }
                Some(ToNode::Close(_)) => self.serve_close(host, conn, session),
                None => None,
            },
        };
        if let Some(answer) = answer {
            self.push(conn, 1, Item::ToClient(Box::new(v1::ServerMessage { message: Some(answer) })));
        }
    }

    fn serve_attach(&mut self, host: usize, conn: u64, attach: v1::Attach) -> Option<FromNode> {
        let wall = self.hosts[host].wall_ms(self.now);
        let request = convert::attach(attach);
        let result =
            self.with_node(host, |node, time, out| Some(node.attach(time, wall, ConnId(conn), &request, out)))?;
        let claim = request.claim;
        match result {
            Ok(attached) => {
                self.check_attached(host, conn, &request, &attached);
                if let Some(connection) = self.network.connections.get_mut(&conn) {
                    connection.registered.clear();
                    connection.session = Some(attached.session);
                }
                for (id, _) in &attached.versions {
                    self.registered(host, conn, id);
                }
                let node = self.hosts[host].id.as_str();
                Some(FromNode::Attached(convert::attached(claim, node, attached)))
            }
            Err(rejection) => {
                if !matches!(
                    rejection.code,
                    ErrorCode::StaleClaim
                        | ErrorCode::Superseded
                        | ErrorCode::SessionGone
                        | ErrorCode::NotReady
                        | ErrorCode::ResourceExhausted
                ) {
                    self.unexpected(conn, &format!("attach of {}", request.client), &rejection);
                }
                self.note(format!("n{host} rejects the attach of {}: {rejection}", request.client));
                Some(FromNode::AttachRejected(v1::AttachRejected { claim, error: Some(convert::error(rejection)) }))
            }
        }
    }

    /// Checks that an answer covers every member of the attach, with its version or with the reason for its rejection.
    fn check_attached(&mut self, host: usize, conn: u64, request: &convoke_core::node::Attach, attached: &Attached) {
        let named = |id: &str| {
            attached.versions.iter().any(|(named, _)| named == id)
                || attached.rejected.iter().any(|(named, _)| named == id)
        };
        let missing: Vec<&str> =
            request.members.iter().map(|member| member.spec.id.as_str()).filter(|id| !named(id)).collect();
        *self.stats.checks.entry(ANSWERS).or_default() += 1;
        if !missing.is_empty() {
            let message = format!("attach of {} at n{host} does not answer for {missing:?}", request.client);
            self.violate(Violation::new(ANSWERS, self.now, message));
        }
        for (id, rejection) in &attached.rejected {
            if !matches!(rejection.code, ErrorCode::AlreadyRegistered | ErrorCode::TakenOver) {
                self.unexpected(conn, &format!("attach of {id}"), rejection);
            }
        }
    }

    fn serve_heartbeat(&mut self, host: usize, session: Option<SessionId>, sent: u64) -> Option<FromNode> {
        let error = match session {
            None => Some(session_gone()),
            Some(session) => {
                let result = self.with_node(host, |node, time, out| Some(node.heartbeat(time, session, out)))?;
                result.err().map(convert::error)
            }
        };
        Some(FromNode::HeartbeatAck(v1::HeartbeatAck { sent, error, spread_ms: 0 }))
    }

    /// Executes several requests in one turn of the node, as the server does. Duplicates may be rejected for any
    /// reason, so they are not checked.
    fn serve_requests(
        &mut self,
        host: usize,
        conn: u64,
        session: Option<SessionId>,
        requests: Vec<v1::Request>,
        judged: bool,
    ) -> Option<FromNode> {
        let wall = self.hosts[host].wall_ms(self.now);
        let Some(session) = session else {
            let gone = |request: v1::Request| v1::Answer {
                seq: request.seq,
                error: Some(session_gone()),
                ..v1::Answer::default()
            };
            return Some(FromNode::Answers(v1::Answers { answers: requests.into_iter().map(gone).collect() }));
        };
        let executed = self.with_node(host, |node, time, out| {
            let execute = |request| execute(node, time, wall, session, request, out);
            Some(requests.into_iter().map(execute).collect::<Vec<Executed>>())
        })?;
        let mut answers = Vec::with_capacity(executed.len());
        for Executed { seq, id, kind, result, shown } in executed {
            *self.stats.checks.entry(ANSWERS).or_default() += 1;
            if !shown {
                let message = format!("n{host} acknowledges {kind:?} of {id} with {result:?} and does not show it");
                self.violate(Violation::new(ANSWERS, self.now, message));
            }
            match (&result, kind) {
                (Ok(_), Kind::Register) => self.registered(host, conn, &id),
                (Ok(_), Kind::Unregister) => self.unregistered(conn, &id),
                (Ok(_), Kind::Update { .. }) => {}
                (Err(rejection), _) if judged => self.check_rejection(conn, &id, kind, rejection),
                (Err(_), _) => {}
            }
            let (version, error) = match result {
                Ok(version) => (version.map(|version| version.to_string()).unwrap_or_default(), None),
                Err(rejection) => (String::new(), Some(convert::error(rejection))),
            };
            answers.push(v1::Answer { seq, version, error });
        }
        Some(FromNode::Answers(v1::Answers { answers }))
    }

    fn check_rejection(&mut self, conn: u64, id: &str, kind: Kind, rejection: &Rejection) {
        let expected = match rejection.code {
            ErrorCode::StaleVersion => kind == Kind::Update { conditional: true },
            ErrorCode::AlreadyRegistered
            | ErrorCode::TakenOver
            | ErrorCode::PermissionDenied
            | ErrorCode::SessionGone
            | ErrorCode::NotRegistered
            | ErrorCode::NotReady
            | ErrorCode::ResourceExhausted
            | ErrorCode::StaleClaim => true,
            _ => false,
        };
        if !expected {
            self.unexpected(conn, &format!("{kind:?} of {id}"), rejection);
        }
    }

    fn serve_close(&mut self, host: usize, conn: u64, session: Option<SessionId>) -> Option<FromNode> {
        let Some(session) = session else { return Some(FromNode::Closed(v1::Closed { error: Some(session_gone()) })) };
        let result = self.with_node(host, |node, time, out| Some(node.close_session(time, session, out)))?;
        if let (Ok(()), Some(connection)) = (&result, self.network.connections.get_mut(&conn)) {
            connection.session = None;
        }
        Some(FromNode::Closed(v1::Closed { error: result.err().map(convert::error) }))
    }

    /// Sometimes a request is delivered twice, the second time late (C5).
    fn duplicate_some(&mut self, conn: u64, session: SessionId, requests: &[v1::Request]) {
        for request in requests {
            if self.faults.duplicates && self.rng.u32(..25) == 0 {
                let delay = self.rng.u64(10_000..3 * SECOND);
                let again = FromClient::Again { session, request: request.clone() };
                self.schedule_action(delay, Action::Duplicate { conn, message: Box::new(again) });
            }
        }
    }

    /// A node has acknowledged a registration. Registering a member again in the same session is an update.
    fn registered(&mut self, host: usize, conn: u64, id: &str) {
        let slot = self.hosts[host].node.as_ref().and_then(|node| node.slot(id));
        if let (Some(slot), Some(connection)) = (slot, self.network.connections.get_mut(&conn)) {
            connection.registered.entry(id.to_owned()).or_insert(slot.n);
        }
    }

    /// The member is no longer registered over this connection.
    fn unregistered(&mut self, conn: u64, id: &str) {
        if let Some(connection) = self.network.connections.get_mut(&conn) {
            connection.registered.remove(id);
        }
    }

    pub(crate) fn notify(&mut self, host: usize, conn: u64, notice: Notice) {
        self.note(format!("n{host} notifies connection {conn}: {notice:?}"));
        if let Notice::TakenOver { id } = &notice {
            self.require_living_taker(host, conn, id);
            self.unregistered(conn, id);
        }
        let message = v1::ServerMessage { message: Some(FromNode::Notice(convert::notice(notice))) };
        self.push(conn, 1, Item::ToClient(Box::new(message)));
    }

    /// Reports an unexpected rejection, unless the client has left the connection.
    fn unexpected(&mut self, conn: u64, what: &str, rejection: &Rejection) {
        if self.end_open(conn, 0) {
            self.violate(Violation::new(ANSWERS, self.now, format!("{what} was rejected: {rejection}")));
        }
    }

    /// Checks that the tombstone of an earlier registration takes nothing from a live client (C4).
    pub(crate) fn require_taker(&mut self, client: usize, id: &str) {
        let c = &self.clients[client];
        let slot = c.attached_to().and_then(|host| self.hosts[host].node.as_ref()?.slot(id));
        let ended = slot.is_some_and(|slot| slot.stated == Status::Left && slot.client != c.id);
        // A client that unregistered it a moment ago may have taken it before.
        let patience = self.linger();
        let long_ago = |claimed: &Claimed| {
            let sole = claimed.wanted_by.len() == 1 && claimed.wanted_by.contains(&client);
            sole && claimed.releasing.is_empty() && self.now - claimed.freed_at > patience
        };
        if ended && self.truth.get(id).is_some_and(long_ago) {
            self.violate(Violation::new(ANSWERS, self.now, format!("c{client} lost {id} to a tombstone")));
        }
    }

    /// Checks that the record of a silent owner takes nothing from a live client, unless it was written over that
    /// client's record and not over an earlier one of the same node (C4). A client that left without closing loses
    /// nothing: the node shows its members as down, and only its end of the connection is left.
    fn require_living_taker(&mut self, host: usize, conn: u64, id: &str) {
        let attached = |c: &Client| c.conn() == Some(conn) && c.attached_to() == Some(host);
        let Some(node) = self.hosts[host].node.as_ref().filter(|_| self.clients.iter().any(attached)) else { return };
        let leftover = |slot: &SlotView| slot.stated != Status::Left && slot.shown != Status::Up;
        let registered = self.network.connections.get(&conn).and_then(|held| held.registered.get(id));
        let knew = |over: Dot| over.origin == *node.origin() && registered.is_some_and(|n| over.n >= *n);
        let taker = node.slot(id).filter(|slot| leftover(slot) && !node.written_over(id).is_some_and(knew));
        if let Some(taker) = taker {
            self.violate(Violation::new(ANSWERS, self.now, format!("n{host} loses {id} to {taker:?}")));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Register,
    Update { conditional: bool },
    Unregister,
}

/// A request and the core's result.
struct Executed {
    seq: u64,
    id: String,
    kind: Kind,
    result: Result<Option<Version>, Rejection>,
    /// The node shows an acknowledged write at once.
    shown: bool,
}

fn execute(
    node: &mut Node,
    time: Time,
    wall: u64,
    session: SessionId,
    request: v1::Request,
    out: &mut Output,
) -> Executed {
    let seq = request.seq;
    let (id, kind, result) = match request.operation.expect("the SDK sends no empty request") {
        Operation::Register(register) => {
            let member = convert::register(register);
            let result = node.register(time, wall, session, seq, &member, out).map(Some);
            (member.spec.id, Kind::Register, result)
        }
        Operation::Update(update) => {
            let (id, update, expected) =
                convert::update(update).expect("the SDK sends versions that it received from nodes");
            let result = node.update(time, session, seq, &id, &update, expected, out).map(Some);
            (id, Kind::Update { conditional: expected.is_some() }, result)
        }
        Operation::Unregister(unregister) => {
            let result = node.unregister(time, session, seq, &unregister.id, out).map(|()| None);
            (unregister.id, Kind::Unregister, result)
        }
    };
    let shown = node.member(&id).map(|member| member.version());
    let shown = result.as_ref().map_or(true, |version| shown == *version);
    Executed { seq, id, kind, result, shown }
}

fn session_gone() -> v1::Error {
    convoke_proto::Error::new(convoke_proto::ErrorCode::SessionGone, "there is no session on this stream").into()
}
