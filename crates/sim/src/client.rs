//! The client model: what an SDK does, and what its application believes.
//!
//! State only; the moves are in `session.rs`, the calls of the application in `workload.rs`.

use crate::network::Micros;
use convoke_core::Refusal;
use convoke_core::member::{Liveness, MemberSpec, MetadataUpdate};
use convoke_core::node::{Attach, AttachMember, Attached, Notice, SessionId};
use convoke_core::version::Version;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// From a client to a node.
#[derive(Clone, Debug)]
pub enum ClientMessage {
    Attach(Attach),
    /// Carries its sending time, which the answer echoes (C5).
    Heartbeat {
        session: SessionId,
        sent: Micros,
    },
    Request {
        session: SessionId,
        seq: u64,
        body: Body,
    },
    Close {
        session: SessionId,
    },
}

#[derive(Clone, Debug)]
pub enum Body {
    Register(AttachMember),
    Update { id: String, update: MetadataUpdate, expected: Option<Version> },
    Unregister { id: String },
}

/// From a node to a client.
#[derive(Clone, Debug)]
pub enum NodeMessage {
    Attached { claim: u64, result: Result<Attached, Refusal> },
    Beat { sent: Micros, result: Result<(), Refusal> },
    Answer { seq: u64, result: Result<Option<Version>, Refusal> },
    Closed(Result<(), Refusal>),
    Notice(Notice),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// Not started, or crashed.
    Dead,
    /// Waiting to try again.
    Waiting,
    Connecting {
        conn: Option<u64>,
        host: usize,
    },
    /// The attach is on its way.
    Attaching {
        conn: u64,
        host: usize,
        sent: Micros,
    },
    Attached {
        conn: u64,
        host: usize,
        session: SessionId,
    },
    /// The close is on its way.
    Closing {
        conn: u64,
        host: usize,
    },
    /// Closed cleanly, or superseded by another process.
    Stopped,
}

/// A member as its client sees it.
#[derive(Clone, Debug)]
pub struct Holding {
    pub spec: MemberSpec,
    pub takeover: bool,
    /// Version of the last acknowledged write in the present session.
    pub acknowledged: Option<Version>,
    /// Metadata of the last acknowledged write.
    pub acknowledged_metadata: BTreeMap<String, String>,
    pub acknowledged_at: Micros,
}

/// A request that was not answered yet.
#[derive(Clone, Debug)]
pub enum Pending {
    Register { id: String, after: BTreeMap<String, String> },
    Update { id: String, after: BTreeMap<String, String>, conditional: bool },
    Unregister { id: String },
}

#[derive(Clone, Debug)]
pub struct Client {
    pub id: String,
    pub nonce: u64,
    /// Highest claim of this client's earlier processes.
    pub past_claim: u64,
    pub process: u64,
    pub liveness: Liveness,
    pub region: usize,
    pub state: ClientState,
    pub claim: u64,
    pub previous_claim: u64,
    pub members: BTreeMap<String, Holding>,
    /// Unregistered by the application, not yet acknowledged by a node.
    pub unregistered: BTreeSet<String>,
    /// What the attach under way names.
    pub attach_members: BTreeMap<String, BTreeMap<String, String>>,
    pub attach_unregistered: BTreeSet<String>,
    pub closing: bool,
    pub seq: u64,
    pub pending: BTreeMap<u64, Pending>,
    /// Timers of an earlier state are void.
    pub generation: u64,
    pub heartbeat_interval: Micros,
    pub heartbeat_timeout: Micros,
    /// Sending time of the youngest heartbeat or attach that was answered.
    pub last_echo: Micros,
    /// Since when no gap between such sending times came near the heartbeat timeout.
    pub steady_since: Option<Micros>,
    /// Hosts attached to lately: host, from, until.
    pub history: VecDeque<(usize, Micros, Micros)>,
    pub attempts: u32,
    pub lost_at: Micros,
    pub superseded: u32,
    /// The node to avoid at the next attempt, or to prefer.
    pub avoid: Option<usize>,
    pub prefer: Option<usize>,
    pub died_at: Option<Micros>,
    /// Everything about this client has been still since then.
    pub changed_at: Micros,
    /// Another process was run with this id: whose word counts is then a matter of time (C2).
    pub shares_id: bool,
    /// Has no members, and never will.
    pub observes: bool,
    /// Goes elsewhere when so many heartbeats in a row were not answered.
    pub patience: u64,
    /// Members it wants when it is started again after a crash.
    pub restart_with: Option<BTreeMap<String, Holding>>,
}

impl Client {
    pub fn new(id: String, nonce: u64, region: usize, heartbeat_interval: Micros, heartbeat_timeout: Micros) -> Self {
        Client {
            id,
            nonce,
            past_claim: 0,
            process: 0,
            liveness: Liveness::Normal,
            region,
            state: ClientState::Dead,
            claim: 0,
            previous_claim: 0,
            members: BTreeMap::new(),
            unregistered: BTreeSet::new(),
            attach_members: BTreeMap::new(),
            attach_unregistered: BTreeSet::new(),
            closing: false,
            seq: 0,
            pending: BTreeMap::new(),
            generation: 0,
            heartbeat_interval,
            heartbeat_timeout,
            last_echo: 0,
            steady_since: None,
            history: VecDeque::new(),
            attempts: 0,
            lost_at: 0,
            superseded: 0,
            avoid: None,
            prefer: None,
            died_at: None,
            changed_at: 0,
            shares_id: false,
            observes: false,
            patience: 2,
            restart_with: None,
        }
    }

    pub fn alive(&self) -> bool {
        !matches!(self.state, ClientState::Dead | ClientState::Stopped)
    }

    pub fn attached_to(&self) -> Option<usize> {
        match self.state {
            ClientState::Attached { host, .. } => Some(host),
            _ => None,
        }
    }

    pub fn conn(&self) -> Option<u64> {
        match self.state {
            ClientState::Connecting { conn, .. } => conn,
            ClientState::Attaching { conn, .. }
            | ClientState::Attached { conn, .. }
            | ClientState::Closing { conn, .. } => Some(conn),
            ClientState::Dead | ClientState::Waiting | ClientState::Stopped => None,
        }
    }

    pub fn host(&self) -> Option<usize> {
        match self.state {
            ClientState::Connecting { host, .. }
            | ClientState::Attaching { host, .. }
            | ClientState::Attached { host, .. }
            | ClientState::Closing { host, .. } => Some(host),
            ClientState::Dead | ClientState::Waiting | ClientState::Stopped => None,
        }
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

    pub fn attach_request(&mut self) -> Attach {
        self.claim += 1;
        self.attach_members = self.members.iter().map(|(id, m)| (id.clone(), m.spec.metadata.clone())).collect();
        self.attach_unregistered = self.unregistered.clone();
        Attach {
            client: self.id.clone(),
            nonce: self.nonce,
            claim: self.claim,
            previous_claim: self.previous_claim,
            liveness: self.liveness,
            timeout: None,
            members: self
                .members
                .values()
                .map(|m| AttachMember { spec: m.spec.clone(), takeover: m.takeover })
                .collect(),
            unregistered: self.unregistered.iter().cloned().collect(),
        }
    }
}
