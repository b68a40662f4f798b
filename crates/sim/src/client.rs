//! Clients: the SDK's own session (`convoke-session`), and the application around it.
//!
//! State only. `sdk.rs` runs the session, `serving.rs` is the node's side of a connection, `workload.rs` has the calls
//! of the application.

use crate::network::Micros;
use convoke_core::member::Liveness;
use convoke_core::node::SessionId;
use convoke_core::version::Version;
use convoke_proto::v1;
use convoke_session::session::{ConnectionId, OperationId, RegistrationId, Session};
use convoke_session::{MemberSpec, Update};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message from a client to a node.
#[derive(Clone, Debug)]
pub enum FromClient {
    Message(v1::ClientMessage),
    /// A request that arrives a second time, for the session in which it was executed first (C5).
    Again {
        session: SessionId,
        request: v1::Request,
    },
}

/// State of the client's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Not started, or crashed.
    Dead,
    Running,
    /// Closed cleanly, or superseded by another process.
    Stopped,
}

/// The connection that the session has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub connection: ConnectionId,
    pub host: usize,
    /// Connection on the virtual network, once it is established.
    pub conn: Option<u64>,
    pub attached: bool,
}

/// A member from the application's point of view.
#[derive(Clone, Debug)]
pub struct Holding {
    pub spec: MemberSpec,
    pub takeover: bool,
    /// Registration in the current session; `None` before the process has one.
    pub registration: Option<RegistrationId>,
    /// Version of the last acknowledged write in the current attachment.
    pub acknowledged: Option<Version>,
    /// Metadata after the last acknowledged write.
    pub acknowledged_metadata: BTreeMap<String, String>,
    pub acknowledged_at: Micros,
}

impl Holding {
    pub fn new(spec: MemberSpec, takeover: bool) -> Self {
        Holding {
            spec,
            takeover,
            registration: None,
            acknowledged: None,
            acknowledged_metadata: BTreeMap::new(),
            acknowledged_at: 0,
        }
    }
}

/// An operation that the session has not answered yet.
#[derive(Clone, Debug)]
pub enum Pending {
    Register { id: String, registration: RegistrationId, metadata: BTreeMap<String, String> },
    Update { id: String, registration: RegistrationId, update: Update, conditional: bool },
    Unregister { id: String },
}

#[derive(Debug)]
pub struct Client {
    pub id: String,
    pub nonce: u64,
    /// Highest claim of this client's earlier processes.
    pub past_claim: u64,
    /// Number of processes started so far. Events of an earlier process are ignored.
    pub process_number: u64,
    pub liveness: Liveness,
    pub region: usize,
    pub process: ProcessState,
    /// The SDK session, built at the first wake of a process.
    pub session: Option<Session>,
    pub link: Option<Link>,
    /// The next wake of the session on the event heap.
    pub wake_at: Option<Micros>,
    /// The process is paused: the session is not woken.
    pub paused: bool,
    /// Claim of the last attach that was sent, and of the last accepted one.
    pub claim: u64,
    pub previous_claim: u64,
    /// An attach with a claim up to this one is answered with `STALE_CLAIM`, as if many attempts had been made.
    pub raise_to: u64,
    /// Such an answer, until the session has processed it.
    pub bounced: Option<(ConnectionId, v1::ServerMessage)>,
    pub attach_sent: Micros,
    pub members: BTreeMap<String, Holding>,
    /// Unregistered by the application, not yet acknowledged by a node.
    pub unregistered: BTreeSet<String>,
    pub closing: bool,
    pub pending: BTreeMap<OperationId, Pending>,
    pub heartbeat_interval: Micros,
    pub heartbeat_timeout: Micros,
    /// Sending time of the latest heartbeat or attach that was answered.
    pub last_echo: Micros,
    /// Time since which no gap between such sending times came near the heartbeat timeout.
    pub steady_since: Option<Micros>,
    /// Hosts this client was recently attached to: host, from, until.
    pub history: VecDeque<(usize, Micros, Micros)>,
    /// The only node address that the next process gets at first.
    pub prefer: Option<usize>,
    /// The hosts whose addresses the session has, as a set of bits.
    pub known: u128,
    pub died_at: Option<Micros>,
    /// When the process was started, and when it resumed after a pause.
    pub started_at: Micros,
    pub resumed_at: Micros,
    /// Time of the last change to this client.
    pub changed_at: Micros,
    /// A second process was started with this id. Which of the two wins depends on timing (C2).
    pub shares_id: bool,
    /// An observer: it never has members.
    pub observes: bool,
    /// Members the client registers when it is started again after a crash.
    pub restart_with: Option<BTreeMap<String, Holding>>,
}

