//! The moves of clients: connect, attach, heartbeat, lose, come back (C1–C6, R-51, R-54); and the node's side of it.

use crate::client::{Body, ClientMessage, ClientState, NodeMessage, Pending};
use crate::faults::Fault;
use crate::host::{Host, HostState};
use crate::invariants::Violation;
use crate::network::{Item, Micros, Place, SECOND};
use crate::world::{ClientTimer, Event, World, micros};
use convoke_core::Refusal;
use convoke_core::node::{ConnId, Notice, SessionId};

const CONNECT_TIMEOUT: Micros = 3 * SECOND;
const BACKOFF_BASE: Micros = SECOND / 2;
const BACKOFF_MAX: Micros = 20 * SECOND;

/// One line for the trace.
pub(crate) fn describe(message: &ClientMessage) -> String {
    match message {
        ClientMessage::Attach(attach) => {
            let ids: Vec<&str> = attach.members.iter().map(|m| m.spec.id.as_str()).collect();
            format!(
                "attach {} claim {} after {} with {ids:?} without {:?}",
                attach.client, attach.claim, attach.previous_claim, attach.unregistered
            )
        }
        ClientMessage::Heartbeat { session, .. } => format!("heartbeat {session:?}"),
        ClientMessage::Request { session, seq, body } => match body {
            Body::Register(member) => format!("{session:?} #{seq} register {}", member.spec.id),
            Body::Update { id, update, expected } => {
                format!("{session:?} #{seq} update {id} {update:?} if {expected:?}")
            }
            Body::Unregister { id } => format!("{session:?} #{seq} unregister {id}"),
        },
        ClientMessage::Close { session } => format!("close {session:?}"),
    }
}

impl World {
    // ---- the node's side ----

    /// A node serves a message of a client and answers on the same connection.
    pub(crate) fn serve(&mut self, host: usize, conn: u64, message: ClientMessage) {
        let wall = self.hosts[host].wall_ms(self.now);
        let answer = match message {
            ClientMessage::Attach(request) => {
                let claim = request.claim;
                let result =
                    self.with_node(host, |node, time, out| Some(node.attach(time, wall, ConnId(conn), &request, out)));
                if let Some(Ok(attached)) = &result {
                    if let Some(connection) = self.network.connections.get_mut(&conn) {
                        connection.registered.clear();
                    }
                    for (id, _) in &attached.versions {
                        self.registered(host, conn, id);
                    }
                }
                result.map(|result| NodeMessage::Attached { claim, result })
            }
            ClientMessage::Heartbeat { session, sent } => {
                let result = self.with_node(host, |node, time, out| Some(node.heartbeat(time, session, out)));
                result.map(|result| NodeMessage::Beat { sent, result })
            }
            ClientMessage::Request { session, seq, body } => {
                let result = self.with_node(host, |node, time, out| {
                    Some(match &body {
                        Body::Register(member) => node.register(time, wall, session, seq, member, out).map(Some),
                        Body::Update { id, update, expected } => {
                            node.update(time, session, seq, id, update, *expected, out).map(Some)
                        }
                        Body::Unregister { id } => node.unregister(time, session, seq, id, out).map(|()| None),
                    })
                });
                match (&result, &body) {
                    (Some(Ok(_)), Body::Register(member)) => self.registered(host, conn, &member.spec.id),
                    (Some(Ok(_)), Body::Unregister { id }) => self.unregistered(conn, id),
                    _ => {}
                }
                result.map(|result| NodeMessage::Answer { seq, result })
            }
            ClientMessage::Close { session } => {
                let result = self.with_node(host, |node, time, out| Some(node.close_session(time, session, out)));
                result.map(NodeMessage::Closed)
            }
        };
        if let Some(answer) = answer {
            self.push(conn, 1, Item::ToClient(Box::new(answer)));
        }
    }

