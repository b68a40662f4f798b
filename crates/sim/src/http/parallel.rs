//! Requests that a client sends in parallel with another one, with the same tokens (C11).

use super::client::{ANSWER_TIMEOUT, HttpClient};
use super::operation::{Op, describe};
use super::transport::Sender;
use super::workload::is_contested;
use super::{Attempt, Body, HttpResponse, Message, SendResult};
use crate::faults::Fault;
use crate::world::World;
use convoke_core::ErrorCode;
use convoke_core::member::{Liveness, MetadataUpdate};
use convoke_http_session::{ClientOrder, Secret, SessionOperation, SessionToken};
use std::sync::Arc;

/// One in this many requests of a client that orders its requests has a parallel one.
const PARALLEL_ONE_IN: u32 = 4;
/// The key that only parallel requests write.
const KEY: &str = "parallel";

/// A request in flight beside the one that the client otherwise waits for.
#[derive(Clone, Debug)]
pub(super) struct Parallel {
    attempt: u64,
    secret: Secret,
    /// The tokens that it contains.
    sent: Vec<SessionToken>,
    /// The member that it writes.
    id: Option<String>,
    /// A request with a higher number writes the member as well. It replaces this one, whichever is executed first.
    overtaken: bool,
}

impl HttpClient {
    /// Replaces the tokens of a request by the token of its answer, which covers them.
    pub(super) fn receive(&mut self, sent: &[SessionToken], token: SessionToken) {
        self.tokens.retain(|held| !sent.contains(held) && *held != token);
        self.tokens.push(token);
        if self.greatest_only {
            self.tokens.sort_by_key(SessionToken::text);
            self.tokens.drain(..self.tokens.len() - 1);
        }
    }

    /// Records that a request writes a member, which may overtake the parallel one.
    pub(super) fn overtake(&mut self, op: Option<&Op>) {
        if let Some(parallel) = self.parallel.as_mut().filter(|parallel| parallel.id.as_ref() == op.and_then(Op::id)) {
            parallel.overtaken = true;
        }
    }

    /// Repairs the lost writes that the answer to a parallel request reported.
    pub(super) fn repair_lost(&mut self) {
        if let Some(known) = self.lost.take() {
            self.repair_all(&known);
        }
    }
}

impl World {
    /// Sends a second request with the same tokens, sometimes: a heartbeat, an update of another member, or an update that
    /// is rejected. It goes to the same node or to another one.
    pub(super) fn http_maybe_parallel(&mut self, client: usize, host: usize, main: Option<&Op>) {
        let c = &self.http.clients[client];
        let ordered = c.ordered && !c.scripted && c.secret.is_some() && c.settings.liveness != Liveness::Fast;
        if !ordered || c.parallel.is_some() || self.http.rng.u32(..PARALLEL_ONE_IN) != 0 {
            return;
        }
        // After the faults, the check of all members waits for the last write and its replication.
        let may_write = self.faults.active || main.is_some();
        let c = &self.http.clients[client];
        let main = main.and_then(Op::id);
        let ids = c.members.keys().filter(|id| Some(*id) != main && !is_contested(id));
        let ids: Vec<String> = ids.cloned().collect();
        let value = format!("{:x}", self.http.rng.u32(..));
        let (id, operation) = match (self.http.rng.u32(..3), self.http.rng.choice(ids)) {
            (0, _) => (None, SessionOperation::Heartbeat),
            (1, Some(id)) if may_write => (Some(id.clone()), update(&id, &value)),
            _ => (None, update("unregistered", &value)),
        };
        let host = if self.http.rng.bool() { host } else { self.http_next_host(host) };
        if let Some(member) = id.as_ref().and_then(|id| self.http.clients[client].members.get_mut(id)) {
            member.metadata.insert(KEY.to_owned(), value);
        }
        let sent = self.http.clients[client].tokens.clone();
        self.http_parallel(client, host, sent, id, operation);
    }

