//! Queries: members, services, peers, and the views that tests use.

use super::{Counters, EvidenceView, LinkId, Node, PeerState, is_mass_failure};
use crate::filter::Filter;
use crate::member::{Health, Member, Metadata, NODE_ID_PREFIX, Record, Space, Status};
use crate::peer::Peer;
use crate::version::{Dot, Incarnation, NodeId, OriginId, VectorClock, Version};
use std::sync::Arc;

/// A peer as shown by `convoke nodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    pub node: NodeId,
    pub state: PeerState,
    pub region: String,
    pub peer_address: String,
    pub client_address: String,
    pub incarnation: Option<Incarnation>,
    pub serving: bool,
    /// Attached sessions with a stream.
    pub sessions: u64,
    /// Its latest evidence; `None` if there is none.
    pub evidence: Option<EvidenceView>,
    /// Number of its known writes that have not arrived here.
    pub behind: u64,
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
    /// Of those that are up and not drained.
    pub critical: usize,
    /// So many are critical that all are routable (HC6).
    pub panic: bool,
}

/// A slot with everything in it, tombstones included: for checks from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    pub name: bool,
    pub id: String,
    pub shown: Status,
    pub stated: Status,
    pub claim: u64,
    pub seq: u64,
    pub origin: OriginId,
    pub n: u64,
    pub client: String,
    pub nonce: u64,
    pub drained: bool,
    pub metadata: Metadata,
    pub inferred: bool,
}

/// A registration of a member, or the last one of a member that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub client: String,
    /// Identifies the process of the client (C2).
    pub nonce: u64,
    /// As this node shows it.
    pub status: Status,
}

/// An inference that is held without a stated record: for checks from outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoneInference {
    pub id: String,
    pub written: Dot,
    /// The record it is about.
    pub about: Dot,
}

/// How much a node holds, for comparison with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub members: usize,
    pub names: usize,
    pub tombstones: usize,
    pub sessions: usize,
    pub watchers: usize,
    /// Longest watcher queue.
    pub watcher_queue: usize,
    pub links: usize,
    pub origins: usize,
    pub retired: usize,
    pub timers: usize,
}

/// The id under which a node is a member.
pub(super) fn node_member_id(node: &NodeId) -> String {
    format!("{NODE_ID_PREFIX}{node}")
}

impl Node {
    /// One member, unless unknown or left.
    pub fn member(&self, id: &str) -> Option<Member> {
        self.map.record(Space::Member, id).and_then(|record| self.visible(record))
    }

    fn visible(&self, record: &Arc<Record>) -> Option<Member> {
        if record.space != Space::Member || !record.is_live() {
            return None;
        }
        let member = self.map.member(record);
        (member.status() != Status::Left).then_some(member)
    }

    /// Returns up to `limit` matching members from `cursor` on, in a stable order, and the next cursor.
    pub fn members(&self, filter: &Filter, cursor: Option<u32>, limit: usize) -> (Vec<Member>, Option<u32>) {
        let mut found = Vec::new();
        let mut visit = |slot: u32| -> bool {
            if found.len() == limit {
                return false;
            }
            let member = self.map.try_at(slot).and_then(|record| self.visible(record));
            found.extend(member.filter(|member| filter.matches(&member.subject())));
            true
        };
        let start = cursor.unwrap_or(0);
        let next = match filter.service_literal() {
            Some(service) => {
                let slots = self.map.services().get(service);
                slots.into_iter().flat_map(|slots| slots.range(start..)).find(|slot| !visit(**slot)).copied()
            }
            None => (start..self.map.slot_bound()).find(|slot| !visit(*slot)),
        };
        (found, next)
    }

    pub fn services(&self) -> Vec<ServiceView> {
        let services = self.map.services().iter();
        let views = services.map(|(service, slots)| {
            let mut view =
                ServiceView { service: service.to_string(), up: 0, down: 0, drained: 0, critical: 0, panic: false };
            for member in slots.iter().filter_map(|slot| self.visible(self.map.at(*slot))) {
                match member.status() {
                    Status::Up if member.drained() => view.drained += 1,
                    Status::Up => {
                        view.up += 1;
                        view.critical += usize::from(member.health() == Health::Critical);
                    }
                    Status::Down | Status::Left => view.down += 1,
                }
            }
            view.panic = is_mass_failure(view.up, view.critical, self.config.panic_share);
            view
        });
        views.filter(|view| view.up + view.down + view.drained > 0).collect()
    }

    /// Peers, with this node's link state.
    pub fn peers(&self) -> Vec<PeerView> {
        self.peers.peers.iter().map(|(node, peer)| self.peer_view(node, peer)).collect()
    }

    fn peer_view(&self, node: &NodeId, peer: &Peer) -> PeerView {
        let origins = &self.map.origins;
        let run = peer.incarnation.map(|incarnation| OriginId { node: node.clone(), incarnation });
        let run = run.and_then(|run| origins.index_of(&run)).map(|index| origins.entry(index));
        let evidence = run.filter(|run| !run.evidence.assumed).map(|run| &run.evidence);
        PeerView {
            node: node.clone(),
            state: self.shown_state(node, peer),
            region: peer.region.clone(),
            peer_address: peer.peer_address.clone(),
            client_address: peer.client_address.clone(),
            incarnation: peer.incarnation,
            serving: peer.serving,
            sessions: peer.sessions,
            evidence: evidence.map(|evidence| EvidenceView {
                liveness_counter: evidence.liveness_counter,
                age: evidence.received_at.silence(self.clock),
                via: evidence.via.clone(),
            }),
            behind: run.map_or(0, |run| run.evidence.written.saturating_sub(run.seen)),
        }
    }