    /// A node has just acknowledged a registration. Registering again what it has is a mere update.
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
        self.push(conn, 1, Item::ToClient(Box::new(NodeMessage::Notice(notice))));
    }

    // ---- the client's side ----

    /// (Re)starts a client's process.
    pub fn client_start(&mut self, client: usize) {
        let nonce = self.rng.u64(1..);
        let now = self.now;
        let c = &mut self.clients[client];
        if c.state != ClientState::Dead {
            return;
        }
        c.process += 1;
        c.nonce = nonce;
        c.past_claim = c.past_claim.max(c.claim);
        c.claim = 0;
        c.previous_claim = 0;
        c.superseded = 0;
        c.attempts = 0;
        c.lost_at = now;
        c.steady_since = None;
        c.last_echo = 0;
        c.died_at = None;
        c.closing = false;
        c.unregistered.clear();
        c.pending.clear();
        c.history.clear();
        if let Some(members) = c.restart_with.take() {
            c.members = members;
        }
        let ids: Vec<String> = c.members.keys().cloned().collect();
        for id in ids {
            self.truth.wanted(&id, client, now);
        }
        self.note(format!("c{client} starts"));
        self.client_wait(client, 0);
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
        c.state = ClientState::Dead;
        c.process += 1;
        c.generation += 1;
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

    /// Longest time for which a record without a living client may be shown, if nothing else goes wrong.
    pub fn linger(&self) -> Micros {
        let t = &self.setup.timers;
        self.orphan_patience()
            + 2 * micros(t.heartbeat_timeout)
            + micros(t.admission_window()) * 2
            + micros(t.reconnect_timeout)
            + 15 * SECOND
    }

    pub(crate) fn client_drop_connection(&mut self, client: usize, silent: bool) {
        if let Some(conn) = self.clients[client].conn() {
            let (now, host) = (self.now, self.clients[client].attached_to());
            if let (Some(_), Some(last)) = (host, self.clients[client].history.back_mut()) {
                last.2 = now;
            }
            self.close_end(conn, 0, silent);
        }
    }

    /// Waits, then tries again.
    pub(crate) fn client_wait(&mut self, client: usize, delay: Micros) {
        let at = self.now + delay;
        let c = &mut self.clients[client];
        c.state = ClientState::Waiting;
        c.generation += 1;
        let generation = c.generation;
        self.schedule(at, Event::ClientTimer { client, generation, timer: ClientTimer::Retry });
    }

    /// Gives the connection up and comes back elsewhere, with exponential backoff and full jitter.
    pub(crate) fn client_lost(&mut self, client: usize, why: &str) {
        if !self.clients[client].alive() {
            return;
        }
        let host = self.clients[client].host();
        self.note(format!("c{client} leaves n{}: {why}", host.map_or("-".to_owned(), |host| host.to_string())));
        self.client_drop_connection(client, false);
        let now = self.now;
        let c = &mut self.clients[client];
        if c.attempts == 0 {
            c.lost_at = now;
        }
        c.avoid = host;
        c.changed_at = now;
        c.pending.clear();
        for holding in c.members.values_mut() {
            holding.acknowledged = None;
        }
        let mut limit = (BACKOFF_BASE << c.attempts.min(10)).min(BACKOFF_MAX);
        if now - c.lost_at < 60 * SECOND {
            limit = limit.min(c.heartbeat_timeout / 2);
        }
        c.attempts += 1;
        let delay = self.rng.u64(..limit.max(1));
        self.client_wait(client, delay);
    }

    /// Moves to another node without need.
    pub fn client_move(&mut self, client: usize, to: Option<usize>) {
        self.clients[client].prefer = to;
        self.client_lost(client, "moves");
    }

    fn client_dial(&mut self, client: usize) {
        let usable = |host: &Host| host.state != HostState::Gone && !host.is_second;
        let mut candidates: Vec<usize> = (0..self.hosts.len()).filter(|h| usable(&self.hosts[*h])).collect();
        let (avoid, prefer) = (self.clients[client].avoid.take(), self.clients[client].prefer.take());
        if candidates.len() > 1 {
            candidates.retain(|host| Some(*host) != avoid);
        }
        let Some(&host) = candidates.get(self.rng.usize(..candidates.len().max(1))) else {
            self.client_wait(client, SECOND);
            return;
        };
        let host = prefer.unwrap_or(host);
        let c = &mut self.clients[client];
        c.state = ClientState::Connecting { conn: None, host };
        c.generation += 1;
        let (generation, run) = (c.generation, c.process);
        let place = Place::Client(client);
        let latency = self.latency(place, Place::Host(host));
        self.schedule(self.now + latency, Event::DialArrives { from: place, run, dial: generation, to: host });
        self.schedule(
            self.now + CONNECT_TIMEOUT,
            Event::ClientTimer { client, generation, timer: ClientTimer::Connect },
        );
    }

    pub(crate) fn client_connection(&mut self, client: usize, conn: u64) {
        let dial = self.network.connections.get(&conn).map(|connection| connection.dial);
        let c = &mut self.clients[client];
        match &mut c.state {
            ClientState::Connecting { conn: held, .. } if dial == Some(c.generation) => *held = Some(conn),
            _ => self.close_end(conn, 0, false),
        }
    }

    pub(crate) fn client_refused(&mut self, client: usize, run: u64) {
        let c = &self.clients[client];
        if c.process == run && matches!(c.state, ClientState::Connecting { conn: None, .. }) {
            self.client_lost(client, "connection refused");
        }
    }

    pub(crate) fn client_established(&mut self, client: usize, conn: u64) {
        if let ClientState::Connecting { conn: Some(held), host } = self.clients[client].state
            && held == conn
        {
            self.client_attach(client, conn, host);
        }
    }

    pub(crate) fn client_attach(&mut self, client: usize, conn: u64, host: usize) {
        let now = self.now;
        let c = &mut self.clients[client];
        let request = c.attach_request();
        c.state = ClientState::Attaching { conn, host, sent: now };
        c.pending.clear();
        c.generation += 1;
        c.changed_at = now;
        let generation = c.generation;
        let patience = 2 * c.heartbeat_interval;
        self.stats.operations += 1;
        // Sometimes the attach crawls: the client gives up and is long elsewhere when it arrives (H1).
        if self.faults.late_messages && self.rng.u32(..self.faults.late_one_in.max(1)) == 0 {
            let extra = self.rng.u64(SECOND / 2..self.orphan_patience());
            if let Some(connection) = self.network.connections.get_mut(&conn) {
                connection.extra = extra;
                self.faults.count(Fault::ClientLateMessage);
            }
        }
        self.push(conn, 0, Item::ToNode(Box::new(ClientMessage::Attach(request))));
        self.schedule(now + patience, Event::ClientTimer { client, generation, timer: ClientTimer::Attach });
    }

    pub(crate) fn client_timer(&mut self, client: usize, timer: ClientTimer) {
        let now = self.now;
        match timer {
            ClientTimer::Retry => self.client_dial(client),
            ClientTimer::Connect => {
                if matches!(self.clients[client].state, ClientState::Connecting { .. }) {
                    self.client_lost(client, "no connection in time");
                }
            }
            ClientTimer::Attach => {
                if matches!(self.clients[client].state, ClientState::Attaching { .. } | ClientState::Closing { .. }) {
                    self.client_lost(client, "no answer in time");
                }
            }
            ClientTimer::Heartbeat => {
                let c = &self.clients[client];
                let ClientState::Attached { conn, session, .. } = c.state else { return };
                if now.saturating_sub(c.last_echo) > c.patience * c.heartbeat_interval + SECOND / 10 {
                    self.client_lost(client, "heartbeats are not answered");
                    return;
                }
                let (generation, interval) = (c.generation, c.heartbeat_interval);
                self.push(conn, 0, Item::ToNode(Box::new(ClientMessage::Heartbeat { session, sent: now })));
                self.schedule(now + interval, Event::ClientTimer { client, generation, timer: ClientTimer::Heartbeat });
            }
        }
    }

    pub(crate) fn client_closed(&mut self, client: usize, conn: u64) {
        if self.clients[client].conn() == Some(conn) {
            self.client_lost(client, "the connection was closed");
        }
    }

    /// Asks for a clean close: everything unregistered at once.
    pub fn client_close(&mut self, client: usize) {
        let now = self.now;
        let c = &mut self.clients[client];
        if !c.alive() {
            return;
        }
        c.closing = true;
        let ids: Vec<String> = c.members.keys().cloned().collect();
        c.members.clear();
        c.unregistered.extend(ids.iter().cloned());
        c.changed_at = now;
        if let ClientState::Attached { conn, host, session } = c.state {
            c.state = ClientState::Closing { conn, host };
            c.generation += 1;
            let generation = c.generation;
            let patience = 2 * c.heartbeat_interval;
            self.push(conn, 0, Item::ToNode(Box::new(ClientMessage::Close { session })));
            self.schedule(now + patience, Event::ClientTimer { client, generation, timer: ClientTimer::Attach });
        }
        for id in ids {
            self.truth.releasing(&id, client, now);
        }
    }

    pub(crate) fn client_closed_cleanly(&mut self, client: usize) {
        let now = self.now;
        let host = self.clients[client].host();
        self.note(format!("c{client} has closed"));
        self.client_drop_connection(client, false);
        let c = &mut self.clients[client];
        c.state = ClientState::Stopped;
        c.generation += 1;
        c.changed_at = now;
        let ids = std::mem::take(&mut c.unregistered);
        for id in ids {
            match host {
                Some(host) => self.unregistration_acknowledged(&id, client, host),
                None => self.truth.unregistered(&id, client, (usize::MAX, 0), now),
            }
        }
    }

    /// Sends a request in the present session.
    pub(crate) fn client_request(&mut self, client: usize, body: Body, pending: Pending) {
        let ClientState::Attached { conn, session, .. } = self.clients[client].state else { return };
        let c = &mut self.clients[client];
        c.seq += 1;
        let seq = c.seq;
        c.pending.insert(seq, pending);
        c.changed_at = self.now;
        let message = ClientMessage::Request { session, seq, body };
        self.maybe_duplicate(conn, &message);
        self.push(conn, 0, Item::ToNode(Box::new(message)));
    }

    pub(crate) fn unexpected(&mut self, client: usize, what: &str, refusal: &Refusal) {
        let message = format!("{what} of c{client} was refused: {refusal}");
        self.violate(Violation::new("answers", self.now, message));
    }

    /// The session a client believes in.
    pub fn session_of(&self, client: usize) -> Option<SessionId> {
        match self.clients[client].state {
            ClientState::Attached { session, .. } => Some(session),
            _ => None,
        }
    }
}
