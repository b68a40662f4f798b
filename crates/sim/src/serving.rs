//! The node's side of a client's connection, as in the server: messages become calls of the core, and results become
//! answers.
//!
//! The node's answers are checked here, before the SDK could compensate for an error (invariant `answers`).

use crate::client::{Client, FromClient};
use crate::faults::Action;
use crate::invariants::{ANSWERS, Violation};
use crate::network::{Connection, Item, Micros, SECOND, Site};
use crate::truth::Claimed;
use crate::world::World;
use convoke_convert::{AttachSettings, AttachState, Calls, HeartbeatCall};
use convoke_core::member::Status;
use convoke_core::node::{
    Attach, Attached, ClientOperation, ConnId, Notice, OperationResult, Replicated, SessionId, SlotView,
};
use convoke_core::version::Dot;
use convoke_core::{ErrorCode, Node, Rejection};
use convoke_proto::v1;
use v1::client_message::Message as ToNode;
use v1::request::Operation;
use v1::server_message::Message as FromNode;

/// Settings of the nodes. Answers are sent in parts, and a few clients spread their reconnects over a part of a second.
const SETTINGS: AttachSettings =
    AttachSettings { members_max: 100_000, bytes_max: 64 << 20, part_bytes: PART_BYTES, returns_per_second: 20 };
/// Size of the parts of an attach and of its answer. Members are small here.
pub(crate) const PART_BYTES: usize = 100;

/// How long the answer to a close waits until it is replicated, as in the server, and how often the simulation looks.
pub(crate) const REPLICATION_WAIT: Micros = 100_000;
pub(crate) const REPLICATION_POLL: Micros = 1_000;

