//! Runs the SDK's session of each client: its clock, its connections, its messages and its application events.

use crate::client::{Client, FromClient, Link, Pending, ProcessState};
use crate::faults::Fault;
use crate::host::{Host, HostState};
use crate::network::{Item, Micros, SECOND, Site};
use crate::reach::{bit, host_of};
use crate::serving::PART_BYTES;
use crate::world::{Event, World, micros};
use convoke_core::member::{Liveness, Member, NODE_ID_PREFIX, Status};
use convoke_proto::v1::client_message::Message as ToNode;
use convoke_proto::v1::server_message::Message as FromNode;
use convoke_proto::v1::{self, notice::Notice};
use convoke_session::seeds::{KnownNode, Seeds};
use convoke_session::session::{ClientIdentity, ClientTime, ConnectionId, Effect, Effects, RegistrationId, Session};
use convoke_session::{ConnectionState, Error, ErrorCode};
use std::time::Duration;

impl World {
    // ---- the process ----

    /// (Re)starts a client's process.
    pub fn client_start(&mut self, client: usize) {
        let nonce = self.rng.u64(1..);
        let now = self.now;
        let c = &mut self.clients[client];
        if c.process != ProcessState::Dead {
            return;
        }
        c.process = ProcessState::Running;
        c.process_number += 1;
        c.nonce = nonce;
        c.past_claim = c.past_claim.max(c.claim);
        c.claim = 0;
        c.previous_claim = 0;
        c.steady_since = None;
        c.last_echo = 0;
        c.died_at = None;
        c.started_at = now;
        c.closing = false;
        c.paused = false;
        c.wake_at = None;
        c.unregistered.clear();
        c.pending.clear();
        c.history.clear();
        if let Some(members) = c.restart_with.take() {
            c.members = members;
        }
        for holding in c.members.values_mut() {
            holding.registration = None;
            holding.acknowledged = None;
        }
        let ids: Vec<String> = c.members.keys().cloned().collect();
        for id in ids {
            self.truth.wanted(&id, client, now);
        }
        self.note(format!("c{client} starts"));
        self.wake_client_at(client, now);
    }

    /// Builds the SDK session and registers the application's members.
    fn build_session(&mut self, client: usize) {
        let seed = self.rng.u64(..);
        let time = time(self.now);
        let c = &self.clients[client];
        let liveness = match c.liveness {
            Liveness::Normal => convoke_session::Liveness::Normal,
            Liveness::Fast => convoke_session::Liveness::Fast,
        };
        let identity = ClientIdentity { client: c.id.clone(), nonce: c.nonce, liveness, timeout: None };
        let all = self.client_addresses();
        let seeds = match c.prefer {
            Some(host) => vec![client_address(host)],
            None => all.clone(),
        };
        let session = Session::new(identity, Seeds::new(seeds, None), fastrand::Rng::with_seed(seed), time);
        // Every other session splits its attach into parts, although its members are small.
        let session = if seed.is_multiple_of(2) { session.with_part_bytes(PART_BYTES) } else { session };
        let mut session = session.mutated(self.setup.sdk_mutation);
        let c = &mut self.clients[client];
        for (id, holding) in &mut c.members {
            let spec = holding.spec.clone();
            let metadata = spec.metadata.clone();
            let (operation, registration) = session
                .register(spec, holding.takeover, None)
                .expect("a new session accepts the members of an earlier one");
            holding.registration = Some(registration);
            c.pending.insert(operation, Pending::Register { id: id.clone(), registration, metadata });
        }
        c.session = Some(session);
        self.note_addresses(client);
    }

    /// Addresses of all nodes that are not permanently lost.
    fn client_addresses(&self) -> Vec<String> {
        let usable = |host: &usize| self.hosts[*host].state != HostState::Gone && !self.hosts[*host].is_second;
        (0..self.hosts.len()).filter(usable).map(client_address).collect()
    }

    /// A client that was started with one address gets those of all nodes.
    fn learn_all(&mut self, client: usize) {
        let node = |address| KnownNode { address, region: String::new(), routable: true };
        let nodes = self.client_addresses().into_iter().map(node).collect();
        self.learn(client, nodes);
    }

