//! Clients without state of their own, such as HTTP clients: the registry restores their members (C8).

use super::{
    Attach, AttachMember, Attached, ConnId, Effect, Node, Notice, Output, PeerState, Reattach, RequestOrder, SessionId,
    SessionOwner,
};
use crate::error::{ErrorCode, Rejection};
use crate::member::{Liveness, MemberSpec, Record, RecordKind, Space, Status};
use crate::mutant::seam;
use crate::sessions::{LostMembers, Session};
use crate::time::Time;
use crate::version::{OriginId, request_of, written_by};
use crate::wire::{MAX_CLAIM, next_claim};
use std::sync::Arc;

impl Node {
    /// Attaches a client with its members in the registry. Finding and claiming them is one step: members that were
    /// unregistered before it are not claimed again.
    pub fn reattach(
        &mut self,
        now: Time,
        conn: ConnId,
        request: &Reattach,
        out: &mut Output,
    ) -> Result<Attached, Rejection> {
        self.observe_client(now, out)?;
        let result = self.restore_from_registry(request).and_then(|(attach, claims_kept, mut taken_over)| {
            self.check_attach(&attach)?;
            let lost = self.lost_members_of(request);
            let unknown = lost.iter().map(ToString::to_string).filter(|id| !taken_over.contains(id));
            taken_over.extend(unknown.collect::<Vec<String>>());
            let attached = self.do_attach(conn, &attach, attach.claim, true, out);
            if let Some(session) = self.sessions.get_mut(attached.session) {
                session.lost = lost;
            }
            Ok(Attached { claims_kept, taken_over, ..attached })
        });
        self.count_rejection(result)
    }

    /// Builds the attach that the client would send if it had its own state. Returns whether it keeps the claims, and the
    /// members of other processes that may have replaced members of this one.
    fn restore_from_registry(&self, request: &Reattach) -> Result<(Attach, bool, Vec<String>), Rejection> {
        if !self.is_serving() {
            return Err(self.not_accepting_clients(&request.client));
        }
        let session = self.sessions.of_client(&request.client).and_then(|id| self.sessions.get(id));
        let own_session = session.filter(|session| session.client.nonce == request.nonce);
        let (own, others): (Vec<&Record>, Vec<&Record>) =
            self.map.of_client(&request.client).map(|record| &**record).partition(|r| r.client.nonce == request.nonce);
        let previous = own.iter().map(|record| record.claim).chain(own_session.map(|session| session.claim)).max();
        if !request.fresh {
            let highest = previous.unwrap_or(0);
            if others.iter().any(|record| record.claim > highest && self.map.shown(record) == Status::Up) {
                let message = format!("a newer session of client id {:?} superseded this one", request.client);
                return Err(Rejection::new(ErrorCode::Superseded, message).field("client"));
            }
            if previous.is_none() {
                return Err(self.absent_session(request));
            }
        }
        let known =
            others.iter().map(|record| record.claim).chain(session.map(|session| session.claim)).chain(previous);
        let raised = known.max().unwrap_or(0).saturating_add(request.raise.max(1)).min(MAX_CLAIM);
        let lowest = own.iter().map(|record| record.claim).min().or(own_session.map(|session| session.claim));
        let kept = lowest.filter(|_| self.keeps_claims(request, &own));
        let outranks = |record: &&&Record| lowest.is_some_and(|lowest| record.claim > lowest);
        let mut taken_over: Vec<String> = others.iter().filter(outranks).map(|record| record.id.to_string()).collect();
        seam!(self, EarlierSessionNotNamed => taken_over.clear());
        let mut restored = own.as_slice();
        seam!(self, ReattachForgetsMembers => restored = &[]);
        let restored = restored.iter().map(|record| AttachMember { spec: spec_of(record), takeover: false });
        let attach = Attach {
            client: request.client.clone(),
            nonce: request.nonce,
            claim: kept.unwrap_or(raised),
            previous_claim: previous.unwrap_or(0),
            liveness: request.liveness,
            timeout: request.timeout,
            members: restored.collect(),
            unregistered: Vec::new(),
            principal: request.principal.clone(),
        };
        Ok((attach, kept.is_some(), taken_over))
    }

