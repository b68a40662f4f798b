//! Errors of starting the DNS server.

/// The error of starting the DNS server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot listen for DNS on {address}: {source} (choose another port with --dns-port, or set dns.enabled = false)"
    )]
    Bind { address: String, source: std::io::Error },
    #[error(
        "cannot serve DNS on {address}: other machines can reach this address (bind to a loopback address, or allow it with --insecure-public)"
    )]
    Public { address: String },
    #[error("ttl is {ttl:?}: expected whole seconds from 0s to 2147483647s (0s disables caching)")]
    Ttl { ttl: std::time::Duration },
    #[error("networks contains {network:?}: expected a range such as 10.0.0.0/8, or an address")]
    Network { network: String },
}
