//! The workload of the HTTP clients in a plan: their settings, operations and faults, and the period after the faults.

use super::client::{ANSWER_TIMEOUT, Balancer, HttpClient, HttpMember};
use super::operation::Op;
use super::transport::Sender;
use super::{Attempt, Body, Message, SessionSettings};
use crate::faults::Fault;
use crate::network::{Micros, SECOND};
use crate::world::{World, micros};
use convoke_core::member::{Liveness, Member, MetadataUpdate};
use convoke_http_session::{ClientOrder, Secret, SessionOperation};
use std::sync::Arc;

/// Maximum number of members of a client.
const MEMBERS_MAX: usize = 4;
/// Updates that each client makes after the faults. Each of them must last.
const CALM_UPDATES: u32 = 3;
/// Prefix of the member ids for which several HTTP clients compete, and their number.
const CONTESTED: &str = "contested-";
const CONTESTED_IDS: u32 = 2;
/// One in this many new members has a contested id.
const CONTESTED_ONE_IN: u32 = 6;

/// Whether several HTTP clients compete for a member id.
pub(crate) fn is_contested(id: &str) -> bool {
    id.starts_with(CONTESTED)
}

impl World {
    /// Adds the HTTP clients of a plan.
    pub(crate) fn populate_http(&mut self, clients: usize) {
        // Enough for all clients, but not for the entries of earlier processes, which remain until they are swept.
        if self.http.rng.u32(..2) == 0 {
            self.http.session_limit = clients;
        }
        for _ in 0..clients {
            let balancer = if self.http.rng.bool() { Balancer::Sticky } else { Balancer::RoundRobin };
            let target = self.http.rng.usize(..self.hosts.len());
            let client = self.add_http_client(balancer, target);
            self.http.clients[client].chatty = self.http.rng.u32(..3) == 0;
            self.http.clients[client].ordered = self.http.rng.bool();
            self.http.clients[client].settings = self.random_settings(client);
            if self.http.rng.u32(..5) == 0 {
                // Such a session moves with its requests, so its client uses one node (docs/consistency.md).
                self.http.clients[client].settings.liveness = Liveness::Fast;
                self.http.clients[client].balancer = Balancer::Sticky;
            }
            let start = self.http.rng.u64(..10 * SECOND);
            self.http.clients[client].not_before = start;
            self.http_wake_at(client, start);
        }
    }

    /// Some clients choose their own client id or timeout.
    fn random_settings(&mut self, client: usize) -> SessionSettings {
        let timers = &self.setup.timers;
        let timeout = timers.heartbeat_timeout.as_millis() as u32;
        // Nodes reject others (C6).
        let shortest = (timeout / 2).max(timers.heartbeat_interval.as_millis() as u32);
        let longest = (2 * timeout).min(timers.reconnect_timeout.as_millis() as u32);
        SessionSettings {
            client: (self.http.rng.u32(..3) == 0).then(|| format!("own-{client}")),
            timeout_ms: if self.http.rng.u32(..3) == 0 { self.http.rng.u32(shortest..=longest) } else { 0 },
            liveness: Liveness::Normal,
        }
    }

    /// Faults have ended. Clients repair lost writes, then make some updates that must last.
    pub(crate) fn http_calm(&mut self) {
        self.count_lost_writes();
        for client in 0..self.http.clients.len() {
            let c = &mut self.http.clients[client];
            if c.alive && !c.scripted && c.ordered {
                // The last writes of a client that orders its requests need no repair. Other clients may have unregistered
                // what they took over.
                let earlier = std::mem::take(&mut c.earlier);
                c.deleted.retain(|id, _| !earlier.contains(id));
                let contested: Vec<String> = c.members.keys().filter(|id| is_contested(id)).cloned().collect();
                c.queue.extend(contested.into_iter().map(|id| Op::Put { id, takeover: false }));
                c.calm_updates = if c.members.is_empty() { 0 } else { CALM_UPDATES };
                self.http_wake_at(client, self.now);
            } else if c.alive && !c.scripted {
                let deleted = std::mem::take(&mut c.deleted);
                c.queue.clear();
                for id in c.members.keys() {
                    c.queue.push_back(Op::Put { id: id.clone(), takeover: !is_contested(id) });
                }
                for id in deleted.into_keys() {
                    c.queue.push_back(Op::Delete { id });
                }
                c.calm_updates = if c.members.is_empty() { 0 } else { CALM_UPDATES };
                self.http_wake_at(client, self.now);
            }
        }
    }

    /// Whether a client that orders its requests does not know yet that members of its session were lost: a heartbeat since
    /// then names them (C20).
    pub(crate) fn http_uninformed(&self, client: &HttpClient, since: Micros) -> bool {
        let Some(name) = client.secret.as_ref().map(Secret::client) else { return false };
        let waits = client.alive && client.ordered && !client.scripted && client.informed_at <= since;
        let lost = |(id, wanted): (&String, &HttpMember)| {
            let kept = |member: Member| member.client() == name && member.metadata().to_map() == wanted.metadata;
            !is_contested(id) && crate::invariants::serving(self).any(|(_, node)| !node.member(id).is_some_and(kept))
        };
        waits && client.members.iter().any(lost)
    }

