//! HTTP sessions in the simulation (C8): clients, their requests on the network, and the nodes that serve them.
//!
//! The nodes run `convoke-http-session`, as the server does. Clients behave as docs/consistency.md asks them to: one request at
//! a time, and repairs after a change of node. Everything here takes its chances from a random generator of its own, so
//! that the rest of a plan does not depend on it.

mod client;
mod serving;
mod transport;

pub use client::{Balancer, HttpClient, HttpMember};
pub(crate) use serving::HttpNode;
pub(crate) use transport::Exchange;
pub use transport::Outcome;

use crate::invariants::Violation;
use crate::network::{Micros, Place, SECOND};
use crate::world::World;
use convoke_core::ErrorCode;
use convoke_http_session::{Answer, Mutation, Secret, SessionRequest};
use std::collections::BTreeMap;

/// What happens later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HttpEvent {
    /// A connection attempt or a request reaches its node.
    Arrive {
        exchange: u64,
    },
    /// An answer reaches the sender of the request.
    Return {
        exchange: u64,
    },
    /// The sender of a request gives up waiting.
    Expire {
        exchange: u64,
    },
    /// A request goes on at a node.
    Step {
        host: usize,
        boot: u64,
        task: u64,
    },
    Wake {
        client: usize,
        run: u64,
    },
}

/// A request on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// One attempt of a client; a forwarded request keeps it.
    pub(crate) attempt: u64,
    pub(crate) client: usize,
    pub(crate) body: Body,
    pub(crate) forwarded: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Create,
    Request { secret: Secret, request: SessionRequest },
}

/// An answer on the wire.
#[derive(Clone, Debug)]
pub struct Response {
    /// The node that decided.
    pub(crate) host: usize,
    pub(crate) result: Result<(Secret, Answer), ErrorCode>,
}

/// What is known of one attempt of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempt {
    /// The secret is not that of the session.
    pub(crate) forged: bool,
    /// Nodes changed something because of it, so many times.
    pub(crate) executed: u32,
}

#[derive(Debug)]
pub struct Http {
    pub(crate) rng: fastrand::Rng,
    pub clients: Vec<HttpClient>,
    pub(crate) exchanges: BTreeMap<u64, Exchange>,
    pub(crate) nodes: BTreeMap<usize, HttpNode>,
    pub(crate) attempts: BTreeMap<u64, Attempt>,
    /// Of exchanges, tasks and attempts.
    number: u64,
    pub mutation: Mutation,
    /// Members that HTTP clients ever wanted.
    pub(crate) ids: usize,
    /// The next answer of this node is lost with its connection.
    pub lose_answer_of: Option<usize>,
    /// Checks that were made where the answers are.
    pub(crate) checks: u64,
}

impl Http {
    pub(crate) fn new(seed: u64, mutation: Mutation) -> Self {
        Http {
            rng: fastrand::Rng::with_seed(seed ^ 0x4774_9c8e_55e5_510c),
            clients: Vec::new(),
            exchanges: BTreeMap::new(),
            nodes: BTreeMap::new(),
            attempts: BTreeMap::new(),
            number: 0,
            mutation,
            ids: 0,
            lose_answer_of: None,
            checks: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

impl World {
    pub(crate) fn http_event(&mut self, event: HttpEvent) {
        match event {
            HttpEvent::Arrive { exchange } => self.http_arrive(exchange),
            HttpEvent::Return { exchange } => self.http_return(exchange),
            HttpEvent::Expire { exchange } => self.http_expire(exchange),
            HttpEvent::Step { host, boot, task } => {
                if self.hosts[host].boot == boot {
                    self.input(host, crate::host::Input::HttpStep { task });
                }
            }
            HttpEvent::Wake { client, run } => {
                if self.http.clients[client].run == run {
                    self.http_wake(client);
                }
            }
        }
    }

    /// Where an HTTP client is: beside an SDK client, and cut off with it.
    pub(crate) fn http_place(&self, client: usize) -> Place {
        Place::Client(self.http.clients[client].beside)
    }

    fn http_latency(&mut self, one: Place, other: Place) -> Micros {
        let region = |place: Place| match place {
            Place::Host(host) => self.hosts[host].region,
            Place::Client(client) => client % self.setup.regions.max(1),
        };
        let base = if region(one) == region(other) { 300 } else { 15_000 };
        base + self.http.rng.u64(..base) + self.network.spike(one, other)
    }

    pub(crate) fn http_violation(&mut self, message: String) {
        let now = self.now;
        self.violate(Violation::new(crate::invariants::HTTP_ANSWERS, now, message));
    }
}

/// How often something is sent again that a cut holds back.
const RETRANSMIT: Micros = SECOND;
