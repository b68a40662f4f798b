//! Settings of the checker.

use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How many checks run at the same time, by default.
const CONCURRENCY: usize = 256;

/// Settings of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerConfig {
    /// Networks and addresses (`ADDRESS:PORT`) that checks may reach although they are denied by default.
    pub allow: Vec<String>,
    /// Loopback addresses are allowed, because the node itself listens there only.
    pub allow_loopback: bool,
    /// Checks that run at the same time.
    pub concurrency: usize,
    /// Authorities for checks with TLS, in PEM; those of the system by default.
    pub ca: Option<PathBuf>,
}

impl Default for CheckerConfig {
    fn default() -> Self {
        CheckerConfig { allow: Vec::new(), allow_loopback: false, concurrency: CONCURRENCY, ca: None }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("{0:?} is neither a network such as 10.0.0.0/8 nor an address and port such as 10.0.0.1:7700")]
    Allow(String),
}

/// One entry of [`CheckerConfig::allow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Network(IpNet),
    Address(SocketAddr),
}

impl Allowed {
    pub(crate) fn parse(text: &str) -> Result<Allowed, ConfigError> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Allowed::Network(network));
        }
        if let Ok(address) = text.parse::<std::net::IpAddr>() {
            return Ok(Allowed::Network(address.into()));
        }
        text.parse().map(Allowed::Address).map_err(|_| ConfigError::Allow(text.to_owned()))
    }
}
