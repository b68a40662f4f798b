//! The node's side of HTTP sessions: carries out the steps of `convoke-http-session`, as the server does.
//!
//! A real request crosses from its task to the event loop and back, and others come in between. So some steps are put off
//! for a moment.

use super::transport::Sender;
use super::{Body, HttpEvent, Message, Outcome, Response};
use crate::network::Micros;
use crate::world::{Event, World};
use convoke_core::node::{ConnId, Notice};
use convoke_core::version::Version;
use convoke_core::{ErrorCode, Node, Output, Rejection, Time};
use convoke_http_session::{
    Call, Forwarded, Found, Place, RANDOM_BYTES, Request, Secret, SessionError, SessionRequest, Settings, Step, Table,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// As the server has it by default.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(2);
const SESSIONS_MAX: usize = 1_000;
/// Of so many steps one is put off.
const DELAY_ONE_IN: u32 = 12;
const DELAY_MAX: Micros = 3_000;

/// What one run of a node has of HTTP sessions.
#[derive(Debug)]
pub(crate) struct HttpNode {
    table: Table<u64>,
    slots: BTreeMap<u64, Slot>,
    /// Which slot a connection of the core belongs to.
    connections: BTreeMap<u64, u64>,
    tasks: BTreeMap<u64, Task>,
}

/// A place with its lock, and the connection of its session.
#[derive(Debug, Default)]
struct Slot {
    place: Place,
    connection: Option<u64>,
    /// What the node sent to the connection; `None` is its end.
    deliveries: VecDeque<Option<Notice>>,
    locked: bool,
    waiting: VecDeque<u64>,
    /// Requests that know it.
    users: usize,
    removed: bool,
}

/// A request at a node.
#[derive(Debug)]
struct Task {
    exchange: u64,
    message: Message,
    request: Request,
    found: Option<Found<u64>>,
    locked: bool,
    /// Put off, or waiting for the lock.
    step: Option<Step>,
    relayed: Option<Box<Response>>,
}

impl Default for HttpNode {
    fn default() -> Self {
        HttpNode {
            table: Table::new(SESSIONS_MAX),
            slots: BTreeMap::new(),
            connections: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }
}

impl World {
    fn http_node(&mut self, host: usize) -> &mut HttpNode {
        self.http.nodes.entry(host).or_default()
    }

    /// A request arrives.
    pub(crate) fn http_serve(&mut self, host: usize, exchange: u64) {
        let Some(message) = self.http.exchanges.get(&exchange).map(|held| held.message.clone()) else { return };
        let time = self.hosts[host].time(self.now);
        let idle = self.http_node(host).table.sweep(time);
        for slot in idle {
            self.http_removed(host, slot);
        }
        let settings = Settings { forward_timeout: FORWARD_TIMEOUT, mutation: self.http.mutation };
        let request = match &message.body {
            Body::Create => {
                let random = [(); RANDOM_BYTES].map(|()| self.http.rng.u8(..));
                let secret = Secret::new(None, convoke_core::member::Liveness::Normal, 0, random);
                Request::create(secret, settings)
            }
            Body::Request { secret, request } => {
                // As it comes over the wire.
                let secret = Secret::parse(&secret.reveal()).expect("secrets are read by every node");
                Request::new(secret, request.clone(), message.forwarded, settings)
            }
        };
        let step = request.begin();
        let number = self.http.number();
        let task = Task { exchange, message, request, found: None, locked: false, step: None, relayed: None };
        self.http_run(host, number, task, step);
    }

    /// A request that was put off goes on.
    pub(crate) fn http_step(&mut self, host: usize, number: u64) {
        let Some(mut task) = self.http_node(host).tasks.remove(&number) else { return };
        let step = match task.step.take() {
            Some(Step::Wait { .. }) => task.request.waited(),
            Some(step) => step,
            None => {
                self.http_node(host).tasks.insert(number, task);
                return;
            }
        };
        self.http_run(host, number, task, step);
    }

    /// Another node answered a forwarded request, or did not.
    pub(crate) fn http_reply(&mut self, host: usize, number: u64, outcome: Outcome) {
        let Some(mut task) = self.http_node(host).tasks.remove(&number) else { return };
        let time = self.hosts[host].time(self.now);
        let forwarded = match outcome {
            Outcome::Unreached => Forwarded::Unreached,
            Outcome::Unanswered => Forwarded::Unanswered,
            Outcome::Answered(response) => {
                let status = response.result.as_ref().err().map_or(200, |code| code.http_status());
                task.relayed = Some(response);
                Forwarded::with_status(status)
            }
        };
        let step = task.request.forwarded(time, forwarded);
        self.http_run(host, number, task, step);
    }

    /// Carries out steps until the request waits for something.
    fn http_run(&mut self, host: usize, number: u64, mut task: Task, mut step: Step) {
        let boot = self.hosts[host].boot;
        let mut put_off = false;
        loop {
            if self.hosts[host].boot != boot || self.violation.is_some() {
                return;
            }
            let time = self.hosts[host].time(self.now);
            let crosses = matches!(step, Step::Attach(_) | Step::Submit(_) | Step::AskOwner { .. });
            if crosses && !put_off && self.http.rng.u32(..DELAY_ONE_IN) == 0 {
                let at = self.now + self.http.rng.u64(..DELAY_MAX);
                self.http_suspend(host, number, task, step, Some(at));
                return;
            }
            put_off = crosses;
            step = match step {
                Step::Enter { make } => {
                    self.http_unlock(host, &mut task);
                    self.http_leave(host, &mut task);
                    match self.http_enter(host, time, task.request.secret(), make) {
                        Ok(Some(found)) => {
                            if let Some(slot) = self.http_node(host).slots.get_mut(&found.place) {
                                slot.users += 1;
                            }
                            task.found = Some(found);
                            Step::Reenter
                        }
                        Ok(None) => task.request.absent(time),
                        Err(rejection) => {
                            Step::Finish { result: Err(SessionError::Rejected(rejection)), remove: false }
                        }
                    }
                }
                Step::Reenter => {
                    let Some(found) = task.found.clone() else { return };
                    let Some(slot) = self.http_node(host).slots.get_mut(&found.place) else { return };
                    if !task.locked && slot.locked {
                        slot.waiting.push_back(number);
                        self.http_suspend(host, number, task, Step::Reenter, None);
                        return;
                    }
                    (slot.locked, task.locked) = (true, true);
                    while let Some(delivery) = slot.deliveries.pop_front() {
                        match delivery {
                            Some(notice) => slot.place.notice(notice),
                            None => slot.place.closed(),
                        }
                    }
                    let step = task.request.entered(time, &mut slot.place);
                    self.http_keep(host, found.place, None);
                    step
                }
                Step::Attach(attaching) => {
                    let Some(found) = task.found.clone() else { return };
                    let reattach = attaching.with(self.http.rng.u64(..));
                    let connection = self.network.number();
                    let wall = self.hosts[host].wall_ms(self.now);
                    self.http_node(host).connections.insert(connection, found.place);
                    let result = self.with_node(host, |node, time, out| {
                        Some(node.reattach(time, wall, ConnId(connection), &reattach, out))
                    });
                    let Some(result) = result.filter(|_| self.hosts[host].boot == boot) else { return };
                    self.note(format!("n{host} attaches {} over HTTP: {:?}", reattach.client, brief(&result)));
                    if let Err(rejection) = &result {
                        self.http_check_gone(host, &task, rejection);
                    }
                    let key = task.request.secret().key;
                    let node = self.http_node(host);
                    if let Ok(attached) = &result {
                        node.table.attached(&key, found.number, attached.timeout);
                    }
                    let claimed = result.as_ref().map(|attached| attached.versions.clone()).unwrap_or_default();
                    let Some(slot) = node.slots.get_mut(&found.place) else { return };
                    // What the new session was sent already comes after what the old one was sent.
                    let step = task.request.attached(time, &mut slot.place, result);
                    self.http_keep(host, found.place, Some(connection));
                    self.http_attached(host, &task, &claimed);
                    step
                }
                Step::Submit(calls) => {
                    let Some(found) = task.found.clone() else { return };
                    let connection = self.http_node(host).slots.get(&found.place).and_then(|slot| slot.connection);
                    let open = connection.is_some_and(|conn| self.http_node(host).connections.contains_key(&conn));
                    let results = self.http_execute(host, calls, open);
                    if self.hosts[host].boot != boot {
                        return;
                    }
                    self.http_unlock(host, &mut task);
                    self.http_executed(host, &task, &results);
                    task.request.answered(results)
                }
                Step::AskOwner { client, nonce } => {
                    self.http_unlock(host, &mut task);
                    let owner = self.hosts[host].node.as_ref().and_then(|node| node.owner_of_session(&client, nonce));
                    task.request.owner(time, owner)
                }
                Step::Forward { owner, deadline } => {
                    let to = owner.client_address.strip_prefix('h').and_then(|rest| rest.split(':').next());
                    let Some(to) = to.and_then(|to| to.parse().ok()) else { return };
                    let message = Message { forwarded: true, ..task.message.clone() };
                    let deadline = self.hosts[host].virtual_time(deadline);
                    self.http_send(Sender::Node { host, boot, task: number }, to, message, deadline);
                    self.http_node(host).tasks.insert(number, task);
                    return;
                }
                Step::Wait { until } => {
                    let at = self.hosts[host].virtual_time(until);
                    self.http_suspend(host, number, task, Step::Wait { until }, Some(at));
                    return;
                }
                Step::Relay => {
                    self.http_leave(host, &mut task);
                    if let Some(response) = task.relayed.take() {
                        self.http_respond(task.exchange, *response);
                    }
                    return;
                }
                Step::Finish { result, remove } => {
                    self.http_unlock(host, &mut task);
                    self.http_finish(host, task, result, remove);
                    return;
                }
            };
        }
    }

    fn http_suspend(&mut self, host: usize, number: u64, mut task: Task, step: Step, at: Option<Micros>) {
        task.step = Some(step);
        self.http_node(host).tasks.insert(number, task);
        if let Some(at) = at {
            let boot = self.hosts[host].boot;
            self.schedule(at, Event::Http(HttpEvent::Step { host, boot, task: number }));
        }
    }

    fn http_enter(
        &mut self,
        host: usize,
        time: Time,
        secret: &Secret,
        make: bool,
    ) -> Result<Option<Found<u64>>, Rejection> {
        let fresh = self.http.number();
        let node = self.http_node(host);
        if !make {
            return Ok(node.table.find(time, &secret.key));
        }
        let found = node.table.find_or_make(time, secret.key, || fresh)?;
        node.slots.entry(found.place).or_default();
        Ok(Some(found))
    }

    fn http_unlock(&mut self, host: usize, task: &mut Task) {
        let Some(found) = task.found.as_ref().filter(|_| task.locked) else { return };
        task.locked = false;
        let Some(slot) = self.http_node(host).slots.get_mut(&found.place) else { return };
        slot.locked = false;
        if let Some(next) = slot.waiting.pop_front() {
            let boot = self.hosts[host].boot;
            self.schedule(self.now, Event::Http(HttpEvent::Step { host, boot, task: next }));
        }
    }

    /// The request does not need its place any more.
    fn http_leave(&mut self, host: usize, task: &mut Task) {
        let Some(found) = task.found.take() else { return };
        if let Some(slot) = self.http_node(host).slots.get_mut(&found.place) {
            slot.users -= 1;
        }
        self.http_drop_unused(host, found.place);
    }

    /// A place was removed from the table.
    fn http_removed(&mut self, host: usize, place: u64) {
        if let Some(slot) = self.http_node(host).slots.get_mut(&place) {
            slot.removed = true;
        }
        self.http_drop_unused(host, place);
    }

    fn http_drop_unused(&mut self, host: usize, place: u64) {
        let node = self.http_node(host);
        if node.slots.get(&place).is_some_and(|slot| slot.removed && slot.users == 0)
            && let Some(slot) = node.slots.remove(&place)
            && let Some(connection) = slot.connection
        {
            self.http_hang_up(host, connection);
        }
    }

    /// The session was attached on a new connection, or was not. Without a session no connection is kept.
    fn http_keep(&mut self, host: usize, place: u64, connection: Option<u64>) {
        let Some(slot) = self.http_node(host).slots.get_mut(&place) else { return };
        let mut ended = Vec::new();
        if connection.is_some() {
            ended.extend(std::mem::replace(&mut slot.connection, connection));
            slot.deliveries.clear();
        }
        if !slot.place.is_attached() {
            ended.extend(slot.connection.take());
        }
        for connection in ended {
            self.http_hang_up(host, connection);
        }
    }

    fn http_hang_up(&mut self, host: usize, connection: u64) {
        if self.http_node(host).connections.remove(&connection).is_some() {
            self.with_node(host, |node, time, out| node.disconnected(time, ConnId(connection), out));
        }
    }

    /// The core sends a notice to a connection. Returns false if it belongs to no HTTP session.
    pub(crate) fn http_notice(&mut self, host: usize, connection: u64, notice: &Notice) -> bool {
        self.http_deliver_to(host, connection, Some(notice.clone()))
    }

    /// The core closes a connection.
    pub(crate) fn http_closed(&mut self, host: usize, connection: u64) {
        if self.http_deliver_to(host, connection, None) {
            self.http_node(host).connections.remove(&connection);
        }
    }

    pub(crate) fn http_close_all(&mut self, host: usize) {
        let all: Vec<u64> = self.http_node(host).connections.keys().copied().collect();
        for connection in all {
            self.http_closed(host, connection);
        }
    }

    fn http_deliver_to(&mut self, host: usize, connection: u64, delivery: Option<Notice>) -> bool {
        let Some(node) = self.http.nodes.get_mut(&host) else { return false };
        let Some(place) = node.connections.get(&connection) else { return false };
        if let Some(slot) = node.slots.get_mut(place).filter(|slot| slot.connection == Some(connection)) {
            slot.deliveries.push_back(delivery);
        }
        true
    }

    fn http_execute(
        &mut self,
        host: usize,
        calls: [Option<Call>; 2],
        open: bool,
    ) -> Vec<Result<Option<Version>, Rejection>> {
        let calls: Vec<Call> = calls.into_iter().flatten().collect();
        if !open {
            // What was submitted on a connection that the node dropped is void (L5).
            return vec![Err(Rejection::new(ErrorCode::SessionGone, "the node dropped this connection"))];
        }
        let wall = self.hosts[host].wall_ms(self.now);
        self.with_node(host, |node, time, out| {
            calls.into_iter().map(|call| execute(node, time, wall, call, out)).collect()
        })
    }

    fn http_finish(
        &mut self,
        host: usize,
        mut task: Task,
        result: Result<convoke_http_session::Answer, SessionError>,
        remove: bool,
    ) {
        let secret = task.request.secret().clone();
        if let Some(found) = task.found.as_ref().filter(|_| remove)
            && let Some(place) = self.http_node(host).table.remove(&secret.key, found.number)
        {
            self.http_removed(host, place);
        }
        self.http_leave(host, &mut task);
        let result = match result {
            Ok(answer) => Ok((secret, answer)),
            Err(SessionError::Rejected(rejection)) => {
                self.http_check_gone(host, &task, &rejection);
                Err(rejection.code)
            }
            Err(SessionError::OutcomeUnknown { .. }) => Err(ErrorCode::OutcomeUnknown),
        };
        self.http_respond(task.exchange, Response { host, result });
    }

    // ---- what is judged where it happens (invariant `http_answers`) ----

    /// Calls of the core have succeeded: the client has shown that it lives, and something may have been changed.
    fn http_executed(&mut self, host: usize, task: &Task, results: &[Result<Option<Version>, Rejection>]) {
        if results.iter().any(Result::is_err) {
            return;
        }
        let Body::Request { request, .. } = &task.message.body else { return };
        if !matches!(request, SessionRequest::Heartbeat) {
            self.http_changed(host, task);
        }
        self.http_alive(host, task);
        let Some(node) = self.hosts[host].node.as_ref() else { return };
        let shown = |id: &str| node.member(id);
        let missing = match request {
            SessionRequest::Register(member) => {
                let spec = &member.spec;
                shown(&spec.id).is_none_or(|shown| shown.metadata().to_map() != spec.metadata).then_some(&spec.id)
            }
            SessionRequest::Update { id, update, .. } => shown(id)
                .is_none_or(|shown| update.changes.iter().any(|(k, v)| shown.metadata().get(k) != v.as_deref()))
                .then_some(id),
            SessionRequest::Unregister(id) => shown(id).is_some().then_some(id),
            SessionRequest::Heartbeat | SessionRequest::Close => None,
        };
        self.http.checks += 1;
        if let Some(id) = missing.cloned() {
            self.http_violation(format!("n{host} acknowledged {request:?} and does not show it at {id}"));
        }
    }

    /// The session was attached; with the member of the request among those claimed it is registered.
    fn http_attached(&mut self, host: usize, task: &Task, claimed: &[(String, Version)]) {
        let Body::Request { request, .. } = &task.message.body else { return };
        self.http_alive(host, task);
        if self.http.attempts.get(&task.message.attempt).is_some_and(|attempt| attempt.forged) && !claimed.is_empty() {
            self.http_changed(host, task);
        }
        if let SessionRequest::Register(member) = request
            && claimed.iter().any(|(id, _)| *id == member.spec.id)
        {
            self.http_changed(host, task);
        }
    }

    /// A session is changed only with its secret.
    fn http_changed(&mut self, host: usize, task: &Task) {
        let attempt = self.http.attempts.entry(task.message.attempt).or_default();
        attempt.executed += 1;
        if attempt.forged {
            let request = format!("{:?}", task.message.body);
            self.http_violation(format!("n{host} executed a request with a forged secret: {request}"));
        }
    }

    fn http_alive(&mut self, host: usize, task: &Task) {
        let now = self.now;
        if !self.http.attempts.get(&task.message.attempt).is_some_and(|attempt| attempt.forged) {
            self.http.clients[task.message.client].beats.push_back((now, host));
        }
    }

    /// A session is gone only where no live member of it is known.
    fn http_check_gone(&mut self, host: usize, task: &Task, rejection: &Rejection) {
        let forged = self.http.attempts.get(&task.message.attempt).is_some_and(|attempt| attempt.forged);
        if rejection.code != ErrorCode::SessionGone || forged {
            return;
        }
        self.http.checks += 1;
        let client = task.request.secret().client();
        let Some(node) = self.hosts[host].node.as_ref() else { return };
        let known = self.http.clients[task.message.client].members.keys();
        let known = known.filter_map(|id| node.member(id)).find(|member| member.client() == client);
        if let Some(member) = known {
            self.http_violation(format!("n{host} answers SESSION_GONE and shows {member:?}"));
        }
    }
}

fn brief(result: &Result<convoke_core::node::Attached, Rejection>) -> Result<Vec<&str>, ErrorCode> {
    match result {
        Ok(attached) => Ok(attached.versions.iter().map(|(id, _)| id.as_str()).collect()),
        Err(rejection) => Err(rejection.code),
    }
}

fn execute(node: &mut Node, time: Time, wall: u64, call: Call, out: &mut Output) -> Result<Option<Version>, Rejection> {
    match call {
        Call::Heartbeat { session } => node.heartbeat(time, session, out).map(|()| None),
        Call::Register { session, seq, member } => node.register(time, wall, session, seq, &member, out).map(Some),
        Call::Update { session, seq, id, update, expected } => {
            node.update(time, session, seq, &id, &update, expected, out).map(Some)
        }
        Call::Unregister { session, seq, id } => node.unregister(time, session, seq, &id, out).map(|()| None),
        Call::Close { session } => node.close_session(time, session, out).map(|()| None),
    }
}
