//! Requests of clients: attach, register, update, unregister, heartbeat (C1–C7).

use super::{
    Attach, AttachMember, Attached, ConnId, DegradedReason, Effect, Event, Node, Notice, Output, Phase, SessionId,
};
use crate::error::{Code, Refusal};
use crate::member::{Client, Kind, Liveness, Metadata, MetadataUpdate, Record, Space, Status, check_client_id};
use crate::mutant::Mutant;
use crate::sessions::Session;
use crate::time::{Duration, Heard, Time};
use crate::timers::Timer;
use crate::version::Version;
use crate::wire::MAX_CLAIM;
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::sync::Arc;

/// With `fast` liveness: how long after losing its connection a session is down.
const FAST_GRACE: Duration = Duration::from_millis(500);

impl Node {
    /// Attaches a client, or attaches it again.
    pub fn attach(
        &mut self,
        now: Time,
        wall_ms: u64,
        conn: ConnId,
        request: &Attach,
        out: &mut Output,
    ) -> Result<Attached, Refusal> {
        self.observe(now, out);
        self.wall_ms = wall_ms;
        let result = self.check_attach(request).map(|claim| self.do_attach(conn, request, claim, out));
        self.count_refusal(result)
    }

    /// Everything that can be wrong with an attach. Returns the claim to use.
    fn check_attach(&self, request: &Attach) -> Result<u64, Refusal> {
        if !matches!(self.phase, Phase::Ready { .. }) {
            return Err(not_ready());
        }
        let limits = &self.config.limits;
        check_client_id(&request.client, limits)?;
        if request.claim == 0 || request.claim > MAX_CLAIM {
            let message = format!("attach number {} is not between 1 and {MAX_CLAIM}", request.claim);
            return Err(Refusal::new(Code::InvalidArgument, message).field("claim").limit(MAX_CLAIM));
        }
        if let Some(timeout) = request.timeout {
            let shortest = self.config.timers.heartbeat_interval;
            let longest = self.config.timers.reconnect_timeout;
            if timeout < shortest || timeout > longest {
                let message = format!("timeout {timeout:?} is not between {shortest:?} and {longest:?}");
                return Err(Refusal::new(Code::InvalidArgument, message).field("timeout_ms"));
            }
        }
        let count = request.members.len() + request.unregistered.len();
        if count > limits.members_per_session {
            let message = format!("{count} members in one session, at most {} fit", limits.members_per_session);
            return Err(Refusal::new(Code::ResourceExhausted, message)
                .field("members")
                .limit(limits.members_per_session));
        }
        if self.sessions.len() >= limits.sessions {
            let message = format!("this node has {} sessions already; attach to another", limits.sessions);
            return Err(Refusal::new(Code::ResourceExhausted, message).field("client").limit(limits.sessions));
        }
        let mut ids = BTreeSet::new();
        for member in &request.members {
            member.spec.check(limits)?;
            if !ids.insert(member.spec.id.as_str()) {
                let message = format!("member {:?} is named twice", member.spec.id);
                return Err(Refusal::new(Code::InvalidMember, message).field("id"));
            }
        }
        for id in &request.unregistered {
            if id.is_empty() || id.len() > limits.id_bytes {
                let message = format!("id has {} bytes, 1 to {} are allowed", id.len(), limits.id_bytes);
                return Err(Refusal::new(Code::InvalidMember, message).field("id").limit(limits.id_bytes));
            }
        }
        self.check_claim(request, &ids)
    }

    fn check_claim(&self, request: &Attach, ids: &BTreeSet<&str>) -> Result<u64, Refusal> {
        let session = self.sessions.of_client(&request.client).and_then(|id| self.sessions.get(id));
        let named = ids.iter().copied().chain(request.unregistered.iter().map(String::as_str));
        let records: Vec<&Arc<Record>> = named.filter_map(|id| self.map.record(Space::Member, id)).collect();
        let replaced = |client: &Client, claim: u64| {
            client.id == request.client
                && client.nonce != request.nonce
                && request.previous_claim > 0
                && claim > request.previous_claim
        };
        let by_session = session.is_some_and(|s| !s.down && replaced(&s.client, s.claim));
        let by_record = records.iter().any(|r| self.map.shown(r) == Status::Up && replaced(&r.client, r.claim));
        if by_session || by_record {
            let message = format!("another process with client id {:?} took over", request.client);
            return Err(Refusal::new(Code::Superseded, message).field("client"));
        }
        let known = records.iter().map(|r| r.claim).chain(session.map(|s| s.claim)).max().unwrap_or(0);
        if request.claim > known {
            return Ok(request.claim);
        }
        if self.mutation.is(Mutant::NodeRaisesClaim) {
            return Ok(known + 1);
        }
        Err(Refusal::stale_epoch(known))
    }

