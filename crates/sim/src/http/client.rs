//! HTTP clients: one request at a time (and a parallel one, see `parallel`), through a load balancer, with the retries and repairs that docs/consistency.md
//! requires.

use super::operation::{Op, describe};
use super::parallel::Parallel;
use super::transport::Sender;
use super::workload::is_contested;
use super::{Attempt, Body, HttpEvent, HttpResponse, Message, SendResult, SessionSettings};
use crate::faults::Fault;
use crate::host::HostState;
use crate::network::{Micros, SECOND};
use crate::world::{Event, World, micros};
use convoke_core::ErrorCode;
use convoke_core::member::{Liveness, MemberSpec, MetadataUpdate};
use convoke_core::node::AttachMember;
use convoke_core::version::Version;
use convoke_http_session::{ClientOrder, Secret, SessionOperation, SessionReply, SessionToken};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How long a client waits for an answer. A node waits for another node for a shorter time.
pub(super) const ANSWER_TIMEOUT: Micros = 3 * SECOND;
/// Pause before the next attempt after a failure.
const RETRY: Micros = SECOND / 5;
/// Maximum number of executed requests that are remembered for the checks.
const BEATS_MAX: usize = 4_000;

/// How a client chooses the node of its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// The same node until it fails.
    Sticky,
    /// The next node for each request.
    RoundRobin,
    /// The node that the scenario chose, even if it fails.
    Fixed,
}

/// A member of a client.
#[derive(Clone, Debug, Default)]
pub struct HttpMember {
    /// The expected metadata.
    pub metadata: BTreeMap<String, String>,
    /// When the current session first acknowledged it.
    pub since: Option<Micros>,
    pub version: Option<Version>,
}

#[derive(Clone, Debug)]
pub(super) struct Flight {
    attempt: u64,
    host: usize,
    /// `None`: a heartbeat, or a new session.
    op: Option<Op>,
    conditional: bool,
    /// The tokens that it contains.
    sent: Vec<SessionToken>,
}

#[derive(Debug)]
pub struct HttpClient {
    /// Number of the process. Events of an earlier process are ignored.
    pub process: u64,
    pub alive: bool,
    /// The SDK client on the same machine; both are cut off together.
    pub beside: usize,
    pub balancer: Balancer,
    /// The node of the last request.
    pub target: usize,
    pub(crate) settings: SessionSettings,
    /// It numbers its requests and sends the token of its session back (C10, C11).
    pub ordered: bool,
    /// Members with a request whose outcome is unknown: it may be executed later, over newer ones. Only without numbers.
    pub late: BTreeSet<String>,
    /// Number of its last request.
    pub(super) number: u64,
    /// The request that is repeated with its number until it is answered.
    repeated: Option<(Op, u64, SessionOperation)>,
    /// How often it was notified of lost writes.
    pub writes_lost: u64,
    /// The tokens of the session, without those that a later answer covers.
    pub(crate) tokens: Vec<SessionToken>,
    /// It keeps only the greatest token.
    pub greatest_only: bool,
    /// A request beside the one in `flight`.
    pub(super) parallel: Option<Parallel>,
    /// Lost writes were reported to the parallel request; these members are left.
    pub(super) lost: Option<Vec<String>>,
    /// With `fast` liveness: the node to which it keeps a connection, and the number of the connection.
    pub(super) connection: Option<(usize, u64)>,
    /// Heartbeat interval and timeout of the session, from its last answer.
    pub timing: (Micros, Micros),
    /// It updates so often that heartbeats are never due.
    pub chatty: bool,
    pub secret: Option<Secret>,
    pub members: BTreeMap<String, HttpMember>,
    /// Members of earlier sessions of this process. The numbers of a session do not order the writes of another one.
    pub(super) earlier: BTreeSet<String>,
    /// Members unregistered since the last period without faults.
    pub deleted: BTreeMap<String, Micros>,
    pub(super) queue: VecDeque<Op>,
    pub(super) flight: Option<Flight>,
    next_beat: Micros,
    pub(super) next_op: Micros,
    /// Earliest time of the next request.
    pub(super) not_before: Micros,
    /// When and at which node requests of this client were executed.
    pub beats: VecDeque<(Micros, usize)>,
    /// Updates that remain to be made after the faults.
    pub(super) calm_updates: u32,
    /// When a heartbeat was last answered with success. It names the members that the session lost (C20).
    pub(super) informed_at: Micros,
    /// The last answer, for scenarios.
    pub last: Option<Result<(), ErrorCode>>,
    /// Members that the last acknowledgement reported as taken over, for scenarios.
    pub taken_over: Vec<String>,
    /// It sends only requests of the scenario, and heartbeats.
    pub scripted: bool,
    pub heartbeats: bool,
}

