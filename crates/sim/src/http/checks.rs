//! The checks of invariant `http_answers` at a node, where a request is executed (statements HS2 to HS4 of
//! docs/consistency.md). HS5 is checked where the client receives its answer.

use super::Body;
use super::serving::Task;
use crate::world::World;
use convoke_core::version::{Dot, Version};
use convoke_core::{ErrorCode, Rejection};
use convoke_http_session::{DOTS_MAX, SessionOperation, SessionToken};

/// Tokens of a session that are compared with the next one.
const ISSUED_MAX: usize = 16;

impl World {
    /// Records the results of the calls. A request counts as a heartbeat if the session exists, even if it was rejected.
    pub(super) fn http_executed(&mut self, host: usize, task: &Task, results: &[Result<Option<Version>, Rejection>]) {
        let gone = |result: &Result<_, Rejection>| matches!(result, Err(r) if r.code == ErrorCode::SessionGone);
        if !results.iter().any(gone) {
            self.http_alive(host, task);
        }
        if results.iter().any(Result::is_err) {
            return;
        }
        let Body::Request { operation, .. } = &task.message.body else { return };
        if !matches!(operation, SessionOperation::Heartbeat) {
            self.http_changed(host, task);
        }
        self.http_check_shown(host, operation);
    }

    /// The node that executed an operation shows its result (HS2).
    fn http_check_shown(&mut self, host: usize, operation: &SessionOperation) {
        let Some(node) = self.hosts[host].node.as_ref() else { return };
        let shown = |id: &str| node.member(id);
        let missing = match operation {
            SessionOperation::Register(member) => {
                let spec = &member.spec;
                shown(&spec.id).is_none_or(|shown| shown.metadata().to_map() != spec.metadata).then_some(&spec.id)
            }
            SessionOperation::Update { id, update, .. } => shown(id)
                .is_none_or(|shown| update.changes.iter().any(|(k, v)| shown.metadata().get(k) != v.as_deref()))
                .then_some(id),
            SessionOperation::Unregister(id) => shown(id).is_some().then_some(id),
            SessionOperation::Heartbeat | SessionOperation::Close => None,
        };
        self.http.checks += 1;
        if let Some(id) = missing.cloned() {
            self.http_violation(format!("n{host} executed {operation:?} and does not show it at {id}"));
        }
    }

    /// Records an attach.
    pub(super) fn http_attached(&mut self, host: usize, task: &Task, claimed: &[(String, Version)]) {
        if matches!(task.message.body, Body::Create(_)) {
            return;
        }
        self.http_alive(host, task);
        if self.http.attempts.get(&task.message.attempt).is_some_and(|attempt| attempt.forged) && !claimed.is_empty() {
            self.http_changed(host, task);
        }
    }

    /// Of two tokens that a node returned for a session, the greater one covers the other (C11). A node that did not execute
    /// a request returns the tokens of the request. Writes that are reported as lost are in no later token.
    pub(super) fn http_check_token(&mut self, host: usize, task: &Task) {
        let (Body::Request { order, .. }, Some(found)) = (&task.message.body, &task.found) else { return };
        let token = task.request.token();
        if *token == SessionToken::join_all(&order.tokens) {
            return;
        }
        self.http.checks += 1;
        let loses = task.request.has_lost_writes() || self.http_loses_writes(host, found.entry);
        let issued = self.http.issued.entry(found.entry).or_default();
        if loses || token.dots().len() == DOTS_MAX {
            // Lost writes, or older ones, may have been dropped.
            issued.clear();
            return;
        }
        let text = token.text();
        let covers = |other: &&SessionToken| match text >= other.text() {
            true => token.covers(other),
            false => other.covers(token),
        };
        let bad = issued.iter().find(|other| !covers(other)).cloned();
        issued.drain(..issued.len().saturating_sub(ISSUED_MAX));
        issued.push(token.clone());
        if let Some(other) = bad {
            self.http_violation(format!("n{host} returns {token:?} and {other:?}, and the greater one lacks a write"));
        }
    }

    /// Another node has a write that is reported as replicated (HS9). It may have stopped since its receipt.
    pub(super) fn http_check_replicated(&mut self, host: usize, dot: &Dot) {
        self.http.checks += 1;
        let others = || self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
        let has = |held: &crate::host::Host| held.node.as_ref().is_some_and(|node| node.covers_dot(dot));
        if !others().any(|(_, held)| has(held)) && others().all(|(_, held)| held.running()) {
            self.http_violation(format!("n{host} reports {dot} as replicated, and no other node has it"));
        }
    }

    /// Records a change. Only requests with the secret of the session may change it (HS3).
    fn http_changed(&mut self, host: usize, task: &Task) {
        let attempt = self.http.attempts.entry(task.message.attempt).or_default();
        attempt.executed += 1;
        if attempt.forged {
            let request = format!("{:?}", task.message.body);
            self.http_violation(format!("n{host} executed a request with a forged secret: {request}"));
        }
    }

    /// Whether the request has the current secret of its client. It is not if it is forged, or of an earlier session.
    fn http_is_current(&self, task: &Task) -> bool {
        let current = self.http.clients[task.message.client].secret.as_ref();
        current.is_some_and(|current| current == task.request.secret())
    }

    fn http_alive(&mut self, host: usize, task: &Task) {
        let now = self.now;
        if self.http_is_current(task) {
            self.http.clients[task.message.client].beats.push_back((now, host));
        }
    }

    /// A node answers `SESSION_GONE` only if it knows no live member of the session (HS4).
    pub(super) fn http_check_gone(&mut self, host: usize, task: &Task, rejection: &Rejection) {
        if rejection.code != ErrorCode::SessionGone || !self.http_is_current(task) {
            return;
        }
        self.http.checks += 1;
        let secret = task.request.secret();
        let (client, nonce) = (secret.client(), secret.nonce);
        let Some(node) = self.hosts[host].node.as_ref() else { return };
        let known = self.http.clients[task.message.client].members.keys();
        let known = known.filter(|id| node.member(id).is_some()).filter_map(|id| node.slot(id));
        if let Some(slot) = known.into_iter().find(|slot| slot.client == client && slot.nonce == nonce) {
            self.http_violation(format!("n{host} answers SESSION_GONE and shows {slot:?}"));
        }
    }
}