    /// Whether an attach changes the owner of the members and not their claims (C10). A higher claim would outrank writes
    /// that this node has not received; request numbers order those. Without numbers, the last attach wins.
    fn keeps_claims(&self, request: &Reattach, own: &[&Record]) -> bool {
        seam!(self, AttachOutranksWrites => return false);
        match request.order {
            RequestOrder::Numbered => !request.fresh,
            RequestOrder::Nothing => own.iter().any(|record| request_of(record.seq) > 0),
            RequestOrder::Arrival => false,
        }
    }

    /// The rejection of a session of which no member is known. Only the node that created it can hold it.
    fn absent_session(&self, request: &Reattach) -> Rejection {
        if !self.asserts_absence() {
            return self.absence_unknown();
        }
        match &request.creator {
            Some(creator) if self.creator_serves(request) => {
                let node = &creator.node;
                // Requests with `fast` liveness are not forwarded, and this node cannot tell a new session from an expired one.
                let message = match request.liveness {
                    Liveness::Normal => format!("node {node} created this session and cannot be reached; try again"),
                    Liveness::Fast => format!("this session has no member yet; register the first one at node {node}"),
                };
                Rejection::new(ErrorCode::NotReady, message)
            }
            _ => super::attach::session_gone(),
        }
    }

    /// Whether another node created the session and is not known to have failed.
    fn creator_serves(&self, request: &Reattach) -> bool {
        seam!(self, CreatorIgnored => return false);
        let failed = |creator: &OriginId| {
            let peer = self.peers.peers.get(&creator.node);
            peer.is_none_or(|peer| matches!(peer.state, PeerState::Failed | PeerState::Left))
        };
        let serves = |creator: &OriginId| creator != self.origin() && self.admits(creator) && !failed(creator);
        request.creator.as_ref().is_some_and(serves)
    }

    /// The members that the session lost since its client last registered them (C20).
    fn lost_members_of(&self, request: &Reattach) -> LostMembers {
        seam!(self, LostMembersForgotten => return LostMembers::default());
        let session = self.sessions.of_process(&request.client, request.nonce);
        session.and_then(|id| self.sessions.get(id)).map(|session| session.lost.clone()).unwrap_or_default()
    }

    /// Another client took a member from a session.
    pub(super) fn note_lost_member(&mut self, session: SessionId, id: &str) {
        if let Some(session) = self.sessions.get_mut(session).filter(|session| session.restored) {
            session.lost.note(id);
        }
    }

