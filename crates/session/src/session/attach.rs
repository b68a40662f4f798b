//! Attaching: all wanted members in one request, and the node's answer (C1–C4).

use super::state::{
    AttachScope, ClientTime, ConnectionId, Gone, Kind, Operation, OperationId, PendingAttach, Phase, RegistrationId,
};
use super::{ANSWER_TIMEOUT, Effect, Effects, Session, ToNode};
use crate::mutant::seam;
use crate::{ConnectionState, Error};
use convoke_proto::{ErrorCode, PART_ELEMENTS, of_register, v1};
use prost::Message;
use std::collections::BTreeSet;
use std::time::Duration;

/// Consecutive attaches rejected with STALE_CLAIM before the client pauses.
const STALE_MAX: u32 = 16;
/// Time for each further part of an attach on a slow link and in the node.
const PART_TIME: Duration = Duration::from_secs(2);

impl Session {
    /// Returns a claim above that of the last attach (C1).
    fn next_claim(&self) -> u64 {
        seam!(self, ClientKeepsClaim => return self.claim.max(1));
        self.claim + 1
    }

    pub(super) fn attach(&mut self, now: ClientTime, connection: ConnectionId, out: &mut Effects) {
        self.claim = self.next_claim();
        self.attach_again = false;
        let members = self.name_members();
        self.cover_operations();
        let unregistered: Vec<String> = self.pending_attach.unregistered.iter().cloned().collect();
        let parts = self.parts(members, unregistered);
        let further = u32::try_from(parts.len() - 1).unwrap_or(u32::MAX);
        let until = now + ANSWER_TIMEOUT + PART_TIME.saturating_mul(further);
        self.phase = Phase::Attaching { connection, sent: now, until };
        for part in parts {
            self.send(connection, ToNode::Attach(part), out);
        }
    }

    /// Chooses the members that the attach names.
    fn name_members(&mut self) -> Vec<v1::Register> {
        let scope = self.attach_scope;
        self.pending_attach = PendingAttach::default();
        let mut members = Vec::with_capacity(self.holdings.len());
        for (id, holding) in &mut self.holdings {
            let mut spec = holding.spec.clone();
            if scope > AttachScope::Everything {
                let Some(confirmed) = &holding.confirmed else { continue };
                spec.metadata.clone_from(confirmed);
            }
            holding.sent = true;
            self.pending_attach.members.insert(id.clone(), (holding.registration, spec.metadata.clone()));
            members.push(v1::Register { member: Some(spec.into()), takeover: holding.takeover });
        }
        let named = self.unregistered.iter().filter(|(_, gone)| gone.confirmed || scope < AttachScope::AcceptedIds);
        let named = named.map(|(id, _)| id).chain(self.unreplicated.ids());
        let registered = &self.pending_attach.members;
        self.pending_attach.unregistered = named.filter(|id| !registered.contains_key(*id)).cloned().collect();
        members
    }

    /// Marks the operations that the attach includes.
    fn cover_operations(&mut self) {
        for (id, operation) in &mut self.operations {
            let named = self.pending_attach.members.get(&operation.id);
            let same = named.is_some_and(|(registration, _)| *registration == operation.registration);
            operation.covered = match &operation.kind {
                Kind::Register { .. } => same,
                Kind::Update(update) => {
                    same && update.if_version.is_none() && self.attach_scope == AttachScope::Everything
                }
                // The id was registered again since, so the older unregistration need not be sent.
                Kind::Unregister => named.is_some() || self.pending_attach.unregistered.contains(&operation.id),
            };
            if operation.covered {
                operation.sent = true;
                self.waiting.remove(id);
            }
        }
    }