    /// Whether the peer of a link has completed the handshake.
    pub fn is_identified(&self, link: LinkId) -> bool {
        self.peers.links.get(&link).is_some_and(|link| link.peer.is_some())
    }

    /// The state of the link; for a node without a wanted link, whether there is evidence of it.
    fn shown_state(&self, node: &NodeId, peer: &Peer) -> PeerState {
        let known = self.map.origins.incarnations(node).next().is_some();
        match peer.state {
            PeerState::Distant if known && !self.is_admitted(node) => PeerState::Lost,
            state => state,
        }
    }

    pub fn origin(&self) -> &OriginId {
        &self.me
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn context(&self) -> VectorClock {
        self.map.origins.context().clock
    }

    pub fn context_hash(&self) -> u64 {
        self.map.origins.context_hash()
    }

    /// Retired markers (D14): node, highest retired incarnation.
    pub fn retired(&self) -> Vec<(NodeId, Incarnation)> {
        self.map.origins.retired().iter().map(|(node, retired)| (node.clone(), retired.incarnation)).collect()
    }

    /// Whether an origin counts as alive here (L2); unknown ones do not.
    pub fn admits(&self, origin: &OriginId) -> bool {
        self.map.origins.index_of(origin).is_some_and(|index| self.map.origins.entry(index).standing.is_admitted())
    }

    /// Every slot, members and names, sorted, tombstones included.
    pub fn slots(&self) -> Vec<SlotView> {
        let mut views: Vec<SlotView> = self.map.iter().map(|record| self.slot_view(record)).collect();
        views.sort_by(|a, b| (a.name, &a.id).cmp(&(b.name, &b.id)));
        views
    }

    /// The slot of a member id.
    pub fn slot(&self, id: &str) -> Option<SlotView> {
        self.map.record(Space::Member, id).map(|record| self.slot_view(record))
    }

    /// The write that the current record of this member replaced, if its origin is known.
    pub fn written_over(&self, id: &str) -> Option<Dot> {
        let (tag, n) = self.map.record(Space::Member, id)?.predecessor;
        let (_, entry) = self.map.origins.iter().find(|(_, entry)| entry.origin.tag == tag)?;
        Some(Dot { origin: entry.origin.id.clone(), n })
    }

    /// Returns the registration of a member, tombstones included. `None` if this node has no record of it, which proves
    /// nothing about the member.
    pub fn registration(&self, id: &str) -> Option<Registration> {
        let record = self.map.record(Space::Member, id)?;
        let client = &record.client;
        Some(Registration { client: client.id.to_string(), nonce: client.nonce, status: self.map.shown(record) })
    }

    /// Inferences held.
    pub fn inferences(&self) -> usize {
        self.map.inferences().count()
    }

    /// The records of members that this node has inferred to have left, with the numbers of its writes about them.
    pub fn own_inferences(&self) -> Vec<(Dot, u64)> {
        let me = self.map.origins.me();
        let own = self.map.inferences().filter(|(key, inferred)| key.0 == Space::Member && inferred.origin.index == me);
        own.map(|(_, inferred)| (Dot { origin: inferred.about.id.clone(), n: inferred.about_n }, inferred.n)).collect()
    }

    /// Inferences whose record has not arrived, or that should not be held.
    pub fn lone_inferences(&self) -> Vec<LoneInference> {
        let lone = self.map.inferences().filter(|(key, _)| self.map.record(key.0, &key.1).is_none());
        lone.map(|(key, inferred)| LoneInference {
            id: key.1.to_string(),
            written: Dot { origin: inferred.origin.id.clone(), n: inferred.n },
            about: Dot { origin: inferred.about.id.clone(), n: inferred.about_n },
        })
        .collect()
    }

    fn slot_view(&self, record: &Arc<Record>) -> SlotView {
        SlotView {
            name: record.space == Space::Name,
            id: record.id.to_string(),
            shown: self.map.shown(record),
            stated: record.stated(),
            claim: record.claim,
            seq: record.seq,
            origin: record.origin.id.clone(),
            n: record.n,
            client: record.client.id.to_string(),
            nonce: record.client.nonce,
            drained: record.drained(),
            metadata: record.metadata.clone(),
            inferred: self.map.inferred(&record.key()).is_some(),
        }
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            members: self.map.live_members(),
            names: self.map.live_names(),
            tombstones: self.map.tombstones(),
            sessions: self.sessions.len(),
            watchers: self.watchers.len(),
            watcher_queue: self.watchers.longest_queue(),
            links: self.peers.links.len(),
            origins: self.map.origins.len(),
            retired: self.map.origins.retired().len(),
            timers: self.timers.len(),
        }
    }
}