impl HttpClient {
    fn new(beside: usize, balancer: Balancer, target: usize, now: Micros) -> Self {
        HttpClient {
            process: 1,
            alive: true,
            beside,
            balancer,
            target,
            settings: SessionSettings::default(),
            ordered: false,
            late: BTreeSet::new(),
            number: 0,
            repeated: None,
            writes_lost: 0,
            tokens: Vec::new(),
            greatest_only: false,
            parallel: None,
            lost: None,
            connection: None,
            timing: (0, 0),
            chatty: false,
            secret: None,
            members: BTreeMap::new(),
            earlier: BTreeSet::new(),
            deleted: BTreeMap::new(),
            queue: VecDeque::new(),
            flight: None,
            next_beat: now,
            next_op: now,
            not_before: now,
            beats: VecDeque::new(),
            calm_updates: 0,
            informed_at: 0,
            last: None,
            taken_over: Vec::new(),
            scripted: false,
            heartbeats: true,
        }
    }

    /// Whether no request is in flight or queued, and everything is acknowledged.
    pub fn is_settled(&self) -> bool {
        let idle = self.queue.is_empty() && self.flight.as_ref().is_none_or(|flight| flight.op.is_none());
        let idle = idle && self.parallel.is_none() && self.lost.is_none();
        !self.alive || (idle && self.calm_updates == 0 && (self.secret.is_some() || self.members.is_empty()))
    }

    /// Registers everything again, in a new session.
    pub(crate) fn start_over(&mut self) {
        self.secret = None;
        (self.number, self.repeated, self.lost) = (0, None, None);
        self.tokens.clear();
        self.earlier.extend(self.members.keys().chain(self.deleted.keys()).cloned());
        self.queue.retain(|op| !matches!(op, Op::Put { .. } | Op::Patch { .. } | Op::Close));
        for (id, member) in &mut self.members {
            member.since = None;
            self.queue.push_back(Op::Put { id: id.clone(), takeover: true });
        }
    }

    /// Writes were lost: everything is written again, and members that should not be there are unregistered.
    pub(super) fn repair_all(&mut self, known: &[String]) {
        let close = self.queue.contains(&Op::Close);
        self.queue.retain(|op| matches!(op, Op::Delete { .. }));
        if close {
            let lost = self.deleted.keys().filter(|id| !known.contains(id)).cloned().collect();
            return self.close_after(lost);
        }
        let put = |id: &String| Op::Put { id: id.clone(), takeover: !is_contested(id) };
        self.queue.extend(self.members.keys().map(put));
        let extra = known.iter().filter(|id| !self.members.contains_key(*id)).map(|id| Op::Delete { id: id.clone() });
        let extra: Vec<Op> = extra.filter(|delete| !self.queue.contains(delete)).collect();
        self.queue.extend(extra);
    }

    /// Queues the end of the session. It ends the members that the node has, so others are unregistered first: a node that
    /// is cut off may have them.
    fn close_after(&mut self, others: Vec<String>) {
        for delete in others.into_iter().map(|id| Op::Delete { id }) {
            if !self.queue.contains(&delete) {
                self.queue.push_back(delete);
            }
        }
        self.queue.push_back(Op::Close);
    }

    /// Registers again what an earlier session of this client took over. It does not compete with other clients.
    fn take_back(&mut self, taken_over: &[String]) {
        self.members.retain(|id, _| !(is_contested(id) && taken_over.contains(id)));
        for id in taken_over.iter().filter(|id| self.members.contains_key(*id)) {
            let put = Op::Put { id: id.clone(), takeover: true };
            if !self.queue.contains(&put) {
                self.queue.push_back(put);
            }
        }
    }

    /// Compares the members that the node reported with the expected ones, and repairs the differences.
    fn repair(&mut self, known: &[String]) {
        for id in self.members.keys().filter(|id| !known.contains(id)) {
            self.queue.push_back(Op::Put { id: id.clone(), takeover: false });
        }
        for id in known.iter().filter(|id| !self.members.contains_key(*id)) {
            self.queue.push_back(Op::Delete { id: id.clone() });
        }
    }
}

