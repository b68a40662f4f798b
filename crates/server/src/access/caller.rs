//! The caller of a request.

use crate::audit::{Call, Recorded, Recording};
use crate::service::Authenticated;
use ::http::Extensions;
use convoke_access::{
    ANONYMOUS, CertificateIdentity, CertificateRole, Denied, Kind, Pattern, Principal, Resource, TokenText, Verb,
};
use convoke_core::filter::Filter;
use convoke_core::member::{Member, Space};
use convoke_core::node::WatchSelection;
use convoke_proto::{Error, ErrorCode, NODE_SERVICE};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Names of this size fit into a log session.
const OPENER_BYTES_MAX: usize = 200;

/// Who calls. Cheap to clone. Every request carries one in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    principal: Arc<Principal>,
    /// The token, to verify it again when keys, policy or revocations change.
    pub(super) token: Option<Arc<TokenText>>,
    /// The certificate of a client, for the same.
    pub(super) certificate: Option<Arc<CertificateIdentity>>,
    /// Whether access control is on.
    restricted: bool,
    /// The call whose decisions are recorded, with an audit log.
    call: Option<Arc<Call>>,
}

impl Caller {
    /// The node itself, or any caller without access control.
    pub(crate) fn unrestricted() -> Caller {
        let principal = Arc::new(Principal::unrestricted());
        Caller { principal, token: None, certificate: None, restricted: false, call: None }
    }

    /// Returns the caller of a request from its extensions.
    pub(crate) fn of(extensions: &Extensions) -> Result<Caller, Error> {
        match extensions.get::<Authenticated>() {
            Some(Authenticated(caller)) => caller.clone(),
            // Every request of the client port passes the gate. One that did not is refused.
            None => Err(Error::new(ErrorCode::Internal, "the request was not authenticated")),
        }
    }

    pub(super) fn new(principal: Arc<Principal>, token: Option<Arc<TokenText>>) -> Caller {
        Caller { principal, token, certificate: None, restricted: true, call: None }
    }

    /// The caller of a connection without a token. The grants of a client certificate can change; those of a node cannot.
    pub(super) fn with_certificate(principal: Arc<Principal>, certificate: Option<&CertificateIdentity>) -> Caller {
        let client = certificate.filter(|certificate| certificate.role == CertificateRole::Client);
        Caller { certificate: client.cloned().map(Arc::new), ..Caller::new(principal, None) }
    }

    /// Whether a stream of this caller continues with the token of `other`: the same principal with the same grants (AU21).
    pub(crate) fn may_continue_as(&self, other: &Caller) -> bool {
        self.token.is_some()
            && other.token.is_some()
            && *self.principal.name() == *other.principal.name()
            && self.principal.grants() == other.principal.grants()
    }

    /// Whether the token of this caller ends before that of `other`.
    pub(crate) fn expires_before(&self, other: &Caller) -> bool {
        let expires = |caller: &Caller| caller.principal.token().map(|token| token.expires_at);
        expires(self) < expires(other)
    }

