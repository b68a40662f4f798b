//! Inputs and outputs of a node.

use super::{CheckReport, ExcessiveNumber};
use crate::error::Rejection;
use crate::filter::Filter;
use crate::member::{Checks, Liveness, Member, MemberSpec, Record, Space};
use crate::time::Duration;
use crate::version::{Dot, Incarnation, NodeId, OriginId, Version};
use bytes::Bytes;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One connection to a peer; the shell never reuses a number (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// One attempt to connect to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

/// One connection of a client; the shell never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A session at this node. The generation makes an old handle useless after the session ended (C2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A watcher at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A client attaches, or attaches again (C1–C3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    pub client: String,
    /// Random per process.
    pub nonce: u64,
    /// The claim, one more with every attempt.
    pub claim: u64,
    /// The claim of this process's last accepted attach; 0 if there was none.
    pub previous_claim: u64,
    pub liveness: Liveness,
    /// Requested heartbeat timeout of this session.
    pub timeout: Option<Duration>,
    pub members: Vec<AttachMember>,
    /// Ids whose unregistration was not yet acknowledged.
    pub unregistered: Vec<String>,
    /// The principal that attaches; empty if this node does not know principals (C14).
    pub principal: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachMember {
    pub spec: MemberSpec,
    /// Take the id even if another client holds it.
    pub takeover: bool,
}

/// A client without state of its own attaches again: the registry provides its members (C8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reattach {
    pub client: String,
    pub nonce: u64,
    pub liveness: Liveness,
    /// Requested heartbeat timeout of this session.
    pub timeout: Option<Duration>,
    /// Increment above the highest known claim, at least 1. Random, so that two nodes asked at once differ.
    pub raise: u64,
    /// The client's request, if it changes nothing or is numbered: members of a client that numbers its requests keep their
    /// claims, so that the attach changes the owner and nothing else (C10).
    pub order: RequestOrder,
    /// A new process: its session supersedes the current one of this client id, and no members are restored.
    pub fresh: bool,
    /// The incarnation that created the session. While it runs, only it knows whether a session without members exists.
    pub creator: Option<OriginId>,
    /// The principal that attaches; empty if this node does not know principals (C14).
    pub principal: String,
}

/// How a request of a client without state is ordered among its other requests (C10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestOrder {
    /// A write without a number.
    #[default]
    Arrival,
    /// A heartbeat without a number: there is nothing to order.
    Nothing,
    /// The client numbered the request.
    Numbered,
}

/// The node that holds a session, and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    pub node: NodeId,
    pub client_address: String,
    pub state: PeerState,
    /// The incarnation that owns the members, or created the session.
    pub origin: OriginId,
}

/// An accepted attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub session: SessionId,
    pub heartbeat_interval: Duration,
    pub timeout: Duration,
    pub versions: Vec<(String, Version)>,
    /// The last write of this node. A node that has received it has the members as attached.
    pub last_write: Dot,
    /// The members have new owners and their old claims, so the attach outranks no write that this node lacks (C10).
    pub claims_kept: bool,
    /// Members that were not accepted; the rest of the session is.
    pub rejected: Vec<(String, Rejection)>,
    /// Members of other processes of the client that may have replaced members of this one (C4), and members that the session
    /// lost before (C20).
    pub taken_over: Vec<String>,
}