impl World {
    /// Adds an HTTP client. Its first request goes to `target`, unless the balancer is round robin.
    pub fn add_http_client(&mut self, balancer: Balancer, target: usize) -> usize {
        let index = self.http.clients.len();
        let beside = index % self.clients.len().max(1);
        let beside = if self.clients.is_empty() { index } else { beside };
        self.http.clients.push(HttpClient::new(beside, balancer, target, self.now));
        index
    }

    /// Adds an HTTP client that registers these members and otherwise sends only heartbeats and requests of the scenario.
    pub fn add_http_script(&mut self, balancer: Balancer, target: usize, members: &[&str]) -> usize {
        let client = self.add_http_client(balancer, target);
        self.http.clients[client].scripted = true;
        for id in members {
            self.http_put(client, id);
        }
        client
    }

    /// Registers a member.
    pub fn http_put(&mut self, client: usize, id: &str) {
        self.http_register(client, id, false);
    }

    pub(crate) fn http_register(&mut self, client: usize, id: &str, takeover: bool) {
        let c = &mut self.http.clients[client];
        if c.members.insert(id.to_owned(), HttpMember::default()).is_none() {
            self.http.ids += 1;
        }
        c.deleted.remove(id);
        c.queue.push_back(Op::Put { id: id.to_owned(), takeover });
        self.http_wake_at(client, self.now);
    }

    pub fn http_patch(&mut self, client: usize, id: &str, key: &str, value: &str, conditional: bool) {
        let c = &mut self.http.clients[client];
        let conditional = conditional && c.members.get(id).is_some_and(|member| member.version.is_some());
        if let Some(member) = c.members.get_mut(id).filter(|_| !conditional) {
            member.metadata.insert(key.to_owned(), value.to_owned());
        }
        let (id, key, value) = (id.to_owned(), key.to_owned(), value.to_owned());
        c.queue.push_back(Op::Patch { id, key, value, conditional });
        self.http_wake_at(client, self.now);
    }

    pub fn http_delete(&mut self, client: usize, id: &str) {
        let now = self.now;
        let c = &mut self.http.clients[client];
        if c.members.remove(id).is_some() {
            c.deleted.insert(id.to_owned(), now);
            c.queue.push_back(Op::Delete { id: id.to_owned() });
            self.http_wake_at(client, now);
        }
    }

    /// Closes the session, which unregisters its members.
    pub(crate) fn http_close(&mut self, client: usize) {
        let now = self.now;
        let c = &mut self.http.clients[client];
        let closed = std::mem::take(&mut c.members);
        c.deleted.extend(closed.into_keys().map(|id| (id, now)));
        let unanswered = c.queue.drain(..).filter_map(|op| op.id().cloned()).filter(|_| c.ordered).collect();
        if c.secret.is_some() {
            c.close_after(unanswered);
        }
    }

    /// Ends the process of a client.
    pub fn http_crash(&mut self, client: usize) {
        self.http_close_connection(client);
        let c = &mut self.http.clients[client];
        c.process += 1;
        c.alive = false;
        (c.flight, c.parallel) = (None, None);
        c.queue.clear();
        self.note(format!("http client {client} crashes"));
    }

    /// Starts a new process, without members.
    pub(super) fn http_restart(&mut self, client: usize) {
        let now = self.now;
        let c = &self.http.clients[client];
        let (process, chatty, settings, ordered) = (c.process + 1, c.chatty, c.settings.clone(), c.ordered);
        let restarted =
            HttpClient { process, chatty, settings, ordered, ..HttpClient::new(c.beside, c.balancer, c.target, now) };
        self.http.clients[client] = restarted;
        self.note(format!("http client {client} starts"));
    }

    pub(crate) fn http_wake_at(&mut self, client: usize, at: Micros) {
        let process = self.http.clients[client].process;
        self.schedule(at, Event::Http(HttpEvent::Wake { client, process }));
    }

    pub(crate) fn http_wake(&mut self, client: usize) {
        let now = self.now;
        if !self.http.clients[client].alive || self.http.clients[client].flight.is_some() {
            return;
        }
        if now < self.http.clients[client].not_before {
            let at = self.http.clients[client].not_before;
            self.http_wake_at(client, at);
            return;
        }
        self.http_operate(client);
        let c = &self.http.clients[client];
        if !c.alive {
            return;
        }
        if now < c.not_before {
            let at = c.not_before;
            self.http_wake_at(client, at);
            return;
        }
        if c.secret.is_none() {
            if !c.members.is_empty() || !c.queue.is_empty() {
                self.http_request(client, None);
                return;
            }
        } else if let Some(op) = c.queue.front().cloned() {
            self.http_request(client, Some(op));
            return;
        } else if now >= c.next_beat && c.heartbeats {
            self.http_request(client, None);
            return;
        }
        let c = &self.http.clients[client];
        let at = if c.heartbeats { c.next_beat.min(c.next_op) } else { c.next_op };
        let at = if c.scripted { c.next_beat } else { at };
        if !c.scripted || c.heartbeats {
            self.http_wake_at(client, at.max(now + SECOND / 10));
        }
    }

