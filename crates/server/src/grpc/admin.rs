//! `convoke.v1.Admin`.

use crate::access::Caller;
use crate::convert;
use crate::error::{invalid, no_member, rejected};
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_core::member::NODE_ID_PREFIX;
use convoke_core::version::NodeId;
use convoke_core::{self, Rejection};
use convoke_dns::Dns;
use convoke_proto::v1::admin_server;
use convoke_proto::v1::revoke_request::What;
use convoke_proto::{Error, ErrorCode, v1};
use std::sync::Arc;
use std::time::SystemTime;
use tonic::{Request, Response, Status};

#[derive(Debug)]
pub(crate) struct Admin(pub(crate) Arc<Surface>);

/// Largest number of changes in the explanation of a member.
const HISTORY_MAX: usize = 10;

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl admin_server::Admin for Admin {
    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        Ok(Response::new(self.0.status().await?))
    }

    async fn nodes(&self, _: Request<v1::NodesRequest>) -> Answer<v1::NodesResponse> {
        Ok(Response::new(self.0.nodes().await?))
    }

    async fn forget_node(&self, request: Request<v1::ForgetNodeRequest>) -> Answer<v1::ForgetNodeResponse> {
        let caller = Caller::of(request.extensions())?;
        let id = request.into_inner().id;
        caller.check(Verb::Forget, Resource::Node(&id))?;
        let node = NodeId::new(&id).map_err(|error| invalid("id", error.to_string()))?;
        if node == *self.0.node.id() {
            let message = format!("node {node} cannot forget itself: stop it, then send the request to another node");
            return Err(Error::new(ErrorCode::FailedPrecondition, message).field("id").into());
        }
        self.0.node.forget(&node).await.map_err(refused)?;
        Ok(Response::new(v1::ForgetNodeResponse {}))
    }

    async fn declare_first_node(
        &self,
        _: Request<v1::DeclareFirstNodeRequest>,
    ) -> Answer<v1::DeclareFirstNodeResponse> {
        self.0.node.declare_first().await.map_err(refused)?;
        Ok(Response::new(v1::DeclareFirstNodeResponse {}))
    }

    async fn services(&self, request: Request<v1::ServicesRequest>) -> Answer<v1::ServicesResponse> {
        let caller = Caller::of(request.extensions())?;
        Ok(Response::new(self.0.services(&caller, request.into_inner().partial)?))
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Answer<v1::ExplainResponse> {
        let caller = Caller::of(request.extensions())?;
        Ok(Response::new(self.0.explain(&caller, &request.into_inner().id).await?))
    }

    async fn revoke(&self, request: Request<v1::RevokeRequest>) -> Answer<v1::RevokeResponse> {
        let caller = Caller::of(request.extensions())?;
        let v1::RevokeRequest { what, issued_until } = request.into_inner();
        Ok(Response::new(v1::RevokeResponse { added: self.0.revoke(&caller, what, issued_until).await? }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::DrainResponse> {
        use v1::drain_request::Target;
        let caller = Caller::of(request.extensions())?;
        let target = match request.into_inner().target {
            Some(Target::Member(id)) => Drained::Member(id),
            Some(Target::Node(id)) => Drained::Node(id),
            None => return Err(nothing().into()),
        };
        self.mark(&caller, target, true).await?;
        Ok(Response::new(v1::DrainResponse {}))
    }

    async fn undrain(&self, request: Request<v1::UndrainRequest>) -> Answer<v1::UndrainResponse> {
        use v1::undrain_request::Target;
        let caller = Caller::of(request.extensions())?;
        let target = match request.into_inner().target {
            Some(Target::Member(id)) => Drained::Member(id),
            Some(Target::Node(id)) => Drained::Node(id),
            None => return Err(nothing().into()),
        };
        self.mark(&caller, target, false).await?;
        Ok(Response::new(v1::UndrainResponse {}))
    }
}

enum Drained {
    Member(String),
    Node(String),
}

impl Admin {
    async fn mark(&self, caller: &Caller, target: Drained, drained: bool) -> Result<(), Error> {
        let node = &self.0.node;
        match &target {
            Drained::Node(id) if id.is_empty() => caller.check(Verb::Drain, Resource::Node(node.id().as_str()))?,
            Drained::Node(id) => caller.check(Verb::Drain, Resource::Node(id))?,
            Drained::Member(id) => {
                caller.about("member", id);
                self.0.check_member(caller, Verb::Drain, id)?;
            }
        }
        match target {
            Drained::Node(id) if id.is_empty() || id == node.id().as_str() => {
                node.drain_node(drained).await.map_err(rejected)
            }
            Drained::Node(id) => {
                let marked = node.drain(&format!("{NODE_ID_PREFIX}{id}"), drained).await;
                marked.map_err(|rejection| of_node(&id, rejection))
            }
            Drained::Member(id) => node.drain(&id, drained).await.map_err(rejected),
        }
    }
}

impl Surface {
    pub(crate) async fn status(&self) -> Result<v1::StatusResponse, Error> {
        let status = self.node.status().await.map_err(rejected)?;
        let mut shown = convert::status(&self.node, &status, self.address, self.dns.as_ref().map(Dns::address));
        if let Some(log) = &self.log {
            shown.log_role = log.handle.status().role.as_str().to_owned();
            shown.degraded.extend(convert::log_degraded(&log.handle));
        }
        shown.access = if self.gate.is_on() { "enforced" } else { "open" }.to_owned();
        shown.degraded.extend(self.gate.degraded());
        shown.degraded.extend(self.audit.degraded());
        shown.degraded.extend(self.clocks.degraded());
        if let Some(tls) = &self.config.tls {
            let (status, now) = (tls.status(), SystemTime::now());
            shown.degraded.extend(status.degraded(now));
            shown.tls = Some(convert::tls(&status, now));
        }
        Ok(shown)
    }

    pub(crate) async fn nodes(&self) -> Result<v1::NodesResponse, Error> {
        let status = self.node.status().await.map_err(rejected)?;
        let peers = self.node.nodes().await.map_err(rejected)?;
        Ok(convert::nodes(&self.node, &status, peers))
    }

    /// Revokes tokens at every node (AU13). Returns false if a revocation covered them before.
    pub(crate) async fn revoke(&self, caller: &Caller, what: Option<What>, issued_until: u64) -> Result<bool, Error> {
        match &what {
            Some(What::Token(id)) => caller.about("token", id),
            Some(What::Principal(name)) => caller.about("principal", name),
            None => {}
        }
        let revocation = self.gate.revocation(what, issued_until)?;
        self.node.revoke(revocation).await.map_err(rejected)
    }

    /// Checks a request about a member that it names by id. For a caller who may not read the member, it does not exist.
    pub(crate) fn check_member(&self, caller: &Caller, verb: Verb, id: &str) -> Result<(), Error> {
        // If there is no such member, the operation itself says so.
        let Some(member) = self.node.member(id) else { return Ok(()) };
        let checked = caller.check(verb, Resource::Service(member.service()));
        if checked.is_err() && caller.visible(Some(member)).is_none() { Err(no_member(id)) } else { checked }
    }

    /// Checks a registration. A takeover also concerns the service of the member that it replaces.
    pub(crate) fn check_registration(
        &self,
        caller: &Caller,
        id: &str,
        service: &str,
        takeover: bool,
    ) -> Result<(), Error> {
        caller.check(Verb::Register, Resource::Service(service))?;
        if !takeover {
            return Ok(());
        }
        caller.check(Verb::Takeover, Resource::Service(service))?;
        self.check_member(caller, Verb::Takeover, id)
    }

    /// Lists the services that the caller may read. `partial` accepts a list that may lack some (N7).
    pub(crate) fn services(&self, caller: &Caller, partial: bool) -> Result<v1::ServicesResponse, Error> {
        let node = self.readable()?;
        let absence = node.absence();
        let complete = absence.is_ok();
        if !partial {
            absence.map_err(rejected)?;
        }
        let mut services = node.services();
        services.retain(|service| caller.may_see_service(&service.service));
        Ok(convert::services(services, complete))
    }

    pub(crate) async fn explain(&self, caller: &Caller, id: &str) -> Result<v1::ExplainResponse, Error> {
        let node = self.readable()?;
        self.check_member(caller, Verb::Observe, id)?;
        if node.member(id).is_none() && !caller.may(Verb::Observe, Resource::Service("")) {
            // The member has left. Its last service decides, if it is still known.
            let service = node.changes_of(id, 1).first().map(|change| change.member.service().to_owned());
            if !service.is_some_and(|service| caller.may(Verb::Observe, Resource::Service(&service))) {
                return Err(no_member(id));
            }
        }
        let Some(explanation) = node.explain(id).await.map_err(rejected)? else { return Err(no_member(id)) };
        Ok(convert::explanation(&explanation, self.node.id(), &self.node.changes_of(id, HISTORY_MAX)))
    }
}

fn nothing() -> Error {
    invalid("target", "name a member or a node")
}

/// Rewrites an error about a node. The core represents a node as a member with a prefixed id, which the caller does not
/// know.
fn of_node(id: &str, rejection: Rejection) -> Error {
    let error = rejected(rejection);
    let message = match error.code {
        ErrorCode::NotFound => format!("no node {id:?} is up as seen by this node; `convoke nodes` lists the nodes"),
        ErrorCode::NotReady => format!("node {id} cannot be reached from this node now"),
        _ => return error,
    };
    Error { message, ..error }.field("node")
}

/// The core has no rejection for "not in this state".
fn refused(rejection: Rejection) -> Error {
    let code = rejection.code;
    let error = rejected(rejection);
    if code == ErrorCode::InvalidArgument { Error { code: ErrorCode::FailedPrecondition, ..error } } else { error }
}