    /// Splits a large attach into parts.
    fn parts(&self, members: Vec<v1::Register>, unregistered: Vec<String>) -> Vec<v1::Attach> {
        let timeout = self.identity.timeout.unwrap_or_default();
        let empty = v1::Attach {
            client: self.identity.client.clone(),
            nonce: self.identity.nonce,
            claim: self.claim,
            previous_claim: self.previous_claim,
            liveness: v1::Liveness::from(self.identity.liveness).into(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            ..v1::Attach::default()
        };
        let (mut parts, mut part, mut bytes, mut elements) = (Vec::new(), empty.clone(), 0, 0);
        let mut room = |part: &mut v1::Attach, size: usize, more: usize| {
            if elements > 0 && (bytes + size > self.part_bytes || elements + more > PART_ELEMENTS) {
                part.more = true;
                parts.push(std::mem::replace(part, empty.clone()));
                (bytes, elements) = (0, 0);
            }
            bytes += size;
            elements += more;
        };
        for member in members {
            room(&mut part, member.encoded_len(), of_register(&member));
            part.members.push(member);
        }
        for id in unregistered {
            room(&mut part, id.len(), 1);
            part.unregistered.push(id);
        }
        parts.push(part);
        parts
    }

    pub(super) fn attached(&mut self, now: ClientTime, answer: v1::Attached, out: &mut Effects) {
        let Phase::Attaching { connection, sent, .. } = self.phase else { return };
        if answer.claim != self.claim {
            return;
        }
        self.pending_attach.versions.extend(answer.versions);
        self.pending_attach.rejected.extend(answer.rejected);
        if answer.more {
            return;
        }
        self.phase = Phase::Attached { connection };
        self.previous_claim = self.claim;
        self.backoff.reset();
        (self.superseded, self.stale, self.attach_scope) = (0, 0, AttachScope::Everything);
        if answer.heartbeat_interval_ms > 0 && answer.timeout_ms > 0 {
            self.heartbeat_interval = Duration::from_millis(answer.heartbeat_interval_ms);
            self.heartbeat_timeout = Duration::from_millis(answer.timeout_ms);
        }
        // A large attach may take longer than the heartbeat timeout. In that case a heartbeat is sent immediately.
        self.last_echo = self.last_echo.max(sent).max(now.saturating_sub(self.heartbeat_interval));
        self.heartbeat_due = (sent + self.heartbeat_interval).max(now);
        out.push(Effect::State(ConnectionState::Connected { node: answer.node, address: self.address.clone() }));
        let attach = std::mem::take(&mut self.pending_attach);
        self.settle(&attach, answer.written, out);
        if self.closing {
            self.closing = false;
            self.close(now, out);
        } else {
            self.repair();
        }
    }

    /// Applies the outcome of each named member. The attach is included in the node's writes up to `written`.
    fn settle(&mut self, attach: &PendingAttach, written: u64, out: &mut Effects) {
        for versioned in &attach.versions {
            self.unreplicated.remove(&versioned.id);
            let Some((registration, metadata)) = attach.members.get(&versioned.id) else { continue };
            let holding = self.holdings.get_mut(&versioned.id).filter(|h| h.registration == *registration);
            if let Some(holding) = holding {
                holding.confirmed = Some(metadata.clone());
                holding.version = Some(versioned.version.clone());
                out.push(Effect::Versioned { registration: *registration, version: versioned.version.clone() });
            } else if let Some(gone) = self.unregistered.get_mut(&versioned.id) {
                gone.confirmed = true;
            } else {
                self.unwanted(&versioned.id, *registration);
            }
        }
        for rejected in &attach.rejected {
            let error = Error::from(rejected.error.clone().unwrap_or_default());
            let Some((registration, _)) = attach.members.get(&rejected.id) else { continue };
            let holding = self.holdings.get(&rejected.id).filter(|h| h.registration == *registration);
            let Some(holding) = holding else { continue };
            let final_for_all =
                matches!(error.code, ErrorCode::AlreadyRegistered | ErrorCode::TakenOver | ErrorCode::PermissionDenied);
            // A member that was registered before is still wanted and is registered again later.
            if final_for_all || holding.confirmed.is_none() {
                self.give_up(&rejected.id, &error, out);
            }
        }
        // Registered and unregistered again since the attach was sent: this unregistration must still be sent.
        let again = |held: &&Operation| matches!(held.kind, Kind::Unregister) && !held.covered;
        let again: BTreeSet<&str> = self.operations.values().filter(again).map(|held| held.id.as_str()).collect();
        let registered = attach.members.keys().filter(|id| self.holdings.contains_key(*id));
        for id in attach.unregistered.iter().chain(registered).filter(|id| !again.contains(id.as_str())) {
            self.unregistered.remove(id);
        }
        for id in &attach.unregistered {
            self.unreplicated.insert(id.clone(), written);
        }
        self.settle_operations(out);
    }

    /// Handles members that the attach registered but that were no longer wanted when its answer arrived.
    fn unwanted(&mut self, id: &str, registration: RegistrationId) {
        let pending = |held: &Operation| held.id == id && matches!(held.kind, Kind::Unregister) && !held.covered;
        if !self.closing && !self.operations.values().any(pending) && !self.holdings.contains_key(id) {
            self.unregistered.insert(id.to_owned(), Gone { confirmed: true });
            self.enqueue_silently(id.to_owned(), registration, Kind::Unregister);
        }
    }

    fn settle_operations(&mut self, out: &mut Effects) {
        let mut done: Vec<(OperationId, String)> = Vec::new();
        for (id, operation) in &mut self.operations {
            let version = self.holdings.get(&operation.id).and_then(|holding| holding.version.clone());
            match (&operation.kind, operation.covered, version) {
                (Kind::Unregister, true, _) => done.push((*id, String::new())),
                (_, true, Some(version)) => done.push((*id, version)),
                _ => {
                    operation.covered = false;
                    self.waiting.insert(*id);
                }
            }
        }
        for (operation, version) in done {
            self.finish(operation, Ok(version), out);
        }
    }

    pub(super) fn attach_rejected(&mut self, now: ClientTime, answer: v1::AttachRejected, out: &mut Effects) {
        let Phase::Attaching { connection, .. } = self.phase else { return };
        if answer.claim != self.claim {
            return;
        }
        let error = Error::from(answer.error.unwrap_or_default());
        match error.code {
            ErrorCode::StaleClaim if self.stale < STALE_MAX => {
                self.stale += 1;
                self.claim = self.claim.max(error.known.unwrap_or(0));
                self.attach(now, connection, out);
            }
            ErrorCode::Superseded => self.handle_superseded(now, out),
            ErrorCode::InvalidMember
            | ErrorCode::TooLarge
            | ErrorCode::PermissionDenied
            | ErrorCode::ResourceExhausted
                if self.attach_scope < AttachScope::AcceptedIds && error.field.as_deref() != Some("client") =>
            {
                let members = self.attach_scope == AttachScope::Everything;
                self.attach_scope = if members { AttachScope::AcceptedMembers } else { AttachScope::AcceptedIds };
                self.attach(now, connection, out);
            }
            ErrorCode::InvalidMember
            | ErrorCode::TooLarge
            | ErrorCode::InvalidArgument
            | ErrorCode::PermissionDenied
            | ErrorCode::Unauthenticated => {
                self.fail_new(&error, out);
                self.lost_with(now, error, out);
            }
            _ => {
                self.stale = 0;
                self.backoff.not_before(error.retry_after());
                self.lost(now, &error.message, out);
            }
        }
    }

    /// Attaching fails for a reason that does not go away without a change: the waiting operations fail.
    fn fail_new(&mut self, error: &Error, out: &mut Effects) {
        let fresh = |id: &&String| self.holdings[*id].confirmed.is_none();
        let ids: Vec<String> = self.holdings.keys().filter(fresh).cloned().collect();
        for id in ids {
            self.give_up(&id, error, out);
        }
        let rest: Vec<(OperationId, String)> = self.operations.iter().map(|(k, o)| (*k, o.id.clone())).collect();
        for (operation, id) in rest {
            let registration = self.operations.get(&operation).map(|operation| operation.registration);
            let update = self.operations.get(&operation).is_some_and(|o| matches!(o.kind, Kind::Update(_)));
            if update && let Some(registration) = registration {
                self.finish(operation, Err(error.clone()), out);
                self.rebuild(&id, registration);
            }
        }
    }
}