    /// Updates a member with a request that has these tokens, or sends a heartbeat.
    pub(crate) fn http_parallel_update(
        &mut self,
        client: usize,
        host: usize,
        sent: &[SessionToken],
        id: &str,
        value: &str,
    ) {
        let c = &mut self.http.clients[client];
        let member = c.members.get_mut(id).map(|member| member.metadata.insert(KEY.to_owned(), value.to_owned()));
        let written = member.map(|_| id.to_owned());
        self.http_parallel(client, host, sent.to_vec(), written, update(id, value));
    }

    fn http_parallel(
        &mut self,
        client: usize,
        host: usize,
        sent: Vec<SessionToken>,
        id: Option<String>,
        operation: SessionOperation,
    ) {
        let attempt = self.http.number();
        let c = &mut self.http.clients[client];
        let Some(secret) = c.secret.clone().filter(|_| c.parallel.is_none()) else { return };
        let mut number = None;
        if !matches!(operation, SessionOperation::Heartbeat) {
            c.number += 1;
            number = Some(c.number);
        }
        c.parallel = Some(Parallel { attempt, secret: secret.clone(), sent: sent.clone(), id, overtaken: false });
        let process = c.process;
        self.http.attempts.insert(attempt, Attempt::default());
        let body = Body::Request { secret, operation, order: ClientOrder { number, tokens: sent } };
        self.note(format!("http client {client} sends {} to n{host} in parallel", describe(&body)));
        self.faults.count(Fault::HttpParallelRequest);
        let message = Message { attempt, client, body, forwarded: false, connection: None };
        self.http_send(Sender::Parallel { client, process }, host, message, self.now + ANSWER_TIMEOUT);
    }

    /// Handles the result of the parallel request.
    pub(super) fn http_parallel_result(&mut self, client: usize, result: SendResult) {
        let Some(parallel) = self.http.clients[client].parallel.take() else { return };
        let executed = self.http.attempts.get(&parallel.attempt).is_some_and(|attempt| attempt.executed > 0);
        let c = &mut self.http.clients[client];
        if c.secret.as_ref() != Some(&parallel.secret) {
            // Its session has ended.
            return self.http_wake_at(client, self.now);
        }
        let mut failed = true;
        if let SendResult::Answered(response) = result {
            let HttpResponse { host, result, token, members } = *response;
            c.receive(&parallel.sent, token);
            self.http.checks += 1;
            let code = result.err();
            self.note(format!("http client {client} receives {code:?} of n{host} in parallel"));
            let writes = parallel.id.is_some();
            if code.is_none() && writes && !executed {
                self.http_violation(format!(
                    "n{host} acknowledges a parallel request of client {client}, and no node executed it"
                ));
            }
            if code.is_some_and(|code| code != ErrorCode::OutcomeUnknown) && executed {
                self.http_violation(format!(
                    "n{host} answers {code:?} to client {client}, and the parallel request was executed"
                ));
            }
            // A later update of another key makes it stale, too.
            failed = parallel.overtaken || !matches!(code, None | Some(ErrorCode::WritesLost));
            if code == Some(ErrorCode::WritesLost) {
                self.faults.count(Fault::HttpWritesLost);
                let c = &mut self.http.clients[client];
                c.writes_lost += 1;
                c.lost = Some(members);
            }
        }
        let c = &mut self.http.clients[client];
        // A registration with a higher number repeats what may not have been executed.
        if let Some(id) = parallel.id.filter(|id| failed && c.members.contains_key(id)) {
            c.queue.push_back(Op::Put { id, takeover: true });
        }
        if c.flight.is_none() {
            c.repair_lost();
        }
        self.http_wake_at(client, self.now);
    }
}

fn update(id: &str, value: &str) -> SessionOperation {
    let update = Arc::new(MetadataUpdate::set(KEY, value.to_owned()));
    SessionOperation::Update { id: id.to_owned(), update, expected: None }
}
