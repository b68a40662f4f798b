//! TLS and the token of the load. A process runs one benchmark, so all its connections share the settings.

use crate::args::BenchCommon;
use convoke_cli::{CommandError, ConnectArgs, Result, addresses, tls};
use convoke_client::{ClientTls, TokenSource};
use std::sync::OnceLock;
use std::time::Duration;

static TLS: OnceLock<ClientTls> = OnceLock::new();
/// Read once: a benchmark must not measure the reading of a file.
static TOKEN: OnceLock<String> = OnceLock::new();

/// The flags of a client command with these addresses.
pub(super) fn flags(common: &BenchCommon, addr: Vec<String>, timeout: Duration) -> ConnectArgs {
    let BenchCommon { ca, cert, key, token_file, .. } = common;
    let token_file = token_file.clone();
    ConnectArgs { addr, timeout, token_file, ca: ca.clone(), cert: cert.clone(), key: key.clone() }
}

/// Reads the certificates and the token of the flags, if there are any. Returns the addresses without their scheme.
pub(super) fn prepare(common: &BenchCommon) -> Result<Vec<String>> {
    let flags = flags(common, common.nodes_given.clone(), Duration::ZERO);
    if let Some(tls) = tls(&flags)? {
        TLS.get_or_init(|| tls);
    }
    if let Some(path) = &common.token_file {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| CommandError::usage(format!("cannot read {}: {error}", path.display())))?;
        TOKEN.get_or_init(|| text.trim().to_owned());
    }
    addresses(&flags)
}

/// TLS of all connections; `None` without it.
pub(super) fn current() -> Option<ClientTls> {
    TLS.get().cloned()
}

/// Token of all calls; `None` without one.
pub(super) fn token() -> Option<TokenSource> {
    TOKEN.get().map(TokenSource::fixed)
}

/// The header of HTTP requests with the token, with its line end; empty without a token.
pub(super) fn authorization() -> String {
    TOKEN.get().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default()
}
