//! The settings of TLS and access control.

use super::build::from;
use super::load::Loaded;
use super::settings::{RateSettings, Settings};
use convoke_cli::{CommandError, Result};
use convoke_server::{AuditConfig, AuditTarget, RateLimits, Rates};
use std::path::Path;
use std::time::Duration;

/// Handshakes in progress on the client port, and their time limit.
const HANDSHAKES_MAX: usize = 1_024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether strangers who reach the ports can do nothing: TLS is required on both, and callers need grants.
pub(super) fn is_secured(settings: &Settings) -> bool {
    let required = |mode| mode == convoke_tls::Mode::Required;
    required(settings.tls.client) && required(settings.tls.peer) && settings.auth.enabled
}

pub(super) fn tls(loaded: &Loaded, id: &str) -> Result<Option<convoke_tls::Settings>> {
    let settings = &loaded.settings.tls;
    if !settings.client.is_on() && !settings.peer.is_on() {
        return Ok(None);
    }
    let file = |key: &'static str, path: &Path| {
        if path.as_os_str().is_empty() {
            let error = convoke_tls::TlsError::Missing(key);
            return Err(CommandError::usage(format!("{error}{}", from(loaded, &["tls.client", "tls.peer"]))));
        }
        Ok(loaded.resolve(key, path))
    };
    Ok(Some(convoke_tls::Settings {
        cluster: loaded.settings.cluster.clone(),
        node: id.to_owned(),
        files: convoke_tls::Files {
            ca: file("tls.ca", &settings.ca)?,
            cert: file("tls.cert", &settings.cert)?,
            key: file("tls.key", &settings.key)?,
        },
        client: settings.client,
        peer: settings.peer,
        client_certificates: settings.client_certificates,
        client_tls12: settings.client_tls12,
        handshakes: HANDSHAKES_MAX,
        handshake_timeout: HANDSHAKE_TIMEOUT,
    }))
}

/// Returns the settings of access control, if it is on.
pub(super) fn auth(loaded: &Loaded) -> Option<convoke_server::AuthConfig> {
    let (settings, auth) = (&loaded.settings, &loaded.settings.auth);
    let file = |key, path: &Path| (!path.as_os_str().is_empty()).then(|| loaded.resolve(key, path));
    auth.enabled.then(|| convoke_server::AuthConfig {
        cluster: settings.cluster.clone(),
        keys: loaded.resolve("auth.keys", &auth.keys),
        policy: file("auth.policy", &auth.policy),
        anonymous: auth.anonymous.clone(),
        max_token_ttl: auth.max_token_ttl.into(),
        node_token: file("auth.node_token", &auth.node_token),
        revocations: Some(settings.data_dir.join("revocations")),
    })
}

/// Returns the settings of the audit log, if there is one.
pub(super) fn audit(settings: &Settings) -> Option<AuditConfig> {
    let audit = &settings.audit;
    let target = match audit.file.to_str() {
        Some("") => return None,
        Some("-") => AuditTarget::Stdout,
        _ => AuditTarget::File(settings.data_dir.join(&audit.file)),
    };
    Some(AuditConfig { target, max_bytes: audit.max_bytes.into(), files: audit.files })
}

/// DNS cannot authenticate its clients: with access control it must be asked for.
pub(super) fn dns_enabled(loaded: &Loaded) -> bool {
    loaded.settings.dns.enabled && (!loaded.settings.auth.enabled || loaded.source("dns.enabled").is_some())
}

/// Returns the rate limits. They are off by default.
pub(super) fn rates(rates: &RateSettings) -> RateLimits {
    RateLimits {
        principal: Rates {
            requests: rates.principal_requests,
            attaches: rates.principal_attaches,
            sessions: rates.principal_sessions,
            watchers: rates.principal_watchers,
            bytes: rates.principal_bytes.into(),
        },
        address: Rates {
            requests: rates.address_requests,
            attaches: rates.address_attaches,
            sessions: rates.address_sessions,
            watchers: rates.address_watchers,
            bytes: rates.address_bytes.into(),
        },
    }
}