    pub(crate) fn is_restricted(&self) -> bool {
        self.restricted
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the name of an authenticated principal.
    pub(crate) fn name(&self) -> Option<&str> {
        (self.restricted && !self.principal.is_anonymous()).then(|| self.principal.name())
    }

    /// Returns the name of the principal as the log stores it with a session. Long names are cut and stay unique.
    pub(crate) fn opener(&self) -> Option<String> {
        if self.restricted && self.principal.is_anonymous() {
            return Some(self.anonymous_at("http"));
        }
        let name = self.name()?;
        if name.len() <= OPENER_BYTES_MAX {
            return Some(name.to_owned());
        }
        let digest: String = Sha256::digest(name)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let head: String = name.chars().take(100).collect();
        Some(format!("{head}~{digest}"))
    }

    /// Returns the owner of what callers without credentials create. The second part is only for quotas.
    pub(crate) fn anonymous_at(&self, place: &str) -> String {
        format!("{ANONYMOUS}/{place}")
    }

    pub(crate) fn check(&self, verb: Verb, resource: Resource<'_>) -> Result<(), Error> {
        let decided = self.principal.check(verb, resource);
        if let Some(call) = &self.call {
            call.decided(verb, &resource, decided.is_ok());
        }
        decided.map_err(|why| denied(&why))
    }

    pub(crate) fn check_any(&self, needed: &[(Verb, Kind)]) -> Result<(), Error> {
        let decided = self.principal.check_any(needed);
        match (&self.call, &decided, needed) {
            (Some(call), Err(why), _) => call.decided(why.verb, &why.resource, false),
            // Nothing else names the log or the cluster.
            (Some(call), Ok(()), [(verb, kind)]) if !kind.is_named() => call.decided(*verb, kind, true),
            _ => {}
        }
        decided.map_err(|why| denied(&why))
    }

    /// Notes decisions for the record of this call from now on.
    pub(crate) fn note_for(&mut self, call: Arc<Call>) {
        self.call = Some(call);
    }

    /// Notes what the call is about.
    pub(crate) fn about(&self, name: &'static str, value: &str) {
        if let Some(call) = &self.call {
            call.about(name, value.to_owned());
        }
    }

    /// Whether its decisions are recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.call.is_some()
    }

    /// The same caller, whose decisions are recorded elsewhere.
    pub(crate) fn unrecorded(&self) -> Caller {
        Caller { call: None, ..self.clone() }
    }

    /// Begins the recording of one message of a stream. Returns the caller that notes its decisions.
    pub(crate) fn message(&self, request: &'static str, recorded: Recorded) -> (Caller, Recording) {
        let call = self.call.as_ref().and_then(|call| call.message(request));
        (Caller { call: call.clone(), ..self.clone() }, Recording::of(call, recorded))
    }

    pub(crate) fn may(&self, verb: Verb, resource: Resource<'_>) -> bool {
        self.principal.check(verb, resource).is_ok()
    }

    /// Whether the caller may read members of this service. Everybody who may use the registry may read the nodes of the
    /// cluster, because clients connect to them.
    fn may_read(&self, service: &str) -> bool {
        service == NODE_SERVICE || self.may(Verb::Read, Resource::Service(service))
    }

    /// Returns a member if the caller may read it. Otherwise it does not exist for the caller.
    pub(crate) fn visible(&self, member: Option<Member>) -> Option<Member> {
        member.filter(|member| self.may_read(member.service()))
    }

    /// Restricts a filter to what the caller may read. Lists, counts, watches and their positions use the result, so nothing
    /// else can show in them.
    pub(crate) fn readable(&self, filter: Filter) -> Filter {
        match self.all_readable() {
            None => filter,
            Some(readable) => filter.and(readable),
        }
    }

    /// Returns the selection of a watch. It contains what the caller may read, because a resumed watch also sends members that
    /// the filter does not match.
    pub(crate) fn watched(&self, filter: Filter) -> WatchSelection {
        let (filter, readable) = (self.readable(filter), self.all_readable());
        WatchSelection { readable, ..WatchSelection::new(Space::Member, filter) }
    }

    /// Returns a filter of all members that the caller may read; `None` if these are all.
    fn all_readable(&self) -> Option<Filter> {
        let patterns = self.principal.grants().patterns(Verb::Read, Kind::Service)?;
        let shown = patterns.into_iter().map(|pattern| match pattern {
            Pattern::Exact(name) => name.to_string(),
            Pattern::Prefix(prefix) => format!("{prefix}*"),
        });
        Some(Filter::any_service(shown.chain([NODE_SERVICE.to_owned()])))
    }

    pub(crate) fn may_see_service(&self, service: &str) -> bool {
        self.may_read(service)
    }
}

/// Converts a denial. Callers without credentials can sign in; others need another grant.
fn denied(why: &Denied) -> Error {
    let code = if why.is_anonymous() { ErrorCode::Unauthenticated } else { ErrorCode::PermissionDenied };
    Error::new(code, why.to_string())
}