/// The answer to a close that waits until another node has it.
#[derive(Clone, Debug)]
pub struct UnreplicatedClose {
    host: usize,
    boot: u64,
    conn: u64,
    results: Vec<OperationResult>,
    deadline: Micros,
}

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
        let message = match message {
            FromClient::Message(message) => message,
            FromClient::Again { session, request } => return self.serve_again(host, conn, session, request),
        };
        let mut calls = Calls::default();
        let node = self.hosts[host].id.to_string();
        let Some(connection) = self.network.connections.get_mut(&conn) else { return };
        let attach = connection.attach.get_or_insert_with(|| Box::new(AttachState::new(node, SETTINGS)));
        let session = attach.session();
        let requests = match (&message.message, session) {
            (Some(ToNode::Requests(requests)), Some(session)) => Some((session, requests.requests.clone())),
            _ => None,
        };
        if let Err(error) = attach.message(message, &mut calls) {
            return self.violate(Violation::new(ANSWERS, self.now, format!("n{host} ends a stream: {error}")));
        }
        if let Some((session, requests)) = requests {
            self.duplicate_some(conn, session, &requests);
        }
        for HeartbeatCall { session, sent } in calls.heartbeats {
            let beat =
                |node: &mut Node, time, out: &mut _| Some((node.heartbeat(time, session, out), node.replicated()));
            let Some((result, replicated)) = self.with_node(host, beat) else { return };
            let attached = self.attached_to_host(host);
            self.with_attach(conn, |attach| attach.heartbeat_answered(sent, result, attached, replicated));
        }
        if !calls.operations.is_empty() {
            let Some(results) = self.execute(host, conn, &calls.operations, true) else { return };
            if calls.operations.iter().any(|operation| matches!(operation, ClientOperation::Close { .. })) {
                let (boot, deadline) = (self.hosts[host].boot, self.now + REPLICATION_WAIT);
                return self.answer_when_replicated(UnreplicatedClose { host, boot, conn, results, deadline });
            }
            self.with_attach(conn, |attach| attach.answered(results));
        }
        self.send_answers(conn);
    }

    fn send_answers(&mut self, conn: u64) {
        while let Some(message) = self.with_attach(conn, AttachState::next_message).flatten() {
            self.push(conn, 1, Item::ToClient(Box::new(v1::ServerMessage { message: Some(message) })));
        }
    }

    /// Answers a close once its tombstones are replicated, or after a short time, as the server does (C18).
    pub(crate) fn answer_when_replicated(&mut self, close: UnreplicatedClose) {
        let UnreplicatedClose { host, boot, conn, deadline, .. } = close;
        let node = self.hosts[host].node.as_ref().filter(|_| self.hosts[host].boot == boot);
        let Some(node) = node else { return };
        let (state, others) = (node.replicated(), node.has_other_nodes());
        let replicated = state.number() >= node.last_unregistration();
        if state == Replicated::Alone || replicated || self.now >= deadline {
            if !replicated && others {
                self.with_attach(conn, AttachState::unreplicated);
            }
            self.with_attach(conn, |attach| attach.answered(close.results));
            self.send_answers(conn);
        } else {
            self.schedule_action(REPLICATION_POLL, Action::Replicated { close: Box::new(close) });
        }
    }

    /// A request is delivered a second time.
    fn serve_again(&mut self, host: usize, conn: u64, session: SessionId, request: v1::Request) {
        let seq = request.seq;
        let operation = convoke_convert::operation(session, request).expect("it was valid the first time");
        let Some(results) = self.execute(host, conn, &[operation], false) else { return };
        let answers = results.into_iter().map(|result| convoke_convert::answer(seq, result)).collect();
        let message = v1::ServerMessage { message: Some(FromNode::Answers(v1::Answers { answers })) };
        self.push(conn, 1, Item::ToClient(Box::new(message)));
    }

    fn with_attach<T>(&mut self, conn: u64, action: impl FnOnce(&mut AttachState) -> T) -> Option<T> {
        let connection = self.network.connections.get_mut(&conn)?;
        connection.attach.as_deref_mut().map(action)
    }

    /// Returns the number of clients that are attached to a node.
    fn attached_to_host(&self, host: usize) -> usize {
        let attached = |connection: &&Connection| {
            let session = connection.attach.as_ref().and_then(|attach| attach.session());
            session.is_some() && connection.ends[1].open && connection.ends[1].place == Site::Host(host)
        };
        self.network.connections.values().filter(attached).count()
    }

    /// Executes operations in one turn of the node, as the server does, and checks the results. Duplicates may be
    /// rejected for any reason, so their rejections are not checked.
    fn execute(
        &mut self,
        host: usize,
        conn: u64,
        operations: &[ClientOperation],
        judged: bool,
    ) -> Option<Vec<OperationResult>> {
        let executed: Vec<(OperationResult, bool)> = self.with_node(host, |node, time, out| {
            let execute = |operation: &ClientOperation| {
                let result = node.execute(time, ConnId(conn), operation, out);
                let shown = is_shown(node, operation, &result);
                (result, shown)
            };
            Some(operations.iter().map(execute).collect())
        })?;
        for (operation, (result, shown)) in operations.iter().zip(&executed) {
            *self.stats.checks.entry(ANSWERS).or_default() += 1;
            if !shown {
                let message = format!("n{host} acknowledges {operation:?} with {result:?} and does not show it");
                self.violate(Violation::new(ANSWERS, self.now, message));
            }
            self.check_result(host, conn, operation, result, judged);
        }
        Some(executed.into_iter().map(|(result, _)| result).collect())
    }

    fn check_result(
        &mut self,
        host: usize,
        conn: u64,
        operation: &ClientOperation,
        result: &OperationResult,
        judged: bool,
    ) {
        match (operation, result) {
            (ClientOperation::Attach(request), OperationResult::Attached(Ok(attached))) => {
                self.check_attached(host, conn, request, attached);
                if let Some(connection) = self.network.connections.get_mut(&conn) {
                    connection.registered.clear();
                }
                for (id, _) in &attached.versions {
                    self.registered(host, conn, id);
                }
            }
            (ClientOperation::Attach(request), OperationResult::Attached(Err(rejection))) => {
                self.check_attach_rejection(host, conn, request, rejection);
            }
            (ClientOperation::Register { member, .. }, OperationResult::Written(Ok(_))) => {
                self.registered(host, conn, &member.spec.id);
            }
            (ClientOperation::Unregister { id, .. }, OperationResult::Unregistered(Ok(_))) => {
                self.unregistered(conn, id);
            }
            (ClientOperation::Close { .. }, _) => {}
            (_, OperationResult::Written(Err(rejection)) | OperationResult::Unregistered(Err(rejection))) if judged => {
                self.check_rejection(conn, operation, rejection);
            }
            _ => {}
        }
    }

    fn check_attach_rejection(&mut self, host: usize, conn: u64, request: &Attach, rejection: &Rejection) {
        if !matches!(
            rejection.code,
            ErrorCode::StaleClaim
                | ErrorCode::Superseded
                | ErrorCode::SessionGone
                | ErrorCode::NotReady
                | ErrorCode::ResourceExhausted
        ) {
            self.unexpected(conn, &format!("attach of {}", request.client), rejection);
        }
        self.note(format!("n{host} rejects the attach of {}: {rejection}", request.client));
    }

    /// Checks that an answer covers every member of the attach, with its version or with the reason for its rejection.
    fn check_attached(&mut self, host: usize, conn: u64, request: &Attach, attached: &Attached) {
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

    fn check_rejection(&mut self, conn: u64, operation: &ClientOperation, rejection: &Rejection) {
        let expected = match rejection.code {
            ErrorCode::StaleVersion => matches!(operation, ClientOperation::Update { expected: Some(_), .. }),
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
            self.unexpected(conn, &format!("{operation:?}"), rejection);
        }
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
        if let Notice::TakenOver { id, .. } = &notice {
            self.require_living_taker(host, conn, id);
            self.unregistered(conn, id);
        }
        let message = v1::ServerMessage { message: Some(FromNode::Notice(convoke_convert::notice(notice))) };
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

/// Returns whether the node shows an acknowledged write at once. An attach and a close are checked elsewhere.
fn is_shown(node: &Node, operation: &ClientOperation, result: &OperationResult) -> bool {
    let version = |id: &str| node.member(id).map(|member| member.version());
    match (operation, result) {
        (ClientOperation::Register { member, .. }, OperationResult::Written(Ok(written))) => {
            version(&member.spec.id) == Some(*written)
        }
        (ClientOperation::Update { id, .. }, OperationResult::Written(Ok(written))) => version(id) == Some(*written),
        (ClientOperation::Unregister { id, .. }, OperationResult::Unregistered(Ok(_))) => version(id).is_none(),
        _ => true,
    }
}