    /// A member of an HTTP session expired at another node that had it (C20). The client may use this node, so that the other
    /// one was silent for it. The tombstone of an unregistration has a later request.
    pub(super) fn note_expired_elsewhere(&mut self, old: &Record, new: &Record, out: &mut Output) {
        seam!(self, ExpiredElsewhereNotNamed => return);
        let expired = new.kind == RecordKind::Left && new.status == Status::Down;
        let same = old.is_live() && old.client == new.client && request_of(old.seq) == request_of(new.seq);
        if !expired || !same || request_of(new.seq) == 0 || old.origin.index == self.map.origins.me() {
            return;
        }
        let Some(id) = self.sessions.of_process(&new.client.id, new.client.nonce) else { return };
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.restored) else { return };
        session.lost.note(&new.id);
        if let Some(conn) = session.conn {
            let notice = Notice::TakenOver { id: new.id.to_string(), last: false };
            out.effects.push(Effect::Notify { conn, notice });
        }
    }

    /// Notes that another node owns a member of a session that is attached here (C15).
    pub(super) fn note_owner_elsewhere(&mut self, record: &Record) {
        if record.space != Space::Member || !record.is_live() {
            return;
        }
        let session = self.sessions.of_client(&record.client.id).and_then(|id| self.sessions.get_mut(id));
        if let Some(session) = session.filter(|session| session.restored && session.client == record.client) {
            session.owned_elsewhere = true;
        }
    }

    /// Takes the members of a session that other nodes own. Two nodes can have the session for a while, and each of them
    /// registers members. The client uses this node now, so the other one would let its members expire.
    pub(super) fn gather_members(&mut self, id: SessionId, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.owned_elsewhere) else { return };
        session.owned_elsewhere = false;
        seam!(self, MembersNotGathered => return);
        let (client, claim, room) = (session.client.clone(), session.claim, session.members.len());
        let room = self.config.limits.members_per_session.saturating_sub(room);
        let elsewhere = |record: &&Arc<Record>| {
            record.client == client
                && record.origin.index != self.map.origins.me()
                && self.sessions.of_slot(record.slot).is_none()
        };
        let members: Vec<Arc<Record>> = self.map.of_client(&client.id).filter(elsewhere).take(room).cloned().collect();
        for record in members {
            if let Some(request) = self.unregistered_by(id, &record) {
                self.write(Record { seq: written_by(request, record.seq), ..record.unregistered() }, out);
                self.note_unregistration();
                continue;
            }
            // A numbered record keeps its claim (C10).
            let kept = if request_of(record.seq) > 0 { record.claim.min(claim) } else { claim };
            let member = AttachMember { spec: spec_of(&record), takeover: false };
            // A member that does not fit into the registry stays where it is.
            let _ = self.claim_member(id, &client, kept, &member, out);
        }
    }

    /// The later request with which the session unregistered a member here before its registration arrived. It left no
    /// tombstone if another client had the member (C10).
    fn unregistered_by(&self, session: SessionId, record: &Record) -> Option<u64> {
        seam!(self, UnregisteredGathered => return None);
        let known = self.sessions.get(session)?.unregistrations.known_of(&record.id);
        known.filter(|request| (1..*request).contains(&request_of(record.seq)))
    }

    /// Registers the member of a later request again, if a record of an earlier one outranks it because its claim is higher
    /// (C16). The owner of the later one may be lost, so every node that meets both records does this, in a session that
    /// waits for the client. Returns whether it did.
    pub(super) fn restore_later_request(&mut self, later: &Record, winner: &Record, out: &mut Output) -> bool {
        seam!(self, LaterRequestNotRestored => return false);
        let inverted = later.is_live() && winner.is_live() && later.is_of_later_request(winner);
        if !inverted || !self.is_serving() {
            return false;
        }
        let Some(session) = self.waiting_session(later) else { return false };
        let down = self.sessions.get(session).is_some_and(|session| session.down);
        let status = if down { Status::Down } else { Status::Up };
        let claim = next_claim(winner.claim);
        let restored =
            self.write(Record { claim, seq: later.seq + 1, status, ..later.clone().with_mark_of(winner) }, out).new;
        self.sessions.give(session, restored.slot, restored.n);
        true
    }

    /// The session of a record's process at this node, or a new one without a connection. `None` if there is no room.
    fn waiting_session(&mut self, record: &Record) -> Option<SessionId> {
        let known = self.sessions.of_client(&record.client.id);
        if let Some(session) = known.and_then(|id| self.sessions.get(id)) {
            return known.filter(|_| session.client == record.client);
        }
        if self.sessions.len() >= self.config.limits.sessions {
            return None;
        }
        let timeout = self.config.timers.heartbeat_timeout;
        let session = Session::waiting(record.client.clone(), record.claim, timeout, self.clock);
        let session = self.sessions.insert(session);
        self.check_session_at(session, self.clock.now + timeout);
        Some(session)
    }

    /// Returns the other node that owns the members of this process. If it has none, returns the node that created the
    /// session, while that incarnation is admitted.
    pub fn owner_of_session(&self, client: &str, nonce: u64, creator: Option<&OriginId>) -> Option<SessionOwner> {
        let own = self.map.of_client(client).filter(|record| record.client.nonce == nonce);
        // With equal claims, the record that moved or was written last.
        let owner = own.max_by_key(|record| record.rank()).map(|record| &record.origin.id);
        let mut created = creator.filter(|creator| self.admits(creator));
        seam!(self, CreatorIgnored => created = None);
        let origin = owner.or(created)?.clone();
        let peer = self.peers.peers.get(&origin.node)?;
        let (node, client_address, state) = (origin.node.clone(), peer.client_address.clone(), peer.state);
        Some(SessionOwner { node, client_address, state, origin })
    }
}

fn spec_of(record: &Record) -> MemberSpec {
    MemberSpec {
        id: record.id.to_string(),
        service: record.deployment.service.to_string(),
        locality: record.deployment.locality.to_string(),
        revision: record.deployment.revision.to_string(),
        created: Some(record.created),
        address: record.address.to_string(),
        endpoints: record.endpoints.to_map(),
        weight: record.weight,
        metadata: record.metadata.to_map(),
        checks: record.checks.as_ref().map_or(Vec::new(), |checks| checks.definitions().to_vec()),
    }
}
