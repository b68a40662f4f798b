//! Why DNS cannot be served.

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot listen for DNS on {address}: {source}; choose another port (dns_port), or do without (dns.enabled = false)"
    )]
    Bind { address: String, source: std::io::Error },
    #[error(
        "{address} can be reached from other machines: bind to a loopback address, or allow it with insecure_public (--insecure-public)"
    )]
    Public { address: String },
    #[error(
        "ttl is {ttl:?}: DNS counts whole seconds, up to 2147483647; write for example 1s, or 0s for answers that nobody remembers"
    )]
    Ttl { ttl: std::time::Duration },
}
