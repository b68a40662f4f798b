//! TLS of the load. A process runs one benchmark, so all its connections share the setting.

use crate::args::BenchCommon;
use convoke_cli::{ConnectArgs, Result, addresses, tls};
use convoke_client::ClientTls;
use std::sync::OnceLock;
use std::time::Duration;

static TLS: OnceLock<ClientTls> = OnceLock::new();

/// The flags of a client command with these addresses.
pub(super) fn flags(common: &BenchCommon, addr: Vec<String>, timeout: Duration) -> ConnectArgs {
    let BenchCommon { ca, cert, key, .. } = common;
    ConnectArgs { addr, timeout, token_file: None, ca: ca.clone(), cert: cert.clone(), key: key.clone() }
}

/// Reads the certificates of the flags, if there are any. Returns the addresses without their scheme.
pub(super) fn prepare(common: &BenchCommon) -> Result<Vec<String>> {
    let flags = flags(common, common.nodes_given.clone(), Duration::ZERO);
    if let Some(tls) = tls(&flags)? {
        TLS.get_or_init(|| tls);
    }
    addresses(&flags)
}

/// TLS of all connections; `None` without it.
pub(super) fn current() -> Option<ClientTls> {
    TLS.get().cloned()
}
