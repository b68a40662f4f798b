//! Attaching clients: an attach is complete and decides over older claims (C1–C4, C7).

use super::{Attach, AttachMember, Attached, ConnId, Effect, Node, Notice, Output, Phase, SessionId};
use crate::error::{ErrorCode, Rejection};
use crate::member::{
    Checks, ClientProcess, Health, Metadata, Record, RecordKind, Space, Status, check_client_id, check_id, health_of,
};
use crate::mutant::seam;
use crate::sessions::{Session, Unregistrations};
use crate::time::Time;
use crate::version::{Version, moved, request_of, written_by};
use crate::wire::{CLAIM_FLOOR_MAX, MAX_CLAIM, next_claim};
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Above the highest claim floor, a client cannot get further ahead of the known claim in one step. Below it, any claim
/// is accepted: after a restart of all nodes nobody knows how far the clients have counted.
const CLAIM_JUMP_MAX: u64 = 1 << 20;

/// Longest name of a principal.
const PRINCIPAL_BYTES_MAX: usize = 256;

impl Node {
    /// Attaches a client, or attaches it again.
    pub fn attach(
        &mut self,
        now: Time,
        conn: ConnId,
        request: &Attach,
        out: &mut Output,
    ) -> Result<Attached, Rejection> {
        self.observe_client(now, out)?;
        let checked = self.check_attach(request).and_then(|ids| self.check_claim(request, &ids));
        let result = checked.map(|claim| self.do_attach(conn, request, claim, false, out));
        self.count_rejection(result)
    }