    fn do_attach(&mut self, conn: ConnId, request: &Attach, claim: u64, out: &mut Output) -> Attached {
        let client = self.map.interner.client(&request.client, request.nonce);
        let timeout = request.timeout.unwrap_or(self.config.timers.heartbeat_timeout);
        let old = self.sessions.of_client(&request.client);
        if let Some(old) = old {
            self.supersede_here(old, conn, &client, claim, out);
        }
        let session = self.sessions.insert(Session {
            client: client.clone(),
            claim,
            liveness: request.liveness,
            timeout,
            heard: Heard::now(self.clock),
            last_seq: 0,
            conn: Some(conn),
            cut_at: None,
            down: false,
            superseded: false,
            handed_over: false,
            check_at: Time::MAX,
            members: Vec::with_capacity(request.members.len()),
        });
        self.check_session_at(session, self.clock.now + timeout);
        let mut attached = Attached {
            session,
            heartbeat_interval: self.config.timers.heartbeat_interval,
            timeout,
            versions: Vec::with_capacity(request.members.len()),
            refused: Vec::new(),
        };
        for member in &request.members {
            match self.claim_member(session, &client, claim, member, out) {
                Ok(version) => attached.versions.push((member.spec.id.clone(), version)),
                Err(refusal) => attached.refused.push((member.spec.id.clone(), refusal)),
            }
        }
        if !self.mutation.is(Mutant::UnacknowledgedUnregisterIgnored) {
            for id in &request.unregistered {
                self.repeat_unregister(id, &client, claim, out);
            }
        }
        if let Some(old) = old
            && self.sessions.get(old).is_some_and(|s| s.members.is_empty())
        {
            self.sessions.remove(old);
        }
        attached
    }

    /// A newer attach of the same client arrived here: the older session ends, its connection is told.
    fn supersede_here(&mut self, old: SessionId, conn: ConnId, client: &Client, claim: u64, out: &mut Output) {
        let other = self.sessions.get(old).is_some_and(|s| s.client.nonce != client.nonce);
        if let Some(old_conn) = self.sessions.supersede(old)
            && old_conn != conn
        {
            let notice = if other { Notice::Superseded { known: claim } } else { Notice::Lost { known: claim } };
            out.effects.push(Effect::Notify { conn: old_conn, notice });
        }
    }

