//! Clients without a memory of their own, as those that speak HTTP: the registry remembers for them (C8).

use super::{Attach, AttachMember, Attached, ConnId, Node, Output, Reattach};
use crate::error::{Code, Refusal};
use crate::member::{MemberSpec, Record, Status};
use crate::time::Time;

impl Node {
    /// Attaches a client with the members that the registry has of it. Finding them and claiming them is one step: what
    /// was unregistered before it is not claimed again.
    pub fn reattach(
        &mut self,
        now: Time,
        wall_ms: u64,
        conn: ConnId,
        request: &Reattach,
        out: &mut Output,
    ) -> Result<Attached, Refusal> {
        self.observe_client(now, out)?;
        match self.recall(request) {
            Ok(attach) => self.attach(now, wall_ms, conn, &attach, out),
            Err(refusal) => self.count_refusal(Err(refusal)),
        }
    }

    /// What the client would say if it remembered.
    fn recall(&self, request: &Reattach) -> Result<Attach, Refusal> {
        if !self.is_ready() {
            return Err(super::attach::not_ready());
        }
        let session = self.sessions.of_client(&request.client).and_then(|id| self.sessions.get(id));
        let own_session = session.filter(|session| session.client.nonce == request.nonce);
        let (own, others): (Vec<&Record>, Vec<&Record>) =
            self.map.of_client(&request.client).map(|record| &**record).partition(|r| r.client.nonce == request.nonce);
        let previous = own.iter().map(|record| record.claim).chain(own_session.map(|session| session.claim)).max();
        let replaced = |record: &&Record| record.claim > previous.unwrap_or(0) && self.map.shown(record) == Status::Up;
        if others.iter().any(replaced) {
            let message = format!("another process with client id {:?} took over", request.client);
            return Err(Refusal::new(Code::Superseded, message).field("client"));
        }
        let Some(previous) = previous else { return Err(super::attach::session_gone()) };
        let known = others.iter().map(|record| record.claim).chain(session.map(|session| session.claim)).max();
        let members = own.into_iter().map(|record| AttachMember { spec: spec_of(record), takeover: false }).collect();
        Ok(Attach {
            client: request.client.clone(),
            nonce: request.nonce,
            claim: known.unwrap_or(0).max(previous).saturating_add(request.raise.max(1)),
            previous_claim: previous,
            liveness: request.liveness,
            timeout: request.timeout,
            members,
            unregistered: Vec::new(),
        })
    }
}

fn spec_of(record: &Record) -> MemberSpec {
    MemberSpec {
        id: record.id.to_string(),
        service: record.service.to_string(),
        locality: record.locality.to_string(),
        revision: record.revision.to_string(),
        created: Some(record.created),
        address: record.address.to_string(),
        endpoints: record.endpoints.to_map(),
        weight: record.weight,
        metadata: record.metadata.to_map(),
    }
}