impl Client {
    pub fn new(id: String, region: usize, heartbeat_interval: Micros, heartbeat_timeout: Micros) -> Self {
        Client {
            id,
            nonce: 0,
            past_claim: 0,
            process_number: 0,
            liveness: Liveness::Normal,
            region,
            process: ProcessState::Dead,
            session: None,
            link: None,
            wake_at: None,
            paused: false,
            claim: 0,
            previous_claim: 0,
            raise_to: 0,
            bounced: None,
            attach_sent: 0,
            members: BTreeMap::new(),
            unregistered: BTreeSet::new(),
            closing: false,
            pending: BTreeMap::new(),
            heartbeat_interval,
            heartbeat_timeout,
            last_echo: 0,
            steady_since: None,
            history: VecDeque::new(),
            prefer: None,
            known: 0,
            died_at: None,
            started_at: 0,
            resumed_at: 0,
            changed_at: 0,
            shares_id: false,
            observes: false,
            restart_with: None,
        }
    }

    /// Returns a second process with the same id and the same members.
    pub fn second(&self) -> Client {
        let wanted = |holding: &Holding| Holding::new(holding.spec.clone(), holding.takeover);
        Client {
            liveness: self.liveness,
            past_claim: self.past_claim.max(self.claim),
            members: self.members.iter().map(|(id, holding)| (id.clone(), wanted(holding))).collect(),
            shares_id: self.shares_id,
            observes: self.observes,
            ..Client::new(self.id.clone(), self.region, self.heartbeat_interval, self.heartbeat_timeout)
        }
    }

    pub fn alive(&self) -> bool {
        self.process == ProcessState::Running
    }

    pub fn attached_to(&self) -> Option<usize> {
        self.link.filter(|link| link.attached).map(|link| link.host)
    }

    pub fn conn(&self) -> Option<u64> {
        self.link.and_then(|link| link.conn)
    }

    pub fn host(&self) -> Option<usize> {
        self.link.map(|link| link.host)
    }

    /// The member of a registration, unless the application has replaced or released it since.
    pub fn registered(&mut self, id: &str, registration: RegistrationId) -> Option<&mut Holding> {
        self.members.get_mut(id).filter(|holding| holding.registration == Some(registration))
    }

    /// Records an answer to a message that was sent at `sent`: the node received that message.
    pub fn record_answer(&mut self, sent: Micros) {
        if sent <= self.last_echo && self.steady_since.is_some() {
            return;
        }
        // Two heartbeats of tolerance: the node's timer runs between arrivals, the client's between sends.
        let limit = self.heartbeat_timeout - self.heartbeat_interval;
        if self.steady_since.is_none() || sent.saturating_sub(self.last_echo) > limit {
            self.steady_since = Some(sent);
        }
        self.last_echo = self.last_echo.max(sent);
    }

    /// Returns the time since which this client had no long silence, as of `now`.
    pub fn steady(&self, now: Micros) -> Option<Micros> {
        let limit = self.heartbeat_timeout - self.heartbeat_interval;
        self.steady_since.filter(|_| self.alive() && now.saturating_sub(self.last_echo) <= limit)
    }
}