    /// Writes one member for a session, unless another client holds it.
    fn claim_member(
        &mut self,
        session: SessionId,
        client: &Arc<Client>,
        claim: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Refusal> {
        let spec = &member.spec;
        let held = self.map.record(Space::Member, &spec.id).cloned();
        if let Some(held) = &held
            && held.client.id != client.id
            && !member.takeover
            && self.map.shown(held) == Status::Up
        {
            let message = format!("member {:?} is registered by another live client", spec.id);
            return Err(Refusal::new(Code::AlreadyRegistered, message).field("id"));
        }
        if held.as_ref().is_none_or(|held| !held.is_live()) && !self.map.has_room(Space::Member) {
            let limit = self.config.limits.members;
            let message = format!("the registry holds {limit} members already");
            return Err(Refusal::new(Code::ResourceExhausted, message).field("id").limit(limit));
        }
        let live = held.as_ref().filter(|held| held.is_live());
        let drain = match (&held, live) {
            (_, Some(live)) => live.drain,
            // A new registration starts undrained, with a mark above the old one.
            (Some(left), None) => left.drain + left.drain % 2,
            (None, None) => 0,
        };
        let created = spec.created.or(live.map(|live| live.created)).unwrap_or(self.wall_ms);
        let draft = Record {
            id: SmolStr::new(&spec.id),
            space: Space::Member,
            kind: Kind::Live,
            status: Status::Up,
            weight: spec.weight,
            drain,
            origin: self.map.origins.entry(self.map.origins.me()).origin.clone(),
            n: 0,
            claim,
            seq: held.as_ref().map_or(1, |held| held.seq + 1),
            predecessor: (0, 0),
            client: client.clone(),
            service: self.map.interner.text(&spec.service),
            locality: self.map.interner.text(&spec.locality),
            revision: self.map.interner.text(&spec.revision),
            created,
            since: self.wall_ms,
            address: SmolStr::new(&spec.address),
            endpoints: Metadata::from_map(&spec.endpoints),
            metadata: Metadata::from_map(&spec.metadata),
        };
        let stored = self.write(draft, out);
        self.tell_taken_over(stored.slot, client, out);
        self.sessions.give(session, stored.slot);
        Ok(self.map.member(&stored.new).version())
    }

    /// If another client's session at this node had the slot, it is told (C4).
    fn tell_taken_over(&mut self, slot: u32, client: &Client, out: &mut Output) {
        let Some(loser) = self.sessions.of_slot(slot).and_then(|id| self.sessions.get(id)) else { return };
        if loser.client.id != client.id
            && let Some(conn) = loser.conn
        {
            let id = self.map.at(slot).id.to_string();
            out.effects.push(Effect::Notify { conn, notice: Notice::TakenOver { id } });
        }
    }

    /// An unregistration whose answer the client never got (C3).
    fn repeat_unregister(&mut self, id: &str, client: &Arc<Client>, claim: u64, out: &mut Output) {
        let held = self.map.record(Space::Member, id).cloned();
        if held.as_ref().is_some_and(|held| held.client.id != client.id || !held.is_live()) {
            return;
        }
        let me = self.map.origins.entry(self.map.origins.me()).origin.clone();
        let empty = self.map.interner.text("");
        let draft = match held {
            Some(held) => {
                if let Some(slot) = self.map.slot_of(Space::Member, id) {
                    self.sessions.take(slot);
                }
                Record { kind: Kind::Left, claim, seq: held.seq + 1, client: client.clone(), ..Record::clone(&held) }
            }
            None => Record {
                id: SmolStr::new(id),
                space: Space::Member,
                kind: Kind::Left,
                status: Status::Up,
                weight: 0,
                drain: 0,
                origin: me,
                n: 0,
                claim,
                seq: 1,
                predecessor: (0, 0),
                client: client.clone(),
                service: empty.clone(),
                locality: empty.clone(),
                revision: empty,
                created: 0,
                since: 0,
                address: SmolStr::default(),
                endpoints: Metadata::default(),
                metadata: Metadata::default(),
            },
        };
        self.write(draft, out);
    }

    /// Registers one more member in a session; the same member again is an update.
    pub fn register(
        &mut self,
        now: Time,
        wall_ms: u64,
        session: SessionId,
        seq: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Refusal> {
        self.observe(now, out);
        self.wall_ms = wall_ms;
        let result = self.do_register(session, seq, member, out);
        self.count_refusal(result)
    }

    fn do_register(
        &mut self,
        session: SessionId,
        seq: u64,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Refusal> {
        self.check_request(session, seq)?;
        member.spec.check(&self.config.limits)?;
        let (client, claim, members) = {
            let s = self.session(session)?;
            (s.client.clone(), s.claim, s.members.len())
        };
        let limit = self.config.limits.members_per_session;
        let slot = self.map.slot_of(Space::Member, &member.spec.id);
        let own = slot.is_some_and(|slot| self.sessions.of_slot(slot) == Some(session));
        if members >= limit && !own {
            let message = format!("this session has {limit} members already");
            return Err(Refusal::new(Code::ResourceExhausted, message).field("id").limit(limit));
        }
        if own && let Some(slot) = slot {
            return self.register_again(session, seq, slot, member, out);
        }
        if let Some(held) = self.map.record(Space::Member, &member.spec.id) {
            let own_tombstone = held.claim == claim && held.client == client && !held.is_live();
            if held.claim >= claim && !own_tombstone {
                return Err(Refusal::stale_epoch(held.claim));
            }
        }
        let version = self.claim_member(session, &client, claim, member, out)?;
        self.executed(session, seq, out);
        Ok(version)
    }

    /// Registering what the session already has: metadata is replaced, attributes must be the same.
    fn register_again(
        &mut self,
        session: SessionId,
        seq: u64,
        slot: u32,
        member: &AttachMember,
        out: &mut Output,
    ) -> Result<Version, Refusal> {
        let held = self.map.at(slot).clone();
        let spec = &member.spec;
        let draft = Record {
            seq: held.seq + 1,
            weight: spec.weight,
            service: self.map.interner.text(&spec.service),
            locality: self.map.interner.text(&spec.locality),
            revision: self.map.interner.text(&spec.revision),
            address: SmolStr::new(&spec.address),
            endpoints: Metadata::from_map(&spec.endpoints),
            metadata: Metadata::from_map(&spec.metadata),
            ..Record::clone(&held)
        };
        if !draft.same_attributes(&held) {
            let message = format!("member {:?} is registered with other attributes; unregister it first", spec.id);
            return Err(Refusal::new(Code::AlreadyRegistered, message).field("id"));
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
    ) -> Result<Version, Refusal> {
        self.observe(now, out);
        let result = self.do_update(session, seq, id, update, expected, out);
        self.count_refusal(result)
    }

    fn do_update(
        &mut self,
        session: SessionId,
        seq: u64,
        id: &str,
        update: &MetadataUpdate,
        expected: Option<Version>,
        out: &mut Output,
    ) -> Result<Version, Refusal> {
        self.check_request(session, seq)?;
        let slot = self.own_slot(session, id)?;
        let held = self.map.at(slot).clone();
        let version = self.map.member(&held).version();
        if let Some(expected) = expected
            && expected != version
        {
            let message = format!("member {id:?} has version {version}, not {expected}; read it again");
            return Err(Refusal::new(Code::StaleVersion, message).field("version"));
        }
        let metadata = update.apply(&held.metadata, &self.config.limits)?;
        self.executed(session, seq, out);
        // A heartbeat may just have brought the member up again.
        let held = self.map.at(slot).clone();
        if metadata == held.metadata {
            return Ok(self.map.member(&held).version());
        }
        let stored = self.write(Record { metadata, seq: held.seq + 1, ..Record::clone(&held) }, out);
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
    ) -> Result<(), Refusal> {
        self.observe(now, out);
        let result = self.check_request(session, seq).and_then(|()| self.own_slot(session, id)).map(|slot| {
            self.executed(session, seq, out);
            self.sessions.take(slot);
            self.write_left(slot, out);
        });
        self.count_refusal(result)
    }

    /// The client lives. No allocation, no lock, nothing replicated.
    pub fn heartbeat(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Refusal> {
        self.observe(now, out);
        self.counters.heartbeats += 1;
        let superseded_counts = self.mutation.is(Mutant::OldSessionHeartbeats);
        match self.sessions.get_mut(session) {
            Some(s) if !s.superseded || superseded_counts => {
                s.heard = Heard::now(self.clock);
                s.cut_at = None;
                if s.down {
                    self.revive(session, out);
                }
                Ok(())
            }
            _ => {
                self.counters.requests_refused += 1;
                Err(session_gone())
            }
        }
    }

    /// Clean close: all members of the session are unregistered at once.
    pub fn close_session(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Refusal> {
        self.observe(now, out);
        let result = self.session(session).map(|_| ());
        if result.is_ok()
            && let Some(session) = self.sessions.remove(session)
        {
            for slot in session.members {
                self.write_left(slot, out);
            }
        }
        self.count_refusal(result)
    }

    /// The connection of a client is gone. That alone changes nothing, except with `fast` liveness.
    pub fn disconnected(&mut self, now: Time, conn: ConnId, out: &mut Output) {
        self.observe(now, out);
        for id in self.sessions.of_conn(conn) {
            self.sessions.detach(id);
            let Some(session) = self.sessions.get_mut(id) else { continue };
            if session.liveness == Liveness::Fast {
                session.cut_at = Some(self.clock.now);
                self.check_session_at(id, self.clock.now + FAST_GRACE);
            }
        }
    }

    /// All client streams are closed unread: this node slept, and what they buffered is as old as the sleep (L5).
    pub(super) fn drop_clients(&mut self, out: &mut Output) {
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.sessions.detach(id);
        }
        self.subscribers.remove_all();
        out.effects.push(Effect::CloseAllClients);
    }

    /// A session's timer: is it down, or gone? (C6)
    pub(super) fn check_session(&mut self, id: SessionId, out: &mut Output) {
        let now = self.clock.now;
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.check_at <= now) else { return };
        session.check_at = Time::MAX;
        let timers = &self.config.timers;
        let forgiven = timers.dead_peer_timeout;
        let silence = session.heard.attentive_silence(self.clock, forgiven);
        let cut = session.cut_at.is_some_and(|at| self.clock.now >= at + FAST_GRACE);
        let leave_at = session.timeout + timers.reconnect_timeout;
        if session.down && silence >= leave_at && !self.mutation.is(Mutant::DownNeverLeaves) {
            self.counters.sessions_left += 1;
            if let Some(session) = self.sessions.remove(id) {
                for slot in session.members {
                    self.write_left(slot, out);
                }
            }
            return;
        }
        let mut next = if session.down { leave_at } else { session.timeout };
        if !session.down && (silence >= session.timeout || cut) {
            if let Some(hold) = self.hold_mass_failure(cut, out) {
                self.check_session_at(id, hold);
                return;
            }
            self.counters.sessions_down += 1;
            self.set_session_status(id, Status::Down, out);
            next = leave_at;
        }
        if let Some(session) = self.sessions.get(id) {
            let due = session.heard.due(self.clock, next, forgiven);
            // A due time in the past means that lateness was capped; look again soon.
            self.check_session_at(id, due.max(now + Duration::from_millis(1)));
        }
    }

    /// Sets the session's timer, if it is not due earlier anyway.
    fn check_session_at(&mut self, id: SessionId, at: Time) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if at < session.check_at {
            session.check_at = at;
            self.timers.set(at, Timer::Session(id));
        }
    }

    /// Whether so many sessions fell silent at once that this node doubts itself first (L6). Returns until when.
    fn hold_mass_failure(&mut self, cut: bool, out: &mut Output) -> Option<Time> {
        let now = self.clock.now;
        let guard = &self.guard.sessions;
        if cut || now < guard.passing_until {
            return None;
        }
        if now < guard.holding_until {
            return Some(guard.holding_until);
        }
        let (mut silent, mut silent_members, mut members) = (0, 0, 0);
        for (_, session) in self.sessions.iter().filter(|(_, s)| !s.down && !s.superseded) {
            members += session.members.len();
            let silence = session.heard.attentive_silence(self.clock, self.config.timers.dead_peer_timeout);
            if silence + self.config.timers.heartbeat_interval > session.timeout {
                silent += 1;
                silent_members += session.members.len();
            }
        }
        let share = silent_members as f64 / members.max(1) as f64;
        if silent < super::judge::MASS_SESSIONS_MIN || share <= self.config.mass_failure_share {
            return None;
        }
        let until = self.guard.sessions.hold(now, self.config.timers.heartbeat_timeout);
        let until_ms = until.as_micros() / 1000;
        out.events.push(Event::Degraded { reason: DegradedReason::Sessions, until_ms });
        Some(until)
    }

    fn set_session_status(&mut self, id: SessionId, status: Status, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.down = status == Status::Down;
        for slot in session.members.clone() {
            let held = self.map.at(slot).clone();
            if held.status != status {
                self.write(Record { status, seq: held.seq + 1, ..Record::clone(&held) }, out);
            }
        }
    }

    fn revive(&mut self, id: SessionId, out: &mut Output) {
        if self.mutation.is(Mutant::HeartbeatDoesNotRevive) {
            return;
        }
        self.set_session_status(id, Status::Up, out);
        let timeout = self.sessions.get(id).map_or(self.config.timers.heartbeat_timeout, |s| s.timeout);
        self.check_session_at(id, self.clock.now + timeout);
    }

    fn session(&self, id: SessionId) -> Result<&Session, Refusal> {
        self.sessions.get(id).filter(|session| !session.superseded).ok_or_else(session_gone)
    }

    /// The session exists and the request was not overtaken by a later one (C5).
    fn check_request(&self, id: SessionId, seq: u64) -> Result<(), Refusal> {
        let session = self.session(id)?;
        if seq <= session.last_seq && !self.mutation.is(Mutant::OldRequestsExecuted) {
            let message = format!("request {seq} was overtaken by request {}", session.last_seq);
            return Err(Refusal::new(Code::InvalidArgument, message).field("seq"));
        }
        Ok(())
    }

    /// A request was executed: it counts as a heartbeat too.
    fn executed(&mut self, id: SessionId, seq: u64, out: &mut Output) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.last_seq = session.last_seq.max(seq);
        session.heard = Heard::now(self.clock);
        if session.down {
            self.revive(id, out);
        }
    }

    fn own_slot(&self, session: SessionId, id: &str) -> Result<u32, Refusal> {
        let slot = self.map.slot_of(Space::Member, id);
        if let Some(slot) = slot.filter(|slot| self.sessions.of_slot(*slot) == Some(session)) {
            return Ok(slot);
        }
        match slot.map(|slot| self.map.at(slot)) {
            Some(record) if record.is_live() => {
                let message = format!("member {id:?} belongs to another session; only its own client may change it");
                Err(Refusal::new(Code::PermissionDenied, message).field("id"))
            }
            _ => Err(Refusal::new(Code::NotRegistered, format!("member {id:?} is not registered")).field("id")),
        }
    }

    pub(super) fn count_refusal<T>(&mut self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_err() {
            self.counters.requests_refused += 1;
        }
        result
    }
}

pub(super) fn not_ready() -> Refusal {
    Refusal::new(Code::NotReady, "this node does not take clients now; try another")
}

fn session_gone() -> Refusal {
    Refusal::new(Code::SessionGone, "this session has ended; attach again")
}
