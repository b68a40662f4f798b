//! STUB with the final signatures; bodies are being written.
mod api;
mod counters;
pub use api::*;
pub use counters::Counters;
use crate::config::{Config, ConfigError};
use crate::error::Refusal;
use crate::filter::Filter;
use crate::member::{Member, MetadataUpdate};
use crate::mutant::Mutation;
use crate::time::Time;
use crate::version::{Incarnation, NodeId, OriginId, VectorClock, Version};

/// What the shell knows at start that is not configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Incarnation number of the last run, from disk; 0 if there is none.
    pub persisted: u64,
    /// Random, different for every run.
    pub nonce: u64,
    /// UNIX ms, for display only.
    pub wall_ms: u64,
    pub mutation: Mutation,
}

#[derive(Debug)]
pub struct Node {}

/// A peer as shown by `convoke nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub node: NodeId,
    pub state: PeerState,
    pub region: String,
    pub peer_address: String,
    pub client_address: String,
    pub incarnation: Option<Incarnation>,
    pub ready: bool,
}
/// A name as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameView {
    pub name: String,
    pub location: String,
    pub node: NodeId,
    pub version: Version,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    pub service: String,
    pub up: usize,
    pub down: usize,
    pub drained: usize,
}
/// A slot, for checks from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub name: bool,
    pub id: String,
    pub shown: crate::member::Status,
    pub stated: crate::member::Status,
    pub claim: u64,
    pub seq: u64,
    pub origin: OriginId,
    pub n: u64,
    pub client: String,
    pub nonce: u64,
    pub drained: bool,
    pub metadata: crate::member::Metadata,
    pub inferred: bool,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub members: usize,
    pub names: usize,
    pub tombstones: usize,
    pub sessions: usize,
    pub subscribers: usize,
    /// Longest subscriber queue.
    pub subscriber_queue: usize,
    pub links: usize,
    pub origins: usize,
    pub retired: usize,
    pub timers: usize,
}
#[allow(unused_variables)]
impl Node {
    pub fn new(config: Config, start: Start, now: Time) -> Result<Node, ConfigError> { todo!() }
    /// Starts dialing. Call once.
    pub fn begin(&mut self, now: Time, out: &mut Output) { todo!() }
    /// `wake` wants to be called then.
    pub fn next_wake(&self) -> Time { todo!() }
    pub fn wake(&mut self, now: Time, out: &mut Output) { todo!() }
    /// Sends what was written since the last call to the peers; call after every batch of inputs.
    pub fn flush(&mut self, now: Time, out: &mut Output) { todo!() }
    pub fn dialed(&mut self, now: Time, dial: DialId, link: LinkId, out: &mut Output) { todo!() }
    pub fn dial_failed(&mut self, now: Time, dial: DialId, out: &mut Output) { todo!() }
    pub fn accepted(&mut self, now: Time, link: LinkId, out: &mut Output) { todo!() }
    pub fn received(&mut self, now: Time, link: LinkId, frame: &[u8], out: &mut Output) { todo!() }
    pub fn closed(&mut self, now: Time, link: LinkId, out: &mut Output) { todo!() }
    pub fn attach(&mut self, now: Time, wall_ms: u64, conn: ConnId, request: &Attach, out: &mut Output) -> Result<Attached, Refusal> { todo!() }
    pub fn register(&mut self, now: Time, wall_ms: u64, session: SessionId, seq: u64, member: &AttachMember, out: &mut Output) -> Result<Version, Refusal> { todo!() }
    pub fn update(&mut self, now: Time, session: SessionId, seq: u64, id: &str, update: &MetadataUpdate, expected: Option<Version>, out: &mut Output) -> Result<Version, Refusal> { todo!() }
    pub fn unregister(&mut self, now: Time, session: SessionId, seq: u64, id: &str, out: &mut Output) -> Result<(), Refusal> { todo!() }
    pub fn heartbeat(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Refusal> { todo!() }
    /// Clean close: all members of the session are unregistered at once.
    pub fn close_session(&mut self, now: Time, session: SessionId, out: &mut Output) -> Result<(), Refusal> { todo!() }
    /// The connection of a client is gone.
    pub fn disconnected(&mut self, now: Time, conn: ConnId, out: &mut Output) { todo!() }
    pub fn drain(&mut self, now: Time, id: &str, drained: bool, out: &mut Output) -> Result<(), Refusal> { todo!() }
    /// Graceful stop (N6); ends with Effect::Stop.
    pub fn stop(&mut self, now: Time, out: &mut Output) { todo!() }
    /// Removes a peer for good, until it dials in again.
    pub fn forget(&mut self, now: Time, node: &NodeId, out: &mut Output) -> Result<(), Refusal> { todo!() }
    pub fn register_name(&mut self, now: Time, name: &str, location: &str, out: &mut Output) -> Result<Version, Refusal> { todo!() }
    pub fn unregister_name(&mut self, now: Time, name: &str, out: &mut Output) -> Result<(), Refusal> { todo!() }
    pub fn names_complete(&mut self, now: Time, out: &mut Output) { todo!() }
    pub fn name(&self, name: &str) -> Option<NameView> { todo!() }
    pub fn member(&self, id: &str) -> Option<Member> { todo!() }
    /// Members that match, in no particular but stable order, at most `limit`, after `cursor`; and the next cursor.
    pub fn members(&self, filter: &Filter, cursor: Option<u32>, limit: usize) -> (Vec<Member>, Option<u32>) { todo!() }
    pub fn services(&self) -> Vec<ServiceView> { todo!() }
    pub fn peers(&self) -> Vec<PeerView> { todo!() }
    pub fn subscribe(&mut self, now: Time, interest: Interest, resume: Resume, out: &mut Output) -> Result<SubscriberId, Refusal> { todo!() }
    pub fn unsubscribe(&mut self, subscriber: SubscriberId) { todo!() }
    /// Takes up to `max` stream events. Snapshots are produced here, at the subscriber's pace. Returns whether there is more right now.
    pub fn take(&mut self, now: Time, subscriber: SubscriberId, max: usize, events: &mut Vec<StreamEvent>) -> bool { todo!() }
    pub fn is_ready(&self) -> bool { todo!() }
    pub fn degraded(&self) -> Vec<DegradedReason> { todo!() }
    pub fn origin(&self) -> &OriginId { todo!() }
    pub fn counters(&self) -> &Counters { todo!() }
    pub fn context(&self) -> VectorClock { todo!() }
    pub fn context_hash(&self) -> u64 { todo!() }
    /// Retired markers (D10): node, highest retired incarnation.
    pub fn retired(&self) -> Vec<(NodeId, Incarnation)> { todo!() }
    /// Every slot, members and names, sorted by (name, id), tombstones included.
    pub fn slots(&self) -> Vec<SlotView> { todo!() }
    pub fn slot(&self, id: &str) -> Option<SlotView> { todo!() }
    pub fn sizes(&self) -> Sizes { todo!() }
    /// Whether an origin counts as alive here (L2); unknown origins do not.
    pub fn admits(&self, origin: &OriginId) -> bool { todo!() }
    /// The node responsible for an origin's members while it is silent (L4).
    pub fn responsible_for(&self, origin: &OriginId) -> Option<NodeId> { todo!() }
}