/// An unsolicited message to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A newer session of the same process superseded this one; attach again with a claim above `known` if that was not intended.
    Lost { known: u64 },
    /// Another process with the same client id superseded this session.
    Superseded { known: u64 },
    /// Another client took this member. `last`: the session has no other.
    TakenOver { id: String, last: bool },
    /// The node is stopping: attach to this one, if any.
    Handover { target: Option<HandoverTarget> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverTarget {
    pub node: NodeId,
    pub client_address: String,
}

/// Selection of a watcher.
#[derive(Clone, Debug)]
pub struct WatchSelection {
    pub space: Space,
    pub filter: Filter,
    /// What the watcher may read, if that is not everything; the filter selects no more than this. Such a watcher is never
    /// resumed by changes, which name members of every service (AU10).
    pub readable: Option<Filter>,
}

impl WatchSelection {
    /// A selection of a watcher that may read everything.
    pub fn new(space: Space, filter: Filter) -> WatchSelection {
        WatchSelection { space, filter, readable: None }
    }

    /// Whether the watcher may know that this member exists.
    pub(crate) fn may_know(&self, member: &Member) -> bool {
        self.readable.as_ref().is_none_or(|readable| readable.matches(&member.subject()))
    }
}

/// The position from which a watcher resumes.
#[derive(Clone, Debug, Default)]
pub enum Resume {
    /// No position: snapshot.
    #[default]
    Fresh,
    /// The token of the last mark received, and the versions of everything received after it (unregistrations too).
    /// `known`, the versions of the whole view, is used if the token is too old.
    Token { token: Vec<u8>, recent: BTreeMap<String, Version>, known: Option<BTreeMap<String, Version>> },
    /// Versions of everything in view.
    Known(BTreeMap<String, Version>),
}

/// One entry of a watcher's stream (W1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A member of the initial view, or the current state of one that may have changed since the token.
    Snapshot(Member),
    /// The view is complete as of now.
    CaughtUp,
    Registered(Member),
    Updated(Member),
    StatusChanged(Member),
    OwnerChanged(Member),
    Unregistered {
        id: String,
        version: Version,
    },
    /// Drop everything; a snapshot follows.
    Reset(ResetReason),
    /// Everything before this has been delivered; resume from here with the token.
    Mark(Bytes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// The watcher read too slowly.
    Overflow,
    /// The token is older than this node's history.
    TooOld,
    /// This node did not catch up with the token in time.
    Ahead,
    /// The token is not one of this cluster's, or damaged.
    Unreadable,
}

/// An effect for the shell to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Dial {
        dial: DialId,
        address: String,
        /// Which of the addresses behind a name comes first: see [`dial_order`](crate::node::dial_order).
        turn: u32,
    },
    Send {
        link: LinkId,
        frame: Bytes,
    },
    CloseLink {
        link: LinkId,
    },
    Notify {
        conn: ConnId,
        notice: Notice,
    },
    CloseClient {
        conn: ConnId,
    },
    /// Close every client connection without reading what it has buffered (L5).
    CloseAllClients,
    /// There are events to take for this watcher.
    Readable {
        watcher: WatcherId,
    },
    /// Store this incarnation number on disk before the next start (N1).
    Persist {
        incarnation: u64,
    },
    /// Store an agentless member on disk, in place of what is stored for its id (AG4).
    Archive {
        id: SmolStr,
        /// `None`: drop it.
        record: Option<Bytes>,
        /// Store this number too: the highest one of dropped tombstones.
        floor: u64,
    },
    /// The checks of a member whose owner is this node, after each change: it runs them, and calls
    /// [`Node::report_health`](crate::Node::report_health) (HC3).
    Checks {
        id: SmolStr,
        /// `None`: this node does not own the member any more, or it has no checks.
        checks: Option<(u64, Arc<Checks>)>,
    },
    /// A report about a check of a member of this node (HC4).
    CheckReported(CheckReport),
    /// Start a new incarnation of this node, with a higher number (N5, or a collision of incarnations).
    Restart {
        reason: RestartReason,
        incarnation: u64,
        inherited: InheritedState,
    },
    /// The graceful stop is complete, or the node must not continue.
    Stop {
        reason: StopReason,
    },
}

/// The agentless members that a node has stored (AG4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// As in [`Effect::Archive`], by id.
    pub records: BTreeMap<SmolStr, Bytes>,
    pub floor: u64,
}

/// State that an incarnation passes to the next one in the same process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InheritedState {
    /// The new incarnation may have no seed that leads to them (N3).
    pub(crate) peers: Vec<KnownPeer>,
    /// Tombstones that this node wrote and that others may have rejected, because its number was too low (N1).
    pub(crate) tombstones: Vec<Arc<Record>>,
    /// This process has completed an exchange before (N7).
    pub(crate) joined: bool,
}

/// Address of a known peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownPeer {
    pub(crate) node: NodeId,
    pub(crate) region: String,
    pub(crate) peer_address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartReason {
    PausedTooLong,
    /// Other nodes know writes of this incarnation that it does not know (P10).
    WritesUnknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Graceful,
    /// Another live process uses this node id (N4).
    IdentityConflict,
}