    /// Updates the node addresses from the registry of a client's node, as a client does.
    fn learn_nodes(&mut self, client: usize, host: usize) {
        let Some(registry) = self.hosts[host].serving() else { return };
        let record = |other: &Host| registry.member(&format!("{NODE_ID_PREFIX}{}", other.id.as_str()));
        let records = self.hosts.iter().filter(|other| !other.is_second).filter_map(record);
        let node = |member: Member| KnownNode {
            address: member.address().to_owned(),
            region: String::new(),
            routable: member.status() == Status::Up,
        };
        let nodes: Vec<KnownNode> = records.map(node).collect();
        self.learn(client, nodes);
    }

    fn learn(&mut self, client: usize, nodes: Vec<KnownNode>) {
        if let Some(session) = &mut self.clients[client].session {
            session.learn(nodes);
        }
        self.note_addresses(client);
    }

    /// Records which hosts a client can connect to; reachability depends on this.
    fn note_addresses(&mut self, client: usize) {
        let c = &mut self.clients[client];
        let addresses = c.session.iter().flat_map(Session::addresses);
        let known = addresses.filter_map(host_of).map(bit).fold(0, |all, one| all | one);
        if c.known != known {
            c.known = known;
            self.update_reach();
        }
    }

    /// The process dies. `silent`: its machine too, so that no node sees the connection end.
    pub fn client_crash(&mut self, client: usize, silent: bool) {
        let now = self.now;
        if !self.clients[client].alive() {
            return;
        }
        self.note(format!("c{client} crashes{}", if silent { " silently" } else { "" }));
        self.client_drop_connection(client, silent);
        let c = &mut self.clients[client];
        c.process = ProcessState::Dead;
        c.session = None;
        c.paused = false;
        c.process_number += 1;
        c.died_at = Some(now);
        c.changed_at = now;
        let members = std::mem::take(&mut c.members);
        let ids: Vec<String> = members.keys().chain(c.unregistered.iter()).cloned().collect();
        c.unregistered.clear();
        c.pending.clear();
        c.restart_with = Some(members);
        for id in ids {
            self.truth.abandoned(&id, client, now);
        }
    }

    /// The process does not run for a while; its sockets stay open.
    pub(crate) fn client_pause(&mut self, client: usize, length: Micros) {
        self.note(format!("c{client} is paused for {} ms", length / 1000));
        self.clients[client].paused = true;
        let process = self.clients[client].process_number;
        self.schedule_action(length, crate::faults::Action::ClientResume { client, process });
    }

    pub(crate) fn client_resume(&mut self, client: usize) {
        if std::mem::take(&mut self.clients[client].paused) {
            self.clients[client].resumed_at = self.now;
            self.wake_client_at(client, self.now);
        }
    }

    fn client_ended(&mut self, client: usize) {
        self.client_drop_connection(client, false);
        let now = self.now;
        let c = &mut self.clients[client];
        c.process = ProcessState::Stopped;
        c.session = None;
        c.paused = false;
        c.process_number += 1;
        c.changed_at = now;
        c.pending.clear();
    }

    pub(crate) fn client_drop_connection(&mut self, client: usize, silent: bool) {
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(link) = c.link.take() else { return };
        if let (true, Some(last)) = (link.attached, c.history.back_mut()) {
            last.2 = now;
            // The client has followed the registry of its node until now.
            self.learn_nodes(client, link.host);
        }
        if let Some(conn) = link.conn {
            self.close_end(conn, 0, silent);
        }
    }

    // ---- time ----

    fn wake_client_at(&mut self, client: usize, at: Micros) {
        let at = at.max(self.now);
        let c = &mut self.clients[client];
        if c.wake_at.is_none_or(|scheduled| at < scheduled) {
            c.wake_at = Some(at);
            let process = c.process_number;
            self.schedule(at, Event::ClientWake { client, process });
        }
    }

    pub(crate) fn client_wake(&mut self, client: usize, process: u64) {
        let c = &mut self.clients[client];
        if c.process_number != process || c.wake_at != Some(self.now) {
            return;
        }
        c.wake_at = None;
        if c.paused {
            return;
        }
        if c.session.is_none() {
            self.build_session(client);
        }
        self.drive(client, Session::wake);
    }

