//! `convoke.v1.Admin`.

use crate::access::Caller;
use crate::convert;
use crate::draining::{Marked, wanted};
use crate::error::{invalid, no_member, rejected};
use crate::surface::Surface;
use convoke_access::{Resource, Verb};
use convoke_core::member::{Member, MemberSpec};
use convoke_core::node::{CheckReport, ReportDelivery};
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
        self.0.forget(&caller, &request.into_inner().id).await?;
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

    async fn register_member(&self, request: Request<v1::RegisterMemberRequest>) -> Answer<v1::RegisterMemberResponse> {
        let caller = Caller::of(request.extensions())?;
        let register = v1::Register { member: request.into_inner().member, ..v1::Register::default() };
        let spec = convoke_convert::attach_member(register)?.spec;
        let (version, stored) = self.0.register_agentless(&caller, spec).await?;
        Ok(Response::new(v1::RegisterMemberResponse { version, stored }))
    }

    async fn report_check(&self, request: Request<v1::ReportCheckRequest>) -> Answer<v1::ReportCheckResponse> {
        let caller = Caller::of(request.extensions())?;
        let request = request.into_inner();
        if request.status() == v1::Health::Unspecified {
            return Err(invalid("status", "name a status: passing, warning or critical").into());
        }
        let status = request.status().into();
        let report = CheckReport { id: request.id.into(), check: request.check.into(), status, output: request.output };
        let forwarded = self.0.report_check(&caller, None, report).await?;
        Ok(Response::new(v1::ReportCheckResponse { forwarded }))
    }

    async fn deregister_member(
        &self,
        request: Request<v1::DeregisterMemberRequest>,
    ) -> Answer<v1::DeregisterMemberResponse> {
        let caller = Caller::of(request.extensions())?;
        let stored = self.0.deregister_agentless(&caller, None, &request.into_inner().id).await?;
        Ok(Response::new(v1::DeregisterMemberResponse { stored }))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::DrainResponse> {
        use v1::drain_request::Target;
        let caller = Caller::of(request.extensions())?;
        let v1::DrainRequest { target, for_ms, reason } = request.into_inner();
        let target = match target {
            Some(Target::Member(id)) => Marked::Member(id),
            Some(Target::Node(id)) => Marked::Node(id),
            None => return Err(nothing().into()),
        };
        self.0.mark(&caller, target, Some(wanted(for_ms, reason))).await?;
        Ok(Response::new(v1::DrainResponse {}))
    }

    async fn undrain(&self, request: Request<v1::UndrainRequest>) -> Answer<v1::UndrainResponse> {
        use v1::undrain_request::Target;
        let caller = Caller::of(request.extensions())?;
        let target = match request.into_inner().target {
            Some(Target::Member(id)) => Marked::Member(id),
            Some(Target::Node(id)) => Marked::Node(id),
            None => return Err(nothing().into()),
        };
        self.0.mark(&caller, target, None).await?;
        Ok(Response::new(v1::UndrainResponse {}))
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

    /// Checks a registration. Checks make the nodes connect to addresses that the caller names, so they need a verb of their
    /// own. It also concerns the service of the member that it replaces, which may be down.
    pub(crate) fn check_registration(
        &self,
        caller: &Caller,
        MemberSpec { id, service, checks, .. }: &MemberSpec,
        takeover: bool,
    ) -> Result<(), Error> {
        caller.check(Verb::Register, Resource::Service(service))?;
        if !checks.is_empty() {
            caller.check(Verb::Check, Resource::Service(service))?;
        }
        if takeover {
            caller.check(Verb::Takeover, Resource::Service(service))?;
            return self.check_member(caller, Verb::Takeover, id);
        }
        let replaced = self.node.member(id).filter(|member| member.service() != service.as_str());
        match replaced {
            Some(member) if !may_replace(caller, &member) => {
                let message = format!("member {id:?} is registered by another client in another service");
                Err(Error::new(ErrorCode::AlreadyRegistered, message).field("id"))
            }
            _ => Ok(()),
        }
    }

    /// Registers a member without a client (AG2). Returns its version, and whether this node has stored it.
    pub(crate) async fn register_agentless(&self, caller: &Caller, spec: MemberSpec) -> Result<(String, bool), Error> {
        caller.about("member", &spec.id);
        self.check_registration(caller, &spec, false)?;
        // It may replace a member of another service.
        self.check_member(caller, Verb::Register, &spec.id)?;
        let registered = self.node.register_agentless(spec, &caller.registrant()).await;
        registered.map(|(version, stored)| (version.to_string(), stored)).map_err(rejected)
    }

    /// Deregisters a member without a client, of the given service if one is named (AG2). Returns whether this node has stored
    /// that.
    pub(crate) async fn deregister_agentless(
        &self,
        caller: &Caller,
        service: Option<&str>,
        id: &str,
    ) -> Result<bool, Error> {
        caller.about("member", id);
        self.check_member(caller, Verb::Register, id)?;
        let member = self.node.member(id);
        if service.is_some_and(|service| member.is_some_and(|member| member.service() != service)) {
            return Err(no_member(id));
        }
        self.node.deregister_agentless(id).await.map_err(rejected)
    }

    /// Takes a report about a check, at any node (HC4). Returns whether it was sent to another node, which does not confirm it.
    pub(crate) async fn report_check(
        &self,
        caller: &Caller,
        service: Option<&str>,
        report: CheckReport,
    ) -> Result<bool, Error> {
        let id = report.id.clone();
        caller.about("member", &id);
        self.check_member(caller, Verb::Register, &id)?;
        let member = self.node.member(&id);
        if service.is_some_and(|service| member.is_some_and(|member| member.service() != service)) {
            return Err(no_member(&id));
        }
        Ok(self.node.report_check(report).await.map_err(rejected)? == ReportDelivery::Sent)
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
        let mut answer = convert::explanation(&explanation, self.node.id(), &self.node.changes_of(id, HISTORY_MAX));
        let member = node.member(id);
        answer.sentences.extend(member.and_then(|member| convert::health(&member, node.may_route(&member))));
        Ok(answer)
    }
}

/// Whether a caller may move a member to another service: it has registered it, or may register in its service.
fn may_replace(caller: &Caller, member: &Member) -> bool {
    let registrant = caller.registrant();
    let is_own = !registrant.is_empty() && member.principal() == registrant;
    is_own || caller.may(Verb::Register, Resource::Service(member.service()))
}

fn nothing() -> Error {
    invalid("target", "name a member or a node")
}

/// The core has no rejection for "not in this state".
fn refused(rejection: Rejection) -> Error {
    let code = rejection.code;
    let error = rejected(rejection);
    if code == ErrorCode::InvalidArgument { Error { code: ErrorCode::FailedPrecondition, ..error } } else { error }
}