    fn http_target(&mut self, client: usize) -> usize {
        let c = &self.http.clients[client];
        let target = c.target;
        let usable = |host: usize| self.hosts[host].state != HostState::Gone && !self.hosts[host].is_second;
        if c.balancer == Balancer::Fixed || (usable(target) && c.balancer == Balancer::Sticky) {
            return target;
        }
        self.http_next_host(target)
    }

    pub(super) fn http_next_host(&self, host: usize) -> usize {
        let usable = |host: &usize| self.hosts[*host].state != HostState::Gone && !self.hosts[*host].is_second;
        let count = self.hosts.len();
        (1..=count).map(|step| (host + step) % count).find(usable).unwrap_or(host)
    }

    /// Returns the kept connection of a client with `fast` liveness to a node. It keeps one connection at a time.
    fn http_connection(&mut self, client: usize, host: usize) -> Option<u64> {
        let c = &self.http.clients[client];
        if c.settings.liveness != Liveness::Fast {
            return None;
        }
        if c.connection.is_none_or(|(to, _)| to != host) {
            self.http_close_connection(client);
            let connection = self.http.number();
            self.http.clients[client].connection = Some((host, connection));
        }
        self.http.clients[client].connection.map(|(_, connection)| connection)
    }

    /// Sends the next request: an operation, a heartbeat, or a new session if there is none.
    fn http_request(&mut self, client: usize, op: Option<Op>) {
        let host = self.http_target(client);
        let attempt = self.http.number();
        let connection = self.http_connection(client, host);
        let c = &mut self.http.clients[client];
        c.target = host;
        let mut conditional = false;
        let repeated = c.repeated.take().filter(|(repeated, ..)| op.as_ref() == Some(repeated));
        let mut number = None;
        let body = match (&c.secret, &op) {
            (None, _) => Body::Create(c.settings.clone()),
            (Some(secret), Some(repeated_op)) if repeated.is_some() => {
                let Some((_, known, operation)) = repeated else { return };
                number = Some(known);
                conditional = matches!(operation, SessionOperation::Update { expected: Some(_), .. });
                c.repeated = Some((repeated_op.clone(), known, operation.clone()));
                let order = ClientOrder { number, tokens: c.tokens.clone() };
                Body::Request { secret: secret.clone(), operation, order }
            }
            (Some(secret), op) => {
                let operation = match op {
                    None => SessionOperation::Heartbeat,
                    Some(Op::Put { id, takeover }) => {
                        let Some(member) = c.members.get(id) else { return self.http_skip(client) };
                        let spec = MemberSpec { metadata: member.metadata.clone(), ..MemberSpec::new(id, "s") };
                        SessionOperation::Register(Arc::new(AttachMember { spec, takeover: *takeover }))
                    }
                    Some(Op::Patch { id, key, value, conditional: wanted }) => {
                        let Some(member) = c.members.get(id) else { return self.http_skip(client) };
                        let expected = member.version.filter(|_| *wanted);
                        conditional = expected.is_some();
                        let update = Arc::new(MetadataUpdate::set(key, value.clone()));
                        SessionOperation::Update { id: id.clone(), update, expected }
                    }
                    Some(Op::Delete { id }) => SessionOperation::Unregister(id.clone()),
                    Some(Op::Close) => SessionOperation::Close,
                };
                if let Some(op) = op.as_ref().filter(|_| c.ordered) {
                    c.number += 1;
                    number = Some(c.number);
                    c.repeated = Some((Op::clone(op), c.number, operation.clone()));
                }
                let order = ClientOrder { number, tokens: c.tokens.clone() };
                Body::Request { secret: secret.clone(), operation, order }
            }
        };
        let op = op.filter(|_| c.secret.is_some());
        let (process, deadline) = (c.process, self.now + ANSWER_TIMEOUT);
        let sent = c.tokens.clone();
        c.overtake(op.as_ref());
        c.flight = Some(Flight { attempt, host, op: op.clone(), conditional, sent });
        self.http.attempts.insert(attempt, Attempt::default());
        self.note(format!("http client {client} sends {} to n{host}", describe(&body)));
        let message = Message { attempt, client, body, forwarded: false, connection };
        self.http_send(Sender::Client { client, process }, host, message, deadline);
        self.http_maybe_parallel(client, host, op.as_ref());
    }