    /// Calls a client's session and carries out its effects.
    pub(crate) fn drive<T>(
        &mut self,
        client: usize,
        call: impl FnOnce(&mut Session, ClientTime, &mut Effects) -> T,
    ) -> Option<T> {
        let now = time(self.now);
        let session = self.clients[client].session.as_mut()?;
        let mut effects = Effects::new();
        let result = call(session, now, &mut effects);
        session.flush(&mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                self.carry_out_effect(client, effect);
            }
            let c = &mut self.clients[client];
            let (Some((connection, answer)), Some(session)) = (c.bounced.take(), &mut c.session) else { break };
            session.received(now, connection, answer, &mut effects);
        }
        if let Some(due) = self.clients[client].session.as_ref().and_then(Session::next_wake) {
            let due = u64::try_from(due.as_nanos().div_ceil(1_000)).unwrap_or(Micros::MAX);
            self.wake_client_at(client, due);
        }
        Some(result)
    }

    // ---- effects ----

    fn carry_out_effect(&mut self, client: usize, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Connect { attach: false, .. } => {
                self.note(format!("c{client} stops: superseded"));
                self.client_ended(client);
            }
            Effect::Connect { connection, address, attach: true } => self.client_dial(client, connection, &address),
            Effect::Disconnect { connection } => {
                if self.clients[client].link.is_some_and(|link| link.connection == connection) {
                    self.client_drop_connection(client, false);
                }
            }
            Effect::Send { connection, message } => self.client_send(client, connection, message),
            Effect::State(state) => self.client_state(client, state),
            Effect::Versioned { registration, version } => {
                let c = &mut self.clients[client];
                c.changed_at = now;
                let found = c.members.values_mut().find(|holding| holding.registration == Some(registration));
                if let Some(holding) = found {
                    holding.acknowledged = version.parse().ok();
                    holding.acknowledged_at = now;
                }
            }
            Effect::Done { operation, result } => {
                self.clients[client].changed_at = now;
                if let Some(pending) = self.clients[client].pending.remove(&operation) {
                    self.client_answered(client, pending, result);
                }
            }
            Effect::Ended { registration, error } => {
                let c = &self.clients[client];
                let found = c.members.iter().find(|(_, holding)| holding.registration == Some(registration));
                if let Some(id) = found.map(|(id, _)| id.clone()) {
                    self.client_gives_up(client, &id, registration, &error);
                }
            }
            Effect::Closed { .. } => {
                self.note(format!("c{client} has closed"));
                let c = &mut self.clients[client];
                let attached = c.link.filter(|link| link.attached).map(|link| link.host);
                let known = c.history.back().is_some();
                let ids = std::mem::take(&mut c.unregistered);
                self.client_ended(client);
                for id in ids {
                    match attached {
                        Some(host) => self.unregistration_acknowledged(&id, client, host),
                        // Another process superseded this one before a node acknowledged the end of its members.
                        None if known => self.truth.abandoned(&id, client, now),
                        None => self.truth.unregistered(&id, client, (usize::MAX, 0), now),
                    }
                }
            }
        }
    }

    fn client_dial(&mut self, client: usize, connection: ConnectionId, address: &str) {
        let host =
            address.strip_prefix('h').and_then(|rest| rest.split_once(':')).and_then(|(host, _)| host.parse().ok());
        let host: usize = host.expect("clients only have addresses of simulated nodes");
        let c = &mut self.clients[client];
        c.link = Some(Link { connection, host, conn: None, attached: false });
        let process = c.process_number;
        if c.prefer.take().is_some() {
            self.learn_all(client);
        }
        let place = Site::Client(client);
        let latency = self.latency(place, Site::Host(host));
        self.schedule(self.now + latency, Event::DialArrives { from: place, process, dial: connection.0, to: host });
    }

    fn client_send(&mut self, client: usize, connection: ConnectionId, message: v1::ClientMessage) {
        let now = self.now;
        let c = &mut self.clients[client];
        let Some(Link { conn: Some(conn), .. }) = c.link.filter(|link| link.connection == connection) else { return };
        if let Some(ToNode::Attach(attach)) = &message.message {
            c.claim = attach.claim;
            c.attach_sent = now;
            c.changed_at = now;
            if attach.claim <= c.raise_to {
                let error = v1::Error { known: Some(c.raise_to), ..Error::new(ErrorCode::StaleClaim, "raised").into() };
                let rejected = v1::AttachRejected { claim: attach.claim, error: Some(error) };
                c.bounced = Some((connection, v1::ServerMessage { message: Some(FromNode::AttachRejected(rejected)) }));
                return;
            }
            self.stats.operations += 1;
            self.delay_some_attach(conn);
        }
        self.push(conn, 0, Item::ToNode(Box::new(FromClient::Message(message))));
    }

    /// Sometimes delays an attach so much that the client has attached elsewhere when it arrives.
    fn delay_some_attach(&mut self, conn: u64) {
        if self.faults.late_messages && self.rng.u32(..self.faults.late_one_in.max(1)) == 0 {
            let extra = self.rng.u64(SECOND / 2..self.orphan_patience());
            if let Some(connection) = self.network.connections.get_mut(&conn) {
                connection.extra = extra;
                self.faults.count(Fault::ClientLateMessage);
            }
        }
    }

    fn client_state(&mut self, client: usize, state: ConnectionState) {
        let now = self.now;
        let c = &mut self.clients[client];
        c.changed_at = now;
        match state {
            ConnectionState::Connected { .. } => {
                let Some(link) = &mut c.link else { return };
                link.attached = true;
                c.previous_claim = c.claim;
                c.record_answer(c.attach_sent);
                // An attach on the same stream replaces the session.
                if let Some((_, _, until)) = c.history.back_mut() {
                    *until = now.min(*until);
                }
                if c.history.len() == 8 {
                    c.history.pop_front();
                }
                let (host, claim) = (c.link.map_or(0, |link| link.host), c.claim);
                c.history.push_back((host, now, Micros::MAX));
                self.note(format!("c{client} is attached to n{host}, claim {claim}"));
                self.learn_nodes(client, host);
            }
            ConnectionState::Disconnected { reason, retry_in } => {
                for holding in c.members.values_mut() {
                    holding.acknowledged = None;
                }
                self.note(format!("c{client} is disconnected for {retry_in:?}: {}", reason.message));
            }
            ConnectionState::Connecting { .. } | ConnectionState::Closed => {}
        }
    }

    // ---- results for the application ----

    fn client_answered(&mut self, client: usize, pending: Pending, result: Result<String, Error>) {
        let now = self.now;
        if let Err(error) = &result {
            self.note(format!("c{client} gets {error}: {pending:?}"));
        }
        match (pending, result) {
            (Pending::Register { id, registration, metadata }, Ok(_)) => {
                if let Some(holding) = self.clients[client].registered(&id, registration) {
                    holding.acknowledged_metadata = metadata;
                }
            }
            (Pending::Register { id, registration, .. }, Err(error)) => {
                self.client_gives_up(client, &id, registration, &error);
            }
            (Pending::Update { id, registration, update, conditional }, Ok(_)) => {
                if let Some(holding) = self.clients[client].registered(&id, registration) {
                    update.apply(&mut holding.acknowledged_metadata);
                    holding.acknowledged_at = now;
                    if conditional {
                        update.apply(&mut holding.spec.metadata);
                    }
                }
            }
            (Pending::Update { .. }, Err(_)) => {}
            (Pending::Unregister { id }, result) => {
                let c = &mut self.clients[client];
                let again = |other: &Pending| matches!(other, Pending::Unregister { id: other } if *other == id);
                if c.pending.values().any(again) || !c.unregistered.remove(&id) || c.members.contains_key(&id) {
                    return;
                }
                match (result, c.host()) {
                    (Ok(_), Some(host)) => self.unregistration_acknowledged(&id, client, host),
                    (Ok(_), None) => self.truth.unregistered(&id, client, (usize::MAX, 0), now),
                    (Err(_), _) => self.truth.abandoned(&id, client, now),
                }
            }
        }
    }

    fn client_gives_up(&mut self, client: usize, id: &str, registration: RegistrationId, error: &Error) {
        if self.clients[client].registered(id, registration).is_none() {
            return;
        }
        self.note(format!("c{client} lost {id}: {error}"));
        self.clients[client].members.remove(id);
        self.truth.abandoned(id, client, self.now);
    }

    // ---- the network ----

    pub(crate) fn client_connection(&mut self, client: usize, conn: u64) {
        let dial = self.network.connections.get(&conn).map(|connection| connection.dial);
        match &mut self.clients[client].link {
            Some(link) if dial == Some(link.connection.0) => link.conn = Some(conn),
            _ => self.close_end(conn, 0, false),
        }
    }

    pub(crate) fn client_rejected(&mut self, client: usize, process: u64, dial: u64) {
        if self.clients[client].process_number == process {
            self.client_disconnected(client, ConnectionId(dial), "connection refused");
        }
    }

    pub(crate) fn client_established(&mut self, client: usize, conn: u64) {
        if let Some(link) = self.clients[client].link.filter(|link| link.conn == Some(conn)) {
            self.drive(client, |session, now, out| session.connected(now, link.connection, out));
        }
    }

    pub(crate) fn client_closed(&mut self, client: usize, conn: u64) {
        if let Some(link) = self.clients[client].link.filter(|link| link.conn == Some(conn)) {
            self.client_disconnected(client, link.connection, "the connection was closed");
        }
    }

    fn client_disconnected(&mut self, client: usize, connection: ConnectionId, why: &str) {
        let error = Error::new(ErrorCode::NotReady, why);
        self.drive(client, |session, now, out| session.disconnected(now, connection, &error, out));
    }

    pub(crate) fn client_message(&mut self, client: usize, conn: u64, message: v1::ServerMessage) {
        let Some(link) = self.clients[client].link.filter(|link| link.conn == Some(conn)) else { return };
        self.trace.event(self.now, 5, client as u64, conn);
        let c = &mut self.clients[client];
        match &message.message {
            Some(FromNode::HeartbeatAck(ack)) if ack.error.is_none() && link.attached => c.record_answer(ack.sent),
            Some(FromNode::Attached(attached)) if attached.claim == c.claim && !link.attached => {
                c.heartbeat_interval = attached.heartbeat_interval_ms * 1_000;
                c.heartbeat_timeout = attached.timeout_ms * 1_000;
            }
            Some(FromNode::Notice(v1::Notice { notice: Some(notice) })) => {
                let text = format!("c{client} receives {notice:?}");
                let taken = if let Notice::TakenOver(taken) = notice { Some(taken.id.clone()) } else { None };
                self.note(text);
                if let Some(id) = taken {
                    self.require_taker(client, &id);
                }
            }
            _ => {}
        }
        self.drive(client, |session, now, out| session.received(now, link.connection, message, out));
    }

    /// Moves to another node without need: to a given one as at a handover, or to one of the session's choice.
    pub fn client_move(&mut self, client: usize, to: Option<usize>) {
        let c = &mut self.clients[client];
        if c.session.is_none() {
            c.prefer = to.or(c.prefer);
        }
        let Some(link) = c.link else { return };
        match to {
            None => self.client_disconnected(client, link.connection, "moves"),
            Some(host) => {
                let handover = v1::notice::Handover { node: String::new(), address: client_address(host) };
                let notice = v1::Notice { notice: Some(Notice::Handover(handover)) };
                let message = v1::ServerMessage { message: Some(FromNode::Notice(notice)) };
                self.drive(client, |session, now, out| session.received(now, link.connection, message, out));
            }
        }
    }

    /// Raises the claim of a client's next attach, as after many attempts.
    pub fn raise_claim(&mut self, client: usize, by: u64) {
        let c = &mut self.clients[client];
        c.raise_to = c.claim + by;
    }

    /// Maximum time for which a record without a live client may be shown, without further faults.
    pub fn linger(&self) -> Micros {
        let t = &self.setup.timers;
        self.orphan_patience()
            + 2 * micros(t.heartbeat_timeout)
            + micros(t.admission_window()) * 2
            + micros(t.reconnect_timeout)
            + 15 * SECOND
    }

    /// Returns the node's session of a client that considers itself attached.
    pub fn session_of(&self, client: usize) -> Option<convoke_core::node::SessionId> {
        let c: &Client = &self.clients[client];
        c.attached_to()?;
        self.network.connections.get(&c.conn()?)?.attach.as_ref()?.session()
    }
}

pub(crate) fn time(now: Micros) -> ClientTime {
    Duration::from_micros(now)
}

fn client_address(host: usize) -> String {
    format!("h{host}:7001")
}
