//! Why a member has the status it has: who said so, on what evidence.

use super::Node;
use crate::member::{Space, Status};
use crate::time::Duration;
use crate::version::{Dot, NodeId, Version};

/// The whole reasoning behind one member's status at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub id: String,
    pub shown: Status,
    /// What the owner last stated.
    pub stated: Status,
    pub version: Version,
    pub written: Dot,
    pub client: String,
    pub claim: u64,
    /// Whether the owner's node counts as alive here (L2).
    pub owner_admitted: bool,
    pub evidence: EvidenceView,
    pub inferred: Option<InferredView>,
    /// If the owner is silent: who would unregister its members (L4).
    pub responsible: Option<NodeId>,
    /// If this node is the owner.
    pub session: Option<SessionView>,
}

/// The youngest sign of life of the owner's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceView {
    pub life: u64,
    pub age: Duration,
    /// Who passed it on; `None` = heard directly.
    pub via: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredView {
    pub by: NodeId,
    /// No life after this number was known when it was written.
    pub life: u64,
    pub applies: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    pub silence: Duration,
    pub timeout: Duration,
    pub connected: bool,
    pub superseded: bool,
}

impl Node {
    /// Explains a member, tombstones included; `None` if nothing is known under this id.
    pub fn explain(&self, id: &str) -> Option<Explanation> {
        let record = self.map.record(Space::Member, id)?;
        let owner = self.map.origins.entry(record.origin.index);
        let member = self.map.member(record);
        let age = if record.origin.index == self.map.origins.me() {
            Duration::ZERO
        } else {
            owner.evidence.heard.silence(self.clock)
        };
        let inferred = self.map.inferred(id).map(|inferred| InferredView {
            by: inferred.origin.id.node.clone(),
            life: inferred.life,
            applies: inferred.applies(record, owner.judged_life) && !owner.admitted,
        });
        let session = self.sessions.of_slot(record.slot).and_then(|id| self.sessions.get(id));
        let session = session.map(|session| SessionView {
            silence: session.heard.attentive_silence(self.clock, self.config.timers.dead_peer_timeout),
            timeout: session.timeout,
            connected: session.conn.is_some(),
            superseded: session.superseded,
        });
        Some(Explanation {
            id: id.to_owned(),
            shown: member.status(),
            stated: record.stated(),
            version: member.version(),
            written: Dot { origin: record.origin.id.clone(), n: record.n },
            client: record.client.id.to_string(),
            claim: record.claim,
            owner_admitted: owner.admitted,
            evidence: EvidenceView { life: owner.evidence.life, age, via: owner.evidence.via.clone() },
            inferred,
            responsible: (!owner.admitted).then(|| self.responsible_for(&record.origin.id)).flatten(),
            session,
        })
    }
}