/// An event that an operator would put on a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryEvent {
    PeerUp {
        node: NodeId,
    },
    PeerLost {
        node: NodeId,
        reason: LossReason,
    },
    PeerFailed {
        node: NodeId,
        votes: usize,
        answers: usize,
    },
    PeerLeft {
        node: NodeId,
    },
    PeerRejected {
        node: Option<NodeId>,
        reason: String,
    },
    /// A peer sent a frame with a number that no correct node sends (P10).
    FrameRejected {
        node: Option<NodeId>,
        excess: ExcessiveNumber,
    },
    /// A peer holds other records although both have received the same writes (D16).
    Diverged {
        node: NodeId,
    },
    /// A peer that had diverged holds the same records again.
    DivergenceEnded {
        node: NodeId,
    },
    /// While this node starts: a peer reports another live process with its id. It retries until the timeout, in
    /// case that process has just died (N4).
    IdInUse {
        timeout: Duration,
    },
    /// A peer reports a newer incarnation or another process with this node's id, and this node continues: such a report
    /// does not stop it (N9).
    IdDisputed {
        by: NodeId,
        incarnation: Incarnation,
    },
    Serving {
        /// No peer has confirmed that the registry is complete (N8).
        first: bool,
        /// None of the seeds was reached (N7).
        alone: bool,
    },
    /// This node is serving although exchanges with these peers are not complete. Until `grace` has passed, it reports no
    /// member as absent to resuming watchers (N3).
    ServingWithout {
        peers: Vec<NodeId>,
        grace: Duration,
    },
    /// This node is no longer alone: it exchanged with a node, or an operator said that it is the first (N7).
    Joined {
        node: Option<NodeId>,
    },
    /// There is no node of this cluster at a seed.
    SeedFailed {
        address: String,
        failure: SeedFailure,
    },
    OriginSilent {
        origin: OriginId,
    },
    OriginReturned {
        origin: OriginId,
    },
    /// An incarnation of a node was retired.
    OriginRetired {
        origin: OriginId,
    },
    Conflict {
        id: String,
        winner: Dot,
        loser: Dot,
    },
    NameLost {
        name: String,
        winner: NodeId,
    },
    Degraded {
        reason: DegradedReason,
        until_ms: u64,
    },
    DegradedEnded {
        reason: DegradedReason,
    },
    Late {
        by: Duration,
    },
    FullMerge {
        from: NodeId,
        removed: usize,
    },
    /// An exchange brought everything that this node missed: frequent, and not for a timeline.
    Exchanged {
        from: NodeId,
        full: bool,
        chunks: u64,
        records: u64,
        /// From the first chunk on.
        took: Duration,
    },
}

/// Why a seed led to no node of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedFailure {
    Unresolvable,
    Refused,
    TimedOut,
    Unreachable,
    SpeaksHttp,
    /// It sent something else than frames of a peer.
    NotAPeer,
    /// It closed the connection before it answered.
    Closed,
    /// A certificate was refused, by this node or by the other.
    Certificate,
    OtherCluster,
    OtherVersion,
    Oneself,
    IdInUse,
    Full,
    Incarnations,
}

impl SeedFailure {
    pub fn as_str(self) -> &'static str {
        match self {
            SeedFailure::Unresolvable => "the name does not resolve",
            SeedFailure::Refused => "connection refused",
            SeedFailure::TimedOut => "no answer in time",
            SeedFailure::Unreachable => "unreachable",
            SeedFailure::SpeaksHttp => "speaks HTTP: this is a client port; use the peer port",
            SeedFailure::NotAPeer => "does not speak the peer protocol",
            SeedFailure::Closed => "closed the connection without an answer",
            SeedFailure::Certificate => "TLS failed: a certificate was refused, or only one of the two nodes uses TLS",
            SeedFailure::OtherCluster => "belongs to another cluster",
            SeedFailure::OtherVersion => "has another protocol version",
            SeedFailure::Oneself => "is this node itself",
            SeedFailure::IdInUse => "another process uses this node id",
            SeedFailure::Full => "has no room for another node",
            SeedFailure::Incarnations => "has no room for another incarnation of this node",
        }
    }
}

/// A seed, and the node or the failure found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedView {
    pub address: String,
    pub node: Option<NodeId>,
    pub failure: Option<SeedFailure>,
}

impl SeedView {
    /// The address and the failure as text.
    pub fn problem(&self) -> Option<String> {
        self.failure.map(|failure| format!("{}: {}", self.address, failure.as_str()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    Closed,
    Silent,
    OneWay,
    Replaced,
    Malformed,
    /// The peer claimed more than a correct node can (P10).
    Excessive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DegradedReason {
    /// Most clients of this node fell silent at once.
    Sessions,
    /// Most other nodes fell silent at once.
    Nodes,
    /// Another node reports a newer incarnation or another process with this node's id (N9).
    Identity,
}

/// Filled by every call; drained by the shell.
#[derive(Debug, Default)]
pub struct Output {
    pub effects: Vec<Effect>,
    pub events: Vec<RegistryEvent>,
    /// Members and names as shown from now on, in order; `left` = no longer shown. Only with `Start::publish`.
    pub changes: Vec<Member>,
    /// The set of revocations has changed (P11).
    pub revocations_changed: bool,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.events.is_empty() && self.changes.is_empty()
    }
}

/// Link state as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerState {
    Connecting,
    Up,
    Lost,
    Failed,
    Left,
    /// Known, but not linked directly: reached through its region's links (P9).
    Distant,
}

impl PeerState {
    pub const ALL: [PeerState; 6] =
        [PeerState::Connecting, PeerState::Up, PeerState::Lost, PeerState::Failed, PeerState::Left, PeerState::Distant];

    pub fn as_str(self) -> &'static str {
        match self {
            PeerState::Connecting => "connecting",
            PeerState::Up => "up",
            PeerState::Lost => "lost",
            PeerState::Failed => "failed",
            PeerState::Left => "left",
            PeerState::Distant => "distant",
        }
    }
}
