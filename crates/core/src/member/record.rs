//! Records: the stored and replicated form of members and names. Immutable; a change is a new record.

use super::{AGENTLESS_CLIENT, Checks, Health, Maintenance, Metadata, Status};
use crate::filter::Subject;
use crate::version::{OriginId, Rank, Version, request_of};
use smol_str::SmolStr;
use std::fmt;
use std::sync::Arc;

/// The two key spaces: members of clients, and names that nodes register on their own behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    Member,
    Name,
}

/// Whether a record is a registration or the tombstone of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    Live,
    Left,
}

/// The process a record belongs to: a client id and the nonce of one process using it (C2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientProcess {
    pub id: SmolStr,
    pub nonce: u64,
    /// The principal that attached it; empty if its node does not know principals (C14).
    pub principal: SmolStr,
}

impl ClientProcess {
    /// Whether both are the same process, whatever credentials it showed.
    pub(crate) fn is_same(&self, other: &ClientProcess) -> bool {
        self.id == other.id && self.nonce == other.nonce
    }
}

/// An origin as known to one node: its id, and the small number the node's tables use for it.
#[derive(PartialEq, Eq)]
pub struct Origin {
    pub id: OriginId,
    pub(crate) index: u32,
    pub(crate) tag: u32,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.id, f)
    }
}

/// The attributes that many members share, held once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deployment {
    pub(crate) service: SmolStr,
    pub(crate) locality: SmolStr,
    pub(crate) revision: SmolStr,
}

/// A stated record (D2).
///
/// The field order matters: with the reference counts before it, everything that a lookup touches (up to `weight`) is
/// 64 bytes. That is one cache line, if the allocator aligns to one.
#[derive(Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    pub(crate) id: SmolStr,
    pub(crate) origin: Arc<Origin>,
    /// Slot number at this node. Set when stored; any value in a draft.
    pub(crate) slot: u32,
    /// Odd = drained (C7).
    pub(crate) drain: u32,
    pub(crate) space: Space,
    pub(crate) kind: RecordKind,
    /// As stated by the owner: up or down. In a tombstone: up if the member was unregistered, down if it expired (C20).
    pub(crate) status: Status,
    /// The worst result of `checks`. In a tombstone: critical if the member was deregistered because of its health (HC5).
    pub(crate) health: Health,
    pub(crate) weight: u16,
    pub(crate) n: u64,
    pub(crate) claim: u64,
    pub(crate) seq: u64,
    /// Dot of the record this one replaced, tag of the origin and n; (0, 0) if there was none. While a node updates
    /// its own live record, the dot of the last record of another origin.
    pub(crate) predecessor: (u32, u64),
    pub(crate) client: Arc<ClientProcess>,
    pub(crate) deployment: Arc<Deployment>,
    pub(crate) created: u64,
    /// Wall-clock ms when the owner took the member; for display only.
    pub(crate) since: u64,
    /// Address of a member, location of a name.
    pub(crate) address: SmolStr,
    pub(crate) endpoints: Metadata,
    pub(crate) metadata: Metadata,
    /// Checks and their last results (HC1).
    pub(crate) checks: Option<Arc<Checks>>,
    /// Reason and end of the drain, if it has any (C21).
    pub(crate) maintenance: Option<Arc<Maintenance>>,
}

impl Record {
    /// The key of its slot.
    pub(crate) fn key(&self) -> (Space, SmolStr) {
        (self.space, self.id.clone())
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn rank(&self) -> Rank<'_> {
        Rank {
            claim: self.claim,
            seq: self.seq,
            node: &self.origin.id.node,
            incarnation: self.origin.id.incarnation,
            n: self.n,
        }
    }

    pub fn is_live(&self) -> bool {
        self.kind == RecordKind::Live
    }

    /// Whether no client keeps the member alive (AG1).
    pub fn is_agentless(&self) -> bool {
        self.client.id == AGENTLESS_CLIENT
    }

    /// Whether the same process wrote this record with a later request (C16). Its claim may be lower.
    pub(crate) fn is_of_later_request(&self, other: &Record) -> bool {
        self.client.is_same(&other.client) && request_of(self.seq) > request_of(other.seq)
    }

    /// The tombstone of a member that was unregistered, as a draft. A tombstone is repeated as it is.
    pub(crate) fn unregistered(&self) -> Record {
        self.ended(Status::Up)
    }

    /// The tombstone of a member that expired, as a draft. A tombstone is repeated as it is.
    pub(crate) fn expired(&self) -> Record {
        self.ended(Status::Down)
    }

    /// Client and times. The rest is large and not needed any more.
    fn ended(&self, status: Status) -> Record {
        let (endpoints, metadata) = (Metadata::default(), Metadata::default());
        let status = if self.is_live() { status } else { self.status };
        let health = if self.is_live() { Health::Passing } else { self.health };
        Record {
            kind: RecordKind::Left,
            status,
            seq: self.seq + 1,
            endpoints,
            metadata,
            health,
            checks: None,
            ..self.clone()
        }
    }

    /// For a mutant: the checks begin again.
    pub(crate) fn forget_results(&mut self) {
        let definitions = self.checks.as_ref().map(|checks| checks.definitions().to_vec()).unwrap_or_default();
        self.checks = Checks::registered(&definitions, None, 0);
        self.health = super::health_of(self.checks.as_ref());
    }

