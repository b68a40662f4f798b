//! The first check of every request: credentials, and the permission in the table of routes or methods.

use super::caller::Caller;
use super::config::AuthConfig;
use super::files::{self, AuthError};
use super::revocations_file;
use crate::error::invalid;
use crate::service::ClientConnection;
use ::http::{HeaderMap, HeaderName, header};
use arc_swap::ArcSwap;
use convoke_access::{
    Authority, CertificateIdentity, CertificateRole, Credentials, Kind, Principal, REVOCATION_MARGIN, Resource,
    Revocation, RevocationSet, TokenError, TokenText, Unauthenticated, Verb, is_revoked, revoke_principal,
    revoke_token,
};
use convoke_base::same_secret;
use convoke_dns::Shown;
use convoke_node::NodeHandle;
use convoke_proto::v1::revoke_request::What;
use convoke_proto::{Error, ErrorCode};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Marks a request that another node forwarded. It is not forwarded any further.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("convoke-forwarded");
/// Name of the client certificate of the caller of a forwarded request.
pub(crate) const ON_BEHALF: HeaderName = HeaderName::from_static("convoke-on-behalf");
/// Verified tokens that are kept.
const VERIFIED_MAX: usize = 10_000;
/// Interval at which the files are compared with what was read.
const RELOAD: Duration = Duration::from_secs(1);

/// Interval at which revocations of expired tokens are removed.
const PRUNING: Duration = Duration::from_secs(60);

/// What a route or method needs before it is called. Checks of the resources it names follow in its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Everybody: it shows no data.
    Public,
    /// Any of these, for any resource of the kind.
    Needs(&'static [(Verb, Kind)]),
}

/// Writes a [`Permission`]: `permission!(public)` or `permission!(Put Key | Delete Key)`.
macro_rules! permission {
    (public) => { $crate::access::Permission::Public };
    ($($verb:ident $kind:ident)|+) => {
        $crate::access::Permission::Needs(&[$((convoke_access::Verb::$verb, convoke_access::Kind::$kind)),+])
    };
}
pub(crate) use permission;

impl Permission {
    /// Returns what is needed: any of these. Empty if nothing is.
    pub(crate) fn needed(self) -> &'static [(Verb, Kind)] {
        match self {
            Permission::Public => &[],
            Permission::Needs(needed) => needed,
        }
    }

    pub(crate) fn check(self, caller: &Caller) -> Result<(), Error> {
        match self {
            Permission::Public => Ok(()),
            Permission::Needs(needed) => caller.check_any(needed),
        }
    }
}

/// Verifies credentials. Without access control every caller is unrestricted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Option<Arc<Enabled>>);

#[derive(Debug)]
struct Enabled {
    config: AuthConfig,
    authority: ArcSwap<Authority>,
    revocations: ArcSwap<RevocationSet>,
    /// Rises when a caller may have lost a right.
    changes: watch::Sender<u64>,
    verified: Mutex<HashMap<Box<str>, Arc<Principal>>>,
    /// The files on disk are not usable; the last good ones are in use.
    stale: AtomicBool,
}

/// A caller whose token a connection has shown before.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller {
    change: u64,
    caller: Caller,
}