    /// Validates an attach apart from its claim. Returns the ids of its members.
    pub(super) fn check_attach<'a>(&self, request: &'a Attach) -> Result<BTreeSet<&'a str>, Rejection> {
        if !matches!(self.phase, Phase::Serving { .. }) {
            return Err(self.not_accepting_clients(&request.client));
        }
        let limits = &self.config.limits;
        check_client_id(&request.client, limits)?;
        self.check_principal(&request.client, &request.principal)?;
        if request.claim == 0 || request.claim > MAX_CLAIM {
            let message = format!("claim {} is not between 1 and {MAX_CLAIM}", request.claim);
            return Err(Rejection::new(ErrorCode::InvalidArgument, message).field("claim").limit(MAX_CLAIM));
        }
        if let Some(timeout) = request.timeout {
            let shortest = self.config.timers.heartbeat_interval;
            let longest = self.config.timers.reconnect_timeout;
            if timeout < shortest || timeout > longest {
                let message = format!("timeout {timeout:?} is not between {shortest:?} and {longest:?}");
                return Err(Rejection::new(ErrorCode::InvalidArgument, message).field("timeout_ms"));
            }
        }
        let count = request.members.len() + request.unregistered.len();
        if count > limits.members_per_session {
            let message = format!("{count} members in one session, at most {} are allowed", limits.members_per_session);
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message)
                .field("members")
                .limit(limits.members_per_session));
        }
        if self.sessions.len() >= limits.sessions {
            let message = format!("this node has {} sessions already; attach to another node", limits.sessions);
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message).field("client").limit(limits.sessions));
        }
        let mut ids = BTreeSet::new();
        for member in &request.members {
            member.spec.check_of_client(limits)?;
            if !ids.insert(member.spec.id.as_str()) {
                let message = format!("member {:?} is listed twice", member.spec.id);
                return Err(Rejection::new(ErrorCode::InvalidMember, message).field("id"));
            }
        }
        for id in &request.unregistered {
            check_id(id, limits)?;
            if ids.contains(id.as_str()) {
                let message = format!("member {id:?} is both registered and unregistered");
                return Err(Rejection::new(ErrorCode::InvalidMember, message).field("id"));
            }
        }
        Ok(ids)
    }

    /// Rejects a client id that another principal uses (C14).
    fn check_principal(&self, client: &str, principal: &str) -> Result<(), Rejection> {
        if principal.contains(char::is_control) || principal.len() > PRINCIPAL_BYTES_MAX {
            let message = format!(
                "the name of the principal is longer than {PRINCIPAL_BYTES_MAX} bytes or has a control character"
            );
            return Err(Rejection::new(ErrorCode::InvalidArgument, message).field("principal"));
        }
        seam!(self, PrincipalIgnored => return Ok(()));
        let is_foreign = |held: &ClientProcess| !held.principal.is_empty() && held.principal != principal;
        let session = self.sessions.of_client(client).and_then(|id| self.sessions.get(id));
        let by_session = session.is_some_and(|session| !session.down && is_foreign(&session.client));
        let up = |record: &&Arc<Record>| self.map.shown(record) == Status::Up;
        if principal.is_empty() || !(by_session || self.map.of_client(client).filter(up).any(|r| is_foreign(&r.client)))
        {
            return Ok(());
        }
        let message = format!("client id {client:?} is in use by another principal; choose another client id");
        Err(Rejection::new(ErrorCode::PermissionDenied, message).field("client"))
    }

    fn check_claim(&self, request: &Attach, ids: &BTreeSet<&str>) -> Result<u64, Rejection> {
        let session = self.sessions.of_client(&request.client).and_then(|id| self.sessions.get(id));
        let named = ids.iter().copied().chain(request.unregistered.iter().map(String::as_str));
        let records: Vec<&Arc<Record>> = named.filter_map(|id| self.map.record(Space::Member, id)).collect();
        let replaced = |client: &ClientProcess, claim: u64| {
            client.id == request.client
                && client.nonce != request.nonce
                && request.previous_claim > 0
                && claim > request.previous_claim
        };
        let by_session = session.is_some_and(|s| !s.down && replaced(&s.client, s.claim));
        let by_record = records.iter().any(|r| self.map.shown(r) == Status::Up && replaced(&r.client, r.claim));
        if by_session || by_record {
            let message = format!("a newer session of client id {:?} superseded this one", request.client);
            return Err(Rejection::new(ErrorCode::Superseded, message).field("client"));
        }
        let named = ids.iter().copied().chain(request.unregistered.iter().map(String::as_str));
        let known = named.map(|id| self.map.known_claim(Space::Member, id)).chain(session.map(|s| s.claim)).max();
        let known = known.unwrap_or(0);
        let reachable = known.max(CLAIM_FLOOR_MAX).saturating_add(CLAIM_JUMP_MAX);
        if request.claim > reachable {
            let message = format!("claim {} is too far above {known}", request.claim);
            return Err(Rejection::new(ErrorCode::InvalidArgument, message).field("claim").limit(reachable));
        }
        if request.claim > known {
            return Ok(request.claim);
        }
        seam!(self, NodeRaisesClaim => return Ok(known + 1));
        Err(Rejection::stale_claim(known))
    }

    /// Attaches a validated client. `restored`: the registry provided its members.
    pub(super) fn do_attach(
        &mut self,
        conn: ConnId,
        request: &Attach,
        claim: u64,
        restored: bool,
        out: &mut Output,
    ) -> Attached {
        let client = self.map.interner.client(&request.client, request.nonce, &request.principal);
        let timeout = request.timeout.unwrap_or(self.config.timers.heartbeat_timeout);
        let old = self.sessions.of_client(&request.client);
        if let Some(old) = old {
            self.supersede_here(old, conn, &client, claim, out);
        }
        let own = self.map.of_client(&request.client).filter(|record| restored && record.client == client);
        let last_request = own.map(|record| request_of(record.seq)).max().unwrap_or(0);
        let asked_to_move = self.has_returned(&request.client);
        let session = self.sessions.insert(Session {
            liveness: request.liveness,
            asked_to_move,
            restored,
            unregistrations: Unregistrations::after(last_request),
            conn: Some(conn),
            members: Vec::with_capacity(request.members.len()),
            ..Session::waiting(client.clone(), claim, timeout, self.clock)
        });
        self.check_session_at(session, self.clock.now + timeout);
        let mut attached = Attached {
            session,
            heartbeat_interval: self.heartbeat_interval(timeout),
            timeout,
            versions: Vec::with_capacity(request.members.len()),
            last_write: self.last_dot(),
            claims_kept: false,
            rejected: Vec::new(),
            taken_over: Vec::new(),
        };
        for member in &request.members {
            match self.claim_member(session, &client, claim, member, out) {
                Ok(version) => attached.versions.push((member.spec.id.clone(), version)),
                Err(rejection) => attached.rejected.push((member.spec.id.clone(), rejection)),
            }
        }
        for id in &request.unregistered {
            self.repeat_unregister(id, &client, claim, out);
        }
        if let Some(old) = old
            && self.sessions.get(old).is_some_and(|s| s.members.is_empty())
        {
            self.sessions.remove(old);
        }
        Attached { last_write: self.last_dot(), ..attached }
    }

    /// A newer attach of the same client arrived here: the older session ends, and its connection is notified.
    fn supersede_here(&mut self, old: SessionId, conn: ConnId, client: &ClientProcess, claim: u64, out: &mut Output) {
        let other = self.sessions.get(old).is_some_and(|s| s.client.nonce != client.nonce);
        if let Some(old_conn) = self.sessions.supersede(old)
            && old_conn != conn
        {
            let notice = if other { Notice::Superseded { known: claim } } else { Notice::Lost { known: claim } };
            out.effects.push(Effect::Notify { conn: old_conn, notice });
        }
    }

    /// Writes one member for a session, unless another client holds it.
    pub(super) fn claim_member(
        &mut self,
        session: SessionId,
        client: &Arc<ClientProcess>,
        claim: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Rejection> {
        let spec = &member.spec;
        self.check_held(client, member)?;
        let held = self.map.record(Space::Member, &spec.id).cloned();
        if held.as_ref().is_none_or(|held| !held.is_live()) && !self.map.has_room(Space::Member) {
            let limit = self.config.limits.members;
            let message = format!("the registry holds {limit} members or as many tombstones already");
            return Err(Rejection::new(ErrorCode::ResourceExhausted, message).field("id").limit(limit));
        }
        let (claim, seq) = self.next_rank(session, client, claim, &spec.id);
        let live = held.as_ref().filter(|held| held.is_live());
        let mut drain = match (&held, live) {
            (_, Some(live)) => live.drain,
            // A new registration starts undrained, with a mark above the old one.
            (Some(left), None) => left.drain + left.drain % 2,
            (None, None) => 0,
        };
        seam!(self, MoveClearsDrain => if live.is_some() { drain = 0 });
        let mut maintenance = live.filter(|live| live.drain == drain).and_then(|live| live.maintenance.clone());
        seam!(self, MoveRestartsDrain => maintenance = maintenance.map(|held| Arc::new(held.again(self.clock))));
        let created = spec.created.or(live.map(|live| live.created)).unwrap_or(self.wall_ms);
        let checks = Checks::registered(&spec.checks, live.and_then(|live| live.checks.as_ref()), self.wall_ms);
        let draft = Record {
            id: SmolStr::new(&spec.id),
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            slot: 0,
            drain,
            space: Space::Member,
            kind: RecordKind::Live,
            status: Status::Up,
            health: health_of(checks.as_ref()),
            weight: spec.weight,
            n: 0,
            claim,
            seq,
            predecessor: (0, 0),
            client: client.clone(),
            deployment: self.map.interner.deployment(&spec.service, &spec.locality, &spec.revision),
            created,
            since: self.wall_ms,
            address: SmolStr::new(&spec.address),
            endpoints: Metadata::from_map(&spec.endpoints),
            metadata: Metadata::from_map(&spec.metadata),
            checks,
            maintenance,
        };
        let stored = self.write(draft, out);
        self.notify_taken_over(stored.new.slot, client, out);
        self.sessions.give(session, stored.new.slot, stored.new.n);
        if let Some(session) = self.sessions.get_mut(session) {
            session.lost.forget(&spec.id);
        }
        Ok(self.map.member(&stored.new).version())
    }

    /// Claim and sequence number with which a session registers a member.
    ///
    /// If the client counts claims, its claim is above every known one. If not, this node chooses a claim above those of
    /// other processes and of collected records. The member of the same process keeps its claim (C10): request numbers
    /// order its records, and a change of owner must not outrank a write that this node has not received.
    fn next_rank(&self, session: SessionId, client: &Arc<ClientProcess>, claim: u64, id: &str) -> (u64, u64) {
        let held = self.map.record(Space::Member, id);
        if !self.sessions.get(session).is_some_and(|session| session.restored) {
            return (claim, held.map_or(1, |held| held.seq + 1));
        }
        // Requests of another process have numbers of their own.
        let own = held.filter(|held| held.client == *client);
        let seq = written_by(self.request, own.map_or(0, |held| held.seq));
        let known = self.map.known_claim(Space::Member, id);
        match own.filter(|held| held.claim >= known.max(claim)) {
            None if known >= claim => (next_claim(known), seq),
            None => (claim, seq),
            Some(held) if self.request > 0 || held.origin.index == self.map.origins.me() => (held.claim, seq),
            Some(held) => match moved(held.seq) {
                Some(seq) => (held.claim, seq),
                None => (next_claim(held.claim), seq),
            },
        }
    }

    /// Rejects a member that another live client has registered (C2), unless the request is a takeover.
    pub(super) fn check_held(&self, client: &ClientProcess, member: &AttachMember) -> Result<(), Rejection> {
        let id = &member.spec.id;
        match self.map.record(Space::Member, id) {
            Some(held) if held.is_live() && held.is_agentless() => {
                let message = format!(
                    "member {id:?} is registered without a client; deregister it with `convoke service deregister`"
                );
                Err(Rejection::new(ErrorCode::AlreadyRegistered, message).field("id"))
            }
            Some(held) if held.client.id != client.id && !member.takeover && self.map.shown(held) == Status::Up => {
                let message = format!("member {id:?} is registered by another live client");
                Err(Rejection::new(ErrorCode::AlreadyRegistered, message).field("id"))
            }
            _ => Ok(()),
        }
    }

    /// Notifies another client's session at this node that had the slot (C4).
    fn notify_taken_over(&mut self, slot: u32, client: &ClientProcess, out: &mut Output) {
        let Some(session) = self.sessions.of_slot(slot) else { return };
        let Some(loser) = self.sessions.get(session).filter(|loser| loser.client.id != client.id) else { return };
        let (conn, last) = (loser.conn, loser.members.len() <= 1);
        let id = self.map.at(slot).id.clone();
        self.note_lost_member(session, &id);
        if let Some(conn) = conn {
            out.effects.push(Effect::Notify { conn, notice: Notice::TakenOver { id: id.to_string(), last } });
        }
    }

    /// Repeats an unregistration whose answer the client never received (C3).
    fn repeat_unregister(&mut self, id: &str, client: &Arc<ClientProcess>, claim: u64, out: &mut Output) {
        seam!(self, UnacknowledgedUnregisterIgnored => return);
        let held = self.map.record(Space::Member, id).cloned();
        // Even a tombstone is written again: the registration may be known at other nodes only.
        if held.as_ref().is_some_and(|held| held.client.id != client.id && held.is_live()) {
            return;
        }
        let draft = match held {
            Some(held) => {
                self.sessions.take(held.slot);
                Record { claim, client: client.clone(), ..held.unregistered() }
            }
            None => self.tombstone_of_unknown(id, client, claim),
        };
        self.write(draft, out);
        self.note_unregistration();
    }

    /// The tombstone of a member of which this node has no record, as a draft.
    pub(super) fn tombstone_of_unknown(&mut self, id: &str, client: &Arc<ClientProcess>, claim: u64) -> Record {
        Record {
            id: SmolStr::new(id),
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            slot: 0,
            drain: 0,
            space: Space::Member,
            kind: RecordKind::Left,
            status: Status::Up,
            health: Health::Passing,
            weight: 0,
            n: 0,
            claim,
            seq: 1,
            predecessor: (0, 0),
            client: client.clone(),
            deployment: self.map.interner.deployment("", "", ""),
            created: 0,
            since: 0,
            address: SmolStr::default(),
            endpoints: Metadata::default(),
            metadata: Metadata::default(),
            checks: None,
            maintenance: None,
        }
    }
}

pub(super) fn not_ready() -> Rejection {
    Rejection::new(ErrorCode::NotReady, "this node does not accept clients now; try another node")
}

pub(super) fn was_paused() -> Rejection {
    Rejection::new(ErrorCode::NotReady, "this node was paused while the request waited; send it again")
}

pub(super) fn session_gone() -> Rejection {
    Rejection::new(ErrorCode::SessionGone, "this session has ended; attach again")
}
