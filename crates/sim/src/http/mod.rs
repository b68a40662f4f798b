//! HTTP sessions in the simulation (C8): clients, their requests on the network, and the nodes that serve them.
//!
//! The nodes run `convoke-http-session`, as the server does. Clients behave as docs/consistency.md requires: they
//! repair their members after a change of node, and some of them send two requests in parallel. This module has its own random generator, so that the rest of a plan
//! does not depend on it.

mod checks;
mod client;
mod operation;
mod parallel;
mod serving;
mod transport;
mod workload;

pub use client::{Balancer, HttpClient, HttpMember};
pub(crate) use serving::HttpNode;
pub(crate) use transport::Exchange;
pub use transport::SendResult;
pub(crate) use workload::is_contested;

use crate::invariants::Violation;
use crate::network::{Micros, SECOND, Site};
use crate::world::World;
use convoke_core::ErrorCode;
use convoke_core::member::Liveness;
use convoke_http_session::{ClientOrder, Mutation, Secret, SessionAnswer, SessionOperation, SessionToken};
use std::collections::BTreeMap;

/// A scheduled event.
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
    /// The sender of a request stops waiting.
    Expire {
        exchange: u64,
    },
    /// A node continues a request.
    Step {
        host: usize,
        boot: u64,
        task: u64,
    },
    /// The end of a client's kept connection reaches its node.
    HangUp {
        client: usize,
        host: usize,
        connection: u64,
    },
    Wake {
        client: usize,
        process: u64,
    },
}

/// A request on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The attempt of a client; a forwarded request has the same number.
    pub(crate) attempt: u64,
    pub(crate) client: usize,
    pub(crate) body: Body,
    pub(crate) forwarded: bool,
    /// The kept connection on which a client with `fast` liveness sent it.
    pub(crate) connection: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Create(SessionSettings),
    Request { secret: Secret, operation: SessionOperation, order: ClientOrder },
}

/// The settings with which a client creates its sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSettings {
    /// The id that the client chose, if it did.
    pub(crate) client: Option<String>,
    /// The requested timeout; 0 for the default of the node.
    pub(crate) timeout_ms: u32,
    pub(crate) liveness: Liveness,
}

/// An answer on the wire.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The node that answered.
    pub(crate) host: usize,
    pub(crate) result: Result<(Secret, SessionAnswer), ErrorCode>,
    /// The session's token.
    pub(crate) token: SessionToken,
    /// With `WRITES_LOST`: the members of the session.
    pub(crate) members: Vec<String>,
}

/// The checker's record of one attempt of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempt {
    /// The request has a forged secret.
    pub(crate) forged: bool,
    /// How many times a node changed something because of it.
    pub(crate) executed: u32,
}

#[derive(Debug)]
pub struct Http {
    pub(crate) rng: fastrand::Rng,
    pub clients: Vec<HttpClient>,
    pub(crate) exchanges: BTreeMap<u64, Exchange>,
    pub(crate) nodes: BTreeMap<usize, HttpNode>,
    pub(crate) attempts: BTreeMap<u64, Attempt>,
    /// The last number of an exchange, task or attempt.
    number: u64,
    pub mutation: Mutation,
    /// Number of members that HTTP clients ever registered.
    pub(crate) ids: usize,
    /// The next answer of this node is lost with its connection.
    pub lose_answer_of: Option<usize>,
    /// The next step at this node finds its queue full, once the answer of `lose_answer_of` is lost.
    pub full_queue_of: Option<usize>,
    /// Maximum number of sessions at a node. It applies to nodes that start later.
    pub session_limit: usize,
    /// The last tokens that nodes returned, by the entry of the session.
    issued: BTreeMap<u64, Vec<SessionToken>>,
    /// Checks of `http_answers`.
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
            full_queue_of: None,
            session_limit: SESSION_LIMIT,
            issued: BTreeMap::new(),
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
            HttpEvent::HangUp { client, host, connection } => self.http_hang_up_arrives(client, host, connection),
            HttpEvent::Step { host, boot, task } => {
                if self.hosts[host].boot == boot {
                    self.input(host, crate::host::Input::HttpStep { task });
                }
            }
            HttpEvent::Wake { client, process } => {
                if self.http.clients[client].process == process {
                    self.http_wake(client);
                }
            }
        }
    }

    /// The place of an HTTP client on the network. It shares the machine of an SDK client, and its partitions.
    pub(crate) fn http_place(&self, client: usize) -> Site {
        Site::Client(self.http.clients[client].beside)
    }

    fn http_latency(&mut self, one: Site, other: Site) -> Micros {
        let region = |place: Site| match place {
            Site::Host(host) => self.hosts[host].region,
            Site::Client(client) => client % self.setup.regions.max(1),
        };
        let base = if region(one) == region(other) { 300 } else { 15_000 };
        base + self.http.rng.u64(..base) + self.network.spike(one, other)
    }

    pub(crate) fn http_violation(&mut self, message: String) {
        let now = self.now;
        self.violate(Violation::new(crate::invariants::HTTP_ANSWERS, now, message));
    }
}

/// Default limit of HTTP sessions per node.
const SESSION_LIMIT: usize = 1_000;

/// Interval of retransmissions during a cut.
const RETRANSMIT: Micros = SECOND;