    /// Skips an operation on a member that the client does not have any more.
    fn http_skip(&mut self, client: usize) {
        self.http.clients[client].queue.pop_front();
        self.http_wake_at(client, self.now);
    }

    /// Handles the result of the request in flight.
    pub(crate) fn http_result(&mut self, client: usize, result: SendResult) {
        let Some(flight) = self.http.clients[client].flight.take() else { return };
        let attempt = self.http.attempts.get(&flight.attempt).copied().unwrap_or_default();
        let beats = &mut self.http.clients[client].beats;
        beats.drain(..beats.len().saturating_sub(BEATS_MAX));
        match result {
            SendResult::Answered(response) => match *response {
                HttpResponse { host, result: Ok((secret, answer)), token, .. } => {
                    self.http_advance(client, &flight.sent, token, true);
                    self.http.attempts.remove(&flight.attempt);
                    self.http.checks += 1;
                    if flight.op.is_some() && attempt.executed == 0 {
                        self.http_violation(format!(
                            "n{host} acknowledges {:?} of client {client}, and no node executed it",
                            flight.op
                        ));
                    }
                    self.http_answered(client, &flight, host, secret, answer);
                }
                HttpResponse { host, result: Err(code), token, members } => {
                    let again =
                        matches!(code, ErrorCode::NotReady | ErrorCode::ResourceExhausted | ErrorCode::OutcomeUnknown);
                    self.http_advance(client, &flight.sent, token, !again);
                    self.http.checks += 1;
                    if code != ErrorCode::OutcomeUnknown && attempt.executed > 0 {
                        self.http_violation(format!(
                            "n{host} answers {code} to client {client}, and {:?} was executed",
                            flight.op
                        ));
                    }
                    self.note(format!("http client {client} receives {code}"));
                    self.http.clients[client].last = Some(Err(code));
                    if code == ErrorCode::WritesLost {
                        self.faults.count(Fault::HttpWritesLost);
                        self.http.clients[client].writes_lost += 1;
                        self.http.clients[client].not_before = self.now + RETRY;
                        self.http.clients[client].repair_all(&members);
                    } else {
                        self.http_rejected(client, &flight, code);
                    }
                }
            },
            SendResult::Unreached | SendResult::Unanswered => {
                self.http_close_connection(client);
                self.note(format!("http client {client} receives no answer from n{}", flight.host));
                let code = if matches!(result, SendResult::Unreached) {
                    ErrorCode::NotReady
                } else {
                    ErrorCode::OutcomeUnknown
                };
                self.http_rejected(client, &flight, code);
            }
        }
        self.http.clients[client].repair_lost();
        let at = self.http.clients[client].not_before.max(self.now);
        self.http_wake_at(client, at);
    }

    /// Keeps the token of an answer, and forgets the request that was answered for good.
    fn http_advance(&mut self, client: usize, sent: &[SessionToken], token: SessionToken, finished: bool) {
        let c = &mut self.http.clients[client];
        if finished {
            c.repeated = None;
        }
        if c.ordered && c.secret.is_some() {
            c.receive(sent, token);
        }
    }

