//! Requests and answers on the virtual network, one connection for each request.
//!
//! A request may be executed after its sender has given up, because a cut or a paused node delayed it.

use super::{HttpEvent, HttpResponse, Message, RETRANSMIT};
use crate::faults::Fault;
use crate::host::Input;
use crate::network::{Micros, Site};
use crate::world::{Crash, Event, World};

/// While faults are active, one in this many answers is lost.
const LOST_ONE_IN: u32 = 60;
/// While faults are active, one in this many requests is delayed.
const LATE_ONE_IN: u32 = 80;
/// Longest delay of a request.
const LATE_MAX: Micros = 6_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client {
        client: usize,
        process: u64,
    },
    /// A client that sends two requests in parallel.
    Parallel {
        client: usize,
        process: u64,
    },
    Node {
        host: usize,
        boot: u64,
        task: u64,
    },
}

#[derive(Clone, Debug)]
enum Phase {
    Dialing,
    Sent,
    /// The node processes it.
    Served,
    Answered(Box<HttpResponse>),
    /// The connection was refused: the node received nothing.
    Refused,
    /// The connection broke after the request was sent.
    Broken,
}

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    from: Sender,
    pub(crate) to: usize,
    /// The process of the node that accepted the connection.
    boot: u64,
    pub(crate) message: Message,
    phase: Phase,
    /// When the sender gave up.
    given_up: Option<Micros>,
}

/// The result of a request as its sender sees it.
#[derive(Clone, Debug)]
pub enum SendResult {
    Answered(Box<HttpResponse>),
    Unreached,
    Unanswered,
}

impl World {
    /// Sends a request; the sender gives up at `deadline`.
    pub(crate) fn http_send(&mut self, from: Sender, to: usize, message: Message, deadline: Micros) -> u64 {
        let exchange = self.http.number();
        let sent = Exchange { from, to, boot: 0, message, phase: Phase::Dialing, given_up: None };
        self.http.exchanges.insert(exchange, sent);
        let latency = self.http_latency(self.http_origin(from), Site::Host(to));
        self.schedule(self.now + latency, Event::Http(HttpEvent::Arrive { exchange }));
        self.schedule(deadline, Event::Http(HttpEvent::Expire { exchange }));
        exchange
    }

    /// Ends a kept connection of a client. The node detects it when the end arrives.
    pub(crate) fn http_close_connection(&mut self, client: usize) {
        if let Some((host, connection)) = self.http.clients[client].connection.take() {
            let latency = self.http_latency(self.http_place(client), Site::Host(host));
            self.schedule(self.now + latency, Event::Http(HttpEvent::HangUp { client, host, connection }));
        }
    }

    pub(crate) fn http_hang_up_arrives(&mut self, client: usize, host: usize, connection: u64) {
        if self.network.blocked(self.http_place(client), Site::Host(host)) {
            let jitter = self.http.rng.u64(..RETRANSMIT / 4);
            let event = HttpEvent::HangUp { client, host, connection };
            self.schedule(self.now + RETRANSMIT + jitter, Event::Http(event));
            return;
        }
        self.faults.count(Fault::HttpConnectionLost);
        self.input(host, Input::HttpHangUp { connection });
    }

    fn http_origin(&self, from: Sender) -> Site {
        match from {
            Sender::Client { client, .. } | Sender::Parallel { client, .. } => self.http_place(client),
            Sender::Node { host, .. } => Site::Host(host),
        }
    }

    pub(crate) fn http_arrive(&mut self, exchange: u64) {
        let Some(held) = self.http.exchanges.get(&exchange) else { return };
        let (from, to, boot, given_up) = (self.http_origin(held.from), held.to, held.boot, held.given_up);
        let (running, dark) = (self.hosts[to].running(), self.hosts[to].dark);
        match held.phase {
            Phase::Dialing if given_up.is_some() => drop(self.http.exchanges.remove(&exchange)),
            Phase::Dialing if self.network.severed(from, Site::Host(to)) => self.http_again(exchange),
            Phase::Dialing if !running && !dark => self.http_phase(exchange, Phase::Refused),
            Phase::Dialing if !running => {}
            Phase::Dialing => {
                let way = self.http_latency(from, Site::Host(to)) + self.http_latency(from, Site::Host(to));
                let late = self.faults.active && self.faults.late_messages && self.http.rng.u32(..LATE_ONE_IN) == 0;
                let extra = if late { self.http.rng.u64(..LATE_MAX) } else { 0 };
                if late {
                    self.faults.count(Fault::HttpLateRequest);
                }
                let boot = self.hosts[to].boot;
                if let Some(held) = self.http.exchanges.get_mut(&exchange) {
                    (held.phase, held.boot) = (Phase::Sent, boot);
                }
                self.schedule(self.now + way + extra, Event::Http(HttpEvent::Arrive { exchange }));
            }
            // A machine without power sends nothing, so the sender waits until its timeout.
            Phase::Sent if self.hosts[to].boot != boot && dark => {}
            Phase::Sent if self.hosts[to].boot != boot => self.http_phase(exchange, Phase::Broken),
            Phase::Sent if self.network.blocked(from, Site::Host(to)) => {
                let patience = self.orphan_patience();
                if given_up.is_some_and(|at| self.now - at > patience) {
                    self.http.exchanges.remove(&exchange);
                } else {
                    self.http_again(exchange);
                }
            }
            Phase::Sent => {
                if let Some(held) = self.http.exchanges.get_mut(&exchange) {
                    held.phase = Phase::Served;
                }
                self.input(to, Input::Http { exchange });
            }
            _ => {}
        }
    }

