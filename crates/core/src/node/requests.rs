//! Requests within a session: register, update, unregister (R-05, R-07, C5).

use super::attach::session_gone;
use super::{AttachMember, Node, Output, SessionId};
use crate::error::{ErrorCode, Rejection};
use crate::member::{Checks, Metadata, MetadataUpdate, Record, RecordKind, Space, check_id, health_of};
use crate::mutant::seam;
use crate::sessions::Session;
use crate::time::{ReceivedAt, Time};
use crate::version::{Version, request_of, written_by};
use smol_str::SmolStr;
use std::sync::Arc;

impl Node {
    /// Registers one more member in a session; the same member again is an update.
    pub fn register(
        &mut self,
        now: Time,
        session: SessionId,
        seq: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.observe_client(now, out)?;
        let result = self.do_register(session, seq, member, out);
        self.count_rejection(result)
    }

    fn do_register(
        &mut self,
        session: SessionId,
        seq: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.check_request(session, seq)?;
        member.spec.check_of_client(&self.config.limits)?;
        let (client, claim, members, restored) = {
            let s = self.session(session)?;
            (s.client.clone(), s.claim, s.members.len(), s.restored)
        };
        if let Some(held) = self.written_before(session, &member.spec.id, RecordKind::Live)? {
            self.executed(session, seq, out);
            return Ok(self.map.member(&held).version());
        }
        let limit = self.config.limits.members_per_session;
        let slot = self.map.slot_of(Space::Member, &member.spec.id);
        let own = slot.is_some_and(|slot| self.sessions.of_slot(slot) == Some(session));
        if members >= limit && !own {
            let message = format!("this session has {limit} members already");
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message).field("id").limit(limit));
        }
        if own && let Some(slot) = slot {
            return self.register_again(session, seq, slot, member, out);
        }
        self.check_contested(session, &member.spec.id)?;
        // Before the claims are compared: attaching again with a higher one would not help, and would claim all
        // members again.
        self.check_held(&client, member)?;
        let held = self.map.record(Space::Member, &member.spec.id);
        let own_tombstone = held.is_some_and(|held| held.claim == claim && held.client == client && !held.is_live());
        let known = self.map.known_claim(Space::Member, &member.spec.id);
        if known >= claim && !own_tombstone && !restored {
            return Err(Rejection::stale_claim(known));
        }
        let version = self.claim_member(session, &client, claim, member, out)?;
        self.executed(session, seq, out);
        Ok(version)
    }

    /// Registers a member that the session already has: metadata and checks are replaced, attributes must be
    /// the same.
    fn register_again(
        &mut self,
        session: SessionId,
        seq: u64,
        slot: u32,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        let held = self.map.at(slot).clone();
        let spec = &member.spec;
        let checks = Checks::registered(&spec.checks, held.checks.as_ref(), self.wall_ms);
        let draft = Record {
            seq: written_by(self.request, held.seq),
            weight: spec.weight,
            deployment: self.map.interner.deployment(&spec.service, &spec.locality, &spec.revision),
            address: SmolStr::new(&spec.address),
            endpoints: Metadata::from_map(&spec.endpoints),
            metadata: Metadata::from_map(&spec.metadata),
            health: health_of(checks.as_ref()),
            checks,
            ..Record::clone(&held)
        };
        if !draft.same_attributes(&held) {
            let message = format!("member {:?} is registered with other attributes; unregister it first", spec.id);
            return Err(Rejection::new(ErrorCode::AlreadyRegistered, message).field("id"));
        }
        let stored = self.write(draft, out);
        self.executed(session, seq, out);
        Ok(self.map.member(&stored.new).version())
    }

    /// Changes metadata of a member of this session.
    #[allow(clippy::too_many_arguments)]
    pub fn update(
        &mut self,
        now: Time,
        session: SessionId,
        seq: u64,
        id: &str,
        update: &MetadataUpdate,
        expected: Option<Version>,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.observe_client(now, out)?;
        let result = self.do_update(session, seq, id, update, expected, out);
        self.count_rejection(result)
    }

    fn do_update(
        &mut self,
        session: SessionId,
        seq: u64,
        id: &str,
        update: &MetadataUpdate,
        expected: Option<Version>,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        self.check_request(session, seq)?;
        if let Some(held) = self.written_before(session, id, RecordKind::Live)? {
            self.executed(session, seq, out);
            return Ok(self.map.member(&held).version());
        }
        let slot = self.own_slot(session, id)?;
        let held = self.map.at(slot).clone();
        let version = self.map.member(&held).version();
        if let Some(expected) = expected
            && expected != version
        {
            let message = format!("member {id:?} has version {version}, not {expected}; read it again");
            return Err(Rejection::new(ErrorCode::StaleVersion, message).field("version"));
        }
        let metadata = update.apply(&held.metadata, &self.config.limits)?;
        self.executed(session, seq, out);
        // A heartbeat may just have brought the member up again.
        let held = self.map.at(slot).clone();
        // A numbered update is written even if it changes nothing: an earlier one may arrive later.
        if metadata == held.metadata && self.request == 0 {
            return Ok(self.map.member(&held).version());
        }
        let stored =
            self.write(Record { metadata, seq: written_by(self.request, held.seq), ..Record::clone(&held) }, out);
        Ok(self.map.member(&stored.new).version())
    }

    /// Unregisters a member of this session.
    pub fn unregister(
        &mut self,
        now: Time,
        session: SessionId,
        seq: u64,
        id: &str,
        out: &mut Output,
    ) -> Result<(), Rejection> {
        self.observe_client(now, out)?;
        let result = self.do_unregister(session, seq, id, out);
        self.count_rejection(result)
    }

    fn do_unregister(&mut self, session: SessionId, seq: u64, id: &str, out: &mut Output) -> Result<(), Rejection> {
        self.check_request(session, seq)?;
        if self.written_before(session, id, RecordKind::Left)?.is_some() {
            self.executed(session, seq, out);
            return Ok(());
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.unregistrations.note(id, self.request);
        }
        let result = self.unregister_one(session, seq, id, out);
        if result.is_ok()
            && let Some(session) = self.sessions.get_mut(session)
        {
            session.lost.forget(id);
        }
        result
    }

    fn unregister_one(&mut self, session: SessionId, seq: u64, id: &str, out: &mut Output) -> Result<(), Rejection> {
        match self.own_slot(session, id) {
            Ok(slot) => {
                self.executed(session, seq, out);
                self.sessions.take(slot);
                self.write_unregistered(slot, out);
            }
            Err(rejection) if rejection.code == ErrorCode::NotRegistered && self.ends_unknown() => {
                let draft = self.tombstone_without_member(session, id)?.ok_or(rejection)?;
                self.executed(session, seq, out);
                self.write(draft, out);
                self.note_unregistration();
            }
            Err(rejection) => return Err(rejection),
        }
        Ok(())
    }

    /// Whether the client ends a registration that this node may lack: an earlier request at another node (C10).
    fn ends_unknown(&self) -> bool {
        seam!(self, UnknownNotEnded => return false);
        self.request > 0
    }

    /// The tombstone of a member that this session does not have here. `None` if it belonged to another client.
    fn tombstone_without_member(&mut self, session: SessionId, id: &str) -> Result<Option<Record>, Rejection> {
        check_id(id, &self.config.limits)?;
        let session = self.session(session)?;
        let (client, claim) = (session.client.clone(), session.claim);
        let held = self.map.record(Space::Member, id).cloned();
        let seq = written_by(self.request, held.as_ref().map_or(0, |held| held.seq));
        Ok(match held {
            None => Some(Record { seq, ..self.tombstone_of_unknown(id, &client, claim) }),
            Some(held) if held.client == client => Some(Record { seq, ..held.unregistered() }),
            Some(_) => None,
        })
    }

    /// Executes an operation with the number that the client gave to its request (C10).
    pub(super) fn numbered<T>(&mut self, request: u64, execute: impl FnOnce(&mut Node) -> T) -> T {
        self.request = request;
        let result = execute(self);
        self.request = 0;
        result
    }

    /// Compares the number of the request with the one that last wrote the member (C10). Returns the record if this request
    /// wrote it before. A higher number means that the client has moved on: the request is rejected.
    fn written_before(&self, session: SessionId, id: &str, kind: RecordKind) -> Result<Option<Arc<Record>>, Rejection> {
        seam!(self, RequestNumbersIgnored => return Ok(None));
        let client = &self.session(session)?.client;
        let held = self.map.record(Space::Member, id).filter(|held| self.request > 0 && held.client == *client);
        let Some(held) = held else { return Ok(None) };
        let last = request_of(held.seq);
        if last == self.request && held.kind == kind {
            return Ok(Some(held.clone()));
        }
        if last >= self.request { Err(self.stale_request(id, last)) } else { Ok(None) }
    }

    fn stale_request(&self, id: &str, last: u64) -> Rejection {
        let message =
            format!("request {} of member {id:?} arrived after request {last}; its result stands", self.request);
        Rejection { known: Some(last), ..Rejection::new(ErrorCode::StaleRequest, message) }
            .field("Convoke-Session-Request")
    }

    /// Rejects a late registration of a member that another client has (C19). The client may have unregistered the member
    /// since, and the record of the other client has replaced its tombstone.
    fn check_contested(&self, session: SessionId, id: &str) -> Result<(), Rejection> {
        seam!(self, LateRegistrationContested => return Ok(()));
        let session = self.session(session)?;
        let held = self.map.record(Space::Member, id);
        if self.request == 0 || held.is_none_or(|held| held.client == session.client) {
            return Ok(());
        }
        let last = session.unregistrations.last_of(id);
        if last > self.request { Err(self.stale_request(id, last)) } else { Ok(()) }
    }

    pub(super) fn session(&self, id: SessionId) -> Result<&Session, Rejection> {
        self.sessions.get(id).filter(|session| !session.superseded).ok_or_else(session_gone)
    }

    /// Accepts a request number of an existing session: higher than every number before it (C5). The number counts from
    /// here on, whether the request is executed or rejected. A copy of a rejected request that arrives later is not
    /// executed: its client has acted on the rejection.
    fn check_request(&mut self, id: SessionId, seq: u64) -> Result<(), Rejection> {
        let last = self.session(id)?.last_seq;
        if self.is_old(seq, last) {
            let message = format!("request {seq} arrived after request {last}");
            return Err(Rejection::new(ErrorCode::InvalidArgument, message).field("seq"));
        }
        seam!(self, RejectedRequestsRunLater => return Ok(()));
        if let Some(session) = self.sessions.get_mut(id) {
            session.last_seq = last.max(seq);
        }
        Ok(())
    }

    fn is_old(&self, seq: u64, last: u64) -> bool {
        seam!(self, OldRequestsExecuted => return false);
        seq <= last
    }

    /// A request was executed: it counts as a heartbeat too.
    fn executed(&mut self, id: SessionId, seq: u64, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.last_seq = session.last_seq.max(seq);
        session.received_at = ReceivedAt::now(self.clock);
        if session.down {
            self.revive(id, out);
        }
    }

    fn own_slot(&self, session: SessionId, id: &str) -> Result<u32, Rejection> {
        let slot = self.map.slot_of(Space::Member, id);
        if let Some(slot) = slot.filter(|slot| self.sessions.of_slot(*slot) == Some(session)) {
            return Ok(slot);
        }
        match slot.map(|slot| self.map.at(slot)) {
            Some(record) if record.is_live() => {
                let message = format!("member {id:?} belongs to another session; only its own client may change it");
                Err(Rejection::new(ErrorCode::PermissionDenied, message).field("id"))
            }
            _ => Err(Rejection::new(ErrorCode::NotRegistered, format!("member {id:?} is not registered")).field("id")),
        }
    }

    pub(super) fn count_rejection<T>(&mut self, result: Result<T, Rejection>) -> Result<T, Rejection> {
        if result.is_err() {
            self.counters.requests_rejected += 1;
        }
        result
    }
}