impl Gate {
    /// Reads the files. They must be usable at the start.
    pub(crate) fn open(config: Option<&AuthConfig>) -> Result<Gate, AuthError> {
        let Some(config) = config else { return Ok(Gate(None)) };
        let authority = files::load(config)?;
        Ok(Gate(Some(Arc::new(Enabled {
            config: config.clone(),
            authority: ArcSwap::from_pointee(authority),
            revocations: ArcSwap::default(),
            changes: watch::Sender::new(0),
            verified: Mutex::default(),
            stale: AtomicBool::new(false),
        }))))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Why access control needs attention.
    pub(crate) fn degraded(&self) -> Option<String> {
        let stale = self.0.as_ref()?.stale.load(Ordering::Relaxed);
        stale.then(|| {
            "auth-files: the keys or the policy on disk are not usable; the last good ones are in use".to_owned()
        })
    }

    /// Returns the caller of a request.
    pub(crate) fn authenticate(&self, connection: &ClientConnection, headers: &HeaderMap) -> Result<Caller, Error> {
        let Some(enabled) = &self.0 else { return Ok(Caller::unrestricted()) };
        let token = bearer(headers)?;
        let forwarded = headers.contains_key(FORWARDED);
        if let Some(token) = token {
            connection.check_private()?;
            return enabled.of_token(connection, token, forwarded);
        }
        let caller = enabled.of_certificate(connection.certificate.as_ref())?;
        let behalf = headers.get(ON_BEHALF);
        if behalf.is_some() {
            // Only nodes act for others. Anybody else who tries is refused and not treated as somebody else (AU12).
            caller.check(Verb::Forward, Resource::Cluster)?;
        } else if !forwarded {
            return Ok(caller);
        }
        // A node forwards a request without a token: the caller is not the node.
        let unreadable = |_| Error::new(ErrorCode::Unauthenticated, "the header Convoke-On-Behalf is not readable");
        let name = behalf.map(|name| name.to_str().map_err(unreadable)).transpose()?;
        let certificate = name.map(|name| CertificateIdentity {
            cluster: enabled.authority.load().cluster.clone(),
            role: CertificateRole::Client,
            name: name.to_owned(),
        });
        enabled.of_certificate(certificate.as_ref())
    }

    /// Waits until a caller loses its rights: its token expires or is revoked, its key or its rule is removed, or the policy
    /// grants its certificate something else (AU11). A newer token on the connection replaces one that has expired (AU21).
    pub(crate) async fn loses_rights(&self, connection: &ClientConnection, caller: &Caller) {
        let Some(enabled) = &self.0 else { return std::future::pending().await };
        let mut changes = enabled.changes.subscribe();
        let mut shown = caller.clone();
        loop {
            if is_revoked(&enabled.revocations.load(), caller.principal()) {
                return;
            }
            if enabled.check_again(&shown).is_err() {
                match connection.renewal_of(caller).filter(|newer| enabled.check_again(newer).is_ok()) {
                    Some(newer) => shown = newer,
                    None => return,
                }
            }
            let expires = shown.principal().token().map(|token| token.expires_at);
            let left = expires.map_or(u64::MAX, |expires| expires.saturating_sub(unix_seconds()));
            // The wall clock may be set, so the wait is not longer than a minute.
            let wait = Duration::from_secs(left.min(60)).max(Duration::from_millis(50));
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Reads the files again whenever they change.
    pub(crate) async fn follow_files(&self) {
        let Some(enabled) = &self.0 else { return std::future::pending().await };
        let mut ticks = tokio::time::interval(RELOAD);
        loop {
            ticks.tick().await;
            let config = enabled.config.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || files::load(&config)).await else { continue };
            enabled.take(read);
        }
    }

    /// Follows the revocations of the cluster. They are read from and written to the file of the configuration, so that they
    /// survive a restart of all nodes (AU13).
    pub(crate) async fn follow_revocations(&self, node: &NodeHandle) {
        let Some(enabled) = &self.0 else { return std::future::pending().await };
        let file = enabled.config.revocations.clone();
        let mut changes = node.revocations();
        for revocation in file.as_deref().map(revocations_file::read).unwrap_or_default() {
            // Refused only above the limit, which the file cannot exceed.
            let _ = node.revoke(revocation).await;
        }
        let mut pruning = tokio::time::interval(PRUNING);
        loop {
            let set = changes.borrow_and_update().clone();
            if set != *enabled.revocations.load() {
                enabled.revocations.store(set.clone());
                enabled.changed();
                if let Some(file) = file.clone() {
                    let written = tokio::task::spawn_blocking(move || revocations_file::write(&file, &set)).await;
                    if let Ok(Err(error)) = written {
                        tracing::error!(%error, "revocations not written; they are lost if all nodes stop");
                    }
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                _ = pruning.tick() => drop(node.prune_revocations(unix_seconds(), REVOCATION_MARGIN).await),
            }
        }
    }

    /// Returns the revocation that an operator asks for.
    pub(crate) fn revocation(&self, what: Option<What>, issued_until: u64) -> Result<Revocation, Error> {
        let Some(enabled) = &self.0 else {
            let message = "access control is off at this node: there are no tokens to revoke (auth.enabled)";
            return Err(Error::new(ErrorCode::FailedPrecondition, message));
        };
        let authority = enabled.authority.load();
        let others = authority.policy.issuers.iter().map(|issuer| issuer.max_ttl);
        let now = unix_seconds();
        let keep_until = now + others.max().unwrap_or(0).max(authority.max_token_ttl);
        let named = |text: &str| if text.contains('/') { text.to_owned() } else { format!("token/{text}") };
        match what {
            Some(What::Token(id)) if !id.is_empty() && issued_until == 0 => Ok(revoke_token(&named(&id), keep_until)),
            Some(What::Principal(name)) if !name.is_empty() => {
                // A later time would revoke tokens that do not exist yet, and would be forgotten too early.
                let issued_until = if issued_until == 0 { now } else { issued_until.min(now) };
                Ok(revoke_principal(&named(&name), issued_until, keep_until))
            }
            _ => Err(invalid("what", "name a token, or a principal and optionally issued_until")),
        }
    }

    /// DNS cannot authenticate: it shows what callers without credentials may read.
    pub(crate) fn shown_by_dns(&self) -> Shown {
        let Some(enabled) = self.0.clone() else { return Shown::default() };
        Shown::only(move |service| enabled.authority.load().anonymous.allows(Verb::Read, Resource::Service(service)))
    }
}

impl Enabled {
    /// The caller with this certificate, or without credentials.
    fn of_certificate(&self, certificate: Option<&CertificateIdentity>) -> Result<Caller, Error> {
        let shown = Credentials { token: None, certificate };
        let principal = self.authority.load().authenticate(shown, unix_seconds()).map_err(|why| rejected(&why))?;
        Ok(Caller::with_certificate(Arc::new(principal), certificate))
    }

    fn of_token(&self, connection: &ClientConnection, token: &str, forwarded: bool) -> Result<Caller, Error> {
        let change = *self.changes.borrow();
        let now = unix_seconds();
        if let Some(known) = connection.known_caller()
            && known.change == change
            && known.caller.token.as_ref().is_some_and(|shown| same_secret(shown.secret().as_bytes(), token.as_bytes()))
            && !is_expired(known.caller.principal(), now)
        {
            return Ok(known.caller);
        }
        let principal = self.verify(token, now).map_err(|why| rejected(&why))?;
        let caller = Caller::new(principal, Some(Arc::new(TokenText::new(token))));
        connection.remember_caller(KnownCaller { change, caller: caller.clone() });
        // Nodes send requests of many callers over one connection.
        if !forwarded {
            connection.renew(&caller);
        }
        Ok(caller)
    }

    fn verify(&self, token: &str, now: u64) -> Result<Arc<Principal>, Unauthenticated> {
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        let principal = match known {
            Some(principal) if !is_expired(&principal, now) => principal,
            _ => {
                let shown = Credentials { token: Some(token), certificate: None };
                let principal = Arc::new(self.authority.load().authenticate(shown, now)?);
                let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
                if verified.len() >= VERIFIED_MAX {
                    verified.clear();
                }
                verified.insert(token.into(), principal.clone());
                principal
            }
        };
        if is_revoked(&self.revocations.load(), &principal) {
            return Err(TokenError::Revoked.into());
        }
        Ok(principal)
    }

    fn check_again(&self, caller: &Caller) -> Result<(), Unauthenticated> {
        let again = match (&caller.token, &caller.certificate) {
            (Some(token), _) => self.verify(token.secret(), unix_seconds())?,
            (None, Some(certificate)) => {
                let shown = Credentials { token: None, certificate: Some(certificate) };
                Arc::new(self.authority.load().authenticate(shown, unix_seconds())?)
            }
            (None, None) => return Ok(()),
        };
        // A policy that grants less now is applied to open streams as well.
        if again.grants() == caller.principal().grants() { Ok(()) } else { Err(TokenError::Revoked.into()) }
    }

    fn take(&self, read: Result<Authority, AuthError>) {
        match read {
            Ok(authority) if authority == **self.authority.load() => self.stale.store(false, Ordering::Relaxed),
            Ok(authority) => {
                let keys = authority.keys.ids().count();
                self.authority.store(Arc::new(authority));
                self.stale.store(false, Ordering::Relaxed);
                self.changed();
                tracing::info!(keys, "access control files read again");
            }
            Err(error) => {
                if !self.stale.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "access control files not usable; the last good ones stay in use");
                }
            }
        }
    }

    fn changed(&self) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.changes.send_modify(|change| *change += 1);
    }
}

fn is_expired(principal: &Principal, now: u64) -> bool {
    principal.token().is_some_and(|token| token.expires_at <= now)
}

/// Returns the token of the header `Authorization`.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = shown.next() else { return Ok(None) };
    let malformed = || Error::new(ErrorCode::Unauthenticated, "the header Authorization is not `Bearer TOKEN`");
    if shown.next().is_some() {
        return Err(malformed());
    }
    let text = value.to_str().map_err(|_| malformed())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.trim())) } else { Err(malformed()) }
}

fn rejected(why: &Unauthenticated) -> Error {
    Error::new(ErrorCode::Unauthenticated, why.to_string())
}

/// Tokens and certificates are the only use of the wall clock (AU4).
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
