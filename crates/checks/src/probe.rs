//! One run of a check on the network.

mod grpc;
mod http;

use crate::guard::{ConnectError, Guard};
use crate::schedule::RunResult;
use crate::tls::ProbeTlsConfigs;
use convoke_core::member::{Check, Health, Probe};
use std::error::Error;
use std::time::Duration;

/// What probes share.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) guard: Guard,
    pub(crate) tls: ProbeTlsConfigs,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    Failed(String),
    #[error("no answer within {0} ms")]
    Timeout(u64),
}

impl ProbeError {
    fn failed(what: &str, error: impl Error) -> ProbeError {
        ProbeError::Failed(format!("{what}: {error}"))
    }

    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, ProbeError::Connect(ConnectError::Denied { .. }))
    }
}

impl Network {
    /// Runs a check once.
    pub(crate) async fn probe(&self, check: &Check) -> Result<RunResult, ProbeError> {
        let timeout = Duration::from_millis(check.timeout_ms);
        let probing = async {
            match &check.probe {
                Probe::Http(http) => self.http(http).await,
                Probe::Tcp { address } => {
                    self.guard.connect(address).await?;
                    Ok(RunResult { status: Health::Passing, output: format!("connected to {address}") })
                }
                Probe::Grpc { address, service, tls } => self.grpc(address, service, tls.as_ref()).await,
                // The application reports it.
                Probe::Ttl { .. } => Ok(RunResult { status: Health::Critical, output: String::new() }),
            }
        };
        tokio::time::timeout(timeout, probing).await.unwrap_or(Err(ProbeError::Timeout(check.timeout_ms)))
    }
}

/// The host of `host:port`, without the brackets of IPv6.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