    /// Counts acknowledged writes that are not shown any more. The documented promise allows them
    /// (docs/consistency.md#requests-without-these-headers).
    fn count_lost_writes(&mut self) {
        let mut lost = Vec::new();
        let Some((_, node)) = crate::invariants::serving(self).next() else { return };
        let quiet = |client: &&HttpClient| client.alive && client.queue.is_empty() && client.flight.is_none();
        for client in self.http.clients.iter().filter(quiet) {
            let Some(name) = client.secret.as_ref().map(Secret::client) else { continue };
            for (id, member) in client.members.iter().filter(|(id, _)| !is_contested(id)) {
                let shown = node.member(id).map(|shown| shown.metadata().to_map());
                if shown.as_ref() != Some(&member.metadata) {
                    lost.push(format!("lost write: {id} is {shown:?}, acknowledged was {:?}", member.metadata));
                }
            }
            let back = |id: &&String| node.member(id).is_some_and(|shown| shown.client() == name);
            for id in client.deleted.keys().filter(back) {
                lost.push(format!("lost write: {id} is shown, its unregistration was acknowledged"));
            }
        }
        self.stats.http_writes_lost += lost.len() as u64;
        for line in lost {
            self.note(line);
        }
    }

    /// Queues the next operation of the application, if it is due.
    pub(super) fn http_operate(&mut self, client: usize) {
        let interval = micros(self.setup.timers.heartbeat_interval);
        let now = self.now;
        let c = &mut self.http.clients[client];
        if c.scripted || now < c.next_op {
            return;
        }
        let pause = if c.chatty { interval / 2 } else { 2 * interval };
        c.next_op = now + pause / 2 + self.http.rng.u64(..pause);
        if !self.faults.active {
            if self.http.clients[client].queue.is_empty() && self.http.clients[client].calm_updates > 0 {
                self.http.clients[client].calm_updates -= 1;
                self.http.clients[client].next_op = now + SECOND / 10;
                self.http_update_one(client, false);
            }
            return;
        }
        self.stats.operations += 1;
        let count = self.http.clients[client].members.len();
        match self.http.rng.u32(..100) {
            0..1 => self.http_close(client),
            1..2 => {
                self.http_crash(client);
                let delay = self.duration_http(SECOND, 60 * SECOND);
                self.http_restart(client);
                self.faults.count(Fault::HttpClientCrash);
                self.http.clients[client].not_before = now + delay;
                self.http_wake_at(client, now + delay);
            }
            2..22 if count < MEMBERS_MAX => {
                self.http_put_new(client);
            }
            22..34 if count > 1 => {
                let ids: Vec<String> = self.http.clients[client].members.keys().cloned().collect();
                if let Some(id) = self.http.rng.choice(ids) {
                    self.http_delete(client, &id);
                }
            }
            34..38 => self.http_forge(client),
            38..40 => {
                let timeout = micros(self.setup.timers.heartbeat_timeout);
                let pause = self.duration_http(SECOND, 3 * timeout);
                self.http.clients[client].not_before = now + pause;
                self.faults.count(Fault::HttpClientPause);
                self.note(format!("http client {client} pauses"));
            }
            40..48 if count > 0 => self.http_update_one(client, true),
            _ if count > 0 => self.http_update_one(client, false),
            _ => self.http_put_new(client),
        }
    }

    fn duration_http(&mut self, from: Micros, to: Micros) -> Micros {
        from + self.http.rng.u64(..to - from)
    }

    fn http_put_new(&mut self, client: usize) {
        if self.http.rng.u32(..CONTESTED_ONE_IN) == 0 {
            let id = format!("{CONTESTED}{}", self.http.rng.u32(..CONTESTED_IDS));
            let takeover = self.http.rng.bool();
            if !self.http.clients[client].members.contains_key(&id) {
                self.http_register(client, &id, takeover);
            }
            return;
        }
        let id = format!("h{}", self.http.number());
        self.http_put(client, &id);
    }

    fn http_update_one(&mut self, client: usize, conditional: bool) {
        let ids: Vec<String> = self.http.clients[client].members.keys().cloned().collect();
        let Some(id) = self.http.rng.choice(ids) else { return };
        let key = format!("k{}", self.http.rng.u32(..3));
        let value = format!("{:x}", self.http.rng.u32(..));
        self.http_patch(client, &id, &key, &value, conditional);
    }

    /// Delivers a copy of an earlier update, with its number, to a node.
    pub(crate) fn http_deliver_late(&mut self, client: usize, host: usize, number: u64, operation: SessionOperation) {
        let Some(secret) = self.http.clients[client].secret.clone() else { return };
        let attempt = self.http.number();
        self.http.attempts.insert(attempt, Attempt::default());
        let order = ClientOrder { number: Some(number), tokens: Vec::new() };
        let body = Body::Request { secret, operation, order };
        let message = Message { attempt, client, body, forwarded: false, connection: None };
        // No process waits for the answer.
        let from = Sender::Client { client, process: 0 };
        self.http_send(from, host, message, self.now + ANSWER_TIMEOUT);
    }

    /// Sends an update of a member with the client's id and a forged secret to a random node.
    pub(crate) fn http_forge(&mut self, client: usize) {
        let c = &self.http.clients[client];
        let (Some(secret), Some(id)) = (&c.secret, c.members.keys().next().cloned()) else { return };
        let name = secret.client();
        let random = [(); 16].map(|()| self.http.rng.u8(..));
        let secret = Secret::new(Some(&name), Liveness::Normal, 0, &secret.creator, random);
        let update = Arc::new(MetadataUpdate::set("forged", "1".to_owned()));
        let operation = SessionOperation::Update { id, update, expected: None };
        let host = self.http.rng.usize(..self.hosts.len());
        let attempt = self.http.number();
        self.http.attempts.insert(attempt, Attempt { forged: true, executed: 0 });
        let body = Body::Request { secret, operation, order: ClientOrder::default() };
        let message = Message { attempt, client, body, forwarded: false, connection: None };
        // No process waits for the answer.
        let from = Sender::Client { client, process: 0 };
        self.http_send(from, host, message, self.now + ANSWER_TIMEOUT);
        self.faults.count(Fault::HttpForgedSecret);
    }
}