    pub fn origin(&self) -> &OriginId {
        &self.origin.id
    }

    pub fn n(&self) -> u64 {
        self.n
    }

    pub(crate) fn drained(&self) -> bool {
        self.drain % 2 == 1
    }

    /// Takes the drain mark of another record of the member, if it is higher.
    pub(crate) fn with_mark_of(self, other: &Record) -> Record {
        let higher = if other.drain > self.drain { other } else { &self };
        let (drain, maintenance) = (higher.drain, higher.maintenance.clone());
        Record { drain, maintenance, ..self }
    }

    /// The status the owner states.
    pub fn stated(&self) -> Status {
        match self.kind {
            RecordKind::Live => self.status,
            RecordKind::Left => Status::Left,
        }
    }

    /// Whether `other` describes the same member apart from what may change within a session.
    pub(crate) fn same_attributes(&self, other: &Record) -> bool {
        self.deployment == other.deployment
            && self.address == other.address
            && self.endpoints == other.endpoints
            && self.weight == other.weight
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}[{}.{} {:?}:{} {} client={} drain={} {:?}]",
            self.id,
            self.claim,
            self.seq,
            self.origin,
            self.n,
            self.stated(),
            self.client.id,
            self.drain,
            self.metadata
        )
    }
}

/// The node that owns a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    pub node: &'a str,
    /// Wall-clock ms on the owner; for display only.
    pub since: u64,
}

/// A member as shown: its record, and the status after judging the owner's liveness (L3).
#[derive(Clone, PartialEq, Eq)]
pub struct Member {
    pub(crate) record: Arc<Record>,
    pub(crate) status: Status,
}

impl Member {
    pub fn id(&self) -> &str {
        &self.record.id
    }
    pub fn service(&self) -> &str {
        &self.record.deployment.service
    }
    pub fn locality(&self) -> &str {
        &self.record.deployment.locality
    }
    pub fn revision(&self) -> &str {
        &self.record.deployment.revision
    }
    pub fn created(&self) -> u64 {
        self.record.created
    }
    pub fn address(&self) -> &str {
        &self.record.address
    }
    pub fn endpoints(&self) -> &Metadata {
        &self.record.endpoints
    }
    pub fn weight(&self) -> u16 {
        self.record.weight.max(1)
    }
    pub fn metadata(&self) -> &Metadata {
        &self.record.metadata
    }
    pub fn client(&self) -> &str {
        &self.record.client.id
    }
    /// The principal of that client; empty if its node does not know principals (C14).
    pub fn principal(&self) -> &str {
        &self.record.client.principal
    }
    /// Identifies the process of the client that registered it (C2).
    pub fn process_nonce(&self) -> u64 {
        self.record.client.nonce
    }
    pub fn status(&self) -> Status {
        self.status
    }
    /// Whether this is a name, registered by a node on its own behalf.
    pub fn is_name(&self) -> bool {
        self.record.space == Space::Name
    }
    /// Whether no client keeps it alive (AG1).
    pub fn is_agentless(&self) -> bool {
        self.record.is_agentless()
    }
    /// The origin that wrote the record.
    pub fn origin(&self) -> &OriginId {
        &self.record.origin.id
    }
    /// The id as it is held: cloning it copies no text.
    pub fn shared_id(&self) -> &SmolStr {
        &self.record.id
    }
    /// The service as it is held: cloning it copies no text.
    pub fn shared_service(&self) -> &SmolStr {
        &self.record.deployment.service
    }
    pub fn drained(&self) -> bool {
        self.record.drained()
    }

    /// The worst result of its checks; passing without checks (HC1).
    pub fn health(&self) -> Health {
        self.record.health
    }

    /// Its checks and their last results.
    pub fn checks(&self) -> Option<&Arc<Checks>> {
        self.record.checks.as_ref()
    }

    /// Reason and end of its drain, if it is drained and the operator gave any.
    pub fn maintenance(&self) -> Option<&Maintenance> {
        self.record.maintenance.as_deref().filter(|_| self.drained())
    }

    /// Up, not drained, and not critical.
    pub fn routable(&self) -> bool {
        self.status == Status::Up && !self.drained() && self.record.health != Health::Critical
    }

    pub fn owner(&self) -> Owner<'_> {
        Owner { node: self.record.origin.id.node.as_str(), since: self.record.since }
    }

    pub fn rank(&self) -> Rank<'_> {
        self.record.rank()
    }

    pub fn version(&self) -> Version {
        Version {
            claim: self.record.claim,
            seq: self.record.seq,
            tag: self.record.origin.tag,
            inferred: (self.status != self.record.stated()).then_some(self.status),
        }
    }

    pub fn subject(&self) -> Subject<'_> {
        Subject {
            id: self.id(),
            service: self.service(),
            locality: self.locality(),
            revision: self.revision(),
            status: self.status,
            drained: self.drained(),
            health: self.health(),
            client: self.client(),
            owner: self.owner().node,
            metadata: &self.record.metadata,
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.status, self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn a_lookup_touches_64_of_208_bytes() {
        let reference_counts = 2 * size_of::<usize>();
        assert_eq!(reference_counts + offset_of!(Record, n), 64);
        assert_eq!(reference_counts + size_of::<Record>(), 208);
    }
}
