//! Clients: the SDK's own session (`convoke-session`), and the application around it.
//!
//! State only. `sdk.rs` runs the session, `serving.rs` is the node's side of a connection, `workload.rs` has the calls
//! of the application.

use crate::network::Micros;
use convoke_core::member::{Liveness, MemberSpec};
use convoke_core::node::SessionId;
use convoke_core::version::Version;
use convoke_proto::v1;
use convoke_session::Update;
use convoke_session::session::{ConnectionId, OperationId, RegistrationId, Session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From a client to a node.
#[derive(Clone, Debug)]
pub enum FromClient {
    Message(v1::ClientMessage),
    /// A request that arrives a second time, for the session in which it was executed first (C5).
    Again {
        session: SessionId,
        request: v1::Request,
    },
}

/// What became of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Not started, or crashed.
    Dead,
    Running,
    /// Closed cleanly, or superseded by another process.
    Stopped,
}

/// The connection that the session has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub connection: ConnectionId,
    pub host: usize,
    /// On the virtual network, once it stands.
    pub conn: Option<u64>,
    pub attached: bool,
}

/// A member as its application sees it.
#[derive(Clone, Debug)]
pub struct Holding {
    pub spec: MemberSpec,
    pub takeover: bool,
    /// Of the present session; `None` before the process has one.
    pub registration: Option<RegistrationId>,
    /// Version of the last acknowledged write in the present attachment.
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
    /// Counts the processes; whatever belongs to an earlier one is void.
    pub run: u64,
    pub liveness: Liveness,
    pub region: usize,
    pub process: Process,
    /// The SDK. It is built at the first wake of a process.
    pub session: Option<Session>,
    pub link: Option<Link>,
    /// The next wake of the session on the event heap.
    pub wake_at: Option<Micros>,
    /// The process does not run: the session is not woken.
    pub hangs: bool,
    /// Of the last attach that was sent, and of the last accepted one.
    pub claim: u64,
    pub previous_claim: u64,
    /// The next attach with a claim up to this is answered with STALE_CLAIM, as if many attempts had been made.
    pub raise_to: u64,
    /// Such an answer, until the session has taken it.
    pub bounced: Option<(ConnectionId, v1::ServerMessage)>,
    pub attach_sent: Micros,
    pub members: BTreeMap<String, Holding>,
    /// Unregistered by the application, not yet acknowledged by a node.
    pub unregistered: BTreeSet<String>,
    pub closing: bool,
    pub pending: BTreeMap<OperationId, Pending>,
    pub heartbeat_interval: Micros,
    pub heartbeat_timeout: Micros,
    /// Sending time of the youngest heartbeat or attach that was answered.
    pub last_echo: Micros,
    /// Since when no gap between such sending times came near the heartbeat timeout.
    pub steady_since: Option<Micros>,
    /// Hosts attached to lately: host, from, until.
    pub history: VecDeque<(usize, Micros, Micros)>,
    /// The only node that the next process is told of at first.
    pub prefer: Option<usize>,
    pub died_at: Option<Micros>,
    /// When the process was started, and when it ran again after a pause.
    pub started_at: Micros,
    pub woken_at: Micros,
    /// Everything about this client has been still since then.
    pub changed_at: Micros,
    /// Another process was run with this id: which of the two counts is then a matter of time (C2).
    pub shares_id: bool,
    /// Has no members, and never will.
    pub observes: bool,
    /// Members it wants when it is started again after a crash.
    pub restart_with: Option<BTreeMap<String, Holding>>,
}

impl Client {
    pub fn new(id: String, region: usize, heartbeat_interval: Micros, heartbeat_timeout: Micros) -> Self {
        Client {
            id,
            nonce: 0,
            past_claim: 0,
            run: 0,
            liveness: Liveness::Normal,
            region,
            process: Process::Dead,
            session: None,
            link: None,
            wake_at: None,
            hangs: false,
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
            died_at: None,
            started_at: 0,
            woken_at: 0,
            changed_at: 0,
            shares_id: false,
            observes: false,
            restart_with: None,
        }
    }

    /// Another process with the same id that wants the same.
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
        self.process == Process::Running
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

    /// An answered message sent at `sent`: the node heard from us then.
    pub fn heard(&mut self, sent: Micros) {
        if sent <= self.last_echo && self.steady_since.is_some() {
            return;
        }
        // Two heartbeats of room: the node's timer runs between arrivals, ours between sendings.
        let limit = self.heartbeat_timeout - self.heartbeat_interval;
        if self.steady_since.is_none() || sent.saturating_sub(self.last_echo) > limit {
            self.steady_since = Some(sent);
        }
        self.last_echo = self.last_echo.max(sent);
    }

    /// Since when this client has never been silent for long, judged at `now`.
    pub fn steady(&self, now: Micros) -> Option<Micros> {
        let limit = self.heartbeat_timeout - self.heartbeat_interval;
        self.steady_since.filter(|_| self.alive() && now.saturating_sub(self.last_echo) <= limit)
    }
}
