//! Explains the status of a member, with the evidence for it.

use super::Node;
use crate::member::{Space, Status};
use crate::time::Duration;
use crate::version::{Dot, NodeId, Version};

/// The complete reasoning behind one member's status at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub id: String,
    pub shown: Status,
    /// The last status that the owner stated.
    pub stated: Status,
    pub version: Version,
    pub written: Dot,
    pub client: String,
    pub claim: u64,
    pub drained: bool,
    /// If it is drained, and the operator gave a reason or an end.
    pub maintenance: Option<MaintenanceView>,
    /// If the member has left.
    pub departure: Option<Departure>,
    /// Whether the owner's node counts as alive here (L2).
    pub owner_admitted: bool,
    pub evidence: EvidenceView,
    pub inferred: Option<InferredView>,
    /// If the owner is silent: the node that would expire its members (L4).
    pub responsible: Option<NodeId>,
    /// If this node is the owner.
    pub session: Option<SessionView>,
}

/// Reason and end of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceView {
    pub reason: String,
    /// How long it still lasts; `None` if an operator has to undo it.
    pub remaining: Option<Duration>,
}

/// How and when a member left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Whether the member expired: its client, or the node of its client, did not return in time. Otherwise the client
    /// unregistered it.
    pub expired: bool,
    /// Time since the first node on the path of this information received it.
    pub age: Duration,
}

/// The latest evidence of the owner's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceView {
    pub liveness_counter: u64,
    pub age: Duration,
    /// The peer that relayed it; `None` if it was received directly.
    pub via: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredView {
    pub by: NodeId,
    /// The highest liveness counter known when it was written.
    pub liveness_counter: u64,
    pub applies: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub silence: Duration,
    pub timeout: Duration,
    pub connected: bool,
    /// The connection of a client with `fast` liveness was lost, and no message arrived since.
    pub cut: bool,
    pub superseded: bool,
}

impl Node {
    /// Explains a member, tombstones included; `None` if this id is unknown.
    pub fn explain(&self, id: &str) -> Option<Explanation> {
        let record = self.map.record(Space::Member, id)?;
        let owner = self.map.origins.entry(record.origin.index);
        let member = self.map.member(record);
        let age = if record.origin.index == self.map.origins.me() {
            Duration::ZERO
        } else {
            owner.evidence.received_at.silence(self.clock)
        };
        let inferred = self.map.inferred(&record.key()).map(|inferred| InferredView {
            by: inferred.origin.id.node.clone(),
            liveness_counter: inferred.liveness_counter,
            applies: owner
                .standing
                .judges(record.n)
                .is_some_and(|liveness_counter| inferred.applies(record, liveness_counter)),
        });
        let session = self.sessions.of_slot(record.slot).and_then(|id| self.sessions.get(id));
        let session = session.map(|session| SessionView {
            silence: session.received_at.silence_without_pauses(self.clock, self.config.timers.dead_peer_timeout),
            timeout: session.timeout,
            connected: session.conn.is_some(),
            cut: session.cut_at.is_some(),
            superseded: session.superseded,
        });
        let departure = (member.status() == Status::Left).then(|| Departure {
            expired: record.is_live() || record.status == Status::Down,
            age: self.map.departure_age(record, self.clock),
        });
        Some(Explanation {
            id: id.to_owned(),
            shown: member.status(),
            stated: record.stated(),
            version: member.version(),
            written: Dot { origin: record.origin.id.clone(), n: record.n },
            client: record.client.id.to_string(),
            claim: record.claim,
            drained: record.is_live() && record.drained(),
            maintenance: member.maintenance().map(|maintenance| MaintenanceView {
                reason: maintenance.reason().to_owned(),
                remaining: maintenance.remaining(self.clock),
            }),
            departure,
            owner_admitted: owner.standing.is_admitted(),
            evidence: EvidenceView {
                liveness_counter: owner.evidence.liveness_counter,
                age,
                via: owner.evidence.via.clone(),
            },
            inferred,
            responsible: (!owner.standing.is_admitted()).then(|| self.responsible_for(&record.origin.id)).flatten(),
            session,
        })
    }
}
