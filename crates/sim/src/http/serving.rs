//! The node's side of HTTP sessions: carries out the steps of `convoke-http-session`, as the server does.
//!
//! In the server, a request crosses from its task to the event loop and back, and other inputs can come in between. So the
//! simulation delays some steps. The queue of the event loop and the table of sessions can be full.

use super::transport::Sender;
use super::{Body, HttpEvent, HttpResponse, Message, SendResult, SessionSettings};
use crate::faults::Fault;
use crate::network::Micros;
use crate::serving::{REPLICATION_POLL, REPLICATION_WAIT};
use crate::world::{Event, World, micros};
use convoke_core::member::Liveness;
use convoke_core::node::{ClientOperation, ConnId, Notice, OperationResult, Replicated};
use convoke_core::version::{Dot, Version};
use convoke_core::{ErrorCode, Rejection, Time};
use convoke_http_session::{
    ClientOrder, EntryRef, FlowSettings, Forwarded, RANDOM_BYTES, RequestFlow, Secret, SessionEntry, SessionError,
    SessionTable, SessionToken, Step,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The default of the server.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(2);
/// While faults are active, one in this many steps finds the queue of the event loop full.
const BUSY_ONE_IN: u32 = 60;
/// One in this many steps is delayed.
const DELAY_ONE_IN: u32 = 12;
const DELAY_MAX: Micros = 3_000;

/// The HTTP sessions of one process of a node.
#[derive(Debug)]
pub(crate) struct HttpNode {
    table: SessionTable<u64>,
    entries: BTreeMap<u64, HostEntry>,
    /// The entry to which a connection of the core belongs.
    connections: BTreeMap<u64, u64>,
    tasks: BTreeMap<u64, Task>,
    /// When sessions were attached.
    attached_at: VecDeque<Micros>,
}

/// An entry with its lock, and the connection of its session.
#[derive(Debug, Default)]
struct HostEntry {
    state: SessionEntry,
    connection: Option<u64>,
    /// Notices that the node sent to the connection; `None` is the end of the connection.
    deliveries: VecDeque<Option<Notice>>,
    locked: bool,
    waiting: VecDeque<u64>,
    /// Number of requests that use it.
    users: usize,
    removed: bool,
}

/// A request at a node.
#[derive(Debug)]
pub(super) struct Task {
    exchange: u64,
    pub(super) message: Message,
    pub(super) request: RequestFlow,
    pub(super) found: Option<EntryRef<u64>>,
    locked: bool,
    /// The next step, while it is delayed or waits for the lock.
    step: Option<Step>,
    relayed: Option<Box<HttpResponse>>,
    unreplicated: Option<Unreplicated>,
}

/// One result for each call of the core.
type CallResults = Vec<Result<Option<Version>, Rejection>>;

/// Results that wait until the writes are replicated.
#[derive(Debug)]
struct Unreplicated {
    results: CallResults,
    last_write: Dot,
    deadline: Micros,
}

impl HttpNode {
    fn new(session_limit: usize) -> Self {
        HttpNode {
            table: SessionTable::new(session_limit),
            entries: BTreeMap::new(),
            connections: BTreeMap::new(),
            tasks: BTreeMap::new(),
            attached_at: VecDeque::new(),
        }
    }
}

impl World {
    /// Returns the number of HTTP sessions attached at a host that may not have expired yet. A client may create sessions as
    /// fast as it likes.
    pub(crate) fn http_attaches(&self, host: usize) -> usize {
        let timers = &self.setup.timers;
        // A session has a timeout of at most the first one, and is gone after the second one.
        let lifetime = 2 * micros(timers.reconnect_timeout) + micros(timers.heartbeat_timeout);
        // Its clock stops while it is paused (L5).
        let held = &self.hosts[host];
        let now = if held.paused_until.is_some() { held.paused_since } else { self.now };
        let (resumed, paused_for) = held.last_pause;
        let opening = now.saturating_sub(lifetime);
        let opening = if resumed > opening { opening.saturating_sub(paused_for) } else { opening };
        let attached = self.http.nodes.get(&host).map(|node| &node.attached_at);
        attached.map_or(0, |attached| attached.iter().rev().take_while(|at| **at >= opening).count())
    }

    fn http_node(&mut self, host: usize) -> &mut HttpNode {
        let limit = self.http.session_limit;
        self.http.nodes.entry(host).or_insert_with(|| HttpNode::new(limit))
    }

    /// Starts to process a request that arrived.
    pub(crate) fn http_serve(&mut self, host: usize, exchange: u64) {
        let Some(message) = self.http.exchanges.get(&exchange).map(|held| held.message.clone()) else { return };
        let time = self.hosts[host].time(self.now);
        let idle = self.http_node(host).table.sweep(time);
        for entry in idle {
            self.http_removed(host, entry);
        }
        let session_timeout = self.setup.timers.heartbeat_timeout;
        let settings = FlowSettings { forward_timeout: FORWARD_TIMEOUT, session_timeout, mutation: self.http.mutation };
        let request = match &message.body {
            Body::Create(requested) => {
                let random = [(); RANDOM_BYTES].map(|()| self.http.rng.u8(..));
                let SessionSettings { client, timeout_ms, liveness } = requested;
                let Some(creator) = self.hosts[host].node.as_ref().map(|node| node.origin().clone()) else { return };
                let secret = Secret::new(client.as_deref(), *liveness, *timeout_ms, &creator, random);
                RequestFlow::create(secret, settings)
            }
            Body::Request { secret, operation, order } => {
                // The node parses the texts, as the server does.
                let secret = Secret::parse(&secret.reveal()).expect("every node parses every secret");
                let parse =
                    |token: &SessionToken| SessionToken::parse(&token.text()).expect("every node parses every token");
                let order = ClientOrder { tokens: order.tokens.iter().map(parse).collect(), ..order.clone() };
                RequestFlow::new(secret, operation.clone(), order, message.forwarded, settings)
            }
        };
        let step = request.begin();
        let number = self.http.number();
        let task = Task {
            exchange,
            message,
            request,
            found: None,
            locked: false,
            step: None,
            relayed: None,
            unreplicated: None,
        };
        self.http_run(host, number, task, step);
    }

    /// Continues a delayed request.
    pub(crate) fn http_step(&mut self, host: usize, number: u64) {
        let Some(mut task) = self.http_node(host).tasks.remove(&number) else { return };
        if let Some(held) = task.unreplicated.take() {
            return self.http_replicate(host, number, task, held);
        }
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

    /// Continues a request that was forwarded.
    pub(crate) fn http_reply(&mut self, host: usize, number: u64, result: SendResult) {
        let Some(mut task) = self.http_node(host).tasks.remove(&number) else { return };
        let time = self.hosts[host].time(self.now);
        let forwarded = match result {
            SendResult::Unreached => Forwarded::Unreached,
            SendResult::Unanswered => Forwarded::Unanswered,
            SendResult::Answered(response) => {
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
        let mut delayed = false;
        loop {
            if self.hosts[host].boot != boot || self.violation.is_some() {
                return;
            }
            let time = self.hosts[host].time(self.now);
            let crosses =
                matches!(step, Step::Attach(_) | Step::Submit(_) | Step::AskOwner { .. } | Step::Search { .. });
            if crosses && !delayed && self.http.rng.u32(..DELAY_ONE_IN) == 0 {
                let at = self.now + self.http.rng.u64(..DELAY_MAX);
                self.http_suspend(host, number, task, step, Some(at));
                return;
            }
            delayed = crosses;
            step = match step {
                Step::Enter { make } => {
                    self.http_unlock(host, &mut task);
                    self.http_leave(host, &mut task);
                    match self.http_enter(host, time, task.request.secret(), make) {
                        Ok(Some(found)) => {
                            if let Some(entry) = self.http_node(host).entries.get_mut(&found.entry) {
                                entry.users += 1;
                            }
                            self.http_bind(host, &task, &found);
                            task.found = Some(found);
                            Step::Reenter
                        }
                        Ok(None) => task.request.absent(time),
                        Err(rejection) => {
                            self.faults.count(Fault::HttpTableFull);
                            task.request.failed(rejection)
                        }
                    }
                }
                Step::Reenter => {
                    let Some(found) = task.found.clone() else { return };
                    let Some(entry) = self.http_node(host).entries.get_mut(&found.entry) else { return };
                    if !task.locked && entry.locked {
                        entry.waiting.push_back(number);
                        self.http_suspend(host, number, task, Step::Reenter, None);
                        return;
                    }
                    (entry.locked, task.locked) = (true, true);
                    while let Some(delivery) = entry.deliveries.pop_front() {
                        match delivery {
                            Some(notice) => entry.state.notice(notice),
                            None => entry.state.closed(),
                        }
                    }
                    let step = task.request.entered(time, &mut entry.state);
                    self.http_keep(host, found.entry, None);
                    step
                }
                Step::Attach(attaching) => {
                    let Some(found) = task.found.clone() else { return };
                    let reattach = attaching.with(self.http.rng.u64(..));
                    let connection = self.network.number();
                    self.http_node(host).connections.insert(connection, found.entry);
                    let result = self.with_node(host, |node, time, out| {
                        Some(node.reattach(time, ConnId(connection), &reattach, out))
                    });
                    let Some(result) = result.filter(|_| self.hosts[host].boot == boot) else { return };
                    self.note(format!("n{host} attaches {} over HTTP: {:?}", reattach.client, brief(&result)));
                    if let Err(rejection) = &result {
                        self.http_check_gone(host, &task, rejection);
                    }
                    let (key, now) = (task.request.secret().key, self.now);
                    let node = self.http_node(host);
                    if let Ok(attached) = &result {
                        node.attached_at.push_back(now);
                        node.table.attached(&key, found.number, attached.timeout);
                    }
                    let claimed = result.as_ref().ok().map(|attached| attached.versions.clone());
                    let Some(entry) = node.entries.get_mut(&found.entry) else { return };
                    let step = task.request.attached(time, &mut entry.state, result);
                    self.http_keep(host, found.entry, Some(connection));
                    if let Some(claimed) = claimed {
                        self.http_attached(host, &task, &claimed);
                    }
                    step
                }
                Step::Submit(calls) => {
                    let Some(found) = task.found.clone() else { return };
                    if let Some(rejection) = self.http_busy(host) {
                        self.http_unlock(host, &mut task);
                        step = task.request.failed(rejection);
                        continue;
                    }
                    let connection = self.http_node(host).entries.get(&found.entry).and_then(|entry| entry.connection);
                    let open = connection.is_some_and(|conn| self.http_node(host).connections.contains_key(&conn));
                    let Some((results, last_write, wrote)) = self.http_execute(host, connection, &calls, open) else {
                        return;
                    };
                    if self.hosts[host].boot != boot {
                        return;
                    }
                    self.http_unlock(host, &mut task);
                    self.http_executed(host, &task, &results);
                    if wrote {
                        let deadline = self.now + REPLICATION_WAIT;
                        self.http_replicate(host, number, task, Unreplicated { results, last_write, deadline });
                        return;
                    }
                    task.request.answered(results, last_write, false)
                }
                Step::AskOwner { client, nonce, creator } => {
                    self.http_unlock(host, &mut task);
                    match self.http_busy(host) {
                        Some(rejection) => task.request.failed(rejection),
                        None => {
                            let node = self.hosts[host].node.as_ref();
                            let owner = node.and_then(|node| node.owner_of_session(&client, nonce, Some(&creator)));
                            task.request.owner(time, owner)
                        }
                    }
                }
                Step::Search { dots, search } => {
                    self.http_unlock(host, &mut task);
                    match self.http_busy(host) {
                        Some(rejection) => task.request.failed(rejection),
                        None => {
                            let result =
                                self.with_node(host, |node, time, out| Some(node.search(time, &dots, search, out)));
                            let Some(result) = result.filter(|_| self.hosts[host].boot == boot) else { return };
                            match result {
                                Ok((coverage, kept)) => task.request.searched(time, coverage, kept),
                                Err(rejection) => task.request.failed(rejection),
                            }
                        }
                    }
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

    /// Returns the rejection of a node whose queue is full, if it is full now.
    fn http_busy(&mut self, host: usize) -> Option<Rejection> {
        let after_loss = self.http.lose_answer_of.is_none();
        let wanted = self.http.full_queue_of.take_if(|busy| *busy == host && after_loss).is_some();
        let busy = wanted || (self.faults.active && self.http.rng.u32(..BUSY_ONE_IN) == 0);
        busy.then(|| {
            self.faults.count(Fault::HttpNodeBusy);
            Rejection::new(ErrorCode::ResourceExhausted, "this node is overloaded")
        })
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
    ) -> Result<Option<EntryRef<u64>>, Rejection> {
        let fresh = self.http.number();
        let node = self.http_node(host);
        if !make {
            return Ok(node.table.find(time, &secret.key));
        }
        let found = node.table.find_or_make(time, secret.key, || fresh)?;
        node.entries.entry(found.entry).or_default();
        Ok(Some(found))
    }

    /// Binds a session with `fast` liveness to the client's connection, as the server does.
    fn http_bind(&mut self, host: usize, task: &Task, found: &EntryRef<u64>) {
        let secret = task.request.secret();
        let Some(connection) = task.message.connection.filter(|_| secret.liveness == Liveness::Fast) else { return };
        let node = self.http_node(host);
        node.table.bind(&secret.key, found.number, connection);
    }

    /// Ends the sessions that are bound to a client's connection.
    pub(crate) fn http_disconnected(&mut self, host: usize, connection: u64) {
        let node = self.http_node(host);
        for entry in node.table.disconnected(connection) {
            self.http_removed(host, entry);
        }
    }

    fn http_unlock(&mut self, host: usize, task: &mut Task) {
        let Some(found) = task.found.as_ref().filter(|_| task.locked) else { return };
        task.locked = false;
        let Some(entry) = self.http_node(host).entries.get_mut(&found.entry) else { return };
        entry.locked = false;
        if let Some(next) = entry.waiting.pop_front() {
            let boot = self.hosts[host].boot;
            self.schedule(self.now, Event::Http(HttpEvent::Step { host, boot, task: next }));
        }
    }

    /// Releases the entry of a request.
    fn http_leave(&mut self, host: usize, task: &mut Task) {
        let Some(found) = task.found.take() else { return };
        if let Some(entry) = self.http_node(host).entries.get_mut(&found.entry) {
            entry.users -= 1;
        }
        self.http_drop_unused(host, found.entry);
    }

    /// Marks an entry that was removed from the table.
    fn http_removed(&mut self, host: usize, number: u64) {
        if let Some(entry) = self.http_node(host).entries.get_mut(&number) {
            entry.removed = true;
        }
        self.http_drop_unused(host, number);
    }

    fn http_drop_unused(&mut self, host: usize, number: u64) {
        let node = self.http_node(host);
        if node.entries.get(&number).is_some_and(|entry| entry.removed && entry.users == 0)
            && let Some(entry) = node.entries.remove(&number)
        {
            self.http.issued.remove(&number);
            if let Some(connection) = entry.connection {
                self.http_hang_up(host, connection);
            }
        }
    }

    /// Keeps the connection on which the session was attached. Without an attached session no connection is kept.
    fn http_keep(&mut self, host: usize, number: u64, connection: Option<u64>) {
        let Some(entry) = self.http_node(host).entries.get_mut(&number) else { return };
        let mut ended = Vec::new();
        if connection.is_some() {
            ended.extend(std::mem::replace(&mut entry.connection, connection));
            entry.deliveries.clear();
        }
        if !entry.state.is_attached() {
            ended.extend(entry.connection.take());
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
        let Some(number) = node.connections.get(&connection) else { return false };
        if let Some(entry) = node.entries.get_mut(number).filter(|entry| entry.connection == Some(connection)) {
            entry.deliveries.push_back(delivery);
        }
        true
    }

    /// Executes the calls. Returns their results, the last write of the node, and whether they have written.
    fn http_execute(
        &mut self,
        host: usize,
        connection: Option<u64>,
        calls: &[Option<ClientOperation>; 2],
        open: bool,
    ) -> Option<(CallResults, Dot, bool)> {
        let conn = ConnId(connection.unwrap_or_default());
        self.with_node(host, |node, time, out| {
            let before = node.last_dot();
            if !open {
                // Operations submitted on a connection that the node dropped are void (L5).
                let dropped = Rejection::new(ErrorCode::SessionGone, "the node dropped this connection");
                return Some((vec![Err(dropped)], before, false));
            }
            let results = calls.iter().flatten().map(|call| result(node.execute(time, conn, call, out))).collect();
            let (last, only_heartbeat) = (node.last_dot(), calls[1].is_none());
            let wrote = last != before && !only_heartbeat;
            if wrote {
                node.want_receipt();
            }
            Some((results, last, wrote))
        })
    }

    /// Answers once the writes are replicated, or after a short time.
    fn http_replicate(&mut self, host: usize, number: u64, mut task: Task, held: Unreplicated) {
        let Some(node) = self.hosts[host].node.as_ref() else { return };
        let replicated = match node.replicated() {
            Replicated::Alone => Some(false),
            Replicated::UpTo(n) if n >= held.last_write.n => Some(true),
            Replicated::UpTo(_) => (self.now >= held.deadline).then_some(false),
        };
        match replicated {
            Some(replicated) => {
                if replicated {
                    self.http_check_replicated(host, &held.last_write);
                }
                let step = task.request.answered(held.results, held.last_write, replicated);
                self.http_run(host, number, task, step);
            }
            None => {
                task.unreplicated = Some(held);
                let boot = self.hosts[host].boot;
                self.http_node(host).tasks.insert(number, task);
                self.schedule(self.now + REPLICATION_POLL, Event::Http(HttpEvent::Step { host, boot, task: number }));
            }
        }
    }

    /// Whether another request of a session is about to report lost writes.
    pub(super) fn http_loses_writes(&mut self, host: usize, entry: u64) -> bool {
        let of_entry = |task: &Task| task.found.as_ref().is_some_and(|found| found.entry == entry);
        self.http_node(host).tasks.values().any(|task| of_entry(task) && task.request.has_lost_writes())
    }

    fn http_finish(
        &mut self,
        host: usize,
        mut task: Task,
        result: Result<convoke_http_session::SessionAnswer, SessionError>,
        remove: bool,
    ) {
        let secret = task.request.secret().clone();
        if let Some(found) = task.found.as_ref().filter(|_| remove)
            && let Some(entry) = self.http_node(host).table.remove(&secret.key, found.number)
        {
            self.http_removed(host, entry);
        }
        self.http_check_token(host, &task);
        self.http_leave(host, &mut task);
        let mut members = Vec::new();
        let result = match result {
            Ok(answer) => Ok((secret, answer)),
            Err(SessionError::Rejected(rejection)) => {
                self.http_check_gone(host, &task, &rejection);
                Err(rejection.code)
            }
            Err(SessionError::OutcomeUnknown { .. }) => Err(ErrorCode::OutcomeUnknown),
            Err(SessionError::WritesLost { members: known }) => {
                members = known.into_iter().map(|(id, _)| id).collect();
                Err(ErrorCode::WritesLost)
            }
        };
        let token = task.request.token().clone();
        self.http_respond(task.exchange, HttpResponse { host, result, token, members });
    }
}

fn brief(result: &Result<convoke_core::node::Attached, Rejection>) -> Result<Vec<&str>, ErrorCode> {
    match result {
        Ok(attached) => Ok(attached.versions.iter().map(|(id, _)| id.as_str()).collect()),
        Err(rejection) => Err(rejection.code),
    }
}

fn result(result: OperationResult) -> Result<Option<Version>, Rejection> {
    match result {
        OperationResult::Written(result) => result.map(Some),
        OperationResult::Unregistered(result) => result.map(|_| None),
        OperationResult::Heartbeat(result) => result.map(|()| None),
        OperationResult::Attached(result) => result.map(|_| None),
    }
}