    fn http_answered(
        &mut self,
        client: usize,
        flight: &Flight,
        host: usize,
        secret: Secret,
        answer: convoke_http_session::SessionAnswer,
    ) {
        let now = self.now;
        self.note(format!("http client {client} receives OK of n{host} for {:?}", flight.op));
        let c = &mut self.http.clients[client];
        c.timing = (micros(answer.heartbeat_interval), micros(answer.timeout));
        c.next_beat = now + c.timing.0;
        c.last = Some(Ok(()));
        c.taken_over.clone_from(&answer.taken_over);
        if c.secret.is_none() {
            c.secret = Some(secret);
            let queued = |c: &HttpClient, id: &String| {
                c.queue.iter().any(|op| matches!(op, Op::Put { id: put, .. } if put == id))
            };
            let missing: Vec<String> = c.members.keys().filter(|id| !queued(c, id)).cloned().collect();
            c.queue.extend(missing.into_iter().map(|id| Op::Put { id, takeover: true }));
            return;
        }
        let version = match answer.reply {
            SessionReply::Written(version) => Some(version),
            SessionReply::Done => None,
        };
        match &flight.op {
            Some(Op::Put { id, .. }) => {
                if let Some(member) = c.members.get_mut(id) {
                    member.version = version;
                    member.since.get_or_insert(now);
                }
            }
            Some(Op::Patch { id, key, value, .. }) => {
                if let Some(member) = c.members.get_mut(id) {
                    member.version = version;
                    // The client applies an update without a condition when it queues it.
                    let later = |op: &Op| matches!(op, Op::Patch { id: i, key: k, conditional: false, .. } if i == id && k == key);
                    if flight.conditional && !c.queue.iter().any(later) {
                        member.metadata.insert(key.clone(), value.clone());
                    }
                }
            }
            Some(Op::Close) => {
                (c.number, c.repeated, c.lost) = (0, None, None);
                c.tokens.clear();
                c.secret = None;
                c.queue.clear();
            }
            Some(Op::Delete { .. }) | None => {}
        }
        if flight.op.is_some() && c.queue.front() == flight.op.as_ref() {
            c.queue.pop_front();
        }
        if flight.op.is_none() {
            c.informed_at = now;
        }
        if flight.op.is_none() && !c.scripted {
            c.take_back(&answer.taken_over);
        }
        // Only the answer to a heartbeat contains the members.
        if let Some(known) = answer.members.filter(|_| flight.op.is_none() && !c.scripted) {
            c.repair(&known);
        }
    }

    fn http_rejected(&mut self, client: usize, flight: &Flight, code: ErrorCode) {
        let jitter = self.http.rng.u64(..RETRY);
        let next = self.http_next_host(flight.host);
        let now = self.now;
        let c = &mut self.http.clients[client];
        c.not_before = now + RETRY + jitter;
        if code == ErrorCode::OutcomeUnknown && !c.ordered {
            c.late.extend(flight.op.as_ref().and_then(Op::id).cloned());
        }
        let contested = flight.op.as_ref().and_then(Op::id).filter(|id| is_contested(id));
        let again = flight.op.as_ref().is_some_and(|op| c.queue.front() == Some(op));
        let instead = |c: &mut HttpClient, op: Option<Op>| {
            if again {
                c.queue.pop_front();
                c.queue.extend(op);
            }
        };
        match code {
            ErrorCode::OutcomeUnknown if flight.conditional => {
                let put = flight.op.as_ref().and_then(Op::as_put);
                instead(c, put);
            }
            ErrorCode::NotReady | ErrorCode::ResourceExhausted | ErrorCode::OutcomeUnknown => {
                if c.balancer != Balancer::Fixed {
                    c.target = next;
                }
            }
            ErrorCode::SessionGone | ErrorCode::Superseded => c.start_over(),
            ErrorCode::TakenOver if flight.op.is_none() && !c.scripted => {
                let all: Vec<String> = c.members.keys().cloned().collect();
                c.take_back(&all);
            }
            ErrorCode::StaleVersion if flight.conditional => instead(c, None),
            // Another client has the member, and another node executed a later request first (C19).
            ErrorCode::StaleRequest if matches!(flight.op, Some(Op::Put { .. })) => instead(c, flight.op.clone()),
            ErrorCode::NotRegistered
            | ErrorCode::NotFound
            | ErrorCode::PermissionDenied
            | ErrorCode::TakenOver
            | ErrorCode::AlreadyRegistered
                if contested.is_some() =>
            {
                // Another client has the member, or an earlier session of this one. This client does not take it back.
                c.members.retain(|id, _| Some(id) != contested);
                if matches!(code, ErrorCode::PermissionDenied | ErrorCode::TakenOver) {
                    c.deleted.retain(|id, _| Some(id) != contested);
                }
                instead(c, None);
                if matches!(code, ErrorCode::TakenOver | ErrorCode::AlreadyRegistered) {
                    self.faults.count(Fault::HttpContestedId);
                }
            }
            ErrorCode::NotRegistered
            | ErrorCode::NotFound
            | ErrorCode::PermissionDenied
            | ErrorCode::TakenOver
            | ErrorCode::AlreadyRegistered => {
                let put = flight.op.as_ref().and_then(Op::as_put);
                instead(c, put);
            }
            other => self.http_violation(format!("client {client} was rejected with {other}: {:?}", flight.op)),
        }
    }
}