    fn http_again(&mut self, exchange: u64) {
        let jitter = self.http.rng.u64(..RETRANSMIT / 4);
        self.schedule(self.now + RETRANSMIT + jitter, Event::Http(HttpEvent::Arrive { exchange }));
    }

    /// Ends the node's side of a connection; the sender receives the result after a delay.
    fn http_phase(&mut self, exchange: u64, phase: Phase) {
        let Some(held) = self.http.exchanges.get_mut(&exchange) else { return };
        held.phase = phase;
        let (from, to) = (held.from, held.to);
        let latency = self.http_latency(self.http_origin(from), Site::Host(to));
        self.schedule(self.now + latency, Event::Http(HttpEvent::Return { exchange }));
    }

    /// Sends an answer. While faults are active, some answers are lost with their connection.
    pub(crate) fn http_respond(&mut self, exchange: u64, response: HttpResponse) {
        let Some(held) = self.http.exchanges.get(&exchange).filter(|held| matches!(held.phase, Phase::Served)) else {
            return;
        };
        let wanted = self.http.lose_answer_of.take_if(|host| *host == held.to).is_some();
        let lost = wanted || (self.faults.active && self.http.rng.u32(..LOST_ONE_IN) == 0);
        if lost {
            self.faults.count(Fault::HttpLostAnswer);
        }
        self.http_phase(exchange, if lost { Phase::Broken } else { Phase::Answered(Box::new(response)) });
    }

    pub(crate) fn http_return(&mut self, exchange: u64) {
        let Some(held) = self.http.exchanges.get(&exchange) else { return };
        let (from, to) = (held.from, held.to);
        if held.given_up.is_some() {
            self.http.exchanges.remove(&exchange);
            return;
        }
        if self.network.blocked(Site::Host(to), self.http_origin(from)) {
            let jitter = self.http.rng.u64(..RETRANSMIT / 4);
            self.schedule(self.now + RETRANSMIT + jitter, Event::Http(HttpEvent::Return { exchange }));
            return;
        }
        let Some(held) = self.http.exchanges.remove(&exchange) else { return };
        let result = match held.phase {
            Phase::Answered(response) => SendResult::Answered(response),
            Phase::Refused | Phase::Dialing => SendResult::Unreached,
            Phase::Broken | Phase::Sent | Phase::Served => SendResult::Unanswered,
        };
        self.http_deliver(from, result);
    }

    pub(crate) fn http_expire(&mut self, exchange: u64) {
        let now = self.now;
        let Some(held) = self.http.exchanges.get_mut(&exchange).filter(|held| held.given_up.is_none()) else { return };
        held.given_up = Some(now);
        let from = held.from;
        let result = match held.phase {
            Phase::Dialing | Phase::Refused => SendResult::Unreached,
            _ => SendResult::Unanswered,
        };
        self.http_deliver(from, result);
    }

    fn http_deliver(&mut self, to: Sender, result: SendResult) {
        match to {
            Sender::Client { client, process } => {
                if self.http.clients[client].process == process {
                    self.http_result(client, result);
                }
            }
            Sender::Parallel { client, process } => {
                if self.http.clients[client].process == process {
                    self.http_parallel_result(client, result);
                }
            }
            Sender::Node { host, boot, task } => {
                if self.hosts[host].boot == boot {
                    self.input(host, Input::HttpReply { task, result: Box::new(result) });
                }
            }
        }
    }

    /// Ends the exchanges of a node's process. The kernel closes its connections, unless the power is off.
    pub(crate) fn http_host_stopped(&mut self, host: usize, crash: Crash) {
        self.http.nodes.remove(&host);
        let boot = self.hosts[host].boot;
        let open =
            |held: &Exchange| held.to == host && held.boot == boot && matches!(held.phase, Phase::Sent | Phase::Served);
        let open: Vec<u64> = self.http.exchanges.iter().filter(|(_, held)| open(held)).map(|(id, _)| *id).collect();
        for exchange in open {
            if crash == Crash::Process {
                self.http_phase(exchange, Phase::Broken);
            }
        }
        // The node does not wait for answers to its own requests any more.
        for held in self.http.exchanges.values_mut() {
            if matches!(held.from, Sender::Node { host: sender, .. } if sender == host) {
                held.given_up.get_or_insert(self.now);
            }
        }
    }
}
