//! Clients without state of their own, such as HTTP clients: the registry restores their members (C8).

use super::{Attach, AttachMember, Attached, ConnId, Node, Output, PeerState, Reattach, RequestOrder, SessionOwner};
use crate::error::{ErrorCode, Rejection};
use crate::member::{Liveness, MemberSpec, Record, Status};
use crate::mutant::seam;
use crate::time::Time;
use crate::version::{OriginId, request_of};
use crate::wire::MAX_CLAIM;

impl Node {
    /// Attaches a client with its members in the registry. Finding and claiming them is one step: members that were
    /// unregistered before it are not claimed again.
    pub fn reattach(
        &mut self,
        now: Time,
        wall_ms: u64,
        conn: ConnId,
        request: &Reattach,
        out: &mut Output,
    ) -> Result<Attached, Rejection> {
        self.observe_client(now, out)?;
        self.wall_ms = wall_ms;
        let result = self.restore_from_registry(request).and_then(|(attach, claims_kept)| {
            self.check_attach(&attach)?;
            Ok(Attached { claims_kept, ..self.do_attach(conn, &attach, attach.claim, true, out) })
        });
        self.count_rejection(result)
    }

    /// Builds the attach that the client would send if it had its own state. Returns whether it keeps the claims.
    fn restore_from_registry(&self, request: &Reattach) -> Result<(Attach, bool), Rejection> {
        if !self.is_ready() {
            return Err(self.not_accepting_clients(&request.client));
        }
        let session = self.sessions.of_client(&request.client).and_then(|id| self.sessions.get(id));
        let own_session = session.filter(|session| session.client.nonce == request.nonce);
        let (own, others): (Vec<&Record>, Vec<&Record>) =
            self.map.of_client(&request.client).map(|record| &**record).partition(|r| r.client.nonce == request.nonce);
        let previous = own.iter().map(|record| record.claim).chain(own_session.map(|session| session.claim)).max();
        if !request.fresh {
            let highest = previous.unwrap_or(0);
            if others.iter().any(|record| record.claim > highest && self.map.shown(record) == Status::Up) {
                let message = format!("a newer session of client id {:?} superseded this one", request.client);
                return Err(Rejection::new(ErrorCode::Superseded, message).field("client"));
            }
            if previous.is_none() {
                return Err(self.absent_session(request));
            }
        }
        let known =
            others.iter().map(|record| record.claim).chain(session.map(|session| session.claim)).chain(previous);
        let raised = known.max().unwrap_or(0).saturating_add(request.raise.max(1)).min(MAX_CLAIM);
        let lowest = own.iter().map(|record| record.claim).min().or(own_session.map(|session| session.claim));
        let kept = lowest.filter(|_| self.keeps_claims(request, &own));
        let mut restored = own.as_slice();
        seam!(self, ReattachForgetsMembers => restored = &[]);
        let restored = restored.iter().map(|record| AttachMember { spec: spec_of(record), takeover: false });
        let attach = Attach {
            client: request.client.clone(),
            nonce: request.nonce,
            claim: kept.unwrap_or(raised),
            previous_claim: previous.unwrap_or(0),
            liveness: request.liveness,
            timeout: request.timeout,
            members: restored.collect(),
            unregistered: Vec::new(),
        };
        Ok((attach, kept.is_some()))
    }

    /// Whether an attach changes the owner of the members and not their claims (C10). A higher claim would outrank writes
    /// that this node has not received; request numbers order those. Without numbers, the last attach wins.
    fn keeps_claims(&self, request: &Reattach, own: &[&Record]) -> bool {
        seam!(self, AttachOutranksWrites => return false);
        match request.order {
            RequestOrder::Numbered => !request.fresh,
            RequestOrder::Nothing => own.iter().any(|record| request_of(record.seq) > 0),
            RequestOrder::Arrival => false,
        }
    }

    /// The rejection of a session of which no member is known. Only the node that created it can hold it.
    fn absent_session(&self, request: &Reattach) -> Rejection {
        if !self.asserts_absence() {
            return self.absence_unknown();
        }
        match &request.creator {
            Some(creator) if self.creator_serves(request) => {
                let node = &creator.node;
                // Requests with `fast` liveness are not forwarded, and this node cannot tell a new session from an expired one.
                let message = match request.liveness {
                    Liveness::Normal => format!("node {node} created this session and cannot be reached; try again"),
                    Liveness::Fast => format!("this session has no member yet; register the first one at node {node}"),
                };
                Rejection::new(ErrorCode::NotReady, message)
            }
            _ => super::attach::session_gone(),
        }
    }

    /// Whether another node created the session and is not known to have failed.
    fn creator_serves(&self, request: &Reattach) -> bool {
        seam!(self, CreatorIgnored => return false);
        let failed = |creator: &OriginId| {
            let peer = self.peers.peers.get(&creator.node);
            peer.is_none_or(|peer| matches!(peer.state, PeerState::Failed | PeerState::Left))
        };
        let serves = |creator: &OriginId| creator != self.origin() && self.admits(creator) && !failed(creator);
        request.creator.as_ref().is_some_and(serves)
    }

    /// Returns the other node that owns the members of this process. If it has none, returns the node that created the
    /// session, while that incarnation is admitted.
    pub fn owner_of_session(&self, client: &str, nonce: u64, creator: Option<&OriginId>) -> Option<SessionOwner> {
        let own = self.map.of_client(client).filter(|record| record.client.nonce == nonce);
        // With equal claims, the record that moved or was written last.
        let owner = own.max_by_key(|record| record.rank()).map(|record| &record.origin.id);
        let mut created = creator.filter(|creator| self.admits(creator));
        seam!(self, CreatorIgnored => created = None);
        let origin = owner.or(created)?.clone();
        let peer = self.peers.peers.get(&origin.node)?;
        let (node, client_address, state) = (origin.node.clone(), peer.client_address.clone(), peer.state);
        Some(SessionOwner { node, client_address, state, origin })
    }
}

fn spec_of(record: &Record) -> MemberSpec {
    MemberSpec {
        id: record.id.to_string(),
        service: record.deployment.service.to_string(),
        locality: record.deployment.locality.to_string(),
        revision: record.deployment.revision.to_string(),
        created: Some(record.created),
        address: record.address.to_string(),
        endpoints: record.endpoints.to_map(),
        weight: record.weight,
        metadata: record.metadata.to_map(),
    }
}
