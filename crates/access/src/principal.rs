//! Who a caller is.

use crate::grant::{Grant, GrantList};
use crate::resource::Resource;
use crate::verb::{Kind, Verb};
use std::fmt;

/// Name of callers without credentials.
pub const ANONYMOUS: &str = "anonymous";

/// The role that a certificate names in its URI: `convoke://CLUSTER/node/ID` or `convoke://CLUSTER/client/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRole {
    Node,
    Client,
}

/// The identity of a verified client certificate. The TLS listener passes it with the connection. The listener has checked
/// chain, validity and cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    pub cluster: String,
    pub role: CertificateRole,
    pub name: String,
}

/// The token of a principal, as far as revocation and expiry need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDetails {
    /// `ISSUER/JTI`; empty after the slash if the token has no id.
    pub id: String,
    /// Seconds since 1970.
    pub issued_at: u64,
    pub expires_at: u64,
}

/// An authenticated caller, or `anonymous`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// `token/SUBJECT`, `ISSUER/SUBJECT`, `certificate/NAME`, `node/ID`, or `anonymous`. The part before the slash keeps names of
    /// different origins apart (AU6).
    name: String,
    grants: GrantList,
    token: Option<TokenDetails>,
}

impl Principal {
    pub fn new(name: impl Into<String>, grants: GrantList, token: Option<TokenDetails>) -> Principal {
        Principal { name: name.into(), grants, token }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub fn grants(&self) -> &GrantList {
        &self.grants
    }

    pub fn token(&self) -> Option<&TokenDetails> {
        self.token.as_ref()
    }

    /// Decides whether the principal may do this. Every decision in the product is made here (AU8).
    pub fn check(&self, verb: Verb, resource: Resource<'_>) -> Result<(), Denied> {
        if self.grants.allows(verb, resource) { Ok(()) } else { Err(self.denied(verb, resource.to_string())) }
    }

    /// Decides whether the principal may do any of these with any resource of the kind: the first check of a request, before
    /// its resource is known.
    pub fn check_any(&self, needed: &[(Verb, Kind)]) -> Result<(), Denied> {
        if needed.iter().any(|(verb, kind)| self.grants.concerns(*verb, *kind)) {
            return Ok(());
        }
        let (verb, kind) = needed.first().copied().unwrap_or((Verb::Observe, Kind::Cluster));
        Err(self.denied(verb, if kind.is_named() { format!("{kind}:*") } else { kind.to_string() }))
    }

    fn denied(&self, verb: Verb, resource: String) -> Denied {
        Denied { principal: self.name.clone(), verb, resource }
    }
}

/// A denial. It names what the caller itself named, and the grant that would allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub principal: String,
    pub verb: Verb,
    pub resource: String,
}

impl Denied {
    /// The narrowest grant that would allow the request, as text.
    pub fn grant(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }

    /// Whether the caller has shown no credentials, so that signing in may help.
    pub fn is_anonymous(&self) -> bool {
        self.principal == ANONYMOUS
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { principal, verb, resource } = self;
        if self.is_anonymous() {
            return write!(
                f,
                "this request needs a token with the grant `{verb} {resource}`: send Authorization: Bearer TOKEN"
            );
        }
        write!(f, "principal {principal} may not {verb} {resource}; the grant `{verb} {resource}` would allow it")
    }
}

impl std::error::Error for Denied {}

impl Principal {
    /// Everything is allowed, for nodes without access control.
    pub fn unrestricted() -> Principal {
        Principal::new(ANONYMOUS, GrantList::everything(), None)
    }

    /// Another node of the cluster. It serves clients and relays their requests, so it may do everything (AU12).
    pub fn node(id: &str) -> Principal {
        Principal::new(format!("node/{id}"), GrantList::everything(), None)
    }

    /// Returns the grants as text.
    pub fn grant_texts(&self) -> Vec<String> {
        self.grants.iter().map(Grant::to_string).collect()
    }
}
